"""ChangeSet: the changes of one transaction, and the staged version that they make so far.

Theory of operation
-------------------
A verb of the transaction writes its files at once (`write`, in the threads of `engine/run/pool`),
then adds a change (`add`). A change is a value: it names the new files and records what it relies
on. `change.rebase(staged)` returns a new staged version in memory; reads of the transaction see it.
A verb that fails takes back its changes and its files (`attempt`); earlier verbs stay.

`publish` hands the staged version to one commit. If another writer committed meanwhile, the commit
calls `_rebased` under the writers' lock: every change is made again, in order, on the newest
version. No file is written for this, and row groups are read only to look for rows that a change
with a predicate means (`reliance.Touched`). A change that relies on something that has changed
raises ConflictError, and nothing is committed. A droppable change (one join of a compaction) is
left out instead, if any other change lands. New files that the published version does not name are
removed by the commit, after the publication.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from operator import add, sub
from typing import Any

import pyarrow as pa

from blztable.arrow.nested.nodes import Node
from blztable.arrow.types import Portion
from blztable.engine.change.changes import LAYERS, Change, Key, Keys, Value, is_blind
from blztable.engine.run.pool import Progress
from blztable.engine.version import versions
from blztable.engine.version.commit import Commit
from blztable.engine.version.history import DID
from blztable.engine.version.schema import paths_of
from blztable.engine.version.staged import NewGroups, StagedColumn, StagedVersion
from blztable.engine.version.versions import Version
from blztable.engine.write.column_writer import ColumnWriter, staged_columns, writers_of
from blztable.engine.write.columns import OnProgress, write_groups
from blztable.engine.write.options import KEPT, Storage, properties_of, storage_of
from blztable.engine.write.reuse import Old
from blztable.errors import ConflictError
from blztable.format import layout
from blztable.format.metalayers import LayerKey
from blztable.interrupts import DeferInterrupt
from blztable.report import Changed
from blztable.storage.store import KeyNotFound, Lock


class ChangeSet:
    """The changes of one transaction. The caller begins `commit` before it makes a change."""

    def __init__(self, commit: Commit, storage: Storage, new: StagedVersion | None = None) -> None:
        """Begin with the version that the commit is based on, or with a new table without rows."""
        self.commit = commit
        self.storage = storage
        # What the call that last stored rows gave in place of options of the table.
        self.given = Storage()
        self.staged = new or StagedVersion.of(_base(commit))
        # (change, is_droppable) in the order in which they were added.
        self._changes: list[tuple[Change, bool]] = []
        # Names of the operations in the order of their changes.
        self.operations: list[str] = []
        # What the changes so far did to rows.
        self.done = Changed()
        # True if they must not be made again on another version: values or an index belong to
        # single rows, or the data can be read only once.
        self.only_once = False

    def begin(self) -> None:
        """Number new files after those of the newest version, once the commit has its locks.

        Where one process writes at a time, the one before may have removed files whose numbers are
        free again, but readers of its versions still look for them by these numbers.
        """
        store, base = self.commit.plan.store, _base(self.commit)
        number = versions.newest_number(store) if store.has_one_writer else None
        if number is not None and number != base.head.version:
            try:
                newest = versions.load(store, number).head
            except KeyNotFound:
                raise versions.dropped(store) from None
            self.commit.files.numbers.skip_to(newest.next_file)

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Take back all changes made inside of this context if it fails."""
        staged, changes, operations = self.staged, len(self._changes), len(self.operations)
        files, done = self.commit.files.count(), self.done
        try:
            yield
        except BaseException:
            with DeferInterrupt():
                self.staged, self.done = staged, done
                del self._changes[changes:], self.operations[operations:]
                self.commit.files.discard(files)
            raise

    def add(self, operation: str, change: Change, *, is_droppable: bool = False) -> None:
        """Make a change. A droppable change is left out if its rebase conflicts."""
        staged = change.rebase(self.staged)
        with DeferInterrupt():
            self.staged = staged
            self._changes.append((change, is_droppable))
            self.operations.append(operation)

    @contextmanager
    def named(self, operation: str) -> Iterator[None]:
        """Give the changes made inside of this context one name."""
        first = len(self.operations)
        yield
        self.operations[first:] = [operation] * len(self.operations[first:])

    def count(self, *, appended: int = 0, updated: int = 0, deleted: int = 0) -> None:
        """Add to the numbers of rows that were changed."""
        self.done = Changed(*map(add, _numbers(self.done), (appended, updated, deleted)))

    def done_since(self, before: Changed) -> Changed:
        """Return what the changes did to rows after `before`, an earlier value of `done`."""
        numbers = map(sub, _numbers(self.done), _numbers(before))
        return Changed(*numbers)

    def set_keys(
        self, mapping: str, changes: Mapping[Any, Value], removed: Collection[Key]
    ) -> None:
        """Set and remove keys of a mapping in the head."""
        if changes or removed:
            self.add(mapping, Keys.of(self.staged, mapping, changes, removed))

    def set_layer(self, key: LayerKey, content: bytes | None) -> None:
        """Set a metalayer, or remove it."""
        changes = {} if content is None else {key: content}
        self.set_keys(LAYERS, changes, {key} - changes.keys())

    def keep_storage(self, storage: Storage) -> None:
        """Keep other options in the properties, and use them from the next change on."""
        properties, kept = self.staged.head.properties, properties_of(storage)
        changes = {name: value for name, value in kept.items() if properties.get(name) != value}
        self.set_keys("properties", changes, properties.keys() & {*KEPT} - kept.keys())
        self.storage = storage

    @contextmanager
    def stored_as(self, given: Storage) -> Iterator[None]:
        """Store the rows of this context with other options, which the table does not keep."""
        kept, self.given = self.storage, given
        self.storage = self.storage_with_given
        try:
            yield
        finally:
            self.storage = kept

    @property
    def storage_with_given(self) -> Storage:
        """The options of the table, with those that were given for its last rows."""
        if not properties_of(self.given):
            return self.storage
        return storage_of(properties_of(self.storage), self.given)

    def add_reliance(self, change: Change) -> None:
        """Add a change that changes nothing and conflicts if what it relies on has changed."""
        self._changes.append((change, False))

    def column_writers(self, indices: Iterable[int] | None = None) -> list[ColumnWriter]:
        """Return the writers of more parts for the nodes of these columns, by default of all."""
        staged = self.staged
        paths, writers = staged.paths, []
        for index in range(len(staged.schema)) if indices is None else indices:
            nodes = staged.nodes(index)
            writers += writers_of(staged.schema.field(index), paths[nodes.start : nodes.stop])
        return writers

    def new_columns(self, fields: Sequence[pa.Field]) -> list[ColumnWriter]:
        """Reserve ids for new columns and the nodes below; return the writers of all nodes."""
        counts = [Node.of(field.type).count for field in fields]
        ids = self.commit.files.reserve_columns(sum(counts))
        roots = [ids[first] for first in accumulate(counts[:-1], initial=0)] if fields else []
        return [
            writer
            for field, root in zip(fields, roots, strict=True)
            for writer in writers_of(field, paths_of(field.type, root))
        ]

    def write(
        self,
        columns: Sequence[ColumnWriter],
        groups: Iterable[Portion],
        progress: Progress | None = None,
        old: Old | None = None,
        *,
        is_whole: bool = False,
        on_progress: OnProgress | None = None,
    ) -> tuple[NewGroups, list[StagedColumn]]:
        """Write row groups of some columns; return the row groups and the written columns.

        The parts of a small row group share a bundle if `is_whole`: if these are all columns.
        """
        progress = progress or Progress(None, None, len(columns))
        bundles: list[int] = []
        files = [(column.path, column.file_numbers) for column in columns]
        files.append((layout.SHARED, bundles))
        self.commit.files.record(files)
        written = write_groups(
            self.staged.store,
            self.staged.head.uuid,
            columns,
            groups,
            self.storage,
            progress,
            self.commit.files.numbers,
            old,
            bundles if is_whole else None,
            on_progress,
        )
        self.commit.files.finish(files)
        return written, staged_columns(columns)

    def publish(self) -> tuple[Version, Lock] | None:
        """Commit the changes; return the new version, pinned, or None if there are no changes."""
        # A commit with an id is made without changes as well: it records that the work is done.
        if not self.operations and self.commit.plan.commit_id is None:
            self._check_reliances()
            return None
        operation = self.operations[0] if len(set(self.operations)) == 1 else "transaction"
        return self.commit.publish(operation, self._rebased, self.staged)

    def _rebased(self, newest: Version | None) -> StagedVersion:
        """Return the newest version with all changes; ConflictError if one of them conflicts.

        A droppable change that conflicts is left out, unless no change would be left.
        """
        base, name = _base(self.commit).head, self.staged.store.name
        if newest is None or newest.head.uuid != base.uuid:
            raise ConflictError(f"{name}: the table was removed or replaced; open it again")
        if newest.head.version == base.version:
            return self._marked(self.staged)
        staged, landed = StagedVersion.of(newest), 0
        for number, (change, is_droppable) in enumerate(self._changes, 1):
            try:
                staged = change.rebase(staged)
                landed += 1
            except ConflictError:
                if not is_droppable or (number == len(self._changes) and not landed):
                    raise
        return self._marked(staged)

    def _marked(self, staged: StagedVersion) -> StagedVersion:
        """Return the version with what was done; it knows if all changes are blind."""
        if not is_blind([change for change, _ in self._changes]):
            staged = staged.with_appends_changed()
        return staged.with_head(did=did(self.done))

    def _check_reliances(self) -> None:
        """Raise ConflictError if another commit changed what changes that found nothing rely on."""
        store, base = self.staged.store, _base(self.commit).head
        number = versions.checked_newest(store) if self._changes else None
        if number is not None and number != base.version:
            newest, pinned = versions.pin(store)
            with pinned:
                self._rebased(newest)


def did(done: Changed) -> dict[str, int]:
    """Return the numbers of rows as the head of a version has them."""
    return dict(zip(DID, _numbers(done), strict=True))


def _numbers(done: Changed) -> tuple[int, int, int]:
    return done.rows_appended, done.rows_updated, done.rows_deleted


def _base(commit: Commit) -> Version:
    base = commit.plan.base
    assert base is not None, "changes are made to a version"
    return base
