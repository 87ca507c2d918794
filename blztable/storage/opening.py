"""Opening: open files of untrusted tables, and keep their descriptors; never hang.

Knows nothing of keys; `where` is the path of the file in a message. Only this file turns an OSError
into one of our errors.

File descriptors: open them, keep them above the standard streams, and close them. A signal handler
may raise between any two steps of Python code, also between the call that opens a file and the line
that stores its number, and at the first step of a method `__del__`. So a number goes from the call
to its owner, and from its owner to the call that closes it, in one step of Python: the functions of
C in between run no Python code.
"""

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain, repeat
from operator import attrgetter
from typing import Any

from blztable.closing import Closing
from blztable.errors import AccessError, BlzError, CorruptError, ReadOnlyError, StorageError
from blztable.storage.store import KeyNotFound, KeyTaken

if sys.platform != "win32":
    import fcntl

# 0, 1 and 2 are standard input, output and error.
FIRST_NUMBER = 3


class Descriptor(Closing):
    """The owner of one descriptor, which is closed with it or when it is collected.

    Attributes
    ----------
    fd : int
        The number; -1 once it is closed.
    """

    __slots__ = ("_closing", "_collecting", "fd")

    def __init__(self, opening: Callable[[Any], int], argument: object) -> None:
        fds: list[int] = []
        # Both iterators take the number from `left`, so one of them closes it, and once.
        left = iter(fds)
        self._closing: Iterator[None] = chain(map(os.close, left), repeat(None))
        # Of a file that is collected, nobody could be told an error: `closerange` ignores it.
        ends = map((1).__add__, fds)
        self._collecting: Iterator[None] = chain(map(os.closerange, left, ends), repeat(None))
        fds.extend(map(opening, (argument,)))
        (self.fd,) = fds

    def close(self) -> None:
        """Close a descriptor that nothing was written to; closing twice is harmless.

        An error is ignored: the descriptor is closed all the same and no data can be lost. The
        error must not look like a failure of the operation, which may be a finished commit.
        """
        # Not `suppress`, which costs more than the close.
        try:  # noqa: SIM105
            self.close_written()
        except OSError:
            pass

    def close_written(self) -> None:
        """Close a file after writes; OSError tells that they failed."""
        # Another file may get the number as soon as this one is closed.
        self.fd = -1
        next(self._closing)

    # It is called without an argument: the method of the iterator takes none.
    __del__ = property(attrgetter("_collecting.__next__"))


def opened(name: str, flags: int, *, dir_fd: int | None = None, mode: int = 0o777) -> Descriptor:
    """Open a file or directory; the number is not that of a standard stream.

    A process may have closed its standard streams. A later `print` would write into our file.
    """
    made = Descriptor(partial(os.open, name, mode=mode, dir_fd=dir_fd), flags)
    if made.fd >= FIRST_NUMBER:
        return made
    with made:
        return Descriptor(partial(fcntl.fcntl, made.fd, fcntl.F_DUPFD_CLOEXEC), FIRST_NUMBER)


class DirectoryInUse(Closing):
    """A directory in use. `close` releases it; the store may keep it open."""

    __slots__ = ("_open",)

    def __init__(self, directory: Descriptor) -> None:
        self._open: Descriptor | None = directory

    @property
    def descriptor(self) -> Descriptor:
        """The owner of the descriptor."""
        assert self._open is not None
        return self._open

    @property
    def fd(self) -> int:
        """The descriptor."""
        return self.descriptor.fd

    def close(self) -> None:
        """Release the directory; closing twice is harmless."""
        # Release it now: a traceback may keep the caller's frame.
        self._open = None


_COMMON = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
# O_NONBLOCK: opening a FIFO without a writer must not hang.
ANYTHING = _COMMON | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
DIRECTORY = _COMMON | getattr(os, "O_DIRECTORY", 0)

# Errors of the kernel for a symbolic link, for a file in place of a directory, and for a socket.
_WRONG_KIND = {errno.ELOOP, errno.ENOTDIR, errno.ENXIO}
_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}
_NOT_WRITABLE = _READ_ONLY | {errno.EISDIR, errno.ETXTBSY}

_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
    stat.S_IFREG: "a regular file",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_directory(name: str, dir_fd: int | None, where: str) -> Descriptor:
    """Open the directory `name`; a symbolic link is not followed."""
    try:
        return opened(name, DIRECTORY, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in _WRONG_KIND:
            raise _wrong_kind("a directory", name, dir_fd, where) from error
        raise unreadable(error, where) from error


def first_bytes(path: str, length: int) -> bytes:
    """Return the first bytes of a regular file, without a lock; none if there is no such file."""
    try:
        with open_file(os.path.realpath(path), None, path) as reader:
            return reader.read(0, length)
    except (BlzError, KeyNotFound):
        return b""


def open_file(name: str, dir_fd: int | None, where: str) -> "LocalReader":
    """Open the regular file `name`; a symbolic link is not followed."""
    try:
        file = opened(name, ANYTHING, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in _WRONG_KIND:
            raise _wrong_kind("a regular file", name, dir_fd, where) from error
        raise unreadable(error, where) from error
    status = _status(file, where)
    if not stat.S_ISREG(status.st_mode):
        file.close()
        raise CorruptError(f"{where}: expected a regular file, found {_kind(status)}")
    return LocalReader(file, status.st_size, where)


def open_lockable(name: str, dir_fd: int, where: str, *, for_writing: bool) -> Descriptor:
    """Open the regular file or directory `name`, to lock it.

    With `for_writing`, a file is opened for writing if this process may write it.
    """
    try:
        file = _open_writable(name, dir_fd) if for_writing else None
        if file is None:
            file = opened(name, ANYTHING, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in _WRONG_KIND:
            raise _wrong_kind("a file or directory", name, dir_fd, where) from error
        raise unreadable(error, where) from error
    status = _status(file, where)
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        file.close()
        raise CorruptError(f"{where}: expected a file or directory, found {_kind(status)}")
    return file


def open_to_write(name: str, dir_fd: int, where: str, *, at_end: bool) -> Descriptor:
    """Open the regular file `name` for reading, and for writing: anywhere, or only at its end."""
    flags = ANYTHING | os.O_RDWR | (os.O_APPEND if at_end else 0)
    try:
        file = opened(name, flags, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in _WRONG_KIND | {errno.EISDIR}:
            raise _wrong_kind("a regular file", name, dir_fd, where) from error
        raise unwritable(error, "opening", where) from error
    status = _status(file, where)
    if not stat.S_ISREG(status.st_mode):
        file.close()
        raise CorruptError(f"{where}: expected a regular file, found {_kind(status)}")
    return file


def _open_writable(name: str, dir_fd: int) -> Descriptor | None:
    """Open `name` for reading and writing; None if it is a directory or not writable."""
    try:
        return opened(name, ANYTHING | os.O_RDWR, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in _NOT_WRITABLE:
            return None
        raise


def _status(file: Descriptor, where: str) -> os.stat_result:
    """Return the status of the open file; by now its name may be that of another file."""
    try:
        return os.fstat(file.fd)
    except OSError as error:
        file.close()
        raise unreadable(error, where) from error


class LocalReader(Closing):
    """An open file; several threads may read ranges of it at once."""

    __slots__ = ("_file", "_where", "size")

    def __init__(self, file: Descriptor, size: int, where: str) -> None:
        self._file = file
        self.size = size
        self._where = where

    def read(self, offset: int, length: int) -> bytes:
        """Return the `length` bytes from `offset`; fewer if the file ends earlier."""
        assert offset >= 0
        assert length >= 0
        # Limit the length to the file: a damaged length must not allocate memory.
        length = min(length, max(self.size - offset, 0))
        try:
            data = os.pread(self._file.fd, length, offset)
            while 0 < len(data) < length:
                more = os.pread(self._file.fd, length - len(data), offset + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise self._unreadable(error) from error
        return data

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill `buffer` with the bytes from `offset`; return their number, smaller at the end."""
        assert offset >= 0
        view = memoryview(buffer).cast("B")
        filled = 0
        try:
            while filled < len(view):
                count = _pread_into(self._file.fd, [view[filled:]], offset + filled)
                if count == 0:
                    break
                filled += count
        except OSError as error:
            raise self._unreadable(error) from error
        return filled

    def fileno(self) -> int:
        """The descriptor, for a flush."""
        return self._file.fd

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._file.close()

    def _unreadable(self, error: OSError) -> Exception:
        if self._file.fd < 0:
            return StorageError(f"{self._where}: the value was closed; open it again")
        return unreadable(error, self._where)


def unreadable(error: OSError, where: str) -> Exception:
    """Return the error to raise for a failed read or lookup."""
    if error.errno == errno.ENOENT:
        return KeyNotFound(where)
    kind = AccessError if error.errno in _READ_ONLY else StorageError
    return kind(error.errno, error.strerror, where)


def unwritable(error: OSError, doing: str, where: str) -> Exception:
    """Return the error to raise for a failed change or flush."""
    if error.errno in _READ_ONLY:
        return ReadOnlyError(f"{doing} {where}: {error.strerror}")
    if error.errno is None:
        # One of a file object, in its own words.
        return StorageError(f"{doing} {where}: {error}")
    return StorageError(error.errno, f"{error.strerror} ({doing})", where)


@contextmanager
def failures(doing: str, key: str, where: str) -> Iterator[None]:
    """Turn the OSError of a change into KeyTaken or one of our errors."""
    try:
        yield
    except BlzError:
        raise
    except FileExistsError:
        raise KeyTaken(key) from None
    except OSError as error:
        raise unwritable(error, doing, where) from error


def _wrong_kind(expected: str, name: str, dir_fd: int | None, where: str) -> Exception:
    try:
        status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except OSError as error:
        return unreadable(error, where)
    return CorruptError(f"{where}: expected {expected}, found {_kind(status)}")


def _kind(status: os.stat_result) -> str:
    return _KINDS.get(stat.S_IFMT(status.st_mode), "another kind of file")


def _pread_by_copy(fd: int, views: list[memoryview], offset: int) -> int:
    (view,) = views
    data = os.pread(fd, len(view), offset)
    view[: len(data)] = data
    return len(data)


# macOS before 11 has no preadv.
_pread_into = getattr(os, "preadv", _pread_by_copy)
