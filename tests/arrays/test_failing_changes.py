"""A change that fails: whatever stops it, the file has the old array or the new one."""

import os
import signal
import warnings
from contextlib import suppress

import numpy as np
import pytest

import blztable as blz
from blztable.storage.disk import REAL_DISK

VALUES = np.arange(5000)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a.blp"
    with blz.SuperChunk.create(path, "i8", chunk_shape=(1000,)) as array:
        array.append(VALUES)
    return path


def failing(monkeypatch, call, error, *, at):
    """Let one call of the disk fail, counted from 1; the calls before succeed."""
    real, calls = getattr(type(REAL_DISK), call), []

    def fail(self, *args):
        calls.append(args)
        if len(calls) == at:
            raise error
        return real(self, *args)

    monkeypatch.setattr(type(REAL_DISK), call, fail)


def is_whole(path):
    with blz.SuperChunk.open(path) as array:
        return array.verify() and np.array_equal(array, VALUES)


# A rewrite flushes the directory for the new file, and again after the rename.
@pytest.mark.parametrize("error", [OSError(5, "EIO"), KeyboardInterrupt()], ids=["EIO", "Ctrl-C"])
@pytest.mark.parametrize(
    ("call", "at"),
    [("sync_directory", 1), ("sync_directory", 2), ("rename", 1), ("sync_file", 1), ("close", 1)],
)
def test_a_rewrite_that_fails_never_removes_the_array(path, monkeypatch, call, at, error):
    array = blz.SuperChunk.open(path, "a")
    failing(monkeypatch, call, error, at=at)
    with suppress(blz.StorageError, KeyboardInterrupt):
        array.rewrite(reserve=100)
    monkeypatch.undo()
    array.close()
    assert [name.name for name in path.parent.iterdir()] == ["a.blp"]
    assert is_whole(path)


def test_a_rewrite_that_may_have_happened_closes_the_array(path, monkeypatch):
    array = blz.SuperChunk.open(path, "a")
    failing(monkeypatch, "sync_directory", OSError(5, "EIO"), at=2)
    with pytest.raises(blz.StorageError, match=r"a\.blp"):
        array.rewrite(reserve=100)
    with pytest.raises(blz.ClosedError):
        array.append(VALUES)


def test_a_rewrite_that_fails_before_the_rename_leaves_the_array_open(path, monkeypatch):
    with blz.SuperChunk.open(path, "a") as array:
        failing(monkeypatch, "sync_file", OSError(28, "no space left"), at=1)
        with pytest.raises(blz.StorageError):
            array.rewrite(reserve=100)
        array[4999] = 7
        assert array[-2:].tolist() == [4998, 7]


def test_ctrl_c_while_a_rewritten_file_takes_its_place_is_raised_behind_it(path, monkeypatch):
    real = type(REAL_DISK).rename

    def rename(self, *args):
        real(self, *args)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(type(REAL_DISK), "rename", rename)
    with blz.SuperChunk.open(path, "a") as array:
        with pytest.raises(KeyboardInterrupt):
            array.rewrite(reserve=100)
        array[4999] = 4999
        array.append([1])
    assert blz.SuperChunk.open(path)[-2:].tolist() == [4999, 1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.parametrize("is_new", [True, False])
def test_a_forked_child_changes_nothing(path, tmp_path, is_new):
    if is_new:
        path = tmp_path / "b.blp"
        array = blz.SuperChunk.create(path, "i8", chunk_shape=(1000,))
        array.append(VALUES)
    else:
        array = blz.SuperChunk.open(path, "a")
    before = path.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # The warning about forks with threads.
        child = os.fork()
    if not child:
        refused = 0
        try:
            for change in (
                lambda: array.append([1]),
                lambda: array.__setitem__(0, 1),
                lambda: array.resize(0),
                lambda: array.rewrite(),
                lambda: array.vlmeta.add("a", b""),
                lambda: array[0],
            ):
                try:
                    change()
                except blz.ReadOnlyError:
                    refused += 1
            array.close()
        finally:
            os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 6
    assert path.read_bytes() == before
    array.close()
    assert is_whole(path)
