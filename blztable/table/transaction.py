"""Transaction: several changes to a table in one commit, or none of them.

The one room in which data of the user's meet the engine's changes: `convert` makes columns of
them, the engine files. All verbs that change a table are here; a table's own are one-line
transactions.
"""

import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import accumulate
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from blztable.convert.append_source import TableSpec, append_source
from blztable.convert.categories import check_order, one_in_order, order_of
from blztable.convert.coerce import as_computed_for, default_of, fit_column, may_be_null
from blztable.convert.frames.attributes import checked_attrs
from blztable.convert.frames.frame import described, dropped, renamed
from blztable.convert.values import values_of
from blztable.convert.widen import with_nulls
from blztable.engine.change import columns as evolving
from blztable.engine.change import compact, rows, update
from blztable.engine.change.change_set import ChangeSet
from blztable.engine.change.changes import Keys
from blztable.engine.query import expressions
from blztable.engine.run.progress import Callback
from blztable.engine.version.commit import AlreadyCommitted
from blztable.engine.version.versions import Version
from blztable.engine.write import sort_keys
from blztable.engine.write.options import WriteOptions, check_id
from blztable.errors import ReadOnlyError, SchemaError, TransactionError
from blztable.interrupts import DeferInterrupt
from blztable.storage.store import Lock
from blztable.table.appender import Appender
from blztable.table.attributes import Attributes
from blztable.table.reader import TableReader
from blztable.table.snapshot import Snapshot

Published = Callable[[Version, Lock], None]
# What may leave one small row group after the other at the end.
GROWING = {"append", "resize"}


class Transaction(TableReader):
    """Changes under way, and the table as they have made it so far; nobody else sees it.

    Made by `CTable.transaction`. Leaving the `with` commits, an exception discards all of it.

    Attributes
    ----------
    is_repeated : bool
        Whether a commit with this `commit_id` was made before. Nothing is written then.
    """

    def __init__(
        self, base: Snapshot, options: WriteOptions, commit_id: str | None, published: Published
    ) -> None:
        super().__init__(base)
        check_id(commit_id)
        self._base: Snapshot | None = base
        self._change_set = ChangeSet(base.version, options, commit_id=commit_id)
        self._published = published
        self._pid = os.getpid()
        self._held = ExitStack()
        self._is_open = False
        self._committed: int | None = None
        self.is_repeated = False

    @property
    def version(self) -> int:
        """The version that was committed; before that the one below."""
        return super().version if self._committed is None else self._committed

    @property
    def is_open(self) -> bool:
        """True inside of its `with`: it takes changes."""
        return self._is_open

    def append(
        self,
        data: Any,
        *,
        evolve: bool = False,
        index: bool | None = None,
        progress: Callback | None = None,
    ) -> None:
        """Add rows, as `CTable.append` does."""
        with self._changing() as change_set:
            if change_set is None:
                return
            schema, head = change_set.staged.schema, change_set.staged.head
            frame, declared = change_set.staged.frame, evolving.defaults(change_set.staged)
            defaults = {place: self._placed(place, value) for place, value in declared.items()}
            target = TableSpec(schema, frame, head.rows, defaults, self._categories)
            given = append_source(data, target, index=index, evolve=evolve)
            rows.append(
                change_set,
                given.segments,
                continues_index=lambda: given.continues_index,
                rows=given.rows,
                progress=progress,
            )

    def appender(self) -> Appender:
        """Feed each column by itself, as `CTable.appender` does; appended where its `with` ends."""
        return Appender(self._working(), self._categories, self._show)

    def update(self, values: Mapping[str, Any], where: Any = None) -> int:
        """Set values, as `CTable.update` does; the number of rows."""
        with self._changing() as change_set:
            if change_set is None:
                return 0
            staged = change_set.staged

            def fitted(index: int, array: Any, descriptor: Any = None) -> pa.ChunkedArray:
                field = staged.schema.field(index)
                return fit_column(array, descriptor, field, staged.frame, f"column {field.name!r}")

            def computed(index: int, array: pa.ChunkedArray) -> pa.ChunkedArray:
                return fitted(index, as_computed_for(array, staged.schema.field(index).type))

            wanted: dict[int, update.Values] = {}
            for name, value in values.items():
                evolving.check_text(name)
                index = staged.position(name)
                if isinstance(value, pc.Expression):
                    wanted[index] = expressions.as_expression(value)
                    continue
                found, descriptor = values_of(value, f"column {name!r}")
                fit = fitted(index, found, descriptor)
                if isinstance(found, pa.Scalar):
                    wanted[index] = self._placed(index, fit[0])
                else:
                    check_order(fit, self._categories(index), f"column {name!r}")
                    wanted[index] = fit
            return update.update(change_set, wanted, where, computed)

    def delete(self, where: Any) -> int:
        """Remove rows, as `CTable.delete` does; how many they were."""
        with self._changing() as change_set:
            if change_set is None:
                return 0
            return rows.delete(change_set, where)

    def truncate(self, n: int) -> None:
        """Leave the first `n` rows."""
        self._change(rows.truncate, _number(n, "n"))

    def resize(self, n: int) -> None:
        """Leave the first `n` rows, or add rows of the columns' default values up to `n`."""
        with self._changing() as change_set:
            if change_set is None:
                return
            frame = change_set.staged.frame
            nullable = [may_be_null(field, frame) for field in change_set.staged.schema]
            empty = evolving.fillings(change_set.staged, nullable)
            fillings = [self._placed(place, value) for place, value in enumerate(empty)]
            rows.resize(change_set, _number(n, "n"), fillings)

    def add_column(self, name: str, data: Any, *, default: Any = None) -> None:
        """Add a column, as `CTable.add_column` does."""
        with self._changing() as change_set:
            if change_set is None:
                return
            evolving.check_text(name)
            staged, descriptor, found = change_set.staged, None, None
            rows_of: Callable[[int], Any]
            if isinstance(data, pc.Expression):
                data = expressions.as_expression(data)
                type_ = expressions.type_of(data, staged.schema)
                rows_of = partial(update.computed, staged, data)
            else:
                found, descriptor = values_of(data, f"column {name!r}")
                type_ = found.type
                rows_of = _by_group(found, staged.head.row_groups, name)
            field, nulls = described(pa.field(name, type_), descriptor), 0

            def counted(group: int) -> Any:
                nonlocal nulls
                made = rows_of(group)
                nulls += made.null_count
                return made

            def settled() -> tuple[pa.Field, pa.Scalar | None]:
                final = field
                if nulls and not may_be_null(field, staged.frame):
                    final = with_nulls(field, staged.frame)
                return final, default_of(default, final, staged.frame, order_of(found))

            frame = staged.head.pandas
            evolving.add_column(change_set, field, counted, frame=frame, settled=settled)

    def drop_columns(self, names: Iterable[str]) -> None:
        """Drop columns, as `CTable.drop_columns` does."""
        with self._changing() as change_set:
            if change_set is not None:
                gone = evolving.checked_names(change_set.staged, names)
                evolving.drop_columns(change_set, gone, dropped(change_set.staged.frame, gone))

    def reorder_columns(self, names: Iterable[str]) -> None:
        """Put columns first, as `CTable.reorder_columns` does."""
        with self._changing() as change_set:
            if change_set is not None:
                evolving.reorder_columns(
                    change_set, evolving.checked_names(change_set.staged, names)
                )

    def rename_columns(self, names: Mapping[str, str]) -> None:
        """Give columns other names, as `CTable.rename_columns` does."""
        with self._changing() as change_set:
            if change_set is not None:
                evolving.checked_names(change_set.staged, names)
                for name in names.values():
                    evolving.check_text(name)
                evolving.rename_columns(change_set, names, renamed(change_set.staged.frame, names))

    def compact(self, sort_by: str | Sequence[str | tuple[str, str]] | None = None) -> None:
        """Write rows anew in full row groups, as `CTable.compact` does."""
        self._change(compact.compact, None if sort_by is None else sort_keys.parsed(sort_by))

    def set_retention(self, *, versions: int | None = None, seconds: int | None = None) -> None:
        """Say how long versions are kept, as `CTable.set_retention` does."""
        given = {"keep_versions": versions, "keep_seconds": seconds}
        kept = {key: _number(value, key) for key, value in given.items() if value is not None}
        if kept.get("keep_versions") == 0:
            raise ValueError("the newest version is always kept: at least 1")
        self._change(_set_keys, "properties", kept, ())

    @property
    def attrs(self) -> "Attributes":
        """The table's attributes; what is set is committed with the rest."""
        return Attributes(lambda: self._snapshot.version.head.attributes, self._set_attributes)

    def __enter__(self) -> Self:
        if self._base is None or self._is_open:
            raise TransactionError(f"{self.path}: a transaction is entered once; begin another one")
        self._base.check_open()
        try:
            with DeferInterrupt():
                try:
                    self._held.enter_context(self._change_set)
                except AlreadyCommitted as known:
                    self.is_repeated, self._committed = True, known.version
                self._is_open = True
                self._show()
        except BaseException as failure:
            self._end(failure)
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        # First: Ctrl-C may come at any line, and an ended transaction takes no more changes.
        was_open, self._is_open = self._is_open, False
        try:
            if error is None:
                self._commit(was_open)
            else:  # A child made by fork that fails ends with its own exception.
                self._end(error)
        except BaseException as failure:
            # Ctrl-C may come before the lines above have released everything.
            self._end(failure)
            raise

    def _commit(self, was_open: bool) -> None:
        """Publish the changes, show the new version, and merge small row groups."""
        if not was_open:
            raise TransactionError(f"{self.path}: the transaction has ended; begin another one")
        self._check_process()
        # A reference to an ended transaction must not keep a version.
        self._base = None
        try:
            with self._held:
                published = None if self.is_repeated else self._change_set.publish()
        except AlreadyCommitted as known:
            # By a process that did the same work at the same time.
            self.is_repeated, self._committed = True, known.version
            return
        if published is None:
            return
        version, _ = published
        self._committed = version.head.version
        self._published(*published)
        self._change_set.emit_warnings()
        if GROWING.intersection(self._change_set.operations):
            merged = compact.merge_after(version, self._change_set.options)
            if merged is not None:
                self._published(*merged)

    def _end(self, error: BaseException) -> None:
        """Discard what was done and let go of everything; harmless where that was done."""
        with DeferInterrupt():
            self._is_open = False
            self._base = None
            self._held.__exit__(type(error), error, error.__traceback__)

    def _working(self) -> ChangeSet | None:
        """What takes changes; None where all was done before."""
        self._check_process()
        if not self._is_open:
            raise TransactionError(
                f"{self.path}: a transaction takes changes inside of its `with` only"
            )
        return None if self.is_repeated else self._change_set

    @contextmanager
    def _changing(self) -> Iterator[ChangeSet | None]:
        """What takes the changes of one verb, all or none; None where all was done before."""
        change_set = self._working()
        if change_set is None:
            yield None
            return
        with change_set.attempt():
            yield change_set
        self._show()

    def _change(self, function: Callable[..., None], *arguments: Any) -> None:
        with self._changing() as change_set:
            if change_set is not None:
                function(change_set, *arguments)

    def _show(self) -> None:
        """Let reads see what was done."""
        # The change set pins the version below.
        self._snapshot = Snapshot(self._change_set.staged, None, lambda: self._is_open)

    def _set_attributes(self, changes: Mapping[str, Any], removed: Sequence[str]) -> None:
        self._change(_set_keys, "attributes", checked_attrs(dict(changes)), removed)

    def _placed(self, place: int, value: pa.Scalar) -> pa.Scalar:
        """The value for rows of this column, of an ordered one by the categories there are."""
        if not pa.types.is_dictionary(value.type) or not value.is_valid:
            return value
        what = f"column {self._change_set.staged.schema.field(place).name!r}"
        one = pa.chunked_array([rows.repeated(value, 1)])
        return one_in_order(one, self._categories(place), what)[0]

    def _categories(self, place: int) -> pa.Array | None:
        """The categories of an ordered column, as its first rows have them; else None."""
        type_ = self._change_set.staged.schema.field(place).type
        if not pa.types.is_dictionary(type_) or not type_.ordered:
            return None
        start = 0
        for group_rows in self._change_set.staged.head.row_groups:
            array = self._snapshot.array(place, range(start, start + 1))
            if len(array.dictionary):
                return array.dictionary
            start += group_rows
        return None

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            where = f"{self.path}: a transaction belongs to the process it began in"
            raise ReadOnlyError(f"{where}; open the table again in this one")


def _by_group(
    values: pa.Scalar | pa.Array | pa.ChunkedArray, row_groups: Sequence[int], name: str
) -> Callable[[int], pa.Array | pa.ChunkedArray]:
    """The values of each row group."""
    if isinstance(values, pa.Scalar):
        return lambda group: rows.repeated(values, row_groups[group])
    total = sum(row_groups)
    if len(values) != total:
        raise SchemaError(f"column {name!r}: {len(values)} values for a table of {total} rows")
    first = list(accumulate(row_groups, initial=0))
    return lambda group: values.slice(first[group], row_groups[group])


def _set_keys(
    change_set: ChangeSet, mapping: str, changes: Mapping[str, Any], removed: Sequence[str]
) -> None:
    if changes or removed:
        change_set.add(mapping, Keys.of(change_set.staged, mapping, changes, removed))


def _number(value: Any, what: str) -> int:
    if isinstance(value, bool):
        raise TypeError(f"{what} is a number, not {value}")
    number = operator.index(value)
    if number < 0:
        raise ValueError(f"{what} is a number from 0, not {value}")
    return number
