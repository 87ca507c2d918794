"""A vacuum or a retired version, stopped at every storage operation: kept versions stay whole.

The model is the one of `crash.checks`: each call is recorded, and every state that the disk may
hold after a loss of power is opened. Every version in it holds its data, no version that must stay
is missing, and a second vacuum finishes the work of the first.
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import blztable as blz
from blztable.engine.version import versions
from blztable.engine.version.vacuum import vacuum
from blztable.storage.local import LocalStore
from support.crash.checks import (
    NAME,
    RETURNED,
    changing,
    content,
    debris_of,
    described,
    leaving_out,
    set_attribute,
    states,
)
from support.crash.model import FLUSHES, Log, RecordingDisk, State, write_state
from support.stores import put_head

pytestmark = pytest.mark.usefixtures("own_files", "ten_copies")

LATER = content(99)
NAMES = "sync_directory t.blz/meta/manifest"


@dataclass(frozen=True)
class Clearing:
    """A call that removes versions or orphans, and the versions that must outlive it."""

    before: Callable[[Path], None]
    run: Callable[[LocalStore], None]
    # The content of each version that may exist, and the versions that must exist at any time.
    holds: dict[int, int]
    kept: frozenset[int]
    # The versions that must exist once the call has returned.
    makes: frozenset[int] = frozenset()
    # The index of the flush of names between manifests and files. In a vacuum the first such flush
    # is for the version that stays.
    flush: int = 1


def three_versions(path: Path) -> None:
    for number in (1, 2, 3):
        blz.to_blz(content(number), path)


def debris(path: Path) -> None:
    """Make two versions, and the files that a killed writer left."""
    blz.to_blz(content(1), path)
    blz.to_blz(content(2), path)
    store = LocalStore(path)
    store.put_new("data/col0/__2__.bin", [b"an orphan"])
    store.put_new("data/col70/__1__.bin", [b"another"])
    store.put_new("meta/manifest/.tmp-0", [b"half"])
    store.reserve("data/col71")


def shared_files(path: Path) -> None:
    """Make a version, two versions that share its files, and another one."""
    blz.to_blz(content(1), path)
    changing(set_attribute)(LocalStore(path))
    with blz.open(path, mode="a") as table:
        table.attrs["checked"] = 2
    blz.to_blz(content(4), path)


def keeping_one(path: Path) -> None:
    """Make two versions of the same files, in a table that keeps the newest version only."""
    blz.to_blz(content(1), path)
    changing(set_attribute)(LocalStore(path))
    put_head(LocalStore(path), 2, properties={"keep_versions": 1})


def superseding(store: LocalStore) -> None:
    """Make three commits that each retire the version before their base; the last removes files."""
    with blz.open(store, mode="a") as table:
        table.attrs["checked"] = 2
    blz.to_blz(content(4), store)
    blz.to_blz(content(5), store)


def keep_one(store: LocalStore) -> None:
    vacuum(store, keep=1)


def hastily_then_vacuum(store: LocalStore) -> None:
    blz.to_blz(content(2), store, durability="process")
    vacuum(store, keep=1)


ORPHANS = Clearing(debris, lambda store: vacuum(store), {1: 1, 2: 2}, frozenset({1, 2}))
CLEARINGS = {
    "vacuum of versions": Clearing(
        three_versions, keep_one, {1: 1, 2: 2, 3: 3}, frozenset({3}), frozenset({3})
    ),
    "vacuum of versions that share files": Clearing(
        shared_files, keep_one, {1: 1, 2: 1, 3: 1, 4: 4}, frozenset({4}), frozenset({4})
    ),
    "vacuum of versions and orphans": Clearing(
        debris, keep_one, {1: 1, 2: 2}, frozenset({2}), frozenset({2})
    ),
    "retention": Clearing(
        keeping_one,
        superseding,
        {1: 1, 2: 1, 3: 1, 4: 4, 5: 5},
        frozenset(),
        frozenset({4, 5}),
        flush=3,
    ),
}


def recorded(tmp_path, clearing: Clearing, *, drop=None) -> Log:
    parent = tmp_path / "parent"
    parent.mkdir()
    clearing.before(parent / NAME)
    disk = RecordingDisk(parent, drop=drop)
    clearing.run(LocalStore(parent / NAME, disk=disk))
    disk.mark(RETURNED)
    return disk.log


def broken_promise(state: State, directory, clearing: Clearing, *, returned: bool) -> str | None:
    """Return the fault of the table in this state; None if every promise holds."""
    path = write_state(state, directory) / NAME
    store = LocalStore(path)
    try:
        found = versions.numbers(store)
        needed = clearing.kept | (clearing.makes if returned else frozenset())
        if not found or not needed <= set(found):
            return f"{needed} are needed, {found} are there"
        for number in found:
            if not blz.read_table(path, version=number).equals(content(clearing.holds[number])):
                return f"version {number} holds something else"
        if vacuum(store, keep=1).damaged:
            return "a version is damaged"
        if debris_of(path) != set():
            return f"a second vacuum left {debris_of(path)}"
        if not blz.read_table(path).equals(content(clearing.holds[found[-1]])):
            return "a second vacuum took what was needed"
        blz.to_blz(LATER, path, durability="process")
        return None if blz.read_table(path).equals(LATER) else "another commit did not hold"
    except blz.BlzError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        store.close()
        shutil.rmtree(directory)


def since_things_went(log: Log) -> range:
    """Return the stops from the first removal after the last commit on."""
    kinds = [one.kind if ".tmp" not in one.path else "" for one in log.operations]
    commits = [place for place, one in enumerate(log.operations) if one.kind == "link"]
    return range(kinds.index("unlink", commits[-1] if commits else 0), len(log) + 1)


def broken_promises(tmp_path, log: Log, clearing: Clearing, stops) -> Iterator[str]:
    for state, returned in states(log, stops):
        broken = broken_promise(state, tmp_path / "state", clearing, returned=returned)
        if broken is not None:
            yield f"{state.story}: {broken}"


@pytest.mark.parametrize("clearing", [ORPHANS, *CLEARINGS.values()], ids=["orphans", *CLEARINGS])
def test_power_lost_anywhere_while_things_go_leaves_what_is_kept(tmp_path, clearing):
    log = recorded(tmp_path, clearing)
    assert any(one.kind == "unlink" and one.path.endswith(".bin") for one in log.operations)
    assert not list(broken_promises(tmp_path, log, clearing, since_things_went(log)))


@pytest.mark.parametrize("name", CLEARINGS)
def test_leaving_out_the_flush_between_manifests_and_files_breaks_the_promise(tmp_path, name):
    clearing = CLEARINGS[name]
    log = recorded(tmp_path, clearing, drop=leaving_out(NAMES, clearing.flush))
    # Backwards: the fault shows where most files were removed.
    stops = reversed(since_things_went(log))
    assert next(broken_promises(tmp_path, log, clearing, stops), None) is not None


@pytest.mark.parametrize("name", [name for name in CLEARINGS if name != "retention"])
def test_a_vacuum_flushes_names_before_manifests_go_and_before_files_go(tmp_path, name):
    log = recorded(tmp_path, CLEARINGS[name])
    assert [described(one) for one in log.operations if one.kind in FLUSHES] == [NAMES] * 2


HASTY = Clearing(
    lambda path: blz.to_blz(content(1), path),
    hastily_then_vacuum,
    {1: 1, 2: 2},
    frozenset(),
    frozenset({2}),
)
HASTY_FLUSHES = [
    "sync_file t.blz/data/col2/__n__.bin",
    "sync_file t.blz/meta/manifest/00000000000000000002",
    "sync_directory t.blz/data",
    "sync_directory t.blz/data/col2",
]


@pytest.mark.parametrize("left_out", [None, *HASTY_FLUSHES])
def test_a_version_that_was_not_flushed_lasts_once_a_vacuum_made_it_the_only_one(
    tmp_path, left_out
):
    drop = leaving_out(left_out, None) if left_out else None
    log = recorded(tmp_path, HASTY, drop=drop)
    broken = next(broken_promises(tmp_path, log, HASTY, [len(log)]), None)
    assert (broken is None) is (left_out is None), broken


def test_until_then_the_version_before_it_is_there(tmp_path):
    log = recorded(tmp_path, HASTY)
    published = [one.kind for one in log.operations].index("link")
    for state, _ in states(log, range(published, len(log) + 1)):
        path = write_state(state, tmp_path / "state") / NAME
        whole = 0
        for number in versions.numbers(LocalStore(path)):
            try:
                whole += blz.read_table(path, version=number).equals(content(number))
            except blz.BlzError:
                continue
        assert whole, state.story
        shutil.rmtree(tmp_path / "state")
