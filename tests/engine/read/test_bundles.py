"""Bundles: parts of a row group that share a superchunk are read like parts with own files."""

import base64
import json
import threading
import time
import tracemalloc
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable import tuning
from blztable.engine.read import parts
from blztable.engine.read.columns import OpenColumns
from blztable.engine.read.selection import RowSpan
from blztable.engine.run import limits, pool
from blztable.engine.version.versions import pin
from blztable.format import layout, manifest
from blztable.format.bundle import ENTRY
from blztable.format.chunk import MAX_CHUNK_BYTES, Compression
from blztable.storage.memory import RamStore
from support import tamper
from support.stores import Hooked, read

pytestmark = pytest.mark.usefixtures("bundled")

WORDS = pa.array([None if n % 7 == 0 else f"word {n % 13}" * (n % 5) for n in range(300)])
TABLE = pa.table(
    {
        "n": pa.array(range(300)),
        "s": WORDS,
        "d": WORDS.dictionary_encode(),
        "z": pa.nulls(300),
        "f": pa.array([None if n % 5 == 0 else n / 8 for n in range(300)]),
        "b": pa.array([n % 3 == 0 for n in range(300)]),
    }
)
BUNDLE = layout.part(layout.SHARED, 1)
# The entries of each column: validity and values, items or codes, then those of the dictionary.
N, S, D, F = 0, 2, 5, 10


@pytest.fixture(autouse=True, params=[1, tuning.current.matrix_columns_read])
def least(request, tuned):
    """Read few columns of numbers together, too, as many are."""
    tuned(matrix_columns_read=request.param)


@pytest.fixture
def store():
    store = RamStore()
    blz.to_blz(TABLE, store, storage=blz.Storage(row_group_rows=128), durability="process")
    return store


def files(store):
    return {key for key in store._entries if key.endswith(".bin")}


def test_a_table_of_bundles_is_read_and_intact(store):
    assert files(store) == {layout.part(layout.SHARED, k) for k in (1, 2, 3)}
    with blz.open(store) as table:
        assert table.to_arrow() == TABLE
        assert table.to_arrow(filters=[("n", ">=", 250)]) == TABLE.slice(250)
        assert table.take([5, 299]) == TABLE.take([5, 299])
        for name in TABLE.column_names:
            assert table.to_arrow(columns=[name]) == TABLE.select([name])
        report = table.verify()
    assert report.is_intact, report.problems
    assert report.files == 3


def test_a_program_that_does_not_know_bundles_refuses_the_table_by_name(store, monkeypatch):
    monkeypatch.setattr(manifest, "KNOWN_FEATURES", frozenset())
    with pytest.raises(blz.FormatError, match=r"requires .*'bundles'.*upgrade"):
        blz.read_table(store)


@pytest.mark.parametrize("most", [0, 1 << 20])
def test_each_bundle_is_opened_once_for_all_columns(store, most, tuned):
    tuned(small_bundle_bytes=most)
    opened = []

    def note(name, args):
        if name == "open" and args[0].startswith(layout.BUNDLES):
            opened.append(args[0])

    version, pinned = pin(Hooked(store, before=note))
    with pinned:
        assert read(version) == TABLE
    assert sorted(opened) == [layout.part(layout.SHARED, k) for k in (1, 2, 3)]


@pytest.mark.parametrize("columns", [["n"], ["s"], ["d", "f"], TABLE.column_names])
def test_each_chunk_is_read_once_for_all_columns(columns, tuned, monkeypatch):
    tuned(small_bundle_bytes=0)
    store, read = RamStore(), []
    blz.to_blz(TABLE, store, durability="process")

    def note(self, chunk, contents=parts.OpenBundle.contents):
        read.append(chunk)
        return contents(self, chunk)

    monkeypatch.setattr(parts.OpenBundle, "contents", note)
    blz.read_table(store, columns=columns)
    # Text is located before it is filled.
    assert max(map(read.count, read)) <= 2
    read.clear()
    blz.read_table(store, columns=["n", "f", "b"])
    assert len(read) == len(set(read))


def line(column, **changes):
    def act(table):
        for key, value in changes.items():
            table.lines[column][key][0] = value

    return act


def head(**changes):
    def act(table):
        for key, value in changes.items():
            table.head["bundles"][key][0] = value

    return act


def entry(number, **changes):
    def act(table):
        bundle = table.bundle()
        entries = bundle.stream(0).view(ENTRY)
        for key, value in changes.items():
            entries[key][number] = value
        bundle.set_stream(0, entries.tobytes())

    return act


def encoding(**changes):
    """Change the first encoding, which is that of the first column."""

    def act(table):
        bundle = table.bundle()
        lines = bundle.stream(1).tobytes().split(b"\n")
        lines[0] = json.dumps(json.loads(lines[0]) | changes).encode()
        bundle.set_stream(1, b"\n".join(lines))

    return act


def metadata(**changes):
    def act(table):
        table.bundle().metadata |= changes

    return act


def claim_items(table):
    """Claim that the items of the text are a chunk each."""
    table.lines[1]["per_item"] = [1, 0, 0]
    table.head["requires"].append("per_item")


def no_typesize(table):
    """Let the first encoding not say how wide its codes are."""
    bundle = table.bundle()
    lines = bundle.stream(1).tobytes().split(b"\n")
    described = json.loads(lines[0])
    del described["typesize"]
    bundle.set_stream(1, b"\n".join([json.dumps(described).encode(), *lines[1:]]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (line(0, at=10**6), r"no entries 1000000 to 1000001"),
        (line(0, at=2**62), r"no entries"),
        (line(0, at=2), "column 'n'"),
        (line(0, k=1), "a part has a file and lies in a bundle"),
        (line(1, page_rows=64), "the manifest says 128 in pages of 64"),
        (head(k=0), "row group 0 has no bundle"),
        (head(k=9), "the file is missing"),
        (head(k=2), "two row groups have the same"),
        (head(cbytes=7), "front and trailer have"),
        (head(cbytes=10**9), r"the file has \d+ bytes; the manifest says 1000000000"),
        (head(front_length=1 << 40), "the front has"),
        (head(front_length=40), "a front of 40 bytes"),
        (head(crc=1), "the trailer is not the one"),
        (lambda table: table.head["bundles"]["k"].pop(), "expected a list of 3 numbers"),
        (lambda table: table.head["bundles"].pop("crc"), "expected a list of 3 numbers"),
        (lambda table: table.head.update(bundles=[1, 2, 3]), "bundles"),
        (lambda table: table.head.update(requires=[]), "'requires' lacks 'bundles'"),
        (lambda table: table.head.update(next_bundle=0), "the next bundle has number 0"),
        (lambda table: table.lines[0]["at"].pop(), "expected a list of 3 numbers"),
        (lambda table: table.lines[0].update(at=[0, 0, 0]), "no stream 'values'"),
        (entry(N + 1, chunk=0), "an entry names a chunk"),
        (entry(N + 1, chunk=1), "an entry names a chunk"),
        (entry(N + 1, chunk=99), "an entry names a chunk"),
        (entry(N + 1, start=1 << 31), "an entry leads out of its chunk"),
        (entry(N + 1, nbytes=(1 << 32) - 1), "an entry leads out of its chunk"),
        (entry(N + 1, encoding=99), "an entry names an encoding"),
        (entry(N + 1, encoding=0), "column 'n'.*128 rows take 1024"),
        (entry(N + 1, nbytes=127), "column 'n'"),
        (entry(N + 1, rows=127), "the streams of a block have"),
        (entry([N, N + 1], rows=127), "127 rows"),
        (entry(N + 1, rows=1 << 20), "an entry has no valid number of rows"),
        (entry(N + 1, page_rows=100), "an entry has no valid number of rows"),
        (entry(N + 1, page_rows=0), "an entry has no valid number of rows"),
        (entry(S + 1, nbytes=0), "column 's'"),
        (entry(F + 1, nbytes=15), "column 'f'"),
        (encoding(kind="new"), "encoding 'new' is unknown"),
        (encoding(dtype=5), "dtype: expected a text"),
        (encoding(dtype="<i8"), "column 'n'"),
        (encoding(typesize="4"), "typesize: expected a whole number"),
        (no_typesize, "typesize: expected a whole number"),
        (metadata(encoding="plain"), "not a bundle"),
        (metadata(rows=127), "the manifest says"),
        (metadata(packing="per_item"), "expected one for each of 128 rows"),
        (claim_items, "column 's'.*the line of the column says 'per_item'"),
    ],
)
def test_a_false_claim_is_refused_with_its_file_and_column(store, change, message):
    with tamper.editing(store) as table:
        change(table)
    with pytest.raises((blz.CorruptError, blz.FormatError, blz.LimitError), match=message):
        blz.read_table(store)


def test_a_bundle_has_no_chunk_for_each_item():
    store = RamStore()
    blz.to_blz({"n": [1], "m": [2]}, store)
    with tamper.editing(store) as table:
        block = table.bundle().metadata
        block["packing"] = "per_item"
        block["streams"][2]["name"] = "values"
    with pytest.raises(blz.CorruptError, match="a bundle has packing 'per_item'"):
        blz.read_table(store)


def test_a_part_at_the_place_of_another_column_is_corrupt(store):
    with tamper.editing(store) as table:
        table.lines[0]["at"][0] = table.lines[1]["at"][0]
    with pytest.raises(blz.CorruptError, match="column 'n'"):
        blz.read_table(store)
    assert blz.read_table(store, columns=["s"]) == TABLE.select(["s"])


def test_entries_that_overlap_are_reported(store):
    """Two columns of one type and one range have the same bytes."""
    twice = pa.table({"a": range(300), "b": range(300)})
    store = RamStore()
    blz.to_blz(twice, store, durability="process")
    with tamper.editing(store) as table:
        bundle = table.bundle()
        entries = bundle.stream(0).view(ENTRY)
        entries["start"][3] = entries["start"][1] + 8
        bundle.set_stream(0, entries.tobytes())
    with blz.open(store) as table:
        assert table.to_arrow(columns=["a"]) == twice.select(["a"])
        problems = table.verify().problems
    assert [one for one in problems if "overlaps another one" in one.message]
    assert {problem.file for problem in problems} >= {BUNDLE}


def test_a_checksum_behind_a_chunk_is_compared_by_verify_alone(store):
    with tamper.editing(store) as table:
        bundle = table.bundle()
        end = bundle.offsets[3] - 1
    data = bytearray(store.get(BUNDLE))
    data[end] ^= 1
    store.put(BUNDLE, bytes(data))
    with blz.open(store) as table:
        assert table.to_arrow() == TABLE
        (problem,) = table.verify().problems
        assert table.verify(full=False).is_intact
    assert problem.is_readable
    assert (problem.file, problem.start, problem.stop) == (BUNDLE, 0, 128)
    assert problem.message.startswith("chunk 2: crc32 behind the chunk is")


def test_a_damaged_chunk_loses_only_the_columns_in_it(store):
    with tamper.editing(store) as table:
        bundle = table.bundle()
        entries = bundle.stream(0).view(ENTRY)
        chunk = int(entries["chunk"][S + 2])
        at = bundle.offsets[chunk] + 20
    data = bytearray(store.get(BUNDLE))
    data[at] ^= 1
    store.put(BUNDLE, bytes(data))
    with blz.open(store) as table:
        rest = ["n", "f", "b"]
        assert table.to_arrow(columns=rest) == TABLE.select(rest)
        lost = {(one.column, one.start, one.stop) for one in table.verify().problems}
        with pytest.warns(match="rows 0 to 128"):
            assert table.to_arrow(on_corrupt="skip") == TABLE.slice(128)
    assert lost == {("s", 0, 128), ("d", 0, 128)}


def test_a_part_of_a_bundle_is_read_in_spans(store):
    version, pinned = pin(store)
    with pinned, OpenColumns.whole(version) as parts:
        for span in (RowSpan(1, 0, 64), RowSpan(1, 64, 128), RowSpan(2, 3, 40)):
            (column,) = parts.columns([1], [span])
            start = 128 * span.group + span.start
            assert column.to_pylist() == WORDS.to_pylist()[start : start + span.count]


def test_columns_of_one_bundle_do_not_share_memory(store):
    """A column that stays in memory must not keep the bytes of the others."""
    with blz.open(store) as table:
        found = table.to_arrow(columns=["n", "f", "b"], filters=pc.field("n") < 1000)
    spans = [
        (buffer.address, buffer.address + buffer.size)
        for column in found.columns
        for chunk in column.chunks
        for buffer in chunk.buffers()
        if buffer is not None
    ]
    spans.sort()
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


@pytest.mark.parametrize("dtype", ["i1", "u2", "i4", "i8", "u8", "f4", "f8", "M8[ns]", "m8[s]"])
@pytest.mark.parametrize("has_nulls", [False, True])
def test_numbers_of_a_bundle_come_back_in_memory_that_can_be_written(dtype, has_nulls):
    rows = np.arange(50).astype("i8" if dtype[0] in "mM" else dtype).astype(dtype)
    mask = np.arange(50) % 9 == 0 if has_nulls else None
    table = pa.table({name: pa.array(rows, mask=mask) for name in "ab"})
    store = RamStore()
    blz.to_blz(table, store, durability="process")
    found = blz.read_table(store)
    assert found == table
    assert all(column.chunk(0).buffers()[1].is_mutable for column in found.columns)


def test_a_null_in_a_column_that_has_none_by_its_schema_is_read(store):
    table = pa.table({"a": [1, None], "b": [1, 2]})
    store = RamStore()
    blz.to_blz(table, store, durability="process")
    strict = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.int64())])
    with tamper.editing(store) as edit:
        edit.head["schema"] = base64.b64encode(strict.serialize().to_pybytes()).decode()
    assert blz.read_table(store) == pa.table(table.columns, schema=strict)


def test_a_bundle_without_entries_is_refused(store, monkeypatch):
    def emptied(*args, open_bundle=parts.open_bundle):
        found = open_bundle(*args)
        return replace(found, directory=replace(found.directory, entries=np.empty(0, ENTRY)))

    monkeypatch.setattr(parts, "open_bundle", emptied)
    with pytest.raises(blz.CorruptError, match="column 'n': the bundle has no entries 1 to 2"):
        blz.read_table(store)


def test_nan_is_null_of_a_column_without_nan_is_refused():
    store = RamStore()
    blz.to_blz({"a": pa.array([1.5, None]), "b": pa.array([2.5, 1.0])}, store)
    times = pa.schema([("a", pa.time64("us")), ("b", pa.time64("us"))])
    with tamper.editing(store) as edit:
        edit.head["schema"] = base64.b64encode(times.serialize().to_pybytes()).decode()
    with pytest.raises(blz.CorruptError, match=r"column 'a'.*'nan_is_null' in a column of time64"):
        blz.read_table(store)


def stretched(store, index, contents, count):
    """Make one stream of the bundle of so many equal chunks of zstd."""
    with tamper.editing(store) as table:
        bundle = table.bundle()
        stream = bundle.metadata["streams"][index]
        chunk = Compression("zstd", 5).compress(contents, stream["typesize"])
        bundle.chunks[bundle._chunks_of(index)] = [chunk] * count
        stream.pop("chunks", None)
        stream |= {"nbytes": len(contents) * count, "chunk_size": len(contents)}


# A file of 100 KB took a gigabyte for each read of one column.
def test_entries_that_are_too_many_to_read_are_refused(store):
    entries = np.zeros(MAX_CHUNK_BYTES // ENTRY.itemsize, ENTRY)
    entries["page_rows"] = 8
    stretched(store, 0, entries.view(np.uint8), 9)
    with pytest.raises(blz.LimitError, match=r"column 'n'.*at most 67108864 are read"):
        blz.read_table(store, columns=["n"])


def test_more_encodings_than_entries_are_refused(store):
    stretched(store, 1, np.full(1 << 20, ord("\n"), np.uint8), 1)
    with pytest.raises(blz.CorruptError, match=r"column 'n': more encodings than the \d+ entries"):
        blz.read_table(store, columns=["n"])


def test_numbers_that_need_more_memory_than_there_is_are_refused(monkeypatch):
    """The codes in the file need less."""
    store = RamStore()
    blz.to_blz(pa.table({"a": range(300), "b": range(300)}), store, durability="process")
    monkeypatch.setattr(limits, "_memory", lambda: 2000)
    with pytest.raises(blz.LimitError, match="need 2400 bytes of memory"):
        blz.read_table(store, columns=["a"])


def test_a_damaged_chunk_is_named_by_its_number_in_the_bundle(store):
    with tamper.editing(store) as table:
        at = table.bundle().offsets[2] + 20
    data = bytearray(store.get(BUNDLE))
    data[at] ^= 1
    store.put(BUNDLE, bytes(data))
    with pytest.raises(blz.CorruptError, match=r"'n', stream 'values', chunk 2: crc32 is"):
        blz.read_table(store, columns=["n"])


def test_a_read_of_one_column_keeps_few_bytes_of_the_others(tmp_path, tuned):
    tuned(kept_bundle_bytes=1 << 20)
    rng, store = np.random.default_rng(0), tmp_path / "t.blz"
    table = pa.table({f"c{n}": rng.random(10_000) for n in range(60)})
    blz.to_blz(table, store, storage=blz.Storage(row_group_rows=500), durability="process")
    with blz.open(store) as opened:
        assert opened["c7"].cbytes * 60 > 4 << 20
        tracemalloc.start()
        try:
            assert opened.to_arrow(columns=["c7"]) == table.select(["c7"])
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 3 << 20


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_nulls_that_a_bundle_has_as_nan_are_null_in_arrow_and_nan_in_pandas(dtype):
    frame = pd.DataFrame({name: np.arange(30.0).astype(dtype) for name in "ab"})
    frame.loc[[0, 7, 29], "a"] = np.nan
    store = RamStore()
    blz.to_blz(frame, store, durability="process")
    found = blz.read_table(store)
    assert found["a"].null_count == 3
    assert found["a"].is_null().to_pylist() == frame["a"].isna().tolist()
    assert found["b"].null_count == 0
    pd.testing.assert_frame_equal(blz.read_blz(store), frame)
    with blz.open(store) as table:
        assert table.to_arrow(filters=pc.field("a").is_null()).num_rows == 3


@pytest.mark.parametrize("is_shared", [False, True])
def test_few_bytes_of_numbers_are_read_by_the_caller_alone(is_shared, tuned, monkeypatch):
    """Another thread would take longer to wake."""
    table = pa.table({f"c{n}": np.random.default_rng(n).random(2000) for n in range(100)})
    store, threads = RamStore(), set()
    blz.to_blz(table, store, durability="process")

    def note(self, chunk, contents=parts.OpenBundle.contents):
        threads.add(threading.get_ident())
        time.sleep(0.01)  # Others would come.
        return contents(self, chunk)

    tuned(matrix_shared_bytes=table.nbytes + (not is_shared))
    monkeypatch.setattr(pool, "_processors", lambda: 4)
    monkeypatch.setattr(parts.OpenBundle, "contents", note)
    assert blz.read_table(store) == table
    assert (threads == {threading.get_ident()}) == (not is_shared)
