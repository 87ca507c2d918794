"""A staged version: untouched columns keep their bytes and are not read."""

import numpy as np
import pyarrow as pa
import pytest

import blztable as blz
from blztable.engine.change import rows, update
from blztable.engine.change.columns import drop_columns, move_column, rename_columns
from blztable.engine.read.columns import OpenColumns
from blztable.engine.version import versions
from blztable.engine.version.staged import StagedVersion
from blztable.errors import ColumnNotFoundError
from blztable.storage.memory import RamStore
from support.stores import changing, read, write

pytestmark = pytest.mark.usefixtures("own_files")

TABLE = pa.table({"n": range(10), "text": [*"abcdefghi", None], "x": np.arange(10) / 4})


def loaded(store, number=None):
    version, pinned = versions.pin(store, number)
    pinned.close()
    return version


@pytest.fixture
def store():
    store = RamStore()
    write(store, TABLE, row_group_rows=4, attrs={"a": 1})
    return store


def set_values(work):
    with OpenColumns.whole(work.staged) as opened:
        masks, predicate = update.selected(opened, None)
        update.set_values(work, opened, {1: pa.scalar("z")}, masks, predicate)


# What changes a version, and the columns whose parts it changes.
CHANGES = {
    "update": (set_values, {1}),
    "delete": (lambda work: rows.delete(work, [("n", "==", 1)]), {0, 1, 2}),
    "truncate": (lambda work: rows.resize(work, 6, list), {0, 1, 2}),
    "drop": (lambda work: drop_columns(work, ["n"], None), set()),
    "rename": (lambda work: rename_columns(work, {"x": "y"}, None), set()),
    "reorder": (lambda work: move_column(work, work.staged.index_of("x"), 0), set()),
}


def records_of(version):
    """Return the records of each node as bytes, by its path."""
    found = {}
    for line, path in enumerate(version.paths):
        found[path] = b"".join(array.tobytes() for array in version.records([line]).arrays)
    return found


@pytest.mark.parametrize("name", CHANGES)
def test_records_of_columns_not_touched_are_published_byte_for_byte(store, name):
    change, touched = CHANGES[name]
    base = loaded(store)
    before = records_of(base)
    with changing(base, blz.Storage(row_group_rows=4)) as work:
        change(work)
        staged = records_of(work.staged)
        version, pinned = work.publish()
    pinned.close()
    assert records_of(version) == records_of(loaded(store)) == staged
    assert {path[0] for path in staged if staged[path] != before[path]} == touched


def test_an_edition_is_read_like_the_version_it_becomes(store):
    with changing(loaded(store), blz.Storage(row_group_rows=3)) as work:
        rows.delete(work, [("n", "in", [0, 5])])
        move_column(work, work.staged.index_of("text"), 0)
        rename_columns(work, {"n": "m"}, None)
        seen, staged = read(work.staged), work.staged
        version, pinned = work.publish()
    with pinned:
        assert read(version) == read(loaded(store)) == seen
        assert version.row_groups == staged.row_groups
        for line in range(3):
            assert version.nbytes(line) == staged.nbytes(line)
            assert version.cbytes(line) == staged.cbytes(line)
    assert read(loaded(store, 1)) == TABLE
    assert seen.column_names == ["text", "m", "x"]


def test_what_pandas_wrote_in_a_schema_goes_with_the_columns_it_was_true_of(store):
    frame = pa.Table.from_pandas(TABLE.to_pandas())
    schema = frame.schema.with_metadata({**frame.schema.metadata, b"source": b"till"})
    write(store, frame.cast(schema))
    assert b"pandas" in loaded(store).schema.metadata
    with changing(loaded(store)) as work:
        rows.resize(work, 2, list)
        work.publish()[1].close()
    assert loaded(store).schema.metadata == {b"source": b"till"}


def test_a_name_is_one_column(store):
    twice = pa.Table.from_arrays([[1], [2], [3]], ["a", "a", "b"])
    write(store, twice)
    staged = StagedVersion.of(loaded(store))
    assert staged.index_of("b") == 2
    with pytest.raises(ColumnNotFoundError, match="2 columns are named 'a' in memory"):
        staged.index_of("a")
    with pytest.raises(ColumnNotFoundError, match=r"no column is named 'c' .* \['a', 'a', 'b'\]"):
        staged.index_of("c")
