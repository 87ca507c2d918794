"""One file: a table in one file as a store.

Knows nothing of the values. It keeps the promises of `store.Store`, with two differences: another
process sees a value of `put_new` only after the next `publish`, and one process writes at a time.

Theory of operation
-------------------
The file is a sequence of records (`records.py`) and grows at its end; `publish` appends a manifest,
an index of all values, and a foot, in one write. That is the commit: readers look for the last
foot. A crash leaves bytes behind the last foot, which the next writer cuts off.

A reader takes no lock. No byte that a commit names is written again, and a file that is rewritten
gets a new inode, which the descriptors of readers outlive. So a lock on a value, which pins a
version, is a matter of this process only. A lock on a prefix or on an empty value is a writer's:
while any of them is held, this process alone may write. The handles of one process share their
store (`at`), so they lock each other as in a directory.

A store belongs to one file, not to a path: it keeps the identity of the file that it made or found.
If the path leads to another file, or to none, the store is *detached* for ever: it reads from the
commits that it has read, and refuses changes. `at` makes another store for the new file.

While this process writes, `_writing` has the listing of the next commit; everyone in the process
sees it. `delete` takes names out of it. If that happens after the last `publish`, an index and a
foot of their own are appended at the end.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from weakref import WeakSet, WeakValueDictionary

from blztable import interrupts, tuning
from blztable.errors import BlzError, BusyError, CorruptError, ReadOnlyError
from blztable.storage.files import File, LocalFile
from blztable.storage.held import HeldLock, Holder, StoreCondition
from blztable.storage.locks import SLEEP_LONGEST
from blztable.storage.one_file.commits import (
    FileCommit,
    ValueReader,
    check_first_bytes,
    everything,
    is_anyones,
    is_unborn,
    keys_behind,
    problems_around,
    whole_commits,
)
from blztable.storage.one_file.identity import KnownCommits
from blztable.storage.one_file.listing import Listing
from blztable.storage.one_file.records import Extent
from blztable.storage.one_file.writing import Writing, replaced
from blztable.storage.store import Buffer, KeyNotFound, KeyTaken, Reader, Store

# Seconds of one attempt to lock the file.
FILE_SECONDS = 0.001


class OneFileStore(Store):
    """Bytes under keys in one file."""

    has_one_writer = True
    appends_only = True
    _writing_kind: type[Writing] = Writing

    def __init__(self, file: File) -> None:
        self._file = file
        self._known = KnownCommits(file)
        self._made = False
        # What failed behind publications, until somebody is told.
        self._failures: list[str] = []
        self._forget_locks()
        _stores.add(self)

    def _forget_locks(self) -> None:
        """Hold no lock; a child made by fork holds none of its parent's."""
        # Reentrant: garbage collection may close a lock while this thread holds it.
        self._changed = StoreCondition()
        # Of the values and prefixes that are locked; one that replaces another has a holder of its
        # own.
        self._holders: WeakValueDictionary[str, Holder] = WeakValueDictionary()
        # What the next commit adds to the newest one, while this process writes.
        self._writing: Writing | None = None

    @property
    def name(self) -> str:
        """Name of the file in messages."""
        return self._file.name

    @property
    def path(self) -> str | None:
        """Path of the file, if it has one."""
        return self._file.name if self._file.has_path else None

    def __reduce__(self) -> tuple[Callable[..., "OneFileStore"], tuple[object, ...]]:
        return (at, (self.name,)) if self._file.has_path else (OneFileStore, (self._file,))

    # Values

    def open(self, key: str, size: int | None = None) -> ValueReader:
        """Open the value under `key`."""
        return ValueReader(*self._find(key))

    def get(self, key: str, offset: int = 0, length: int | None = None) -> bytes:
        """Read a range of the value under `key`; by default the whole value."""
        commit, extent = self._find(key)
        return commit.read(extent, offset, extent.length if length is None else length)

    def put(self, key: str, data: Buffer) -> None:
        """Set the value under `key` by a commit of its own."""
        with self._change() as writing:
            writing.listing.check_above(self.name, key)
            writing.check_place()
            writing.publish(key, data)
            self._known.newest = writing.commit
            self._holders.pop(key, None)

    def put_new(self, key: str, buffers: Sequence[Buffer]) -> None:
        """Write a new value; other processes see it after the next publication."""
        with self._change() as writing:
            writing.listing.check_above(self.name, key)
            # Who reads an older commit looks for its values by their keys.
            known = [writing.listing, *(commit.listing for commit in self._known.all)]
            if any(one.find(key) is not None for one in known) or writing.listing.has_prefix(key):
                raise KeyTaken(key)
            writing.add(key, buffers)

    def publish(self, key: str, data: Buffer, *, durable: bool) -> str:
        """Append the value, the index and the foot: a commit."""
        with self._change() as writing:
            if writing.listing.find(key) is not None:
                raise KeyTaken(key)
            if durable:
                writing.sync()
            writing.check_place()
            writing.publish(key, data)
            self._known.newest = writing.commit
        return ""

    def flush(self, keys: Sequence[str], known: Collection[str] = ()) -> None:
        """Make the file durable."""
        for key in keys:
            self._find(key)
        if keys:
            self._sync()

    def flush_names(self, prefix: str) -> None:
        """Make the file durable."""
        if prefix and not self._listing().has_prefix(prefix):
            raise KeyNotFound(prefix)
        self._sync()

    def _sync(self) -> None:
        with self._changed:
            if self._writing is None:
                self._file.flush()
            else:
                self._writing.sync()

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        source = self._source()
        return 0 if source is None else source.size

    def _source(self) -> Reader | None:
        """Return the file that was read last, or the one that is there; None if none is."""
        with self._changed:
            commit = self._known.newest
        return self._file.current() if commit is None else commit.source

    # Names

    def reserve(self, prefix: str) -> bool:
        """Create a prefix; return False if it exists."""
        with self._change() as writing:
            writing.listing.check_above(self.name, prefix)
            if writing.listing.has_prefix(prefix) or writing.listing.find(prefix) is not None:
                return False
            writing.make(prefix)
            return True

    def list_names(self, prefix: str) -> list[str]:
        """Return the names one level under `prefix`, in no order."""
        with self._changed:
            listing = self._listing()
            listing.check_above(self.name, prefix + "/")
            return list(listing.children(prefix))

    def delete(self, keys: Iterable[str]) -> None:
        """Remove the values and the empty prefixes under `keys`; skip other keys."""
        with self._change() as writing:
            for key in keys:
                if writing.remove(key):
                    self._holders.pop(key, None)

    def sweep(self, prefix: str) -> None:
        """Do nothing: the next writer cuts off what killed calls leave."""

    def problems(self, keys: Iterable[str]) -> Iterable[tuple[str, str]]:
        """Compare the record of each value with its checksums, and the first bytes with theirs."""
        yield from problems_around(keys, self._find)
        try:
            check_first_bytes(self._source(), self.name)
        except CorruptError as error:
            yield "", str(error)

    def reclaim(self) -> None:
        """Rewrite the file without the values that were removed."""
        with self._change() as writing:
            writing.reclaim()
            _unwritten.pop(self.name, None)
            self._known.newest = writing.commit

    def failures(self) -> list[str]:
        """Return what failed behind publications, once."""
        with self._changed:
            told, self._failures = self._failures, []
        return told

    def holders(self, key: str) -> list[int]:
        """Return this process if it locks the value; one with an older file keeps none here."""
        with self._changed:
            holder = self._holders.get(key)
            return [os.getpid()] if holder and not holder.admits(shared=False) else []

    # A file that ends with no commit

    def may_be_foreign(self) -> bool:
        """Return True for a file so short that it may be no front of ours."""
        return is_anyones(self._source())

    def lost_keys(self) -> list[str] | None:
        """Return the keys in the newest commit if it is damaged; None if it is not.

        Those whose heads are damaged are missing.
        """
        with self._changed:
            commit = self._current() if self._writing is None else self._writing.commit
        if commit is None or not commit.damage:
            return None
        return list(keys_behind(commit.source, commit.end, self.name))

    def unfinished_bytes(self) -> int:
        """Return how many bytes lie behind the newest commit, if nobody is writing there."""
        with self._changed:
            rest = self._file.rest() if self._writing is None and self._behind() else None
            if rest is None:
                return 0
            with rest:
                # Again: a commit may have ended meanwhile.
                return self._behind()

    def _behind(self) -> int:
        """Return how many bytes lie behind the newest commit; all of a file that has none."""
        commit = self._current()
        if self._known.file.is_gone:
            return 0
        if commit is not None:
            return commit.source.size - commit.behind
        source = self._file.current()
        return 0 if source is None or is_unborn(source) else source.size

    def unfinished(self) -> "OneFileStore | None":
        """Return the last whole commit, or else all whole records; None if there is no value."""
        try:
            found = next(self.earlier(), None) or _Earlier(self._file)
            return found if found._listing().nbytes else None
        except CorruptError:
            # It is no table, or its front is damaged.
            return None

    def earlier(self) -> "Iterator[OneFileStore]":
        """Yield a store of each whole commit that has values, the newest first."""
        source = self._file.current()
        if source is not None and not is_unborn(source):
            for commit in whole_commits(source, self.name):
                if commit.listing.nbytes:
                    yield _Earlier(self._file, commit)

    # Locks

    def lock(self, key: str, *, shared: bool, timeout: float, inherited: bool = True) -> HeldLock:
        """Lock the value or prefix under `key`; BusyError after `timeout` seconds."""
        del inherited  # A lock belongs to one process; a child made by fork holds none.
        deadline = time.monotonic() + timeout
        user = object()
        with self._changed, self._unused(user):
            while True:
                commit, extent = self._lockable(key)
                is_pin = extent is not None and extent.length > 0
                holder = self._holders.setdefault(key, Holder())
                remaining = deadline - time.monotonic()
                # The last condition takes the lock of the file.
                if holder.admits(shared=shared) and (is_pin or self._may_write(remaining)):
                    break
                if remaining <= 0:
                    raise BusyError(
                        f"{self.name}/{key}: still locked after {timeout:g} seconds; try again"
                    )
                self._changed.wait(min(remaining, SLEEP_LONGEST))
                interrupts.raise_pending()
            if is_pin:
                # The lock keeps the commit, so the version can be read from an older file.
                if commit is not None:
                    self._known.all.add(commit)
                return HeldLock(holder, shared, self._pin_condition, partial(_keep, commit))
            writing = self._writing
            assert writing is not None
            # Its release takes out this user alone, also if the exception of a signal handler comes
            # before the user is added.
            lock = HeldLock(holder, shared, self._condition, partial(self._release, writing, user))
            writing.users.add(user)
            return lock

    def _condition(self) -> StoreCondition:
        """Return the condition of this process."""
        return self._changed

    def _pin_condition(self) -> StoreCondition:
        """Return the condition under which pins are released in this process."""
        return self._changed

    def prepare(
        self, prefixes: Sequence[str], keys: Sequence[str], *, durable: bool = True
    ) -> bool:
        """Create the file, `prefixes` and empty values under `keys` if they are missing."""
        self._check_attached()
        is_new = self._file.create()
        self._made = self._made or is_new
        with self._change() as writing:
            for prefix in prefixes:
                writing.make(prefix)
            for key in keys:
                if writing.listing.find(key) is None:
                    writing.add(key, [])
        if durable:
            self._sync()
            self._file.flush_name()
        return is_new

    def withdraw(self) -> None:
        """Remove the file if it has no value and this store created it."""
        with self._change() as writing:
            is_mine = self._made and self._file.is_there()
            if is_mine and not any(writing.listing.values()):
                self._file.remove()
                self._made = False
        if is_mine and not self._made:
            # The path is free, also for this store.
            self._known.forget()

    def close(self) -> None:
        """Release what was read; a later call reads it again."""
        with self._changed:
            if self._writing is None:
                self._known.close()

    # The file that the path leads to

    @property
    def is_current(self) -> bool:
        """True if the path leads to the file of this store, or there is none yet."""
        with self._changed:
            if self._writing is not None:
                return self._file.is_there()
            self._known.file.current()
            return not self._known.file.is_gone

    def _check_attached(self) -> None:
        """Raise ConflictError if the path leads to another file, or to none any more."""
        with self._changed:
            if self._writing is not None:
                self._writing.check_place()
                return
            self._known.file.current()
            if self._known.file.is_gone:
                raise replaced(self.name)

    # The commit that is read

    def _listing(self) -> Listing:
        """Return the names that this process sees; the newest, also by other processes."""
        with self._changed:
            if self._writing is not None:
                return self._writing.listing
            commit = self._current()
            return Listing() if commit is None else commit.listing

    def _find(self, key: str) -> tuple[FileCommit, Extent]:
        """Return where a value lies; KeyNotFound, or CorruptError for a prefix."""
        with self._changed:
            for commit, listing in self._views():
                extent = listing.find(key)
                if extent is not None:
                    return commit, extent
            listing = self._listing()
            listing.check_above(self.name, key)
            if listing.has_prefix(key):
                raise CorruptError(f"{self.name}/{key}: expected a value, found a prefix")
        raise KeyNotFound(key)

    def _views(self) -> Iterator[tuple[FileCommit, Listing]]:
        """Yield what may have a value: the newest names first, then those somebody reads from."""
        if self._writing is not None:
            yield self._writing.commit, self._writing.listing
        elif self._known.newest is not None:
            yield self._known.newest, self._known.newest.listing
        if self._writing is None:
            commit = self._current()
            if commit is not None:
                yield commit, commit.listing
        for commit in list(self._known.all):
            yield commit, commit.listing

    def _current(self) -> FileCommit | None:
        """Return the newest commit of the file as it is now."""
        return self._known.current()

    def _lockable(self, key: str) -> tuple[FileCommit | None, Extent | None]:
        """Return the commit and the place of what a lock is on; no place for a prefix.

        Another process may have removed a version that this one has pinned: it stays readable.
        """
        listing = self._listing()
        commit = self._known.newest if self._writing is None else self._writing.commit
        extent = listing.find(key)
        if extent is None and not listing.has_prefix(key):
            holder = self._holders.get(key)
            if holder is not None and holder.locks and holder.is_shared:
                return self._find(key)
            listing.check_above(self.name, key)
            raise KeyNotFound(key)
        return commit, extent

    # The commit that is made

    def _may_write(self, timeout: float) -> bool:
        """Begin to write, if this process does not yet; False if another process writes."""
        if self._writing is not None:
            return True
        self._check_attached()
        try:
            self._file.lock(min(timeout, FILE_SECONDS), at_end=True)
            # Again: it may have been replaced before the lock.
            self._check_attached()
            writing = self._writing_kind.begin(self._file, self._known.newest)
            self._known.meet(writing.commit)
            self._writing = writing
        except BusyError:
            self._file.unlock()
            return False
        except BaseException:
            self._writing = None
            self._file.unlock()
            raise
        return True

    @contextmanager
    def _unused(self, user: object) -> Iterator[None]:
        """After an exception, release the lock of the file if nobody but `user` uses it."""
        try:
            yield
        except BaseException:
            if self._writing is not None:
                self._release(self._writing, user)
            raise

    @contextmanager
    def _change(self) -> Iterator["Writing"]:
        """Yield what is written. Without a lock of the caller, the change is a commit by itself."""
        user = object()
        with self._changed, self._unused(user):
            seconds = tuning.current.lock_seconds
            deadline = time.monotonic() + seconds
            while not self._may_write(remaining := deadline - time.monotonic()):
                if remaining <= 0:
                    raise BusyError(f"{self.name}: still locked after {seconds:g} seconds")
                # Readers of this process go on meanwhile.
                self._changed.wait(min(remaining, SLEEP_LONGEST))
                interrupts.raise_pending()
            writing = self._writing
            assert writing is not None
            writing.users.add(user)
            yield writing
            if writing.locks == 1:
                writing.publish_names()
                self._known.newest = writing.commit
            self._release(writing, user)

    def _release(self, writing: "Writing", user: object) -> None:
        """Take out a user, whether it was added or not."""
        with self._changed:
            try:
                if writing.users <= {user}:
                    self._leave(writing)
            finally:
                writing.users.discard(user)

    def _leave(self, writing: "Writing") -> None:
        """End a writing that its last user leaves."""
        if self._writing is writing:
            self._end(writing)

    def _end(self, writing: "Writing") -> None:
        """End a writing. What fails behind its commit is told later, and done by a later writer."""
        try:
            with self._telling("the end of the file was not tidied; the next writer does it"):
                writing.end()
            if writing.is_due and 2 * writing.nbytes >= 3 * _unwritten.get(self.name, 0):
                _unwritten[self.name] = writing.nbytes
                with self._telling("the file keeps its dead bytes; call vacuum() to try again"):
                    writing.rewrite()
                    _unwritten.pop(self.name, None)
        finally:
            try:
                self._file.unlock()
            finally:
                self._writing = None
                self._changed.notify_all()
                with suppress(BlzError, KeyNotFound):
                    self._known.meet(writing.commit)

    @contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        try:
            yield
        except (BlzError, KeyNotFound) as error:
            self._failures.append(f"{what}: {error}")


class _Earlier(OneFileStore):
    """The values of one commit of a file, or else all whole records; only for reading."""

    def __init__(self, file: File, commit: FileCommit | None = None) -> None:
        super().__init__(file)
        self._commit = commit

    def _current(self) -> FileCommit | None:
        if self._known.newest is None:
            source = self._file.current()
            if source is not None and not is_unborn(source):
                self._known.newest = self._commit or everything(source, self.name)
        return self._known.newest

    def _may_write(self, timeout: float) -> bool:
        raise ReadOnlyError(f"{self.name} was never finished; it is read only")


# The bytes that a file had, by its path, when a rewrite by a commit failed. A commit tries again
# when the file has grown by half.
_unwritten: dict[str, int] = {}


def at(path: str | os.PathLike[str]) -> OneFileStore:
    """Return the store of a file; all handles of a process share it."""
    name = os.path.realpath(os.fspath(path))
    store = _by_path.get(name)
    if store is None:
        return _by_path.setdefault(name, OneFileStore(LocalFile(name)))
    if not store.is_current:
        # Of two threads, each may make one. They lock each other as two processes do.
        store = _by_path[name] = OneFileStore(LocalFile(name))
    return store


def _keep(commit: FileCommit | None) -> None:
    """Do nothing; the lock that calls it refers to the commit."""


_stores: WeakSet[OneFileStore] = WeakSet()
_by_path: WeakValueDictionary[str, OneFileStore] = WeakValueDictionary()


def _forget_locks() -> None:
    for store in list(_stores):
        store._forget_locks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)
