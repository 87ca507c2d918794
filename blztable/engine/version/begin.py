"""Step 1 of a commit: prepare the directories, announce files in flight, pin the base.

A directory without a manifest is not a table. Files of ours in it belong to a creation that is in
progress, or that failed or was killed. A file of another program is left as it is.
"""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from blztable import tuning
from blztable.engine.version import in_flight, versions
from blztable.engine.version.new_files import NewFiles, remove_column
from blztable.engine.version.versions import Dropped, Version, mirrored_number
from blztable.errors import (
    BlzError,
    BusyError,
    CorruptError,
    FormatError,
    ReadOnlyError,
    StorageError,
    TableExistsError,
    TableNotFoundError,
)
from blztable.format import layout
from blztable.format.manifest import UNLOCKED
from blztable.storage.store import KeyNotFound, Store
from blztable.storage.threads import requested

T = TypeVar("T")
# Attempts to begin. A creation that fails removes directories that another one is about to use.
TRIES = 10
# Names of files that desktops and file systems make in any directory.
_LITTER = {".DS_Store", ".localized", ".directory", "Thumbs.db", "desktop.ini", "lost+found"}
_LITTER_STARTS = ("._", ".nfs", ".fuse_hidden", ".Trash-", ".~lock.")
# Names that a table has at each level.
_ROOT_NAMES = {layout.DATA, layout.META}
_META_KEYS = (
    layout.MANIFESTS,
    layout.LOCK,
    layout.FLIGHT,
    layout.DRAFTS,
    layout.LEAVES,
    layout.LATEST,
    layout.LEASES,
    layout.MARKS,
    *layout.MIRRORS,
)
_META_NAMES = {key.partition("/")[2] for key in _META_KEYS}


@dataclass(frozen=True, slots=True)
class CommitPlan:
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

    def __post_init__(self) -> None:
        """What a bucket has stored is durable, whoever asks for it."""
        if not self.store.locks or self.store.publishes_all:
            object.__setattr__(self, "is_durable", True)

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
class OpenCommit:
    """A commit after step 1. Its locks are held until `end` or `undo`.

    Attributes
    ----------
    base : Version or None
        The version that is pinned; None if there is none, or a replacement cannot read it.
    newest : Version or None
        The newest version, if its head was read.
    files : NewFiles
        The files that step 2 writes.
    is_first : bool
        True if there was never a table.
    """

    plan: CommitPlan
    base: Version | None
    newest: Version | None
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
        if self.is_first and self.pid == os.getpid() and self.plan.store.locks:
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


class InOneFile(TableExistsError):
    """The address of a table to create in a bucket is that of a file, which may be a table.

    Attributes
    ----------
    store : Store
        The store of the file.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(
            f"{store.name} is a file, and a directory cannot replace it at one stroke; remove it "
            "first, or choose another path"
        )
        self.store = store


def placed(store: Store, layout: str | None, make: Callable[[Store], T]) -> T:
    """Make a table in a store, or in the file that has the address of a bucket.

    `make` is called again if there is a file: it finds that when it begins its commit, and has
    drawn no rows by then.
    """
    try:
        return make(store)
    except InOneFile as error:
        if layout == "directory":
            raise TableExistsError(str(error)) from None
        return make(error.store)


def begin(plan: CommitPlan) -> OpenCommit:
    """Carry out step 1. Nothing is left behind if it raises."""
    store = plan.store
    if not store.locks:
        return _begin_unlocked(plan)
    with ExitStack() as undo, ExitStack() as locks:
        is_first = _newest_number(store) is None
        if not is_first:
            locks.enter_context(in_flight.writing(store))
        elif plan.may_create:
            check_ours(store)
            with plan.damage_allowed():
                versions.checked_newest(store)
            undo.callback(_withdraw, store)
            locks.enter_context(_prepare(store, durable=plan.is_durable))
        else:
            raise TableNotFoundError(f"{store.name} no longer holds a table; open it again")
        base = _pin(plan, locks)
        if not store.locks:
            undo.pop_all()
            # The plan learns of it, too.
            return _begin_unlocked(replace(plan))
        if base is not None and UNLOCKED in base.head.requires:
            raise ReadOnlyError(
                f"{store.name} is a table for file systems without locks, which is only read here; "
                "copy() it to a directory and change the copy"
            )
        newest = base if plan.base is None else None
        if plan.commit_id is not None:
            number = versions.newest_number(store)
            if number is not None:
                with plan.damage_allowed(), suppress(KeyNotFound):
                    newest = versions.load_unless(newest, store, number)
                    plan.check_id(newest)
        undo.pop_all()
        files = NewFiles(store, *_next_numbers(store, base, is_first=is_first))
        return OpenCommit(plan, base, newest, files, is_first, os.getpid(), locks.pop_all())


def _begin_unlocked(plan: CommitPlan) -> OpenCommit:
    """Carry out step 1 where locks exclude nobody: nothing is asked for if the base is known."""
    store, base = plan.store, plan.base
    if not store.creates:
        raise ReadOnlyError(f"{store.name} is only read; choose another place to write to")
    is_first = False
    if base is None:
        # What lies there is looked at beside the versions, in case that there are none.
        looked = (
            (requested(store.list_names, ""), requested(store.in_one_file))
            if plan.may_create
            else None
        )
        try:
            with plan.damage_allowed():
                base = versions.pin(store)[0]
        except TableNotFoundError as error:
            if looked is None:
                raise
            is_first = not isinstance(error, Dropped)
            file = looked[1].result() if is_first else None
            if file is not None:
                raise InOneFile(file) from None
            check_ours(store, looked[0].result())
            store.prepare(*layout.PREPARED)
    if base is not None:
        plan.check_id(base)
    files = NewFiles(store, *_next_numbers(store, base, is_first=is_first))
    return OpenCommit(plan, base, base, files, is_first, os.getpid(), ExitStack())


def _next_numbers(store: Store, base: Version | None, *, is_first: bool) -> tuple[int, int]:
    """Return the lowest numbers that a new column and a new file may get."""
    # A replacement may find a damaged version; what it used is unknown, and met when it is taken.
    last = layout.MAX_VERSION + 1
    known = base or (None if is_first else versions.latest(store, before=last))
    return (known.head.next_column, known.head.next_file) if known else (0, 1)


def _pin(plan: CommitPlan, locks: ExitStack) -> Version | None:
    """Pin the planned base, or else the newest version if there is one."""
    store = plan.store
    if plan.base is not None:
        try:
            pinned = store.lock(plan.base.key, shared=True, timeout=tuning.current.lock_seconds)
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
        try:
            base, pinned = versions.pin(store)
        except Dropped:
            if not plan.may_create:
                raise
            versions.settle(store)
            return None
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
    try:
        raise failure
    finally:
        # Otherwise its traceback and this frame would form a cycle.
        del failure


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
    return versions.newest_number(store) is None and not mirrored_number(store)


def _empty(store: Store) -> None:
    store.sweep(layout.MANIFESTS)
    store.sweep(layout.META)
    for prefix in (layout.DRAFTS, layout.LEAVES):
        store.delete(f"{prefix}/{name}" for name in store.list_names(prefix))
    for name in store.list_names(layout.DATA):
        prefix = f"{layout.DATA}/{name}"
        if layout.column_id(name) is not None or prefix == layout.BUNDLES:
            remove_column(store, prefix)


def check_free(store: Store) -> None:
    """Raise TableExistsError if a file at the root may be another program's, however short."""
    if store.may_be_foreign():
        raise TableExistsError(
            f"{store.name} is a file, perhaps of another program; it is left as it is; remove it, "
            "or choose another path"
        )


def check_ours(store: Store, names: Sequence[str] | None = None) -> None:
    """Raise TableExistsError if the root holds a file that is not part of a table.

    `names` are those of the root, if they were listed.
    """
    if store.locks and not versions.can_hold_table(store):
        raise TableExistsError(
            f"{store.name} is a file, not a table; it is left as it is; choose another path"
        )
    try:
        foreign = next(_foreign(store, names), None)
    except CorruptError as error:
        raise TableExistsError(
            f"{error}; this is not part of a table and is left as it is"
        ) from None
    if foreign is not None:
        directory = store.name + (f"/{foreign[0]}" if foreign[0] else "")
        raise TableExistsError(
            f"{directory} holds {foreign[1]!r} and is not a table; it is left as it is; "
            "choose another path"
        )


def _is_litter(name: str) -> bool:
    """True for a file that desktops and file systems make in any directory."""
    return name in _LITTER or name.startswith(_LITTER_STARTS)


def _foreign(store: Store, of_root: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    """Yield (directory, name) of each name that no creation makes."""

    def names(prefix: str) -> list[str]:
        known = None if prefix else of_root
        found = store.list_names(prefix) if known is None else known
        return [name for name in found if not _is_litter(name)]

    if store.fetches:
        # One request tells enough: files of a creation that failed have numbers of their own.
        yield from (("", name) for name in sorted(set(names("")) - _ROOT_NAMES))
        return
    for prefix, known in (("", _ROOT_NAMES), (layout.META, _META_NAMES)):
        yield from ((prefix, name) for name in sorted(set(names(prefix)) - known))
    for name in names(layout.MANIFESTS):
        if layout.manifest_version(name) is None:
            yield layout.MANIFESTS, name
    for name in names(layout.LEAVES):
        if layout.leaf_number(name) is None:
            yield layout.LEAVES, name
    directories = [layout.DATA]
    for prefix in directories:
        for name in names(prefix):
            if layout.column_id(name) is not None or f"{prefix}/{name}" == layout.BUNDLES:
                directories.append(f"{prefix}/{name}")
            elif prefix == layout.DATA or layout.part_number(name) is None:
                yield prefix, name
