"""Which versions stay, which go, and that their files go with them and no others."""

import pyarrow as pa
import pytest
from engine.stores import read, set_properties, tree, write

from blztable.engine import versions
from blztable.engine.commit import Draft, Transaction
from blztable.engine.operations import set_attributes
from blztable.format import layout
from blztable.storage.local import LocalStore
from blztable.storage.memory import MemoryStore


@pytest.fixture(params=["local", "memory"])
def store(request, tmp_path):
    store = LocalStore(tmp_path / "t.blz") if request.param == "local" else MemoryStore()
    yield store
    store.close()


def content(number):
    return pa.table({"n": [number], "text": [f"v{number}"]})


def commit(store, number):
    assert write(store, content(number), durability="process") == number


def touch(store, **changes):
    """A commit that names the same files as the one before."""
    base, pinned = versions.pin(store)
    with pinned:
        _, new = set_attributes(store, base, changes, (), is_durable=False)
    new.close()


def assert_whole(store):
    """Every version reads, and every file belongs to one."""
    named = set()
    for number in versions.numbers(store):
        version, pinned = versions.pin(store, number)
        with pinned:
            read(version)
            for index, path in enumerate(version.head.columns.paths):
                named |= {layout.part(path, k) for k in version.column(index).k}
    assert {key for key in tree(store) if key.endswith(".bin")} == named
    columns = {key for key in tree(store) if key.startswith("data/col") and "__" not in key}
    assert columns == {key.rpartition("/")[0] for key in named}


def test_the_ten_newest_versions_are_kept(store):
    for number in range(1, 14):
        commit(store, number)
        assert versions.numbers(store) == list(range(max(1, number - 9), number + 1))
        assert_whole(store)
    for number in versions.numbers(store):
        version, pinned = versions.pin(store, number)
        with pinned:
            assert read(version) == content(number)


def test_a_pinned_version_stays_and_goes_when_it_is_let_go(store):
    for number in range(1, 4):
        commit(store, number)
    held, pinned = versions.pin(store, 2)
    with pinned:
        for number in range(4, 15):
            commit(store, number)
        assert versions.numbers(store) == [2, *range(5, 15)]
        assert read(held) == content(2)
        assert_whole(store)
    commit(store, 15)
    assert versions.numbers(store) == list(range(6, 16))
    assert_whole(store)


def test_versions_older_than_the_table_keeps_them_go(store):
    for number in range(1, 4):
        commit(store, number)
    set_properties(store, keep_seconds=0)
    # The version that a commit was made on is pinned by it, so it outlives that commit.
    assert versions.numbers(store) == [3, 4]
    set_properties(store, keep_seconds=0)
    assert versions.numbers(store) == [4, 5]
    assert_whole(store)


def test_versions_within_their_time_stay(store):
    for number in range(1, 4):
        commit(store, number)
    set_properties(store, keep_seconds=3600)
    assert versions.numbers(store) == [1, 2, 3, 4]


@pytest.mark.parametrize(("most", "kept"), [(0, [4, 5]), (1, [4, 5]), (2, [4, 5]), (3, [3, 4, 5])])
def test_a_table_may_keep_fewer_versions_but_never_loses_its_newest(store, most, kept):
    for number in range(1, 5):
        commit(store, number)
    set_properties(store, keep_versions=most)
    assert versions.numbers(store) == kept
    assert_whole(store)


@pytest.mark.parametrize("bad", ["ten", -1, 1.5, None, True])
def test_a_number_of_versions_that_makes_no_sense_is_the_usual_one(store, bad):
    for number in range(1, 5):
        commit(store, number)
    set_properties(store, keep_versions=bad)
    assert versions.numbers(store) == [1, 2, 3, 4, 5]


def test_files_that_a_kept_version_names_stay(store):
    commit(store, 1)
    files = {key for key in tree(store) if key.endswith(".bin")}
    for number in range(20):
        touch(store, turn=number)
    assert versions.numbers(store) == list(range(12, 22))
    assert {key for key in tree(store) if key.endswith(".bin")} == files
    newest, pinned = versions.pin(store)
    with pinned:
        assert read(newest) == content(1)


def test_files_stay_where_a_kept_version_names_them_in_another_line(store):
    commit(store, 1)
    files = {key for key in tree(store) if key.endswith(".bin")}

    def draft(newest):
        lines = [line + b" " for line in newest.lines()]
        return Draft(newest.head, lines)

    for _ in range(11):
        with Transaction(store, is_durable=False) as transaction:
            transaction.publish("rewritten", draft)[1].close()
    assert versions.numbers(store) == list(range(3, 13))
    assert {key for key in tree(store) if key.endswith(".bin")} == files
    assert_whole(store)


def test_shared_files_go_with_the_last_version_that_names_them(store):
    commit(store, 1)
    touch(store, a=1)
    for number in range(3, 12):
        commit(store, number)
    assert versions.numbers(store)[0] == 2
    assert_whole(store)
    assert "data/col0" in tree(store)
    commit(store, 12)
    assert versions.numbers(store)[0] == 3
    assert_whole(store)
    assert "data/col0" not in tree(store)


def test_a_file_of_another_writer_in_a_column_that_goes_keeps_its_directory(store):
    commit(store, 1)
    store.put_new("data/col0/__99__.bin", [b"in flight"])
    for number in range(2, 12):
        commit(store, number)
    assert store.get("data/col0/__99__.bin") == b"in flight"
    assert "data/col0/__1__.bin" not in tree(store)
    assert "data/col1" not in tree(store)


def test_a_damaged_version_goes_in_its_turn_and_leaves_its_files(store):
    for number in range(1, 4):
        commit(store, number)
    store.put(layout.manifest(1), b"damaged")
    for number in range(4, 13):
        commit(store, number)
    assert versions.numbers(store) == list(range(3, 13))
    assert "data/col0/__1__.bin" in tree(store)


def test_while_a_kept_version_is_damaged_nothing_goes(store):
    for number in range(1, 11):
        commit(store, number)
    store.put(layout.manifest(9), b"damaged")
    before = tree(store)
    commit(store, 11)
    assert before <= tree(store)
    assert versions.numbers(store) == list(range(1, 12))


def test_a_version_that_others_keep_from_going_does_not_keep_the_rest(store):
    for number in range(1, 10):
        commit(store, number)
    _, pinned = versions.pin(store, 1)
    with pinned:
        set_properties(store, keep_versions=2)
        assert versions.numbers(store) == [1, 9, 10]
        assert_whole(store)
