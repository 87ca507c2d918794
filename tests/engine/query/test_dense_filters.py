"""Filters that many rows pass: the rows are those of Arrow, and whole pages are read for them."""

from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.engine.query import codes
from blztable.engine.read.columns import OpenColumns
from blztable.errors import CorruptError
from blztable.storage.memory import RamStore
from support import arrow_strategies as types
from support import nested_arrays, places, samples
from support.bit_equality import bits
from support.options import arguments
from support.recording_store import Recorded
from support.stores import write

ROWS, GROUP, PAGE = 200, 72, 8
CUTS = {"row_group_rows": GROUP, "page_rows": PAGE}
SHARES = (0, 1, 10, 50, 90, 98, 100)


@cache
def of_all_types():
    """Return a table with a column of each type; n numbers the rows."""
    table = samples.of([*types.PLAIN, *samples.DICTIONARIES], ROWS)
    columns = dict(zip(table.column_names, table.columns, strict=True))
    for name, type_ in nested_arrays.ALL.items():
        if name != "short runs":
            columns[name] = pa.chunked_array([nested_arrays.array_of(type_, ROWS, len(columns))])
    columns["few words"] = [None if row % 9 == 0 else "abcd"[row % 4] * 20 for row in range(ROWS)]
    ids = pa.array([b"%16d" % row for row in range(ROWS)], pa.binary(16))
    columns["id"] = pa.ExtensionArray.from_storage(pa.uuid(), ids)
    return pa.table(columns | {"n": range(ROWS)})


@cache
def bits_of_all_types():
    return {name: bits(of_all_types()[name]) for name in of_all_types().column_names}


def percents(kind, seed):
    """Return a number from 0 to 99 for each row: anywhere, or those of some pages together."""
    anywhere = np.random.default_rng(seed).integers(0, 100, ROWS)
    return np.sort(anywhere) if kind == "together" else anywhere


def written(form, percent, gone, tmp_path, columns=None):
    """Return the table in this form, without the rows in which `gone` is true."""
    table = of_all_types().select(columns or of_all_types().column_names)
    table = table.append_column("percent", pa.array(percent))
    table = table.append_column("gone", pa.array(gone))
    place = RamStore() if form != "file" else tmp_path / "t.blz"
    blz.to_blz(
        table, place, **arguments(mode="w", layout="file" if form == "file" else None, **CUTS)
    )
    opened = blz.open(place, "a")
    opened.delete(pc.field("gone"))
    return opened


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("dense")


@pytest.mark.parametrize("form", ["memory", "file", "transaction"])
@settings(max_examples=3, deadline=None)
@given(
    share=st.sampled_from(SHARES),
    kind=st.sampled_from(["anywhere", "together"]),
    deleted=st.sampled_from([0, 0, 10, 60]),
    seed=st.integers(0, 1 << 32),
)
def test_of_all_types_the_rows_that_pass_are_those_of_arrow(
    form, share, kind, deleted, seed, folder
):
    percent = percents(kind, seed)
    gone = np.random.default_rng(seed + 1).integers(0, 100, ROWS) < deleted
    left = np.flatnonzero(~gone & (percent < share))
    # Statistics cannot answer the second condition, so its rows are evaluated.
    filters = (pc.field("percent") < share) & (pc.bit_wise_and(pc.field("n"), 1) < 2)
    with written(form, percent, gone, folder) as table:
        if form == "transaction":
            with table.transaction() as changing:
                check(changing, filters, left, gone)
        else:
            check(table, filters, left, gone)
            batches = table.to_batches(["few words", "runs"], filters=filters)
            check_columns(pa.Table.from_batches(batches, batches.schema), left)


def check(table, filters, left, gone):
    found = table.to_arrow(filters=filters)
    check_columns(found, left)
    assert found["n"].to_pylist() == left.tolist()
    assert table.to_arrow([], filters=filters).num_rows == len(left)
    assert table.count(filters=filters) == len(left)
    frame = table.to_pandas(["n"], filters=filters)
    assert frame["n"].tolist() == left.tolist()
    assert frame.index.tolist() == np.flatnonzero(np.isin(np.flatnonzero(~gone), left)).tolist()


def check_columns(found, left):
    for name in set(found.column_names) - {"percent", "gone"}:
        assert found.schema.field(name).type == of_all_types().schema.field(name).type
        expected = bits_of_all_types()[name]
        assert bits(found[name]) == [expected[row] for row in left], name


@pytest.mark.parametrize("engine", ["arrow", "polars", "duckdb"])
@pytest.mark.parametrize("share", SHARES)
def test_engines_get_the_rows_that_pass(engine, share, tmp_path):
    pytest.importorskip("pyarrow" if engine == "arrow" else engine)
    percent = percents("anywhere", 3)
    opened = written("memory", percent, np.arange(ROWS) % 10 == 3, tmp_path, ["n"])
    left = np.flatnonzero((percent < share) & (np.arange(ROWS) % 10 != 3)).tolist()
    table = opened.dataset()
    if engine == "arrow":
        where = pc.field("percent") < share
        assert table.to_table(["n"], filter=where)["n"].to_pylist() == left
        assert table.head(7, columns=["n"], filter=where)["n"].to_pylist() == left[:7]
        assert table.count_rows(filter=where) == len(left)
    elif engine == "polars":
        import polars as pl

        frame = pl.scan_pyarrow_dataset(table).filter(pl.col("percent") < share)
        assert frame.select("n").collect()["n"].to_list() == left
        assert frame.select("n").head(7).collect()["n"].to_list() == left[:7]
    else:
        import duckdb

        with duckdb.connect() as connection:
            connection.register("t", table)
            found = connection.sql(f"select n from t where percent < {share}")
            assert [row for (row,) in found.fetchall()] == left
    opened.close()


@pytest.fixture
def picked(monkeypatch):
    """Return the list of the numbers of single rows that each read picks."""
    counts = []
    plain = OpenColumns.rows

    def counting(opened, indices, selected):
        if indices:
            counts.append(sum(one.count for one in selected))
        return plain(opened, indices, selected)

    monkeypatch.setattr(OpenColumns, "rows", counting)
    return counts


def numbered(**columns):
    rows = 4096
    base = {"key": np.arange(rows) * 37 % 100, "n": np.arange(rows)}
    store = RamStore()
    blz.to_blz(
        pa.table(base | columns), store, storage=blz.Storage(row_group_rows=2048, page_rows=256)
    )
    return store


@pytest.mark.parametrize("share", [1, 3, 6, 10, 50, 98])
def test_single_rows_are_read_only_where_few_pass(share, picked):
    store = numbered()
    found = blz.read_table(store, columns=["n"], filters=[("key", "<", share)])
    expected = np.flatnonzero(np.arange(4096) * 37 % 100 < share)
    assert found["n"].to_pylist() == expected.tolist()
    assert sum(picked) == (len(expected) if share <= 6 else 0)


def test_a_step_reads_single_rows_only_where_few_are_left(picked):
    store = numbered(other=np.arange(4096) % 7, third=np.arange(4096) % 5)
    conditions = [("key", "<", 50), ("other", "<", 6), ("third", "<", 4)]
    assert blz.open(store).count(filters=conditions) > 1000
    assert picked == []
    conditions = [("key", "==", 5), ("other", "<", 6)]
    assert blz.open(store).count(filters=conditions) < 100
    assert sum(picked) == 41


def test_the_share_is_that_of_the_pages_with_such_a_row(picked):
    # Half of the rows of the first of 8 pages: 1 in 16 of all. Statistics know nothing of a sum.
    rows = np.arange(4096)
    store = numbered(half=((rows % 2048 < 256) & (rows % 2 == 0)).astype("i8"))
    found = blz.read_table(store, columns=["n"], filters=pc.field("half") + 1 == 2)
    assert found.num_rows == 256
    assert picked == []


@pytest.mark.parametrize("kind", ["anywhere", "together"])
@pytest.mark.usefixtures("own_files")
def test_pages_without_a_row_that_passes_are_not_read(kind, picked):
    rows = np.arange(128)
    passes = rows % 32 < 12 if kind == "together" else rows % 8 < 5
    memory = RamStore()
    table = pa.table({"few": passes.astype("i8") * 2, "rest": rows * 5})
    write(memory, table, row_group_rows=64, page_rows=8, chunk_bytes=64)
    with Recorded(memory).recording() as store:
        # Statistics know nothing of a sum.
        found = blz.read_table(store, columns=["rest"], filters=pc.field("few") + 1 == 3)
        assert found["rest"].to_pylist() == (rows[passes] * 5).tolist()
        read = {(group, page) for name, group, page in store.chunks() if name == "rest"}
        assert set(store.chunks().values()) == {1}
    assert read == {(row // 64, row % 64 // 8) for row in rows[passes].tolist()}
    assert picked == []


def test_text_of_few_values_is_read_as_codes(monkeypatch):
    store = numbered(word=np.array(["north", "south", "east", "west"] * 1024))
    coded = []
    read = codes.read

    def counting(opened, index, spans):
        found = read(opened, index, spans)
        coded.append((opened.version.schema.field(index).name, found is not None))
        return found

    monkeypatch.setattr(codes, "read", counting)
    found = blz.read_table(store, columns=["word", "n"], filters=[("key", "<", 50)])
    rows = np.flatnonzero(np.arange(4096) * 37 % 100 < 50)
    assert found["word"].to_pylist() == [
        ("north", "south", "east", "west")[row % 4] for row in rows.tolist()
    ]
    assert ("word", True) in coded


@pytest.mark.parametrize("packing", ["packed", "per_item"])
def test_of_large_rows_only_those_that_pass_are_read(packing, picked):
    rows = 32
    items = [bytes([row]) * (300 if packing == "per_item" else 300_000) for row in range(rows)]
    memory = RamStore()
    table = {"key": np.arange(rows) % 4, "item": pa.array(items, pa.large_binary())}
    blz.to_blz(
        pa.table(table), memory, storage=blz.Storage(columns={"item": blz.Storage(packing=packing)})
    )
    found = blz.read_table(memory, columns=["item"], filters=[("key", "<", 2)])
    assert found["item"].to_pylist() == [one for row, one in enumerate(items) if row % 4 < 2]
    assert picked == [16]


@pytest.mark.usefixtures("own_files")
@pytest.mark.parametrize("on_corrupt", ["skip", "null"])
def test_a_damaged_page_costs_its_rows_alone_where_many_pass(on_corrupt):
    rows, store = np.arange(256), RamStore()
    write(store, pa.table({"key": rows % 10, "n": rows * 7919 % 997}), page_rows=32, chunk_bytes=64)
    places.flip(store, 1, chunk=3)
    with pytest.raises(CorruptError):
        blz.read_table(store, columns=["n"], filters=[("key", "<", 8)])
    with pytest.warns(UserWarning, match="rows 96 to 128"):
        found = blz.read_table(
            store, columns=["key", "n"], filters=[("key", "<", 8)], on_corrupt=on_corrupt
        )
    left = rows[(rows % 10 < 8) & ((rows < 96) | (rows >= 128) | (on_corrupt == "null"))]
    assert found["key"].to_pylist() == (left % 10).tolist()
    is_lost = (left >= 96) & (left < 128)
    assert found["n"].to_pylist() == [
        None if gone else row * 7919 % 997
        for row, gone in zip(left.tolist(), is_lost.tolist(), strict=True)
    ]
