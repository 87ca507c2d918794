"""Heads that promise more than there is: numbers that run out, options and defaults that are none.

Such a table is read where it can be; who changes it gets an error of ours, and nothing is published
that could not be read back.
"""

import pytest

import blztable as blz
from blztable.engine.version import versions
from blztable.format import layout
from blztable.format.jsontext import MAX_NUMBER
from blztable.storage.memory import MemoryStore
from support import tamper

DATA = {"a": [1, 2], "s": ["x", "y"]}


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    blz.to_blz(DATA, store)
    return store


def edit(store, key: str, value) -> None:
    with tamper.editing(store) as table:
        (table.head if key in table.head else table.head["columns"])[key] = value


def feed(t) -> None:
    with t.appender() as rows:
        rows["a"].append(3)
        rows["s"].append("z")


WRITES = {
    "append": lambda t: t.append({"a": [3], "s": ["z"]}),
    "appender": feed,
    "update": lambda t: t.update({"a": 3}),
    "delete": lambda t: t.delete([("a", "==", 1)]),
    "resize": lambda t: t.resize(3),
}


def test_a_file_of_number_0_is_not_promised(store):
    edit(store, "next_k", [0, 0])
    with pytest.raises(blz.CorruptError, match="number 0"):
        blz.open(store, "a")


@pytest.mark.parametrize("number", [layout.MAX_ID + 1, MAX_NUMBER])
@pytest.mark.parametrize("write", WRITES)
def test_where_numbers_of_files_have_run_out_nothing_is_written(store, write, number):
    edit(store, "next_k", [number, number])
    with blz.open(store, "a") as t:
        with pytest.raises(blz.LimitError, match="no numbers of files are left"):
            WRITES[write](t)
        t.rename_columns({"a": "b"})
    assert versions.numbers(store) == [1, 2]
    assert blz.read_table(store).to_pydict() == {"b": [1, 2], "s": ["x", "y"]}


def test_the_last_number_of_a_file_is_used(store):
    edit(store, "next_k", [layout.MAX_ID, layout.MAX_ID])
    with blz.open(store, "a") as t:
        t.append({"a": [3], "s": ["z"]})
        with pytest.raises(blz.LimitError):
            t.append({"a": [4], "s": ["w"]})
    assert blz.read_table(store)["a"].to_pylist() == [1, 2, 3]
    assert f"__{layout.MAX_ID}__.bin" in store.list_names(layout.column((0,)))


@pytest.mark.parametrize("number", [layout.MAX_ID + 1, MAX_NUMBER])
def test_where_ids_of_columns_have_run_out_none_is_added(store, number):
    edit(store, "next_column", number)
    with blz.open(store, "a") as t:
        with pytest.raises(blz.LimitError, match="all column ids from"):
            t.add_column("n", 1)
        t.append({"a": [3], "s": ["z"]})
    assert blz.read_table(store)["a"].to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("write", WRITES)
def test_a_row_group_of_more_rows_than_any_table_has_is_damage(store, write):
    edit(store, "properties", {"row_group_rows": 10**30})
    with (
        pytest.raises(
            blz.CorruptError, match=r"row_group_rows must be an integer from 1 to 2\*\*62"
        ),
        blz.open(store, "a") as t,
    ):
        WRITES[write](t)


@pytest.mark.parametrize("write", WRITES)
def test_a_row_group_may_have_all_the_rows_there_could_be(write):
    store = MemoryStore()
    blz.to_blz(DATA, store, row_group_rows=MAX_NUMBER)
    with blz.open(store, "a") as t:
        WRITES[write](t)
        t.compact()
        assert len(t) == {"update": 2, "delete": 1}.get(write, 3)


@pytest.mark.parametrize(
    ("text", "error"),
    [("!!", blz.CorruptError), (5, blz.CorruptError), ("AA==", blz.CorruptError)],
)
def test_a_default_that_is_none_is_told_with_its_column(tmp_path, text, error):
    path = tmp_path / "t.blz"
    blz.to_blz(DATA, path)
    edit(path, "properties", {"defaults": {"0": text}})
    with (
        blz.open(path, "a") as t,
        pytest.raises(error, match=r"t\.blz: the default value of column 'a'"),
    ):
        t.append({"s": ["z"]})
