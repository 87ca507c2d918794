"""A directory of the local file system as a store.

Knows nothing of what lies under a key. The directory may come from a stranger: the user's path is
resolved once, and below it each level is opened by itself, so that no symbolic link is followed.
The descriptors of the first levels stay open, which makes a read cost few calls. `close` forgets
them; each is closed when the last call that uses it is done, so other threads may be at work.

What is visible and what is durable: a value is created under its own name (`put_new`), or under a
temporary one and then linked (`publish`) or renamed (`put`); nothing is durable before the file and
every directory on the way to it were flushed. All changes go through `Disk`. The root is made with
the permissions that the umask leaves; what is made below takes those of the root.
"""

import errno
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from itertools import groupby

from blztable.errors import BlzError, StorageError
from blztable.storage.descriptors import DirectoryInUse, OpenDirectory, close_unwritten
from blztable.storage.disk import REAL_DISK, Disk, shared_mode
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
        self._made_root = False
        self._kept: dict[str, OpenDirectory] = {}

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
                if self._disk.sync_all(root.fd):
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
            self._share(name, directory.fd, prefix)
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

    def lock(self, key: str, *, shared: bool, timeout: float, inherited: bool = True) -> LocalLock:
        """Lock the file or directory under `key`; `BusyError` after `timeout` seconds."""
        parts = _parts(key)
        name = parts[-1] if parts else "."
        with self._directory(parts[:-1]) as directory:
            where, stays = self._where(key), shared and inherited
            return lock_at(
                name, directory.fd, where, shared=shared, timeout=timeout, inherited=stays
            )

    def prepare(self, *, durable: bool = True) -> bool:
        """Make the root, `data`, `meta/manifest`, `meta/lock`, `meta/flight`; harmless if there.

        Flushed even if nothing was missing: whoever made them may have been killed before that.
        True if the root was made by this call.
        """
        is_new = self._prepare_root(durable)
        for prefix in (["data"], ["meta", "manifest"]):
            self._directory(prefix, make=True).close()
        for key in ("meta/lock", "meta/flight"):
            with suppress(KeyTaken):
                self.put_new(key, [])
        if durable:
            # Both are made again where they are missing; this flushes the directories above them.
            self.flush(["meta/lock"])
        return is_new

    def withdraw(self) -> None:
        """Remove what `prepare` made, as far as it is empty; the root if this store made it.

        `data` goes first: another creation takes its place for granted as soon as it holds a lock
        below `meta/manifest`.
        """
        self.delete(["data", "meta/lock", "meta/flight", "meta/manifest", "meta"])
        self.close()
        if self._made_root:
            above, name = os.path.split(self._path)
            fd = open_directory(above, None, above)
            try:
                self._remove("", name, fd)
            finally:
                os.close(fd)

    def close(self) -> None:
        """Give back the descriptors; a later call opens them again."""
        self._kept.clear()

    def _where(self, key: str) -> str:
        return f"{self._path}/{key}" if key else self._path

    def _directory(self, parts: Sequence[str], *, make: bool = False) -> DirectoryInUse:
        """Open a directory level by level; with `make`, create the levels that are missing."""
        kept = 1 if parts and parts[0] in KEPT_LEVELS else 0
        directory = DirectoryInUse(self._keep(parts[0] if kept else "", make=make))
        for depth in range(kept, len(parts)):
            with directory:
                fd = self._open_level(parts[: depth + 1], directory.fd, make=make)
            directory = DirectoryInUse(OpenDirectory(fd))
        return directory

    def _keep(self, level: str, *, make: bool = False) -> OpenDirectory:
        """The root ("") or a level right below it, opened once."""
        kept = self._kept.get(level)
        if kept is not None:
            return kept
        if level:
            root = self._keep("", make=make)
            fd = self._open_level([level], root.fd, make=make)
        else:
            try:
                fd = open_directory(self._path, None, self._path)
            except KeyNotFound:
                if make:
                    raise StorageError(errno.ENOENT, "no such directory", self._path) from None
                raise
        # Of threads that come here together one wins; a lock could be inherited, held, by a fork.
        return self._kept.setdefault(level, OpenDirectory(fd))

    def _open_level(self, parts: Sequence[str], dir_fd: int, *, make: bool) -> int:
        key = "/".join(parts)
        try:
            return open_directory(parts[-1], dir_fd, self._where(key))
        except KeyNotFound:
            if not make:
                raise
        with suppress(KeyTaken), self._failures("creating", key):
            self._disk.mkdir(parts[-1], dir_fd)
            self._share(parts[-1], dir_fd, key)
        return open_directory(parts[-1], dir_fd, self._where(key))

    def _share(self, name: str, dir_fd: int, key: str) -> None:
        """Give a directory that was just made the permissions of the one that it is in."""
        with suppress(OSError):
            mode = os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode
            if mode == shared_mode(mode, os.fstat(dir_fd).st_mode):
                return
        # Where it cannot be opened, the call that uses it raises the error.
        with suppress(BlzError, KeyNotFound):
            made = OpenDirectory(open_directory(name, dir_fd, self._where(key)))
            self._disk.share(made.fd, dir_fd)

    def _prepare_root(self, durable: bool) -> bool:
        above, name = os.path.split(self._path)
        try:
            fd = os.open(above, DIRECTORY)
        except FileNotFoundError:
            reason = "no such directory; a table is made in one that exists"
            raise StorageError(errno.ENOENT, reason, above) from None
        except OSError as error:
            # Those who may not read the directory above may still write the table in it.
            if os.path.isdir(self._path):
                return False
            raise unwritable(error, "creating", self._path) from error
        is_new = False
        try:
            with suppress(KeyTaken), self._failures("creating", ""):
                self._disk.mkdir(name or ".", fd)
                is_new = self._made_root = True
            if durable:
                with self._failures("flushing", ""):
                    self._disk.sync_directory(fd)
        finally:
            close_unwritten(fd)
        return is_new

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
                self._disk.share(fd, dir_fd)
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
            close_unwritten(fd)

    def _remove(self, key: str, name: str, dir_fd: int) -> None:
        try:
            try:
                self._disk.unlink(name, dir_fd)
            except IsADirectoryError:
                self._disk.rmdir(name, dir_fd)
        except OSError as error:
            if error.errno not in _NOTHING_TO_REMOVE:
                raise unwritable(error, "removing", self._where(key)) from error


_NO_NAMES = frozenset({"", ".", ".."})


def _parts(key: str) -> list[str]:
    """The names a key is made of; [] for the root. Keys are made by our own code."""
    parts = key.split("/") if key else []
    assert _NO_NAMES.isdisjoint(parts), key
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
