"""Attributes of a table: each change is a commit, and can conflict."""

import pytest

import blztable as blz
from blztable.format import layout
from blztable.storage.memory import MemoryStore


# Bug: setting an attribute of a removed table created a table.
def test_attributes_of_a_table_that_is_gone_make_no_new_one():
    store = MemoryStore()
    blz.to_blz({"a": [1]}, store)
    with blz.open(store, "a") as table:
        store.delete([layout.manifest(1)])
        with pytest.raises(blz.TableNotFoundError):
            table.attrs["x"] = 1


# Bug: setting an attribute closed the columns and selections taken from the table.
def test_setting_attributes_leaves_columns_and_narrowed_tables_open(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({"a": [1, 2], "b": [3, 4]}, path)
    with blz.open(path, "a") as table:
        narrowed, column = table[["a"]], table["b"]
        table.attrs["x"] = 1
        assert narrowed.to_arrow().to_pydict() == {"a": [1, 2]}
        assert column[0] == 3


# Bug: 1 and True are equal in Python, so this change of another writer was no conflict.
def test_an_attribute_that_became_true_was_changed_though_it_was_1():
    store = MemoryStore()
    blz.to_blz({"a": [1]}, store, attrs={"flag": 1})
    mine, theirs = blz.open(store, "a"), blz.open(store, "a")
    theirs.attrs["flag"] = True
    with pytest.raises(blz.ConflictError):
        mine.attrs["flag"] = 2
    assert blz.open(store).attrs["flag"] is True
