"""Reuse: unchanged chunks are copied from the old file, and the new data always win."""

from pathlib import Path

import blosc
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.engine.read.parts import OpenParts
from blztable.engine.run.pool import Progress
from blztable.engine.version import versions
from blztable.engine.version.commit import Commit, CommitPlan
from blztable.engine.version.staged import StagedVersion
from blztable.engine.write.column_writer import ColumnWriter, staged_columns
from blztable.engine.write.columns import write_groups
from blztable.errors import CorruptError, StorageError
from blztable.format import chunk as chunks
from blztable.format.records import LENGTHS, VALID, VALUES
from blztable.storage.local import LocalStore
from blztable.storage.memory import RamStore
from support import arrow_strategies, tamper
from support.bit_equality import same
from support.bloscpack_reference import bloscpack_bytes
from support.options import tiny
from support.stores import Hooked, once, raising, read, write

pytestmark = pytest.mark.usefixtures("own_files")

# The first bytes of zlib state its level, so that a chunk compressed anew differs from the old.
BEFORE = {
    "compression": "zlib",
    "clevel": 1,
    "page_rows": 64,
    "chunk_bytes": 512,
    "encoding": "plain",
}
AFTER = BEFORE | {"clevel": 9}
ROWS = 640
# Text of one length, so that pages hold the same number of bytes.
WORDS = [f"word {row % 7}" for row in range(ROWS)]
EDITED = 100
# The only file of a table with one column and one row group.
FILE = "data/col0/__1__.bin"


def changed(array, row, value):
    """Return the array with another value in one row."""
    items = array.to_pylist()
    items[row] = value
    if pa.types.is_dictionary(array.type):
        codes = pa.array(
            [None if i is None else array.dictionary.to_pylist().index(i) for i in items]
        )
        codes = codes.cast(array.type.index_type)
        return pa.DictionaryArray.from_arrays(codes, array.dictionary)
    return pa.array(items, array.type)


def pinned(store):
    version, lock = versions.pin(store)
    lock.close()
    return version


def update(store, indices, table, parts=None, **options):
    """Write these columns again in their row groups, and commit."""
    options = tiny(**options)
    base = pinned(store)
    parts = parts or OpenParts(base)
    columns = [
        ColumnWriter(base.paths[at], field.name, field.type)
        for at, field in zip(indices, table.schema, strict=True)
    ]
    groups, first = [], 0
    for rows in base.row_groups:
        groups.append((table.slice(first, rows), rows))
        first += rows

    def old(position, group):
        return parts.open(indices[position], group)

    with Commit(CommitPlan(store, is_durable=False, base=base)) as commit:
        progress, numbers = Progress(None, None, len(columns)), commit.files.numbers
        uuid = base.head.uuid
        write_groups(store, uuid, columns, groups, options, progress, numbers, old)
        written = dict(zip(indices, staged_columns(columns), strict=True))

        def rebased(newest):
            return StagedVersion.of(newest).with_parts(written, range(len(groups)))

        version, lock = commit.publish("update", rebased)
    lock.close()
    return version


def chunks_of(version, index=0, group=0):
    """Return the compressed bytes of each chunk, by stream and index."""
    streams = OpenParts(version).open(index, group).streams
    return {
        (name, number): bytes(stream.compressed(number))
        for name, stream in streams.items()
        for number in range(len(stream.sizes))
    }


def made_anew(store, array, row, value, **options):
    """Update one row; check the data and return the chunks that changed."""
    write(store, pa.table({"x": array}), **BEFORE)
    before = chunks_of(pinned(store))
    assert len(before) > 7
    table = pa.table({"x": changed(array, row, value)})
    version = update(store, [0], table, **AFTER | options)
    assert same(read(version)["x"].combine_chunks(), table["x"].combine_chunks())
    after = chunks_of(version)
    assert after.keys() == before.keys()
    return {place for place in after if after[place] != before[place]}


NUMBERS = pa.array([row % 11 for row in range(ROWS)], pa.int64())
WITH_NULLS = pa.array([None if row % 5 == 0 else row % 11 for row in range(ROWS)], pa.int64())
# With 512 bytes a chunk, row 100 is in chunk 1 of int64 and in chunk 0 of a type of one byte.
CASES = {
    "numbers": (NUMBERS, 7, {(VALUES, 1)}),
    "a value for a null": (WITH_NULLS, 7, {(VALID, 0), (VALUES, 1)}),
    "a null for a value": (WITH_NULLS.slice(1), None, {(VALID, 0), (VALUES, 1)}),
    "text": (pa.array(WORDS), "word 9", {(VALUES, 1)}),
    "dictionary": (
        pa.array(WORDS * 8).dictionary_encode().cast(pa.dictionary(pa.int64(), pa.string())),
        "word 3",
        {(LENGTHS, 0)},
    ),
    "bool": (pa.array([row % 3 == 0 for row in range(10 * ROWS)]), True, {(VALUES, 0)}),
}


@pytest.mark.parametrize("case", CASES)
def test_an_update_makes_the_chunks_anew_that_it_touches_and_copies_the_others(case):
    array, value, touched = CASES[case]
    assert array[EDITED].as_py() != value
    assert made_anew(RamStore(), array, EDITED, value) == touched


def test_chunks_before_a_longer_text_are_copied():
    store, array = RamStore(), pa.array(WORDS)
    write(store, pa.table({"x": array}), **BEFORE)
    before = chunks_of(pinned(store))
    table = pa.table({"x": changed(array, 300, "a longer one")})
    after = chunks_of(update(store, [0], table, **AFTER))
    kept = [
        number for (name, number), chunk in after.items() if before.get((name, number)) == chunk
    ]
    # The items before have 1,800 bytes in chunks of 480.
    assert kept == [0, 1, 2]


def test_each_column_is_compared_with_its_own_old_part_in_its_own_row_group():
    store = RamStore()
    table = pa.table(
        {
            "small": pa.array(np.arange(ROWS) % 11, pa.int16()),
            "kept": NUMBERS,
            "large": pa.array((np.arange(ROWS) % 13).astype("f8")),
        }
    )
    write(store, table, row_group_rows=192, **BEFORE)
    base = pinned(store)
    assert len(base.row_groups) == 4
    version = update(store, [2, 0], table.select(["large", "small"]), **AFTER)
    assert read(version) == table
    for index in range(3):
        for group in range(4):
            assert chunks_of(version, index, group) == chunks_of(base, index, group)
    before, after = ([one.parts(index).files for index in range(3)] for one in (base, version))
    assert [bool((a == b).all()) for a, b in zip(before, after, strict=True)] == [
        False,
        True,
        False,
    ]


def test_a_genuine_bloscpack_file_is_copied_from_and_made(tmp_path):
    store = LocalStore(tmp_path / "t.blz")
    assert made_anew(store, NUMBERS, EDITED, 7) == {(VALUES, 1)}
    version = pinned(store)
    path = Path(store.name, version.parts(0).key(0))
    assert bloscpack_bytes(path) == changed(NUMBERS, EDITED, 7).to_numpy().tobytes()
    store.close()


def test_with_another_codec_every_chunk_is_made_anew():
    store = RamStore()
    anew = made_anew(store, NUMBERS, EDITED, 7, compression="zstd")
    assert len(anew) == len(chunks_of(pinned(store))) == 10


def test_chunks_of_a_codec_that_is_not_written_are_made_anew():
    store = RamStore()
    write(store, pa.table({"x": NUMBERS}), **BEFORE)
    raw = NUMBERS.to_numpy()
    with tamper.editing(store) as edit:
        stream = edit.part().streams[VALUES]
        for number in range(len(stream.chunks)):
            stream.chunks[number] = blosc.compress(
                raw[64 * number : 64 * (number + 1)], 8, 5, blosc.SHUFFLE, "blosclz"
            )
    before = pinned(store)
    assert read(before)["x"].combine_chunks() == NUMBERS
    version = update(store, [0], pa.table({"x": NUMBERS}), **AFTER)
    flags = [chunks.ChunkHeader.decode(data).flags for data in chunks_of(version).values()]
    assert [chunks.CODEC_NAMES[one >> chunks.CODEC_SHIFT] for one in flags] == ["zlib"] * 10


def test_what_did_not_shrink_is_copied_whatever_the_codec():
    noise = pa.array(np.random.default_rng(5).integers(-(2**62), 2**62, ROWS))
    assert made_anew(RamStore(), noise, EDITED, 7, compression="zstd") == {(VALUES, 1)}


# Data under a correct digest


def other(chunk):
    raw = np.frombuffer(blosc.decompress(chunk), np.int64) + 1
    return blosc.compress(raw, 8, 1, blosc.SHUFFLE, "zlib")


LIES = {
    "other numbers": other,
    "nbytes": lambda chunk: tamper.with_header(chunk, nbytes=1 << 30),
    "a little more": lambda chunk: tamper.with_header(chunk, nbytes=520),
    "ctbytes": lambda chunk: tamper.with_header(chunk, ctbytes=len(chunk) - 1),
    "typesize": lambda chunk: tamper.with_header(chunk, typesize=1),
    "blocksize": lambda chunk: tamper.with_header(chunk, blocksize=1),
    "version": lambda chunk: tamper.with_header(chunk, version=9),
    "codec": lambda chunk: tamper.with_header(chunk, flags=7 << 5),
    "stored": lambda chunk: tamper.with_header(chunk, flags=chunks.MEMCPYED),
    "noise": lambda chunk: chunk[:20] + bytes(range(len(chunk) - 20)),
    "cut": lambda chunk: chunk[:20],
}


@pytest.mark.parametrize("lie", LIES)
def test_a_chunk_that_lies_below_its_digest_is_made_anew(lie):
    store = RamStore()
    write(store, pa.table({"x": NUMBERS}), **BEFORE)
    with tamper.editing(store) as edit:
        stream = edit.part().streams[VALUES]
        before = dict(enumerate(stream.chunks))
        stream.chunks[3] = before[3] = LIES[lie](stream.chunks[3])
    version = update(store, [0], pa.table({"x": NUMBERS}), **AFTER)
    assert read(version)["x"].combine_chunks() == NUMBERS
    after = chunks_of(version)
    assert [number for number in before if after[VALUES, number] != before[number]] == [3]


def flipped(at):
    def spoil(data):
        data[at] ^= 1
        return data

    return spoil


def test_a_damaged_chunk_is_made_anew_and_the_others_are_copied():
    store = RamStore()
    write(store, pa.table({"x": NUMBERS}), **BEFORE)
    base = pinned(store)
    before = chunks_of(base)
    at = int(base.parts(0).records.chunk_offset[3]) + 30
    store.put(FILE, flipped(at)(bytearray(store.get(FILE))))
    with pytest.raises(CorruptError, match="chunk 3"):
        read(base)
    version = update(store, [0], pa.table({"x": NUMBERS}), **AFTER)
    assert read(version)["x"].combine_chunks() == NUMBERS
    after = chunks_of(version)
    assert {place for place in after if after[place] != before[place]} == {(VALUES, 3)}


def test_a_chunk_without_its_digest_is_made_anew_whatever_it_holds():
    store = RamStore()
    write(store, pa.table({"x": NUMBERS}), **BEFORE)
    with tamper.editing(store) as edit:
        edit.part().streams[VALUES].chunk_records["crc"][3] ^= 1
    version = update(store, [0], pa.table({"x": NUMBERS}), **AFTER)
    assert read(version)["x"].combine_chunks() == NUMBERS


@pytest.mark.parametrize("spoil", [flipped(4), flipped(-9), lambda data: data[:50]])
def test_a_file_that_cannot_be_believed_is_not_needed(spoil):
    store = RamStore()
    write(store, pa.table({"x": NUMBERS}), **BEFORE)
    store.put(FILE, spoil(bytearray(store.get(FILE))))
    version = update(store, [0], pa.table({"x": NUMBERS}), **AFTER)
    assert read(version)["x"].combine_chunks() == NUMBERS


def test_a_file_that_is_gone_is_not_needed():
    store = RamStore()
    write(store, pa.table({"x": NUMBERS}), **BEFORE)
    store.delete([FILE])
    version = update(store, [0], pa.table({"x": NUMBERS}), **AFTER)
    assert read(version)["x"].combine_chunks() == NUMBERS


def test_a_medium_that_fails_is_an_error_and_nothing_is_written():
    store = RamStore()
    write(store, pa.table({"x": NUMBERS}), **BEFORE)
    failing = Hooked(store, before=once("open", raising(StorageError(5, "Input/output error"))))
    parts = OpenParts(versions.load(failing, 1))
    with pytest.raises(StorageError, match="Input/output"):
        update(store, [0], pa.table({"x": NUMBERS}), parts, **AFTER)
    assert store.list_names("data/col0") == ["__1__.bin"]


@st.composite
def edits(draw):
    """Draw a column, and another of the same type and length with some other rows."""
    kind = draw(arrow_strategies.types())
    rows = draw(st.integers(1, 60))
    array = draw(arrow_strategies.arrays(kind, rows, stray_codes=False))
    begin = draw(st.integers(0, rows))
    end = draw(st.integers(begin, rows))
    middle = draw(arrow_strategies.arrays(kind, end - begin, stray_codes=False))
    return array, pa.chunked_array([array[:begin], middle, array[end:]], kind)


@given(edits(), st.sampled_from([8, 16]), st.sampled_from([8, 64]), st.sampled_from([20, 100]))
def test_an_edit_of_any_column_is_read_back(edit, page_rows, chunk_bytes, row_group_rows):
    store = RamStore()
    array, edited = edit
    options = {"page_rows": page_rows, "chunk_bytes": chunk_bytes}
    write(store, pa.table({"x": array}), row_group_rows=row_group_rows, **options)
    version = update(store, [0], pa.table({"x": edited}), **options)
    fresh = RamStore()
    write(fresh, pa.table({"x": edited}), row_group_rows=row_group_rows, **options)
    assert same(read(version)["x"], read(pinned(fresh))["x"])
