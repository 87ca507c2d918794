"""Salvage: read a damaged table without the rows, or without the values, that are damaged.

Does not know how damage is found (`engine/read/losses.py`) or how rows are read (`select.py`).

Theory of operation. Each row group is read by itself. Where that fails, each column is read in
halves of halves, down to pieces much smaller than a chunk: these fail where they need the damaged
one. Lost rows of a column are left out of the result, or the column is null there. The rows that a
condition depends on are left out in both cases: the condition is null there.
"""

import logging
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from time import monotonic

import numpy as np
import pyarrow as pa

from blztable.arrow.types import nulls
from blztable.engine.query.scan import Scan
from blztable.engine.query.select import Selected, read_selected, take, windows
from blztable.engine.read.column_reader import ColumnReader
from blztable.engine.read.losses import Loss, Lost, find_losses, is_damage
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
    rows: Sequence[RowSpan],
    on_corrupt: str,
    with_nans: Container[int] = (),
) -> tuple[Selected, list[Loss]]:
    """Return what `read` returns; if bytes are damaged, what can be read, and the losses.

    Parameters
    ----------
    read : callable
        Reads these columns of the rows that pass the filter.
    opened : callable
        Returns a new reader of a projection.
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
        _log.debug(
            "%s: read %d rows of %d columns in %.4f s",
            projection.version.store.name,
            len(whole.numbers),
            len(columns),
            monotonic() - started,
        )
        return whole, []
    salvage = _Salvage(projection, opened, columns, scan, with_nans, on_corrupt == "null")
    found, losses = salvage.of(rows)
    for loss in losses:
        _log.info("%s: %s", projection.version.store.name, loss)
    return found, losses


@dataclass(frozen=True, slots=True)
class _Salvage:
    """A read of damaged rows; the attributes are those of `salvaged`."""

    projection: Projection
    opened: Callable[[Projection], ColumnReader]
    columns: Sequence[int]
    scan: Scan | None
    with_nans: Container[int]
    with_nulls: bool

    def of(self, rows: Sequence[RowSpan]) -> tuple[Selected, list[Loss]]:
        """Return what can be read of these rows."""
        conditions = self.scan.columns if self.scan else []
        needed = list(dict.fromkeys([*conditions, *self.columns]))
        for index in needed:
            self._filtered.root(index)
        kept: list[RowSpan] = []
        gone: list[Loss] = []
        blank: dict[int, list[Lost]] = {}
        firsts = [0, *accumulate(self.projection.version.row_groups)]
        for span in rows:
            lost, first = self._lost_in_windows(needed, span), firsts[span.group]
            for index in [one for one in lost if self.with_nulls and one not in conditions]:
                blank.setdefault(index, []).extend(_shifted(lost.pop(index), first))
            left_out = _united(one for many in lost.values() for one in many)
            gone += [Loss(*one) for one in _shifted(left_out, first)]
            kept += _without(span, left_out)
        whole = [index for index in self.columns if index not in blank]
        read = self._read(whole, kept)
        arrays = dict(zip(whole, read.arrays, strict=True))
        for index, losses in blank.items():
            arrays[index] = self._with_nulls(index, losses, kept, read.numbers)
            name = self.projection.schema.field(index).name
            gone += [Loss(*one, name) for one in losses]
        return Selected([arrays[index] for index in self.columns], read.numbers), gone

    @property
    def _filtered(self) -> Projection:
        """The projection with the nested fields that the filter refers to as further columns."""
        return self.projection if self.scan is None else self.scan.projection

    def _read(self, columns: Sequence[int], rows: Sequence[RowSpan]) -> Selected:
        reader = self.opened(self.projection)
        return read_selected(reader, columns, self.scan, rows, None, self.with_nans)

    def _lost_in_windows(self, needed: Sequence[int], span: RowSpan) -> dict[int, list[Lost]]:
        """Return the lost rows of each damaged column; rows of many bytes are read in windows."""
        found: dict[int, list[Lost]] = {}
        for (window,) in windows(self._filtered, needed, [span], None, None):
            for index, more in self._lost(needed, window).items():
                lost = found.setdefault(index, [])
                for one in more:
                    if lost and lost[-1][1:] == (one.start, one.reason):
                        one = one._replace(start=lost.pop().start)
                    lost.append(one)
        return found

    def _lost(self, needed: Sequence[int], span: RowSpan) -> dict[int, list[Lost]]:
        """Return the lost rows of each damaged column."""
        if _fault(lambda: self._read(self.columns, [span])) is None:
            return {}
        found = {index: self._lost_of(index, span) for index in needed}
        found = {index: lost for index, lost in found.items() if lost}
        left = _without(span, _united(one for lost in found.values() for one in lost))
        reason = _fault(lambda: self._read(self.columns, left))
        if reason is not None:
            # The pages can be read one by one, but not together.
            whole = [Lost(span.start, span.stop, reason)]
            return dict.fromkeys(needed, whole)
        return found

    def _lost_of(self, index: int, span: RowSpan) -> list[Lost]:
        """Return the rows of one column that cannot be read."""
        projection = self._filtered
        version = projection.version
        with self.opened(projection) as reader:
            reason = _fault(lambda: reader.check(index, span.group))
            if reason is None:
                unit = reader.piece_rows(index, span.group)
        if reason is not None:
            # No row can be read without the part, so smaller pieces are not tried.
            return [Lost(span.start, span.stop, reason)]
        deleted, rows = version.all_deleted[span.group], version.stored_rows[span.group]

        def attempt(start: int, stop: int) -> str | None:
            piece = RowSpan(span.group, *live_range(deleted, start, stop))
            with self.opened(projection) as reader:
                return _fault(lambda: reader.columns([index], [piece]))

        # Pages are of stored rows.
        (stored,) = stored_spans(version.deleted, [span])
        lost = find_losses(attempt, stored.start, stored.stop, min(unit, rows), PIECES)
        found = [Lost(*live_range(deleted, one.start, one.stop), one.reason) for one in lost]
        return [one for one in found if one.start < one.stop]

    def _with_nulls(
        self,
        index: int,
        losses: Sequence[Lost],
        rows: Sequence[RowSpan],
        numbers: range | np.ndarray,
    ) -> pa.ChunkedArray:
        """Return a column of rows by number that is null in the lost rows."""
        type_ = self.projection.schema.field(index).type
        all_numbers = np.asarray(numbers, np.int64)
        cuts = [np.searchsorted(all_numbers, (loss.start, loss.stop)).tolist() for loss in losses]
        is_lost = np.zeros(len(all_numbers), np.bool_)
        for start, stop in cuts:
            is_lost[start:stop] = True
        intact = self._intact(index, losses, rows, all_numbers[~is_lost])
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
        self, index: int, losses: Sequence[Lost], rows: Sequence[RowSpan], numbers: np.ndarray
    ) -> pa.ChunkedArray:
        """Return the intact rows of a column; with a filter, those with these numbers."""
        if self.scan is not None:
            with self.opened(self.projection) as reader:
                return take(reader, [index], numbers)[0]
        first = np.cumsum([0, *self.projection.version.row_groups])
        pieces = []
        for span in rows:
            pieces += _without(span, _shifted(losses, -int(first[span.group])))
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


def _shifted(lost: Iterable[Lost], rows: int) -> list[Lost]:
    """Return lost rows with other row numbers."""
    return [Lost(one.start + rows, one.stop + rows, one.reason) for one in lost]


def _united(lost: Iterable[Lost]) -> list[Lost]:
    """Return the lost rows of several columns in order; runs that overlap are one."""
    found: list[Lost] = []
    for one in sorted(lost):
        if found and one.start < found[-1].stop:
            last = found.pop()
            reasons = dict.fromkeys([last.reason, one.reason])
            one = Lost(last.start, max(last.stop, one.stop), "; ".join(reasons))
        found.append(one)
    return found


def _without(span: RowSpan, lost: Iterable[Lost]) -> list[RowSpan]:
    """Return the parts of a span that are not lost."""
    kept, start = [], span.start
    for one in lost:
        kept.append(RowSpan(span.group, start, min(one.start, span.stop)))
        start = max(start, one.stop)
    kept.append(RowSpan(span.group, start, span.stop))
    return [one for one in kept if one.start < one.stop]
