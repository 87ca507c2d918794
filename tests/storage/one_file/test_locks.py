"""Locks of a table in one file: none stays, whatever fails behind a commit, in forks, at exit."""

import errno
import gc
import io
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import blztable as blz
from blztable.storage.disk import Disk
from blztable.storage.files import LocalFile
from blztable.storage.held import HeldLock, Holder
from blztable.storage.memory import RamStore
from blztable.storage.one_file import store as one_file
from blztable.storage.one_file.identity import Identity
from blztable.storage.one_file.store import OneFileStore
from blztable.storage.one_file.writing import Writing

ROWS = {"n": [1]}


class Alarm(Exception):
    """What the handler of a signal raises."""


@pytest.fixture
def path(tmp_path):
    blz.to_blz(ROWS, tmp_path / "t.blz", storage=blz.Storage(layout="file"))
    return tmp_path / "t.blz"


def script(code, path):
    """Run code in a new process; return what it printed, and what went wrong."""
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60
    )
    return done.stdout.strip(), done.stderr


def is_free(path):
    """True if another process could lock the file now."""
    file = LocalFile(path)
    try:
        file.lock(0)
    except blz.BusyError:
        return False
    file.unlock()
    return True


def failing(error, after):
    """Return a function that raises once, after so many calls."""
    calls = iter(range(after + 1))

    def fail(*_, **__):
        if next(calls, None) == after:
            raise error

    return fail


FAILURES = {
    "of the disk": blz.StorageError(errno.EIO, "Input/output error", "t.blz"),
    "of a signal handler": Alarm(),
}


# Bug: the lock stayed with the handle, and a commit that was made was told as if it was not.
@pytest.mark.parametrize("error", FAILURES.values(), ids=FAILURES)
def test_reading_the_front_fails_after_a_commit(path, monkeypatch, error):
    with blz.open(path, "a") as table:
        left, errors, plain = [], [error], OneFileStore._end

        def end(store, writing):
            left.append(writing)
            plain(store, writing)

        def of(source, _of=Identity.of):
            if left and errors:
                raise errors.pop()
            return _of(source)

        monkeypatch.setattr(OneFileStore, "_end", end)
        monkeypatch.setattr(Identity, "of", of)
        try:
            table.append({"n": [2]})
        except Alarm:
            assert isinstance(error, Alarm)
        assert is_free(path)
        assert table.append({"n": [3]}).version == 3
    assert blz.read_table(path)["n"].to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("step", ["end", "is_due"])
@pytest.mark.parametrize("error", FAILURES.values(), ids=FAILURES)
def test_a_step_after_a_commit_fails(path, monkeypatch, step, error):
    fail = failing(error, 0)
    old = getattr(Writing, step)

    def instead(writing):
        fail()
        return old(writing) if callable(old) else old.fget(writing)

    monkeypatch.setattr(Writing, step, property(instead) if step == "is_due" else instead)
    with blz.open(path, "a") as table:
        try:
            if step == "end" and isinstance(error, blz.BlzError):
                with pytest.warns(UserWarning, match=r"not tidied.*Input/output error"):
                    table.append({"n": [2]})
            else:
                table.append({"n": [2]})
        except (Alarm, blz.StorageError):
            assert step == "is_due" or isinstance(error, Alarm)
        assert is_free(path)
        table.refresh()
        assert table.append({"n": [3]}).version == 3
    assert blz.read_table(path)["n"].to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("error", FAILURES.values(), ids=FAILURES)
def test_beginning_to_write_fails_after_the_file_was_locked(path, monkeypatch, error):
    with blz.open(path, "a") as table:
        for place in (Writing, "begin"), (one_file.KnownCommits, "meet"):
            with monkeypatch.context() as patched:
                patched.setattr(*place, failing(error, 0))
                with pytest.raises(type(error)):
                    table.append({"n": [2]})
            assert is_free(path)
        table.append({"n": [3]})
    assert blz.read_table(path)["n"].to_pylist() == [1, 3]


# Bug: a lock that was not counted yet was counted down, in the place of another one.
@pytest.mark.parametrize("kind", ["one file", "memory"])
@pytest.mark.parametrize("step", [(HeldLock, "__init__"), (Holder, "take"), (Holder, "admits")])
def test_an_alarm_while_a_lock_is_taken_leaves_those_of_others(path, monkeypatch, kind, step):
    store = one_file.at(path) if kind == "one file" else RamStore()
    if kind == "memory":
        blz.to_blz(ROWS, store)
    plain = getattr(*step)

    def late(*args, **options):
        plain(*args, **options)
        raise Alarm

    with store.lock("meta/flight", shared=True, timeout=0):
        for key in ("meta/flight", "meta/lock"):
            with monkeypatch.context() as patched:
                patched.setattr(*step, late)
                with pytest.raises(Alarm):
                    store.lock(key, shared=True, timeout=0)
            gc.collect()
        assert kind == "memory" or not is_free(path)
        with pytest.raises(blz.BusyError):
            store.lock("meta/flight", shared=False, timeout=0)
        store.lock("meta/lock", shared=False, timeout=0).close()
    assert kind == "memory" or is_free(path)
    store.lock("meta/flight", shared=False, timeout=0).close()


class LateDisk(Disk):
    """A disk whose write of a foot is done when the exception of a signal handler comes."""

    error: BaseException | None = None

    def write(self, fd, buffers):
        super().write(fd, buffers)
        if self.error is not None and any(b"blzcomit" in bytes(one) for one in buffers):
            error, self.error = self.error, None
            raise error


# Bug: the commit was cut off again, which a reader may have opened already.
def test_a_commit_that_is_whole_in_the_file_stays_though_a_handler_raises(path):
    disk = LateDisk()
    with blz.open(OneFileStore(LocalFile(path, disk=disk)), "a") as table:
        disk.error = Alarm()
        with pytest.raises(Alarm):
            table.append({"n": [2]})
        assert is_free(path)
        table.refresh()
        assert table.version == 2
        table.append({"n": [3]})
    assert blz.read_table(path)["n"].to_pylist() == [1, 2, 3]
    assert blz.open(path).verify().is_intact


# An exception of a handler within `__del__` cannot be passed on. The alarms take the timer of
# pytest's own timeout, so that one watches from a thread.
@pytest.mark.timeout(60, method="thread")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_alarms_at_any_moment_of_a_commit_leave_no_lock(path):
    def ring(*_):
        raise Alarm

    old = signal.signal(signal.SIGALRM, ring)
    try:
        with blz.open(path, "a", durability="process") as table:
            for number in range(60):
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.0003 + number % 20 * 0.0004)
                    table.append({"n": [number]})
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except Alarm:
                    pass
                except (KeyError, blz.ConflictError):
                    # Out of a thread pool of Python.
                    signal.setitimer(signal.ITIMER_REAL, 0)
                gc.collect()
                assert is_free(path), number
                table.refresh()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert blz.open(path).verify().is_intact


def forked(work):
    """Run work in a child made by fork; return True if it ends in time."""
    pid = os.fork()
    if pid == 0:
        code = 1
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(5)
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


# Bug: a pin waited in the child for a lock that a thread of the parent held at the fork.
@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.parametrize("kind", ["one file", "memory"])
def test_a_child_closes_and_collects_tables_though_a_thread_of_the_parent_was_writing(path, kind):
    place = path if kind == "one file" else RamStore()
    if kind == "memory":
        blz.to_blz(ROWS, place)
    readers = [blz.open(place) for _ in range(3)]
    store = readers[0]._snapshot.version.store
    held, done = threading.Event(), threading.Event()

    def hold():
        with store._changed:
            held.set()
            done.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(30)

    def work():
        readers[0].close()
        del readers[:]
        gc.collect()
        with blz.open(place) as table:
            assert len(table) == 1

    try:
        assert forked(work)
    finally:
        done.set()
        thread.join()
    for reader in readers:
        reader.close()


# Bug: the child waited for a thread of the parent that read the same file object at the fork.
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_child_reads_a_file_object_though_a_thread_of_the_parent_was_reading_it(path):
    parent, held, done = os.getpid(), threading.Event(), threading.Event()
    is_slow = threading.Event()

    class Slow(io.BytesIO):
        def read(self, size=-1):
            if is_slow.is_set() and os.getpid() == parent:
                held.set()
                done.wait(30)
            return super().read(size)

    def work():
        assert table["n"].to_arrow().to_pylist() == rows["n"].tolist()

    # More than opening reads.
    rows = {"n": np.random.default_rng(0).random(20_000)}
    blz.to_blz(rows, path)
    with blz.open(Slow(path.read_bytes())) as table:
        is_slow.set()
        thread = threading.Thread(target=work)
        thread.start()
        try:
            assert held.wait(30)
            assert forked(work)
        finally:
            done.set()
            thread.join()


# Bug: a reader kept a holder for each version that it had met.
def test_a_long_lived_reader_keeps_nothing_of_the_versions_it_has_left(path):
    store = one_file.at(path)
    with blz.open(path, "a") as table:
        table.configure(keep_versions=2, keep_seconds=0)
    with blz.open(path) as reader:
        for number in range(20):
            # A store of its own is what another process has.
            blz.to_blz({"n": [number]}, OneFileStore(LocalFile(path)), mode="a")
            reader.refresh()
            assert len(store._holders) == 1
    assert not store._holders


ENDINGS = {
    "a transaction": """
tx = blz.open(sys.argv[1], "a").transaction()
tx.__enter__()
tx.append({"n": [2] * 1000})
""",
    "an appender": """
tx = blz.open(sys.argv[1], "a").transaction()
appender = tx.__enter__().appender()
appender.__enter__()["n"].append([2] * 1000)
""",
    "a reader": """
table = blz.open(sys.argv[1])
batches = table.to_batches()
next(batches)
""",
}


# Bug: "Exception ignored in HeldLock.__del__ ... the value was closed".
@pytest.mark.parametrize("ending", ENDINGS)
def test_nothing_is_printed_when_the_interpreter_ends_within_use(path, ending):
    printed = script("import sys\nimport blztable as blz" + ENDINGS[ending], path)
    assert printed == ("", "")
    blz.to_blz({"n": [5]}, path, mode="a")
    assert blz.read_table(path)["n"].to_pylist() == [1, 5]


# The thread has the condition for ever, as a daemon thread has that the end stopped in a commit.
KEEPING = """
import sys, threading
import blztable as blz
table = blz.open(sys.argv[1])
thread = threading.Thread(target=table._snapshot.version.store._changed.__enter__)
thread.start()
thread.join()
"""


def test_the_interpreter_ends_though_a_thread_was_stopped_within_a_commit(path):
    assert script(KEEPING, path) == ("", "")


@pytest.mark.filterwarnings("ignore:.*never finished, or damaged")
def test_a_writer_waits_for_no_lock_of_a_handle_that_was_collected(path):
    begun = time.monotonic()
    for number in range(5):
        transaction = blz.open(path, "a").transaction()
        transaction.__enter__().append({"n": [number]})
        del transaction
        gc.collect()
    blz.to_blz({"n": [5]}, path, mode="a")
    assert time.monotonic() - begun < 20
    assert blz.read_table(path)["n"].to_pylist() == [1, 5]
