"""Step 1 of a commit: prepare the directories, announce files in flight, pin the base.

A directory without a manifest is not a table. Files of ours in it belong to a creation that is in
progress, or that failed or was killed.
"""

import errno
import os
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass

from blztable.engine.version import in_flight, mirrors, versions
from blztable.engine.version.new_files import NewFiles, remove_column
from blztable.engine.version.versions import LOCK_SECONDS, Version
from blztable.errors import (
    BlzError,
    BusyError,
    CorruptError,
    FormatError,
    ReadOnlyError,
    StorageError,
    TableNotFoundError,
)
from blztable.format import layout
from blztable.storage.store import KeyNotFound, Store

# Attempts to begin. A creation that fails removes directories that another one is about to use.
TRIES = 10


@dataclass(frozen=True, slots=True)
class Plan:
    """The decisions that are made before a commit begins.

    Attributes
    ----------
    base : Version or None
        The version to pin and to change; None for the newest one.
    may_create : bool
        True if the commit may make the first version of a table.
    is_replacement : bool
        True if the commit relies on no version, so the newest one may be damaged.
    commit_id : str or None
        The caller's id of the commit; a second commit with the same id is not made.
    """

    store: Store
    is_durable: bool
    base: Version | None = None
    may_create: bool = False
    is_replacement: bool = False
    commit_id: str | None = None

    def damage_allowed(self) -> AbstractContextManager[None]:
        """Ignore damage of the newest version if the commit replaces it."""
        return suppress(CorruptError) if self.is_replacement else nullcontext()

    def check_id(self, newest: Version | None) -> None:
        """Raise AlreadyCommitted if a version bears the caller's id."""
        if newest is not None and self.commit_id is not None:
            known = dict(newest.head.commit_ids)
            if self.commit_id in known:
                raise AlreadyCommitted(known[self.commit_id])


@dataclass(frozen=True, slots=True)
class Begun:
    """A commit after step 1. Its locks are held until `end` or `undo`.

    Attributes
    ----------
    base : Version or None
        The version that is pinned; None if there is none, or a replacement cannot read it.
    files : NewFiles
        The files that step 2 writes.
    is_first : bool
        True if there was no table.
    """

    plan: Plan
    base: Version | None
    files: NewFiles
    is_first: bool
    pid: int
    locks: ExitStack

    def check_process(self) -> None:
        """Raise ReadOnlyError in a child made by fork."""
        if self.pid != os.getpid():
            raise ReadOnlyError(
                f"{self.plan.store.name}: a transaction belongs to the process that began it; "
                "open the table again in this process"
            )

    def end(self) -> None:
        """Release the locks; the new files stay."""
        self.locks.close()

    def undo(self) -> None:
        """Discard the new files, release the locks, and remove the root of a first commit."""
        with self.locks:
            self.files.discard()
        if self.is_first and self.pid == os.getpid():
            _withdraw(self.plan.store)


class AlreadyCommitted(Exception):
    """A version already bears the caller's id of this commit.

    Attributes
    ----------
    version : int
        Number of the version that the first commit of this id made.
    """

    def __init__(self, version: int) -> None:
        super().__init__(f"committed as version {version}")
        self.version = version


def begin(plan: Plan) -> Begun:
    """Carry out step 1. Nothing is left behind if it raises."""
    store = plan.store
    with ExitStack() as undo, ExitStack() as locks:
        is_first = _newest_number(store) is None
        if not is_first:
            locks.enter_context(in_flight.writing(store))
        elif plan.may_create:
            versions.check_ours(store)
            with plan.damage_allowed():
                versions.checked_newest(store)
            undo.callback(_withdraw, store)
            locks.enter_context(_prepare(store, durable=plan.is_durable))
        else:
            raise TableNotFoundError(f"{store.name} no longer holds a table; open it again")
        base = _pin(plan, locks)
        if plan.commit_id is not None:
            number = versions.newest_number(store)
            if number is not None:
                with plan.damage_allowed(), suppress(KeyNotFound):
                    plan.check_id(versions.load(store, number))
        undo.pop_all()
        files = NewFiles(store, base.head.next_column if base else 0)
        return Begun(plan, base, files, is_first, os.getpid(), locks.pop_all())


def _pin(plan: Plan, locks: ExitStack) -> Version | None:
    """Pin the planned base, or else the newest version if there is one."""
    store = plan.store
    if plan.base is not None:
        try:
            pinned = store.lock(plan.base.key, shared=True, timeout=LOCK_SECONDS)
        except KeyNotFound:
            # Raise CorruptError if another program removed the newest manifest.
            versions.checked_newest(store)
            raise TableNotFoundError(
                f"{store.name} no longer has version {plan.base.head.version}; open the table again"
            ) from None
        locks.enter_context(pinned)
        return plan.base
    # List again: another creation may have committed before our files were in flight.
    if versions.newest_number(store) is None:
        return None
    with plan.damage_allowed():
        base, pinned = versions.pin(store)
        locks.enter_context(pinned)
        return base
    return None


def _newest_number(store: Store) -> int | None:
    """Return the newest version; None if there is no table, or the root is a file."""
    try:
        return versions.newest_number(store)
    except FormatError:
        return None


def _prepare(store: Store, *, durable: bool) -> ExitStack:
    """Make the directories for a first commit, and announce files in flight."""
    failure: Exception
    for _ in range(TRIES):
        try:
            if not store.prepare(*layout.PREPARED, durable=False):
                _clear(store)
            with ExitStack() as locks:
                locks.enter_context(in_flight.writing(store))
                # Another creation may have removed a directory before the lock was granted.
                # `close` makes the store open it again. From now on nobody removes it.
                store.close()
                if durable:
                    store.prepare(*layout.PREPARED)
                return locks.pop_all()
        except KeyNotFound as error:
            failure = BusyError(
                f"{store.name}: other creations that failed removed {error} {TRIES} times; "
                "try again"
            )
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            failure = error
        store.close()
    raise failure


def _withdraw(store: Store) -> None:
    """Remove the root of a first commit that failed, unless another writer is active."""
    with suppress(BlzError, KeyNotFound, OSError), in_flight.alone(store, 0):
        if _is_uncommitted(store):
            _empty(store)
            store.delete(layout.WITHDRAWN)
            store.withdraw()


def _clear(store: Store) -> None:
    """Remove the files of an unfinished creation, unless another writer is active."""
    with suppress(BusyError), in_flight.alone(store, 0):
        if _is_uncommitted(store):
            _empty(store)


def _is_uncommitted(store: Store) -> bool:
    """True if no manifest and no mirror shows that a version was ever committed."""
    return versions.newest_number(store) is None and not mirrors.mirrored_number(store)


def _empty(store: Store) -> None:
    store.sweep(layout.MANIFESTS)
    store.sweep(layout.META)
    store.delete(f"{layout.DRAFTS}/{name}" for name in store.list_names(layout.DRAFTS))
    for name in store.list_names(layout.DATA):
        prefix = f"{layout.DATA}/{name}"
        if layout.column_id(name) is not None or prefix == layout.BUNDLES:
            remove_column(store, prefix)
