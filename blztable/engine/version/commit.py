"""Commit: make the next version of a table, or change nothing.

Theory of operation
-------------------
Every step runs in the thread of the caller. Only step 2 uses other threads, to write files.

1. `begin`: announce files in flight, which blocks vacuum; pin the base version (`OpenCommit`).
2. The caller writes new files under numbers that were never used. `publish` flushes them.
3. Take the writers' lock and read the newest version. The caller rebases its changes on that
   version, or raises ConflictError.
4. Write the leaves that became full or that a change touched. Publish the manifest under the next
   number; this fails if another commit took the number. It is the commit point.
5. Flush the name of the manifest.
6. Refresh the mirrors and retire old versions; a failure here is a warning. Remove the new files
   that the published version does not name.

A crash in steps 1 to 3 leaves the old version, and files that no version names: vacuum removes
them. A crash after step 4 leaves the new version. A loss of power between steps 4 and 5 leaves one
of the two, whole: the manifest and its files were flushed before step 4. With
`is_durable=False` nothing is flushed, so a loss of power may take the new version, but no older
version that was flushed.

A flush that failed is never repeated: its outcome is unknown (CommitUnknownError). The same holds
where nobody can read whether the manifest of step 4 is ours: only the commit id in it proves that.
Ctrl-C is deferred in steps 1 and 3 to 6 and while new files are discarded, so no lock and no file
is forgotten. Step 2 stops between two of its tasks.
"""

import logging
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic
from typing import Self

from blztable import tuning
from blztable.caller import stack_level
from blztable.engine.version import (
    in_flight,
    leases,
    mirrors,
    new_files,
    retention,
    unlocked,
    versions,
)
from blztable.engine.version.begin import AlreadyCommitted, CommitPlan, OpenCommit, begin
from blztable.engine.version.history import DID, done_of
from blztable.engine.version.leases import Timed
from blztable.engine.version.new_files import NewFiles
from blztable.engine.version.newest import Newest, check_same
from blztable.engine.version.staged import CHANGED, StagedVersion
from blztable.engine.version.versions import DAMAGED, Version
from blztable.errors import (
    AccessError,
    BlzError,
    CommitUnknownError,
    ConflictError,
    ReadOnlyError,
    TableNotFoundError,
)
from blztable.format import layout
from blztable.format.manifest import Head
from blztable.format.version_file import encode_version
from blztable.interrupts import DeferInterrupt
from blztable.report import done_texts
from blztable.storage.store import KeyNotFound, KeyTaken, Lock, Nothing, Store
from blztable.version import VERSION

__all__ = ["AlreadyCommitted", "Commit", "CommitPlan"]

_log = logging.getLogger(__name__)

WRITER = f"blztable {VERSION}"
# Number of commit ids that a table remembers.
KEPT_IDS = 1000

# Makes the staged version from the newest version.
Rebase = Callable[[Version | None], StagedVersion]


class Commit:
    """The six steps as a context. New files are removed at its end if nothing was published."""

    def __init__(self, plan: CommitPlan) -> None:
        self.plan = plan
        self._opened: OpenCommit | None = None
        # The head of the last manifest that was handed to the store.
        self._tried: Head | None = None
        # True if that manifest may still be stored.
        self._is_unsure = False
        self._began = monotonic()
        self._warnings: list[str] = []
        # Without locks: leases on versions that this commit tags.
        self._leases: dict[int, Timed] = {}

    def __enter__(self) -> Self:
        self._began = monotonic()
        try:
            with DeferInterrupt(), self._repeat_made_durable():
                self._opened = begin(self.plan)
                self.plan = self._opened.plan
        except BaseException:
            self._undo()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        with ExitStack() as held:
            for lease in self._leases.values():
                held.enter_context(lease)
            if error is None:
                self._after_begin().end()
            else:
                self._undo()

    def _undo(self) -> None:
        """End the commit. Discard its files unless they may belong to a published version."""
        with DeferInterrupt():
            if self._is_unsure or (
                self._tried is not None and _may_be_published(self.plan.store, self._tried)
            ):
                self._after_begin().end()
            elif self._opened is not None:
                self._opened.undo()

    @property
    def base(self) -> Version | None:
        """The pinned version; None if no version can be read."""
        return self._after_begin().base

    @property
    def is_first(self) -> bool:
        """True if there was never a table."""
        return self._after_begin().is_first

    @property
    def files(self) -> NewFiles:
        """The new files of step 2."""
        return self._after_begin().files

    def _after_begin(self) -> OpenCommit:
        assert self._opened is not None, "the commit is not entered"
        return self._opened

    def publish(
        self, operation: str, rebase: Rebase, staged: StagedVersion | None = None
    ) -> tuple[Version, Lock]:
        """Carry out steps 3 to 6; return the new version, pinned.

        New files that the published version does not name are removed only after the publication:
        until then `rebase` may bring them back.

        Parameters
        ----------
        operation : str
            The name of the operation in the list of versions.
        rebase : callable
            Makes the staged version from the newest version. It is called again if another writer
            published first.
        staged : StagedVersion, optional
            The result of `rebase` if nobody else commits. The files it names are flushed before
            the writers' lock is taken.

        Raises
        ------
        AlreadyCommitted
            Another process with the same commit id published first.
        ConflictError
            Raised by `rebase`; nothing is committed.
        CommitUnknownError
            The version is published and may not survive a loss of power, or it is unknown whether
            it is published.
        """
        store, opened, started = self.plan.store, self._after_begin(), monotonic()
        opened.check_process()
        if self.plan.is_durable and staged is not None:
            opened.files.flush(staged.files(), opened.base)
        # The log tells of the commit before Ctrl-C is raised, so that a listener knows of it.
        with DeferInterrupt():
            with (
                ExitStack() as afterwards,
                self._repeat_made_durable(),
                in_flight.writers_lock(store, durable=self.plan.is_durable)
                if store.locks
                else Nothing(),
            ):
                locked = monotonic()
                version, staged, nbytes = self._publish(operation, rebase)
                if not store.publishes_all:
                    # Whatever fails from here on, the published version names none of these files.
                    columns = {path[0] for path in version.paths}
                    afterwards.callback(opened.files.discard_unnamed, staged.files(), columns)
                if version.head.durable:
                    try:
                        store.flush_names(layout.MANIFESTS)
                    except BlzError as error:
                        raise _unknown(store, version.head.version, error) from error
                pinned = _pin(version)
                self._after_commit(version, staged)
            head = version.head
            done = [done_of(head, name) for name in DID]
            _log.info(
                "%s: version %d: %s; %d rows, %d row groups; %.4f s",
                store.name,
                head.version,
                ", ".join([operation, *done_texts(*done)]),
                head.rows,
                version.group_count,
                head.did["seconds"],
                extra={"committed": head.version},
            )
            _log.debug(
                "%s: version %d: %d bytes in columns, %d in the manifest; "
                "waited %.4f s for the lock, held it %.4f s",
                store.name,
                head.version,
                int(version.facts.totals[1].sum()),
                nbytes,
                locked - started,
                monotonic() - locked,
            )
        return version, pinned

    def _publish(self, operation: str, rebase: Rebase) -> tuple[Version, StagedVersion, int]:
        """Carry out steps 3 and 4, again whenever another writer takes the number first.

        Return also the bytes of the manifest.
        """
        plan, opened = self.plan, self._after_begin()
        files, is_known = opened.files, not plan.store.locks
        while True:
            # Without locks, the creation of the manifest proves that the version before it is the
            # newest one, if it once was; only if it is taken another one is looked for.
            known = opened.newest
            if is_known and (
                opened.is_first
                or (known is not None and unlocked.was_newest(plan.store, known.head.version))
            ):
                newest = Newest.known(known)
            else:
                newest = Newest.find(plan.store, known, is_replacement=plan.is_replacement)
            is_known = False
            self._check_table(newest)
            plan.check_id(newest.version)
            staged = self._rebased(operation, rebase, newest)
            self._check_tags(newest, staged.head.tags)
            head = _next_head(plan, newest, staged, operation, self._began)
            # The number of a leaf is above those of all files that it names.
            files.numbers.skip_to(max(staged.head.next_file, _next_file(newest)))
            tails = staged.packed(head.version, files.put_leaf)
            head = replace(head, next_file=files.numbers.following)
            if head.durable:
                # The rebase may have brought back files that a later change had replaced.
                files.flush(staged.files(), self.base)
                if newest.number is not None:
                    new_files.flush_base(plan.store, newest.version, staged.base)
                new_files.flush_tagged(plan.store, newest.version, head.tags)
            leaves = [tail.encoded() for tail in tails]
            data = encode_version(head.to_json(), staged.schema_bytes, leaves)
            version = staged.published(head, tails)
            files.check_age()
            if plan.store.publishes_all:
                # What is removed later would need another publication.
                files.discard_unnamed(staged.files(), {path[0] for path in version.paths})
                self._retire(version, staged)
            self._tried = head
            try:
                etag = plan.store.publish(version.key, data, durable=head.durable)
            except KeyTaken:
                if not _is_ours(plan.store, head, self.base):
                    files.discard_leaves()
                    continue
            except BlzError as error:
                # A request that failed may still arrive, unless it was refused.
                is_refused = isinstance(error, AccessError | ReadOnlyError)
                self._is_unsure = not plan.store.locks and not is_refused
                if self._is_unsure or _may_be_published(plan.store, head):
                    raise _unknown(plan.store, head.version, error) from error
                raise
            else:
                if not plan.store.locks:
                    unlocked.put_latest(plan.store, head.version, head.uuid, etag, data)
            return version, staged, len(data)

    def _check_table(self, newest: Newest) -> None:
        """Raise TableNotFoundError or ConflictError if the table of this commit was dropped."""
        store = self.plan.store
        if newest.is_dropped and not self.plan.may_create:
            raise versions.dropped(store)
        if (newest.is_dropped and self.base) or not _is_of(newest, self.base):
            raise ConflictError(
                f"{store.name}: the table was dropped or replaced meanwhile; open it again"
            )

    def _check_tags(self, newest: Newest, tags: Mapping[str, int]) -> None:
        """Raise TableNotFoundError if a new tag names a version that is gone.

        Those that exist now stay if this commit tags them: versions are removed under the writers'
        lock only, and without locks a lease keeps them until the end of the commit. The newest one
        needs none: if this commit is the next one, nobody has had a reason to remove it.
        """
        store = self.plan.store
        known = newest.version.head.tags if newest.version else {}
        for name, number in tags.items():
            if known.get(name) == number or number == newest.number:
                continue
            if not store.locks:
                if number in self._leases:
                    self._leases[number].check()
                else:
                    self._leases[number] = leases.lease(store, number)
            elif number not in newest.numbers:
                raise TableNotFoundError(
                    f"{store.name} no longer has version {number}, so it cannot be tagged "
                    f"{name!r}; the versions are {newest.numbers!r:.500}"
                )
            if newest.version:
                with suppress(*DAMAGED, KeyNotFound):  # It may be tagged to be mended.
                    check_same(versions.read(store, number), newest.version)

    def _rebased(self, operation: str, rebase: Rebase, newest: Newest) -> StagedVersion:
        """Return the staged version on the newest one, and tell of other writers."""
        base, name = self.base, self.plan.store.name
        if base is not None and newest.number != base.head.version:
            _log.info(
                "%s: version %s came before this %s, which is applied to it",
                name,
                newest.number,
                operation,
            )
        try:
            return rebase(newest.version)
        except ConflictError:
            _log.info("%s: version %s conflicts with this %s", name, newest.number, operation)
            raise

    def _after_commit(self, version: Version, staged: StagedVersion) -> None:
        """Refresh the mirrors and retire old versions; keep a warning for each failure."""
        store = version.store
        if not store.locks or store.publishes_all:
            return
        steps: list[Callable[[], None]] = [
            lambda: mirrors.refresh(store, version, staged.defaults),
            lambda: self._retire(version, staged),
        ]
        for step in steps:
            try:
                step()
            except (BlzError, KeyNotFound) as error:
                self._warnings.append(
                    f"{self.plan.store.name}: version {version.head.version} is committed, "
                    f"but {error}"
                )

    @staticmethod
    def _retire(version: Version, staged: StagedVersion) -> None:
        """Remove old versions, if it is time for that."""
        head, base = version.head, staged.base
        if retention.is_due(head, base.head if base else None):
            retention.retire(version, is_durable=head.durable, base=base)

    def emit_warnings(self) -> None:
        """Warn of failures after the commit. Call it last: a filter may raise the warning."""
        told = [*self._warnings, *self.plan.store.failures()]
        if told:
            warnings.warn("; ".join(told), stacklevel=stack_level())

    @contextmanager
    def _repeat_made_durable(self) -> Iterator[None]:
        """Make a version durable before the caller learns that it bears the caller's id.

        The process that committed it may have been killed before it flushed the name, or may have
        asked for no flush. In the second case the newest version is committed again with a flush,
        so that later commits know what was promised.
        """
        try:
            yield
        except AlreadyCommitted as known:
            if self.plan.is_durable:
                try:
                    _make_newest_durable(self.plan.store)
                except BlzError as error:
                    raise _unknown(self.plan.store, known.version, error) from error
            raise


def _next_file(newest: Newest) -> int:
    """Return the number of the next file as the newest version knows it."""
    return newest.version.head.next_file if newest.version else 1


def _next_head(
    plan: CommitPlan, newest: Newest, version: StagedVersion, operation: str, began: float
) -> Head:
    """Return the head to publish: the staged head with number, parent, time and identity.

    The commit began at a time of the monotonic clock.
    """
    staged = version.head
    store, number = plan.store, newest.following(plan.store)
    own_id = () if plan.commit_id is None else ((plan.commit_id, number),)
    lasting = 0
    if not plan.is_durable:
        lasting = new_files.newest(store, newest.version, newest.number)
    head = replace(
        staged,
        version=number,
        # The rows of a new table, and those of an old version, are all of this commit.
        changed=number
        if plan.may_create or plan.is_replacement or staged.changed == CHANGED
        else staged.changed,
        did={
            **dict.fromkeys(DID, 0),
            **staged.did,
            "seconds": round(monotonic() - began, 6),
        },
        requires=version.features,
        parent=newest.number or 0,
        commit=secrets.token_hex(16),
        writer=WRITER,
        time=datetime.now(UTC).isoformat(timespec="microseconds"),
        operation=operation,
        commit_ids=(*staged.commit_ids, *own_id)[-KEPT_IDS:],
        history=_history(store, newest),
        durable=plan.is_durable,
        lasting=lasting,
    )
    if plan.store.locks and retention.removes_last_durable(head, newest.numbers):
        # Otherwise this commit would remove the last durable version and its acknowledged rows.
        return replace(head, durable=True, lasting=0)
    return head


def _history(store: Store, newest: Newest) -> tuple[tuple[str, int], ...]:
    """Return the time and number of each version that still exists."""
    if not newest.numbers:
        return ()
    latest = newest.version or versions.latest(store)
    if latest is None:
        return ()
    pairs = [*latest.head.history, (latest.head.time, latest.head.version)]
    if not store.locks:
        return tuple(pairs[-unlocked.HISTORY :])
    return tuple((time, number) for time, number in pairs if number in newest.numbers)


def _is_ours(store: Store, head: Head, base: Version | None) -> bool:
    """True if the published manifest of this number bears our commit id.

    Some network file systems link a file and still report that the name is taken, and a reply of a
    server may be lost.
    """
    try:
        return versions.read(store, head.version).head.commit == head.commit
    except (BlzError, KeyNotFound) as error:
        # Only a version that is not the newest one can have been ours, and removed since. If our
        # table was dropped, that is all that matters.
        if isinstance(error, KeyNotFound) and not store.locks:
            newest = Newest.find(store, None, is_replacement=False)
            is_gone = newest.is_dropped or not _is_of(newest, base)
            if newest.last_number == head.version or (base and is_gone):
                return False
        raise CommitUnknownError(
            f"{store.name}: version {head.version} was published by this commit or by "
            "another one: its manifest cannot be read; open the table again and compare its "
            f"rows: {error}"
        ) from error


def _is_of(newest: Newest, base: Version | None) -> bool:
    """True unless the newest version is of another table than the base."""
    if base is None or newest.version is None:
        return True
    return newest.version.head.uuid == base.head.uuid


def _may_be_published(store: Store, head: Head) -> bool:
    """False only if the manifest with this head is known not to be published."""
    try:
        return versions.load(store, head.version).head.commit == head.commit
    except KeyNotFound:
        # Either it was never published, or later versions were built on it and it was retired.
        return (versions.newest_number(store) or 0) >= head.version
    except BlzError:
        return True


def _unknown(store: Store, number: int, error: BlzError) -> CommitUnknownError:
    """Return the error for a version that was published and may not be durable."""
    return CommitUnknownError(
        f"{store.name}: version {number} was published but may not survive a loss of "
        f"power; open the table again and check that version {number} exists: {error}"
    )


def _pin(version: Version) -> Lock:
    """Pin the published version."""
    try:
        return version.store.lock(version.key, shared=True, timeout=tuning.current.lock_seconds)
    except (BlzError, KeyNotFound) as error:
        raise CommitUnknownError(
            f"{version.store.name}: version {version.head.version} is committed, but it cannot be "
            f"opened; open the table again: {error}"
        ) from error


def _make_newest_durable(store: Store) -> None:
    """Flush the name of the newest version; commit it again, flushed, if it was not flushed."""
    newest, pinned = versions.pin(store)
    with pinned:
        if newest.head.durable:
            store.flush_names(layout.MANIFESTS)
            return
    with Commit(CommitPlan(store, is_durable=True)) as commit:
        commit.publish("flush", _unchanged)[1].close()


def _unchanged(newest: Version | None) -> StagedVersion:
    if newest is None:
        raise ConflictError("the table was removed by another process; write it again")
    return StagedVersion.of(newest)
