"""Files: bytes at positions and at the end, on a disk, in memory, in an object or in a pipe.

Knows nothing of what the bytes mean. A table in one file and an array use the same files.

Theory of operation. A `LocalFile` is a path. `look` follows the path: it returns a reader of the
file that has it now, which outlives a replacement. `lock` binds the object to that file until
`unlock`; changes go to it and to no other, whatever has the path by then (`is_there`). A file is
replaced as a whole by one that was written beside it: it is locked before it has the name, so
nobody else writes in between. Only the holder of the lock makes such files, so those that it finds
belong to killed writers. The other kinds have no path. They are locked within the process.
"""

import errno
import hashlib
import io
import os
import re
import secrets
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from blztable.closing import Closing
from blztable.errors import BlzError, BusyError, ReadOnlyError, StorageError
from blztable.storage.disk import REAL_DISK, TEMPORARY, Disk
from blztable.storage.held import Turn
from blztable.storage.locks import LocalLock, lock_at
from blztable.storage.opening import (
    Descriptor,
    DirectoryInUse,
    LocalReader,
    failures,
    open_directory,
    open_file,
    open_to_write,
    unreadable,
)
from blztable.storage.store import Buffer, KeyNotFound, KeyTaken, Lock, Reader

# Bytes of a pipe that can be read again: more than the front of a table has.
_FRONT_BYTES = 4 << 10
# Bytes of one read of an object that is copied.
_COPY_BYTES = 1 << 20
_RANDOM = re.compile("[0-9a-f]{16}")
# A name has at most 255 bytes in most file systems.
_LONG_NAME = 200


class File(Closing, ABC):
    """Bytes somewhere. Reads may come from several threads, changes from one, under the lock.

    The bodies here are those of bytes of the user that are only read.

    Attributes
    ----------
    name
        The file in messages.
    is_sequential
        True if it can only be written, from its start to its end.
    has_path
        True if it has a path, which may lead to another file later.
    """

    name = "memory"
    is_sequential = False
    has_path = False

    @property
    @abstractmethod
    def size(self) -> int:
        """Length of the file."""

    @abstractmethod
    def read(self, offset: int, length: int) -> bytes:
        """Return the `length` bytes from `offset`; fewer if the file ends earlier."""

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill `buffer` with the bytes from `offset`; return their number, smaller at the end."""
        view = memoryview(buffer).cast("B")
        data = self.read(offset, len(view))
        view[: len(data)] = data
        return len(data)

    def current(self) -> Reader | None:
        """Return the file as it is now, with its present size; None if there is none."""
        return self

    def create(self) -> bool:
        """Make an empty file if it is missing; return True if it was."""
        raise self._refusal()

    def rest(self) -> Lock | None:
        """Keep writers away until the lock is closed; None if one is at work."""
        return _NoLock()

    def lock(self, timeout: float, *, shared: bool = False, at_end: bool = False) -> None:
        """Let nobody else write until `unlock`; BusyError after `timeout` seconds.

        With `shared` others may read, and so does this one only. With `at_end` the file is only
        appended to: the system lets no write change the bytes before its end.
        """
        raise self._refusal()

    def unlock(self) -> None:
        """Release the lock; unlocking twice is harmless."""

    def write(self, offset: int, data: Buffer) -> None:
        """Write bytes at a position, which is at most the length of the file."""
        raise self._refusal()

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write at the end."""
        for buffer in buffers:
            self.write(self.size, buffer)

    def cut(self, size: int) -> int:
        """Remove the bytes from this position on; return the size."""
        raise self._refusal()

    def flush(self) -> None:
        """Make everything written until now durable."""

    def flush_name(self) -> None:
        """Make the name of the file durable."""

    def is_there(self) -> bool:
        """True if the path still leads to the file that is locked."""
        return True

    def beside(self, nbytes: int = 0) -> "LocalFile | None":
        """Return a new, locked file that can take the place of this one; None if it has no path.

        StorageError if there is no room for `nbytes`.
        """
        return None

    def remove_leftovers(self) -> None:
        """Remove the files that killed writers left beside this one; only under its lock."""

    def remove(self) -> None:
        """Remove the file."""

    def release(self) -> None:
        """Drop what is kept open for reading; readers stay open, a later call opens it again."""

    def close(self) -> None:
        """Close the file and release its lock; closing twice is harmless."""

    def _refusal(self) -> ReadOnlyError:
        return ReadOnlyError(f"{self.name} is open for reading; a table to change needs a path")


class LocalFile(File):
    """A file of the file system."""

    has_path = True

    def __init__(self, path: str | os.PathLike[str], *, disk: Disk = REAL_DISK) -> None:
        if sys.platform == "win32":
            raise StorageError(
                f"{os.fspath(path)}: a table or an array in a file needs Linux or macOS, not "
                "Windows; use the Windows Subsystem for Linux"
            )
        self._path = self.name = os.path.realpath(os.fspath(path))
        self._folder, self._base = os.path.split(self._path)
        self._disk = disk
        self._reader: LocalReader | None = None
        self._lock: LocalLock | None = None
        self._writer: Descriptor | None = None
        self._at_end = False
        # The file beside which this one was made, until it took its place.
        self._other: LocalFile | None = None

    @property
    def size(self) -> int:
        """Length of the locked file; of one that is only read, as it was when it was opened."""
        writer = self._writer
        return os.fstat(writer.fd).st_size if writer is not None else self._opened().size

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the file that was looked at last."""
        return self._opened().read(offset, length)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill a buffer with bytes of the file that was looked at last."""
        return self._opened().read_into(offset, buffer)

    def current(self) -> LocalReader | None:
        """Return the file that has the path now."""
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            self._reader = None
            return None
        except OSError as error:
            raise unreadable(error, self.name) from error
        reader = self._reader
        if reader is None or not os.path.samestat(os.fstat(reader.fileno()), status):
            with self._open_folder() as folder:
                try:
                    reader = open_file(self._base, folder.fd, self.name)
                except KeyNotFound:
                    return None
        reader.size = os.fstat(reader.fileno()).st_size
        self._reader = reader
        return reader

    def create(self) -> bool:
        """Make an empty file if it is missing."""
        with self._open_folder() as folder:
            try:
                with failures("creating", "", self.name):
                    self._disk.create(self._base, folder.fd).close()
            except KeyTaken:
                return False
        return True

    def rest(self) -> Lock | None:
        """Return a shared lock of the file that has the path; None where none is to be had."""
        try:
            with self._open_folder() as folder:
                return lock_at(
                    self._base, folder.fd, self.name, shared=True, timeout=0, inherited=False
                )
        except (BlzError, KeyNotFound):
            return None

    def lock(self, timeout: float, *, shared: bool = False, at_end: bool = False) -> None:
        """Lock the file that has the path, and open it for writing unless the lock is shared."""
        self.unlock()
        with self._open_folder() as folder:
            # A forked child goes on reading, and never writes.
            self._lock = lock_at(
                self._base,
                folder.fd,
                self.name,
                shared=shared,
                timeout=timeout,
                inherited=shared,
            )
            try:
                if not shared:
                    self._writer = open_to_write(self._base, folder.fd, self.name, at_end=at_end)
                    self._at_end = at_end
            except BaseException:
                self.unlock()
                raise

    def unlock(self) -> None:
        """Release the lock."""
        self._close_writer()
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()

    def write(self, offset: int, data: Buffer) -> None:
        """Write bytes at a position."""
        fd, view = self._writable(), memoryview(data).cast("B")
        with failures("writing", "", self.name):
            while view:
                count = os.pwrite(fd, view, offset)
                if not count:
                    raise StorageError(f"{self.name}: the system wrote 0 bytes")
                view, offset = view[count:], offset + count
                self._resize()

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write at the end."""
        with failures("writing", "", self.name):
            self._disk.write(self._writable(), buffers)
        self._resize()

    def cut(self, size: int) -> int:
        """Remove the bytes from this position on."""
        with failures("cutting", "", self.name):
            self._disk.truncate(self._writable(), size)
        self._resize()
        return size

    def flush(self) -> None:
        """Flush the file."""
        fd = self._writer.fd if self._writer is not None else self._opened().fileno()
        with failures("flushing", "", self.name):
            self._disk.sync_file(fd)

    def flush_name(self) -> None:
        """Flush the directory of the file."""
        with self._open_folder() as folder, failures("flushing", "", self.name):
            self._disk.sync_directory(folder.fd)

    def is_there(self) -> bool:
        """True if the path leads to the file that is locked, read and written."""
        if self._lock is None:
            return False
        fds = [self._lock.fileno()]
        if self._reader is not None:
            fds.append(self._reader.fileno())
        if self._writer is not None:
            fds.append(self._writer.fd)
        try:
            found = os.stat(self._path, follow_symlinks=False)
            return all(os.path.samestat(found, os.fstat(fd)) for fd in fds)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise unreadable(error, self.name) from error

    def beside(self, nbytes: int = 0) -> "LocalFile | None":
        """Return a new file in the same directory, with the owner and the permissions of this."""
        self.remove_leftovers()
        new = LocalFile(os.path.join(self._folder, name_beside(self._base)), disk=self._disk)
        new.name, new._other = self.name, self
        try:
            with self._open_folder() as folder, failures("writing", "", self.name):
                self._disk.check_room(folder.fd, nbytes)
            new.create()
            new.lock(0, at_end=self._at_end)
            with failures("writing", "", self.name):
                self._disk.share(new._writable(), os.fstat(self._writable()))
        except BaseException:
            new.discard()
            raise
        return new

    def take_place(self) -> None:
        """Take the place of the file beside which this one was made; that one becomes this.

        If it fails, the other file is as it was, and its path may lead to this one already.
        """
        other = self._other
        assert other is not None
        with other._open_folder() as folder:
            with failures("renaming", "", self.name):
                self._disk.rename(self._base, other._base, folder.fd)
            self._other = None
            with failures("flushing", "", self.name):
                self._disk.sync_directory(folder.fd)
        for slot in ("_reader", "_lock", "_writer"):
            mine, others = getattr(self, slot), getattr(other, slot)
            setattr(self, slot, others)
            setattr(other, slot, mine)

    def discard(self) -> None:
        """Let go of a file from `beside`, and remove it unless it took the place of the other."""
        self.unlock()
        # Not closed: others may go on reading the file whose place was taken.
        self._reader = None
        if self._other is not None:
            with suppress(OSError, KeyNotFound), self._open_folder() as folder:
                self._disk.unlink(self._base, folder.fd)

    def remove_leftovers(self) -> None:
        """Remove the files that killed writers left beside this one."""
        start = _start(self._base)
        # A directory that may be written may not be listed.
        with suppress(OSError), self._open_folder() as folder:
            for name in os.listdir(folder.fd):
                # `t` is not `t-x`, whose writer may be alive.
                if name.startswith(start) and _RANDOM.fullmatch(name, len(start)):
                    with suppress(OSError):
                        self._disk.unlink(name, folder.fd)

    def remove(self) -> None:
        """Remove the file."""
        with self._open_folder() as folder, failures("removing", "", self.name):
            self._disk.unlink(self._base, folder.fd)
        self._reader = None

    def release(self) -> None:
        """Drop the descriptor for reading; readers that use it stay open."""
        self._reader = None

    def close(self) -> None:
        """Close the file and release its lock; StorageError if what was written may be lost."""
        writer, self._writer = self._writer, None
        if self._reader is not None:
            self._reader.close()
        try:
            if writer is not None:
                with failures("closing", "", self.name):
                    self._disk.close(writer)
        finally:
            self.unlock()

    def _open_folder(self) -> DirectoryInUse:
        try:
            return DirectoryInUse(open_directory(self._folder, None, self._folder))
        except KeyNotFound:
            reason = "no such directory; create it, or choose another path"
            raise StorageError(errno.ENOENT, reason, self._folder) from None

    def _opened(self) -> LocalReader:
        """Return the file that was looked at last."""
        reader = self._reader or self.current()
        if reader is None:
            raise KeyNotFound(self.name)
        return reader

    def _resize(self) -> None:
        """Let the open reader see the bytes that were written."""
        if self._reader is not None:
            self._reader.size = os.fstat(self._reader.fileno()).st_size

    def _writable(self) -> int:
        """Return the descriptor for writing; it is closed first if all is collected at once."""
        if self._writer is None:
            raise StorageError(f"{self.name}: the file is not locked for writing any more")
        return self._writer.fd

    def _close_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


class MemoryFile(File):
    """A file in memory, or bytes of the user."""

    def __init__(
        self, data: Buffer = b"", *, is_writable: bool = True, name: str = "memory"
    ) -> None:
        self.name = name
        self._data = bytearray(data) if is_writable else memoryview(data)

    @property
    def size(self) -> int:
        """Length of the file."""
        return len(self._data)

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the file."""
        return bytes(self._data[offset : offset + length])

    def lock(self, timeout: float, *, shared: bool = False, at_end: bool = False) -> None:
        """Do nothing: nobody else has the memory."""
        self._changing()

    def write(self, offset: int, data: Buffer) -> None:
        """Write bytes at a position."""
        self._changing()[offset : offset + len(data)] = data

    def cut(self, size: int) -> int:
        """Remove the bytes from this position on."""
        del self._changing()[size:]
        return size

    def close(self) -> None:
        """Let go of memory of the user: a memory map could not be closed before."""
        if isinstance(self._data, memoryview):
            self._data.release()
            self._data = memoryview(b"")

    def _changing(self) -> bytearray:
        if not isinstance(self._data, bytearray):
            raise self._refusal()
        return self._data

    def __reduce__(self) -> tuple[Any, ...]:
        is_writable = isinstance(self._data, bytearray)
        made = partial(MemoryFile, is_writable=is_writable, name=self.name)
        return made, (bytes(self._data),)


class _UserFile(File):
    """A binary file object of the user, which stays open."""

    def __init__(self, file: Any, name: str) -> None:
        self.name = name
        self._file = file

    def lock(self, timeout: float, *, shared: bool = False, at_end: bool = False) -> None:
        """Let nobody else in this process write the object."""
        # The number of an object that is alive is that of no other one.
        if _writers.setdefault(id(self._file), self) is not self:
            raise BusyError(f"{self.name}: another SuperChunk writes this file; close that first")

    def unlock(self) -> None:
        """Let another one write the object."""
        if _writers.get(id(self._file)) is self:
            del _writers[id(self._file)]

    def flush(self) -> None:
        """Pass everything written until now on; the object decides what is durable."""
        with failures("flushing", "", self.name):
            if hasattr(self._file, "flush"):
                self._file.flush()

    def close(self) -> None:
        """Let another one write the object, which stays open."""
        self.unlock()


# Those that may write their file object, by its number.
_writers: WeakValueDictionary[int, _UserFile] = WeakValueDictionary()


class ObjectFile(_UserFile):
    """A file object that can seek, or that reads ranges (`read_at`)."""

    size = 0

    def __init__(self, file: Any, name: str, *, is_writable: bool = False) -> None:
        super().__init__(file, name)
        self._is_writable = is_writable
        self._turn = Turn()
        self._read_at = None if is_writable else getattr(file, "read_at", None)
        with failures("reading", "", name):
            self.size = int(file.size() if self._read_at else file.seek(0, io.SEEK_END))

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the object."""
        length = max(min(length, self.size - offset), 0)
        with failures("reading", "", self.name):
            if self._read_at is not None:
                return bytes(self._read_at(length, offset)) if length else b""
            with self._turn():
                self._file.seek(offset)
                return b"".join(_reading(self._file, length))

    def lock(self, timeout: float, *, shared: bool = False, at_end: bool = False) -> None:
        """Let nobody else in this process write the object."""
        if not self._is_writable:
            raise self._refusal()
        super().lock(timeout)

    def write(self, offset: int, data: Buffer) -> None:
        """Write bytes at a position."""
        with self._turn(), failures("writing", "", self.name):
            self._file.seek(offset)
            for part in _writing(self._file, data, self.name):
                offset += len(part)
                self.size = max(self.size, offset)

    def cut(self, size: int) -> int:
        """Remove the bytes from this position on."""
        with self._turn(), failures("cutting", "", self.name):
            self._file.truncate(size)
        self.size = size
        return size

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self._file, io.BytesIO):
            return ObjectFile, (io.BytesIO(self._file.getvalue()), self.name)
        raise TypeError("an open file cannot be sent to another process; pass its path")


class SpooledFile(ObjectFile):
    """A copy of what an object that cannot seek gave; it goes with this object."""

    def __del__(self) -> None:
        self._file.close()


class PipeFile(_UserFile):
    """A file object or a pipe that is only written, from its first byte on."""

    is_sequential = True
    size = 0

    def __init__(self, file: Any, name: str) -> None:
        super().__init__(file, name)
        self._first = b""

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the front; nothing behind it."""
        return self._first[offset : offset + length]

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Refuse: what left the process cannot be read."""
        raise StorageError("a table that is being written to a stream cannot be read")

    def create(self) -> bool:
        """Begin at the first byte; ValueError where the file is at a later one.

        What a reader finds there is the table before it, or another program's bytes.
        """
        is_begun = self.size > 0 or not can_seek(self._file)
        at = 0 if is_begun or not hasattr(self._file, "tell") else self._file.tell()
        if at:
            raise ValueError(
                f"{self.name} is at byte {at}, and a table begins at byte 0; pass a new file "
                "object, or call seek(0) to replace what it holds"
            )
        return True

    def rest(self) -> Lock | None:
        """Return None: whoever has the pipe is its writer."""
        return None

    def write(self, offset: int, data: Buffer) -> None:
        """Write bytes at the end. What the file has behind the first ones is cut off."""
        assert offset == self.size
        is_first = not self.size
        try:
            with failures("writing", "", self.name):
                for part in _writing(self._file, data, self.name):
                    if len(self._first) == self.size < _FRONT_BYTES:
                        self._first += bytes(part[:_FRONT_BYTES])
                    self.size += len(part)
        except TypeError as error:
            raise TypeError(f"{self.name}: open the file in binary mode: {error}") from None
        if is_first and self.size and can_seek(self._file) and hasattr(self._file, "truncate"):
            # A reader looks for the last foot, which would be that of a longer table before.
            with suppress(OSError, ValueError):
                self._file.truncate()

    def cut(self, size: int) -> int:
        """Keep the bytes, which may have left the process; return their number."""
        return self.size


class _NoLock(Closing):
    def close(self) -> None:
        """Do nothing."""


def can_seek(file: Any) -> bool:
    """True if a file object of the user has positions."""
    return bool(file.seekable()) if hasattr(file, "seekable") else hasattr(file, "seek")


def spooled(file: Any, name: str, memory: int) -> SpooledFile:
    """Return a copy of what an object gives to its end; up to `memory` bytes stay in memory."""
    copy = tempfile.SpooledTemporaryFile(memory)  # noqa: SIM115
    while data := b"".join(_reading(file, _COPY_BYTES)):
        copy.write(data)
    return SpooledFile(copy, name)


def name_beside(base: str) -> str:
    """Return a name that nobody else uses, for a file that will take the place of `base`."""
    return _start(base) + secrets.token_hex(8)


def _start(base: str) -> str:
    data = os.fsencode(base)
    if len(data) > _LONG_NAME:
        base = hashlib.sha256(data).hexdigest()
    return f"{TEMPORARY}{base}-"


def _writing(file: Any, data: Buffer, name: str) -> Iterator[memoryview]:
    """Write all bytes to a file object; yield each part that it took."""
    view = memoryview(data)
    view = view.cast("B") if view.nbytes else memoryview(b"")
    while view:
        count = file.write(view)
        if count is None and not isinstance(file, io.RawIOBase):
            # Some objects return nothing and have taken all. A raw file says that it took nothing.
            count = len(view)
        if not count:
            raise StorageError(
                f"{name}: it took none of {len(view)} bytes; a file that does not block must be "
                "made to block, os.set_blocking(file.fileno(), True)"
            )
        yield view[:count]
        view = view[count:]


def _reading(file: Any, length: int) -> Iterator[bytes]:
    """Read so many bytes from a file object, fewer at its end; yield each part that it gave."""
    while length and (data := file.read(length)):
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"open the file in binary mode: it returns {type(data).__name__}")
        yield bytes(data)
        length -= len(data)
