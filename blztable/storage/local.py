"""Local store: a directory of the local file system as a store.

Knows nothing of the values. It keeps the promises of `store.Store`.

Theory of operation
-------------------
Each call opens the directory of its key  and uses names relative to that
descriptor. All changes and flushes go through `disk.Disk`. `put_new` creates a value under its own
name. `publish` and `put` write a temporary file first; `publish` links it to the name, `put`
renames it. A value is durable only after its file and each directory in its path are flushed. Calls
run in the caller's thread; `flush` uses a few threads for many keys. Several threads may share one
store. On a shared file system whose locks do not hold (`rely_on_no_lock`), a lock is granted and
excludes nobody, and the times of files are those that the file system gave them.

The directories of a local store, opened level by level. The table may come from an untrusted
source: the user's path is resolved once, and each level below it is opened separately, so no
symbolic link is followed. The root and the levels right below it stay open, so a read needs few
calls. `close` drops their descriptors; each one is closed when the last call that uses it returns,
so other threads may still use it. The umask decides the permissions of the root; what is below it
gets owner and permissions of the root.
"""

import errno
import os
import secrets
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import groupby

from blztable.errors import BlzError, ReadOnlyError, StorageError
from blztable.ownership import shared_by
from blztable.storage.disk import REAL_DISK, TEMPORARY, Disk
from blztable.storage.locks import holders_of, lock_at
from blztable.storage.opening import (
    DIRECTORY,
    Descriptor,
    DirectoryInUse,
    LocalReader,
    failures,
    open_directory,
    open_file,
    opened,
    unreadable,
    unwritable,
)
from blztable.storage.store import (
    Buffer,
    KeyNotFound,
    KeyTaken,
    ListedValue,
    Lock,
    Nothing,
    Store,
)
from blztable.storage.threads import parallel


class Directories:
    """The open directories of the store at `path`."""

    def __init__(self, path: str, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self._kept: dict[str, Descriptor] = {}
        # Below these levels, the directory of the file that was opened last.
        self._last: tuple[Sequence[str], Descriptor] | None = None

    def open_file(self, key: str) -> LocalReader:
        """Open the file under `key`; the next one is often in the same directory."""
        *prefix, name = parts_of(key)
        last = self._last
        if last is not None and last[0] == prefix:
            # Another process may have removed the directory, and made it again.
            with suppress(KeyNotFound):
                return open_file(name, last[1].fd, self.where(key))
            self._last = None
        with self.open(prefix) as directory:
            reader = open_file(name, directory.fd, self.where(key))
            if len(prefix) > 1:
                self._last = prefix, directory.descriptor
            return reader

    def open(self, parts: Sequence[str], *, make: bool = False) -> DirectoryInUse:
        """Open a directory (() is the root); with `make`, create missing levels."""
        directory = DirectoryInUse(self._keep("".join(parts[:1]), make=make))
        for depth in range(1, len(parts)):
            with directory:
                level = self._open_level(parts[: depth + 1], directory.fd, make=make)
            directory = DirectoryInUse(level)
        return directory

    def where(self, key: str) -> str:
        """Return the path of a key, for messages."""
        return f"{self._path}/{key}" if key else self._path

    def share(self, name: str, dir_fd: int, key: str) -> None:
        """Give a new directory the owner and the permissions of its parent directory."""
        with suppress(OSError):
            found = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
            model = os.fstat(dir_fd)
            if (found.st_uid, found.st_gid, found.st_mode) == shared_by(found, model):
                return
            # If it cannot be opened, the call that uses it raises the error.
            with suppress(BlzError, KeyNotFound):
                directory = open_directory(name, dir_fd, self.where(key))
                self._disk.share(directory.fd, model)

    def close(self) -> None:
        """Drop the descriptors; a later call opens them again."""
        self._kept.clear()
        self._last = None

    def _keep(self, level: str, *, make: bool = False) -> Descriptor:
        """Return the root ("") or a level right below it, opened once."""
        kept = self._kept.get(level)
        if kept is not None:
            return kept
        if level:
            root = self._keep("", make=make)
            directory = self._open_level([level], root.fd, make=make)
        else:
            try:
                directory = open_directory(self._path, None, self._path)
            except KeyNotFound:
                if make:
                    raise StorageError(errno.ENOENT, "no such directory", self._path) from None
                raise
        # If several threads open it, one wins. A lock could be held for ever in a forked child.
        return self._kept.setdefault(level, directory)

    def _open_level(self, parts: Sequence[str], dir_fd: int, *, make: bool) -> Descriptor:
        key = "/".join(parts)
        try:
            return open_directory(parts[-1], dir_fd, self.where(key))
        except KeyNotFound:
            if not make:
                raise
        with suppress(KeyTaken), failures("creating", key, self.where(key)):
            self._disk.mkdir(parts[-1], dir_fd)
            self.share(parts[-1], dir_fd, key)
        return open_directory(parts[-1], dir_fd, self.where(key))


def parts_of(key: str) -> list[str]:
    """Return the names in a key, [] for the root. Only our own code makes keys."""
    parts = key.split("/") if key else []
    assert not {"", ".", ".."}.intersection(parts), key
    return parts


def _listed_order(found: tuple[str, os.stat_result]) -> str:
    key, status = found
    return f"{key}/" if stat.S_ISDIR(status.st_mode) else key


# For more keys, one flush of the whole file system is faster than a flush of each file (measured).
SYNC_ALL_ABOVE = 64

_LINK_REFUSED = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}

# Errors of a removal that does nothing. A directory that is not empty is a prefix in use.
_NOTHING_TO_REMOVE = {errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST}


class LocalStore(Store):
    """Bytes under keys in the directory `path`; `prepare` creates a missing directory."""

    def __init__(self, path: str | os.PathLike[str], *, disk: Disk = REAL_DISK) -> None:
        if sys.platform == "win32":
            raise StorageError(
                f"{os.fspath(path)}: a table in a directory needs Linux or macOS, not Windows; "
                "use the Windows Subsystem for Linux"
            )
        self._path = os.path.realpath(os.fspath(path))
        self._disk = disk
        self._directories = Directories(self._path, disk)
        self._made_root = False

    def __reduce__(self) -> tuple[type["LocalStore"], tuple[str]]:
        # A copy in another process opens its own descriptors.
        return LocalStore, (self._path,)

    @property
    def name(self) -> str:
        """The path of the directory."""
        return self._path

    @property
    def path(self) -> str:
        """The path of the directory."""
        return self._path

    def open(self, key: str, size: int | None = None) -> LocalReader:
        """Open the value under `key`."""
        return self._directories.open_file(key)

    def get(self, key: str, offset: int = 0, length: int | None = None) -> bytes:
        """Read a range of the value under `key`; by default the whole value."""
        with self.open(key) as reader:
            return reader.read(offset, reader.size if length is None else length)

    def rely_on_no_lock(self) -> None:
        """Set `locks` to False from here on."""
        self.locks = False

    def entries(self, prefix: str, after: str = "") -> Iterator[ListedValue]:
        """Yield the values under `prefix` at any depth whose keys are above `after`, ascending."""
        yield from (entry for entry in self._entries(prefix) if entry.key > after)

    def _entries(self, prefix: str) -> Iterator[ListedValue]:
        found: list[tuple[str, os.stat_result]] = []
        with suppress(KeyNotFound), self._directories.open(parts_of(prefix)) as directory:
            for name in self._all_names(prefix):
                key = f"{prefix}/{name}" if prefix else name
                with suppress(KeyNotFound), self._failures("looking", key):
                    status = os.stat(name, dir_fd=directory.fd, follow_symlinks=False)
                    found.append((key, status))
        # In the order of keys, "a.b" comes before "a/b".
        for key, status in sorted(found, key=_listed_order):
            if stat.S_ISDIR(status.st_mode):
                yield from self._entries(key)
            elif stat.S_ISREG(status.st_mode) and not key.rpartition("/")[2].startswith(TEMPORARY):
                yield ListedValue(key, status.st_size, "", status.st_mtime)

    def age(self, key: str) -> float:
        """Return the seconds since the file under `key` was written, by the file system's clock."""
        if self.locks:
            return 0.0
        *prefix, name = parts_of(key)
        with self._directories.open(prefix) as directory, self._failures("looking", key):
            then = os.stat(name, dir_fd=directory.fd, follow_symlinks=False).st_mtime
            with self._temporary(b"", directory.fd, durable=False) as temporary:
                return os.stat(temporary, dir_fd=directory.fd).st_mtime - then

    def put(self, key: str, data: Buffer) -> None:
        """Set the value under `key`; replace an old one atomically."""
        *prefix, name = parts_of(key)
        with (
            self._directories.open(prefix, make=True) as directory,
            self._failures("writing", key),
            # Without locks, tombstones take the place of manifests, which must not be damaged.
            self._temporary(data, directory.fd, durable=not self.locks) as temporary,
        ):
            self._disk.rename(temporary, name, directory.fd)

    def put_new(self, key: str, buffers: Sequence[Buffer]) -> None:
        """Write a new value."""
        *prefix, name = parts_of(key)
        with (
            self._directories.open(prefix, make=True) as directory,
            self._failures("writing", key),
        ):
            self._write(name, buffers, directory.fd, durable=False)

    def publish(self, key: str, data: Buffer, *, durable: bool) -> str:
        """Create a value atomically.

        If the file system refuses links and exclusive renames, the caller must hold a lock.
        """
        *prefix, name = parts_of(key)
        with (
            self._directories.open(prefix, make=True) as directory,
            self._failures("publishing", key),
            self._temporary(data, directory.fd, durable=durable) as temporary,
        ):
            try:
                self._disk.link(temporary, name, directory.fd)
            except OSError as error:
                if error.errno not in _LINK_REFUSED:
                    raise
                if not self.locks:
                    raise ReadOnlyError(
                        f"{self._where(key)}: the file system makes no links, without which two "
                        "writers could publish one version; use one that does, or locks that hold"
                    ) from error
                self._disk.rename_new(temporary, name, directory.fd)
        return ""

    def flush(self, keys: Sequence[str], known: Collection[str] = ()) -> None:
        """Make the values under `keys` durable, and each name in their paths."""
        if len(keys) > SYNC_ALL_ABOVE:
            # This descriptor was opened before the writes, so it reports their failures.
            with self._directories.open(()) as root, self._failures("flushing", ""):
                if self._disk.sync_all(root.fd):
                    return
        prefixes: set[str] = set()
        for parts in {tuple(parts_of(key)[:-1]) for key in keys}:
            for depth in reversed(range(len(parts) + 1)):
                prefix = "/".join(parts[:depth])
                prefixes.add(prefix)
                if prefix in known:
                    break
        # Content before names: a name that survives must not name an empty file.
        with parallel(len(keys)) as each:
            each(self._flush_file, keys)
            each(self.flush_names, sorted(prefixes, reverse=True))

    def flush_names(self, prefix: str) -> None:
        """Make the added and removed names directly under `prefix` durable."""
        with (
            self._directories.open(parts_of(prefix)) as directory,
            self._failures("flushing", prefix),
        ):
            self._disk.sync_directory(directory.fd)

    def reserve(self, prefix: str) -> bool:
        """Create a prefix; return False if it exists."""
        *parent, name = parts_of(prefix)
        with self._directories.open(parent, make=True) as directory:
            try:
                with self._failures("creating", prefix):
                    self._disk.mkdir(name, directory.fd)
            except KeyTaken:
                return False
            self._directories.share(name, directory.fd, prefix)
        return True

    def list_names(self, prefix: str) -> list[str]:
        """Return the names one level under `prefix`, in no order."""
        return [name for name in self._all_names(prefix) if not name.startswith(TEMPORARY)]

    def delete(self, keys: Iterable[str]) -> None:
        """Remove the values and the empty prefixes under `keys`; skip other keys."""
        for prefix, group in groupby(map(parts_of, keys), key=lambda parts: parts[:-1]):
            try:
                directory = self._directories.open(prefix)
            except KeyNotFound:
                continue
            with directory:
                for parts in group:
                    self._remove("/".join(parts), parts[-1], directory.fd)

    def sweep(self, prefix: str) -> None:
        """Remove temporary files of killed calls directly under `prefix`."""
        names = [name for name in self._all_names(prefix) if name.startswith(TEMPORARY)]
        self.delete(f"{prefix}/{name}" if prefix else name for name in names)

    def problems(self, keys: Iterable[str]) -> Iterable[tuple[str, str]]:
        """Return nothing: there are no bytes around a value."""
        return ()

    def reclaim(self) -> None:
        """Do nothing: a removed value leaves no room behind."""

    def failures(self) -> Sequence[str]:
        """Return nothing: nothing is done after a publication."""
        return ()

    def holders(self, key: str) -> list[int]:
        """Return the processes of this machine that lock the file under `key`."""
        *prefix, name = parts_of(key)
        with self._directories.open(prefix) as directory:
            return holders_of(name, directory.fd)

    def lock(self, key: str, *, shared: bool, timeout: float, inherited: bool = True) -> Lock:
        """Lock the file or directory under `key`; BusyError after `timeout` seconds."""
        if not self.locks:
            return Nothing()
        parts = parts_of(key)
        name = parts[-1] if parts else "."
        with self._directories.open(parts[:-1]) as directory:
            return lock_at(
                name,
                directory.fd,
                self._where(key),
                shared=shared,
                timeout=timeout,
                inherited=shared and inherited,
            )

    def prepare(
        self, prefixes: Sequence[str], keys: Sequence[str], *, durable: bool = True
    ) -> bool:
        """Create the root, `prefixes` and empty values under `keys` if they are missing."""
        is_new = self._prepare_root(durable)
        for prefix in prefixes:
            self._directories.open(parts_of(prefix), make=True).close()
        for key in keys:
            with suppress(KeyTaken):
                self.put_new(key, [])
        if durable:
            # Flush even if nothing was missing: the process that created the names may have been
            # killed before its flush. One key is enough, because a lost key is created again.
            self.flush(keys[:1])
        return is_new

    def withdraw(self) -> None:
        """Remove the root if it is empty and this store created it."""
        self.close()
        if self._made_root:
            parent, name = os.path.split(self._path)
            with open_directory(parent, None, parent) as directory:
                self._remove("", name, directory.fd)

    def close(self) -> None:
        """Close the descriptors; a later call opens them again."""
        self._directories.close()

    def _where(self, key: str) -> str:
        return self._directories.where(key)

    def _failures(self, doing: str, key: str) -> AbstractContextManager[None]:
        return failures(doing, key, self._where(key))

    def _prepare_root(self, durable: bool) -> bool:
        """Create a missing root; return True if this call created it."""
        parent, name = os.path.split(self._path)
        try:
            directory = opened(parent, DIRECTORY)
        except FileNotFoundError:
            reason = "no such directory; create it, or choose another path"
            raise StorageError(errno.ENOENT, reason, parent) from None
        except OSError as error:
            # A user who may not read the parent directory may still write the table.
            if os.path.isdir(self._path):
                return False
            raise unwritable(error, "creating", self._path) from error
        is_new = False
        with directory:
            with suppress(KeyTaken), self._failures("creating", ""):
                self._disk.mkdir(name or ".", directory.fd)
                is_new = self._made_root = True
            if durable:
                with self._failures("flushing", ""):
                    self._disk.sync_directory(directory.fd)
        return is_new

    @contextmanager
    def _temporary(self, data: Buffer, dir_fd: int, *, durable: bool) -> Iterator[str]:
        """Write a temporary file with these bytes; remove its name at the end."""
        name = TEMPORARY + secrets.token_hex(8)
        self._write(name, [data], dir_fd, durable=durable)
        try:
            yield name
        finally:
            self._discard(name, dir_fd)

    def _write(self, name: str, buffers: Sequence[Buffer], dir_fd: int, *, durable: bool) -> None:
        """Create a file with these bytes; remove it if that fails."""
        file = self._disk.create(name, dir_fd)
        try:
            try:
                self._disk.share(file.fd, os.fstat(dir_fd))
                self._disk.write(file.fd, buffers)
                if durable:
                    self._disk.sync_file(file.fd)
            finally:
                self._disk.close(file)
        except BaseException:
            self._discard(name, dir_fd)
            raise

    def _discard(self, name: str, dir_fd: int) -> None:
        """Remove a file if it still exists; ignore errors, because a leftover file is harmless."""
        with suppress(OSError):
            self._disk.unlink(name, dir_fd)

    def _flush_file(self, key: str) -> None:
        with self.open(key) as reader, self._failures("flushing", key):
            self._disk.sync_file(reader.fileno())

    def _all_names(self, prefix: str) -> list[str]:
        try:
            with self._directories.open(parts_of(prefix)) as directory:
                # Use a new descriptor: two listings of one descriptor would share their position.
                listed = open_directory(".", directory.fd, self._where(prefix))
        except KeyNotFound:
            return []
        with listed:
            try:
                return os.listdir(listed.fd)
            except OSError as error:
                raise unreadable(error, self._where(prefix)) from error

    def _remove(self, key: str, name: str, dir_fd: int) -> None:
        try:
            try:
                self._disk.unlink(name, dir_fd)
            except IsADirectoryError:
                self._disk.rmdir(name, dir_fd)
        except OSError as error:
            if error.errno not in _NOTHING_TO_REMOVE:
                raise unwritable(error, "removing", self._where(key)) from error
