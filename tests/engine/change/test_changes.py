"""Changes of the head: properties that name columns, and keys that others made."""

import numpy as np
import pyarrow as pa
import pytest

import blztable as blz
from blztable.engine.change.changes import Append, Join, Keys, Select
from blztable.engine.change.reliance import ReadSet
from blztable.engine.version import versions
from blztable.engine.version.staged import NewGroups, StagedColumn, StagedVersion
from blztable.errors import ConflictError
from blztable.format.version_file import Tail
from blztable.storage.memory import RamStore
from support.moved_first import moved_first
from support.options import arguments
from support.stored import codecs
from support.stores import tree

# Numbers that compress, so that each chunk has a codec.
ROWS = {"a": np.arange(4096) * 37 % 1000, "b": np.arange(4096) % 7}
BY_COLUMN = {
    "compression": {"a": "zstd"},
    "clevel": {"a": 9, "b": 1},
    "shuffle": {"a": "bit"},
    "page_rows": {"a": 1024},
}


@pytest.fixture
def store():
    store = RamStore()
    blz.to_blz(ROWS, store, **arguments(**BY_COLUMN, durability="process"))
    return store


def properties(store):
    found = versions.read(store, versions.newest_number(store)).head.properties
    return {name: found[name] for name in BY_COLUMN}


def opened(store):
    return blz.open(store, "a", durability="process")


def last_part(store, name):
    """Return the codec of a column's last part, and its rows in a page."""
    version = versions.read(store, versions.newest_number(store))
    index, group = version.schema.get_field_index(name), version.group_count - 1
    [codec] = codecs(version, index, group)
    return codec, version.parts(index).page_rows[group]


def test_what_was_chosen_for_a_column_goes_with_its_name(store):
    with opened(store) as table:
        table.rename_columns({"a": "x"})
        assert properties(store) == {
            "compression": {"x": "zstd"},
            "clevel": {"x": 9, "b": 1},
            "shuffle": {"x": "bit"},
            "page_rows": {"x": 1024},
        }
        table.append({"x": ROWS["a"], "b": ROWS["b"]})
    assert last_part(store, "x") == ("zstd", 1024)
    assert last_part(store, "b")[0] == "lz4"


def test_names_that_change_places_take_what_was_chosen_with_them(store):
    with opened(store) as table:
        table.rename_columns({"a": "b", "b": "a"})
        assert table.columns == ["b", "a"]
        assert table["b"][:5].to_pylist() == ROWS["a"][:5].tolist()
    assert properties(store)["clevel"] == {"b": 9, "a": 1}
    assert properties(store)["compression"] == {"b": "zstd"}


def test_what_was_chosen_for_a_column_goes_when_it_is_dropped(store):
    with opened(store) as table:
        table.drop_columns(["a"])
        assert properties(store) == {
            "compression": None,
            "clevel": {"b": 1},
            "shuffle": None,
            "page_rows": None,
        }
        # A new column of the same name is another column.
        table.add_column("a", ROWS["a"])
        table.append(ROWS)
    assert last_part(store, "a")[0] == "lz4"


def test_what_was_chosen_stays_where_columns_are_put_in_another_order(store):
    with opened(store) as table:
        moved_first(table, ["b"])
    assert properties(store) == BY_COLUMN


def test_a_default_goes_with_its_column_by_whatever_name(store):
    with opened(store) as table:
        table.add_column("c", 1, default=5)
        table.add_column("d", 1, default=6)
        table.rename_columns({"c": "d", "d": "c"})
        table.append({"a": [1], "b": [1]})
        assert table.to_arrow().slice(4096).to_pylist() == [{"a": 1, "b": 1, "d": 5, "c": 6}]
        table.drop_columns(["d"])
        table.add_column("d", 1)
        table.append({"a": [1], "b": [1]})
        assert table.to_arrow().slice(4097).to_pylist() == [{"a": 1, "b": 1, "c": 6, "d": None}]


# Rebase on another version


def staged(store, number=None):
    return StagedVersion.of(versions.read(store, number or versions.newest_number(store)))


def test_keys_that_were_set_or_removed_meanwhile_conflict_though_the_value_is_none(store):
    with opened(store) as table:
        table.attrs["a"] = None
        before = staged(store)
        del table.attrs["a"]
    for change in (
        Keys.of(before, "attributes", {"a": 1}),
        Keys.of(before, "attributes", {}, {"a"}),
    ):
        with pytest.raises(ConflictError, match="attribute 'a' was changed by version 3"):
            change.rebase(staged(store))
    assert Keys.of(before, "attributes", {"b": 1}).rebase(staged(store)).head.attributes == {"b": 1}


def test_a_property_that_was_changed_is_told_as_one(store):
    before = staged(store)
    with opened(store) as table:
        table.configure(keep_versions=3)
    with pytest.raises(ConflictError, match="property 'keep_versions' was changed by version 2"):
        Keys.of(before, "properties", {"keep_versions": 4}).rebase(staged(store))
    after = Keys.of(before, "properties", {"keep_seconds": 4}).rebase(staged(store)).head.properties
    assert (after["keep_versions"], after["keep_seconds"]) == (3, 4)


def test_row_groups_are_found_by_their_files_not_by_their_rows():
    """Other row groups with the same numbers of rows are not taken for the joined ones."""
    store = RamStore()
    blz.to_blz({"n": range(8)}, store, storage=blz.Storage(row_group_rows=2), durability="process")
    before = staged(store)
    change = Join.of(before, 1, 3, NewGroups(), [])
    with opened(store) as table:
        table.delete([("n", "<", 2)])
    assert change.find(staged(store)) == 0
    with opened(store) as table:
        table.update({"n": 0}, where=[("n", "==", 4)])
    with pytest.raises(ConflictError, match="row groups to join were changed"):
        change.find(staged(store))


def test_a_change_reads_no_file_when_it_is_made_again(store):
    before = staged(store)
    with opened(store) as table:
        table.attrs["a"] = 1
    there = tree(store)
    newest = staged(store)
    store.delete([key for key in there if key.endswith(".bin")])
    assert Select(ReadSet.columns_of(before), [1], None).rebase(newest).schema.names == ["b"]
    nothing = [StagedColumn(path, Tail.empty(1).records) for path in before.paths]
    assert Append(ReadSet.columns_of(before), NewGroups(), nothing).rebase(newest).head.rows == 4096


def test_a_schema_of_other_types_is_another_schema():
    store = RamStore()
    blz.to_blz({"n": pa.array([1], pa.int32())}, store, durability="process")
    before = staged(store)
    with opened(store) as table:
        table.append({"n": pa.array([1 << 40])}, evolve=True)
    with pytest.raises(ConflictError, match="relies on the columns of version 1"):
        Append(ReadSet.columns_of(before), NewGroups(), []).rebase(staged(store))
