"""The words of the face: few names, and one word for one thing."""

import pickle
from collections.abc import Callable
from copy import deepcopy
from inspect import isclass, signature

import pytest

import blztable as blz

# Words that would be a second one for the same thing, or hide a builtin.
NOT_SAID = {
    "bytes": "a builtin",
    "object": "a builtin",
    "type": "a builtin",
    "expected": "expectedlen",
    "names": "columns",
    "nrows": "len()",
    "place": "path",
    "filter": "filters, where rows are read; where, where they are changed",
    "condition": "filters or where",
    "truncate": "digits or decimals",
}
CHANGES = {"update", "delete", "erase", "append"}


def calls() -> dict[str, Callable]:
    """Every public function, class and method by name."""
    public = {name: getattr(blz, name) for name in blz.__all__}
    public = {
        name: one
        for name, one in public.items()
        if not (isclass(one) and issubclass(one, Exception))
    }
    for kind, one in [*public.items()]:
        for name in dir(one) if isclass(one) else ():
            if not name.startswith("_") and callable(getattr(one, name)):
                public[f"{kind}.{name}"] = getattr(one, name)
    return public


CALLS = calls()


@pytest.mark.parametrize("name", CALLS)
def test_a_parameter_is_called_by_the_one_word_for_it(name):
    words = {*signature(CALLS[name]).parameters}
    assert words.isdisjoint(NOT_SAID)
    # A condition is `filters` where rows are read, and `where` where they are changed.
    changes = name.split(".")[-1] in CHANGES
    assert "filters" not in words or not changes
    assert {"where", "replace_where"}.isdisjoint(words) or changes


def test_a_memory_store_has_nothing_to_call():
    store = blz.MemoryStore("tills")
    assert [name for name in dir(store) if not name.startswith("_")] == []
    assert repr(store) == "MemoryStore('tills')"
    blz.to_blz({"a": [1]}, store)
    with blz.open(store) as table:
        assert table.path == "tills"
    copy = blz.MemoryStore()
    assert blz.copy(store, copy).rows == 1
    assert blz.exists(copy)
    for both in (pickle.dumps, deepcopy):
        with pytest.raises(TypeError, match=r"tills: a table in memory belongs to its process"):
            both(store)


@pytest.mark.parametrize("kind", [blz.CTable, blz.Transaction])
def test_a_table_has_at_most_51_public_methods_and_properties(kind):
    assert len([name for name in dir(kind) if not name.startswith("_")]) <= 51


def test_the_calls_that_everybody_makes_have_few_parameters():
    # `df.to_blz` has its data before it.
    _, *parameters = signature(blz.to_blz).parameters
    assert len(parameters) <= 12
    assert len(signature(blz.create).parameters) <= 8


def test_a_table_sorted_by_its_storage_keeps_the_order_for_compact():
    store = blz.MemoryStore()
    blz.to_blz({"a": [1, 3]}, store, storage=blz.Storage(sort_by=[("a", "desc")]))
    with blz.open(store, "a") as table:
        assert table["a"].to_numpy().tolist() == [3, 1]
        assert table.storage.sort_by == [("a", "descending")]
        table.append({"a": [2]})
        table.compact()
        assert table["a"].to_numpy().tolist() == [3, 2, 1]
        table.configure(storage=blz.Storage(sort_by="a"))
        table.compact()
        assert table["a"].to_numpy().tolist() == [1, 2, 3]
        table.configure(storage=blz.Storage())
        assert table.storage.sort_by is None
        with pytest.raises(blz.ColumnNotFoundError, match="no column is named 'z'"):
            table.configure(storage=blz.Storage(sort_by="z"))


def test_a_new_table_without_rows_keeps_the_order_of_its_storage():
    store = blz.MemoryStore()
    with blz.create(store, {"a": "i8"}, storage=blz.Storage(sort_by="a")) as table:
        assert table.storage.sort_by == [("a", "ascending")]
        table.append({"a": [2, 1]})
        table.compact()
        assert table["a"].to_numpy().tolist() == [1, 2]


def test_two_orders_for_one_write_are_refused():
    with pytest.raises(ValueError, match="sort_by was given twice"):
        blz.to_blz({"a": [1]}, blz.MemoryStore(), sort_by="a", storage=blz.Storage(sort_by="a"))
    with pytest.raises(ValueError, match="'a' cannot have sort_by"):
        blz.Storage(columns={"a": blz.Storage(sort_by="a")})


@pytest.mark.parametrize(
    ("position", "columns"),
    [(0, ["b", "a", "c"]), (1, ["a", "b", "c"]), (-1, ["a", "c", "b"]), (-3, ["b", "a", "c"])],
)
def test_a_column_gets_a_position_and_the_others_keep_their_order(position, columns):
    store = blz.MemoryStore()
    blz.to_blz({"a": [1], "b": [2], "c": [3]}, store)
    with blz.open(store, "a") as table:
        table.alter_column("b", position=position, dtype="double")
        assert table.columns == columns
        assert table.to_arrow().to_pydict() == {"a": [1], "b": [2.0], "c": [3]}
        for wrong in (3, -4):
            with pytest.raises(ValueError, match=f"position must be from 0 to 2, not {wrong}"):
                table.alter_column("b", position=wrong)


def test_an_append_replaces_under_a_name_once():
    store = blz.MemoryStore()
    blz.to_blz({"day": [1, 2], "n": [1, 1]}, store)
    with blz.open(store, "a") as table:
        for _ in range(2):
            table.append({"day": [2], "n": [5]}, replace_where="day = 2", commit_id="day 2")
        assert (table.version, table["n"].to_numpy().tolist()) == (2, [1, 5])


def test_rows_that_differ_are_read_when_asked_for():
    store = blz.MemoryStore()
    blz.to_blz({"n": [1, 2]}, store)
    with blz.open(store, "a") as table:
        table.delete("n = 1")
        table.append({"n": [3]})
        found = table.diff(1, 3)
        table.append({"n": [4]})
    assert found.rows().added.to_pydict() == {"n": [3]}
    assert found.rows().removed.to_pydict() == {"n": [1]}
