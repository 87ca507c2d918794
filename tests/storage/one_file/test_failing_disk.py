"""A table in one file on a disk that fails: nothing is promised behind a failure."""

import errno
import os

import pytest

import blztable as blz
from blztable.storage.disk import Disk
from blztable.storage.files import LocalFile
from blztable.storage.one_file import records
from blztable.storage.one_file.store import OneFileStore

ROWS = {"n": [1, 2, 3]}


class FailingDisk(Disk):
    """A disk that fails at the calls of these numbers."""

    def __init__(self, **fails: set[int]) -> None:
        self.fails = fails
        self.calls: list[str] = []

    def _met(self, name: str) -> None:
        number = self.calls.count(name)
        self.calls.append(name)
        if number in self.fails.get(name, ()):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def sync_file(self, fd):
        self._met("sync_file")
        super().sync_file(fd)

    def write(self, fd, buffers):
        number = self.calls.count("write")
        if number in self.fails.get("write", ()):
            super().write(fd, [b"half"])
        self._met("write")
        super().write(fd, buffers)

    def truncate(self, fd, size):
        self._met("truncate")
        super().truncate(fd, size)


@pytest.fixture
def path(tmp_path):
    blz.to_blz(ROWS, tmp_path / "t.blz", storage=blz.Storage(layout="file"))
    return tmp_path / "t.blz"


def on(path, **fails):
    disk = FailingDisk(**fails)
    return disk, OneFileStore(LocalFile(path, disk=disk))


def begun(store, rows):
    """Return a transaction that has written rows and still has the file locked."""
    transaction = blz.open(store, "a").transaction()
    transaction.__enter__().append(rows)
    return transaction


# Bug: the second transaction flushed again. The kernel had marked the pages clean, so that flush
# succeeded and the commit was acknowledged, although its rows may be lost.
def test_a_flush_that_failed_is_not_tried_again_by_another_transaction(path):
    disk, store = on(path, sync_file={0})
    other = begun(store, {"n": [9]})
    with pytest.raises(blz.StorageError, match="flushing"):
        blz.to_blz({"n": [4]}, store, mode="a")
    with pytest.raises(blz.StorageError, match="a flush failed"):
        other.__exit__(None, None, None)
    assert disk.calls.count("sync_file") == 1
    assert blz.read_table(path).to_pydict() == ROWS
    # Its bytes were cut off. What is written now is new.
    blz.to_blz({"n": [5]}, store, mode="a")
    assert blz.read_table(path).to_pydict() == {"n": [1, 2, 3, 5]}


# Bug: the seal followed a commit whose flush had failed. If the commit was lost and the seal was
# not, the table was called damaged instead of showing the version before.
def test_a_commit_whose_flush_failed_gets_no_seal(path):
    _, store = on(path, sync_file={1})
    with pytest.raises(blz.CommitUnknownError):
        blz.to_blz({"n": [4]}, store, mode="a")
    data = bytearray(path.read_bytes())
    foot = data.rindex(records.FOOT_MAGIC)
    assert foot + records.FOOT_BYTES == len(data)
    assert blz.read_table(path).to_pydict() == {"n": [1, 2, 3, 4]}
    data[foot - 100 : foot] = bytes(100)
    with pytest.warns(UserWarning, match="never finished, or damaged"):
        assert blz.read_table(bytes(data)).to_pydict() == ROWS


def test_bytes_that_could_not_be_removed_are_the_last_ones_of_a_process(path):
    _, store = on(path, write={1}, truncate={0})
    other = begun(store, {"n": [9]})
    with pytest.raises(blz.StorageError, match="writing"):
        blz.to_blz({"n": [4]}, store, mode="a")
    with pytest.raises(blz.StorageError, match="a write or a flush failed"):
        other.__exit__(None, None, None)
    assert blz.read_table(path).to_pydict() == ROWS
    blz.to_blz({"n": [5]}, store, mode="a")
    assert blz.read_table(path).to_pydict() == {"n": [1, 2, 3, 5]}


@pytest.mark.parametrize("number", range(5))
def test_a_creation_whose_flush_fails_leaves_no_file_or_says_that_it_is_unknown(tmp_path, number):
    disk, store = on(tmp_path / "t.blz", sync_file={number})
    try:
        blz.to_blz(ROWS, store)
    except blz.CommitUnknownError:
        assert blz.read_table(tmp_path / "t.blz").to_pydict() == ROWS
    except blz.StorageError:
        assert os.listdir(tmp_path) == []
    else:
        assert disk.calls.count("sync_file") <= number


# The engine flushes files before it publishes; the promise is the store's.
def test_a_durable_publication_flushes_what_was_written_before_it(path):
    disk, store = on(path)
    store.put_new("more/one", [b"1"])
    disk.calls.clear()
    store.publish("more/two", b"2", durable=True)
    assert disk.calls[:2] == ["sync_file", "write"]
