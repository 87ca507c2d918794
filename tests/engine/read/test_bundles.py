"""Bundles: parts of a row group that share a superchunk are read like parts with own files."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable import tuning
from blztable.engine.read import flat
from blztable.engine.read.columns import OpenColumns
from blztable.engine.read.parts import OpenParts
from blztable.engine.read.selection import RowSpan
from blztable.engine.run import limits
from blztable.engine.version.versions import pin
from blztable.format import layout
from blztable.format.records import LENGTHS
from blztable.storage.memory import RamStore
from support.recording_store import Recorded
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
    assert len(files(store)) == 3
    assert all(key.startswith(layout.BUNDLES) for key in files(store))
    with blz.open(store) as table:
        assert table.to_arrow() == TABLE
        assert table.to_arrow(filters=[("n", ">=", 250)]) == TABLE.slice(250)
        assert table.take([5, 299]) == TABLE.take([5, 299])
        for name in TABLE.column_names:
            assert table.to_arrow(columns=[name]) == TABLE.select([name])
        report = table.verify()
    assert report.is_intact, report.problems
    assert report.files == 3


def test_each_bundle_is_opened_once_for_all_columns(store):
    opened = []

    def note(name, args):
        if name == "open" and args[0].startswith(layout.BUNDLES):
            opened.append(args[0])

    version, pinned = pin(Hooked(store, before=note))
    with pinned:
        assert read(version) == TABLE
    assert sorted(opened) == sorted(files(store))


@pytest.mark.parametrize("columns", [["n"], ["s"], ["d", "f"], TABLE.column_names])
def test_each_chunk_is_read_once_for_all_columns(store, columns):
    recorded = Recorded(store)
    blz.read_table(recorded, columns=columns)
    taken = [(key, at, at + length) for key, at, length in recorded.reads if "data" in key]
    for (key, _, end), (other, start, _) in pairwise(sorted(taken)):
        assert key != other or end <= start


def test_a_damaged_chunk_loses_only_its_column(store):
    with blz.open(store) as table:
        part = OpenParts(table._snapshot.version).open(1, 0)
    data = bytearray(store.get(part.key))
    data[part.streams[LENGTHS]._offsets[0] + 20] ^= 1
    store.put(part.key, bytes(data))
    with blz.open(store) as table:
        rest = ["n", "d", "z", "f", "b"]
        assert table.to_arrow(columns=rest) == TABLE.select(rest)
        lost = {(one.column, one.start, one.stop) for one in table.verify().problems}
        with pytest.warns(match="rows 0 to 128"):
            assert table.to_arrow(on_corrupt="skip") == TABLE.slice(128)
    assert lost == {("s", 0, 128)}


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


def test_numbers_that_need_more_memory_than_there_is_are_refused(monkeypatch):
    """The codes in the file need less."""
    store = RamStore()
    blz.to_blz(pa.table({"a": range(300), "b": range(300)}), store, durability="process")
    monkeypatch.setattr(limits, "_memory", lambda: 2000)
    monkeypatch.setattr(flat, "UNCHECKED_BYTES", 0)
    with pytest.raises(blz.LimitError, match="need 2400 bytes of memory"):
        blz.read_table(store, columns=["a"])


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
