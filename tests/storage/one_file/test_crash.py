"""A table in one file, stopped at every storage operation: the old version or the new one.

The commits, and the checks of each state of the disk, are those of a table in a directory.
"""

import shutil

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.storage.one_file import store as one_file
from support.crash.changes import CHANGES, two_row_groups
from support.crash.checks import (
    NAME,
    RETURNED,
    Commit,
    Held,
    broken_promise,
    broken_promises,
    broken_without,
    changing,
    content,
    described,
    held_versions,
    nothing,
    recorded,
    replaced,
)
from support.crash.model import FLUSHES, killed_state
from support.options import arguments

# Whoever opens a file that ends with no commit is warned.
pytestmark = pytest.mark.filterwarnings("ignore:.*never finished, or damaged")

SYNC = f"sync_file {NAME}"


@pytest.fixture(autouse=True)
def one_file_layout(tuned):
    tuned(layout="file")


def commit(name, durability="full"):
    change, makes = CHANGES[name]
    return Commit(two_row_groups, changing(change, durability), makes)


def writing(number, **options):
    return lambda store: blz.to_blz(content(number), store, **arguments(**options))


# With mode="x", zeros that a loss of power leaves are not replaced: anyone may have written them.
CREATION = Commit(nothing, writing(1), {1: Held(content(1))})
# A replacement keeps the version before it.
REPLACEMENT = Commit(replaced(2), writing(3), {3: Held(content(3))}, frozenset({1}))
RETIREMENT = Commit(replaced(10), writing(11), {11: Held(content(11))}, frozenset({9}))


@pytest.mark.parametrize("name", CHANGES)
def test_power_lost_anywhere_in_a_change_leaves_the_old_version_or_the_new_one(tmp_path, name):
    recording = recorded(tmp_path, commit(name))
    assert recording.before.keys() == {1, 2}
    assert not list(broken_promises(tmp_path, recording))


@pytest.mark.parametrize("made", [CREATION, REPLACEMENT, RETIREMENT])
def test_power_lost_anywhere_in_a_creation_or_a_replacement_leaves_old_or_new(tmp_path, made):
    assert not list(broken_promises(tmp_path, recorded(tmp_path, made)))


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


def rewriting(store):
    """Delete rows, and remove the old versions with their bytes."""
    with blz.open(store, mode="a") as table:
        table.delete(pc.field("n") == 3)
        table.vacuum(keep=1)


REWRITE = Commit(
    replaced(3),
    rewriting,
    {4: Held(content(3).slice(1))},
    frozenset({2, 3}),
)


def test_power_lost_anywhere_in_a_rewrite_of_the_file_leaves_every_version_that_must_stay(tmp_path):
    recording = recorded(tmp_path, REWRITE)
    kinds = [one.kind for one in recording.log.operations]
    assert "rename" in kinds
    assert not list(broken_promises(tmp_path, recording))


def rewriting_and_appending(store):
    """Rewrite the file, and append rows to the new one."""
    rewriting(store)
    blz.to_blz(content(5), store, mode="a")


# Without the flush of its name the file before the rewrite may come back, and the rows are gone.
def test_power_lost_behind_a_rewrite_leaves_what_was_committed_since_then(tmp_path):
    left = content(3).slice(1)
    both = pa.concat_tables([left, content(5)])
    made = Commit(
        replaced(3),
        rewriting_and_appending,
        {4: Held(left), 5: Held(both)},
        frozenset({2, 3}),
    )
    assert not list(broken_promises(tmp_path, recorded(tmp_path, made)))


def flushes(tmp_path, made):
    """Return the flushes of a commit, each with its number among the same ones."""
    (tmp_path / "seen").mkdir()
    log = recorded(tmp_path / "seen", made).log
    found = [described(one) for one in log.operations if one.kind in FLUSHES]
    return [(one, found[:at].count(one)) for at, one in enumerate(found)]


@pytest.mark.parametrize("made", [CREATION, commit("append")], ids=["creation", "append"])
def test_a_commit_without_its_flushes_breaks_the_promise(tmp_path, made):
    for number, flush in enumerate(sorted({one for one, _ in flushes(tmp_path, made)})):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert broken_without(folder, made, flush, None), flush


def test_a_durable_append_takes_two_flushes(tmp_path):
    assert [one for one, _ in flushes(tmp_path, commit("append"))] == [SYNC, SYNC]


def test_the_bytes_of_a_killed_writer_are_cut_off_by_the_next_one(tmp_path):
    path = tmp_path / NAME
    two_row_groups(path)
    whole = path.read_bytes()
    shutil.copy(path, tmp_path / "copy")
    with path.open("ab") as file:
        file.write(b"blzr" + bytes(5000))
    assert held_versions(path).keys() == {1, 2}
    assert path.stat().st_size == len(whole) + 5004
    with blz.open(path, "a") as table:
        table.attrs["a"] = 1
    store = one_file.at(path)
    end = store.open("meta/manifest/00000000000000000003").size
    assert path.stat().st_size < len(whole) + 2 * end + 2000
