"""Mixed durabilities: flushed commits, unflushed commits, kills, repeats and vacuum.

Each commit appends one row. After a loss of power at any point, the table exists, and the rows
acknowledged with `durability="full"` are in a version that opens. No version holds anything but the
first rows. `crash.model` describes the disk.
"""

import os
import random
import shutil
from dataclasses import dataclass, field
from itertools import product

import pytest

import blztable as blz
from blztable.engine.version import versions
from blztable.storage.local import LocalStore
from blztable.table.changing import settings
from support.crash.checks import NAME, states
from support.crash.model import RecordingDisk, write_state
from support.options import arguments


class Killed(BaseException):
    """The process was killed."""


class MortalDisk(RecordingDisk):
    """A disk that may kill its writer right after it published a manifest."""

    def __init__(self, parent):
        super().__init__(parent)
        self.kills = False
        self._is_dead = False

    def revive(self):
        self.kills = self._is_dead = False

    def link(self, old, new, dir_fd):
        self._alive()
        super().link(old, new, dir_fd)
        if self.kills:
            self._is_dead = True
            raise Killed

    def _alive(self):
        if self._is_dead:
            raise Killed

    def _flush(self, kind, fd, call):
        self._alive()
        super()._flush(kind, fd, call)

    def create(self, name, dir_fd):
        self._alive()
        return super().create(name, dir_fd)

    def unlink(self, name, dir_fd):
        self._alive()
        super().unlink(name, dir_fd)

    def rename(self, old, new, dir_fd):
        self._alive()
        super().rename(old, new, dir_fd)

    def rmdir(self, name, dir_fd):
        self._alive()
        super().rmdir(name, dir_fd)


@dataclass
class Story:
    """A table and the promises made about it so far."""

    store: LocalStore
    disk: MortalDisk
    rows: int = 1
    # Pairs: number of operations, and number of rows that last from then on.
    promised: list[tuple[int, int]] = field(default_factory=lambda: [(0, 1)])

    def append(self, durability, commit_id=None, *, is_new=True):
        row = self.rows + is_new
        with blz.open(self.store, "a", durability=durability) as table:
            table.append({"n": [row]}, commit_id=commit_id or f"row {row}")
        self.rows = row
        if durability == "full":
            self.promised.append((len(self.disk.log), row))

    def killed(self, durability):
        self.disk.kills = True
        with pytest.raises(Killed):
            self.append(durability)
        self.disk.revive()
        # The version was published, but the caller got no answer.
        self.rows += 1


def repeat(story, durability):
    """Run the last job again, under its commit id."""
    story.append(durability, is_new=False)


def restore(story, durability):
    """Restore the newest version."""
    with blz.open(story.store, "a", durability=durability) as table:
        table.restore(table.version)
    if durability == "full":
        story.promised.append((len(story.disk.log), story.rows))


def vacuum(story):
    with blz.open(story.store, "a") as table:
        table.vacuum(keep=1)


STEPS = {
    "full": lambda story: story.append("full"),
    "process": lambda story: story.append("process"),
    "full, killed": lambda story: story.killed("full"),
    "process, killed": lambda story: story.killed("process"),
    "repeat, full": lambda story: repeat(story, "full"),
    "repeat, process": lambda story: repeat(story, "process"),
    "restore, full": lambda story: restore(story, "full"),
    "restore, process": lambda story: restore(story, "process"),
    "vacuum": vacuum,
}


def told(tmp_path, steps, keep):
    """Run the steps on a table with one safe row that keeps this number of versions."""
    parent = tmp_path / "parent"
    parent.mkdir()
    blz.to_blz({"n": [1]}, parent / NAME, commit_id="row 1")
    with blz.open(parent / NAME, "a") as table:
        table.configure(keep_versions=keep)
        table.vacuum(keep=1)
    disk = MortalDisk(parent)
    story = Story(LocalStore(parent / NAME, disk=disk), disk)
    for step in steps:
        STEPS[step](story)
    return story


def broken_promise(state, directory, lasting, rows):
    """Return the fault of this state, given the number of rows that must last."""
    path = write_state(state, directory) / NAME
    store = LocalStore(path)
    try:
        numbers = versions.numbers(store)
        if not numbers:
            return "no version is left"
        whole = []
        for number in numbers:
            try:
                found = blz.read_table(path, version=number)["n"].to_pylist()
            except blz.CorruptError:
                continue
            if found != [*range(1, len(found) + 1)]:
                return f"version {number} holds {found}"
            whole.append(len(found))
        if max(whole, default=0) < lasting:
            return f"{lasting} rows were promised, the whole versions have {whole} of {rows}"
        return None
    finally:
        store.close()
        shutil.rmtree(directory)


def broken_promises(tmp_path, story):
    """Yield each state after a publication, a removal or the end that is wrong, and its fault."""
    log = story.disk.log
    shown = ("link", "unlink")
    stops = [stop for stop, one in enumerate(log.operations, 1) if one.kind in shown]
    for state, _ in states(log, [*stops, len(log)], all_of_it=False):
        stop = int(state.story.split()[1])
        lasting = max(rows for at, rows in story.promised if at <= stop)
        broken = broken_promise(state, tmp_path / "state", lasting, story.rows)
        if broken is not None:
            yield f"{state.story}: {broken}"


@pytest.mark.parametrize("keep", [1, 2])
@pytest.mark.parametrize("steps", [*product(STEPS, repeat=2)], ids=" then ".join)
def test_what_was_flushed_lasts_whatever_the_next_commit_asks_for(tmp_path, steps, keep):
    story = told(tmp_path, steps, keep)
    assert not list(broken_promises(tmp_path, story))


@pytest.mark.storm
@pytest.mark.parametrize("seed", range(300))
def test_what_was_flushed_lasts_in_any_series_of_steps(tmp_path, seed):
    draw = random.Random(seed)
    steps = draw.choices([*STEPS], k=draw.randint(3, 6))
    story = told(tmp_path, steps, draw.randint(1, 4))
    assert not list(broken_promises(tmp_path, story)), steps


def test_versions_that_were_flushed_outlast_many_commits_that_are_not(tmp_path):
    """Twelve unflushed commits retire all ten versions that the table keeps."""
    story = told(tmp_path, ["full", *["process"] * 12], 10)
    end = len(story.disk.log)
    for state, _ in states(story.disk.log, [end], all_of_it=False):
        assert broken_promise(state, tmp_path / "state", 2, story.rows) is None, state.story


def flushes(tmp_path, steps, keep):
    story = told(tmp_path, steps, keep)
    return [one.kind for one in story.disk.log.operations if one.kind.startswith("sync")]


def test_commits_that_are_not_flushed_flush_nothing_while_a_lasting_version_stays(tmp_path):
    assert flushes(tmp_path, ["process"] * 3, 10) == []


def test_a_job_that_is_told_to_be_done_was_flushed_before(tmp_path):
    for number, steps in enumerate((["full, killed"], ["process"], ["process, killed"])):
        directory = tmp_path / str(number)
        directory.mkdir()
        story = told(directory, steps, 10)
        before = len(story.disk.log)
        repeat(story, "full")
        done = [one.kind for one in story.disk.log.operations[before:]]
        assert "sync_directory" in done, steps
        with blz.open(story.store) as table:
            assert table["n"][:].to_pylist() == [1, 2]


def tag(table, number):
    table.tags["audited"] = number


def tag_in_a_transaction(table, number):
    with table.transaction() as tx:
        tx._make(settings.set_tags, {"audited": number}, ())
        tx.append({"n": [9]})


def tagged_by_a_commit_without_a_flush(table, number):
    with blz.open(table._snapshot.version.store, "a", durability="process") as hasty:
        hasty.tags["audited"] = number
    table.refresh()
    table.append({"n": [9]})


TAGGINGS = [tag, tag_in_a_transaction, tagged_by_a_commit_without_a_flush]


def hasty_versions(place, **options):
    """Make three versions, of which the second has a file of its own and is the base of nothing."""
    blz.to_blz({"n": [1, 2], "x": [0.5, 0.5]}, place, **arguments(**options))
    with blz.open(place, "a", durability="process") as table:
        table.update({"x": 1.5})
        table.update({"x": 2.5})
    with blz.open(place, "a") as table:
        table.append({"n": [3], "x": [3.5]})


@pytest.mark.parametrize("tagging", TAGGINGS, ids=lambda one: one.__name__)
def test_a_tag_of_a_process_version_survives_a_loss_of_power(tmp_path, tagging):
    parent = tmp_path / "parent"
    parent.mkdir()
    disk = MortalDisk(parent)
    store = LocalStore(parent / NAME, disk=disk)
    hasty_versions(store)
    with blz.open(store, "a") as table:
        tagging(table, 2)
        expected = table.version
    for state, _ in states(disk.log, [len(disk.log)], all_of_it=False):
        path = write_state(state, tmp_path / "state") / NAME
        assert blz.read_table(path, version="audited")["x"].to_pylist() == [1.5, 1.5], state.story
        assert blz.open(path).version == expected
        shutil.rmtree(tmp_path / "state")


def test_a_tagged_version_is_flushed_once_and_not_at_every_commit(tmp_path):
    parent = tmp_path / "parent"
    parent.mkdir()
    disk = MortalDisk(parent)
    store = LocalStore(parent / NAME, disk=disk)
    hasty_versions(store)
    with blz.open(store, "a") as table:
        table.tags["audited"] = 2
        flushed = []
        for _ in range(3):
            start = len(disk.log)
            table.attrs["n"] = start
            done = disk.log.operations[start:]
            flushed.append([one.kind for one in done if one.kind.startswith("sync")])
    assert flushed == [["sync_file", "sync_directory"]] * 3


def fsyncs(monkeypatch, call):
    """Return the number of flushes that a call makes."""
    count = []
    plain = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (count.append(fd), plain(fd)))
    call()
    return len(count)


@pytest.mark.parametrize(("layout", "count"), [("directory", 4), ("file", 2)])
def test_a_small_durable_append_flushes_no_more_than_it_must(tmp_path, monkeypatch, layout, count):
    """The bundle and its directory, the manifest and its directory; in one file, data and foot."""
    place = tmp_path / "t.blz"
    blz.to_blz({"n": [1], "text": ["a"]}, place, storage=blz.Storage(layout=layout))
    for _ in range(3):
        with blz.open(place, "a") as table:
            done = fsyncs(monkeypatch, lambda: table.append({"n": [2], "text": ["b"]}))
        assert done == count


@pytest.mark.parametrize("base", ["process", "full"])
def test_a_directory_that_a_killed_writer_made_is_flushed_by_the_next_one(tmp_path, base):
    """Its name may not be durable, although it is there when the next writer begins."""
    parent = tmp_path / "parent"
    parent.mkdir()
    # The first column and the last one have directories.
    blz.to_blz({"n": [1, 2], "x": [0.5, 0.5], "y": [0, 0]}, parent / NAME, durability=base)
    disk = MortalDisk(parent)
    store = LocalStore(parent / NAME, disk=disk)
    assert store.reserve("data/col1")
    with blz.open(store, "a") as table:
        table.update({"x": 1.5})
    for state, _ in states(disk.log, [len(disk.log)], all_of_it=False):
        path = write_state(state, tmp_path / "state") / NAME
        assert blz.read_table(path)["x"].to_pylist() == [1.5, 1.5], state.story
        shutil.rmtree(tmp_path / "state")
