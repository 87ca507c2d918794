"""Every change of a table, stopped at every storage operation: the old version or the new one.

Creation, replacement and attributes are in `test_create_and_replace`; changes that remove versions
and files are in `test_vacuum`. `crash.checks` checks each state of the disk.
"""

import shutil

import pyarrow as pa
import pytest

import blztable as blz
from blztable.engine.version import versions
from blztable.storage.local import LocalStore
from support.crash.changes import (
    BOTH,
    CHANGES,
    FIRST,
    MORE,
    SECOND,
    one_damaged,
    two_row_groups,
)
from support.crash.checks import (
    NAME,
    RETURNED,
    Commit,
    Held,
    broken_promise,
    broken_promises,
    broken_without,
    changing,
    described,
    leaving_out,
    nothing,
    recorded,
    states,
    store_on,
    where_it_shows,
)
from support.crash.model import FLUSHES, RecordingDisk, killed_state, write_state

pytestmark = pytest.mark.usefixtures("own_files")


def commit(name, durability="full"):
    change, makes = CHANGES[name]
    return Commit(two_row_groups, changing(change, durability), makes)


@pytest.mark.parametrize("name", CHANGES)
def test_power_lost_anywhere_in_a_change_leaves_the_old_version_or_the_new_one(tmp_path, name):
    recording = recorded(tmp_path, commit(name))
    assert recording.before.keys() == {1, 2}
    assert not list(broken_promises(tmp_path, recording, all_of_it=False))


@pytest.mark.parametrize("name", CHANGES)
def test_a_process_killed_anywhere_in_a_change_leaves_the_old_version_or_the_new_one(
    tmp_path, name
):
    recording = recorded(tmp_path, commit(name, "process"))
    assert [one for one in recording.log.operations if one.kind in FLUSHES] == []
    for stop in range(len(recording.log) + 1):
        state = killed_state(recording.log, stop)
        returned = RETURNED in recording.log.marked(stop)
        broken = broken_promise(state, tmp_path / "state", recording, returned=returned)
        assert broken is None, state.story


@pytest.mark.parametrize("durability", ["full", "process"])
def test_a_repair_that_stops_anywhere_leaves_the_damaged_version_or_the_whole_one(
    tmp_path, durability
):
    path = tmp_path / "parent" / NAME
    path.parent.mkdir()
    one_damaged(path)
    disk = RecordingDisk(path.parent)
    changing(lambda t: t.repair(), durability)(store_on(path, disk))
    disk.mark(RETURNED)
    log, stops = disk.log, range(len(disk.log) + 1)
    if durability == "full":
        found = states(log, stops, all_of_it=False)
    else:
        found = ((killed_state(log, stop), RETURNED in log.marked(stop)) for stop in stops)
    seen = set()
    for state, returned in found:
        there = write_state(state, tmp_path / "state") / NAME
        numbers = versions.numbers(LocalStore(there))
        assert numbers[:2] == [1, 2], state.story
        assert blz.read_table(there, version=1).equals(FIRST), state.story
        with blz.open(there, "a") as t:
            assert t.version == numbers[-1], state.story
            assert t.version == 3 or not returned, state.story
            if t.version == 2:
                t.repair()
            assert t.to_arrow().equals(FIRST), state.story
            assert t.verify().is_intact, state.story
            t.append(MORE)
            assert len(t) == 3, state.story
        seen.add(len(numbers))
        shutil.rmtree(tmp_path / "state")
    assert seen == {2, 3}


def wrong_after_haste(state, directory, recording):
    """Return the fault after power was lost on an unflushed commit; reported damage is none."""
    path = write_state(state, directory) / NAME
    expected = {**recording.before, **recording.commit.makes}
    try:
        for number in versions.numbers(LocalStore(path)):
            try:
                with blz.open(path, version=number) as table:
                    if table.to_arrow() != expected[number].table:
                        return f"version {number} holds something else"
            except blz.CorruptError:
                if number in recording.before:
                    raise
        with blz.open(path, mode="a", version=2) as table:
            table.restore(2)
        if not blz.read_table(path).equals(BOTH):
            return "the version before it did not come back"
        return None
    except blz.BlzError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        shutil.rmtree(directory)


@pytest.mark.parametrize("name", CHANGES)
def test_power_lost_on_a_change_that_was_not_flushed_is_told_and_the_version_before_is_whole(
    tmp_path, name
):
    recording = recorded(tmp_path, commit(name, "process"))
    # Nothing is flushed, so at the end everything may be lost that may be lost before.
    stops = where_it_shows(recording.log)
    for state, _ in states(recording.log, stops, all_of_it=False):
        assert wrong_after_haste(state, tmp_path / "state", recording) is None, state.story


# The files that each change writes, commit by commit.
BOTH_COLUMNS = [["col0/__n__.bin", "col1/__n__.bin"]]
FILES = dict.fromkeys(CHANGES, BOTH_COLUMNS) | {
    "append and merge": [*BOTH_COLUMNS, ["col0/__n__.bin", "col1/__n__.bin"]],
    "append that evolves": [["col0/__n__.bin"] * 3 + ["col1/__n__.bin"] + ["col2/__n__.bin"] * 3],
    "update": [["col0/__n__.bin"]],
    "delete by name": [[]],
    "changes of deleted rows": [["col1/__n__.bin", "col2/__n__.bin", "col2/__n__.bin"]],
    "compact deleted rows": BOTH_COLUMNS,
    "upsert": [["col0/__n__.bin", "col1/__n__.bin", "col1/__n__.bin"]],
    "upsert that moves rows": BOTH_COLUMNS,
    "replace_where": [["col0/__n__.bin", "col1/__n__.bin"] * 2],
    "deduplicate": [["col0/__n__.bin", "col0/__n__.bin", "col1/__n__.bin"]],
    "add_column": [["col2/__n__.bin", "col2/__n__.bin"]],
    "transaction": [["col0/__n__.bin", "col0/__n__.bin", "col1/__n__.bin", "col1/__n__.bin"]],
    "alter_column": [["col0/__n__.bin", "col0/__n__.bin"]],
    "alter_column in place": [[]],
    "drop_columns": [[]],
    "rename_columns": [[]],
    "reorder_columns": [[]],
    "restore": [[]],
    "tag": [[]],
    "settings": [[]],
    "retention": [[]],
    "metalayers": [[]],
}
DATA = "sync_directory t.blz/data"
MANIFEST, NAMES = "sync_file t.blz/meta/manifest/.tmp", "sync_directory t.blz/meta/manifest"


def flushes(files):
    """Return the flushes of a commit of these files: content, then names from the bottom up.

    The version before is durable, and has files in the directories of columns 0 and 1.
    """
    columns = sorted({file.partition("/")[0] for file in files}, reverse=True)
    directories = [f"{DATA}/{column}" for column in columns]
    above = [DATA] if "col2" in columns else []
    content = [f"sync_file t.blz/data/{file}" for file in files]
    return [*content, *directories, *above, MANIFEST, NAMES]


EXPECTED = {name: [one for files in FILES[name] for one in flushes(files)] for name in CHANGES}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_makes_these_flushes(tmp_path, name):
    log = recorded(tmp_path, commit(name)).log
    done = [described(one) for one in log.operations if one.kind in FLUSHES]
    # Threads write the files of a column, and record each when it is done.
    phases = [one if "/col" not in one else "" for one in done]
    assert phases == [one if "/col" not in one else "" for one in EXPECTED[name]]
    assert sorted(done) == sorted(EXPECTED[name])


FLUSHES_OF = [
    (name, flush, flushes[:position].count(flush))
    for name, flushes in EXPECTED.items()
    for position, flush in enumerate(flushes)
]


@pytest.mark.parametrize(("name", "flush", "which"), FLUSHES_OF)
def test_leaving_out_any_one_flush_of_a_change_breaks_the_promise(tmp_path, name, flush, which):
    assert broken_without(tmp_path, commit(name), flush, which) is not None


def append_to_a_hasty_one(store):
    blz.to_blz(FIRST, store, durability="process")
    changing(lambda table: table.append(SECOND))(store)


def append_beside_a_hasty_one(store):
    with blz.open(store, mode="a") as table:
        changing(lambda other: other.append(SECOND), "process")(store)
        table.append(MORE)


def restore_a_hasty_one(store):
    blz.to_blz(SECOND, store, durability="process")
    blz.to_blz(MORE, store)
    changing(lambda table: table.restore(2))(store)


def numbered(*tables, first=1):
    return {number: Held(table) for number, table in enumerate(tables, first)}


ON_HASTY_ONES = {
    "append": (
        Commit(nothing, append_to_a_hasty_one, numbered(FIRST, BOTH)),
        ["col0/__n__.bin", "col1/__n__.bin"],
    ),
    "append beside one": (
        Commit(
            lambda path: blz.to_blz(FIRST, path),
            append_beside_a_hasty_one,
            numbered(BOTH, pa.concat_tables([BOTH, MORE]), first=2),
        ),
        ["col0/__n__.bin", "col1/__n__.bin"],
    ),
    "restore": (
        Commit(
            lambda path: blz.to_blz(FIRST, path),
            restore_a_hasty_one,
            numbered(SECOND, MORE, SECOND, first=2),
            # The second replacement keeps only the version before it.
            going=frozenset({1}),
        ),
        ["col2/__n__.bin", "col3/__n__.bin"],
    ),
}


@pytest.mark.parametrize("name", ON_HASTY_ONES)
def test_what_builds_on_a_commit_that_was_not_flushed_flushes_it(tmp_path, name):
    commit, files = ON_HASTY_ONES[name]
    recording = recorded(tmp_path, commit)
    assert not list(broken_promises(tmp_path, recording, [len(recording.log)]))
    for left_out in [f"sync_file t.blz/data/{file}" for file in files]:
        directory = tmp_path / left_out.replace("/", "-")
        directory.mkdir()
        recording = recorded(directory, commit, drop=leaving_out(left_out, None))
        assert list(broken_promises(directory, recording, [len(recording.log)])), left_out
