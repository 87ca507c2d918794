"""Rows that take no bytes: a manifest may claim 2^39 rows, and no read may pay for them."""

import tracemalloc

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.engine.read import flat
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


ROWS_OF_NOTHING = [10**10, 1 << 37, 1 << 39]
# Arrow stores null rows as a number, so these calls take no memory. The remaining rows.
CHEAP_OF_NULLS = {
    "verify": (lambda t: t.verify(), lambda rows: rows),
    "delete of all": (lambda t: t.delete(pc.field("a").is_null()), lambda rows: 0),
    "delete of none": (lambda t: t.delete(pc.field("a").is_valid()), lambda rows: rows),
    "truncate of few": (lambda t: t.resize(len(t) - 5), lambda rows: rows - 5),
    "resize": (lambda t: t.resize(5), lambda rows: 5),
}


@pytest.mark.parametrize("rows", ROWS_OF_NOTHING)
@pytest.mark.parametrize(("verb", "left"), CHEAP_OF_NULLS.values(), ids=CHEAP_OF_NULLS)
def test_verbs_that_look_at_no_null_row_take_no_memory_for_it(verb, left, rows):
    with blz.open(claiming(rows, pa.table({"a": pa.nulls(8)})), "a") as opened:
        tracemalloc.start()
        try:
            verb(opened)
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()
        assert len(opened) == left(rows)
        assert opened.verify()


ANY = pc.coalesce(pc.field("a").is_null(), pc.scalar(True))
LOOKING = {
    "to_numpy": lambda t: t["a"].to_numpy(),
    "a column backwards": lambda t: t["a"][::-1],
    "rows backwards": lambda t: t[::-1],
    "filter": lambda t: t.to_arrow(filters=ANY),
    "filter of two": lambda t: t.to_arrow(filters=pc.field("a").is_null() & ANY),
    "count": lambda t: t.count(filters=ANY),
    "delete": lambda t: t.delete(ANY),
    "update": lambda t: t.update({"a": None}, where=ANY),
    "sort": lambda t: t.compact(sort_by="a"),
    "add_column": lambda t: t.add_column("more", 5),
    "new column": lambda t: t.append({"a": [None], "more": [1]}, evolve=True),
}


@pytest.mark.parametrize("rows", ROWS_OF_NOTHING)
@pytest.mark.parametrize("verb", LOOKING.values(), ids=LOOKING)
def test_null_rows_that_memory_cannot_hold_are_refused_where_each_is_looked_at(
    monkeypatch, verb, rows
):
    store = claiming(rows, pa.table({"a": pa.nulls(8)}))
    # Imitates a machine with 1 GB.
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": 1, "SC_PAGE_SIZE": 10**9}.__getitem__)
    with blz.open(store, "a") as opened:
        with pytest.raises(blz.LimitError, match="rows"):
            verb(opened)
        assert (opened.version, len(opened)) == (1, rows)


@pytest.mark.parametrize("rows", ROWS_OF_NOTHING)
def test_empty_values_that_memory_cannot_hold_are_refused_as_numpy_has_them(monkeypatch, rows):
    store = claiming(rows, pa.table({"a": pa.array([b""] * 8, pa.binary(0))}))
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": 1, "SC_PAGE_SIZE": 10**9}.__getitem__)
    with blz.open(store) as opened, pytest.raises(blz.LimitError, match="rows"):
        opened["a"].to_numpy()


def test_a_read_that_the_memory_cannot_hold_is_refused_and_a_part_of_it_is_not(tuned, monkeypatch):
    numbers = np.arange(1024) ** 3
    table, store = pa.table({"x": numbers, "y": numbers}), RamStore()
    blz.to_blz(table, store, storage=blz.Storage(row_group_rows=256))
    # Imitates a machine with one page of 9 KB. Reads of few bytes do not ask for the memory.
    monkeypatch.setattr(flat, "UNCHECKED_BYTES", 0)
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": 1, "SC_PAGE_SIZE": 9000}.__getitem__)
    for read in (blz.read_table, blz.read_blz):
        with pytest.raises(blz.LimitError, match=r"need 16384 bytes of memory.*to_batches"):
            read(store)
    assert blz.read_table(store, columns=["x"]) == table.select(["x"])
    tuned(window_bytes=1, window_rows=256)
    with blz.open(store) as opened:
        assert pa.RecordBatchReader.from_stream(opened).read_all() == table
        assert opened["y"][1000:].to_pylist() == numbers[1000:].tolist()
