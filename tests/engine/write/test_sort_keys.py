"""The order that a table was sorted by, which it keeps: for whom, how long, and what it does."""

import pytest

import blztable as blz
from blztable.errors import ConflictError
from blztable.format import layout
from blztable.storage.memory import MemoryStore
from support.stores import Hooked, once, set_properties, tree
from table.test_sort import NUMBERS, SMALL, TABLE, checked, opened, put


def test_mode_a_sorts_a_table_that_it_makes_and_no_other():
    store = put(TABLE, "n", mode="a")
    assert checked(store)["n"].to_pylist() == list(range(30))
    before = tree(store)
    with pytest.raises(ValueError, match=r"compact\(\) sorts all"):
        blz.to_blz(TABLE, store, mode="a", sort_by="n", **SMALL)
    assert tree(store) == before
    blz.to_blz(TABLE, store, mode="a", **SMALL)
    assert checked(store)["n"].to_pylist() == [*range(30), *NUMBERS]


def test_a_job_that_is_run_again_does_nothing_though_its_table_is_there():
    options = SMALL | {"mode": "a", "sort_by": "n", "commit_id": "job 1"}
    store = MemoryStore("shelf")
    for _ in range(2):
        blz.to_blz(TABLE, store, **options)
    assert checked(store)["n"].to_pylist() == list(range(30))


def test_a_frame_sorts_itself_too():
    store = MemoryStore("shelf")
    TABLE.to_pandas().to_blz(store, sort_by=[("n", "descending")], **SMALL)
    assert checked(store)["n"].to_pylist() == list(reversed(range(30)))


# The order is kept


def sort_by(store):
    with blz.open(store) as table:
        return table.sort_by


def test_a_table_keeps_its_order_by_its_columns_whatever_they_are_called():
    keys = [("text", "descending"), ("n", "ascending")]
    store = put(TABLE, ())
    # Its columns have other ids than places.
    blz.to_blz(TABLE, store, sort_by=keys, **SMALL)
    assert sort_by(store) == keys
    with opened(store) as table:
        assert table[["n"]].sort_by == keys
        table.rename_columns({"text": "n", "n": "text"})
        table.reorder_columns(["n"])
        assert table.sort_by == [("n", "descending"), ("text", "ascending")]
        table.add_column("x", NUMBERS)
        table.drop_columns(["x"])
        assert len(table.sort_by) == 2
        table.drop_columns(["text"])
        assert table.sort_by == []
        assert "sort_by" not in table._snapshot.version.head.properties
        table.restore(2)
        assert table.sort_by == keys
        table.reorder_columns(["text"])
        table.compact(sort_by="n")
        assert table.sort_by == [("n", "ascending")]
    blz.to_blz(TABLE, store, **SMALL)
    with blz.open(store) as table:
        assert "sort_by" not in table._snapshot.version.head.properties


def test_compacting_keeps_the_order_also_of_rows_that_lay_in_it():
    store = put(TABLE.sort_by("n"), ())
    with opened(store) as table:
        assert table.sort_by == []
        assert table.compact(sort_by="n") == 2
        assert table.sort_by == [("n", "ascending")]
        assert table.compact(sort_by="n") == 2
        assert table.compact(sort_by=[("n", "descending")]) == 3
        assert table.sort_by == [("n", "descending")]
        assert [one.operation for one in table.versions()] == ["create", "sort", "sort"]
    assert checked(store)["n"].to_pylist() == list(reversed(range(30)))


def test_what_was_appended_is_sorted_when_the_table_is_compacted():
    store = put(TABLE, [("n", "descending")])
    with opened(store) as table:
        table.append({"n": [100, -1], "text": [None, "last"]})
        assert table["n"].to_arrow().to_pylist() == [*reversed(range(30)), 100, -1]
        assert table.compact(sort_by=()) == table.version
        assert table["n"][30:].to_pylist() == [100, -1]
        assert table.sort_by == [("n", "descending")]
        made = table.compact()
        assert table["n"].to_arrow().to_pylist() == [100, *reversed(range(30)), -1]
        before = tree(store)
        assert table.compact() == made
    assert tree(store) == before
    checked(store)


def test_an_order_that_others_gave_meanwhile_is_a_conflict():
    """Rows in one order beside the word of another one would be rows in none."""
    store = put(TABLE, "n")
    blz.to_blz({"n": [-1], "text": ["last"]}, store, mode="a", **SMALL)
    theirs = lambda: set_properties(store, sort_by=[[1, "ascending"]])  # noqa: E731
    hooked = Hooked(store, before=once("lock", theirs, layout.LOCK))
    message = "property 'sort_by' was changed"
    with opened(hooked) as table, pytest.raises(ConflictError, match=message):
        table.compact()
    with opened(store) as table:
        assert table.sort_by == [("text", "ascending")]
        assert table["n"][30:].to_pylist() == [-1]


@pytest.mark.parametrize(
    "damage",
    [
        *("n", 1, None, True, {"0": "ascending"}, [["n", "ascending"]], [0, "ascending"]),
        *([[0]], [[0, "up"]], [[True, "ascending"]], [[[0], "ascending"]], [[0, ["ascending"]]]),
        *(
            [[0, "ascending"], [0, "descending"]],
            [[0, "ascending"], [9, "ascending"]],
            [[-1, "up"]],
        ),
    ],
    ids=repr,
)
def test_an_order_that_is_none_is_no_order(damage):
    store = put(TABLE, ())
    set_properties(store, sort_by=damage)
    with opened(store) as table:
        assert table.sort_by == []
        table.compact()
        assert table["n"].to_arrow().to_pylist() == NUMBERS
        table.drop_columns(["text"])
        table.compact(sort_by="n")
        assert table.sort_by == [("n", "ascending")]
