"""ChangeSet: the changes of one transaction, and the staged version that they make so far.

Files are written as the transaction goes, changes are made in memory. The staged version is read as
any version is. One commit at the end publishes all of it, or nothing was ever there.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Self

from blztable.engine.change.changes import Change
from blztable.engine.change.staged import StagedVersion, Written
from blztable.engine.run.progress import Progress
from blztable.engine.version import versions
from blztable.engine.version.commit import Commit, Draft
from blztable.engine.version.versions import Version
from blztable.engine.write.columns import ColumnWriter, keys_of, write_groups
from blztable.engine.write.options import WriteOptions
from blztable.engine.write.reuse import Old
from blztable.engine.write.row_groups import Portion
from blztable.errors import ConflictError
from blztable.interrupts import DeferInterrupt
from blztable.storage.store import Lock


class ChangeSet:
    """Changes to one version, as a context: without `publish` nothing of it stays."""

    def __init__(
        self,
        base: Version,
        options: WriteOptions,
        *,
        commit_id: str | None = None,
    ) -> None:
        """Begin nothing yet."""
        self.options = options
        self.staged = StagedVersion.of(base)
        self._base = base
        self._commit = Commit(
            base.store, is_durable=options.is_durable, base=base, commit_id=commit_id
        )
        self._commit_id = commit_id
        self._next_column = base.head.next_column
        # Each with whether the others may land without it.
        self._changes: list[tuple[Change, bool]] = []
        self._operations: list[str] = []

    def __enter__(self) -> Self:
        """AlreadyCommitted where the caller's id is known."""
        self._commit.__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._commit.__exit__(kind, error, traceback)

    @property
    def operations(self) -> Sequence[str]:
        """What was done, in its order."""
        return self._operations

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Some changes, all of which are taken back if one fails; those before stay."""
        staged, changes, operations = self.staged, len(self._changes), len(self._operations)
        try:
            with self._commit.files.attempt():
                yield
        except BaseException:
            self.staged = staged
            del self._changes[changes:], self._operations[operations:]
            raise

    def add(self, operation: str, change: Change, *, may_be_lost: bool = False) -> None:
        """Make a change; one that may be lost is left out where it conflicts and others do not."""
        staged = change.rebase(self.staged)
        with DeferInterrupt():
            self.staged = staged
            self._changes.append((change, may_be_lost))
            self._operations.append(operation)

    def add_reliance(self, change: Change) -> None:
        """Note a change that changes nothing: the others land only on what it relies on."""
        self._changes.append((change, False))

    def column_writer(self, index: int) -> ColumnWriter:
        """Who writes more parts of the column at this position."""
        field, column = self.staged.schema.field(index), self.staged.columns[index]
        return ColumnWriter(column.path, field.name, field.type, field.nullable, column.next_k)

    def new_column(self) -> int:
        """An id for a new column, after those reserved before."""
        number = self._commit.files.reserve_column(self._next_column)
        self._next_column = number + 1
        return number

    def write(
        self,
        columns: Sequence[ColumnWriter],
        groups: Iterable[Portion],
        progress: Progress | None = None,
        old: Old | None = None,
    ) -> tuple[list[int], list[Written]]:
        """Write row groups of some columns; their rows, and the parts."""
        store = self.staged.store
        progress = progress or Progress(None, None, len(columns))
        self._commit.files.note(partial(keys_of, columns))
        rows = write_groups(store, columns, groups, self.options, progress, old)
        return rows, [Written(column.finish(), column.next_k) for column in columns]

    def publish(self) -> tuple[Version, Lock] | None:
        """Commit; the new version, pinned. None where there was nothing to commit."""
        # A commit that has an id says that the work was done, even if there was nothing to do.
        if not self._operations and self._commit_id is None:
            self._check_reliances()
            return None
        operation = self._operations[0] if len(set(self._operations)) == 1 else "transaction"
        version, pinned = self._commit.publish(operation, self._draft, self._named(self.staged))
        self.staged.share_parsed_columns(version)
        return version, pinned

    def emit_warnings(self) -> None:
        """Warn of what failed behind the commit."""
        self._commit.emit_warnings()

    def _draft(self, newest: Version | None) -> Draft:
        base = self._base.head
        if newest is None or newest.head.uuid != base.uuid:
            raise ConflictError(f"the table that was at {self.staged.store.name} is gone")
        if newest.head.version != base.version:
            self.staged = self._rebased(newest)
        staged = self.staged
        return Draft(staged.head, staged.lines(), self._named(staged))

    def _check_reliances(self) -> None:
        """ConflictError if others committed what the changes that found nothing rely on."""
        store, base = self.staged.store, self._base.head
        number = versions.newest_told(store) if self._changes else None
        if number is not None and number != base.version:
            self._draft(versions.load(store, number))

    def _rebased(self, newest: Version) -> StagedVersion:
        """Make the changes again on the newest version; ConflictError if none of them lands."""
        staged, landed = StagedVersion.of(newest), 0
        for number, (change, may_be_lost) in enumerate(self._changes, 1):
            try:
                staged = change.rebase(staged)
            except ConflictError:
                if not may_be_lost or (number == len(self._changes) and not landed):
                    raise
            else:
                landed += 1
        return staged

    def _named(self, staged: StagedVersion) -> Callable[[], Collection[str]] | None:
        """The files that a staged version names; None if one change made it: it drops none."""
        return staged.files if len(self._changes) > 1 else None
