"""A directory of the local file system as a store.

Knows nothing of what lies under a key. The directory may come from a stranger: the user's path is
resolved once, and below it each level is opened by itself, so that no symbolic link is followed.
The descriptors of the first levels stay open, which makes a read cost few calls.

What is visible and what is durable: a value is created under its own name (`put_new`), or under a
temporary one and then linked (`publish`) or renamed (`put`); nothing is durable before the file and
every directory on the way to it were flushed. All changes go through `Disk`.
"""

import errno
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from itertools import groupby

from blztable.errors import StorageError
from blztable.storage.disk import REAL_DISK, Disk
from blztable.storage.locks import LocalLock, lock_at
from blztable.storage.opening import (
    DIRECTORY,
    LocalReader,
    open_directory,
    open_file,
    unreadable,
    unwritable,
)
from blztable.storage.store import Buffer, KeyNotFound, KeyTaken

# Levels whose descriptors the store keeps: they are on the way to every key.
KEPT_LEVELS = ("data", "meta")

TEMPORARY = ".tmp-"

# Above, one flush of the whole file system is cheaper than one a file (measured).
SYNC_ALL_ABOVE = 64
# Where others write to the disk too each flush waits for a turn of the journal, and side by side
# they take a third of the time or less. On an idle disk it is the same from here on, below it costs
# more than it saves (measured).
SYNC_THREADS_FROM = 8
SYNC_THREADS = 4

_LINK_REFUSED = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}

# A directory with something in it is a prefix still in use, no value.
_NOTHING_TO_REMOVE = {errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST}


class LocalStore:
    """Bytes under keys in the directory `path`, which need not exist before `prepare`."""

    def __init__(self, path: str | os.PathLike[str], *, disk: Disk = REAL_DISK) -> None:
        if sys.platform == "win32":
            raise StorageError(
                f"{os.fspath(path)}: a table in a directory needs Linux or macOS, and this is "
                "Windows; use the Windows Subsystem for Linux"
            )
        self._path = os.path.realpath(os.fspath(path))
        self._disk = disk
        self._kept: dict[str, int] = {}

    def __reduce__(self) -> tuple[type["LocalStore"], tuple[str]]:
        # Descriptors mean nothing elsewhere: a copy opens its own.
        return LocalStore, (self._path,)

    @property
    def name(self) -> str:
        """The path of the directory."""
        return self._path

    def open(self, key: str) -> LocalReader:
        """Open the value under `key`; `KeyNotFound`, or `CorruptError` if it is no regular file."""
        *prefix, name = _parts(key)
        with self._directory(prefix) as directory:
            return open_file(name, directory.fd, self._where(key))

    def get(self, key: str, offset: int = 0, length: int | None = None) -> bytes:
        """A range of the value under `key`, all of it by default."""
        with self.open(key) as reader:
            return reader.read(offset, reader.size if length is None else length)

    def put(self, key: str, data: Buffer) -> None:
        """Set the value under `key`, replacing another one at a stroke; not flushed."""
        *prefix, name = _parts(key)
        with (
            self._directory(prefix, make=True) as directory,
            self._failures("writing", key),
            self._temporary(data, directory.fd, durable=False) as temporary,
        ):
            self._disk.rename(temporary, name, directory.fd)

    def put_new(self, key: str, buffers: Sequence[Buffer]) -> None:
        """Write a new value, `KeyTaken` if there is one; after a crash it may be there in part."""
        *prefix, name = _parts(key)
        with (
            self._directory(prefix, make=True) as directory,
            self._failures("writing", key),
        ):
            self._write(name, buffers, directory.fd, durable=False)

    def publish(self, key: str, data: Buffer, *, durable: bool) -> None:
        """Create a value that is there whole or not at all; `KeyTaken` if there is one.

        Where the file system refuses links and exclusive renames, the caller must hold a lock.
        """
        *prefix, name = _parts(key)
        with (
            self._directory(prefix, make=True) as directory,
            self._failures("publishing", key),
            self._temporary(data, directory.fd, durable=durable) as temporary,
        ):
            try:
                self._disk.link(temporary, name, directory.fd)
            except OSError as error:
                if error.errno not in _LINK_REFUSED:
                    raise
                self._disk.rename_new(temporary, name, directory.fd)

    def flush(self, keys: Sequence[str]) -> None:
        """Make the values under `keys` durable, and every name on the way to them."""
        if len(keys) > SYNC_ALL_ABOVE:
            # By the descriptor kept since before the writes, so that their failures are told.
            root = self._keep("")
            with self._failures("flushing", ""):
                if self._disk.sync_all(root):
                    return
        ways = (_parts(key)[:-1] for key in keys)
        prefixes = {"/".join(way[:depth]) for way in ways for depth in range(len(way) + 1)}
        # Content before names: a name that survives should lead to something.
        with _side_by_side(len(keys)) as each:
            each(self._flush_file, keys)
            each(self.flush_names, sorted(prefixes, reverse=True))

    def flush_names(self, prefix: str) -> None:
        """Make the names directly under `prefix` durable: those added and those removed."""
        with (
            self._directory(_parts(prefix)) as directory,
            self._failures("flushing", prefix),
        ):
            self._disk.sync_directory(directory.fd)

    def reserve(self, prefix: str) -> bool:
        """Claim an unused prefix for the caller alone; False where anyone claimed or used it."""
        *above, name = _parts(prefix)
        with self._directory(above, make=True) as directory:
            try:
                with self._failures("creating", prefix):
                    self._disk.mkdir(name, directory.fd)
            except KeyTaken:
                return False
        return True

    def list_names(self, prefix: str) -> list[str]:
        """The names one level under `prefix`, in no order; empty if none."""
        return [name for name in self._all_names(prefix) if not name.startswith(TEMPORARY)]

    def delete(self, keys: Iterable[str]) -> None:
        """Remove the values and empty directories under `keys`; others are passed over."""
        for prefix, group in groupby(map(_parts, keys), key=lambda parts: parts[:-1]):
            try:
                directory = self._directory(prefix)
            except KeyNotFound:
                continue
            with directory:
                for parts in group:
                    self._remove("/".join(parts), parts[-1], directory.fd)

    def sweep(self, prefix: str) -> None:
        """Remove what killed calls left directly under `prefix`; only while nobody writes there."""
        names = [name for name in self._all_names(prefix) if name.startswith(TEMPORARY)]
        self.delete(f"{prefix}/{name}" if prefix else name for name in names)

    def lock(self, key: str, *, shared: bool, timeout: float) -> LocalLock:
        """Lock the file or directory under `key`; `BusyError` after `timeout` seconds."""
        parts = _parts(key)
        name = parts[-1] if parts else "."
        with self._directory(parts[:-1]) as directory:
            return lock_at(name, directory.fd, self._where(key), shared=shared, timeout=timeout)

    def prepare(self, *, durable: bool = True) -> None:
        """Make the root, `data`, `meta/manifest` and `meta/lock`; harmless if there.

        Flushed even if nothing was missing: whoever made them may have been killed before that.
        """
        self._prepare_root(durable)
        for prefix in (["data"], ["meta", "manifest"]):
            self._directory(prefix, make=True).close()
        with suppress(KeyTaken):
            self.put_new("meta/lock", [])
        if durable:
            self.flush(["meta/lock"])

    def close(self) -> None:
        """Give back the descriptors; a later call opens them again."""
        for level in list(self._kept):
            fd = self._kept.pop(level, None)
            if fd is not None:
                os.close(fd)

    def __del__(self) -> None:
        # Not there if the constructor raised.
        if hasattr(self, "_kept"):
            self.close()

    def _where(self, key: str) -> str:
        return f"{self._path}/{key}" if key else self._path

    def _directory(self, parts: Sequence[str], *, make: bool = False) -> "_Directory":
        """Open a directory level by level; with `make`, create the levels that are missing."""
        kept = 1 if parts and parts[0] in KEPT_LEVELS else 0
        directory = _Directory(self._keep(parts[0] if kept else "", make=make), kept=True)
        for depth in range(kept, len(parts)):
            with directory:
                fd = self._open_level(parts[: depth + 1], directory.fd, make=make)
            directory = _Directory(fd, kept=False)
        return directory

    def _keep(self, level: str, *, make: bool = False) -> int:
        """The descriptor of the root ("") or of a level right below it, opened once."""
        fd = self._kept.get(level)
        if fd is not None:
            return fd
        if level:
            fd = self._open_level([level], self._keep("", make=make), make=make)
        else:
            try:
                fd = open_directory(self._path, None, self._path)
            except KeyNotFound:
                if make:
                    raise StorageError(errno.ENOENT, "no such directory", self._path) from None
                raise
        # Of threads that come here together one wins; a lock could be inherited, held, by a fork.
        kept = self._kept.setdefault(level, fd)
        if kept != fd:
            os.close(fd)
        return kept

    def _open_level(self, parts: Sequence[str], dir_fd: int, *, make: bool) -> int:
        key = "/".join(parts)
        try:
            return open_directory(parts[-1], dir_fd, self._where(key))
        except KeyNotFound:
            if not make:
                raise
        with suppress(KeyTaken), self._failures("creating", key):
            self._disk.mkdir(parts[-1], dir_fd)
        return open_directory(parts[-1], dir_fd, self._where(key))

    def _prepare_root(self, durable: bool) -> None:
        above, name = os.path.split(self._path)
        try:
            fd = os.open(above, DIRECTORY)
        except FileNotFoundError:
            reason = "no such directory; a table is made in one that exists"
            raise StorageError(errno.ENOENT, reason, above) from None
        except OSError as error:
            # Those who may not read the directory above may still write the table in it.
            if os.path.isdir(self._path):
                return
            raise unwritable(error, "creating", self._path) from error
        try:
            with suppress(KeyTaken), self._failures("creating", ""):
                self._disk.mkdir(name or ".", fd)
            if durable:
                with self._failures("flushing", ""):
                    self._disk.sync_directory(fd)
        finally:
            os.close(fd)

    @contextmanager
    def _failures(self, doing: str, key: str) -> Iterator[None]:
        try:
            yield
        except FileExistsError:
            raise KeyTaken(key) from None
        except OSError as error:
            raise unwritable(error, doing, self._where(key)) from error

    @contextmanager
    def _temporary(self, data: Buffer, dir_fd: int, *, durable: bool) -> Iterator[str]:
        """A file with these bytes under a name of its own, which is gone afterwards."""
        name = TEMPORARY + secrets.token_hex(8)
        self._write(name, [data], dir_fd, durable=durable)
        try:
            yield name
        finally:
            self._discard(name, dir_fd)

    def _write(self, name: str, buffers: Sequence[Buffer], dir_fd: int, *, durable: bool) -> None:
        """Create the file and write it whole; if that fails, nothing is left of it."""
        fd = self._disk.create(name, dir_fd)
        try:
            try:
                self._disk.write(fd, buffers)
                if durable:
                    self._disk.sync_file(fd)
            finally:
                self._disk.close(fd)
        except BaseException:
            self._discard(name, dir_fd)
            raise

    def _discard(self, name: str, dir_fd: int) -> None:
        """Remove a file that may be gone by a rename; failing, it is debris and does no harm."""
        with suppress(OSError):
            self._disk.unlink(name, dir_fd)

    def _flush_file(self, key: str) -> None:
        with self.open(key) as reader, self._failures("flushing", key):
            self._disk.sync_file(reader.fileno())

    def _all_names(self, prefix: str) -> list[str]:
        try:
            with self._directory(_parts(prefix)) as directory:
                # A descriptor of its own: two listings by one share the place they have reached.
                fd = open_directory(".", directory.fd, self._where(prefix))
        except KeyNotFound:
            return []
        try:
            return os.listdir(fd)
        except OSError as error:
            raise unreadable(error, self._where(prefix)) from error
        finally:
            os.close(fd)

    def _remove(self, key: str, name: str, dir_fd: int) -> None:
        try:
            try:
                self._disk.unlink(name, dir_fd)
            except IsADirectoryError:
                self._disk.rmdir(name, dir_fd)
        except OSError as error:
            if error.errno not in _NOTHING_TO_REMOVE:
                raise unwritable(error, "removing", self._where(key)) from error


class _Directory:
    """An open directory; leaving closes it unless the store keeps it."""

    __slots__ = ("_kept", "fd")

    def __init__(self, fd: int, *, kept: bool) -> None:
        self.fd = fd
        self._kept = kept

    def close(self) -> None:
        if not self._kept:
            os.close(self.fd)

    def __enter__(self) -> "_Directory":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _parts(key: str) -> list[str]:
    """The names a key is made of; [] for the root. Keys are made by our own code."""
    parts = key.split("/") if key else []
    assert not {"", ".", ".."}.intersection(parts), key
    return parts


Each = Callable[[Callable[[str], None], Iterable[str]], None]


@contextmanager
def _side_by_side(count: int) -> Iterator[Each]:
    """What calls a function with each of some keys, in threads where there are many in all."""
    with ExitStack() as held:
        apply: Callable[..., Iterable[None]] = map
        if count >= SYNC_THREADS_FROM:
            pool = held.enter_context(ThreadPoolExecutor(SYNC_THREADS))
            # Refused when the interpreter shuts down: then it is one after another. Tried with
            # nothing, for a flush that may have begun must not be begun again.
            with suppress(RuntimeError):
                pool.submit(int)
                apply = pool.map

        def each(function: Callable[[str], None], keys: Iterable[str]) -> None:
            for _ in apply(function, keys):
                pass

        yield each
