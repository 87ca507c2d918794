"""A table whose writers rely on no lock, stopped at every storage operation: it stays whole."""

import shutil

import pyarrow as pa
import pytest

import blztable as blz
from blztable.engine.version import vacuum
from blztable.format import layout
from blztable.format.version_file import REMOVED
from blztable.storage.local import LocalStore
from support.crash.checks import (
    NAME,
    RETURNED,
    Commit,
    Held,
    broken_promises,
    changing,
    content,
    nothing,
    recorded,
    states,
)
from support.crash.model import RecordingDisk, write_state

pytestmark = pytest.mark.usefixtures("own_files")

NONE = blz.Storage(locks="none")


def two_versions(path):
    """Make two versions of such a table."""
    for number in (1, 2):
        blz.to_blz(content(number), path, storage=NONE)


COMMITS = {
    "creation": Commit(
        nothing,
        lambda store: blz.to_blz(content(1), store, storage=NONE),
        {1: Held(content(1))},
    ),
    "append": Commit(
        two_versions,
        changing(lambda table: table.append(content(5))),
        {3: Held(pa.concat_tables([content(2), content(5)]))},
    ),
    "replacement": Commit(
        two_versions,
        lambda store: blz.to_blz(content(3), store, durability="process"),
        {3: Held(content(3))},
    ),
}


@pytest.mark.parametrize("name", COMMITS)
def test_power_lost_anywhere_in_a_commit_leaves_the_old_version_or_the_new_one(tmp_path, name):
    recording = recorded(tmp_path, COMMITS[name])
    assert not list(broken_promises(tmp_path, recording, all_of_it=False))


def test_power_lost_anywhere_in_a_vacuum_leaves_the_newest_version_and_all_numbers(tmp_path):
    path = tmp_path / "parent" / NAME
    path.parent.mkdir()
    two_versions(path)
    disk = RecordingDisk(path.parent)
    assert vacuum.vacuum(LocalStore(path, disk=disk), keep=1).versions == (1,)
    disk.mark(RETURNED)
    for state, returned in states(disk.log, range(len(disk.log) + 1)):
        there = write_state(state, tmp_path / "state") / NAME
        is_there = LocalStore(there).get(layout.manifest(1)) != REMOVED
        assert not (is_there and returned), state.story
        if is_there:
            assert blz.read_table(there, version=1).equals(content(1)), state.story
        assert not blz.vacuum(there, keep=1).damaged, state.story
        assert blz.read_table(there).equals(content(2)), state.story
        store = LocalStore(there)
        assert store.get(layout.manifest(1)) == REMOVED, state.story
        shutil.rmtree(tmp_path / "state")
