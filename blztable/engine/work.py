"""Work: a transaction under way, its files written as it goes and its changes made in memory.

What it has made of the table so far is an edition, which is read like a version. One commit at its
end publishes all of it, or nothing was ever there.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Self

from blztable.engine.changes import Change
from blztable.engine.commit import Draft, Transaction
from blztable.engine.edition import Edition, Written
from blztable.engine.grouping import Portion
from blztable.engine.options import WriteOptions
from blztable.engine.progress import Progress
from blztable.engine.reuse import Old
from blztable.engine.versions import Version
from blztable.engine.write import ColumnWriter, keys_of, write_groups
from blztable.errors import ConflictError
from blztable.format import layout
from blztable.interrupts import PutOff
from blztable.storage.store import Lock


class Work:
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
        self.edition = Edition.of(base)
        self._base = base
        self._transaction = Transaction(
            base.store, is_durable=options.is_durable, base=base, commit_id=commit_id
        )
        self._commit_id = commit_id
        self._next_column = base.head.next_column
        # Each with whether the others may land without it.
        self._changes: list[tuple[Change, bool]] = []
        self._operations: list[str] = []

    def __enter__(self) -> Self:
        """AlreadyCommitted where the caller's id is known."""
        self._transaction.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._transaction.__exit__(kind, error, traceback)

    @property
    def operations(self) -> Sequence[str]:
        """What was done, in its order."""
        return self._operations

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Some changes, all of which are taken back if one fails; those before stay."""
        edition, done = self.edition, len(self._changes)
        try:
            with self._transaction.attempt():
                yield
        except BaseException:
            self.edition = edition
            del self._changes[done:], self._operations[done:]
            raise

    def add(self, operation: str, change: Change, *, may_be_lost: bool = False) -> None:
        """Make a change; one that may be lost is left out where it conflicts and others do not."""
        edition = change.onto(self.edition)
        with PutOff():
            self.edition = edition
            self._changes.append((change, may_be_lost))
            self._operations.append(operation)

    def column_writer(self, index: int) -> ColumnWriter:
        """Who writes more parts of the column at this position."""
        field, column = self.edition.schema.field(index), self.edition.columns[index]
        return ColumnWriter(column.path, field.name, field.type, field.nullable, column.next_k)

    def new_column(self) -> int:
        """An id for a new column, after those reserved before."""
        number = self._transaction.reserve_column(self._next_column)
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
        store = self.edition.store
        progress = progress or Progress(None, None, len(columns))
        self._transaction.note(partial(keys_of, columns))
        rows = write_groups(store, columns, groups, self.options, progress, old)
        return rows, [Written(column.finish(), column.next_k) for column in columns]

    def publish(self) -> tuple[Version, Lock] | None:
        """Commit; the new version, pinned. None where there was nothing to commit."""
        # A commit that has an id says that the work was done, even if there was nothing to do.
        if not self._changes and self._commit_id is None:
            return None
        if len(self._changes) > 1:
            self._discard_unnamed(self.edition)
        operation = self._operations[0] if len(set(self._operations)) == 1 else "transaction"
        version, pinned = self._transaction.publish(operation, self._draft)
        self.edition.hand_over(version)
        return version, pinned

    def complain(self) -> None:
        """Warn of what failed behind the commit."""
        self._transaction.complain()

    def _draft(self, newest: Version | None) -> Draft:
        base = self._base.head
        if newest is None or newest.head.uuid != base.uuid:
            raise ConflictError(f"the table that was at {self.edition.store.name} is gone")
        if newest.head.version == base.version:
            return self.edition.draft()
        edition = Edition.of(newest)
        landed: list[tuple[Change, bool]] = []
        for change, may_be_lost in self._changes:
            try:
                edition = change.onto(edition)
            except ConflictError:
                is_last = change is self._changes[-1][0]
                if not may_be_lost or (is_last and not landed):
                    raise
            else:
                landed.append((change, may_be_lost))
        if len(landed) < len(self._changes):
            # Lost for good, whatever the newest version is by the next attempt: its files go.
            self._changes = landed
            self._discard_unnamed(edition)
        self.edition = edition
        return edition.draft()

    def _discard_unnamed(self, edition: Edition) -> None:
        """Remove what was written and is not in this edition any more."""
        columns = {layout.column(column.path[:1]) for column in edition.columns}
        self._transaction.discard_unnamed(edition.files(), columns)
