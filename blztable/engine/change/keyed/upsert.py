"""Upsert: give rows with some keys new values, and append the rows whose keys are new.

Theory of operation
-------------------
The new rows are in memory. A filter on their keys finds the row groups and pages that may have one
of them, by statistics; only the key columns are read there. The keys of the rows found and of the
new rows are numbered together, so each row found knows its new row. Then the change is an update of
the columns that the new rows have, and an append of the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.columns.types import one_array, take
from blztable.engine.change.change_set import ChangeSet
from blztable.engine.change.changes import NoRewrite
from blztable.engine.change.facts.touched import Touched
from blztable.engine.change.keyed import keys
from blztable.engine.change.rows import RowMask, append
from blztable.engine.change.update import set_values
from blztable.engine.query.expressions import comparable
from blztable.engine.query.scan import Scan
from blztable.engine.read.parts import OpenParts
from blztable.engine.read.selection import RowIndices, RowSpan
from blztable.engine.run.limits import check_rows
from blztable.engine.version.staged import StagedVersion


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


def upsert(change_set: ChangeSet, new: NewRows) -> tuple[int, int]:
    """Update and append rows; return the number of rows of each.

    Raises
    ------
    ValueError
        Two of the new rows have the same key.
    """
    staged, rows = change_set.staged, new.table.num_rows
    names = [staged.schema.field(index).name for index in new.on]
    keys.check([staged.schema.field(index) for index in new.on])
    again = keys.repeated(keys.codes(new.keys)) if rows else None
    if again is not None:
        key = {name: column[again].as_py() for name, column in zip(names, new.keys, strict=True)}
        raise ValueError(
            f"row {again} of the data has the key {key!r:.200} of an earlier row; "
            "drop_duplicates keeps one of them"
        )
    if not rows:
        return 0, 0
    finder = _Finder(keys.condition(names, new.keys), new)
    with OpenParts(staged) as opened:
        scan, groups = Scan(staged, finder.condition), range(len(staged.head.row_groups))
        found = {group: finder.find(opened, scan, group) for group in groups}
        found = {group: one for group, one in found.items() if len(one.rows)}
        places = np.concatenate([np.empty(0, np.int64), *(one.places for one in found.values())])
        values = {
            index: pa.chunked_array([take(one_array(new.table.column(index)), places)])
            for index in sorted(new.given - {*new.on})
        }
        if found and values:
            masks = {group: one.mask(staged.head.row_groups[group]) for group, one in found.items()}
            set_values(change_set, opened, values, masks, finder.matches)
        else:
            change_set.add_reliance(NoRewrite(Touched.of(staged, [], finder.matches)))
    is_new = np.ones(rows, np.bool_)
    is_new[places] = False
    rest = np.flatnonzero(is_new)
    if len(rest):
        _append(change_set, new, rest)
    return len(places) if values else 0, len(rest)


def _append(change_set: ChangeSet, new: NewRows, rows: np.ndarray) -> None:
    """Append these of the new rows."""
    staged, columns = change_set.staged, new.table.columns
    lacking = {*range(len(columns))} - new.given
    if len(rows) < new.table.num_rows:
        columns = [take(one_array(column), rows) for column in columns]
    table = pa.Table.from_arrays(columns, names=list(map(str, range(len(columns)))))
    run = (staged.schema, staged.head.pandas, [(table, len(rows))])
    append(change_set, [run], filled=lambda: lacking, rows=len(rows))


@dataclass(frozen=True, slots=True)
class _Found:
    """Rows of a row group, and for each of them the new row that has its key."""

    rows: np.ndarray
    places: np.ndarray

    def mask(self, rows: int) -> RowMask:
        """Select these of the rows of the row group."""
        check_rows(rows, "the rows of a row group")
        selected = np.zeros(rows, np.bool_)
        selected[self.rows] = True
        return RowMask.of(selected)


@dataclass(frozen=True, slots=True)
class _Finder:
    """Finds the rows that have the key of a new row."""

    condition: pc.Expression
    new: NewRows

    def find(self, opened: OpenParts, scan: Scan, group: int) -> _Found:
        """Return the rows of a row group; parts of earlier row groups are released."""
        span = RowSpan(group, 0, opened.version.head.row_groups[group])
        opened.forget_before(group)
        some = scan.filter(scan.within([span]), opened, self.new.on)
        rows = [
            one.rows if isinstance(one, RowIndices) else np.arange(one.start, one.stop)
            for one in some.selection
        ]
        if not rows:
            return _Found(np.empty(0, np.int64), np.empty(0, np.int64))
        both = [
            pa.chunked_array([*comparable(new).chunks, *comparable(some.columns[index]).chunks])
            for new, index in zip(self.new.keys, self.new.on, strict=True)
        ]
        codes, count = keys.codes(both), self.new.table.num_rows
        place = np.full(codes.max() + 1, -1)
        place[codes[:count]] = np.arange(count)
        places = place[codes[count:]]
        return _Found(np.concatenate(rows)[places >= 0], places[places >= 0])

    def matches(self, version: StagedVersion, groups: Sequence[int]) -> bool:
        """Return True if one of these row groups has the key of a new row."""
        scan = Scan(version, self.condition)
        with OpenParts(version) as opened:
            return any(len(self.find(opened, scan, group).rows) for group in groups)
