"""Ctrl-C at any line of a write: what is left is the old table or the new one, and nothing locked.

A trace raises the real signal before the n-th line that is run in the main thread, of the package
and of contextlib, in which its contexts spend some of theirs. A few of all lines are tried here,
other ones every day; the storm tries them all.
"""

import contextlib
import dis
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import blosc
import pandas as pd
import pytest

import blztable as blz
from blztable.engine.version import commit, versions
from blztable.format import layout
from blztable.storage.local import LocalStore

OLD = pd.DataFrame({"a": [1, 2], "b": ["x", None]})
NEW = pd.DataFrame({"a": [3.5], "c": ["z"]})
TRACED = (os.path.dirname(blz.__file__) + os.sep, contextlib.__file__)
STEP = 151
ODD_SETTINGS = 3, False
NOP = dis.opmap["NOP"]


class InterruptAt:
    """A trace that raises SIGINT before the line of that number, and says `where` it did."""

    def __init__(self, line: int) -> None:
        self._left = line
        self.where = ""

    def __call__(self, frame, event, arg):
        if not frame.f_code.co_filename.startswith(TRACED):
            return None
        if event == "line" and not self.where:
            self._left -= 1
            # At the NOP of a `try:` no signal is ever looked for, and no handler is in force.
            if self._left < 0 and frame.f_code.co_code[frame.f_lasti] != NOP:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                signal.raise_signal(signal.SIGINT)
        return self


def interrupted(line: int, write) -> tuple[str, BaseException | None]:
    """Where the write was interrupted, "" where it has no such line; and what it raised."""
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


def columns_named(path: Path) -> set[Path]:
    """The directories of columns that the versions of the table name."""
    found = set()
    for manifest in (path / "meta/manifest").iterdir():
        with blz.open(path, version=int(manifest.stem)) as table:
            paths = table._snapshot.version.head.columns.paths
            found |= {path / "data" / f"col{number}" for (number,) in paths}
    return found


def check_an_interrupt(tmp_path, line: int, is_there: bool, durability: str) -> bool:
    """Interrupt a write there and look at what is left; False if it is over before that line."""
    path = tmp_path / f"{line}.blz"
    if is_there:
        OLD.to_blz(path, durability="process")
    handler = signal.getsignal(signal.SIGINT)
    threads = set(threading.enumerate())
    # What it raised is kept, as a console does: locks must not wait for its traceback to go.
    where, error = interrupted(line, lambda: NEW.to_blz(path, durability=durability))
    if not where:
        assert error is None
        return False
    # None: it was over, or a destructor was at work, out of which Python raises nothing.
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
        assert not (path / "data").exists() or os.listdir(path / "data") == [], where
    else:
        assert found.equals(NEW) or (is_there and error is not None and found.equals(OLD)), where
        assert set((path / "data").iterdir()) == columns_named(path), where
    started = time.monotonic()
    OLD.to_blz(path, durability="process")
    assert time.monotonic() - started < 5, where
    assert blz.read_blz(path).equals(OLD), where
    shutil.rmtree(path)
    return True


@pytest.fixture
def quick_locks(monkeypatch):
    """A lock left behind is told in a second instead of thirty."""
    for module in (commit, versions):
        monkeypatch.setattr(module, "LOCK_SECONDS", 1.0)


@pytest.fixture
def destructors(monkeypatch):
    """An interrupt that comes within a destructor is printed and lost; nothing else may be."""
    printed = []
    monkeypatch.setattr(sys, "unraisablehook", lambda given: printed.append(given.exc_value))
    yield
    assert [error for error in printed if not isinstance(error, KeyboardInterrupt)] == []


def blosc_settings() -> tuple[int, bool]:
    """Blosc tells them only when they are set."""
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
    """Several changes in one commit, files of new and of old columns among them."""
    with blz.open(path, "a", durability=durability) as table, table.transaction() as tx:
        tx.append(OLD)
        tx.update({"a": 7}, where=[("a", "==", 1)])
        tx.add_column("c", 0.5)
        tx.delete([("a", "==", 2)])


def files_named(path: Path) -> set[Path]:
    """The files that the versions of the table name."""
    found = set()
    for name in (path / "meta/manifest").iterdir():
        with blz.open(path, version=int(name.stem)) as table:
            version = table._snapshot.version
            for index in range(len(version.schema)):
                parts = version.column(index)
                found |= {path / layout.part(parts.path, k) for k in parts.k if k}
    return found


def check_an_interrupted_change(tmp_path, line: int, durability: str) -> bool:
    """Interrupt changes there and look at what is left; False if they are over before that line."""
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


@pytest.mark.parametrize("durability", ["full", "process"])
def test_an_interrupt_at_any_line_of_changes_leaves_all_or_none_of_them(
    tmp_path, quick_locks, odd_settings, destructors, durability
):
    line = time.localtime().tm_yday % STEP
    while check_an_interrupted_change(tmp_path, line, durability):
        line += STEP
    assert line > 4000
