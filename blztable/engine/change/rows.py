"""Rows: append rows at the end, and remove rows anywhere.

A row group that loses a few of its rows only names them as deleted. One that loses more is written
again, with all its columns. Parts of single columns that replace others, or come beside them, have
values for deleted rows, too.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Self

import numpy as np
import pyarrow as pa

from blztable import tuning
from blztable.arrow.nested.nodes import is_nested
from blztable.arrow.types import Portion, as_stored, nulls, stored_type
from blztable.columns.types import one_array, take
from blztable.engine.change import reliance
from blztable.engine.change.change_set import ChangeSet
from blztable.engine.change.changes import Append, Change, NoRewrite, NoRows, Rewrite, Rows
from blztable.engine.change.columns import widen
from blztable.engine.change.reliance import Predicate, ReadSet, WriteSet
from blztable.engine.query.scan import Scan
from blztable.engine.read.columns import OpenColumns
from blztable.engine.read.parts import Part
from blztable.engine.read.selection import RowIndices, RowSpan
from blztable.engine.run.ahead import one_by_one
from blztable.engine.run.limits import check_rows, check_values
from blztable.engine.run.pool import Progress
from blztable.engine.version.staged import StagedVersion
from blztable.engine.write.columns import OnProgress
from blztable.engine.write.options import group_rows_of
from blztable.engine.write.row_groups import row_groups
from blztable.errors import LimitError, SchemaError
from blztable.format import deletions
from blztable.format.jsontext import MAX_NUMBER, Json
from blztable.storage.store import ByteRange

# A schema, the frame descriptor for it, and rows of this schema.
AppendSegment = tuple[pa.Schema, Mapping[str, Json] | None, Iterable[Portion]]
# Number of filled rows in one portion.
FILLED_ROWS = 1 << 20
# Rows of a row group that may have deleted ones: some read all of it to change a column.
MOST_STORED = 1 << 24


def append(
    change_set: ChangeSet,
    segments: Iterable[AppendSegment],
    progress: Progress | None = None,
    *,
    continues_index: Callable[[], bool] = bool,
    filled: Iterable[int] = (),
    on_progress: OnProgress | None = None,
) -> int:
    """Append rows, and return their number.

    A segment with wider or more columns first changes the columns of the table.

    Once the rows of a segment are drawn, `filled` has the columns that the data lacked, which got
    defaults, and `continues_index` returns whether the index of the rows continues the table's.
    `on_progress` is called while the first segment is written.
    """
    progress, done = progress or Progress(None, None, 1), 0
    for schema, frame, portions in segments:
        widen(change_set, schema, frame)
        # Iterating over the caller's data may run the caller's code, which may change the columns.
        staged = change_set.staged
        columns = change_set.column_writers()
        progress.resume(done, len(columns))
        groups = row_groups(portions, group_rows_of(change_set.storage))
        written, parts = change_set.write(
            columns, groups, progress, is_whole=True, on_progress=on_progress
        )
        done, on_progress = done + sum(written.rows), None
        if written.rows:
            read_set = ReadSet.columns_of(staged).and_defaults(staged, filled)
            change_set.add("append", Append(read_set, written, parts, continues_index()))
            change_set.count(appended=sum(written.rows))
    return done


def delete(change_set: ChangeSet, where: object) -> int:
    """Remove the rows for which `where` is true; return their number."""
    staged = change_set.staged
    with OpenColumns.whole(staged) as opened:
        condition = Condition(opened, where)
        predicate = reliance.any_where(staged, where)
        kept = ((group, selected.others()) for group, selected in condition.each())
        return keep(change_set, "delete", kept, predicate)


def _truncate(change_set: ChangeSet, rows: int) -> None:
    """Keep at most the first `rows` rows."""
    groups = change_set.staged.row_groups
    firsts = list(accumulate(groups, initial=0))

    def kept(group: int) -> RowMask:
        return RowMask(groups[group], min(max(rows - firsts[group], 0), groups[group]))

    keep(change_set, "resize", ((group, kept(group)) for group in range(len(groups))))


def resize(change_set: ChangeSet, rows: int, values: Callable[[], Sequence[pa.Scalar]]) -> None:
    """Keep the first `rows` rows, or add rows with one of the `values` in each column."""
    if rows > MAX_NUMBER:
        raise LimitError(
            f"{change_set.staged.store.name}: a table has at most {MAX_NUMBER} rows, found {rows}; "
            "pass a smaller number"
        )
    more = rows - change_set.staged.head.rows
    if more <= 0:
        _truncate(change_set, rows)
        return
    staged, fillings = change_set.staged, values()

    def parts() -> Iterator[Portion]:
        for start in range(0, more, FILLED_ROWS):
            count = min(FILLED_ROWS, more - start)
            arrays = [repeated(value, count) for value in fillings]
            yield pa.Table.from_arrays(arrays, names=staged.schema.names), count

    columns = change_set.column_writers()
    added, written = change_set.write(
        columns, row_groups(parts(), group_rows_of(change_set.storage)), is_whole=True
    )
    # Not an append: after a rebase on more rows the result would have too many rows.
    read_set = ReadSet.rows_of(staged).and_defaults(staged, range(len(fillings)))
    change_set.add("resize", Rows(read_set, None, added, written))
    change_set.count(appended=more)


def by_group(
    values: pa.Scalar | pa.Array | pa.ChunkedArray, row_groups: Sequence[int], name: str
) -> Callable[[int], pa.Array | pa.ChunkedArray]:
    """Return a function from a row group's index to its values."""
    if isinstance(values, pa.Scalar):
        return lambda group: repeated(values, row_groups[group])
    total = sum(row_groups)
    if len(values) != total:
        raise SchemaError(
            f"column {name!r}: {len(values)} values for a table of {total} rows; pass one value "
            "per row, or one scalar for all rows"
        )
    first = list(accumulate(row_groups, initial=0))
    return lambda group: values.slice(first[group], row_groups[group])


def repeated(value: pa.Scalar, rows: int) -> pa.Array:
    """Return an array that repeats a value `rows` times, in its storage type."""
    check_values(rows, value.type)
    if not value.is_valid:
        return nulls(rows, value.type)
    # Arrow cannot repeat view types.
    stored = stored_type(value.type)
    if is_nested(value.type):
        # Arrow repeats not all values in dictionaries.
        return take(pa.repeat(value, 1), np.zeros(rows, np.int64))
    return pa.repeat(value if stored.id == value.type.id else value.cast(stored), rows)


def keep(
    change_set: ChangeSet,
    operation: str,
    kept: Iterable[tuple[int, "RowMask"]],
    predicate: Predicate | None = None,
) -> int:
    """Keep the rows of row groups that `kept` has; return the number of removed rows.

    `predicate` is the predicate of the rows that go; None if all row groups decide which rows these
    are, by their places.
    """
    fewer = {group: selected for group, selected in kept if not selected.is_all}
    return remove(change_set, operation, fewer, predicate)


def remove(
    change_set: ChangeSet,
    operation: str,
    fewer: Mapping[int, "RowMask"],
    predicate: Predicate | None,
) -> int:
    """Keep only the selected rows of some row groups; `predicate` and the result as of `keep`."""
    staged = change_set.staged
    groups = staged.row_groups
    write_set = None if predicate is None else WriteSet.of(staged, list(fewer), predicate)
    if not fewer:
        nothing = NoRewrite(write_set) if write_set else NoRows(ReadSet.rows_of(staged))
        change_set.add_reliance(nothing)
        return 0
    deleted = {} if write_set is None else _deleted(staged, fewer)
    replaced = {group: selected for group, selected in fewer.items() if group not in deleted}
    rewritten = [(group, selected) for group, selected in replaced.items() if selected.count]
    columns = change_set.column_writers()
    with OpenColumns.whole(staged) as opened:

        def portions() -> Iterator[Portion]:
            indices = range(len(staged.schema))
            for group in opened.ahead(dict(rewritten), indices):
                selected = fewer[group]
                opened.forget_before(group)
                yield read_group(opened, indices, group, selected), selected.count

        def old(line: int, number: int) -> Part:
            return opened.parts.open(line, rewritten[number][0])

        counts, written = change_set.write(columns, portions(), old=old, is_whole=True)
    change: Change
    if write_set:
        left = [bool(selected.count) for selected in replaced.values()]
        change = Rewrite(write_set, list(map(deleted.get, fewer)), left, counts, written)
    else:
        new = {group: len(groups) + number for number, (group, _) in enumerate(rewritten)}
        kept_groups = [group for group in range(len(groups)) if group not in fewer or group in new]
        order = [new.get(group, group) for group in kept_groups]
        change = Rows(ReadSet.rows_of(staged), order, counts, written)
    change_set.add(operation, change)
    removed = sum(selected.rows - selected.count for selected in fewer.values())
    change_set.count(deleted=removed)
    return removed


def _deleted(staged: StagedVersion, kept: Mapping[int, "RowMask"]) -> dict[int, bytes]:
    """Return all deleted rows of each row group that is not worth writing again for a few more."""
    budget = tuning.current.deleted_rows - staged.deleted_rows
    words = {}
    for group, selected in kept.items():
        stored, before = staged.stored_rows[group], staged.all_deleted[group]
        more = selected.rows - selected.count
        mask, is_few = selected.unpacked(), are_few(stored - selected.count, stored)
        if mask is None or not is_few or stored > MOST_STORED or more > budget:
            continue
        gone = deletions.stored(before, np.flatnonzero(~mask))
        words[group] = deletions.pack(np.sort(np.append(deletions.unpack(before), gone)))
        budget -= more
    return words


def are_few(rows: int, of: int) -> bool:
    """True if so few rows of a row group change that its parts are not worth writing again."""
    return rows * tuning.current.rows_per_deleted <= of


@dataclass(frozen=True, slots=True)
class RowMask:
    """Selected rows of a row group, one bit for each row.

    A selection of the first rows has no bits: a row group of nulls may be larger than memory.

    Attributes
    ----------
    rows : int
        Rows of the row group.
    count : int
        Selected rows.
    bits : ndarray of uint8, or None
        Packed bits; None if the first `count` rows are selected.
    """

    rows: int
    count: int
    bits: np.ndarray | None = None

    @classmethod
    def of(cls, mask: np.ndarray) -> Self:
        """Select the rows for which a mask of booleans, shape (rows,), is true."""
        rows, count = len(mask), int(np.count_nonzero(mask))
        return cls(rows, count, None if count in (0, rows) else np.packbits(mask))

    def others(self) -> "RowMask":
        """Select the rows that are not selected here."""
        mask = self.unpacked()
        if mask is not None:
            return RowMask.of(~mask)
        assert self.count in (0, self.rows), self
        return RowMask(self.rows, self.rows - self.count)

    @property
    def is_all(self) -> bool:
        """True if all rows are selected."""
        return self.count == self.rows

    def unpacked(self) -> np.ndarray | None:
        """Return booleans, shape (rows,); None if the first `count` rows are selected."""
        if self.bits is None:
            return None
        return np.unpackbits(self.bits, count=self.rows).view(np.bool_)


def read_group(
    opened: OpenColumns, indices: Sequence[int], group: int, selected: RowMask | None = None
) -> pa.Table:
    """Return columns of a row group in their storage types, with all or the selected rows."""
    version = opened.version
    rows = version.row_groups[group]
    mask = selected.unpacked() if selected else None
    stop = selected.count if selected and mask is None else rows
    arrays = opened.columns(indices, [RowSpan(group, 0, stop)])
    stored = [as_stored(one_array(column)) for column in arrays]
    if mask is not None:
        rows_of = np.flatnonzero(mask)
        stored = [
            take(array, rows_of) if is_nested(array.type) else array.filter(pa.array(mask))
            for array in stored
        ]
    return pa.Table.from_arrays(stored, names=[str(index) for index in indices])


class Condition:
    """A filter that is evaluated on one row group at a time."""

    def __init__(self, opened: OpenColumns, where: object) -> None:
        """Prepare the scan; `Scan` checks the filter."""
        self._opened = opened
        self._scan = Scan(opened.projection, where)

    def each(self, groups: Iterable[int] | None = None) -> Iterator[tuple[int, RowMask]]:
        """Yield row groups, by default all, and their rows for which the filter is true."""
        version = self._opened.version
        chosen = range(version.group_count) if groups is None else groups
        for group in one_by_one(version.store, chosen, self._ranges):
            yield group, self.rows(group)

    def _ranges(self, group: int) -> tuple[list[ByteRange], bool]:
        span = RowSpan(group, 0, self._opened.version.row_groups[group])
        return self._opened.ranges(self._scan.columns, self._scan.open_spans([span]))

    def rows(self, group: int) -> RowMask:
        """Select the rows for which the filter is true; release earlier row groups."""
        rows = self._opened.version.row_groups[group]
        self._opened.forget_before(group)
        matching = self._scan.filter(self._scan.morsels([RowSpan(group, 0, rows)]), self._opened)
        if matching.count in (0, rows):
            return RowMask(rows, matching.count)
        check_rows(rows, "the rows of a row group")
        true = np.zeros(rows, np.bool_)
        for span in matching.selection:
            true[span.rows if isinstance(span, RowIndices) else slice(span.start, span.stop)] = True
        return RowMask.of(true)


def check_all_match(staged: StagedVersion, groups: Iterable[int], where: object) -> None:
    """Raise ValueError if a row of these row groups, which were appended, does not meet `where`.

    The filter is evaluated on what was written, by statistics first, so it means what it means for
    the rows that it removed.
    """
    rows, outside, first = 0, 0, -1
    with OpenColumns.whole(staged) as opened:
        condition = Condition(opened, where)
        for _, selected in condition.each(groups):
            left = selected.others()
            if left.count and first < 0:
                mask = left.unpacked()
                first = rows + (0 if mask is None else int(np.argmax(mask)))
            rows, outside = rows + left.rows, outside + left.count
    if outside:
        raise ValueError(
            f"{outside:,} of {rows:,} rows of the data do not meet the condition `where`, the "
            f"first is row {first}; rows that it would not replace cannot be put in their place"
        )
