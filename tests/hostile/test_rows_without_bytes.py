"""Rows that take no bytes: a manifest may claim 2^39 rows, and no read may pay for them."""

import tracemalloc

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import blztable as blz
from blztable.format.records import VALUES
from blztable.storage.memory import RamStore
from support import tamper


def claiming(rows, table) -> RamStore:
    """Return a store whose manifest claims another number of rows."""
    store = RamStore()
    blz.to_blz(table, store)
    with tamper.editing(store) as edited:
        edited.head["rows"] = rows
        leaf = edited.leaf()
        leaf.groups["rows"] = leaf.groups["stored"] = rows
        for column in range(len(leaf.columns)):
            part = edited.part(column)
            part.record["rows"], part.record["page"] = rows, 30
            # A null type has no pages.
            part.pages = np.resize(part.pages, -(-rows // (1 << 30)) if len(part.pages) else 0)
    return store


# Found by the fuzzer: Arrow was asked for one bit a row and raised MemoryError.
def test_rows_of_nothing_take_no_memory():
    store = claiming(1 << 39, pa.table({"a": pa.nulls(3)}))
    before = pa.total_allocated_bytes()
    assert blz.read_table(store).num_rows == 1 << 39
    with blz.open(store) as table:
        assert table.to_arrow([]).num_rows == 1 << 39
        assert pa.total_allocated_bytes() == before


# Found by the fuzzer: MemoryError instead of an error of ours.
@pytest.mark.parametrize("rows", [1 << 38, 1 << 39])
def test_rows_of_nothing_that_pandas_has_no_memory_for_are_refused(rows):
    store = claiming(rows, pa.table({"a": pa.nulls(3)}))
    with pytest.raises(blz.LimitError, match=r"'a'.*\d{12,} rows"):
        blz.read_blz(store)


# Found by the fuzzer: pandas made four copies of a column of nulls.
def test_rows_of_nothing_become_frames_at_one_pointer_each():
    store = claiming(1 << 20, pa.table({"a": pa.nulls(3)}))
    tracemalloc.start()
    assert blz.read_blz(store)["a"].iloc[-1] is None
    assert tracemalloc.get_traced_memory()[1] < 9 << 20
    tracemalloc.stop()


# Found by the fuzzer: pandas' categories went through all values, however many are claimed.
@pytest.mark.timeout(20)
@pytest.mark.parametrize("value_type", [pa.null(), pa.binary(0)], ids=str)
def test_a_dictionary_of_values_without_bytes_may_claim_any_number_of_them(value_type):
    values = pa.array([b"", b""]).cast(value_type) if value_type != pa.null() else pa.nulls(2)
    codes = pa.array([0, 1, None, 1] * 5)
    column = pa.DictionaryArray.from_arrays(codes, values)
    store = RamStore()
    blz.to_blz(pa.table({"a": column}), store, storage=blz.Storage(row_group_rows=10))
    expected = blz.read_blz(store)
    for items in (1 << 30, (1 << 31) - 1):
        with tamper.editing(store) as table:
            for group in (0, 1):
                table.part(group=group).streams[VALUES].words[0] = items
        assert blz.read_table(store)["a"].to_pylist() == column.to_pylist()
        pd.testing.assert_frame_equal(blz.read_blz(store), expected)
        with blz.open(store) as table:
            assert table["a"][5:15].to_pylist() == column[5:15].to_pylist()


# Found by the fuzzer: MemoryError instead of an error of ours.
@pytest.mark.parametrize("rows", [1 << 38, 1 << 39])
def test_empty_bytes_that_pandas_has_no_memory_for_are_refused(rows):
    store = claiming(rows, pa.table({"a": pa.array([b"", b""], pa.binary(0))}))
    assert blz.read_table(store).num_rows == rows
    with pytest.raises(blz.BlzError, match=r"'a'.*read the column with to_arrow"):
        blz.read_blz(store)


# Found by the fuzzer: to_batches() cut these rows into batches without end.
@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "table", [pa.table({"a": pa.nulls(3)}), pa.table({"a": pa.array([b""] * 3, pa.binary(0))})]
)
def test_a_stream_of_rows_of_nothing_has_an_end(table):
    with blz.open(claiming(1 << 39, table)) as opened:
        assert sum(batch.num_rows for batch in opened.to_batches()) == 1 << 39
        assert sum(batch.num_rows for batch in opened.to_batches([])) == 1 << 39
