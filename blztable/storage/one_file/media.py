"""Media: where the bytes of a table in one file lie.

Knows nothing of records. A medium grows at its end; the bytes before are never written again.
"""

import errno
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from blztable.errors import BlzError, StorageError
from blztable.storage.beside import name_beside, remove_leftovers
from blztable.storage.descriptors import Descriptor
from blztable.storage.disk import REAL_DISK, Disk
from blztable.storage.locks import lock_at
from blztable.storage.opening import (
    LocalReader,
    failures,
    open_directory,
    open_file,
    open_to_append,
    unreadable,
)
from blztable.storage.store import Buffer, KeyNotFound, KeyTaken, Lock, Reader


class Medium(Protocol):
    """A file that grows at its end."""

    @property
    def name(self) -> str:
        """Name of the file in messages."""

    def look(self) -> Reader | None:
        """Return the file as it is now, with its present size; None if there is none."""

    def rest(self) -> Lock | None:
        """Keep writers away until the lock is closed; None if one may be at work."""

    def lock(self, timeout: float) -> Lock:
        """Let nobody else write; BusyError after `timeout` seconds."""

    def create(self) -> bool:
        """Make an empty file if it is missing; return True if it was."""

    def sync_name(self) -> None:
        """Make the name of the file durable."""

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write at the end; only under the lock."""

    def written(self) -> int:
        """Return the size of the file; only under the lock."""

    def cut(self, size: int) -> int:
        """Remove the bytes from this position on; return the size. Only under the lock."""

    def sync(self) -> None:
        """Make all bytes durable."""

    def replace(
        self, write: Callable[[Callable[[Sequence[Buffer]], None]], None], nbytes: int
    ) -> Lock | None:
        """Replace the file by what `write` appends to a new one; return the lock of the new one.

        None if the medium cannot replace its file. StorageError if it has no room for `nbytes`.
        """

    def is_there(self) -> bool:
        """True if the name is still that of the locked file."""

    def remove(self) -> None:
        """Remove the file; only under the lock."""

    def close(self) -> None:
        """Release descriptors; a later call opens them again."""


class GrowingFile:
    """A file of the local file system that grows at its end."""

    def __init__(self, path: str | os.PathLike[str], *, disk: Disk = REAL_DISK) -> None:
        if sys.platform == "win32":
            raise StorageError(
                f"{os.fspath(path)}: a table needs Linux or macOS, not Windows; "
                "use the Windows Subsystem for Linux"
            )
        self._path = os.path.realpath(os.fspath(path))
        self._folder, self._base = os.path.split(self._path)
        self._disk = disk
        self._reader: LocalReader | None = None
        self._writer: Descriptor | None = None

    @property
    def name(self) -> str:
        """The path of the file."""
        return self._path

    def look(self) -> LocalReader | None:
        """Return the file that has the path now."""
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            self._reader = None
            return None
        except OSError as error:
            raise unreadable(error, self._path) from error
        reader = self._reader
        if reader is None or not os.path.samestat(os.fstat(reader.fileno()), status):
            with self._open_folder() as folder:
                try:
                    reader = open_file(self._base, folder.fd, self._path)
                except KeyNotFound:
                    return None
        reader.size = max(os.fstat(reader.fileno()).st_size, 0)
        self._reader = reader
        return reader

    def rest(self) -> Lock | None:
        """Return a shared lock of the file; None if a writer has it, or if it cannot be locked."""
        try:
            with self._open_folder() as folder:
                return lock_at(
                    *(self._base, folder.fd, self._path), shared=True, timeout=0, inherited=False
                )
        except (BlzError, KeyNotFound):
            return None

    def lock(self, timeout: float) -> Lock:
        """Lock the file that has the path, and open it for writing."""
        with self._open_folder() as folder:
            lock = lock_at(
                self._base, folder.fd, self._path, shared=False, timeout=timeout, inherited=False
            )
            try:
                self._close_writer()
                self._writer = open_to_append(self._base, folder.fd, self._path)
            except BaseException:
                lock.close()
                raise
        return lock

    def create(self) -> bool:
        """Make an empty file if it is missing."""
        with self._open_folder() as folder:
            try:
                with failures("creating", "", self._path):
                    self._disk.create(self._base, folder.fd).close()
            except KeyTaken:
                return False
        return True

    def sync_name(self) -> None:
        """Flush the directory of the file."""
        with self._open_folder() as folder, failures("flushing", "", self._folder):
            self._disk.sync_directory(folder.fd)

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write at the end."""
        with failures("writing", "", self._path):
            self._disk.write(self._locked(), buffers)
        self._resize()

    def written(self) -> int:
        """Return the size of the file that `lock` locked."""
        with failures("writing", "", self._path):
            return os.fstat(self._locked()).st_size

    def cut(self, size: int) -> int:
        """Remove the bytes from this position on; return the size."""
        with failures("writing", "", self._path):
            self._disk.truncate(self._locked(), size)
        self._resize()
        return size

    def sync(self) -> None:
        """Flush the file."""
        reader = self._reader or self.look()
        if reader is None:
            raise KeyNotFound(self._path)
        with failures("flushing", "", self._path):
            self._disk.sync_file(reader.fileno())

    def replace(
        self, write: Callable[[Callable[[Sequence[Buffer]], None]], None], nbytes: int
    ) -> Lock | None:
        """Write a new file beside this one, flush it, and give it the name."""
        with self._open_folder() as folder:
            remove_leftovers(self._base, folder.fd, self._disk)
            with failures("writing", "", self._path):
                self._disk.check_room(folder.fd, nbytes)
            name = name_beside(self._base)
            lock = None
            try:
                with failures("writing", "", self._path):
                    file = self._disk.create(name, folder.fd)
                    try:
                        self._disk.share(file.fd, os.stat(self._path))
                        write(lambda buffers: self._disk.write(file.fd, buffers))
                        self._disk.sync_file(file.fd)
                    finally:
                        self._disk.close(file)
                    lock = lock_at(
                        name, folder.fd, self._path, shared=False, timeout=0, inherited=False
                    )
                    self._disk.rename(name, self._base, folder.fd)
                    self._disk.sync_directory(folder.fd)
                self._close_writer()
                self._writer = open_to_append(self._base, folder.fd, self._path)
            except BaseException:
                with suppress(OSError):
                    self._disk.unlink(name, folder.fd)
                if lock is not None:
                    lock.close()
                raise
        self._reader = None
        return lock

    def is_there(self) -> bool:
        """True if the path still leads to the file that `lock` locked."""
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._locked()))
        except OSError:
            return False

    def remove(self) -> None:
        """Remove the file."""
        with self._open_folder() as folder, failures("removing", "", self._path):
            self._disk.unlink(self._base, folder.fd)
        self._reader = None

    def close(self) -> None:
        """Drop the descriptor for reading; readers that use it stay open."""
        self._reader = None

    def _open_folder(self) -> Descriptor:
        try:
            return open_directory(self._folder, None, self._folder)
        except KeyNotFound:
            reason = "no such directory; create it, or choose another path"
            raise StorageError(errno.ENOENT, reason, self._folder) from None

    def _resize(self) -> None:
        """Let the open reader see the bytes that were written."""
        if self._reader is not None:
            self._reader.size = os.fstat(self._reader.fileno()).st_size

    def _locked(self) -> int:
        """Return the descriptor for writing; it is closed first if all is collected at once."""
        if self._writer is None:
            raise StorageError(f"{self._path}: the file is not locked any more")
        return self._writer.fd

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
