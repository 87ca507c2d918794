"""Changes of tables with nested columns beside another writer: one after the other, or a conflict.

My change has written its files and is about to publish when the other commits. Then the table holds
what it holds if the other had come first and mine next, or it is as the other left it.
"""

from functools import cache

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.storage.memory import RamStore
from support.bit_equality import bits
from support.moved_first import moved_first
from support.nested_arrays import array_of
from support.operations import files_named, files_there, meanwhile
from support.stores import copied, entries

TYPE = pa.list_(pa.struct([("a", pa.int32()), ("b", pa.map_(pa.string(), pa.float64()))]))


def rows(first: int, count: int) -> pa.Table:
    return pa.table({"n": range(first, first + count), "x": array_of(TYPE, count, first)})


MORE = array_of(pa.struct([("y", TYPE)]), 20, 5)
CHANGES = {
    "append": lambda t: t.append(rows(100, 3)),
    "append evolving": lambda t: t.append(rows(200, 2).append_column("z", MORE[:2]), evolve=True),
    "update": lambda t: t.update({"x": rows(0, 1)["x"][0]}, where=pc.field("n") == 7),
    "update by another": lambda t: t.update({"n": -1}, where=pc.field("x").is_null()),
    "delete": lambda t: t.delete(pc.field("n").isin([3, 12])),
    "truncate": lambda t: t.resize(9),
    "add_column": lambda t: t.add_column("new", MORE[: len(t)]),
    "drop": lambda t: t.drop_columns(["x"]),
    "rename": lambda t: t.rename_columns({"x": "y"}),
    "reorder": lambda t: moved_first(t, ["x"]),
    "compact": lambda t: t.compact(),
    "sort": lambda t: t.compact(sort_by=[("n", "descending")]),
    "restore": lambda t: t.restore(1),
    "vacuum": lambda t: t.vacuum(keep=1),
}


# The changes of the other; the suite has some of them.
FEW = ("append", "update", "delete", "add_column", "drop", "compact")
OTHERS = [
    name if name in FEW else pytest.param(name, marks=pytest.mark.storm)
    for name in sorted({*CHANGES} - {"vacuum"})
]


def base() -> RamStore:
    """Return a store with the table to start with; it is written once and copied."""
    return copied(_base())


@cache
def _base() -> RamStore:
    store = RamStore("shelf")
    blz.to_blz(
        rows(0, 8), store, storage=blz.Storage(row_group_rows=3, page_rows=8), durability="process"
    )
    # Row groups of one row, which a compaction joins.
    blz.to_blz(
        rows(8, 8), store, mode="a", storage=blz.Storage(row_group_rows=1), durability="process"
    )
    return store


def commit(store, name: str) -> None:
    with blz.open(store, "a", durability="process") as table:
        CHANGES[name](table)


def held(store) -> dict[str, list]:
    """Check the newest version and that no other file exists; return its columns."""
    with blz.open(store) as table:
        assert table.verify().is_intact
        found = table.to_arrow()
    found.validate(full=True)
    assert files_there(store) == files_named(store)
    return {name: bits(column) for name, column in zip(found.column_names, found, strict=True)}


@pytest.mark.parametrize("theirs", OTHERS)
@pytest.mark.parametrize("mine", sorted({*CHANGES} - {"vacuum"}))
def test_a_change_lands_on_that_of_another_or_conflicts(mine, theirs):
    store, serial = base(), base()
    commit(serial, theirs)
    try:
        place = meanwhile(store, lambda: commit(store, theirs))
        with blz.open(place, "a", retries=0) as table:
            CHANGES[mine](table)
    except blz.ConflictError:
        assert held(store) == held(serial)
        return
    commit(serial, mine)
    found, expected = held(store), held(serial)
    if mine == "sort":
        # Rows that another has appended meanwhile stay behind.
        found, expected = (
            sorted(zip(*one.values(), strict=True), key=repr) for one in (found, expected)
        )
    assert found == expected


@pytest.mark.parametrize("name", sorted({*CHANGES} - {"vacuum", "restore"}))
def test_a_transaction_that_fails_leaves_no_node(name):
    store = base()
    before, files = held(store), files_there(store)

    def fail(table) -> None:
        with table.transaction() as tx:
            tx.append(rows(50, 2))
            CHANGES[name](tx)
            raise ZeroDivisionError

    with (
        blz.open(store, "a", durability="process") as table,
        pytest.raises(ZeroDivisionError),
    ):
        fail(table)
    assert held(store) == before
    assert files_there(store) == files


@pytest.mark.parametrize("name", sorted({*CHANGES} - {"vacuum"}))
def test_a_vacuum_after_a_change_keeps_its_nodes_and_no_other_file(name):
    store = base()
    commit(store, name)
    before = held(store)
    commit(store, "vacuum")
    assert held(store) == before
    with blz.open(store) as table:
        assert len(table.versions()) == 1


WIDE = pa.list_(pa.struct([("a", pa.int64()), ("b", pa.map_(pa.string(), pa.float64()))]))


def test_a_change_that_fails_removes_its_nodes_and_keeps_those_before_it():
    store = base()
    before = entries(store)
    with blz.open(store, "a", durability="process") as table:
        tx = table.transaction().__enter__()
        tx.alter_column("x", dtype=WIDE)
        assert entries(store) > before
        tx.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
        assert entries(store) == before
        with table.transaction() as tx:
            tx.alter_column("x", dtype=WIDE)
            kept = entries(store)
            parts = iter([{"n": [50], "x": pa.array([[]], WIDE)}, {"m": [1]}])
            with pytest.raises(blz.SchemaError, match="item 1"):
                tx.append(parts)
            assert entries(store) == kept
        assert table.verify().is_intact
        assert table["x"].type == WIDE
