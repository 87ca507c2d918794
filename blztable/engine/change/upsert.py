"""Upsert: give rows with some keys new values, and append the rows whose keys are new.

Theory of operation
-------------------
The new rows are in memory. A filter on their keys finds the row groups and pages that may have one
of them, by statistics; only the key columns are read there. The keys of the rows found and of the
new rows are numbered together, so each row found knows its new row.

Where many rows of a row group are found, they are updated in their places: only the columns that
the new rows have are written. Where few are found, they move: they are removed, which names them as
deleted, and they are appended with their new values, together with the rows whose keys are new.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.columns.types import one_array, take
from blztable.engine.change import keyed
from blztable.engine.change.change_set import ChangeSet
from blztable.engine.change.changes import NoRewrite
from blztable.engine.change.reliance import WriteSet
from blztable.engine.change.rows import RowMask, append, are_few, remove
from blztable.engine.change.update import set_values
from blztable.engine.query.expressions import comparable
from blztable.engine.query.scan import Scan
from blztable.engine.query.select import take as take_rows
from blztable.engine.read.columns import OpenColumns
from blztable.engine.read.selection import RowSpan
from blztable.engine.run.ahead import one_by_one
from blztable.engine.run.limits import check_rows
from blztable.engine.version.staged import StagedVersion
from blztable.storage.store import ByteRange


@dataclass(frozen=True, slots=True)
class NewRows:
    """Rows to upsert.

    Attributes
    ----------
    table
        The rows, with all columns of the version in their types.
    given
        The columns that the data had; the others are for new rows only.
    on
        The columns of the key.
    """

    table: pa.Table
    given: frozenset[int]
    on: Sequence[int]

    @property
    def keys(self) -> list[pa.ChunkedArray]:
        """The columns of the key."""
        return [self.table.column(index) for index in self.on]

    @property
    def values(self) -> list[int]:
        """The columns that rows whose key is in the table get new values of."""
        return sorted(self.given - {*self.on})


def upsert(change_set: ChangeSet, new: NewRows) -> tuple[int, int]:
    """Update and append rows; return the number of rows of each.

    Raises
    ------
    ValueError
        Two of the new rows have the same key.
    """
    staged, rows = change_set.staged, new.table.num_rows
    names = [staged.schema.field(index).name for index in new.on]
    keyed.check_key([staged.schema.field(index) for index in new.on])
    again = keyed.repeated(keyed.key_codes(new.keys)) if rows else None
    if again is not None:
        key = {name: column[again].as_py() for name, column in zip(names, new.keys, strict=True)}
        raise ValueError(
            f"row {again} of the data has the key {key!r:.200} of an earlier row; "
            "drop_duplicates keeps one of them"
        )
    if not rows:
        return 0, 0
    finder = _Finder(keyed.key_condition(names, new.keys), new)
    with OpenColumns.whole(staged) as opened:
        scan = Scan(opened.projection, finder.condition)
        groups = range(len(staged.row_groups))
        asked = one_by_one(staged.store, groups, partial(finder.ranges, opened, scan))
        matches = {group: finder.find(opened, scan, group) for group in asked}
        matches = {group: match for group, match in matches.items() if len(match.rows)}
        new_rows = [match.new_rows for match in matches.values()]
        positions = np.concatenate([np.empty(0, np.int64), *new_rows])
        moved: dict[int, _MatchedRows] = {}
        if matches and new.values:
            moved = {g: match for g, match in matches.items() if are_few(len(match.rows), match.of)}
            in_place = {g: match for g, match in matches.items() if g not in moved}
            _update(change_set, opened, new, in_place, finder)
        else:
            change_set.add_reliance(NoRewrite(WriteSet.of(staged, [], finder.matches)))
    is_new = np.ones(rows, np.bool_)
    is_new[positions] = False
    rest = np.flatnonzero(is_new)
    if moved:
        masks = {group: match.mask().others() for group, match in moved.items()}
        count = remove(change_set, "delete", masks, finder.matches)
        change_set.count(updated=count, deleted=-count, appended=-count)
    _append(change_set, new, moved, rest, staged)
    return len(positions) if new.values else 0, len(rest)


def _update(
    change_set: ChangeSet,
    opened: OpenColumns,
    new: NewRows,
    matched: Mapping[int, "_MatchedRows"],
    finder: "_Finder",
) -> None:
    """Give these rows their new values."""
    if not matched:
        return
    new_rows = np.concatenate([match.new_rows for match in matched.values()])
    values = {
        index: pa.chunked_array([take(one_array(new.table.column(index)), new_rows)])
        for index in new.values
    }
    masks = {group: match.mask() for group, match in matched.items()}
    set_values(change_set, opened, values, masks, finder.matches)


def _append(
    change_set: ChangeSet,
    new: NewRows,
    moved: Mapping[int, "_MatchedRows"],
    rest: np.ndarray,
    before: StagedVersion,
) -> None:
    """Append rows in the order of the new ones: those that move from `before`, and the `rest`."""
    first = np.cumsum([0, *before.row_groups])
    numbers = [match.rows + first[group] for group, match in moved.items()]
    new_rows = np.concatenate([*(match.new_rows for match in moved.values()), rest])
    if not len(new_rows):
        return
    order, columns = np.argsort(new_rows, kind="stable"), new.table.columns
    # Rows that move keep the values of the other columns, and their keys.
    kept = [index for index in range(len(columns)) if index not in new.values]
    with OpenColumns.whole(before) as opened:
        old = take_rows(opened, kept, np.concatenate(numbers)) if moved else []
    columns = [take(one_array(column), new_rows[order]) for column in columns]
    for index, column in zip(kept, old, strict=False):
        # `take` gives both the type that they are stored as.
        moving = take(one_array(column), np.arange(len(column)))
        fresh = take(one_array(new.table.column(index)), rest)
        columns[index] = take(one_array(pa.chunked_array([moving, fresh])), order)
    table = pa.Table.from_arrays(columns, names=list(map(str, range(len(columns)))))
    staged, lacking = change_set.staged, {*range(len(columns))} - new.given
    segment = (staged.schema, staged.head.pandas, [(table, len(new_rows))])
    append(change_set, [segment], filled=lacking if len(rest) else ())


@dataclass(frozen=True, slots=True)
class _MatchedRows:
    """Rows of a row group, and for each of them the new row that has its key."""

    rows: np.ndarray
    new_rows: np.ndarray
    # The number of rows of the row group.
    of: int

    def mask(self) -> RowMask:
        """Select these of the rows of the row group."""
        check_rows(self.of, "the rows of a row group")
        selected = np.zeros(self.of, np.bool_)
        selected[self.rows] = True
        return RowMask.of(selected)


@dataclass(frozen=True, slots=True)
class _Finder:
    """Finds the rows that have the key of a new row."""

    condition: pc.Expression
    new: NewRows

    def find(self, opened: OpenColumns, scan: Scan, group: int) -> _MatchedRows:
        """Return the rows of a row group; parts of earlier row groups are released."""
        span = RowSpan(group, 0, opened.version.row_groups[group])
        opened.forget_before(group)
        some = scan.filter(scan.morsels(scan.within([span])), opened, self.new.on)
        rows = [selected.picked().rows for selected in some.selection]
        if not rows:
            return _MatchedRows(np.empty(0, np.int64), np.empty(0, np.int64), span.count)
        both = [
            pa.chunked_array([*comparable(new).chunks, *comparable(some.columns[index]).chunks])
            for new, index in zip(self.new.keys, self.new.on, strict=True)
        ]
        codes, count = keyed.key_codes(both), self.new.table.num_rows
        number_of = np.full(codes.max() + 1, -1)
        number_of[codes[:count]] = np.arange(count)
        numbers = number_of[codes[count:]]
        return _MatchedRows(np.concatenate(rows)[numbers >= 0], numbers[numbers >= 0], span.count)

    def ranges(self, opened: OpenColumns, scan: Scan, group: int) -> tuple[list[ByteRange], bool]:
        """Return the ranges of files that a search in a row group reads."""
        span = RowSpan(group, 0, opened.version.row_groups[group])
        return opened.ranges(scan.columns, scan.open_spans(scan.within([span])))

    def matches(self, version: StagedVersion, groups: Sequence[int]) -> bool:
        """Return True if one of these row groups has the key of a new row."""
        with OpenColumns.whole(version) as opened:
            scan = Scan(opened.projection, self.condition)
            return any(len(self.find(opened, scan, group).rows) for group in groups)
