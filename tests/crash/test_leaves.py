"""Commits that write leaves, stopped at every storage operation: the old version or the new one."""

import pyarrow as pa
import pytest

import blztable as blz
from support.crash.checks import (
    RETURNED,
    Commit,
    Held,
    broken_promise,
    broken_promises,
    broken_without,
    changing,
    described,
    recorded,
)
from support.crash.model import FLUSHES, killed_state


@pytest.fixture(autouse=True)
def small_leaves(tuned):
    """Two entries fill a leaf."""
    tuned(leaf_entries=2, leaf_few=2)


def rows(*numbers):
    return pa.table({"n": pa.array(numbers, pa.int32()), "text": [f"row {n}" for n in numbers]})


# So few rows are not merged.
GROUPS = [rows(1), rows(9), rows(4)]


def of_groups(count):
    """Make a table of some row groups, each appended by a version."""

    def before(path):
        for group in GROUPS[:count]:
            blz.to_blz(group, path, mode="a")

    return before


UPDATED = rows(1).set_column(0, "n", pa.array([0], pa.int32()))
# The row groups before, the change, and the rows that it makes.
CHANGES = {
    "append": (1, lambda t: t.append(GROUPS[1]), pa.concat_tables(GROUPS[:2])),
    "append above a leaf": (
        3,
        lambda t: t.append(GROUPS[1]),
        pa.concat_tables([*GROUPS, GROUPS[1]]),
    ),
    "update in a leaf": (
        3,
        lambda t: t.update({"n": 0}, where="n = 1"),
        pa.concat_tables([UPDATED, *GROUPS[1:]]),
    ),
    "drop_columns": (
        3,
        lambda t: t.drop_columns(["text"]),
        pa.concat_tables(GROUPS).select(["n"]),
    ),
}


def commit(name, durability="full"):
    count, change, content = CHANGES[name]
    return Commit(of_groups(count), changing(change, durability), {count + 1: Held(content)})


GROUP = ["sync_file t.blz/data/group/__n__.bin", "sync_directory t.blz/data/group"]
COLUMN = ["sync_file t.blz/data/col0/__n__.bin", "sync_directory t.blz/data/col0"]
DATA, META = "sync_directory t.blz/data", "sync_directory t.blz/meta"
LEAF, LEAVES = "sync_file t.blz/meta/leaf/n", "sync_directory t.blz/meta/leaf"
PUBLISHED = ["sync_file t.blz/meta/manifest/.tmp", "sync_directory t.blz/meta/manifest"]
EXPECTED = {
    "append": [*GROUP, LEAF, LEAVES, META, *PUBLISHED],
    # Two leaves fill one of the level above.
    "append above a leaf": [*GROUP, LEAF, LEAF, LEAVES, *PUBLISHED],
    "update in a leaf": [*COLUMN, DATA, LEAF, LEAVES, *PUBLISHED],
    "drop_columns": [LEAF, LEAVES, *PUBLISHED],
}
# The directory of a column without a file may be one that a killed writer did not flush.
NEEDED = [
    (name, flush, flushes[:position].count(flush))
    for name, flushes in EXPECTED.items()
    for position, flush in enumerate(flushes)
    if flush != DATA
]


@pytest.mark.parametrize("name", CHANGES)
def test_a_commit_of_leaves_makes_these_flushes(tmp_path, name):
    log = recorded(tmp_path, commit(name)).log
    done = [described(one) for one in log.operations if one.kind in FLUSHES]
    assert sorted(done) == sorted(EXPECTED[name])
    # Leaves are flushed before the manifest that names them.
    assert done[-2:] == PUBLISHED


@pytest.mark.parametrize(("name", "flush", "which"), NEEDED)
def test_leaving_out_any_one_of_its_flushes_breaks_the_promise(tmp_path, name, flush, which):
    assert broken_without(tmp_path, commit(name), flush, which) is not None


@pytest.mark.parametrize("name", CHANGES)
def test_power_lost_anywhere_in_it_leaves_the_old_version_or_the_new_one(tmp_path, name):
    recording = recorded(tmp_path, commit(name))
    assert not list(broken_promises(tmp_path, recording, all_of_it=False))


@pytest.mark.parametrize("name", CHANGES)
def test_a_process_killed_anywhere_in_it_leaves_the_old_version_or_the_new_one(tmp_path, name):
    recording = recorded(tmp_path, commit(name, "process"))
    assert [one for one in recording.log.operations if one.kind in FLUSHES] == []
    for stop in range(len(recording.log) + 1):
        state = killed_state(recording.log, stop)
        returned = RETURNED in recording.log.marked(stop)
        broken = broken_promise(state, tmp_path / "state", recording, returned=returned)
        assert broken is None, state.story
