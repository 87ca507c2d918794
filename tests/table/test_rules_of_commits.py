"""Rules of commits and isolation that nothing else breaks when they are taken out."""

import pandas as pd
import pytest

import blztable as blz
from blztable.engine.version import versions
from blztable.engine.version.commit import Commit, CommitPlan
from blztable.format import layout
from blztable.storage.local import LocalStore
from support.stores import changed_by, said_by_a_child


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t.blz"


def test_a_verb_that_failed_half_way_is_not_made_again_on_top_of_others(path):
    blz.to_blz({"n": [1]}, path)
    with blz.open(path, "a") as t, t.transaction() as tx:
        with pytest.raises(blz.SchemaError):
            tx.append(iter([{"n": [1]}, {"n": [2], "new": [1]}, {"n": ["x"]}]), evolve=True)
        tx.attrs["ours"] = 1
        with blz.open(path, "a") as other:
            other.attrs["theirs"] = 1
    assert blz.read_table(path).to_pydict() == {"n": [1]}
    with blz.open(path) as t:
        assert dict(t.attrs) == {"ours": 1, "theirs": 1}


def test_a_tag_that_another_handle_has_set_is_moved_and_removed(path):
    blz.to_blz({"n": [1]}, path)
    blz.to_blz({"n": [2]}, path, mode="a")
    with blz.open(path, "a") as t:
        with blz.open(path, "a") as other:
            other.tags.update(a=1, b=1)
        t.tags["a"] = 2
        del t.tags["b"]
        assert dict(t.tags) == {"a": 2}


def test_a_creation_that_forks_is_finished_by_the_process_that_began_it(path):
    def batches(forked):
        yield {"n": [1]}
        forked()
        yield {"n": [2]}

    said = said_by_a_child(lambda forked: blz.to_blz(batches(forked), path))
    assert "ReadOnlyError" in said
    with blz.open(path) as t:
        assert t["n"][:].to_pylist() == [1, 2]
        assert t.version == 1


@pytest.mark.parametrize("is_planned", [True, False])
def test_the_version_that_a_commit_begins_from_stays_while_others_commit(path, is_planned):
    blz.to_blz({"n": [1]}, path)
    store = LocalStore(path)
    base = versions.read(store, 1) if is_planned else None
    with Commit(CommitPlan(store, is_durable=False, base=base)), blz.open(path, "a") as other:
        other.configure(keep_versions=1, keep_seconds=0)
        for number in range(3):
            other.update({"n": number})
        assert 1 in versions.numbers(store)
    with blz.open(path, "a") as other:
        for number in range(3):
            other.update({"n": number})
    assert 1 not in versions.numbers(store)


def test_a_change_of_all_rows_behind_an_append_conflicts_with_rows_changed_meanwhile(path):
    blz.to_blz({"n": [1, 2, 3]}, path)

    def work():
        with blz.open(path, "a") as t, t.transaction() as tx:
            tx.append({"n": [7]})
            tx.alter_column("n", dtype="float64")
            with blz.open(path, "a") as other:
                other.update({"n": -1})

    with pytest.raises(blz.ConflictError, match="rows"):
        work()
    assert blz.read_table(path).to_pydict() == {"n": [-1] * 3}


def test_the_number_of_a_version_whose_manifest_is_missing_is_not_used_again(path):
    for number in range(3):
        blz.to_blz({"n": [number]}, path, mode="w", storage=blz.Storage(layout="directory"))
    (path / layout.manifest(3)).unlink()
    blz.to_blz({"n": [7]}, path, mode="w")
    with blz.open(path) as t:
        assert t.version == 4


def test_a_creation_that_fails_takes_no_files_of_one_that_is_in_flight(path):
    def failing():
        yield {"n": [1] * 4}
        raise LookupError

    def batches():
        yield {"n": [1] * 4}
        yield {"n": [2] * 4}
        yield {"n": [3] * 4}
        with pytest.raises(LookupError):
            blz.to_blz(failing(), path)
        yield {"n": [4] * 4}

    storage = blz.Storage(layout="directory", row_group_rows=4)
    blz.to_blz(batches(), path, storage=storage)
    with blz.open(path) as t:
        assert t.verify(full=True).is_intact
        assert len(t) == 16


def test_all_rows_of_a_copy_are_those_of_its_first_version(path, tmp_path):
    blz.to_blz({"n": [1]}, path)
    blz.to_blz({"n": [2]}, path, mode="w")
    blz.copy(path, tmp_path / "copy.blz")
    copied = versions.read(LocalStore(tmp_path / "copy.blz"), 1)
    assert set(changed_by(copied)) == {1}


# The label of a column is in the frame descriptor only: a name that goes and comes back is text.
def test_a_rename_conflicts_with_one_that_changed_the_label_of_a_column_only(path):
    blz.to_blz(pd.DataFrame({0: [1], 1: [2]}), path)

    def work():
        with blz.open(path, "a") as t, t.transaction() as tx:
            tx.rename_columns({"1": "b"})
            with blz.open(path, "a") as other:
                other.rename_columns({"0": "x"})
                other.rename_columns({"x": "0"})

    with pytest.raises(blz.ConflictError, match="columns"):
        work()
    assert list(blz.read_blz(path).columns) == ["0", 1]
