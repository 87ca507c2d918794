"""Deleted rows: when a delete names them, when it writes rows again, and beside other writers."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.format import deletions
from blztable.storage.memory import RamStore
from support.stores import entries

GROUP, GROUPS = 64, 3
TABLE = pa.table(
    {
        "n": range(GROUP * GROUPS),
        "text": [None if row % 9 == 0 else f"t{row}" for row in range(GROUP * GROUPS)],
    }
)


@pytest.fixture
def store():
    store = RamStore()
    blz.to_blz(TABLE, store, storage=blz.Storage(row_group_rows=GROUP, page_rows=16))
    return store


def numbers(store, **options):
    return blz.read_table(store, **options)["n"].to_pylist()


def parts(store):
    return {key for key in entries(store) if key.endswith(".bin")}


def deleted_rows(t):
    return list(map(deletions.count, t._snapshot.version.all_deleted))


def without(*gone):
    return [n for n in range(GROUP * GROUPS) if n not in gone]


def test_few_deleted_rows_are_named_and_no_file_is_written(store):
    before = parts(store)
    with blz.open(store, "a") as t:
        done = t.delete(pc.field("n").isin([3, 70, 71]))
        assert (done.rows_deleted, done.version) == (3, 2)
        assert deleted_rows(t) == [1, 2, 0]
        assert t.versions()[-1].deleted_rows == 3
        assert "deletions" in t._snapshot.version.head.requires
    assert parts(store) == before
    assert numbers(store) == without(3, 70, 71)
    assert numbers(store, version=1) == without()


def test_a_row_group_that_loses_more_is_written_again(store):
    with blz.open(store, "a") as t:
        # One row in sixteen may be named: four of 64.
        t.delete(pc.field("n") < 4)
        assert deleted_rows(t) == [4, 0, 0]
        t.delete(pc.field("n") == 4)
        assert deleted_rows(t) == [0, 0, 0]
        assert t._snapshot.version.row_groups == (GROUP - 5, GROUP, GROUP)
        assert "deletions" not in t._snapshot.version.head.requires
    assert numbers(store) == without(*range(5))


def test_a_version_names_so_many_rows_and_no_more(store, tuned):
    tuned(deleted_rows=5)
    with blz.open(store, "a") as t:
        t.delete(pc.field("n").isin([0, 1, 2, 64, 65, 66, 128, 129]))
        # Three rows are named; three more are too many, and two are not.
        assert deleted_rows(t) == [3, 0, 2]
    assert numbers(store) == without(0, 1, 2, 64, 65, 66, 128, 129)


def test_a_row_group_of_which_no_row_is_left_goes(store):
    with blz.open(store, "a") as t:
        t.delete(pc.field("n") == 100)
        t.delete((pc.field("n") >= 64) & (pc.field("n") < 128))
        assert t._snapshot.version.row_groups == (GROUP, GROUP)
        assert deleted_rows(t) == [0, 0]


def test_compact_writes_again_what_has_deleted_rows_and_nothing_else(store):
    with blz.open(store, "a") as t:
        t.delete(pc.field("n") == 100)
        before = parts(store)
        t.compact()
        assert deleted_rows(t) == [0, 0, 0]
        assert len(parts(store) - before) == 2
        t.vacuum(keep=1)
    assert numbers(store) == without(100)
    assert not parts(store) >= before


def test_a_commit_keeps_the_deleted_rows_of_a_restored_version(store):
    with blz.open(store, "a") as t:
        t.delete(pc.field("n") == 100)
        t.append(TABLE.slice(0, 1))
        t.restore(2)
        assert deleted_rows(t) == [0, 1, 0]
    assert numbers(store) == without(100)


def test_values_that_are_new_are_right_beside_deleted_rows(store):
    with blz.open(store, "a") as t:
        t.delete(pc.field("n").isin([0, 63, 64, 100, 191]))
        left = without(0, 63, 64, 100, 191)
        t.add_column("twice", np.array(left) * 2)
        t.add_column("thrice", pc.multiply(pc.field("n"), 3))
        t.update({"n": pc.subtract(pc.field("n"), 1)}, where=pc.field("n") > 150)
        t.alter_column("text", dtype="large_string")
        assert deleted_rows(t) == [2, 2, 1]
        found = t.to_arrow()
    assert found["twice"].to_pylist() == [2 * n for n in left]
    assert found["thrice"].to_pylist() == [3 * n for n in left]
    assert found["n"].to_pylist() == [n - (n > 150) for n in left]
    assert found["text"].to_pylist() == [TABLE["text"][n].as_py() for n in left]


def test_extremes_and_nulls_are_those_of_the_rows_that_are_left(store):
    with blz.open(store, "a") as t:
        t.delete(pc.field("n").isin([0, 9, 191, 190]))
        assert (t["n"].min(), t["n"].max()) == (1, 189)
        assert t["text"].null_count() == sum(n % 9 == 0 for n in without(0, 9, 190, 191))
        assert t.count() == len(TABLE) - 4
        # Statistics tell that all rows match.
        assert t.count(filters=pc.field("n") >= 0) == len(TABLE) - 4


def test_a_column_whose_last_null_was_deleted_becomes_not_null():
    store = RamStore()
    blz.to_blz({"x": [None, *range(40)]}, store)
    with blz.open(store, "a") as t:
        with pytest.raises(blz.SchemaError, match="row 0 is null"):
            t.alter_column("x", nullable=False)
        t.delete(pc.field("x").is_null())
        assert deleted_rows(t) == [1]
        t.alter_column("x", nullable=False)
        assert t["x"].to_arrow().to_pylist() == list(range(40))
        assert t.verify().is_intact


OTHERS = {
    "a delete of other rows": lambda t: t.delete(pc.field("n") == 5),
    "an update": lambda t: t.update({"text": "new"}, where=pc.field("n") == 5),
    "a compact": lambda t: t.compact(sort_by=[("n", "descending")]),
}


@pytest.mark.parametrize("other", OTHERS)
def test_two_changes_of_a_row_group_conflict(store, other):
    with (
        blz.open(store, "a", retries=0) as once,
        blz.open(store, "a") as mine,
        blz.open(store, "a") as theirs,
    ):
        OTHERS[other](theirs)
        with pytest.raises(blz.ConflictError):
            once.delete(pc.field("n") == 6)
        assert mine.delete(pc.field("n") == 6).rows_deleted == 1
    assert 6 not in numbers(store)
    assert (5 in numbers(store)) == (other != "a delete of other rows")


def test_an_append_does_not_make_a_delete_conflict(store):
    with blz.open(store, "a", retries=0) as mine, blz.open(store, "a") as theirs:
        theirs.append(TABLE.slice(0, 2))
        mine.delete(pc.field("n") == 6)
        assert deleted_rows(mine)[0] == 1
    assert numbers(store) == [*without(6), 0, 1]


def test_deletes_of_different_row_groups_are_both_kept(store):
    with blz.open(store, "a", retries=0) as mine, blz.open(store, "a") as theirs:
        theirs.delete(pc.field("n") == 100)
        mine.delete(pc.field("n") == 6)
        assert deleted_rows(mine) == [1, 1, 0]
    assert numbers(store) == without(6, 100)


def test_changes_tells_the_deleted_rows_without_reading_others(store):
    with blz.open(store, "a") as t:
        t.delete(pc.field("n").isin([100, 7]))
        found = t.diff(1).rows()
        assert found.removed["n"].to_pylist() == [7, 100]
        assert found.added.num_rows == 0
        t.restore(1)
        back = t.diff(2).rows()
        assert (back.added["n"].to_pylist(), back.removed.num_rows) == ([7, 100], 0)
