"""The commit: how the next version of a table comes to be, and nothing of it where it fails.

1. Say that files are in flight, which keeps vacuum out (`in_flight`). Pin the base version.
2. Write new files under numbers nobody used, and make them durable.
3. Take the writers' lock and look for the newest version. The draft is made on that one; if what
   the operation relies on has changed, it raises ConflictError.
4. Publish the manifest under the next number, which fails if anyone else did: the commit point.
5. Make its name durable.
6. Refresh the mirrors and let old versions go; what fails here is a warning. Then remove what was
   written and is not in the version that was published.

A flush that failed is never tried again. The outcome is unknown (CommitUnknownError) where step 5
fails, or where it cannot be read whether the manifest under the number of step 4 is ours.
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
from typing import Self

from blztable.caller import stack_level
from blztable.engine.version import (
    attempt,
    durability,
    first_commit,
    in_flight,
    mirrors,
    retention,
    versions,
)
from blztable.engine.version.attempt import Attempt
from blztable.engine.version.new_files import NewFiles
from blztable.engine.version.versions import LOCK_SECONDS, Version
from blztable.errors import (
    BlzError,
    CommitUnknownError,
    ConflictError,
    CorruptError,
    LimitError,
    ReadOnlyError,
    TableNotFoundError,
)
from blztable.format import layout, manifest
from blztable.interrupts import DeferInterrupt
from blztable.storage.store import KeyNotFound, KeyTaken, Lock, Store
from blztable.version import VERSION

WRITER = f"blztable {VERSION}"
# Ids of commits that a restarted job is known by.
KEPT_IDS = 1000


@dataclass(frozen=True, slots=True)
class Draft:
    """A manifest but for what the commit itself fills in: number, parent, time, identity.

    Attributes
    ----------
    named : callable or None
        Gives the keys of the files that the manifest names. None says that it names every file
        that the transaction wrote; then none of them was given up.
    """

    head: manifest.Head
    lines: Sequence[bytes]
    named: Callable[[], Collection[str]] | None = None


class AlreadyCommitted(Exception):
    """A version bears the id that the caller gave this commit: it was made before."""

    def __init__(self, version: int) -> None:
        """Remember which."""
        super().__init__(f"committed as version {version}")
        self.version = version


class Commit:
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
        self.files = NewFiles(store)
        self._attempt: Attempt | None = None
        self._pid = os.getpid()
        self._is_first = False
        self._complaints: list[str] = []
        self.base: Version | None = None

    def __enter__(self) -> Self:
        """Make the place ready, announce files in flight, pin the base."""
        try:
            with DeferInterrupt(), self._repeat_made_durable():
                self._begin()
            return self
        except BaseException:
            with DeferInterrupt():
                self._held.close()
                self._withdraw()
            raise

    def _begin(self) -> None:
        store = self._store
        newest_number = versions.newest_number(store) if versions.is_place(store) else None
        if newest_number is None:
            if not self._may_create:
                raise TableNotFoundError(f"no table at {store.name} any more")
            versions.check_ours(store)
            with self._damage_allowed():
                versions.newest_told(store)
            self._is_first = True
            self._held.enter_context(first_commit.begin(store, durable=self._is_durable))
        else:
            self._held.enter_context(in_flight.writing(store))
        if self._given is None or self._commit_id is not None:
            newest_number = versions.newest_number(store)
        if self._given is not None:
            self.base = self._given
            try:
                pinned = store.lock(self.base.key, shared=True, timeout=LOCK_SECONDS)
            except KeyNotFound:
                number = self.base.head.version
                # The base was held open, so others have removed it: the newest one, perhaps.
                versions.newest_told(store)
                raise TableNotFoundError(f"no version {number} of {store.name} any more") from None
            self._held.enter_context(pinned)
        elif newest_number is not None:
            with self._damage_allowed():
                self.base, pinned = versions.pin(store)
                self._held.enter_context(pinned)
        if self._commit_id is not None and newest_number is not None:
            with self._damage_allowed(), suppress(KeyNotFound):
                self._check_new(versions.load(store, newest_number))

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Remove what was written if nothing was published, and let go of everything."""
        with DeferInterrupt():
            is_gone = error is not None and not (self._attempt and self._attempt.may_be_published())
            with self._held:
                if is_gone:
                    self.files.discard()
            if is_gone:
                self._withdraw()

    def _withdraw(self) -> None:
        """Leave no place of a table behind whose first commit failed."""
        if self._is_first and self._pid == os.getpid():
            first_commit.withdraw(self._store)

    def publish(
        self,
        operation: str,
        draft: Callable[[Version | None], Draft],
        named: Callable[[], Collection[str]] | None = None,
    ) -> tuple[Version, Lock]:
        """Commit what `draft` makes of the newest version; return the new version, pinned.

        Files that the published version does not name were given up on the way. They are removed
        after the publication: until then a change that is made again may need them.

        Parameters
        ----------
        operation : str
            What the list of versions calls the commit.
        draft : callable
            Makes the manifest from the newest version; called again if another writer was faster.
        named : callable, optional
            Gives the files that the manifest names if nobody else commits. They are flushed before
            the writers' lock is taken; any other file only if the draft names it after all.

        Raises
        ------
        AlreadyCommitted
            Another process with the same id of the caller was faster.
        ConflictError
            From `draft`; nothing is committed.
        CommitUnknownError
            Published, but not known to survive a loss of power; or not known to be published.
        """
        store = self._store
        if self._pid != os.getpid():
            raise ReadOnlyError(
                f"{store.name}: a transaction belongs to the process it began in; open the table "
                "again in this one"
            )
        if self._is_durable:
            self.files.flush(named)
        with (
            DeferInterrupt(),
            ExitStack() as afterwards,
            self._repeat_made_durable(),
            self._writers_lock(),
        ):
            number, made = self._publish(operation, draft)
            # Whatever fails from here on: the version that was published does not name them.
            afterwards.callback(self._discard_given_up, made)
            if self._is_durable:
                try:
                    store.flush_names(layout.MANIFESTS)
                except BlzError as error:
                    raise attempt.unknown(store, number, error) from error
            try:
                version, pinned = versions.pin(store, number)
            except BlzError as error:
                raise CommitUnknownError(
                    f"{store.name}: version {number} is committed, but cannot be opened: {error}"
                ) from error
            self._tidy(version)
        return version, pinned

    def _discard_given_up(self, made: Draft) -> None:
        """Remove what was written or reserved and is not in the version that was published."""
        if made.named is not None:
            columns = {layout.column(path[:1]) for path in made.head.columns.paths}
            self.files.discard_unnamed(made.named(), columns)

    def _tidy(self, version: Version) -> None:
        """Refresh the mirrors and let old versions go; what fails is kept for a warning."""
        steps: tuple[Callable[[], None], ...] = (
            lambda: mirrors.refresh(version),
            lambda: retention.retire(version, is_durable=self._is_durable),
        )
        for step in steps:
            try:
                step()
            except (BlzError, KeyNotFound) as error:
                number = version.head.version
                self._complaints.append(
                    f"{self._store.name}: version {number} is committed, but {error}"
                )

    def emit_warnings(self) -> None:
        """Warn of what failed after the commit. Called last: filters may make it an exception."""
        if self._complaints:
            warnings.warn("; ".join(self._complaints), stacklevel=stack_level())

    def _writers_lock(self) -> Lock:
        try:
            return self._store.lock(layout.LOCK, shared=False, timeout=LOCK_SECONDS)
        except KeyNotFound:
            # An empty file, which some tools leave out of a copy.
            self._store.prepare(*layout.PREPARED, durable=self._is_durable)
            return self._store.lock(layout.LOCK, shared=False, timeout=LOCK_SECONDS)

    def _publish(
        self, operation: str, draft: Callable[[Version | None], Draft]
    ) -> tuple[int, Draft]:
        """Publish under the next number; again where another store's writer was faster."""
        store = self._store
        while True:
            newest_number, given_out, newest = self._newest()
            self._check_new(newest)
            made = draft(newest)
            number = given_out + 1
            if number > layout.MAX_VERSION:
                raise LimitError(f"{store.name}: there is no version after {given_out}")
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
                lasting=0 if self._is_durable else durability.newest(store, newest, newest_number),
            )
            if retention.lets_lasting_go(store, head):
                # Durable versions would be gone, and with them rows that were acknowledged.
                self._is_durable = True
                head = replace(head, durable=True, lasting=0)
            if self._is_durable:
                # A change that did not land may have brought back what it had replaced.
                self.files.flush(made.named)
                if newest_number is not None:
                    # A replacement takes over what it restores, or nothing.
                    built_on = self._given if self._is_replacement else newest
                    durability.flush_base(store, newest, built_on)
            data = manifest.encode(head, made.lines)
            self._attempt = Attempt(store, number, commit)
            try:
                store.publish(layout.manifest(number), data, durable=self._is_durable)
            except KeyTaken:
                if not self._attempt.is_ours():
                    continue
            except BlzError as error:
                if self._attempt.may_be_published():
                    raise self._attempt.unknown(error) from error
                raise
            return number, made

    def _newest(self) -> tuple[int | None, int, Version | None]:
        """The newest version: its number, the highest number given out, the version itself.

        For a replacement the version is None where it is damaged, or where its manifest is gone;
        the number of one that is gone is not given out again.
        """
        store = self._store
        try:
            number = versions.newest_told(store)
            newest = None if number is None else versions.load(store, number)
        except CorruptError:
            if not self._is_replacement:
                raise
            number, newest = versions.newest_number(store), None
            return number, max(number or 0, versions.mirrored_number(store)), None
        return number, number or 0, newest

    def _check_new(self, newest: Version | None) -> None:
        """AlreadyCommitted where a version bears the caller's id."""
        known = dict(newest.head.commit_ids) if newest and self._commit_id is not None else {}
        if self._commit_id in known:
            raise AlreadyCommitted(known[self._commit_id])

    @contextmanager
    def _repeat_made_durable(self) -> Iterator[None]:
        """Make a version last that bears the caller's id, before the caller is told of it.

        Whoever committed it may have been killed before it flushed the name, or may have asked
        for no flush. In the second case the newest version is committed once more, flushed: so
        the commits after it know, too, what was promised.
        """
        try:
            yield
        except AlreadyCommitted as known:
            if self._is_durable:
                try:
                    _make_newest_durable(self._store)
                except BlzError as error:
                    raise attempt.unknown(self._store, known.version, error) from error
            raise

    def _with_id(
        self, known: tuple[tuple[str, int], ...], number: int
    ) -> tuple[tuple[str, int], ...]:
        """The last of the callers' ids, this one among them."""
        mine = () if self._commit_id is None else ((self._commit_id, number),)
        return (*known, *mine)[-KEPT_IDS:]

    def _damage_allowed(self) -> AbstractContextManager[None]:
        """A table whose newest manifest is damaged can be replaced, and nothing else."""
        return suppress(CorruptError) if self._is_replacement else nullcontext()


def _make_newest_durable(store: Store) -> None:
    """Flush the name of the newest version; commit it again, flushed, if it was not flushed."""
    newest, pinned = versions.pin(store)
    with pinned:
        if newest.head.durable:
            store.flush_names(layout.MANIFESTS)
            return
    with Commit(store, is_durable=True) as transaction:
        _, pinned = transaction.publish("flush", _unchanged)
    pinned.close()


def _unchanged(newest: Version | None) -> Draft:
    if newest is None:
        raise ConflictError("the table is gone")
    return Draft(newest.head, newest.lines())


def _history(store: Store, newest: Version | None) -> tuple[tuple[str, int], ...]:
    """The versions still there and when they were made."""
    if newest is None:
        return ()
    there = set(versions.numbers(store))
    known = [*newest.head.history, (newest.head.time, newest.head.version)]
    return tuple((time, number) for time, number in known if number in there)
