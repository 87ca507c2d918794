"""Files in flight: writers work together, a vacuum works alone, on one machine or several."""

import errno
import fcntl
import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from blztable.engine.version import in_flight, versions
from blztable.engine.version.commit import Commit, CommitPlan
from blztable.engine.version.vacuum import vacuum
from blztable.errors import BusyError
from blztable.format import layout
from blztable.storage.local import LocalStore
from blztable.storage.memory import RamStore
from support.stores import fork, read, tree, write

ROWS = pa.table({"n": [1, 2, 3]})


@pytest.fixture(params=["local", "memory"])
def store(request, tmp_path):
    store = LocalStore(tmp_path / "t.blz") if request.param == "local" else RamStore()
    store.prepare(*layout.PREPARED)
    yield store
    store.close()


@pytest.fixture
def impatient(tuned):
    """Make writers give up at once when they have to wait."""
    tuned(lock_seconds=0)


def test_writers_are_at_work_together(store, impatient):
    with in_flight.writing(store), in_flight.writing(store):
        pass


def test_who_goes_alone_and_a_writer_keep_each_other_out(store, impatient):
    with in_flight.writing(store), pytest.raises(BusyError):
        in_flight.alone(store, 0)
    with in_flight.alone(store, 0):
        with pytest.raises(BusyError):
            in_flight.writing(store)
        with pytest.raises(BusyError):
            in_flight.alone(store, 0)
    in_flight.alone(store, 0).close()


def test_programs_that_lock_the_directory_only_are_kept_out_and_keep_out(store, impatient):
    with store.lock(layout.MANIFESTS, shared=True, timeout=0):
        in_flight.writing(store).close()
        with pytest.raises(BusyError, match=layout.MANIFESTS):
            in_flight.alone(store, 0)
    with (
        store.lock(layout.MANIFESTS, shared=False, timeout=0),
        pytest.raises(BusyError, match=layout.MANIFESTS),
    ):
        in_flight.writing(store)


def test_the_file_alone_keeps_both_apart(store, impatient):
    with store.lock(layout.FLIGHT, shared=True, timeout=0):
        in_flight.writing(store).close()
        with pytest.raises(BusyError, match=layout.FLIGHT):
            in_flight.alone(store, 0)
    with (
        store.lock(layout.FLIGHT, shared=False, timeout=0),
        pytest.raises(BusyError, match=layout.FLIGHT),
    ):
        in_flight.writing(store)


@pytest.mark.parametrize("key", [layout.MANIFESTS, layout.FLIGHT])
def test_who_does_not_get_both_locks_keeps_neither(store, impatient, key):
    with store.lock(key, shared=False, timeout=0):
        for take in (lambda: in_flight.alone(store, 0), lambda: in_flight.writing(store)):
            with pytest.raises(BusyError):
                take()
    in_flight.alone(store, 0).close()


class WaitedOn:
    """A store whose locks take two seconds of its own clock, and which records their time-outs."""

    def __init__(self):
        self.now = 100.0
        self.asked = []

    def lock(self, key, *, shared, timeout, inherited):
        assert not inherited
        self.asked.append((key, shared, timeout))
        self.now += 2
        return in_flight.ExitStack()


@pytest.mark.parametrize(("wait", "left"), [(5, 1), (2.5, 0.5), (1.5, 0)])
def test_all_locks_together_wait_no_longer_than_asked(monkeypatch, wait, left):
    store = WaitedOn()
    monkeypatch.setattr(in_flight.time, "monotonic", lambda: store.now)
    in_flight.alone(store, wait)
    assert store.asked == [
        (layout.META, False, wait),
        (layout.MANIFESTS, False, left),
        (layout.FLIGHT, False, 0),
    ]


def gate_is_closed(store):
    try:
        store.lock(layout.META, shared=True, timeout=0).close()
    except BusyError:
        return True
    return False


def test_writers_that_come_after_a_vacuum_that_waits_let_it_go_first(store):
    order = []

    def work(name, begin):
        with begin():
            order.append(name)

    with ThreadPoolExecutor(2) as pool:
        with in_flight.writing(store):
            cleaner = pool.submit(work, "vacuum", lambda: in_flight.alone(store, 60))
            while not gate_is_closed(store):
                pass
            writer = pool.submit(work, "writer", lambda: in_flight.writing(store))
        cleaner.result()
        writer.result()
    assert order == ["vacuum", "writer"]


def test_behind_a_long_writer_a_vacuum_that_waits_keeps_no_other_writer_out(store, tuned):
    tuned(gate_closed_seconds=0.1, lock_seconds=5)
    with ThreadPoolExecutor(1) as pool:
        with in_flight.writing(store):
            cleaner = pool.submit(in_flight.alone, store, 60)
            while not gate_is_closed(store):
                pass
            in_flight.writing(store).close()
            assert not cleaner.done()
        cleaner.result().close()


def test_a_table_without_the_file_is_read_as_it_is_and_gets_it_from_its_next_writer(store):
    write(store, ROWS)
    store.delete([layout.FLIGHT])
    before = tree(store)
    version, pinned = versions.pin(store)
    with pinned:
        assert read(version) == ROWS
    assert tree(store) == before
    write(store, ROWS)
    assert layout.FLIGHT in tree(store)


def test_a_creation_is_taken_over_whose_writer_was_killed_after_making_the_file(store):
    assert layout.FLIGHT in tree(store)
    assert write(store, ROWS, mode="x") == 1


def test_a_child_made_by_fork_keeps_the_version_it_reads_but_is_not_at_work(tmp_path):
    store = LocalStore(tmp_path / "t.blz")
    write(store, ROWS)
    ready, go = os.pipe(), os.pipe()
    with Commit(CommitPlan(store, is_durable=False)):
        child = fork()
        if child == 0:
            os.write(ready[1], b"x")
            os.read(go[0], 1)
            os._exit(0)
        os.read(ready[0], 1)
        with pytest.raises(BusyError):
            vacuum(store, wait=0)
    try:
        write(store, ROWS)
        assert vacuum(store, keep=1, wait=0).pinned == (1,)
    finally:
        os.write(go[1], b"x")
        os.waitpid(child, 0)
        for fd in (*ready, *go):
            os.close(fd)
    assert vacuum(store, keep=1, wait=0).versions == (1,)


# NFS


@pytest.fixture
def other_machine(monkeypatch):
    """Imitate flock of the NFS client of Linux: the lock of a directory excludes nobody."""
    real = fcntl.flock

    def flock(fd, operation):
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            return
        access = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
        if operation & fcntl.LOCK_EX and access == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        real(fd, operation)

    monkeypatch.setattr(fcntl, "flock", flock)


def test_on_nfs_a_table_is_written_changed_and_vacuumed(tmp_path, other_machine):
    store = LocalStore(tmp_path / "t.blz")
    for number in range(1, 4):
        assert write(store, ROWS) == number
    # The third one has removed the first.
    assert vacuum(store, keep=1).versions == (2,)
    version, pinned = versions.pin(store)
    with pinned:
        assert read(version) == ROWS
        assert write(store, ROWS) == 4
        assert vacuum(store, keep=1).pinned == (3,)


def test_on_nfs_a_vacuum_waits_for_a_writer_on_another_machine(tmp_path, other_machine):
    store = LocalStore(tmp_path / "t.blz")
    write(store, ROWS)
    with Commit(CommitPlan(store, is_durable=False)) as transaction:
        (path,) = transaction.files.reserve_columns(1)
        store.put_new(layout.part(path, 1), [b"in flight"])
        before = tree(store)
        with pytest.raises(BusyError, match="a writer or a transaction was active"):
            vacuum(LocalStore(tmp_path / "t.blz"), wait=0)
        assert tree(store) == before
