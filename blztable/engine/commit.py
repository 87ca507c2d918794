"""The commit: how the next version of a table comes to be, and nothing of it where it fails.

1. Lock the directory of manifests, shared: files are in flight, no vacuum. Pin the base version.
2. Write new files under numbers nobody used, and make them durable.
3. Take the writers' lock and look for the newest version. The draft is made on that one; if what
   the operation relies on has changed, it raises ConflictError.
4. Publish the manifest under the next number, which fails if anyone else did: the commit point.
5. Make its name durable.
6. Refresh the mirrors and let old versions go; what fails here is a warning.

A flush that failed is never tried again. Only a failure of step 5 leaves the outcome unknown.
Ctrl-C is put off in steps 1 and 3 to 6 and in the removal of what failed, so that neither a lock
nor a file is forgotten on the way; step 2 ends by itself between two of its tasks.
"""

import os
import secrets
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from blztable.caller import stack_level
from blztable.engine import mirrors, retention, versions
from blztable.engine.versions import LOCK_SECONDS, Version
from blztable.errors import (
    BlzError,
    BusyError,
    CommitUnknownError,
    CorruptError,
    LimitError,
    ReadOnlyError,
    TableNotFoundError,
)
from blztable.format import layout, manifest
from blztable.format.line import NO_FILE
from blztable.interrupts import PutOff
from blztable.storage.store import KeyNotFound, KeyTaken, Lock, Store
from blztable.version import VERSION

WRITER = f"blztable {VERSION}"
# Ids of commits that a restarted job is known by.
KEPT_IDS = 1000


@dataclass(frozen=True, slots=True)
class Draft:
    """A manifest but for what the commit itself fills in: number, parent, time, identity."""

    head: manifest.Head
    lines: Sequence[bytes]


class AlreadyCommitted(Exception):
    """A version bears the id that the caller gave this commit: it was made before."""

    def __init__(self, version: int) -> None:
        """Remember which."""
        super().__init__(f"committed as version {version}")
        self.version = version


class Transaction:
    """Steps 1 to 6, as a context: what was written in it and not published is removed."""

    def __init__(
        self,
        store: Store,
        *,
        is_durable: bool,
        base: Version | None = None,
        may_create: bool = False,
        is_replacement: bool = False,
        commit_id: str | None = None,
    ) -> None:
        """Begin nothing yet. The base is the newest version unless another one is given.

        A replacement relies on nothing, not even on a readable base.
        """
        self._store = store
        self._is_durable = is_durable
        self._given = base
        self._may_create = may_create
        self._is_replacement = is_replacement
        self._commit_id = commit_id
        self._held = ExitStack()
        # Asked when it matters: Ctrl-C may come between a file and a line that remembers it.
        self._written: list[Callable[[], Sequence[str]]] = []
        self._reserved: list[str] = []
        self._attempt: tuple[int, str] | None = None
        self._pid = os.getpid()
        self._complaint: str | None = None
        self.base: Version | None = None

    def __enter__(self) -> Self:
        """Make the place ready, announce files in flight, pin the base."""
        try:
            with PutOff():
                self._begin()
            return self
        except BaseException:
            self._held.close()
            raise

    def _begin(self) -> None:
        store = self._store
        newest_number = versions.newest_number(store) if versions.is_place(store) else None
        if newest_number is None:
            if not self._may_create:
                raise TableNotFoundError(f"no table at {store.name} any more")
            versions.check_ours(store)
            store.prepare(durable=self._is_durable)
            _clear_unfinished(store)
        self._held.enter_context(store.lock(layout.MANIFESTS, shared=True, timeout=LOCK_SECONDS))
        if self._given is None or self._commit_id is not None:
            newest_number = versions.newest_number(store)
        if self._given is not None:
            self.base = self._given
            try:
                pinned = store.lock(self.base.key, shared=True, timeout=LOCK_SECONDS)
            except KeyNotFound:
                number = self.base.head.version
                raise TableNotFoundError(f"no version {number} of {store.name} any more") from None
            self._held.enter_context(pinned)
        elif newest_number is not None:
            with self._damage_allowed():
                self.base, pinned = versions.pin(store)
                self._held.enter_context(pinned)
        if self._commit_id is not None and newest_number is not None:
            with self._damage_allowed(), suppress(KeyNotFound):
                self._check_new(versions.load(store, newest_number))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove what was written if nothing was published, and let go of everything."""
        with PutOff(), self._held:
            if error is not None and not self._may_be_published():
                self._discard(_keys(self._written), self._reserved)

    def _discard(self, written: Sequence[str], reserved: Sequence[str]) -> None:
        if self._pid != os.getpid():
            return  # A forked child that ends: the files are its parent's.
        # The first error is the news; what cannot be removed is an orphan for vacuum.
        with suppress(BlzError, OSError):
            self._store.delete(written)
            # Nobody else writes there, so what nobody noted is ours as well.
            for prefix in reversed(reserved):
                _remove(self._store, prefix)

    def reserve_column(self, lowest: int) -> int:
        """An id from `lowest` on that no column has or had, claimed for this transaction."""
        number = lowest
        with PutOff():
            while number <= layout.MAX_ID and not self._store.reserve(layout.column((number,))):
                names = self._store.list_names(layout.DATA)
                taken = (layout.column_id(name) for name in names)
                number = max([number, *(other for other in taken if other is not None)]) + 1
            if number > layout.MAX_ID:
                raise LimitError(f"{self._store.name}: no ids of columns are left from {lowest}")
            self._reserved.append(layout.column((number,)))
        return number

    def note(self, keys: Callable[[], Sequence[str]]) -> None:
        """Remember who knows which files are written, before they are: to flush or remove them."""
        self._written.append(keys)

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """A part of the transaction: what it wrote is removed if it fails, the rest goes on."""
        written, reserved = len(self._written), len(self._reserved)
        try:
            yield
        except BaseException:
            with PutOff():
                self._discard(_keys(self._written[written:]), self._reserved[reserved:])
                del self._written[written:], self._reserved[reserved:]
            raise

    def discard_unnamed(self, named: Collection[str], columns: Collection[str]) -> None:
        """Remove what was written or reserved and given up since: the version does not name it."""
        written = _keys(self._written)
        reserved = [prefix for prefix in self._reserved if prefix not in columns]
        with PutOff():
            self._discard([key for key in written if key not in named], reserved)
            kept = [key for key in written if key in named]
            self._written = [lambda: kept]
            self._reserved = [prefix for prefix in self._reserved if prefix in columns]

    def publish(
        self, operation: str, draft: Callable[[Version | None], Draft]
    ) -> tuple[Version, Lock]:
        """Commit what `draft` makes of the newest version; the new version, pinned.

        Raises
        ------
        AlreadyCommitted
            Another process with the same id of the caller was faster.
        ConflictError
            From `draft`; nothing is committed.
        CommitUnknownError
            Published, but not known to survive a loss of power.
        """
        store = self._store
        if self._pid != os.getpid():
            raise ReadOnlyError(f"{store.name}: a transaction belongs to the process it began in")
        if self._is_durable:
            try:
                store.flush(_keys(self._written))
            except KeyNotFound as error:
                raise CorruptError(f"{store.name}: a file just written is gone: {error}") from None
        with PutOff(), self._writers_lock():
            number = self._publish(operation, draft)
            if self._is_durable:
                try:
                    store.flush_names(layout.MANIFESTS)
                except BlzError as error:
                    raise self._unknown(number, error) from error
            try:
                version, pinned = versions.pin(store, number)
            except BlzError as error:
                raise CommitUnknownError(
                    f"{store.name}: version {number} is committed, but cannot be opened: {error}"
                ) from error
            try:
                mirrors.refresh(version)
                retention.retire(version, is_durable=self._is_durable)
            except (BlzError, KeyNotFound) as error:
                self._complaint = f"{store.name}: version {number} is committed, but {error}"
        return version, pinned

    def complain(self) -> None:
        """Warn of what failed behind the commit: called last, for a warning may be an error."""
        if self._complaint is not None:
            warnings.warn(self._complaint, stacklevel=stack_level())

    def _writers_lock(self) -> Lock:
        try:
            return self._store.lock(layout.LOCK, shared=False, timeout=LOCK_SECONDS)
        except KeyNotFound:
            # An empty file, which some tools leave out of a copy.
            self._store.prepare(durable=self._is_durable)
            return self._store.lock(layout.LOCK, shared=False, timeout=LOCK_SECONDS)

    def _publish(self, operation: str, draft: Callable[[Version | None], Draft]) -> int:
        """Publish under the next number; again where another store's writer was faster."""
        store = self._store
        while True:
            newest_number = versions.newest_number(store)
            newest = None
            if newest_number is not None:
                with self._damage_allowed():
                    newest = versions.load(store, newest_number)
            self._check_new(newest)
            made = draft(newest)
            if self._is_durable and newest_number is not None:
                self._make_base_durable(newest)
            number = (newest_number or 0) + 1
            if number > layout.MAX_VERSION:
                raise LimitError(f"{store.name}: there is no version after {newest_number}")
            commit = secrets.token_hex(16)
            head = replace(
                made.head,
                version=number,
                parent=newest_number or 0,
                commit=commit,
                writer=WRITER,
                time=datetime.now(UTC).isoformat(timespec="microseconds"),
                operation=operation,
                commit_ids=self._with_id(made.head.commit_ids, number),
                history=_history(store, newest or versions.latest(store)),
                durable=self._is_durable,
            )
            data = manifest.encode(head, made.lines)
            self._attempt = (number, commit)
            try:
                store.publish(layout.manifest(number), data, durable=self._is_durable)
            except KeyTaken:
                if not self._may_be_published():
                    continue
            except BlzError as error:
                if self._may_be_published():
                    raise self._unknown(number, error) from error
                raise
            return number

    def _check_new(self, newest: Version | None) -> None:
        """AlreadyCommitted where a version bears the caller's id."""
        known = dict(newest.head.commit_ids) if newest and self._commit_id is not None else {}
        if self._commit_id in known:
            raise AlreadyCommitted(known[self._commit_id])

    def _with_id(
        self, known: tuple[tuple[str, int], ...], number: int
    ) -> tuple[tuple[str, int], ...]:
        """The last of the callers' ids, this one among them."""
        mine = () if self._commit_id is None else ((self._commit_id, number),)
        return (*known, *mine)[-KEPT_IDS:]

    def _unknown(self, number: int, error: BlzError) -> CommitUnknownError:
        return CommitUnknownError(
            f"{self._store.name}: version {number} was published but may not survive a loss of "
            f"power; reopen and look at the version: {error}"
        )

    def _make_base_durable(self, newest: Version | None) -> None:
        """Flush what a lasting version builds on, if nobody did; None is a damaged base."""
        if newest is not None and newest.head.durable:
            return
        self._store.prepare()
        if newest is not None and not self._is_replacement:
            flush_whole(newest)

    def _damage_allowed(self) -> AbstractContextManager[None]:
        """A table whose newest manifest is damaged can be replaced, and nothing else."""
        return suppress(CorruptError) if self._is_replacement else nullcontext()

    def _may_be_published(self) -> bool:
        """Whether a manifest bears our commit, or one we attempted cannot be read."""
        if self._attempt is None:
            return False
        number, commit = self._attempt
        try:
            return versions.load(self._store, number).head.commit == commit
        except KeyNotFound:
            # Never there; or there, built upon and retired.
            return (versions.newest_number(self._store) or 0) >= number
        except BlzError:
            return True


def _keys(written: Sequence[Callable[[], Sequence[str]]]) -> list[str]:
    return [key for keys in written for key in keys()]


def flush_whole(version: Version) -> None:
    """Flush what a version names, for the next one to build on.

    It was committed without a flush; a durable version that names its files must not depend on it.
    """
    store = version.store
    columns = [version.column(index) for index in range(len(version.schema))]
    files = [layout.part(parts.path, k) for parts in columns for k in parts.k if k != NO_FILE]
    try:
        store.flush([*files, version.key])
    except KeyNotFound as error:
        raise CorruptError(f"a file of the table is missing: {error}") from None


def _history(store: Store, newest: Version | None) -> tuple[tuple[str, int], ...]:
    """The versions still there and when they were made."""
    if newest is None:
        return ()
    there = set(versions.numbers(store))
    known = [*newest.head.history, (newest.head.time, newest.head.version)]
    return tuple((time, number) for time, number in known if number in there)


def _clear_unfinished(store: Store) -> None:
    """Remove what an unfinished creation left, unless someone is still at it."""
    try:
        with store.lock(layout.MANIFESTS, shared=False, timeout=0):
            if versions.newest_number(store) is not None:
                return
            store.sweep(layout.MANIFESTS)
            store.sweep(layout.META)
            for name in store.list_names(layout.DATA):
                _remove(store, f"{layout.DATA}/{name}")
    except BusyError:
        pass  # Another creation is in flight; its files and ids are its own.


def _remove(store: Store, prefix: str) -> None:
    """Remove superchunks and columns below a prefix of ours."""
    for name in store.list_names(prefix):
        if layout.column_id(name) is not None:
            _remove(store, f"{prefix}/{name}")
        elif layout.part_number(name) is not None:
            store.delete([f"{prefix}/{name}"])
    store.delete([prefix])
