"""A drop stopped at every storage operation: the table is whole or gone, and stays so."""

import shutil

import pytest

import blztable as blz
from blztable.engine.version import drop, versions
from blztable.format import layout
from blztable.storage.local import LocalStore
from support.crash.checks import (
    NAME,
    RETURNED,
    content,
    described,
    leaving_out,
    states,
)
from support.crash.model import FLUSHES, RecordingDisk, killed_state, write_state
from support.stores import tree

pytestmark = pytest.mark.usefixtures("own_files")

EMPTY = {layout.DATA, layout.META, layout.MANIFESTS, layout.LOCK, layout.FLIGHT, layout.BUNDLES}
NAMES = "sync_directory t.blz/meta/manifest"


def recorded(tmp_path, durability="full", left_out=None, which=None):
    """Record the drop of a table of two versions."""
    parent = tmp_path / "parent"
    parent.mkdir()
    for number in (1, 2):
        blz.to_blz(content(number), parent / NAME, durability=durability)
    leaving = leaving_out(left_out, which) if left_out else None
    disk = RecordingDisk(parent, drop=leaving)
    drop.drop(LocalStore(parent / NAME, disk=disk))
    disk.mark(RETURNED)
    return disk.log


def broken_promise(state, directory, *, returned):
    """Return the fault of the table in this state; None if every promise holds."""
    path = write_state(state, directory) / NAME
    try:
        if blz.exists(path):
            if returned:
                return "it is there"
            if not blz.read_table(path).equals(content(2)):
                return "it holds something else"
            blz.drop(path)
        blz.vacuum(path)
        left = tree(LocalStore(path)) - EMPTY - {layout.LEAVES}
        if left != {layout.manifest(3)}:
            return f"left: {left}"
        blz.to_blz(content(4), path, mode="x", durability="process")
        if versions.numbers(LocalStore(path))[-1] != 4:
            return "numbers did not go on"
        return None if blz.read_table(path).equals(content(4)) else "another table did not hold"
    except blz.BlzError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        shutil.rmtree(directory)


def broken_promises(tmp_path, log):
    for state, returned in states(log, range(len(log) + 1), all_of_it=False):
        broken = broken_promise(state, tmp_path / "state", returned=returned)
        if broken is not None:
            yield f"{state.story}: {broken}"


def test_power_lost_anywhere_in_a_drop_leaves_the_table_or_none(tmp_path):
    assert not list(broken_promises(tmp_path, recorded(tmp_path)))


@pytest.mark.parametrize("durability", ["full", "process"])
def test_a_process_killed_anywhere_in_a_drop_leaves_the_table_or_none(tmp_path, durability):
    log = recorded(tmp_path, durability)
    for stop in range(len(log) + 1):
        state, returned = killed_state(log, stop), RETURNED in log.marked(stop)
        assert broken_promise(state, tmp_path / "state", returned=returned) is None, state.story


# The first flush of names is that of the directories, the second that of the tombstone. The vacuum
# has two of its own, the first of which does for the tombstone, unless the power is lost before.
@pytest.mark.parametrize(
    ("flush", "which"),
    [(NAMES, None), ("sync_file t.blz/meta/manifest/.tmp", None)],
)
def test_leaving_out_a_flush_of_a_drop_breaks_the_promise(tmp_path, flush, which):
    log = recorded(tmp_path, left_out=flush, which=which)
    assert next(broken_promises(tmp_path, log), None) is not None


def test_a_drop_flushes_the_tombstone_and_its_name_before_anything_goes(tmp_path):
    log = recorded(tmp_path)
    done = [described(one) for one in log.operations]
    published = next(place for place, one in enumerate(log.operations) if one.kind == "link")
    gone = next(
        place
        for place, one in enumerate(log.operations)
        if one.kind == "unlink" and ".tmp-" not in one.path
    )
    flushed = [place for place, one in enumerate(log.operations) if one.kind in FLUSHES]
    assert any(done[place].startswith("sync_file") for place in flushed if place < published)
    assert NAMES in [done[place] for place in flushed if published < place < gone]
