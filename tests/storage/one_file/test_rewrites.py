"""A table in one file that is rewritten without its dead bytes, and a rewrite that cannot be."""

import errno
import os
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

import blztable as blz
from blztable.storage.disk import Disk
from blztable.storage.files import LocalFile
from blztable.storage.one_file import store as one_file
from blztable.storage.one_file.store import OneFileStore
from support.options import arguments

SECRET = "SECRET-0123456789-abcdefghijklmnop"
STORED = {"encoding": "plain", "compression": {"s": "lz4"}, "clevel": {"s": 0}}


def with_secret(rows=300_000):
    text = [SECRET if row == 77 else f"r{row}" for row in range(rows)]
    return pa.table({"n": np.arange(rows), "x": np.random.default_rng(1).random(rows), "s": text})


def has_secret(path):
    return SECRET.encode() in path.read_bytes()


def make(path, **options):
    blz.to_blz(
        with_secret(), path, **arguments(layout="file", row_group_rows=5000, **STORED, **options)
    )
    assert has_secret(path)


# Bug: the file was only rewritten if more than a twentieth of it was dead.
def test_vacuum_erases_the_bytes_of_one_row_from_a_large_file(tmp_path):
    path = tmp_path / "t.blz"
    make(path)
    with blz.open(path, "a") as table:
        table.delete([("n", "==", 77)])
        table.compact()
        assert table.vacuum(keep=1).versions
        assert len(table.versions()) == 1
        assert len(table) == 299_999
    assert not has_secret(path)


def test_vacuum_erases_what_an_earlier_commit_removed(tmp_path):
    path = tmp_path / "t.blz"
    make(path)
    with blz.open(path, "a") as table:
        table.configure(keep_versions=1, keep_seconds=0)
        table.update({"s": "gone"}, where=[("n", "==", 77)])
        table.attrs["next"] = 1
        assert has_secret(path)
        assert not table.vacuum(keep=2, older_than=3600).versions
    assert not has_secret(path)


def test_vacuum_leaves_a_file_without_removed_values_as_it_is(tmp_path):
    path = tmp_path / "t.blz"
    make(path)
    with blz.open(path, "a") as table:
        table.vacuum(keep=1)
        inode = path.stat().st_ino
        table.vacuum(keep=1)
        assert path.stat().st_ino == inode


def test_an_erased_value_stays_as_long_as_a_reader_has_its_version(tmp_path):
    path = tmp_path / "t.blz"
    make(path)
    with blz.open(path, "a") as table:
        with blz.open(path):
            table.delete([("n", "==", 77)])
            table.compact()
            assert table.vacuum(keep=1).pinned == (1,)
            assert has_secret(path)
        table.vacuum(keep=1)
    assert not has_secret(path)


class SmallDisk(Disk):
    """A disk with room for so many bytes in files beside the table; it counts what is written."""

    def __init__(self, path, room, *, is_told):
        self._path, self._room, self._is_told = path, room, is_told
        self.beside = 0

    def check_room(self, dir_fd, nbytes):
        if self._is_told and nbytes > self._room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def write(self, fd, buffers):
        if not os.path.samestat(os.fstat(fd), os.stat(self._path)):
            self.beside += sum(memoryview(one).nbytes for one in buffers)
            if self.beside > self._room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(fd, buffers)


class SizelessDisk(Disk):
    """A disk whose file system does not tell its size, as some network file systems."""

    def check_room(self, dir_fd, nbytes):
        with pytest.MonkeyPatch.context() as patched:
            fields = {"f_blocks": 0, "f_bavail": 0, "f_frsize": 4096}
            patched.setattr(os, "fstatvfs", lambda fd: SimpleNamespace(**fields))
            super().check_room(dir_fd, nbytes)


@pytest.fixture
def half_dead(tmp_path, tuned, monkeypatch):
    """Return a file of which the next commit finds more than a half dead."""
    tuned(dead_bytes=1 << 30)
    path = tmp_path / "t.blz"
    random = np.random.default_rng(0)
    blz.to_blz({"x": random.random(50_000)}, path, storage=blz.Storage(layout="file"))
    with blz.open(path, "a") as table:
        table.configure(keep_versions=1, keep_seconds=0)
        for _ in range(2):
            table.update({"x": random.random(50_000)})
    tuned(dead_bytes=1 << 10)
    monkeypatch.setattr(one_file, "_unwritten", {})
    return path


# Bug: zero free blocks counted as a full disk.
def test_a_file_is_rewritten_where_the_file_system_does_not_tell_its_size(half_dead):
    size = half_dead.stat().st_size
    with blz.open(OneFileStore(LocalFile(half_dead, disk=SizelessDisk())), "a") as table:
        table.vacuum()
    assert half_dead.stat().st_size < size


# Bug: each commit copied the live bytes until the disk was full, and told nobody.
@pytest.mark.parametrize("is_told", [False, True])
def test_a_rewrite_that_fails_is_told_once_and_not_tried_by_each_commit(half_dead, is_told):
    disk = SmallDisk(half_dead, 1 << 17, is_told=is_told)
    with blz.open(OneFileStore(LocalFile(half_dead, disk=disk)), "a") as table:
        size = half_dead.stat().st_size
        with pytest.warns(UserWarning, match=r"No space left on device.*call vacuum\(\)|vacuum"):
            table.append({"x": [1.0]})
        tried = disk.beside
        # What can be known before is not tried.
        assert (tried == 0) == is_told
        for _ in range(3):
            table.append({"x": [1.0]})
        assert disk.beside == tried
        # Another handle of the process, which was opened later, knows.
        with blz.open(half_dead, "a") as other:
            other.append({"x": [2.0]})
        assert os.listdir(half_dead.parent) == [half_dead.name]
        # Grown by half: tried again.
        table.update({"x": np.random.default_rng(1).random(len(table))})
        assert half_dead.stat().st_size < 1.5 * size
        with pytest.warns(UserWarning, match="keeps its dead bytes"):
            table.update({"x": np.random.default_rng(1).random(len(table))})
        with pytest.raises(blz.StorageError, match="No space left"):
            table.vacuum()
        disk._room = 1 << 30
        table.vacuum()
        assert half_dead.stat().st_size < size
        table.append({"x": [1.0]})
    with blz.open(half_dead) as table:
        assert table.verify().is_intact


def test_a_rewrite_that_finds_a_damaged_record_is_told_once(half_dead):
    places = one_file.at(half_dead)._current().listing.values()
    place = max(place for key, place in places if key.startswith("data/"))
    data = bytearray(half_dead.read_bytes())
    # The key before the value.
    data[place.position - 3] ^= 1
    half_dead.write_bytes(data)
    with blz.open(half_dead, "a") as table:
        with pytest.warns(UserWarning, match="the head of the record is damaged"):
            table.append({"x": [1.0]})
        table.append({"x": [1.0]})
        with pytest.raises(blz.CorruptError, match="the head of the record is damaged"):
            table.vacuum()
        assert len(table) == 50_002


def test_a_rewrite_that_finds_damaged_first_bytes_is_told(half_dead):
    data = bytearray(half_dead.read_bytes())
    data[60] ^= 1
    half_dead.write_bytes(data)
    with blz.open(half_dead, "a") as table:
        with pytest.warns(UserWarning, match="the first bytes of the file are damaged"):
            table.append({"x": [1.0]})
        assert len(table) == 50_001


def test_a_large_table_is_rewritten_by_vacuum_only(half_dead, tuned):
    tuned(rewritten_bytes=1000)
    size = half_dead.stat().st_size
    with blz.open(half_dead, "a") as table:
        table.append({"x": [1.0]})
        assert half_dead.stat().st_size > size
        table.vacuum()
        assert half_dead.stat().st_size < size


def sizes_of_updates(path, count):
    """Return the size of the file after each of so many updates of all rows."""
    random, sizes = np.random.default_rng(2), []
    with blz.open(path, "a") as table:
        for _ in range(count):
            table.update({"x": random.random(len(table))})
            sizes.append(path.stat().st_size)
    return sizes


def test_a_rewrite_that_succeeded_is_no_failure_that_defers_the_next_one(half_dead):
    assert max(sizes_of_updates(half_dead, 8)) < 1_100_000


def test_vacuum_forgets_that_a_rewrite_failed(half_dead):
    disk = SmallDisk(half_dead, 1 << 17, is_told=True)
    with (
        blz.open(OneFileStore(LocalFile(half_dead, disk=disk)), "a") as table,
        pytest.warns(UserWarning, match=r"call vacuum\(\)"),
    ):
        table.append({"x": [1.0]})
    with blz.open(half_dead, "a") as table:
        table.vacuum()
    assert half_dead.stat().st_size < 500_000
    assert max(sizes_of_updates(half_dead, 3)) < 1_100_000
