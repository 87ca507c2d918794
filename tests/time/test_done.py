"""What each version did to rows: in the list of versions, the log, and a comparison."""

import logging
import pickle

import pytest

import blztable as blz


@pytest.fixture
def path(tmp_path):
    blz.to_blz({"id": [1, 2, 3, 4], "n": [10, 20, 30, 40]}, tmp_path / "t.blz")
    return tmp_path / "t.blz"


def done(table):
    """Return the last version's numbers of rows appended, updated and deleted."""
    newest = table.versions()[-1]
    return newest.rows_appended, newest.rows_updated, newest.rows_deleted


CHANGES = {
    "append": (lambda t: t.append({"id": [5, 6], "n": [1, 2]}), (2, 0, 0)),
    "update": (lambda t: t.update({"n": 0}, where="id > 2"), (0, 2, 0)),
    "delete": (lambda t: t.delete("id = 1"), (0, 0, 1)),
    "upsert": (lambda t: t.upsert({"id": [4, 5], "n": [1, 2]}, on="id"), (1, 1, 0)),
    "replace": (lambda t: t.append({"id": [1], "n": [2]}, replace_where="id = 1"), (1, 0, 1)),
    "resize": (lambda t: t.resize(7), (3, 0, 0)),
    "truncate": (lambda t: t.resize(1), (0, 0, 3)),
    "erase": (lambda t: t.erase("id < 3"), (0, 0, 2)),
    "duplicates": (lambda t: t.deduplicate(on="id"), (0, 0, 0)),
    "column": (lambda t: t.add_column("more", 1), (0, 0, 0)),
    "attributes": (lambda t: t.attrs.update(a=1), (0, 0, 0)),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("layout", ["directory", "file"])
def test_a_version_says_what_its_commit_did_to_rows(tmp_path, layout, name):
    change, expected = CHANGES[name]
    rows, storage = {"id": [1, 2, 3, 4], "n": [10, 20, 30, 40]}, blz.Storage(layout=layout)
    blz.to_blz(rows, tmp_path / "t", storage=storage)
    with blz.open(tmp_path / "t", mode="a") as t:
        assert done(t) == (4, 0, 0)
        before = t.version
        change(t)
        if t.version != before:
            assert done(t) == expected
        assert len(t) == 4 + expected[0] - expected[2]


def test_a_version_says_how_long_its_commit_took(path):
    with blz.open(path, mode="a") as t:
        t.append({"id": [5], "n": [50]})
        assert all(0 < one.seconds < 60 for one in t.versions())


def test_a_transaction_says_what_all_of_it_did(path):
    with blz.open(path, mode="a") as t:
        with t.transaction() as tx:
            tx.append({"id": [5, 6], "n": [1, 2]})
            tx.delete("id < 3")
            tx.update({"n": 9}, where="id > 4")
        assert done(t) == (2, 2, 2)


def test_a_change_that_is_made_again_says_the_same(path):
    with blz.open(path, mode="a") as t, blz.open(path, mode="a") as other:
        with t.transaction() as tx:
            tx.append({"id": [5], "n": [1]})
            other.append({"id": [6, 7], "n": [1, 2]})
        assert [one.rows_appended for one in t.versions()] == [4, 2, 1]


def test_a_replaced_table_counts_as_deleted(path):
    blz.to_blz({"id": [1, 2]}, path, mode="w")
    with blz.open(path) as t:
        assert done(t) == (2, 0, 4)


def test_a_restored_version_counts_the_difference_of_the_rows(path):
    with blz.open(path, mode="a") as t:
        t.delete("id < 4")
        t.restore(1)
        assert done(t) == (3, 0, 0)
        t.restore(2)
        assert done(t) == (0, 0, 3)


def test_a_merge_did_nothing_to_rows(path):
    with blz.open(path, mode="a") as t:
        for number in range(10):
            t.append({"id": [number], "n": [number]})
        merges = [one for one in t.versions() if one.operation == "merge"]
        assert merges
        for one in merges:
            assert (one.rows_appended, one.rows_updated, one.rows_deleted) == (0, 0, 0)
        t.compact()
        assert done(t) == (0, 0, 0)


def test_a_copy_says_how_many_rows_it_got(path, tmp_path):
    blz.copy(path, tmp_path / "other.blz")
    with blz.open(tmp_path / "other.blz") as t:
        assert done(t) == (4, 0, 0)


def test_a_comparison_adds_up_what_the_versions_between_did(path):
    with blz.open(path, mode="a") as t:
        t.append({"id": [5, 6, 7], "n": [1, 2, 3]})
        t.update({"n": 0}, where="id > 5")
        t.delete("id = 1")
        t.compact()
        found = t.diff(1)
        assert (found.rows_appended, found.rows_updated, found.rows_deleted) == (3, 2, 1)
        assert "3 rows appended, 2 rows updated, 1 row deleted" in str(found)
        assert found.to_json()["rows_updated"] == 2
        back = t.diff(t.version, 1)
        assert (back.rows_appended, back.rows_updated, back.rows_deleted) == (1, 2, 3)
        same = t.diff(1, 1)
        assert (same.rows_appended, same.rows_updated, same.rows_deleted) == (0, 0, 0)


def test_rows_that_were_only_merged_are_no_appended_rows(path):
    with blz.open(path, mode="a") as t:
        t.append({"id": [5], "n": [1]})
        t.compact()
        found = t.diff(2)
        assert (found.rows_appended, found.rows_deleted) == (0, 0)
        assert (found.row_groups_added, found.row_groups_removed) == (1, 2)


def test_a_comparison_over_a_version_that_is_gone_knows_no_numbers(path):
    with blz.open(path, mode="a") as t:
        t.tags["first"] = 1
        t.append({"id": [5], "n": [1]})
        t.vacuum(keep=1)
        found = t.diff("first")
        assert (found.rows_appended, found.rows_updated, found.rows_deleted) == (None,) * 3
        assert found.rows().added["id"].to_pylist() == [5]


def test_the_log_tells_what_a_commit_did(path, caplog):
    caplog.set_level(logging.INFO, "blztable")
    with blz.open(path, mode="a") as t, t.transaction() as tx:
        tx.append({"id": [5, 6], "n": [1, 2]})
        tx.delete("id = 1")
    message = caplog.messages[-1]
    assert "version 2: transaction, 2 rows appended, 1 row deleted; 5 rows, 2 row groups" in message
    assert message.endswith(" s")


def test_the_entry_of_a_version_tells_it_as_text(path):
    with blz.open(path, mode="a") as t:
        t.delete("id = 1")
        newest = t.versions()[-1]
        assert str(newest).endswith("delete, 3 rows, 1 row deleted")
        assert pickle.loads(pickle.dumps(newest)) == newest
