"""The local store: faults of directories, like links, pipes, full disks, lost locks, open files."""

import ast
import contextlib
import ctypes
import errno
import fcntl
import gc
import os
import resource
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
from pathlib import Path

import pytest

from blztable.errors import BusyError, CorruptError, ReadOnlyError, StorageError
from blztable.format import layout
from blztable.storage import disk as disk_module
from blztable.storage import local, locks, opening
from blztable.storage.disk import Disk
from blztable.storage.local import LocalStore
from blztable.storage.store import KeyNotFound, KeyTaken
from support.processes import as_ordinary_user

KEY = "data/col5/__1__.bin"


@pytest.fixture
def root(tmp_path):
    return tmp_path / "t.blz"


@pytest.fixture
def store(root):
    store = LocalStore(root)
    store.prepare(*layout.PREPARED)
    store.put_new(KEY, [b"content"])
    yield store
    store.close()


class RefusingDisk(Disk):
    """A disk that answers chosen calls with an error."""

    def __init__(self, **refused):
        self.calls = []
        for name, number in refused.items():
            setattr(self, name, self._refusal(name, number))

    def _refusal(self, name, number):
        def refuse(*args):
            self.calls.append(name)
            raise OSError(number, os.strerror(number))

        return refuse


def python(script):
    """Return the command that runs the script with the package under test."""
    path = str(Path(local.__file__).parents[2])
    preamble = f"import sys; sys.path.insert(0, {path!r})\n"
    return [sys.executable, "-W", "error", "-c", preamble + textwrap.dedent(script)]


def open_fds():
    """Return the open descriptors of this process, without the one that lists them."""
    # Earlier tests may have left descriptors to the garbage collector.
    gc.collect()
    fds = {int(name) for name in os.listdir("/dev/fd")}
    for fd in list(fds):
        try:
            os.fstat(fd)
        except OSError:
            fds.remove(fd)
    return fds


# Opening


def test_a_store_that_is_not_used_touches_nothing(root):
    assert LocalStore(root).name == os.path.realpath(root)
    assert not root.exists()


def test_a_root_that_is_missing_is_empty(root):
    store = LocalStore(root)
    assert store.list_names("") == []
    assert store.list_names("meta/manifest") == []
    with pytest.raises(KeyNotFound):
        store.open("meta/lock")
    store.delete([KEY])
    with pytest.raises(StorageError, match="no such directory"):
        store.put_new(KEY, [b""])
    assert not root.exists()


def test_prepare_says_that_the_parent_is_missing(tmp_path):
    with pytest.raises(StorageError, match=r"no such directory; create it.*missing") as caught:
        LocalStore(tmp_path / "missing" / "t.blz").prepare(*layout.PREPARED)
    assert caught.value.errno == errno.ENOENT
    assert caught.value.filename == os.path.realpath(tmp_path / "missing")


def test_prepare_says_that_a_file_is_in_the_way(root):
    root.write_bytes(b"")
    with pytest.raises(CorruptError, match="expected a directory, found a regular file"):
        LocalStore(root).prepare(*layout.PREPARED)


def test_the_path_given_may_be_a_link(root, tmp_path, store):
    (tmp_path / "link").symlink_to(root)
    assert LocalStore(tmp_path / "link").get(KEY) == b"content"


def test_the_path_is_resolved_once(store, root, monkeypatch):
    monkeypatch.chdir(root.parent)
    relative = LocalStore("t.blz")
    monkeypatch.chdir("/")
    assert relative.get(KEY) == b"content"


@pytest.mark.parametrize("key", ["/etc/passwd", "data/../../x", "data//x", "data/.", "data/"])
def test_a_key_that_is_no_path_of_plain_names_is_our_own_mistake(store, key):
    with pytest.raises(AssertionError):
        store.open(key)


def test_a_link_in_place_of_a_file_is_not_followed(store, root, tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    (root / KEY).unlink()
    (root / KEY).symlink_to(tmp_path / "secret")
    for call in (store.open, store.get, lambda key: store.flush([key]), lock_shared(store)):
        with pytest.raises(CorruptError, match=f"{KEY}: expected .*, found a symbolic link"):
            call(KEY)


@pytest.mark.parametrize("level", ["data", "data/col5"])
def test_a_link_in_place_of_a_directory_is_not_followed(root, tmp_path, level):
    LocalStore(root).prepare(*layout.PREPARED)
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "col5").mkdir(parents=True)
    (elsewhere / "__1__.bin").write_bytes(b"secret")
    (elsewhere / "col5" / "__1__.bin").write_bytes(b"secret")
    if level == "data":
        (root / "data").rmdir()
    (root / level).symlink_to(elsewhere)
    store = LocalStore(root)
    for call in (
        lambda: store.open(KEY),
        lambda: store.put_new("data/col5/__2__.bin", [b""]),
        lambda: store.list_names("data/col5"),
        lambda: store.delete([KEY]),
    ):
        with pytest.raises(CorruptError, match=f"{level}: expected a directory, found a symbolic"):
            call()
    assert (elsewhere / "col5" / "__1__.bin").exists()


def test_deleting_a_link_leaves_what_it_leads_to(store, root, tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    (root / "data/link").symlink_to(tmp_path / "secret")
    store.delete(["data/link"])
    assert (tmp_path / "secret").exists()
    assert not (root / "data/link").is_symlink()


def lock_shared(store):
    return lambda key: store.lock(key, shared=True, timeout=0).close()


def test_a_fifo_in_place_of_a_file_does_not_hang(store, root):
    os.mkfifo(root / "data/fifo")
    for call in (store.open, lambda key: store.flush([key]), lock_shared(store)):
        with pytest.raises(CorruptError, match=r"data/fifo: expected .*, found a FIFO"):
            call("data/fifo")


def test_a_socket_in_place_of_a_file_is_refused(store, root, monkeypatch):
    # The path of a socket must be short.
    monkeypatch.chdir(root / "data")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind("socket")
    with pytest.raises(CorruptError, match="found a socket"):
        store.open("data/socket")


def test_a_directory_in_place_of_a_file_is_refused(store):
    with pytest.raises(CorruptError, match="expected a regular file, found a directory"):
        store.open("data/col5")


def test_a_file_in_place_of_a_directory_is_refused(store):
    with pytest.raises(CorruptError, match="expected a directory, found a regular file"):
        store.list_names(KEY)


def test_a_reader_sees_a_file_cut_short_as_short(store, root):
    with store.open(KEY) as reader:
        os.truncate(root / KEY, 3)
        assert reader.size == 7
        assert reader.read(0, 7) == b"con"
        target = bytearray(7)
        assert reader.read_into(0, memoryview(target)) == 3


def test_a_length_from_a_lying_file_allocates_nothing(store):
    assert store.get(KEY, 3, 2**62) == b"tent"
    assert store.get(KEY, 2**62, 5) == b""


def test_a_read_that_comes_in_pieces_is_put_together(store, monkeypatch):
    pread, preadv = os.pread, os.preadv
    monkeypatch.setattr(os, "pread", lambda fd, length, at: pread(fd, min(length, 2), at))
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: preadv(fd, [views[0][:2]], at))
    target = bytearray(7)
    with store.open(KEY) as reader:
        assert reader.read(0, 7) == b"content"
        assert reader.read_into(0, memoryview(target)) == 7
    assert target == b"content"


def test_reading_without_preadv_is_the_same(store, monkeypatch):
    monkeypatch.setattr(opening, "_pread_into", opening._pread_by_copy)
    target = bytearray(9)
    with store.open(KEY) as reader:
        assert reader.read_into(1, memoryview(target)) == 6
    assert target == b"ontent\0\0\0"


# Writing


def test_a_write_that_comes_in_pieces_is_put_together(store, monkeypatch):
    writev = os.writev

    def three_bytes(fd, views):
        return writev(fd, [b"".join(views)[:3]])

    monkeypatch.setattr(os, "writev", three_bytes)
    store.put_new("data/pieces", [b"ab", b"cdefg", b"", b"h"])
    assert store.get("data/pieces") == b"abcdefgh"


def test_a_disk_that_takes_no_bytes_does_not_hang(store, monkeypatch):
    monkeypatch.setattr(os, "writev", lambda fd, views: 0)
    with pytest.raises(StorageError, match="the system wrote 0 bytes"):
        store.put_new("data/x", [b"x"])


WRITES = {
    "put": lambda store, key: store.put(key, b"x" * 100_000),
    "put_new": lambda store, key: store.put_new(key, [b"x" * 100_000]),
    "publish": lambda store, key: store.publish(key, b"x" * 100_000, durable=True),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_file_too_large_for_the_disk_leaves_nothing(store, root, write):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, before[1]))
    try:
        with pytest.raises(StorageError) as caught:
            write(store, "data/large")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.errno == errno.EFBIG
    assert os.strerror(errno.EFBIG) in str(caught.value)
    assert caught.value.filename == str(root / "data/large")
    assert os.listdir(root / "data") == ["col5"]


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("call", ["write", "close"])
def test_a_full_disk_leaves_nothing(root, store, write, call):
    class FullDisk(Disk):
        def write(self, fd, buffers):
            super().write(fd, buffers)
            self.fail("write")

        def close(self, fd):
            super().close(fd)
            self.fail("close")

        def fail(self, name):
            if name == call:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = open_fds()
    full = LocalStore(root, disk=FullDisk())
    with pytest.raises(StorageError, match="No space left") as caught:
        write(full, "data/x")
    assert caught.value.errno == errno.ENOSPC
    full.close()
    assert os.listdir(root / "data") == ["col5"]
    assert open_fds() == before


def test_an_interrupted_write_leaves_nothing(root, store):
    class InterruptedDisk(Disk):
        def write(self, fd, buffers):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LocalStore(root, disk=InterruptedDisk()).put_new("data/x", [b"x"])
    assert os.listdir(root / "data") == ["col5"]


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_a_refused_write_says_read_only(root, store, write, number):
    refusing = LocalStore(root, disk=RefusingDisk(create=number))
    with pytest.raises(ReadOnlyError, match=rf"data/x: {os.strerror(number)}"):
        write(refusing, "data/x")


def test_a_refused_directory_says_read_only(root, store):
    refusing = LocalStore(root, disk=RefusingDisk(mkdir=errno.EROFS, unlink=errno.EROFS))
    with pytest.raises(ReadOnlyError):
        refusing.reserve("data/col6")
    with pytest.raises(ReadOnlyError):
        refusing.put_new("data/col6/x", [b""])
    with pytest.raises(ReadOnlyError):
        refusing.delete([KEY])


def test_a_parent_that_may_not_be_read_is_no_obstacle_to_a_table_that_is_there(
    root, store, tmp_path, monkeypatch
):
    real_open = os.open

    def refuse_parent(path, *args, **kwargs):
        if path == os.path.realpath(tmp_path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real_open(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse_parent)
    LocalStore(root).prepare(*layout.PREPARED)
    with pytest.raises(ReadOnlyError, match=r"other\.blz"):
        LocalStore(tmp_path / "other.blz").prepare(*layout.PREPARED)


def test_a_read_only_directory_is_read_and_locked_but_not_written():
    # Not below pytest's own folder, which only its owner may enter.
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "t.blz"
        store = LocalStore(root)
        store.prepare(*layout.PREPARED)
        store.put_new(KEY, [b"content"])
        directories = [Path(folder), root, *(path for path in root.rglob("*") if path.is_dir())]
        for directory in directories:
            directory.chmod(0o555)
        (root / KEY).chmod(0o444)  # Whatever the umask.
        for lock in (root / "meta").iterdir():
            lock.chmod(0o555)

        def check():
            copy = LocalStore(root)
            assert copy.get(KEY) == b"content"
            copy.lock("meta/lock", shared=True, timeout=0).close()
            copy.lock("meta/manifest", shared=True, timeout=0).close()
            with pytest.raises(ReadOnlyError):
                copy.put_new("data/col5/__2__.bin", [b""])
            with pytest.raises(ReadOnlyError):
                copy.put("meta/sizes", b"")

        try:
            as_ordinary_user(check)
        finally:
            for directory in directories:
                directory.chmod(0o755)


def test_a_directory_that_another_made_first_is_used(root, store):
    class BeatenDisk(Disk):
        def mkdir(self, name, dir_fd):
            os.mkdir(name, dir_fd=dir_fd)
            super().mkdir(name, dir_fd)

    beaten = LocalStore(root, disk=BeatenDisk())
    beaten.put_new("data/col6/col7/x", [b"x"])
    assert store.get("data/col6/col7/x") == b"x"
    assert not beaten.reserve("data/col8")
    LocalStore(root.parent / "new.blz", disk=BeatenDisk()).prepare(*layout.PREPARED)


# Publishing


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK])
@pytest.mark.parametrize("exclusive_rename", [True, False])
def test_where_links_are_refused_a_value_is_renamed(
    root, store, number, exclusive_rename, monkeypatch
):
    if not exclusive_rename:
        monkeypatch.setattr(disk_module, "_renameat2", None)
    other = LocalStore(root, disk=RefusingDisk(link=number))
    other.publish("meta/manifest/1", b"one", durable=True)
    with pytest.raises(KeyTaken):
        other.publish("meta/manifest/1", b"two", durable=True)
    assert store.get("meta/manifest/1") == b"one"
    assert os.listdir(root / "meta/manifest") == ["1"]


def test_a_link_that_fails_for_good_leaves_nothing(root, store):
    broken = LocalStore(root, disk=RefusingDisk(link=errno.EIO))
    with pytest.raises(StorageError, match=r"publishing.*meta/manifest/1"):
        broken.publish("meta/manifest/1", b"one", durable=True)
    assert os.listdir(root / "meta/manifest") == []


def test_a_temporary_name_that_stays_is_hidden_until_it_is_swept(root, store):
    forgetful = LocalStore(root, disk=RefusingDisk(unlink=errno.EIO))
    forgetful.publish("meta/manifest/1", b"one", durable=True)
    assert len(os.listdir(root / "meta/manifest")) == 2
    assert store.list_names("meta/manifest") == ["1"]
    store.sweep("meta/manifest")
    assert os.listdir(root / "meta/manifest") == ["1"]
    store.sweep("data/missing")


# Flushing


@pytest.mark.parametrize("count", [3, 40])
def test_a_failed_flush_is_told_and_not_tried_again(root, store, count):
    keys = [f"data/col{i}/x" for i in range(count)]
    for key in keys:
        store.put_new(key, [b"x"])
    disk = RefusingDisk(sync_file=errno.EIO)
    with pytest.raises(StorageError, match="flushing") as caught:
        LocalStore(root, disk=disk).flush(keys[:1] if count == 3 else keys)
    assert caught.value.errno == errno.EIO
    assert len(disk.calls) == 1 if count == 3 else 1 <= len(disk.calls) <= count


class MeetingDisk(Disk):
    """A disk that flushes only in pairs, both at once, and records all flushes."""

    def __init__(self):
        self.calls = []
        self._both = threading.Barrier(2, timeout=20)

    def sync_file(self, fd):
        self._both.wait()
        self.calls.append("file")

    def sync_directory(self, fd):
        self.calls.append("directory")


def test_some_files_are_flushed_side_by_side_and_their_names_after_all_of_them(root, store):
    keys = [f"data/col{i}/x" for i in range(8)]
    for key in keys:
        store.put_new(key, [b"x"])
    disk = MeetingDisk()
    LocalStore(root, disk=disk).flush(keys)
    assert disk.calls == ["file"] * 8 + ["directory"] * 10


def test_no_thread_is_left_by_a_flush(store):
    keys = [f"data/col{i}/x" for i in range(20)]
    for key in keys:
        store.put_new(key, [b"x"])
    before = threading.active_count()
    store.flush(keys)
    assert threading.active_count() == before


def test_files_are_flushed_while_the_interpreter_shuts_down(root, store):
    script = f"""
        import atexit
        from blztable.storage.local import LocalStore

        store = LocalStore({str(root)!r})
        keys = [f"data/col{{i}}/x" for i in range(20)]

        def finish():
            for key in keys:
                store.put_new(key, [b"x"])
            store.flush(keys)
            store.put_new("done", [])

        atexit.register(finish)
    """
    subprocess.run(python(script), check=True, timeout=60)
    assert store.get("done") == b""


def test_a_failed_flush_of_names_is_told(root, store):
    disk = RefusingDisk(sync_directory=errno.EIO)
    with pytest.raises(StorageError):
        LocalStore(root, disk=disk).flush_names("data")
    with pytest.raises(StorageError):
        LocalStore(root, disk=disk).flush([KEY])


def test_a_publish_that_cannot_be_flushed_is_not_there(root, store):
    broken = LocalStore(root, disk=RefusingDisk(sync_file=errno.EIO))
    with pytest.raises(StorageError):
        broken.publish("meta/manifest/1", b"one", durable=True)
    assert os.listdir(root / "meta/manifest") == []
    broken.publish("meta/manifest/1", b"one", durable=False)


def test_a_file_system_that_knows_no_flush_of_names_is_borne(store, monkeypatch):
    def fsync(fd):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "fsync", fsync)
    store.flush_names("data")
    with pytest.raises(StorageError):
        store.flush([KEY])


class CountingDisk(Disk):
    def __init__(self, *, has_sync_all):
        self.has_sync_all = has_sync_all
        self.calls = []

    def sync_file(self, fd):
        self.calls.append("file")

    def sync_directory(self, fd):
        self.calls.append("directory")

    def sync_all(self, fd):
        self.calls.append("all")
        return self.has_sync_all


def test_each_directory_is_flushed_once_and_after_the_files(root, store):
    keys = [f"data/col{i % 2}/{i}" for i in range(6)]
    for key in keys:
        store.put_new(key, [b"x"])
    disk = CountingDisk(has_sync_all=True)
    LocalStore(root, disk=disk).flush(keys)
    assert disk.calls == ["file"] * 6 + ["directory"] * 4  # col0, col1, data and the root


def test_many_files_are_flushed_by_one_call_where_there_is_one(root, store):
    keys = [f"data/col0/{i}" for i in range(local.SYNC_ALL_ABOVE + 1)]
    for key in keys:
        store.put_new(key, [b"x"])
    disk = CountingDisk(has_sync_all=True)
    LocalStore(root, disk=disk).flush(keys)
    assert disk.calls == ["all"]
    disk = CountingDisk(has_sync_all=False)
    LocalStore(root, disk=disk).flush(keys)
    assert disk.calls == ["all"] + ["file"] * len(keys) + ["directory"] * 3


@pytest.mark.skipif(disk_module._syncfs is None, reason="no syncfs here")
def test_the_real_flush_of_everything_works_and_fails_by_its_error(store, root):
    keys = [f"data/col0/{i}" for i in range(local.SYNC_ALL_ABOVE + 1)]
    for key in keys:
        store.put_new(key, [b"x"])
    store.flush(keys)
    with pytest.raises(OSError, match="Bad file descriptor"):
        Disk().sync_all(-1)


def test_where_the_flush_of_everything_is_unknown_files_are_flushed(store, monkeypatch):
    def unknown(fd):
        ctypes.set_errno(errno.ENOSYS)
        return -1

    for syncfs in (None, unknown):
        monkeypatch.setattr(disk_module, "_syncfs", syncfs)
        assert Disk().sync_all(store._directories._keep("").fd) is False


# Locks


def test_a_lock_looks_again_after_the_file_was_replaced(store, root, monkeypatch):
    """Another process replaces the lock file between our open and our lock."""
    flock = fcntl.flock
    replaced = []

    def replace_first(fd, operation):
        if not replaced:
            replaced.append(True)
            (root / "meta/lock").rename(root / "meta/old")
            (root / "meta/lock").write_bytes(b"")
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", replace_first)
    with (
        store.lock("meta/lock", shared=False, timeout=10),
        pytest.raises(BusyError),
    ):
        store.lock("meta/lock", shared=False, timeout=0)


def test_a_file_that_is_replaced_again_and_again_ends_in_busy(store, root, monkeypatch):
    flock = fcntl.flock

    def replace(fd, operation):
        (root / "meta/lock").rename(root / "meta/old")
        (root / "meta/lock").write_bytes(b"")
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", replace)
    with pytest.raises(BusyError, match="meta/lock"):
        store.lock("meta/lock", shared=True, timeout=0.05)


def test_no_wait_is_longer_than_what_is_left(store, monkeypatch):
    now = 100.0
    slept = []

    def sleep(seconds):
        nonlocal now
        slept.append(seconds)
        now += seconds

    monkeypatch.setattr(locks.time, "monotonic", lambda: now)
    monkeypatch.setattr(locks.time, "sleep", sleep)
    with store.lock("meta/lock", shared=False, timeout=0):
        with pytest.raises(BusyError, match=r"after 1\.23 seconds"):
            store.lock("meta/lock", shared=False, timeout=1.23)
        assert sum(slept) == pytest.approx(1.23)
        assert max(slept) <= locks.SLEEP_LONGEST


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP])
def test_where_nothing_can_be_locked_only_a_shared_lock_is_granted(store, monkeypatch, number):
    def flock(fd, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    store.lock("meta/lock", shared=True, timeout=0).close()
    with pytest.raises(StorageError, match="locking") as caught:
        store.lock("meta/lock", shared=False, timeout=0)
    assert caught.value.errno == number


@pytest.fixture
def only_writable(monkeypatch):
    """Imitate flock of NFS: an exclusive lock needs a descriptor that is open for writing."""
    real = fcntl.flock

    def flock(fd, operation):
        access = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
        is_file = stat.S_ISREG(os.fstat(fd).st_mode)
        if is_file and operation & fcntl.LOCK_EX and access == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        real(fd, operation)

    monkeypatch.setattr(fcntl, "flock", flock)


@pytest.mark.parametrize("key", ["meta/lock", "meta/manifest"])
def test_an_exclusive_lock_of_a_file_is_on_a_descriptor_open_for_writing(store, only_writable, key):
    with store.lock(key, shared=False, timeout=0), pytest.raises(BusyError):
        store.lock(key, shared=False, timeout=0)


def test_a_shared_lock_is_on_a_descriptor_open_for_reading(store):
    with store.lock("meta/lock", shared=True, timeout=0) as lock:
        assert fcntl.fcntl(lock.fileno(), fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_file_that_may_not_be_written_is_locked_where_reading_it_is_enough(
    store, monkeypatch, number
):
    forbid_writing(monkeypatch, number)
    with store.lock("meta/lock", shared=False, timeout=0), pytest.raises(BusyError):
        store.lock("meta/lock", shared=True, timeout=0)


def test_a_file_that_may_not_be_written_is_busy_to_a_try_and_read_only_to_a_wait(
    store, monkeypatch, only_writable
):
    forbid_writing(monkeypatch, errno.EACCES)
    before = open_fds()
    with pytest.raises(BusyError, match="only to a process that may write"):
        store.lock("meta/lock", shared=False, timeout=0)
    with pytest.raises(ReadOnlyError, match="only to a process that may write"):
        store.lock("meta/lock", shared=False, timeout=10)
    assert open_fds() == before


def forbid_writing(monkeypatch, number):
    """Refuse to open any file for writing."""
    real = os.open

    def reading(path, flags, *args, **options):
        if flags & os.O_ACCMODE != os.O_RDONLY:
            raise OSError(number, os.strerror(number))
        return real(path, flags, *args, **options)

    monkeypatch.setattr(os, "open", reading)


def test_a_lock_keeps_another_process_out_and_dies_with_it(store, root):
    script = f"""
        from blztable.storage.local import LocalStore
        lock = LocalStore({str(root)!r}).lock("meta/lock", shared=False, timeout=0)
        print("locked", flush=True)
        input()
    """
    with subprocess.Popen(
        python(script),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(BusyError):
            store.lock("meta/lock", shared=True, timeout=0.01)
        other.kill()
    store.lock("meta/lock", shared=False, timeout=10).close()


def in_child(work):
    """Run `work` in a fork of this process; return True if it returned True."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if work() is True else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_child_reads_with_what_it_inherited(store):
    with store.open(KEY) as reader:
        assert in_child(lambda: reader.read(0, 7) == store.get(KEY) == b"content")


@pytest.mark.parametrize(("shared", "inherited"), [(False, True), (True, True), (True, False)])
def test_a_child_that_lives_on_holds_shared_locks_unless_told_not_to(store, shared, inherited):
    ready, go = os.pipe(), os.pipe()
    held = store.lock("meta/lock", shared=shared, timeout=0, inherited=inherited)
    pid = os.fork()
    if pid == 0:
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        os._exit(0)
    try:
        os.read(ready[0], 1)
        with pytest.raises(BusyError):
            store.lock("meta/lock", shared=False, timeout=0)
        held.close()
        if shared and inherited:
            with pytest.raises(BusyError):
                store.lock("meta/lock", shared=False, timeout=0)
        else:
            store.lock("meta/lock", shared=False, timeout=0).close()
    finally:
        os.write(go[1], b"x")
        os.waitpid(pid, 0)
        for fd in (*ready, *go):
            os.close(fd)
    store.lock("meta/lock", shared=False, timeout=0).close()


def test_a_lock_closed_in_the_child_stays_with_the_parent(store):
    with store.lock("meta/lock", shared=True, timeout=0) as held:
        assert in_child(lambda: held.close() is None)
        with pytest.raises(BusyError):
            store.lock("meta/lock", shared=False, timeout=0)


# Permissions


@pytest.fixture
def umask():
    """Return the function that sets the umask; the old umask is restored at the end."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def modes(root):
    """Return the permissions of all directories and of all files."""
    found = [(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in root.rglob("*")]
    return tuple({mode for is_dir, mode in found if is_dir is wanted} for wanted in (True, False))


def write_all_ways(store):
    store.prepare(*layout.PREPARED, durable=False)
    store.put_new("data/col5/__1__.bin", [b"content"])
    store.put_new("data/col5/col6/__1__.bin", [b"content"])
    store.publish("meta/manifest/1", b"one", durable=False)
    store.put("meta/sizes", b"{}")
    assert store.reserve("data/col7")


@pytest.mark.parametrize("mask", [0o077, 0o022, 0o002, 0o007])
@pytest.mark.parametrize(
    ("mode", "files"), [(0o775, 0o664), (0o755, 0o644), (0o700, 0o600), (0o777, 0o666)]
)
def test_what_is_made_in_a_table_has_the_permissions_of_its_root(root, umask, mask, mode, files):
    root.mkdir()
    root.chmod(mode)
    umask(mask)
    write_all_ways(LocalStore(root))
    assert modes(root) == ({mode}, {files})


@pytest.mark.parametrize(("mask", "mode", "files"), [(0o022, 0o755, 0o644), (0o027, 0o750, 0o640)])
def test_the_root_has_the_permissions_that_the_umask_leaves(root, umask, mask, mode, files):
    root.parent.chmod(0o777)
    umask(mask)
    write_all_ways(LocalStore(root))
    assert stat.S_IMODE(root.stat().st_mode) == mode
    assert modes(root) == ({mode}, {files})


def test_the_group_that_a_directory_hands_down_is_handed_down_on(root, umask):
    root.mkdir()
    root.chmod(0o2770)
    umask(0o077)
    # Linux also inherits the set-group-ID bit, macOS only the group.
    (root / "data").mkdir()
    handed_down = (root / "data").stat().st_mode & stat.S_ISGID
    (root / "data").rmdir()
    write_all_ways(LocalStore(root))
    assert modes(root) == ({0o770 | handed_down}, {0o660})


def test_a_writer_keeps_its_own_permissions_in_a_directory_that_its_owner_may_not_write(
    root, umask
):
    root.mkdir()
    root.chmod(0o577)
    umask(0o077)
    write_all_ways(LocalStore(root))
    assert modes(root) == ({0o777}, {0o666})


def test_permissions_that_fit_are_not_touched(root, umask, monkeypatch):
    changed = []
    monkeypatch.setattr(os, "fchmod", lambda *args: changed.append(args))
    write_all_ways(LocalStore(root))
    assert changed == []
    umask(0o077)
    LocalStore(root).put("meta/sizes", b"{}")
    assert [mode for _, mode in changed] == [0o644]


def test_where_permissions_cannot_be_changed_files_are_written_all_the_same(
    root, umask, monkeypatch
):
    def refused(fd, mode):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    root.mkdir(0o775)
    umask(0o077)
    monkeypatch.setattr(os, "fchmod", refused)
    store = LocalStore(root)
    write_all_ways(store)
    assert store.get("meta/manifest/1") == b"one"
    assert modes(root) == ({0o700}, {0o600})


# Descriptors


def test_no_descriptor_is_leaked(store, root):
    store.list_names("")
    store.get(KEY)
    before = open_fds()
    os.mkfifo(root / "data/fifo")
    for _ in range(3):
        store.get(KEY)
        store.flush([KEY, "meta/lock"])
        store.put("meta/sizes", b"")
        store.reserve("data/a/b/c")
        store.list_names("data/a/b")
        store.lock("meta/manifest", shared=True, timeout=0)
        store.open(KEY)
        for call in (store.open, lock_shared(store), lambda key: store.flush([key])):
            for key in ("data/col5", "data/fifo", "data/a/missing", "data/fifo/x", "data/a/b/x"):
                with contextlib.suppress(KeyNotFound, CorruptError):
                    call(key)
        with store.lock("meta/lock", shared=False, timeout=0), pytest.raises(BusyError):
            store.lock("meta/lock", shared=True, timeout=0)
        store.delete(["data/a/b/c", "data/a/b/missing", "data/missing/x"])
    assert open_fds() == before


def test_a_store_keeps_four_descriptors_and_gives_them_back(store, root):
    store.close()
    before = open_fds()
    for i in range(50):
        store.put_new(f"data/many{i}/x", [b""])
        store.get(f"data/many{i}/x")
    store.list_names("meta")
    assert len(open_fds() - before) == 4
    store.close()
    assert open_fds() == before
    LocalStore(root).get(KEY)
    assert open_fds() == before


WITHOUT_STREAMS = """
import os
from blztable.errors import BlzError
from blztable.storage.disk import Disk
from blztable.format import layout
from blztable.storage.local import LocalStore

class PrintedInto(Disk):
    streams = ()

    def write(self, fd, buffers):
        for number in self.streams:
            try:
                os.write(number, b"progress 10%")
            except OSError:
                pass  # Closed, or open for reading.
        super().write(fd, buffers)

told = os.dup(2)
disk = PrintedInto()
store = LocalStore(sys.argv[1], disk=disk)
store.prepare(*layout.PREPARED)
store.list_names("data")  # Its directories are open now, so a file gets the lowest number.
disk.streams = (0, 1, 2)
for fd in disk.streams:
    os.close(fd)
store.put_new("data/col5/__1__.bin", [b"content"])
store.publish("meta/manifest/1", b"manifest", durable=True)
store.put("meta/sizes", b"sizes")
locks = [store.lock(key, shared=False, timeout=0) for key in ("meta/lock", "meta/manifest/1")]
written = [os.get_inheritable(lock.fileno()) or lock.fileno() for lock in locks]
os.write(told, repr(written).encode())
"""


def test_a_process_without_standard_streams_prints_into_no_file(root):
    command = [*python(WITHOUT_STREAMS), str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(type(fd) is int and fd > 2 for fd in ast.literal_eval(done.stderr))
    found = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    assert {key: path.read_bytes() for key, path in found.items()} == {
        KEY: b"content",
        "meta/manifest/1": b"manifest",
        "meta/sizes": b"sizes",
        "meta/lock": b"",
        "meta/flight": b"",
    }


class ClosingDisk(Disk):
    """A disk that closes the store during a write, as another thread might."""

    def __init__(self):
        self.others = []

    def write(self, fd, buffers):
        self.store.close()
        self.others += [os.open(os.devnull, os.O_RDONLY) for _ in range(5)]
        super().write(fd, buffers)


def test_a_store_closed_in_the_midst_of_a_call_closes_no_directory_that_is_in_use(root, store):
    store.close()
    before = open_fds()
    disk = ClosingDisk()
    disk.store = LocalStore(root, disk=disk)
    disk.store.list_names("meta")
    disk.store.put("meta/sizes", b"written")
    disk.store.put_new("data/col6/__1__.bin", [b"new"])
    for fd in disk.others:
        os.close(fd)
    assert disk.store.get("meta/sizes") == b"written"
    assert disk.store.get("data/col6/__1__.bin") == b"new"
    disk.store.close()
    assert open_fds() == before


def test_threads_use_a_store_that_others_close_all_the_time(store):
    before = len(open_fds())
    is_over = threading.Event()

    def close():
        while not is_over.is_set():
            store.close()

    closing = threading.Thread(target=close)
    closing.start()
    try:
        for number in range(300):
            store.put("meta/sizes", b"%d" % number)
            assert store.get("meta/sizes") == b"%d" % number
            assert store.get(KEY) == b"content"
            assert store.list_names("data") == ["col5"]
    finally:
        is_over.set()
        closing.join()
    store.close()
    assert len(open_fds()) <= before


def test_threads_that_come_first_together_open_each_level_once(root, store):
    gc.collect()  # Descriptors that other tests left would be closed meanwhile.
    for _ in range(20):
        fresh = LocalStore(root)
        before = open_fds()
        barrier = threading.Barrier(4)

        def read(fresh=fresh, barrier=barrier):
            barrier.wait()
            assert fresh.get(KEY) == b"content"

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # The root, "data" and the directory of the file.
        assert len(open_fds() - before) == 3
        fresh.close()


def test_descriptors_are_not_inherited_by_programs(store):
    with store.open(KEY), store.lock("meta/lock", shared=True, timeout=0) as lock:
        kept = [directory.fd for directory in store._directories._kept.values()]
        for fd in [*kept, lock.fileno()]:
            assert not os.get_inheritable(fd)


def test_on_windows_the_module_imports_and_a_store_says_what_it_needs():
    script = """
        import asyncio, concurrent.futures, ctypes, os, pathlib, secrets, sys, threading
        # What blztable stands on is real; on Windows it would be another build.
        import blosc, isal.isal_zlib, numpy, pandas, pyarrow, pyarrow.compute
        sys.platform = "win32"
        sys.modules["fcntl"] = None
        for name in dir(os):
            if name in ("preadv", "writev", "pread", "register_at_fork", "mkfifo", "uname") or (
                name.startswith("O_")
                and name not in ("O_RDONLY", "O_WRONLY", "O_RDWR", "O_CREAT", "O_EXCL")
            ):
                delattr(os, name)
        from blztable.errors import StorageError
        from blztable.storage.local import LocalStore
        from blztable.storage.memory import RamStore
        RamStore().prepare(["data"], ["meta/lock"])
        try:
            LocalStore("x")
        except StorageError as error:
            print(error)
    """
    done = subprocess.run(
        python(script),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert "Linux or macOS" in done.stdout


def test_a_directory_that_was_removed_and_made_again_is_read(tmp_path):
    store, other = LocalStore(tmp_path), LocalStore(tmp_path)
    store.put("data/a/1", b"first")
    assert store.get("data/a/1") == b"first"
    shutil.rmtree(tmp_path / "data" / "a")
    other.put("data/a/2", b"second")
    assert store.get("data/a/2") == b"second"
    with pytest.raises(KeyNotFound):
        store.get("data/a/1")
