"""Salvage: read a damaged table without the rows, or without the values, that are damaged.

Does not know how damage is found (`engine/read/damage.py`) or how rows are read (`select.py`).

Theory of operation. Each row group is read by itself. Where that fails, each column is read in
halves of halves, down to pieces much smaller than a chunk: these fail where they need the damaged
one. Lost rows of a column are left out of the result, or the column is null there. The rows that a
condition depends on are left out in both cases: the condition is null there.
"""

import logging
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from time import monotonic

import numpy as np
import pyarrow as pa

from blztable.arrow.types import nulls
from blztable.engine.query.scan import Scan
from blztable.engine.query.select import Selected, read_selected, take, windows
from blztable.engine.read.column_reader import ColumnReader
from blztable.engine.read.damage import DamagedRows, DamagedSpan, find_damage, is_damage
from blztable.engine.read.selection import RowSpan, stored_spans
from blztable.engine.version.projection import Projection
from blztable.errors import BlzError
from blztable.format.deletions import live_range

_log = logging.getLogger(__name__)

# A part with much damage is read in at most this many pieces.
PIECES = 1024


def salvaged(
    read: Callable[[], Selected],
    projection: Projection,
    opened: Callable[[Projection], ColumnReader],
    columns: Sequence[int],
    scan: Scan | None,
    rows: Callable[[], Sequence[RowSpan]],
    on_corrupt: str,
    with_nans: Container[int] = (),
) -> tuple[Selected, list[DamagedRows]]:
    """Return what `read` returns; if bytes are damaged, what can be read, and the damage.

    Parameters
    ----------
    read : callable
        Reads these columns of the rows that pass the filter.
    opened : callable
        Returns a new reader of a projection.
    rows : callable
        Returns the rows that `read` reads.
    on_corrupt : {"raise", "skip", "null"}
        What is done about damage: raise it, leave out the rows, or make the values null.

    Raises
    ------
    CorruptError
        With "raise"; or if the records of a column are damaged, so that no row of the column can
        be read.
    """
    started = monotonic()
    try:
        whole = read()
    except BlzError as error:
        if on_corrupt == "raise" or not is_damage(error):
            raise
    else:
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug(
                "%s: read %d rows of %d columns in %.4f s",
                projection.version.store.name,
                len(whole.numbers),
                len(columns),
                monotonic() - started,
            )
        return whole, []
    salvage = _Salvage(projection, opened, columns, scan, with_nans, on_corrupt == "null")
    selected, damage = salvage.of(rows())
    for damaged in damage:
        _log.info("%s: %s", projection.version.store.name, damaged)
    return selected, damage


@dataclass(frozen=True, slots=True)
class _Salvage:
    """A read of damaged rows; the attributes are those of `salvaged`."""

    projection: Projection
    opened: Callable[[Projection], ColumnReader]
    columns: Sequence[int]
    scan: Scan | None
    with_nans: Container[int]
    with_nulls: bool

    def of(self, rows: Sequence[RowSpan]) -> tuple[Selected, list[DamagedRows]]:
        """Return what can be read of these rows."""
        conditions = self.scan.columns if self.scan else []
        needed = list(dict.fromkeys([*conditions, *self.columns]))
        for index in needed:
            self._filtered.root(index)
        kept: list[RowSpan] = []
        damage: list[DamagedRows] = []
        blank: dict[int, list[DamagedSpan]] = {}
        firsts = [0, *accumulate(self.projection.version.row_groups)]
        for span in rows:
            lost, first = self._lost_in_windows(needed, span), firsts[span.group]
            nullable = [index for index in lost if self.with_nulls and index not in conditions]
            for index in nullable:
                blank.setdefault(index, []).extend(_shifted(lost.pop(index), first))
            left_out = _united(chain.from_iterable(lost.values()))
            damage += [DamagedRows(*damaged) for damaged in _shifted(left_out, first)]
            kept += _without(span, left_out)
        whole = [index for index in self.columns if index not in blank]
        read = self._read(whole, kept)
        arrays = dict(zip(whole, read.arrays, strict=True))
        for index, lost_rows in blank.items():
            arrays[index] = self._with_nulls(index, lost_rows, kept, read.numbers)
            name = self.projection.schema.field(index).name
            damage += [DamagedRows(*damaged, name) for damaged in lost_rows]
        return Selected([arrays[index] for index in self.columns], read.numbers), damage

    @property
    def _filtered(self) -> Projection:
        """The projection with the nested fields that the filter refers to as further columns."""
        return self.projection if self.scan is None else self.scan.projection

    def _read(self, columns: Sequence[int], rows: Sequence[RowSpan]) -> Selected:
        reader = self.opened(self.projection)
        return read_selected(reader, columns, self.scan, rows, None, self.with_nans)

    def _lost_in_windows(
        self, needed: Sequence[int], span: RowSpan
    ) -> dict[int, list[DamagedSpan]]:
        """Return the lost rows of each damaged column; rows of many bytes are read in windows."""
        by_column: dict[int, list[DamagedSpan]] = {}
        for (window,) in windows(self._filtered, needed, [span], None, None):
            for index, lost in self._lost(needed, window).items():
                before = by_column.setdefault(index, [])
                for damaged in lost:
                    if before and before[-1][1:] == (damaged.start, damaged.reason):
                        damaged = damaged._replace(start=before.pop().start)
                    before.append(damaged)
        return by_column

    def _lost(self, needed: Sequence[int], span: RowSpan) -> dict[int, list[DamagedSpan]]:
        """Return the lost rows of each damaged column."""
        if _fault(lambda: self._read(self.columns, [span])) is None:
            return {}
        by_column = {index: self._lost_of(index, span) for index in needed}
        by_column = {index: lost for index, lost in by_column.items() if lost}
        left = _without(span, _united(chain.from_iterable(by_column.values())))
        reason = _fault(lambda: self._read(self.columns, left))
        if reason is not None:
            # The pages can be read one by one, but not together.
            whole = [DamagedSpan(span.start, span.stop, reason)]
            return dict.fromkeys(needed, whole)
        return by_column

    def _lost_of(self, index: int, span: RowSpan) -> list[DamagedSpan]:
        """Return the rows of one column that cannot be read."""
        projection = self._filtered
        version = projection.version
        with self.opened(projection) as reader:
            reason = _fault(lambda: reader.check(index, span.group))
            if reason is None:
                unit = reader.piece_rows(index, span.group)
        if reason is not None:
            # No row can be read without the part, so smaller pieces are not tried.
            return [DamagedSpan(span.start, span.stop, reason)]
        deleted, rows = version.all_deleted[span.group], version.stored_rows[span.group]

        def attempt(start: int, stop: int) -> str | None:
            piece = RowSpan(span.group, *live_range(deleted, start, stop))
            with self.opened(projection) as reader:
                return _fault(lambda: reader.columns([index], [piece]))

        # Pages are of stored rows.
        (stored,) = stored_spans(version.deleted, [span])
        lost = find_damage(attempt, stored.start, stored.stop, min(unit, rows), PIECES)
        live = [DamagedSpan(*live_range(deleted, start, stop), why) for start, stop, why in lost]
        return [damaged for damaged in live if damaged.start < damaged.stop]

    def _with_nulls(
        self,
        index: int,
        lost: Sequence[DamagedSpan],
        rows: Sequence[RowSpan],
        numbers: range | np.ndarray,
    ) -> pa.ChunkedArray:
        """Return a column of rows by number that is null in the lost rows."""
        type_ = self.projection.schema.field(index).type
        all_numbers = np.asarray(numbers, np.int64)
        cuts = [np.searchsorted(all_numbers, (span.start, span.stop)).tolist() for span in lost]
        is_lost = np.zeros(len(all_numbers), np.bool_)
        for start, stop in cuts:
            is_lost[start:stop] = True
        intact = self._intact(index, lost, rows, all_numbers[~is_lost])
        chunks: list[pa.Array] = []
        done = taken = 0
        for start, stop in [*cuts, (len(all_numbers), len(all_numbers))]:
            chunks += intact.slice(taken, start - done).chunks
            taken += start - done
            if stop > start:
                chunks.append(nulls(stop - start, type_))
            done = stop
        return pa.chunked_array(chunks, type_)

    def _intact(
        self, index: int, lost: Sequence[DamagedSpan], rows: Sequence[RowSpan], numbers: np.ndarray
    ) -> pa.ChunkedArray:
        """Return the intact rows of a column; with a filter, those with these numbers."""
        if self.scan is not None:
            with self.opened(self.projection) as reader:
                return take(reader, [index], numbers)[0]
        first = np.cumsum([0, *self.projection.version.row_groups])
        pieces = []
        for span in rows:
            pieces += _without(span, _shifted(lost, -int(first[span.group])))
        return self._read([index], pieces).arrays[0]


def _fault(read: Callable[[], object]) -> str | None:
    """Read, and return the reason if bytes are damaged."""
    try:
        read()
    except BlzError as error:
        if not is_damage(error):
            raise
        return str(error)
    return None


def _shifted(lost: Iterable[DamagedSpan], rows: int) -> list[DamagedSpan]:
    """Return lost rows with other row numbers."""
    return [DamagedSpan(start + rows, stop + rows, reason) for start, stop, reason in lost]


def _united(lost: Iterable[DamagedSpan]) -> list[DamagedSpan]:
    """Return the lost rows of several columns in order; runs that overlap are one."""
    united: list[DamagedSpan] = []
    for span in sorted(lost):
        if united and span.start < united[-1].stop:
            last = united.pop()
            reasons = dict.fromkeys([last.reason, span.reason])
            span = DamagedSpan(last.start, max(last.stop, span.stop), "; ".join(reasons))
        united.append(span)
    return united


def _without(span: RowSpan, lost: Iterable[DamagedSpan]) -> list[RowSpan]:
    """Return the parts of a span that are not lost."""
    kept, start = [], span.start
    for damaged in lost:
        kept.append(RowSpan(span.group, start, min(damaged.start, span.stop)))
        start = max(start, damaged.stop)
    kept.append(RowSpan(span.group, start, span.stop))
    return [rows for rows in kept if rows.start < rows.stop]
