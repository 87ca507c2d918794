"""Files that are changed in place: bytes at positions, and flushes.

Knows nothing of what the bytes mean. A file of a path is locked while it is open: shared by
readers, exclusive by one writer. A file object is locked only within the process, for one writer.
"""

import io
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO
from weakref import WeakValueDictionary

from blztable.closing import Closing
from blztable.errors import (
    BlzError,
    BusyError,
    ConflictError,
    ReadOnlyError,
    StorageError,
    TableExistsError,
    TableNotFoundError,
)
from blztable.storage.beside import name_beside, remove_leftovers
from blztable.storage.descriptors import Descriptor, opened
from blztable.storage.disk import REAL_DISK
from blztable.storage.file_objects import reading, writing
from blztable.storage.locks import LocalLock, lock_at
from blztable.storage.opening import failures, open_directory, open_file, unreadable, unwritable
from blztable.storage.store import Buffer, KeyNotFound, KeyTaken

READ, APPEND, CREATE = "r", "a", "x"
# A writer waits for readers, and a reader for a writer.
LOCK_SECONDS = 5.0

_WRITABLE = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)


class InPlaceFile(Closing):
    """Bytes at positions. Reads may come from several threads, changes from one.

    Attributes
    ----------
    name
        The file in messages.
    is_sequential
        True if it can only be written, from its start to its end.
    """

    name = "memory"
    is_sequential = False

    @property
    def size(self) -> int:
        """Length of the file."""
        raise NotImplementedError

    def read(self, at: int, length: int) -> bytes:
        """Return the bytes at a position, fewer at the end of the file."""
        raise NotImplementedError

    def write(self, at: int, data: Buffer) -> None:
        """Write bytes at a position, which is at most the length of the file."""
        raise ReadOnlyError(f"{self.name} was opened for reading")

    def truncate(self, size: int) -> None:
        """Cut the file."""
        raise ReadOnlyError(f"{self.name} was opened for reading")

    def flush(self) -> None:
        """Make everything written until now durable."""

    def flush_name(self) -> None:
        """Make the name of a new file durable."""

    def close(self) -> None:
        """Close the file; closing twice is harmless."""


class MemoryFile(InPlaceFile):
    """A file in memory."""

    def __init__(self, data: Buffer = b"", *, is_writable: bool = True) -> None:
        self._data = bytearray(data) if is_writable else memoryview(data)

    @property
    def size(self) -> int:
        """Length of the file."""
        return len(self._data)

    def read(self, at: int, length: int) -> bytes:
        """Return the bytes at a position."""
        return bytes(self._data[at : at + length])

    def write(self, at: int, data: Buffer) -> None:
        """Write bytes at a position."""
        if not isinstance(self._data, bytearray):
            super().write(at, data)
        else:
            self._data[at : at + len(data)] = data

    def truncate(self, size: int) -> None:
        """Cut the file."""
        if not isinstance(self._data, bytearray):
            super().truncate(size)
        else:
            del self._data[size:]

    def close(self) -> None:
        """Let go of memory of the user: a memory map could not be closed before."""
        if isinstance(self._data, memoryview):
            self._data.release()
            self._data = memoryview(b"")


class LocalFile(InPlaceFile):
    """A file of the file system, locked until it is closed."""

    # The name of a file from `beside` until it takes the place of another.
    _temporary: str | None = None

    def __init__(self, path: str, mode: str) -> None:
        self.name = os.path.realpath(path)
        parent, name = os.path.split(self.name)
        try:
            self._parent = open_directory(parent, None, parent)
            if mode == CREATE:
                with failures("creating", name, self.name):
                    REAL_DISK.create(name, self._parent.fd).close_written()
            self._lock: LocalLock = lock_at(
                name,
                self._parent.fd,
                self.name,
                shared=mode == READ,
                timeout=LOCK_SECONDS,
                inherited=mode == READ,
            )
        except KeyNotFound:
            raise TableNotFoundError(f"no array exists at {self.name}") from None
        except KeyTaken:
            raise TableExistsError(f"{self.name} exists; an array never replaces a file") from None
        self._reader = open_file(name, self._parent.fd, self.name)
        self._size = self._reader.size
        self._writer: Descriptor | None = None
        if mode != READ:
            try:
                self._writer = opened(name, _WRITABLE, dir_fd=self._parent.fd)
            except OSError as error:
                self.close()
                raise unwritable(error, "opening", self.name) from error
        if not self._is_at(self.name):
            self.close()
            raise ConflictError(f"{self.name} was replaced by another file; open it again")
        if mode == APPEND:
            # A directory that may be written may not be listed.
            with suppress(OSError):
                remove_leftovers(name, self._parent.fd, REAL_DISK)

    @property
    def size(self) -> int:
        """Length of the file."""
        return self._size

    def read(self, at: int, length: int) -> bytes:
        """Return the bytes at a position."""
        self._reader.size = self._size
        return self._reader.read(at, length)

    def write(self, at: int, data: Buffer) -> None:
        """Write bytes at a position."""
        fd = self._written().fd
        view = memoryview(data).cast("B")
        with failures("writing", "", self.name):
            while view:
                count = os.pwrite(fd, view, at)
                if not count:
                    raise StorageError(f"{self.name}: the system wrote 0 bytes")
                view, at = view[count:], at + count
                self._size = max(self._size, at)

    def truncate(self, size: int) -> None:
        """Cut the file."""
        fd = self._written().fd
        with failures("cutting", "", self.name):
            os.ftruncate(fd, size)
        self._size = size

    def flush(self) -> None:
        """Make everything written until now durable."""
        if self._writer is not None:
            with failures("flushing", "", self.name):
                REAL_DISK.sync_file(self._writer.fd)

    def flush_name(self) -> None:
        """Make the name of a new file durable."""
        with failures("flushing", "", self.name):
            REAL_DISK.sync_directory(self._parent.fd)

    def beside(self) -> "LocalFile":
        """Return a new file in the same directory, to take the place of this one."""
        self.check_place()
        parent = os.path.dirname(self.name)
        new = LocalFile(os.path.join(parent, name_beside(os.path.basename(self.name))), CREATE)
        REAL_DISK.share(new._written().fd, os.fstat(self._written().fd))
        new._temporary = os.path.basename(new.name)
        return new

    def check_place(self) -> None:
        """ConflictError if the path leads to another file by now, or to none."""
        if not self._is_at(self.name):
            raise ConflictError(
                f"{self.name}: the array was removed, or replaced by another file; open it again"
            )

    def _written(self) -> Descriptor:
        """Return the file for writing."""
        if self._writer is None:
            raise ReadOnlyError(f"{self.name} was opened for reading")
        return self._writer

    def _is_at(self, path: str) -> bool:
        """True if a path leads to the file that is locked, read and written."""
        fds = [self._lock.fileno(), self._reader.fileno()]
        if self._writer is not None:
            fds.append(self._writer.fd)
        try:
            found = os.stat(path, follow_symlinks=False)
            return all(os.path.samestat(found, os.fstat(fd)) for fd in fds)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise unreadable(error, path) from error

    def become(self, new: "LocalFile") -> None:
        """Let a file from `beside` take the place of this one, with its lock.

        If it fails, this file must be closed: its name may be that of the new file already.
        """
        assert new._temporary is not None
        with failures("renaming", "", self.name):
            REAL_DISK.rename(new._temporary, os.path.basename(self.name), self._parent.fd)
        new._temporary = None
        for slot in ("_reader", "_size", "_writer", "_lock"):
            mine, others = getattr(self, slot), getattr(new, slot)
            setattr(self, slot, others)
            setattr(new, slot, mine)
        self.flush_name()

    def discard(self) -> None:
        """Close a file from `beside`, and remove it unless it took the place of another."""
        # An error of the close is ignored: nobody needs what was written.
        with suppress(BlzError):
            self.close()
        if self._temporary is not None:
            with suppress(OSError):
                REAL_DISK.unlink(self._temporary, self._parent.fd)

    def close(self) -> None:
        """Close the file and release its lock."""
        writer, self._writer = self._writer, None
        self._reader.close()
        try:
            if writer is not None:
                with failures("closing", "", self.name):
                    REAL_DISK.close(writer)
        finally:
            self._lock.close()


class ObjectFile(InPlaceFile):
    """A binary file object of the user, which stays open."""

    def __init__(self, file: BinaryIO, mode: str) -> None:
        self.name = str(getattr(file, "name", None) or type(file).__name__)
        self._file = file
        self._at_once = threading.Lock()
        can_seek, can_read = _ask(file, "seekable"), _ask(file, "readable")
        self.is_sequential = not (can_seek and can_read)
        if mode != CREATE and not can_read:
            raise StorageError(f"{self.name} can only be written; open a file that can be read")
        if mode != CREATE and not can_seek:
            raise StorageError(
                f"{self.name} cannot seek; to read an array from it, pass what its read() returns"
            )
        if mode != READ and getattr(file, "writable", lambda: True)() is False:
            raise ReadOnlyError(f"{self.name} was opened for reading; open the file with 'r+b'")
        self._written = 0
        # The number of an object that is alive is that of no other one.
        if mode != READ and _written.setdefault(id(file), self) is not self:
            raise BusyError(f"{self.name}: another SuperChunk writes this file; close that first")

    @property
    def size(self) -> int:
        """Length of the file."""
        if self.is_sequential:
            return self._written
        with self._at_once, failures("reading", "", self.name):
            return self._file.seek(0, io.SEEK_END)

    def read(self, at: int, length: int) -> bytes:
        """Return the bytes at a position."""
        if self.is_sequential:
            raise StorageError(f"{self.name} can only be written")
        with self._at_once, failures("reading", "", self.name):
            end = self._file.seek(0, io.SEEK_END)
            length = min(length, max(end - at, 0))
            self._file.seek(at)
            pieces = list(reading(self._file, length))
        return b"".join(pieces)

    def write(self, at: int, data: Buffer) -> None:
        """Write bytes at a position."""
        with self._at_once, failures("writing", "", self.name):
            if not self.is_sequential:
                self._file.seek(at)
            else:
                assert at == self._written
            for part in writing(self._file, data, self.name):
                self._written += len(part)

    def truncate(self, size: int) -> None:
        """Cut the file."""
        with self._at_once, failures("cutting", "", self.name):
            self._file.truncate(size)

    def flush(self) -> None:
        """Pass everything written until now on; the object decides what is durable."""
        with self._at_once, failures("flushing", "", self.name):
            self._file.flush()

    def close(self) -> None:
        """Let another one write the file."""
        if _written.get(id(self._file)) is self:
            del _written[id(self._file)]


# Those that may write their file object, by its number.
_written: WeakValueDictionary[int, ObjectFile] = WeakValueDictionary()


def _ask(file: BinaryIO, question: str) -> bool:
    method: Callable[[], bool] | None = getattr(file, question, None)
    return method is not None and bool(method())


def _content(place: object) -> memoryview | None:
    """Return the bytes of an object that has them in memory, such as bytes or a memory map."""
    try:
        return memoryview(place).cast("B")  # type: ignore[arg-type]
    except TypeError:
        return None


def open_in_place(place: object, mode: str) -> InPlaceFile:
    """Open the file at a place of the user: a path, a binary file, bytes, or None for memory."""
    if isinstance(place, InPlaceFile):
        return place
    data = _content(place)
    if data is not None:
        if mode != READ:
            kind = type(place).__name__
            raise ReadOnlyError(f"{kind} can only be read; pass None or a BytesIO to write")
        return MemoryFile(data, is_writable=False)
    if isinstance(place, str | os.PathLike):
        path = os.fsdecode(os.path.expanduser(place))
        if not path:
            raise ValueError("the path is empty; pass the file of the array")
        return LocalFile(path, mode)
    if place is None and mode == CREATE:
        return MemoryFile()
    if isinstance(getattr(place, "encoding", None), str) or isinstance(place, io.TextIOBase):
        raise TypeError("a file in text mode; open it in binary mode, such as 'rb' or 'r+b'")
    if not (hasattr(place, "read") or hasattr(place, "write")):
        raise TypeError(f"expected a path, a binary file or bytes, found {type(place).__name__}")
    return ObjectFile(place, mode)  # type: ignore[arg-type]
