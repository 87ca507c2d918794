"""A vacuum: unnamed files go, needed files stay, and the vacuum waits for writers."""

import os
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import blztable as blz
from blztable.engine.version import versions
from blztable.engine.version.commit import Commit, CommitPlan
from blztable.engine.version.staged import NewGroups, StagedColumn, StagedVersion
from blztable.engine.version.vacuum import vacuum
from blztable.errors import BusyError, CorruptError, StorageError, TableNotFoundError
from blztable.format import layout
from blztable.report import Vacuumed
from blztable.storage.local import LocalStore
from blztable.storage.memory import RamStore
from support.stores import (
    CountedLocks,
    Hooked,
    directories_named,
    files_named,
    once,
    raising,
    read,
    set_attributes,
    set_properties,
    tree,
    write,
)

pytestmark = pytest.mark.usefixtures("own_files", "ten_copies")

# Besides the pins on removed versions: no writer is working, and no other one comes.
LOCKS_OF_A_VACUUM = [layout.MANIFESTS, layout.FLIGHT, layout.LOCK]


@pytest.fixture(params=["local", "memory"])
def store(request, tmp_path):
    store = LocalStore(tmp_path / "t.blz") if request.param == "local" else RamStore()
    yield store
    store.close()


@pytest.fixture
def local(tmp_path):
    store = LocalStore(tmp_path / "t.blz")
    yield store
    store.close()


def content(number):
    return pa.table({"n": [number], "text": [f"v{number}"], "none": pa.nulls(1)})


def commit(store, *numbers, durability="process"):
    for number in numbers:
        assert write(store, content(number), durability=durability) == number


def under(store, prefix):
    return {key for key in tree(store) if key.startswith(prefix + "/")}


def assert_whole(store, *numbers):
    """Check that exactly these versions exist and can be read, and every data file is theirs."""
    assert versions.numbers(store) == list(numbers)
    files, directories = set(), set()
    for number in numbers:
        version, pinned = versions.pin(store, number)
        with pinned:
            assert read(version) == content(number)
            files |= files_named(version)
            directories |= directories_named(version)
    assert files <= under(store, "data") <= files | directories


def leave_debris(store):
    """Leave the files of a writer that was killed before its commit."""
    assert store.reserve("data/col70")
    assert store.reserve("data/col71")
    store.put_new("data/col71/__1__.bin", [b"an orphan"])
    store.put_new("data/col0/__2__.bin", [b"another"])
    assert store.reserve("data/col72/col0")
    store.put_new("data/col72/col0/__5__.bin", [b"below"])


def test_what_a_killed_writer_left_goes_and_nothing_else(store):
    commit(store, 1, 2)
    before = tree(store)
    leave_debris(store)
    assert vacuum(store) == Vacuumed(files=3, nbytes=len(b"an orphananotherbelow"))
    assert tree(store) == before
    assert_whole(store, 1, 2)


def test_a_vacuum_of_a_clean_table_does_nothing(store):
    commit(store, 1, 2)
    before = tree(store)
    calls = []
    assert vacuum(Hooked(store, after=lambda name, args: calls.append(name))) == Vacuumed()
    assert tree(store) == before
    assert "flush" not in calls
    assert "flush_names" not in calls


def test_the_next_writer_finds_its_way_after_a_vacuum(store):
    commit(store, 1)
    leave_debris(store)
    vacuum(store)
    commit(store, 2, 3)
    vacuum(store, keep=1)
    commit(store, 4)
    vacuum(store, keep=1)
    assert_whole(store, 4)


def test_keeping_one_version_leaves_the_newest(store):
    commit(store, 1, 2, 3)
    sizes = [
        len(store.get(key))
        for number in (1, 2)
        for key in files_named(versions.read(store, number))
    ]
    found = vacuum(store, keep=1)
    assert found == Vacuumed(versions=(1, 2), files=4, nbytes=sum(sizes))
    assert_whole(store, 3)


def test_the_table_says_how_many_versions_are_kept_where_the_caller_does_not(store):
    commit(store, 1, 2, 3)
    held, pinned = versions.pin(store, 1)
    # They are pinned, so they stay after the commit.
    with pinned, versions.pin(store, 2)[1]:
        set_properties(store, keep_versions=2)
        assert versions.numbers(store) == [1, 2, 3, 4]
    assert vacuum(store, keep=3).versions == (1,)
    assert vacuum(store).versions == (2,)
    assert held.head.version == 1


def test_versions_older_than_the_caller_wants_go(store):
    commit(store, 1, 2, 3)
    assert vacuum(store, older_than=1000.5).versions == ()
    assert vacuum(store, older_than=float("inf")).versions == ()
    assert vacuum(store, older_than=0.0).versions == (1, 2)
    assert_whole(store, 3)


@pytest.mark.parametrize("wrong", [{"keep": 0}, {"older_than": -1}])
def test_a_number_that_makes_no_sense_is_refused(store, wrong):
    commit(store, 1, 2)
    with pytest.raises(ValueError, match=next(iter(wrong))):
        vacuum(store, **wrong)
    with pytest.raises(ValueError, match="older_than"):
        vacuum(store, older_than=float("nan"))
    with pytest.raises(TypeError):
        vacuum(store, keep=1.5)
    assert_whole(store, 1, 2)


def test_a_pinned_version_stays_with_its_files_until_it_is_let_go(store):
    commit(store, 1, 2, 3, 4)
    leave_debris(store)
    held, pinned = versions.pin(store, 2)
    with pinned:
        found = vacuum(store, keep=1)
        assert (found.versions, found.pinned) == ((1, 3), (2,))
        assert read(held) == content(2)
        assert_whole(store, 2, 4)
    found = vacuum(store, keep=1)
    assert (found.versions, found.pinned) == ((2,), ())
    assert_whole(store, 4)


def test_what_a_version_left_because_it_was_damaged_goes(store):
    commit(store, 1)
    store.put(layout.manifest(1), b"damaged")
    commit(store, *range(2, 12))
    assert "data/col0/__1__.bin" in tree(store)
    assert vacuum(store).files == 2
    assert_whole(store, *range(2, 12))


def test_while_a_writer_is_at_work_nothing_goes(store):
    commit(store, 1, 2)
    with Commit(CommitPlan(store, is_durable=False)) as transaction:
        (path,) = transaction.files.reserve_columns(1)
        store.put_new(layout.part(path, 1), [b"in flight"])
        before = tree(store)
        with pytest.raises(BusyError, match="a writer or a transaction was active"):
            vacuum(store, keep=1, wait=0)
        assert tree(store) == before


def test_a_writer_that_begins_waits_for_the_vacuum(store):
    commit(store, 1)
    busy = []

    def begin():
        with pytest.raises(BusyError):
            store.lock(layout.MANIFESTS, shared=True, timeout=0)
        with pytest.raises(BusyError):
            store.lock(layout.LOCK, shared=False, timeout=0)
        busy.append(True)

    vacuum(Hooked(store, before=once("delete", begin)))
    assert busy


def test_a_reader_that_comes_before_the_versions_are_locked_keeps_its_version(store):
    commit(store, 1, 2, 3)
    pins = []
    reader = once("lock", lambda: pins.append(versions.pin(store, 1)), layout.manifest(1))
    found = vacuum(Hooked(store, before=reader), keep=1)
    assert found.pinned == (1,)
    [(held, pinned)] = pins
    with pinned:
        assert read(held) == content(1)


def test_however_many_versions_go_a_vacuum_holds_one_of_them_at_a_time(store):
    commit(store, 1, 2, 3, 4, 5)
    counting = CountedLocks(store)
    assert vacuum(counting, keep=1).versions == (1, 2, 3, 4)
    assert counting.most == 1 + len(LOCKS_OF_A_VACUUM)
    assert_whole(store, 5)


def test_a_version_pinned_while_the_files_are_listed_stays_with_its_files(store):
    commit(store, 1, 2, 3)
    pins = []
    reader = once("list_names", lambda: pins.append(versions.pin(store, 2)), layout.DATA)
    found = vacuum(Hooked(store, before=reader), keep=1)
    [(held, pinned)] = pins
    with pinned:
        assert (found.versions, found.files, found.pinned) == ((1,), 2, (2,))
        assert read(held) == content(2)
        assert_whole(store, 2, 3)


def test_where_a_version_pinned_late_is_damaged_no_file_goes(store):
    commit(store, 1, 2, 3)
    damage_line(store, 2)
    files = under(store, "data")
    pins = []
    reader = once("list_names", lambda: pins.append(versions.pin(store, 2)), layout.DATA)
    found = vacuum(Hooked(store, before=reader), keep=1)
    [(_, pinned)] = pins
    with pinned:
        assert (found.versions, found.files, found.pinned) == ((1,), 0, (2,))
    assert under(store, "data") == files


def damage_head(store, number):
    store.put(layout.manifest(number), b"damaged")


def damage_line(store, number):
    data = store.get(layout.manifest(number))
    store.put(layout.manifest(number), data[:-3] + b"x" + data[-2:])


@pytest.mark.parametrize("damage", [damage_head, damage_line])
@pytest.mark.parametrize("number", [2, 3])
def test_a_damaged_version_that_stays_protects_everything(store, number, damage):
    commit(store, 1, 2, 3)
    leave_debris(store)
    damage(store, number)
    before = tree(store)
    assert vacuum(store, keep=2) == Vacuumed(damaged=(number,))
    assert tree(store) == before


def test_a_damaged_newest_version_protects_everything_whatever_is_to_be_kept(store):
    commit(store, 1, 2, 3)
    damage_head(store, 3)
    before = tree(store)
    assert vacuum(store, keep=1, older_than=0) == Vacuumed(damaged=(3,))
    assert tree(store) == before


def test_a_damaged_version_that_is_past_keeping_goes_with_its_files(store):
    commit(store, 1, 2, 3)
    damage_head(store, 2)
    assert vacuum(store, keep=1).versions == (1, 2)
    assert_whole(store, 3)


def test_where_a_medium_fails_nothing_goes(store):
    commit(store, 1, 2, 3)
    leave_debris(store)
    before = tree(store)
    failing = once("get", raising(StorageError("it fails")), layout.manifest(2))
    with pytest.raises(StorageError, match="it fails"):
        vacuum(Hooked(store, before=failing), keep=2)
    assert tree(store) == before


def test_a_version_that_was_not_flushed_is_before_the_others_go(store):
    commit(store, 1, durability="full")
    commit(store, 2)
    calls = []
    vacuum(Hooked(store, after=lambda *call: calls.append(call)), keep=1)
    changes = [call for call in calls if call[0] in ("flush", "delete", "flush_names")]
    assert [name for name, _ in changes] == ["flush", "delete", "flush_names", "delete"]
    files = files_named(versions.read(store, 2))
    assert set(changes[0][1][0]) == files | {layout.manifest(2)}


def test_without_a_table_there_is_nothing_to_vacuum(store, tmp_path):
    with pytest.raises(TableNotFoundError):
        vacuum(store)
    assert tree(store) == set()
    store.prepare(*layout.PREPARED)
    leave_debris(store)
    before = tree(store)
    with pytest.raises(TableNotFoundError):
        vacuum(store)
    assert tree(store) == before


def test_a_file_in_place_of_a_table_is_no_table(tmp_path):
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(TableNotFoundError):
        vacuum(LocalStore(path))
    assert path.read_text() == "mine"


def test_a_copy_without_the_empty_files_that_are_locked_can_be_vacuumed(store):
    commit(store, 1, 2)
    store.delete([layout.LOCK, layout.FLIGHT])
    assert vacuum(store, keep=1).versions == (1,)


def test_files_that_versions_share_stay_for_the_one_that_is_kept(store):
    commit(store, 1)
    base, pinned = versions.pin(store)
    with pinned:
        set_attributes(store, base, {"a": 1}, (), is_durable=False)[1].close()
    files = under(store, "data")
    assert vacuum(store, keep=1).files == 0
    assert versions.numbers(store) == [2]
    assert under(store, "data") == files


def test_what_killed_calls_left_half_done_goes_even_beside_damage(local):
    commit(local, 1)
    for prefix in ("meta", "meta/manifest", "data", "data/col0"):
        local.put_new(f"{prefix}/.tmp-0123", [b"half"])
    damage_head(local, 1)
    before = {key for key in tree(local) if ".tmp-" not in key}
    assert vacuum(local).damaged == (1,)
    assert tree(local) == before


def test_what_is_not_ours_is_not_touched(local, tmp_path):
    commit(local, 1, 2)
    root = tmp_path / "t.blz"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "__1__.bin").write_text("theirs")
    (root / "data/col90").symlink_to(elsewhere)
    (root / "data/col91").write_text("a file")
    (root / "data/mine/col0").mkdir(parents=True)
    (root / "data/mine/col0/__1__.bin").write_text("mine")
    (root / "data/col92/kept").mkdir(parents=True)
    (root / "data/col92/__1__.bin").symlink_to(elsewhere / "__1__.bin")
    (root / "data/col92/__2__.bin").mkdir()
    os.mkfifo(root / "data/col92/__3__.bin")
    (root / "data/col92/notes.txt").write_text("mine")
    (root / "data/__1__.bin").write_text("mine")
    (root / "meta/notes").write_text("mine")
    (root / "meta/manifest/7").write_text("mine")
    before = tree(local) | {path.name for path in elsewhere.iterdir()}
    assert vacuum(local) == Vacuumed()
    assert tree(local) | {path.name for path in elsewhere.iterdir()} == before


def test_directories_deeper_than_any_column_are_not_looked_into(store):
    commit(store, 1)
    store.put_new("/".join(["data", *["col7"] * 70, "__1__.bin"]), [b"theirs"])
    before = tree(store)
    assert vacuum(store) == Vacuumed()
    assert tree(store) == before


@given(
    named=st.lists(st.sets(st.integers(1, 6), min_size=1, max_size=3), min_size=1, max_size=4),
    strewn=st.sets(st.integers(1, 9)),
    keep=st.integers(1, 4),
)
def test_after_a_vacuum_there_is_exactly_what_the_kept_versions_name(named, strewn, keep):
    store = RamStore()
    write(store, pa.table({"n": [1]}), durability="process")
    for files in named:
        publish_naming(store, sorted(files))
    files_of = {1: {1}, **dict(enumerate(named, 2))}
    for k in strewn.union(*named):
        store.put(layout.part((0,), k), b"content")
    found = vacuum(store, keep=keep)
    kept = sorted(files_of)[-keep:]
    assert versions.numbers(store) == kept
    assert found.versions == tuple(sorted(files_of)[:-keep])
    there = {layout.part_number(name) for name in store.list_names("data/col0")}
    assert there == set().union(*(files_of[number] for number in kept))


def publish_naming(store, files):
    """Publish a version whose only column has these files; nobody reads them."""

    def draft(newest):
        count = len(files)
        records = versions.load(store, 1).records([0]).of([0], [0] * count)
        parts = records.parts.copy()
        parts["file"] = files
        written = [StagedColumn((0,), replace(records, parts=parts))]
        groups = NewGroups([1] * count, [0] * count)
        order = range(newest.group_count, newest.group_count + count)
        staged = StagedVersion.of(newest).with_head(next_file=max([1, *files]) + 1)
        return staged.with_row_groups(order, groups, written)

    with Commit(CommitPlan(store, is_durable=False)) as transaction:
        transaction.publish("named", draft)[1].close()


def test_a_place_that_is_a_link_is_refused(local, tmp_path):
    commit(local, 1)
    local.close()
    data = tmp_path / "t.blz/data"
    data.rename(tmp_path / "moved")
    data.symlink_to(tmp_path / "moved")
    before = tree(local)
    with pytest.raises(CorruptError):
        vacuum(local)
    assert tree(local) == before


def test_a_vacuum_waits_as_long_as_the_tuning_says_now(tuned):
    tuned(lock_seconds=0)
    store = RamStore()
    blz.to_blz({"a": [1]}, store)
    with blz.open(store, "a") as t, t.transaction() as tx:
        tx.append({"a": [2]})
        with blz.open(store, "a") as other, pytest.raises(blz.BusyError, match="all 0 seconds"):
            other.vacuum()
