"""A directory on a shared file system whose locks do not hold: nobody relies on one.

The same protocol as in a store: creations are links, and ages are those of the file system.
"""

import os
import time
from contextlib import suppress

import pyarrow as pa
import pytest

import blztable as blz
from blztable import tuning
from blztable.engine.version import leases, versions
from blztable.format import layout
from blztable.format.manifest import UNLOCKED
from blztable.format.version_file import REMOVED
from blztable.storage import locks
from blztable.storage.local import LocalStore
from blztable.storage.resolve import store_at
from support.remote_places import options_of, put_table
from support.stores import fork

NONE = blz.Storage(locks="none")
DAY = 86_400


@pytest.fixture(autouse=True)
def no_lock(monkeypatch):
    """Fail each test that takes an exclusive lock; grant no shared one."""

    def refused(fd, kind):
        assert not kind & locks.fcntl.LOCK_EX, "an exclusive lock"
        raise OSError(37, "No locks available")

    monkeypatch.setattr(locks.fcntl, "flock", refused)


@pytest.fixture
def path(tmp_path):
    """Make a table of three versions that share no file."""
    for number in range(3):
        blz.to_blz({"n": [number]}, tmp_path / "t.blz", mode="w", storage=NONE)
    return tmp_path / "t.blz"


def rows(path, **which):
    return blz.read_table(path, **which)["n"].to_pylist()


def manifests(path):
    return {int(one.name): one.read_bytes() for one in (path / layout.MANIFESTS).iterdir()}


def files(path):
    return sorted(one.name for one in (path / "data").rglob("*.bin"))


def test_a_table_says_that_its_writers_rely_on_no_lock(path):
    for data in ({"n": [7]}, {"m": [8]}):
        blz.to_blz(data, path)
        with blz.open(path) as table:
            head = table._snapshot.version.head
            assert (UNLOCKED in head.requires, head.properties["locks"]) == (True, "none")
            assert not table._snapshot.version.store.locks


def test_every_verb_works(path):
    with blz.open(path, "a") as t:
        t.append({"n": [5, 6, 7]})
        assert t.delete("n = 6").rows_deleted == 1
        t.update({"n": 9}, where="n = 7")
        t.upsert({"n": [5, 30]}, on="n")
        t.add_column("x", pa.array([1.5] * len(t)))
        t.attrs["a"] = 1
        t.tags["first"] = 1
        t.compact(sort_by="n")
        with t.transaction() as tx:
            tx.delete("n = 2")
            tx.append({"n": [40], "x": [2.5]})
        assert not t.verify(full=True).problems
        assert t.restore("first").version == t.version
        t.erase("n = 0")
        version = t.version
    assert rows(path) == []
    blz.to_blz({"n": [1]}, path, mode="a", durability="process")
    with blz.open(path) as t:
        assert t._snapshot.version.head.durable
        assert t.version > version


def test_writers_lose_and_double_nothing(path):
    with blz.open(path, "a") as one, blz.open(path, "a") as other:
        one.append({"n": [10]})
        other.append({"n": [20]})
        one.delete("n = 2")
        other.append({"n": [30]})
    assert rows(path) == [10, 20, 30]
    with pytest.raises(blz.TableExistsError):
        blz.to_blz({"n": [1]}, path, mode="x")


def test_the_next_number_is_created_by_one_writer_only(path):
    with blz.open(path, "a") as one, blz.open(path, "a") as other:
        transaction = other.transaction()
        tx = transaction.__enter__()
        tx.update({"n": 8}, "n = 2")
        one.update({"n": 9}, "n = 2")
        with pytest.raises(blz.ConflictError):
            transaction.__exit__(None, None, None)
    assert rows(path) == [9]


def test_nothing_is_removed_by_a_commit_and_removed_versions_keep_their_numbers(path):
    assert [len(one) > len(REMOVED) for one in manifests(path).values()] == [True] * 3
    assert blz.vacuum(path, keep=1).versions == (1, 2)
    assert {number for number, one in manifests(path).items() if one == REMOVED} == {1, 2}
    assert len(files(path)) == 1
    with pytest.raises(blz.TableNotFoundError, match=r"version 1 .* was removed"):
        blz.open(path, version=1)
    with blz.open(path, "a") as table:
        assert [one.number for one in table.versions()] == [3]
        assert table.vacuum().versions == ()
    assert rows(path) == [2]


def test_a_version_is_held_and_tagged_beside_a_vacuum(path):
    with blz.open(path, version=1, hold=60) as reader:
        assert len(list((path / layout.LEASES).iterdir())) == 1
        with blz.open(path, "a") as table:
            table.tags["second"] = 2
            done = table.vacuum(keep=1)
            assert (done.versions, done.pinned) == ((3,), (1,))
        assert reader.to_arrow()["n"].to_pylist() == [0]
    assert list((path / layout.LEASES).iterdir()) == []
    assert blz.vacuum(path, keep=1).versions == (1,)
    assert rows(path, version="second") == [1]


def test_a_version_that_goes_while_it_is_read_is_told(path):
    with blz.open(path, version=1) as reader:
        blz.vacuum(path, keep=1)
        with pytest.raises(blz.TableNotFoundError, match="was removed while it was read"):
            reader.to_arrow()


def test_orphans_go_when_the_file_system_says_that_they_are_seven_days_old(path):
    orphans = [path / layout.part(layout.SHARED, 77), path / layout.leaf(78)]
    for orphan in orphans:
        orphan.parent.mkdir(exist_ok=True)
        orphan.write_bytes(b"left")
    assert blz.vacuum(path).files == 0
    old = time.time() - tuning.current.orphan_seconds - DAY
    for orphan in orphans:
        os.utime(orphan, (old, old))
    assert blz.vacuum(path).files == 2
    assert not any(orphan.exists() for orphan in orphans)
    assert rows(path) == [2]


def test_files_that_a_vacuum_may_have_taken_are_not_committed(path, tuned):
    tuned(unasked_seconds=0)
    with blz.open(path, "a") as table:
        before = set(path.rglob("*.bin"))
        transaction = table.transaction()
        tx = transaction.__enter__()
        tx.append({"n": [9]})
        old = time.time() - 6.5 * DAY
        for new in set(path.rglob("*.bin")) - before:
            os.utime(new, (old, old))
        with pytest.raises(blz.ConflictError, match=r"6\.5 days old"):
            transaction.__exit__(None, None, None)
    assert rows(path) == [2]


def test_a_lease_of_a_killed_process_counts_for_an_hour(path):
    store = LocalStore(path)
    store.rely_on_no_lock()
    lease = leases.lease(store, 1)
    assert blz.vacuum(path, keep=1).pinned == (1,)
    old = time.time() - tuning.current.lease_seconds - 60
    os.utime(path / lease.key, (old, old))
    assert blz.vacuum(path, keep=1).versions == (1,)
    assert list((path / layout.LEASES).iterdir()) == []


def test_a_dropped_table_is_made_anew_without_locks(path):
    with blz.open(path, "a") as late, blz.open(path, hold=60) as reader:
        blz.drop(path)
        assert not blz.exists(path)
        with pytest.raises(blz.TableNotFoundError, match="dropped"):
            late.append({"n": [9]})
        blz.to_blz({"n": [5]}, path)
        with pytest.raises(blz.ConflictError, match="dropped or replaced"):
            late.append({"n": [9]})
        assert 3 in blz.vacuum(path, keep=1, older_than=0).pinned
        assert reader.to_arrow()["n"].to_pylist() == [2]
    assert rows(path) == [5]
    with blz.open(path) as table:
        assert UNLOCKED in table._snapshot.version.head.requires
        assert table.version == 5


def test_where_links_are_refused_nothing_is_published(path, monkeypatch):
    def refused(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    with (
        blz.open(path, "a") as table,
        pytest.raises(blz.ReadOnlyError, match="makes no links"),
    ):
        table.append({"n": [9]})
    assert rows(path) == [2]


def test_a_link_that_was_made_and_is_told_as_taken_is_ours(path, monkeypatch):
    link = os.link

    def made(*arguments, **options):
        link(*arguments, **options)
        raise FileExistsError(17, "File exists")

    monkeypatch.setattr(os, "link", made)
    with blz.open(path, "a") as table:
        table.append({"n": [9]})
        table.append({"n": [10]})
    assert rows(path) == [2, 9, 10]


@pytest.mark.parametrize("place", ["file", "memory"])
def test_only_a_directory_does_without_locks(tmp_path, place):
    target, storage = blz.MemoryStore(), NONE
    if place == "file":
        target, storage = tmp_path / "t.blz", blz.Storage(locks="none", layout="file")
    with pytest.raises(ValueError, match="only a table in a directory"):
        blz.to_blz({"n": [1]}, target, storage=storage)
    assert not blz.exists(target)
    with pytest.raises(ValueError, match="locks must be one of None, 'none', not 'all'"):
        blz.Storage(locks="all")


def test_a_failed_creation_leaves_no_table_and_the_next_one_works(tmp_path):
    def rows_():
        yield {"n": [1]}
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        blz.to_blz(rows_(), tmp_path / "t.blz", storage=NONE)
    assert not blz.exists(tmp_path / "t.blz")
    blz.to_blz({"n": [1]}, tmp_path / "t.blz", mode="x", storage=NONE)
    assert rows(tmp_path / "t.blz") == [1]


def test_a_directory_of_another_program_is_left_as_it_is(tmp_path):
    (tmp_path / "other/data/notes").mkdir(parents=True)
    with pytest.raises(blz.TableExistsError, match="is not a table"):
        blz.to_blz({"n": [1]}, tmp_path / "other", storage=NONE)


def test_a_fork_reads_on_and_changes_nothing(path):
    with blz.open(path, "a", hold=60) as table:
        child = fork()
        if child == 0:
            code = 1
            with suppress(BaseException):
                assert table.to_arrow()["n"].to_pylist() == [2]
                with pytest.raises(blz.ReadOnlyError):
                    table.append({"n": [9]})
                table.close()
                code = 0
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(list((path / layout.LEASES).iterdir())) == 1
        table.append({"n": [9]})
    assert rows(path) == [2, 9]


class TestBesideLocks:
    """Tables whose writers rely on locks."""

    @pytest.fixture(autouse=True)
    def no_lock(self):
        """Let locks be locks."""

    def test_a_table_whose_writers_rely_on_locks_is_not_replaced_by_one_without(self, tmp_path):
        blz.to_blz({"n": [1]}, tmp_path / "t.blz")
        with pytest.raises(blz.TableExistsError, match="relies on locks"):
            blz.to_blz({"n": [2]}, tmp_path / "t.blz", storage=NONE)
        assert rows(tmp_path / "t.blz") == [1]
        blz.to_blz({"n": [2]}, tmp_path / "t.blz", mode="a", storage=NONE)
        with blz.open(tmp_path / "t.blz") as table:
            assert UNLOCKED not in table._snapshot.version.head.requires

    @pytest.mark.parametrize("options", [{}, {"layout": "file"}, {"mode": "w"}])
    def test_a_copy_has_locks_again(self, path, tmp_path, options):
        target = tmp_path / "copy.blz"
        blz.copy(path, target, **options)
        blz.to_blz({"n": [9]}, target, mode="a")
        with blz.open(target, "a") as table:
            assert UNLOCKED not in table._snapshot.version.head.requires
            assert table._snapshot.version.store.locks
        assert rows(target) == [2, 9]

    def test_in_a_store_the_property_says_what_holds_there_anyway(self, path, s3):
        options = {"storage_options": options_of(s3)}
        put_table(s3, path, "t.blz")
        with blz.open("s3://bucket/t.blz", "a", **options) as table:
            table.append({"n": [9]})
            assert UNLOCKED in table._snapshot.version.head.requires
        blz.to_blz({"n": [1]}, "s3://bucket/u.blz", storage=NONE, **options)
        assert blz.read_table("s3://bucket/u.blz", **options)["n"].to_pylist() == [1]


def test_the_values_of_a_directory_are_listed_in_the_order_of_their_keys(path):
    store = store_at(path)
    listed = list(store.entries(""))
    keys = [one.key for one in listed]
    assert keys == sorted(keys)
    assert keys.index(layout.manifest(1)) > max(
        place for place, key in enumerate(keys) if key.startswith("data/")
    )
    by_key = {one.key: one for one in listed}
    status = (path / layout.manifest(1)).stat()
    assert by_key[layout.manifest(1)].size == status.st_size
    assert by_key[layout.manifest(1)].time == status.st_mtime
    assert list(store.entries("", keys[3])) == listed[4:]
    assert versions.numbers(store) == [1, 2, 3]
