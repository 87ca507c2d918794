"""A disk that is full or fails: the old table or the new one stays, and nothing else.

The process lives on and reports the error; loss of power is in the other files of this folder.
"""

import errno
import fcntl
import itertools
import os
import resource
import shutil
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import blztable as blz
from blztable.storage import opening
from blztable.storage.disk import Disk
from blztable.storage.local import LocalStore

OLD = pa.table({"n": [1, 2], "text": ["a", None]})
NEW = pa.table({"x": np.arange(40_000), "y": np.arange(40_000) * 0.5, "b": [True] * 40_000})
# The directories and files that a creation makes first and leaves behind.
PREPARED = {"data", "meta", "meta/flight", "meta/lock", "meta/manifest"}


class FailingDisk(Disk):
    """A disk whose writes and flushes fail: at one call, or from that call on."""

    def __init__(self, at: int, number: int, *, for_ever: bool = False) -> None:
        self.calls: list[str] = []
        self._at = at
        self._number = number
        self._for_ever = for_ever
        self._counting = threading.Lock()

    @property
    def has_failed(self) -> bool:
        return len(self.calls) > self._at

    def _met(self, name: str) -> None:
        with self._counting:
            self.calls.append(name)
            met = len(self.calls) - 1
        if met == self._at or (self._for_ever and met > self._at):
            raise OSError(self._number, os.strerror(self._number))

    def close(self, fd):
        super().close(fd)
        self._met("close")

    def write(self, fd, buffers):
        # Some of the bytes are written.
        super().write(fd, [b"".join(map(bytes, buffers))[:5]])
        self._met("write")
        os.truncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)
        super().write(fd, buffers)


def _failing(name):
    def call(self, *args):
        self._met(name)
        return getattr(super(FailingDisk, self), name)(*args)

    return call


for _name in ("mkdir", "create", "sync_file", "sync_directory", "sync_all"):
    setattr(FailingDisk, _name, _failing(_name))
for _name in ("link", "rename", "rename_new"):
    setattr(FailingDisk, _name, _failing(_name))


def entries(path: Path) -> set[str]:
    """Return all names below `path` but the mirrors, which may exist or not."""
    mirrors = {"meta/sizes", "meta/storage", "meta/attributes"}
    return {found.relative_to(path).as_posix() for found in path.rglob("*")} - mirrors


@pytest.mark.parametrize(
    ("is_there", "number", "for_ever"),
    [
        pytest.param(False, errno.ENOSPC, False, id="creation, once"),
        pytest.param(False, errno.EIO, True, id="creation, for ever"),
        pytest.param(True, errno.ENOSPC, True, id="replacement, for ever"),
        pytest.param(True, errno.EDQUOT, False, id="replacement, a quota once"),
        pytest.param(True, errno.EIO, False, id="replacement, an error once"),
    ],
)
def test_a_disk_that_is_full_at_any_call_leaves_the_table_and_nothing_else(
    tmp_path, is_there, number, for_ever
):
    reason, outcomes = os.strerror(number), []
    for at in itertools.count():
        path = tmp_path / f"{at}.blz"
        if is_there:
            blz.to_blz(OLD, path, durability="process")
        before = entries(path) if is_there else set()
        disk = FailingDisk(at, number, for_ever=for_ever)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                blz.to_blz(
                    NEW, LocalStore(path, disk=disk), storage=blz.Storage(row_group_rows=20_000)
                )
            except (blz.StorageError, blz.CommitUnknownError) as error:
                caught = error
            else:
                caught = None
        assert all(
            reason in str(message)
            for message in [*(one.message for one in warned), caught or reason]
        )
        if isinstance(caught, blz.StorageError):
            assert caught.errno == number
            assert str(tmp_path) in str(caught)
            outcomes.append("failed")
        elif caught:
            outcomes.append("unknown")
        else:
            outcomes.append("warned" if warned else "done")
        if outcomes[-1] == "failed":
            if is_there:
                assert entries(path) == before, disk.calls
                assert blz.read_table(path) == OLD
            else:
                assert entries(path) <= PREPARED, disk.calls
                with pytest.raises(blz.TableNotFoundError):
                    blz.open(path)
        else:
            assert blz.read_table(path) == NEW
            assert not [name for name in entries(path) if ".tmp-" in name]
        if not disk.has_failed:
            break
        blz.to_blz(OLD, path, durability="process")
        assert blz.read_table(path) == OLD
    story = [outcome for outcome, _ in itertools.groupby(outcomes)]
    assert story == ["failed", "unknown", "warned", "done"]
    assert len(outcomes) > 20


# The calls of a table to the operating system: calls that only look, and calls that may have done
# their work when they report failure.
LOOKS = ["open", "fstat", "stat", "listdir", "pread", "preadv", "flock", "fcntl"]
CHANGES = ["mkdir", "link", "rename", "unlink", "writev", "fsync"]


class FailingCall:
    """One function of the operating system that fails when our code calls it for the n-th time.

    With `is_done` the call does its work before it reports failure.
    """

    def __init__(self, monkeypatch, module, name, at, *, is_done):
        self._real = getattr(module, name)
        self._left = at
        self._is_done = is_done
        self.has_failed = False
        monkeypatch.setattr(module, name, self)

    def __call__(self, *args, **options):
        if not sys._getframe(1).f_globals["__name__"].startswith("blztable."):
            return self._real(*args, **options)
        self._left -= 1
        if self._left != -1:
            return self._real(*args, **options)
        self.has_failed = True
        if self._is_done:
            result = self._real(*args, **options)
            if self._real in (os.open, fcntl.fcntl):
                os.close(result)
        raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.fixture(scope="module")
def with_old_versions(tmp_path_factory):
    """Make a table whose next commit merges row groups and removes a version with its files."""
    path = tmp_path_factory.mktemp("old") / "t.blz"
    for rows in (NEW[:5], OLD):
        blz.to_blz(rows, path, storage=blz.Storage(clevel=1))
    with blz.open(path, "a") as t, blz.open(path, version=1):
        t.configure(keep_versions=1)
        t.attrs["a"] = 1
    return path


@pytest.mark.parametrize(
    ("name", "is_done"),
    [
        *((name, False) for name in LOOKS + CHANGES),
        *((name, True) for name in ["close", *CHANGES]),
    ],
)
def test_any_call_of_the_system_may_fail_and_the_outcome_is_told(
    with_old_versions, tmp_path, tuned, monkeypatch, name, is_done
):
    # A new column needs a directory; a file of this size is not read in one call.
    noise = np.random.default_rng(0).integers(0, 1 << 62, 9_000)
    more = pa.table({"n": np.arange(9_000), "text": ["b"] * 9_000, "more": noise})
    both = pa.concat_tables([OLD, more], promote_options="default")
    module = fcntl if hasattr(fcntl, name) else os
    if name == "preadv":
        # Small bundles are read by another call. The function is bound once.
        tuned(bundled_bytes=0)
        module, name = opening, "_pread_into"
    if name == "fcntl":
        # Each created file gets a descriptor number that counts as a standard stream.
        above = max(map(int, os.listdir("/dev/fd"))) + 50
        monkeypatch.setattr(opening, "FIRST_NUMBER", above)
    for at in itertools.count():
        path = tmp_path / f"{at}.blz"
        shutil.copytree(with_old_versions, path)
        has_returned, error = False, None
        with warnings.catch_warnings(), monkeypatch.context() as patch:
            warnings.simplefilter("ignore")  # Warnings of failures behind a commit.
            call = FailingCall(patch, module, name, at, is_done=is_done)
            try:
                with blz.open(path, "a") as t:
                    t.append(more, evolve=True)
                    has_returned = True
                    assert t.to_arrow() == both
            except blz.BlzError as raised:
                error = raised
        found = blz.read_table(path)
        assert found == both or (found == OLD and not has_returned), (at, error)
        if not has_returned and found == both:
            assert isinstance(error, blz.CommitUnknownError), (at, error)
        if not call.has_failed:
            break
        shutil.rmtree(path)
    assert (found, error) == (both, None)
    assert at > 0


@pytest.mark.parametrize("most", [0, 300, 20_000])
@pytest.mark.parametrize("is_there", [False, True], ids=["creation", "replacement"])
def test_a_system_that_takes_no_larger_files_leaves_the_table_as_it_was(tmp_path, is_there, most):
    path = tmp_path / "t.blz"
    if is_there:
        blz.to_blz(OLD, path)
    before = entries(path) if is_there else set()
    # No encoding makes random numbers smaller.
    large = pa.table({"a": np.random.default_rng(0).integers(0, 1 << 62, 40_000)})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
    try:
        with pytest.raises(blz.StorageError, match=os.strerror(errno.EFBIG)) as caught:
            blz.to_blz(large, path, compression="zlib", storage=blz.Storage(clevel=0))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG
    assert entries(path) == before
    if is_there:
        assert blz.read_table(path) == OLD
    blz.to_blz(large, path)
    assert blz.read_table(path) == large
