"""Disk: the calls that change or flush the file system, one method for each.

Knows nothing of keys or tables: names are relative to an open directory. A test passes its own
`Disk`, which records or refuses calls. Only this file calls fsync. A failed fsync is never retried:
the kernel has marked the pages clean, so a second call would succeed although the data are lost.
"""

import ctypes
import errno
import os
import re
import stat
import sys
from collections.abc import Sequence

from blztable.ownership import share
from blztable.storage.opening import Descriptor, opened
from blztable.storage.store import Buffer

if sys.platform == "darwin":
    import fcntl

# The start of the name of a file that is to get another name.
TEMPORARY = ".tmp-"
# Linux and macOS accept this many buffers in one writev. Each has 8 MiB at most, so a call stays
# below 2 GiB, which macOS refuses.
BUFFERS_PER_WRITE = 128

# Errors of a kernel, a sandbox or a file system (FUSE, SMB) that lacks the call.
NOT_SUPPORTED = {errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.ENOTTY}

_NEW_FILE = (
    os.O_WRONLY
    | os.O_CREAT
    | os.O_EXCL
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
)
_RENAME_NOREPLACE = 1


class Disk:
    """The real file system. It raises OSError."""

    def mkdir(self, name: str, dir_fd: int) -> None:
        """Make an empty directory; FileExistsError if the name is taken."""
        os.mkdir(name, dir_fd=dir_fd)

    def create(self, name: str, dir_fd: int) -> Descriptor:
        """Make an empty file and open it for writing; FileExistsError if the name is taken."""
        return opened(name, _NEW_FILE, dir_fd=dir_fd, mode=0o666)

    def share(self, fd: int, model: os.stat_result) -> None:
        """Give a new file or directory the owner and the permissions of a model."""
        share(fd, model)

    def write(self, fd: int, buffers: Sequence[Buffer]) -> None:
        """Append all buffers to the file."""
        views = [memoryview(buffer) for buffer in buffers]
        # An empty view cannot be cast, and a write of 0 bytes looks like a failure.
        views = [view.cast("B") for view in views if view.nbytes]
        first = 0
        while first < len(views):
            written = os.writev(fd, views[first : first + BUFFERS_PER_WRITE])
            if written == 0:
                raise OSError(errno.EIO, "the system wrote 0 bytes")
            while first < len(views) and written >= len(views[first]):
                written -= len(views[first])
                first += 1
            if written:
                views[first] = views[first][written:]

    def check_room(self, dir_fd: int, nbytes: int) -> None:
        """Raise OSError if the file system of a directory has no room for so many bytes.

        Some file systems do not tell their size: they state that they have no blocks at all.
        """
        status = os.fstatvfs(dir_fd)
        if status.f_blocks and nbytes > status.f_bavail * status.f_frsize:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def truncate(self, fd: int, size: int) -> None:
        """Remove the bytes of the file from this position on."""
        os.ftruncate(fd, size)

    def close(self, file: Descriptor) -> None:
        """Close a file after writes; network file systems and quotas report failures only here."""
        file.close_written()

    def sync_file(self, fd: int) -> None:
        """Flush the content of a file."""
        _fsync(fd)

    def sync_directory(self, fd: int) -> None:
        """Flush the names in a directory, if the file system has such a flush."""
        try:
            _fsync(fd)
        except OSError as error:
            if error.errno not in NOT_SUPPORTED:
                raise

    def sync_all(self, fd: int) -> bool:
        """Flush the whole file system of the descriptor; return False if that is not possible."""
        if _syncfs is None:
            return False
        if _syncfs(fd) == 0:
            return True
        if ctypes.get_errno() in NOT_SUPPORTED:
            return False
        raise _os_error()

    def link(self, old: str, new: str, dir_fd: int) -> None:
        """Give a file a second name; FileExistsError if the name is taken."""
        os.link(old, new, src_dir_fd=dir_fd, dst_dir_fd=dir_fd, follow_symlinks=False)

    def rename(self, old: str, new: str, dir_fd: int) -> None:
        """Rename a file, replacing the file of the new name."""
        os.rename(old, new, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)

    def rename_new(self, old: str, new: str, dir_fd: int) -> None:
        """Rename a file; FileExistsError if the new name is taken.

        This is atomic only where the kernel and the file system have RENAME_NOREPLACE; elsewhere
        the caller must hold a lock.
        """
        if _renameat2 is not None:
            if (
                _renameat2(dir_fd, os.fsencode(old), dir_fd, os.fsencode(new), _RENAME_NOREPLACE)
                == 0
            ):
                return
            if ctypes.get_errno() not in NOT_SUPPORTED:
                raise _os_error()
        if _exists(new, dir_fd):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
        os.rename(old, new, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)

    def unlink(self, name: str, dir_fd: int) -> None:
        """Remove a name; a directory raises IsADirectoryError."""
        try:
            os.unlink(name, dir_fd=dir_fd)
        except PermissionError:
            # macOS raises it for a directory.
            if stat.S_ISDIR(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name) from None
            raise

    def rmdir(self, name: str, dir_fd: int) -> None:
        """Remove an empty directory."""
        os.rmdir(name, dir_fd=dir_fd)


REAL_DISK = Disk()


def _fsync(fd: int) -> None:
    if sys.platform == "darwin":
        # On macOS fsync does not flush the cache of the drive.
        try:
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        except OSError as error:
            if error.errno not in NOT_SUPPORTED:
                raise
        else:
            return
    os.fsync(fd)


def _exists(name: str, dir_fd: int) -> bool:
    try:
        os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _os_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


def _libc_function(name: str) -> "ctypes._NamedFuncPointer | None":
    """Return a function of the C library that `os` lacks; None if the library lacks it too."""
    if sys.platform != "linux":
        return None
    return getattr(ctypes.CDLL(None, use_errno=True), name, None)


def _syncfs_reports_errors() -> bool:
    """True from Linux 5.8 on; before, syncfs returned 0 even if data were lost."""
    version = re.match(r"(\d+)\.(\d+)", os.uname().release) if sys.platform == "linux" else None
    return version is not None and (int(version[1]), int(version[2])) >= (5, 8)


_renameat2 = _libc_function("renameat2")
_syncfs = _libc_function("syncfs") if _syncfs_reports_errors() else None
