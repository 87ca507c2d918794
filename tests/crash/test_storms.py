"""Storms: processes write one table and are killed, race, or find the disk full.

Each is short in the suite and long with `-m storm`; `-s` then prints the counts.
"""

import errno
import gc
import os
import random
import shutil
import subprocess
import sys
import warnings
from contextlib import ExitStack
from itertools import count, islice
from pathlib import Path

import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.storage.disk import Disk
from blztable.storage.local import LocalStore
from support.crash import stress
from support.crash.changes import CHANGES, FIRST, one_damaged, two_row_groups
from support.crash.checks import changing, debris_of, held_versions, unnamed
from support.crash.stress import (
    SCHEMA,
    Step,
    founding,
    limited,
    looking,
    moving,
    perform,
    performed,
    racing,
    restless,
    running,
    steps,
    told,
)

LAYOUTS = ("directory", "file")
BEHIND = "never finished, or damaged"
pytestmark = pytest.mark.filterwarnings(f"ignore:.*{BEHIND}")
EMPTY = SCHEMA.empty_table()


def sizes(short, long):
    """Return parameters of a test with one argument: the daily value, and the storm's."""
    return [short, *storms((long,))]


def storms(*sizes):
    """Return parameters of the storm only, each a tuple of arguments."""
    return [
        pytest.param(*size, marks=[pytest.mark.storm, pytest.mark.timeout(1800)]) for size in sizes
    ]


def contents(path: Path) -> tuple[list[tuple], dict]:
    with blz.open(path) as table:
        rows = list(zip(*table.to_arrow().to_pydict().values(), strict=True))
        return rows, dict(table.attrs)


def verified(path: Path, *, full: bool) -> bool:
    """True if nothing is wrong but what a killed writer left behind the last commit of a file."""
    with blz.open(path) as table:
        return all(BEHIND in one.message for one in table.verify(full=full).problems)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kills", sizes(4, 500))
def test_a_writer_that_is_killed_leaves_what_it_was_told_and_at_most_one_commit_more(
    tmp_path, kills, layout
):
    path = tmp_path / "t.blz"
    blz.to_blz(EMPTY, path, storage=blz.Storage(layout=layout))
    expected: tuple[list[tuple], dict] = ([], {})
    draw = random.Random(kills)
    done, landed, repeated, first = 0, 0, 0, 0
    for kill in range(1, kills + 1):
        with running(restless, path, kill, first) as (process, pipe):
            pipe.poll(60)
            process.join(draw.uniform(0, 0.3))
            assert process.exitcode is None, told(pipe)
            process.kill()
            messages = told(pipe)
        acknowledged = [step for what, step in messages if what == "done"]
        for step in acknowledged:
            expected = performed(*expected, step)
        begun: Step | None = messages[-1][1] if messages[-1][0] == "begin" else None
        done += len(acknowledged)
        first = messages[-1][1][1] + 1
        found = contents(path)
        if begun is None:
            assert found == expected, kill
        else:
            with_it = performed(*expected, begun)
            assert found in (expected, with_it), (kill, begun)
            landed += found == with_it != expected
            repeated += 1
            with blz.open(path, mode="a") as table:
                perform(table, begun)
            expected = with_it
            assert contents(path) == expected, (kill, begun)
        # Jobs that run again although they were done.
        with blz.open(path, mode="a") as table:
            for step in [step for step in acknowledged if step[0] in ("append", "several")][-3:]:
                perform(table, step)
        assert contents(path) == expected, kill
        assert verified(path, full=kill % 25 == 0), kill
    with blz.open(path, mode="a") as table:
        table.vacuum(keep=1)
    assert debris_of(path) == set()
    print(f"\n{kills} kills, {done} operations acknowledged, {repeated} killed in flight, ", end="")
    print(f"{landed} of these had landed; {len(expected[0])} rows")


def check_race(path: Path, counts: list[int]) -> None:
    """Check that all appends of all writers are in the table, once and in order."""
    with blz.open(path) as table:
        rows, attrs = table.to_arrow(), dict(table.attrs)
    assert verified(path, full=True)
    for writer, appends in enumerate(counts):
        mine = rows.filter(pc.equal(rows["writer"], writer))
        assert mine["number"].to_pylist() == [n for n in range(appends) for _ in range(2)]
        assert attrs.get(f"writer {writer}", 0) < appends
    assert len(rows) == 2 * sum(counts)
    # Every writer succeeded, so every file is named by a version.
    assert unnamed(path) == set()
    with blz.open(path, mode="a") as table:
        table.vacuum(keep=1)
        groups = table._snapshot.version.row_groups
    assert debris_of(path) == set()
    assert len(groups) <= 8 * len(rows).bit_length() + 8
    print(f"\n{len(counts)} writers: {counts} appends, {len(groups)} row groups, ", end="")


@pytest.mark.parametrize(
    ("writers", "seconds"),
    [([0, 1, 1], 1), *storms(([0, 1], 60), ([0, 1, 2, 3], 60), ([0, 0, 1, 1], 60))],
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_appends_of_racing_writers_all_land_once_and_in_order(tmp_path, writers, seconds, layout):
    path = tmp_path / "t.blz"
    blz.to_blz(EMPTY, path, storage=blz.Storage(layout=layout))
    counts = []
    with ExitStack() as held:
        # The second writer of the same name repeats all work of the first, which was taken for
        # dead.
        seeds = [
            writer + 10 * writers[:place].count(writer) for place, writer in enumerate(writers)
        ]
        programs = [
            held.enter_context(running(racing, path, writer, seed, seconds))
            for writer, seed in zip(writers, seeds, strict=True)
        ]
        for process, pipe in programs:
            counts.append(len(told(pipe)))
            process.join()
            assert process.exitcode == 0
    appends = dict.fromkeys(writers, 0)
    for writer, done in zip(writers, counts, strict=True):
        appends[writer] = max(appends[writer], done)
    check_race(path, list(appends.values()))
    if seconds > 30:
        # A writer that falls behind its twin by 1,000 commits would make them again.
        assert max(counts) < 3 * min(counts), counts
    with blz.open(path) as table:
        print(f"{table.version} versions")


@pytest.mark.parametrize("tables", sizes(5, 300))
def test_of_writers_that_append_to_a_table_that_is_not_there_one_makes_it(tmp_path, tables):
    paths = [tmp_path / f"{number}.blz" for number in range(tables)]
    with ExitStack() as held:
        writers = [held.enter_context(running(founding, paths, writer)) for writer in range(3)]
        assert [told(pipe) for _, pipe in writers] == [["done"]] * 3
    for path in paths:
        rows, _ = contents(path)
        assert sorted(writer for writer, *_ in rows) == [0, 0, 1, 1, 2, 2]
        # A race for column ids may leave directories. They stay empty, and vacuum removes them.
        assert all((path / name).is_dir() for name in unnamed(path))
        blz.open(path, mode="a").vacuum()
        assert unnamed(path) == set()
    print(f"\n{tables} tables, each by three writers")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("readers", "seconds"), [(2, 1), *storms((4, 60))])
def test_what_readers_see_is_true_at_any_moment(tmp_path, readers, seconds, layout):
    path = tmp_path / "t.blz"
    blz.to_blz(EMPTY, path, storage=blz.Storage(attrs={"rows": 0, "count": 0}, layout=layout))
    with ExitStack() as held:
        _, writer = held.enter_context(running(moving, path, seconds))
        pipes = [held.enter_context(running(looking, path, seconds))[1] for _ in range(readers)]
        reads = [told(pipe) for pipe in pipes]
        commits = told(writer)
    assert all(isinstance(count, int) and count for [count] in reads), reads
    assert isinstance(commits[0], int)
    print(f"\n{commits[0]} commits, {[count for [count] in reads]} reads")


@pytest.mark.parametrize("operations", sizes(60, 3000))
def test_a_handle_leaks_no_descriptors(tmp_path, operations):
    path = tmp_path / "t.blz"
    blz.to_blz(EMPTY, path)

    def descriptors() -> int:
        gc.collect()
        return len(os.listdir("/dev/fd"))

    with blz.open(path, mode="a", durability="process") as table:
        rows, attrs = [], {}
        for number, step in enumerate(islice(steps(1, 0), operations)):
            perform(table, step)
            table.head(2)
            rows, attrs = performed(rows, attrs, step)
            if number == 20:
                before = descriptors()
        assert descriptors() <= before
        assert len(table) == len(rows)
        table.vacuum(keep=1)
    assert debris_of(path) == set()
    print(f"\n{operations} operations on one handle, {before} descriptors")


class FullDisk(Disk):
    """A disk that is full from its n-th call on: half of the bytes are written, and no new name."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.is_hit = False

    def _take(self) -> None:
        self.room -= 1
        if self.room < 0:
            self.is_hit = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def write(self, fd, buffers):
        try:
            self._take()
        except OSError:
            whole = b"".join(buffers)
            super().write(fd, [whole[: len(whole) // 2]])
            raise
        super().write(fd, buffers)

    def mkdir(self, name, dir_fd):
        self._take()
        super().mkdir(name, dir_fd)

    def create(self, name, dir_fd):
        self._take()
        return super().create(name, dir_fd)

    def link(self, old, new, dir_fd):
        self._take()
        super().link(old, new, dir_fd)

    def rename(self, old, new, dir_fd):
        self._take()
        super().rename(old, new, dir_fd)

    def sync_file(self, fd):
        self._take()

    def sync_directory(self, fd):
        self._take()


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_on_a_disk_that_is_full_at_any_call_is_made_or_leaves_no_trace(tmp_path, name):
    path = tmp_path / "t.blz"
    two_row_groups(path)
    before, makes = held_versions(path), CHANGES[name][1]
    change = changing(CHANGES[name][0])
    for room in count():
        disk = FullDisk(room)
        raised = None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                change(LocalStore(path, disk=disk))
            except (blz.StorageError, blz.CommitUnknownError) as error:
                raised = error
        if not disk.is_hit:
            break
        found = held_versions(path)
        is_made = len(found) > len(before)
        if isinstance(raised, blz.StorageError):
            assert raised.errno == errno.ENOSPC
            assert not is_made, room
        else:
            # Failures after the commit are reported.
            assert raised or "is committed" in str(caught[0].message), room
        assert found == dict(list({**before, **makes}.items())[: len(found)]), room
        assert unnamed(path) == set(), room
        if is_made:
            shutil.rmtree(path)
            two_row_groups(path)
    assert room > 5
    assert unnamed(path) == set()
    assert held_versions(path) == {**before, **makes}


def test_a_repair_on_a_disk_that_is_full_at_any_call_is_made_or_leaves_no_trace(tmp_path):
    path = tmp_path / "t.blz"
    one_damaged(path)
    for room in count():
        disk = FullDisk(room)
        with blz.open(LocalStore(path, disk=disk), "a") as table, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            raised = None
            try:
                table.repair()
            except (blz.StorageError, blz.CommitUnknownError) as error:
                raised = error
        is_made = not isinstance(raised, blz.StorageError)
        assert is_made or raised.errno == errno.ENOSPC
        if not disk.is_hit:
            break
        assert unnamed(path) == set(), room
        with blz.open(path) as table:
            assert table.version == (3 if is_made else 2), room
            assert table.verify().is_intact == is_made, room
        if is_made:
            assert blz.read_table(path).equals(FIRST), room
            shutil.rmtree(path)
            one_damaged(path)
    assert room > 5
    assert blz.read_table(path).equals(FIRST)


def test_a_file_larger_than_it_may_be_leaves_the_table_as_it_was(tmp_path):
    with running(limited, tmp_path / "t.blz", 100_000) as (_, pipe):
        assert told(pipe) == [errno.EFBIG, (set(), 10, True), True]


@pytest.mark.storm
def test_a_full_file_system_leaves_the_table_as_it_was_and_room_lets_it_go_on(tmp_path):
    # In its own mount name space, which needs no rights and ends with the process.
    mount = 'mount -t tmpfs -o size=4m tmpfs "$1" && shift && exec "$@"'
    program = [sys.executable, stress.__file__, tmp_path]
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, "sh", tmp_path, *program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    print(f"\n{done.stdout}", end="")
