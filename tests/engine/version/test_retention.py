"""Retention: the kept versions stay, the others are removed with exactly their files."""

import random
from dataclasses import replace
from datetime import datetime, timedelta

import pyarrow as pa
import pytest

import blztable as blz
from blztable import tuning
from blztable.engine.change import rows
from blztable.engine.version import retention, versions
from blztable.engine.version.commit import Commit, CommitPlan
from blztable.engine.version.staged import StagedVersion
from blztable.engine.version.vacuum import vacuum
from blztable.format import layout
from blztable.storage.local import LocalStore
from blztable.storage.memory import RamStore
from support.stores import (
    CountedLocks,
    Hooked,
    changing,
    files_named,
    once,
    read,
    set_attributes,
    set_properties,
    tree,
    with_files,
    without_files,
    write,
)

pytestmark = pytest.mark.usefixtures("own_files", "ten_copies")


@pytest.fixture(params=["local", "memory"])
def store(request, tmp_path):
    store = LocalStore(tmp_path / "t.blz") if request.param == "local" else RamStore()
    yield store
    store.close()


def content(number):
    return pa.table({"n": [number], "text": [f"v{number}"]})


def commit(store, number):
    assert write(store, content(number), durability="process") == number


def touch(store, **changes):
    """Commit a version with the same files."""
    base, pinned = versions.pin(store)
    with pinned:
        _, new = set_attributes(store, base, changes, (), is_durable=False)
    new.close()


def assert_whole(store):
    """Check that every version can be read, and every file belongs to a version."""
    named = set()
    for number in versions.numbers(store):
        version, pinned = versions.pin(store, number)
        with pinned:
            read(version)
            named |= files_named(version)
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
    # A commit pins its base version, so the base outlives the commit.
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


def test_files_stay_where_a_kept_version_names_them_in_other_records(store):
    commit(store, 1)
    files = {key for key in tree(store) if key.endswith(".bin")}

    for _ in range(11):
        respell(store)
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


def damage_records(store, number):
    """Damage the records of the last column; the head stays intact."""
    data = store.get(layout.manifest(number))
    end = len(data.rstrip(b"\0"))
    store.put(layout.manifest(number), data[: end - 1] + b"\0" + data[end:])


def test_a_version_with_damaged_records_goes_in_its_turn_and_leaves_its_files(store):
    for number in range(1, 4):
        commit(store, number)
    damage_records(store, 1)
    for number in range(4, 13):
        commit(store, number)
    assert versions.numbers(store) == list(range(3, 13))
    assert "data/col1/__2__.bin" in tree(store)
    assert not [key for key in tree(store) if key.startswith("data/col2/")]


@pytest.mark.parametrize("damaged", [2, 7])
def test_while_a_kept_version_is_damaged_only_one_goes_that_leaves_all_its_files(store, damaged):
    commit(store, 1)
    for number in range(2, 10):
        touch(store, turn=number)
    update_text(store, 10)
    damage_records(store, damaged)
    files = {key for key in tree(store) if key.endswith(".bin")}
    touch(store, turn=11)
    assert versions.numbers(store) == list(range(2, 12))
    assert {key for key in tree(store) if key.endswith(".bin")} == files


def published(store, operation, rebase):
    """Commit what a function makes of the newest version."""
    with Commit(CommitPlan(store, is_durable=False)) as transaction:
        version, pinned = transaction.publish(operation, lambda newest: rebase(transaction, newest))
    pinned.close()
    return version


def update_text(store, number):
    """Commit a version that replaces a file of the last column only; return its number."""

    def rebase(transaction, newest):
        line = len(newest.paths) - 1
        k = transaction.files.numbers.next()
        store.put_new(layout.part(newest.paths[line], k), [b"rewritten"])
        return with_files(StagedVersion.of(newest), line, k)

    version = published(store, "update", rebase)
    assert version.head.version == number
    return int(version.parts(len(version.paths) - 1).files[0])


def restore(store, earlier):
    """Commit a version with the files of an earlier version."""

    def rebase(transaction, newest):
        return StagedVersion.of(versions.load(store, earlier)).with_head(
            version=newest.head.version
        )

    published(store, "restore", rebase)


def test_files_that_the_next_version_does_not_name_stay_for_one_that_does_again(store):
    commit(store, 1)
    first = int(versions.read(store, 1).parts(1).files[0])
    second = update_text(store, 2)
    restore(store, 1)
    fourth = update_text(store, 4)
    first, second, fourth = (layout.part((1,), k) for k in (first, second, fourth))
    for number in range(5, 13):
        touch(store, turn=number)
    # Version 3 is the last to name the first version's file; version 2 alone named its own file.
    assert versions.numbers(store)[0] == 3
    assert {first, fourth} <= tree(store)
    assert second not in tree(store)
    touch(store, turn=13)
    assert first not in tree(store)
    assert fourth in tree(store)


def test_the_directory_of_a_kept_column_stays_without_a_file_in_it(store):
    commit(store, 1)

    def emptied(transaction, newest):
        return without_files(without_files(StagedVersion.of(newest), 0), 1)

    published(store, "emptied", emptied)
    set_properties(store, keep_versions=1)
    set_properties(store, keep_versions=1)
    assert versions.numbers(store) == [3, 4]
    # A writer may be about to put a file there.
    assert {key for key in tree(store) if key.startswith("data/")} == {"data/col0", "data/col1"}


def respell(store):
    """Commit a version with the same files in other entries, as an append does."""

    def again(transaction, newest):
        staged = StagedVersion.of(newest)
        return with_files(staged, 0, staged.parts(0).files)

    published(store, "respelled", again)


@pytest.mark.parametrize(("again", "reads"), [(touch, [2, 1]), (respell, [2, 1])])
def test_a_version_that_leaves_all_its_files_costs_no_flush_and_two_versions_read(
    store, again, reads
):
    commit(store, 1)
    first = store.get(layout.manifest(1))
    for _ in range(10):
        again(store)
    newest, pinned = versions.pin(store)
    pinned.close()
    store.put(layout.manifest(1), first)
    calls = []
    hooked = Hooked(store, after=lambda name, args: calls.append((name, args)))
    retention.retire(replace(newest, store=hooked), is_durable=True)
    assert versions.numbers(store) == list(range(2, 12))
    assert [args[0] for name, args in calls if name == "get"] == list(map(layout.manifest, reads))
    assert not [name for name, _ in calls if name.startswith("flush")]


def test_versions_that_go_together_take_the_files_of_all_of_them(store):
    commit(store, 1)
    last = [update_text(store, number) for number in range(2, 5)][-1]
    newest, pinned = versions.pin(store)
    pinned.close()
    head = replace(newest.head, properties={"keep_versions": 1})
    retention.retire(replace(newest, head=head), is_durable=False)
    assert versions.numbers(store) == [4]
    files = {key for key in tree(store) if key.endswith(".bin")}
    assert files == {"data/col0/__1__.bin", layout.part((1,), last)}


def test_versions_of_unknown_times_are_not_taken_for_old_ones(store):
    for number in range(1, 4):
        commit(store, number)
    store.put(layout.manifest(3), b"damaged")
    commit(store, 4)
    newest = versions.load(store, 4)
    assert [number for _, number in newest.head.history] == [1, 2]
    assert retention.expired_versions(newest.head, [1, 2, 3, 4], retention.RetentionLimits()) == []


def test_a_version_that_others_keep_from_going_does_not_keep_the_rest(store):
    for number in range(1, 10):
        commit(store, number)
    _, pinned = versions.pin(store, 1)
    with pinned:
        set_properties(store, keep_versions=2)
        assert versions.numbers(store) == [1, 9, 10]
        assert_whole(store)


def test_versions_that_go_are_locked_one_at_a_time(store):
    for number in range(1, 6):
        commit(store, number)
    newest, pinned = versions.pin(store)
    pinned.close()
    counting = CountedLocks(store)
    head = replace(newest.head, properties={"keep_versions": 1})
    retention.retire(replace(newest, head=head, store=counting), is_durable=True)
    assert versions.numbers(store) == [5]
    assert counting.most == 1
    assert_whole(store)


@pytest.mark.parametrize("late", [1, 2, 3])
def test_a_version_pinned_while_others_are_looked_at_stays_with_its_files(store, late):
    commit(store, 1)
    for number in range(2, 5):
        update_text(store, number)
    late_files = files_named(versions.read(store, late))
    newest, pinned = versions.pin(store)
    pinned.close()
    head = replace(newest.head, properties={"keep_versions": 1})
    pins = []
    # By then all three were found to be unpinned.
    come = once("get", lambda: pins.append(versions.pin(store, late)), layout.manifest(1))
    hooked = Hooked(store, before=come)
    retention.retire(replace(newest, head=head, store=hooked), is_durable=True)
    assert versions.numbers(store) == [late, 4]
    [(_, pinned)] = pins
    pinned.close()
    files = {key for key in tree(store) if key.endswith(".bin")}
    assert files == late_files | files_named(newest)
    assert len(files) == 3


class Later(datetime):
    """A clock two hours ahead."""

    @classmethod
    def now(cls, tz=None):
        return datetime.now(tz) + timedelta(hours=2)


def test_the_last_version_that_was_flushed_stays_where_its_time_comes_during_a_commit(
    store, monkeypatch
):
    write(store, content(1))
    write(store, content(2))
    commit(store, 3)
    late = once("publish", lambda: monkeypatch.setattr(retention, "datetime", Later))
    commit(Hooked(store, before=late), 4)
    # The later commit pins the earlier one, its base.
    assert versions.numbers(store) == [2, 3, 4]
    assert not versions.load(store, 4).head.durable
    commit(store, 5)
    assert versions.load(store, 5).head.durable
    assert versions.numbers(store) == [4, 5]


def append(store, number):
    """Commit an append; return the new version."""
    base, pinned = versions.pin(store)
    with pinned, changing(base) as work:
        rows.append(work, [(base.schema, None, [(content(number), 1)])])
        version, lock = work.publish()
    lock.close()
    return version.head.version


def test_a_quick_run_of_appends_removes_its_expired_versions_together(store):
    commit(store, 1)
    set_properties(store, keep_versions=3)
    append(store, 3)
    kept = []
    for number in range(4, 24):
        append(store, number)
        kept.append(len(versions.numbers(store)))
        assert_whole(store)
    until_full = [*range(4, 3 + tuning.current.run_versions)]
    assert kept == ([*until_full, 3] * 3)[:20]
    touch(store, turn=1)
    assert versions.numbers(store) == [22, 23, 24]
    assert_whole(store)


def test_a_vacuum_removes_what_a_run_of_appends_has_left(store):
    commit(store, 1)
    set_properties(store, keep_versions=1)
    for number in range(4):
        newest = append(store, number)
    assert len(versions.numbers(store)) > 2
    vacuum(store)
    assert versions.numbers(store) == [newest]
    assert_whole(store)


def test_an_append_after_another_change_removes_expired_versions_at_once(store):
    commit(store, 1)
    set_properties(store, keep_versions=1)
    for number in range(3, 13, 2):
        commit(store, number)
        append(store, number)
        assert versions.numbers(store) == [number, number + 1]
        assert_whole(store)


def test_a_slow_run_of_appends_removes_expired_versions_at_once(store, tuned):
    commit(store, 1)
    set_properties(store, keep_versions=3)
    tuned(run_seconds=0)
    for number in range(3, 9):
        append(store, number)
        assert versions.numbers(store) == [number - 2, number - 1, number]
    assert_whole(store)


@pytest.mark.usefixtures("bundled")
class TestOfBundles:
    """Columns whose parts all lie in bundles have directories without files."""

    def directories(self, store):
        return {key for key in tree(store) if key.startswith("data/col")}

    def test_a_table_that_is_written_again_and_again_keeps_no_directories_of_columns(self, store):
        for number in range(1, 31):
            commit(store, number)
        kept = [path for number in versions.numbers(store) for path in self.paths(store, number)]
        assert self.directories(store) <= set(kept)
        assert len(self.directories(store)) <= 2 * tuning.current.keep_versions

    def test_a_column_that_was_dropped_leaves_no_directory(self, store):
        write(store, pa.table({"n": [1], "a": [1]}), durability="process")
        with blz.open(store, "a", durability="process") as table:
            table.add_column("b", [1])
            table.add_column("c", [1])
            before = self.directories(store)
            table.drop_columns(["b"])
        for number in range(12):
            touch(store, number=number)
        gone = before - self.directories(store)
        assert len(gone) == 2
        assert {key.partition("/__")[0] for key in gone} == {"data/col2"}

    @pytest.mark.parametrize("has_files", [False, True])
    def test_no_writer_takes_the_ids_of_kept_columns_whose_neighbours_went(
        self, store, has_files, tuned
    ):
        """A writer that gives up removes the directories of the ids that it took."""
        columns = {f"c{n}": [1, 2, 3] for n in range(8)}
        if has_files:
            tuned(bundled_column_bytes=1 << 10)
            columns |= {"c0": ["x" * 999] * 3, "c7": ["y" * 999] * 3}
        write(store, pa.table(columns))
        with blz.open(store, "a") as table:
            table.configure(keep_versions=1, keep_seconds=0)
        stale = blz.open(store, "a")
        change = stale.transaction()
        change.__enter__()
        write(store, pa.table(columns))
        with blz.open(store, "a") as table:
            table.configure(keep_versions=1, keep_seconds=0)
            table.drop_columns(["c0", "c7"])
            table.append({f"c{n}": [4] for n in range(1, 7)})
        for name in "xyz":
            change.add_column(name, [7, 8, 9])
        tuned(bundled_bytes=0)
        with blz.open(store, "a") as table:
            table.append({f"c{n}": range(100) for n in range(1, 7)})
        with pytest.raises(blz.ConflictError):
            change.__exit__(None, None, None)
        stale.close()
        with blz.open(store) as table:
            assert table.verify().is_intact
            assert len(table) == 104

    def paths(self, store, number):
        version, pinned = versions.pin(store, number)
        with pinned:
            return {layout.column(path) for path in version.paths}


def manifests_read(place, change):
    """Return how many manifests a change reads, by a handle that knows none yet."""
    keys = set()

    def before(name, arguments):
        if name in ("get", "open") and arguments[0].startswith(f"{layout.MANIFESTS}/"):
            keys.add(arguments[0])

    with blz.open(Hooked(place, before=before), "a", durability="process") as table:
        keys.clear()
        change(table)
    return len(keys)


def tagged_updates(place, count, start):
    with blz.open(place, "a", durability="process") as table:
        for number in range(start, start + count):
            table.update({"x": number})
            table.tags[f"tag {number}"] = table.version


# The tag comes first: it leaves a version that another tag keeps.
COMMITS = {
    "tag": lambda table: table.tags.update(newest=table.version),
    "update": lambda table: table.update({"x": -1}),
    "append": lambda table: table.append({"n": [1], "x": [1]}),
}


@pytest.mark.parametrize("limit", [{}, {"keep_bytes": 10**6}, {"keep_versions": 3}], ids=str)
def test_a_commit_reads_few_manifests_however_many_versions_have_tags(limit):
    place = RamStore()
    blz.to_blz({"n": [1, 2], "x": [0, 0]}, place)
    with blz.open(place, "a") as table:
        if limit:
            table.configure(**limit)
    for tags in (30, 60):
        tagged_updates(place, tags, start=tags)
        for name, change in COMMITS.items():
            for _ in range(3):
                # Two for each version that is kept without a tag.
                most = 2 * tuning.current.keep_versions + 5
                assert manifests_read(place, change) <= most, (name, tags)


def test_a_file_that_only_a_tagged_version_names_stays_through_restores_and_drops():
    place = RamStore()
    blz.to_blz({"n": [1, 2], "x": [0, 0]}, place)
    rng = random.Random(5)
    with blz.open(place, "a", durability="process") as table:
        table.configure(keep_versions=2)
        expected = {}
        for number in range(120):
            match rng.randrange(6):
                case 0 | 1:
                    table.update({"x": number})
                case 2 if expected:
                    table.restore(rng.choice([*expected]))
                case 3:
                    table.append({name: [number] for name in table.columns})
                case 4 if "more" in table.columns:
                    table.drop_columns(["more"])
                case 4:
                    table.add_column("more", number)
                case _:
                    tag = f"tag {number}"
                    expected[tag] = table.to_arrow()
                    table.tags[tag] = table.version
                    if len(expected) > 8:
                        gone = rng.choice([*expected])
                        del table.tags[gone], expected[gone]
            for tag, content in expected.items():
                assert blz.read_table(place, version=tag).equals(content), (number, tag)
        named = {
            key for one in versions.numbers(place) for key in files_named(versions.read(place, one))
        }
        stored = {key for key in tree(place) if key.startswith("data/") and key.endswith(".bin")}
        assert stored == named
