"""Ctrl-C at any line of a write leaves the old table or the new one, and no lock held.

A trace raises the real signal before the n-th line that the main thread runs in the package, or in
contextlib, where the package's context managers run. These tests try some of the lines, other lines
every day; the storm tries all of them.
"""

import contextlib
import dis
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import blosc
import pandas as pd
import pytest

import blztable as blz
from blztable.format import layout
from blztable.storage.local import LocalStore
from support.stores import files_named as named_by

OLD = pd.DataFrame({"a": [1, 2], "b": ["x", None]})
NEW = pd.DataFrame({"a": [3.5], "c": ["z"]})
TRACED = (os.path.dirname(blz.__file__) + os.sep, contextlib.__file__)
STEP = 401
ODD_SETTINGS = 3, False
NOP = dis.opmap["NOP"]


class InterruptAt:
    """A trace that raises SIGINT before line number n, and notes that line in `where`."""

    def __init__(self, line: int) -> None:
        self._left = line
        self.where = ""

    def __call__(self, frame, event, arg):
        if not frame.f_code.co_filename.startswith(TRACED):
            return None
        if event == "line" and not self.where:
            self._left -= 1
            # At the NOP of a `try:` Python handles no signal, and no handler is in force.
            if self._left < 0 and frame.f_code.co_code[frame.f_lasti] != NOP:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                signal.raise_signal(signal.SIGINT)
        return self


def interrupted(line: int, write) -> tuple[str, BaseException | None]:
    """Return the place of the interrupt, "" if the write has fewer lines, and the exception."""
    trace, before = InterruptAt(line), sys.gettrace()
    sys.settrace(trace)
    try:
        write()
    except BaseException as error:
        return trace.where, error
    finally:
        sys.settrace(before)
    return trace.where, None


def temporary_names(path: Path) -> list[str]:
    return [file.name for file in path.rglob(".tmp-*")]


def directories_named(path: Path) -> set[Path]:
    """Return the directories of columns that any version names, and that of the bundles."""
    found = {path / layout.BUNDLES}
    for manifest in (path / "meta/manifest").iterdir():
        with blz.open(path, version=int(manifest.stem)) as table:
            paths = table._snapshot.version.paths
            found |= {path / "data" / f"col{number}" for (number,) in paths}
    return found


def check_an_interrupt(tmp_path, line: int, is_there: bool, durability: str) -> bool:
    """Interrupt a write at this line and check the table; False if the write ended before it."""
    path = tmp_path / f"{line}.blz"
    if is_there:
        OLD.to_blz(path, durability="process")
    handler = signal.getsignal(signal.SIGINT)
    threads = set(threading.enumerate())
    # The exception is kept, as a console does: locks must not wait for its traceback to go.
    where, error = interrupted(line, lambda: NEW.to_blz(path, durability=durability))
    if not where:
        assert error is None
        return False
    # None: the write was over, or a destructor was running, from which Python raises nothing.
    assert error is None or type(error) is KeyboardInterrupt, where
    assert signal.getsignal(signal.SIGINT) is handler, where
    assert blosc_settings() == ODD_SETTINGS, where
    assert all(t.name.startswith("blztable") for t in set(threading.enumerate()) - threads), where
    assert temporary_names(path) == [], where
    try:
        found = blz.read_blz(path)
    except blz.TableNotFoundError:
        assert not is_there, where
        assert error is not None, where
        assert list(path.rglob("*.bin")) == [], where
        assert not any((path / "data").glob("col*")), where
    else:
        assert found.equals(NEW) or (is_there and error is not None and found.equals(OLD)), where
        assert set((path / "data").iterdir()) <= directories_named(path), where
        assert set((path / "data").rglob("*.bin")) == files_named(path), where
    started = time.monotonic()
    OLD.to_blz(path, durability="process")
    assert time.monotonic() - started < 5, where
    assert blz.read_blz(path).equals(OLD), where
    shutil.rmtree(path)
    return True


@pytest.fixture
def quick_locks(tuned):
    """Report a lock left behind after one second, not thirty."""
    tuned(lock_seconds=1.0)


@pytest.fixture
def destructors(monkeypatch):
    """Python drops an interrupt inside of a destructor; no other exception may be lost."""
    printed = []
    monkeypatch.setattr(sys, "unraisablehook", lambda given: printed.append(given.exc_value))
    yield
    assert [error for error in printed if not isinstance(error, KeyboardInterrupt)] == []


def blosc_settings() -> tuple[int, bool]:
    """Return the settings of Blosc and set odd ones; Blosc reports its settings only when set."""
    return blosc.set_nthreads(ODD_SETTINGS[0]), bool(blosc.set_releasegil(ODD_SETTINGS[1]))


@pytest.fixture
def odd_settings():
    before = blosc_settings()
    yield
    blosc.set_nthreads(before[0])
    blosc.set_releasegil(before[1])


WRITES = pytest.mark.parametrize(
    ("is_there", "durability"), [(False, "full"), (True, "full"), (True, "process")]
)


@WRITES
def test_an_interrupt_at_any_line_of_a_write_leaves_the_old_table_or_the_new_one(
    tmp_path, quick_locks, odd_settings, destructors, is_there, durability
):
    line = time.localtime().tm_yday % STEP
    while check_an_interrupt(tmp_path, line, is_there, durability):
        line += STEP
    assert line > 2000


@pytest.mark.storm
@pytest.mark.timeout(1800)
@WRITES
def test_an_interrupt_at_every_line_of_a_write_leaves_the_old_table_or_the_new_one(
    tmp_path, quick_locks, odd_settings, destructors, is_there, durability
):
    line = 0
    while check_an_interrupt(tmp_path, line, is_there, durability):
        line += 1
    assert line > 2000


def test_an_interrupt_while_waiting_for_a_lock_ends_the_wait(tmp_path):
    path = tmp_path / "t.blz"
    OLD.to_blz(path)
    with LocalStore(path).lock(layout.LOCK, shared=False, timeout=0):
        timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
        timer.start()
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            NEW.to_blz(path)
        timer.join()
        assert time.monotonic() - started < 5
    assert blz.read_blz(path).equals(OLD)
    assert temporary_names(path) == []
    NEW.to_blz(path)


def test_an_interrupt_while_a_lock_is_let_go_does_not_keep_it_for_ever(tmp_path, destructors):
    store = LocalStore(tmp_path)
    for line in range(8):
        held = store.lock("", shared=False, timeout=0)
        interrupted(line, held.close)
        del held
        store.lock("", shared=False, timeout=0).close()


def change(path: Path, durability: str) -> None:
    """Make several changes in one commit; they write files of new and of old columns."""
    with blz.open(path, "a", durability=durability) as table, table.transaction() as tx:
        tx.append(OLD)
        tx.update({"a": 7}, where=[("a", "==", 1)])
        tx.add_column("c", 0.5)
        tx.delete([("a", "==", 2)])


def files_named(path: Path) -> set[Path]:
    """Return the files that any version of the table names."""
    found = set()
    for name in (path / "meta/manifest").iterdir():
        with blz.open(path, version=int(name.stem)) as table:
            found |= {path / file for file in named_by(table._snapshot.version)}
    return found


def check_an_interrupted_change(tmp_path, line: int, durability: str) -> bool:
    """Interrupt changes at this line and check the table; False if they ended before it."""
    path = tmp_path / f"{line}.blz"
    OLD.to_blz(path, durability="process")
    where, error = interrupted(line, lambda: change(path, durability))
    if not where:
        assert error is None
        return False
    assert error is None or type(error) is KeyboardInterrupt, where
    assert blosc_settings() == ODD_SETTINGS, where
    assert temporary_names(path) == [], where
    found = blz.read_blz(path)
    if "c" in found:
        assert found.to_dict("list") == {"a": [7, 7], "b": ["x", "x"], "c": [0.5, 0.5]}, where
    else:
        assert error is not None, where
        assert found.equals(OLD), where
    assert set((path / "data").rglob("*.bin")) == files_named(path), where
    started = time.monotonic()
    OLD.to_blz(path, mode="a", durability="process")
    assert time.monotonic() - started < 5, where
    assert len(blz.read_blz(path)) == len(found) + len(OLD), where
    shutil.rmtree(path)
    return True


# A commit that is not flushed runs some of the lines of one that is.
@pytest.mark.parametrize("durability", ["full", pytest.param("process", marks=pytest.mark.storm)])
def test_an_interrupt_at_any_line_of_changes_leaves_all_or_none_of_them(
    tmp_path, quick_locks, odd_settings, destructors, durability
):
    line = time.localtime().tm_yday % STEP
    while check_an_interrupted_change(tmp_path, line, durability):
        line += STEP
    assert line > 4000


INTERRUPTED = """
import _thread, sys, threading
import blztable as blz
from blztable.engine.run import pool

started = threading.Event()

def task():
    started.set()
    _thread.interrupt_main()
    for _ in range(100_000):
        pass

for _ in range(200):
    try:
        pool.run([task] * 8)
    except KeyboardInterrupt:
        pass
try:
    blz.to_blz({"a": [1]}, sys.argv[1])
except KeyboardInterrupt:
    blz.to_blz({"a": [1]}, sys.argv[1])
print(blz.read_table(sys.argv[1]).num_rows)
"""


# Bug: Ctrl-C inside of a parallel run could leave it waiting for ever.
def test_an_interrupt_anywhere_in_a_run_ends_it(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, tmp_path / "t.blz"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) in {(0, "1\n"), (-signal.SIGINT, "")}, done.stderr


def test_the_tests_get_ctrl_c_also_where_their_starter_ignores_it(tmp_path):
    """The shell does so for what it starts in the background, and nohup and cron."""
    name = "test_an_interrupt_while_waiting_for_a_lock_ends_the_wait"
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--basetemp", tmp_path / "t", f"{__file__}::{name}"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout
