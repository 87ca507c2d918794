"""Selections of rows: the pages that contain them, and their indices among the rows of the pages.

Callers select live rows. `stored_spans` and `stored_rows` say where these lie in the parts; pages
are of stored rows. Knows the rows and pages of parts, and opens nothing.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain, pairwise

import numpy as np
import pyarrow as pa

from blztable.arrow.nested.nodes import is_nested
from blztable.arrow.types import Portion, as_stored, bitmap, stored_type
from blztable.columns.types import one_array, take
from blztable.engine.run.limits import check_rows
from blztable.engine.run.pool import Task, run
from blztable.engine.version.node_parts import NodeParts
from blztable.engine.version.versions import Version
from blztable.errors import SchemaError
from blztable.format import deletions
from blztable.format.deletions import DeletedIn

# Rows are copied around deleted ones, unless so few are deleted: slices of so many rows on average.
SLICED_ROWS = 1 << 16
# Rows are filtered, not taken, if at most one in so many is left out.
NEARLY_ALL = 8


@dataclass(frozen=True, slots=True)
class RowIndices:
    """Rows of one row group, as ascending indices within it."""

    group: int
    rows: np.ndarray

    @property
    def count(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def picked(self) -> "RowIndices":
        """Return this selection."""
        return self


@dataclass(frozen=True, slots=True)
class RowSpan:
    """Adjacent rows of one row group, from `start` to `stop`."""

    group: int
    start: int
    stop: int

    @property
    def count(self) -> int:
        """Return the number of rows."""
        return self.stop - self.start

    def picked(self) -> RowIndices:
        """Return the rows as indices."""
        return RowIndices(self.group, np.arange(self.start, self.stop))


# Rows selected from one row group.
RowSelection = RowSpan | RowIndices


def spans(row_groups: Sequence[int], start: int, stop: int) -> list[RowSpan]:
    """Return the rows from `start` to `stop` of the table, by row group."""
    ends = list(accumulate(row_groups))
    result = []
    for group in range(bisect_right(ends, start), len(ends)):
        first = ends[group] - row_groups[group]
        if max(first, start) >= stop:
            break
        result.append(RowSpan(group, max(start - first, 0), min(stop - first, row_groups[group])))
    return result


def spans_of(version: Version, start: int, stop: int) -> list[RowSpan]:
    """Return the rows from `start` to `stop` of a version; leaves of other rows are not read."""
    stop = min(stop, version.head.rows)
    if start >= stop or (start, stop) == (0, version.head.rows):
        return spans(version.row_groups, 0, stop) if start < stop else []
    groups, firsts = version.located(np.array([start, stop - 1]))
    first, before = int(groups[0]), int(firsts[0])
    rows = version.group_records(np.arange(first, groups[1] + 1))["rows"].tolist()
    return [
        RowSpan(first + span.group, span.start, span.stop)
        for span in spans(rows, start - before, stop - before)
    ]


def stored_spans(deleted: DeletedIn, selected: Sequence[RowSpan]) -> Sequence[RowSpan]:
    """Return spans of live rows as spans of stored rows, from the first to the last of each."""
    if not deleted:
        return selected
    return [_stored_span(deleted[span.group], span) for span in selected]


def _stored_span(deleted: bytes, span: RowSpan) -> RowSpan:
    if not deleted:
        return span
    ends = np.array([span.start, span.stop - bool(span.count)])
    start, stop = deletions.stored(deleted, ends).tolist()
    return RowSpan(span.group, start, stop + bool(span.count))


def stored_rows(deleted: DeletedIn, selected: Sequence[RowIndices]) -> Sequence[RowIndices]:
    """Return live rows as stored rows."""
    if not deleted:
        return selected
    return [
        RowIndices(live.group, deletions.stored(deleted[live.group], live.rows))
        for live in selected
    ]


def without_deleted(
    columns: Mapping[int, pa.ChunkedArray],
    deleted: DeletedIn,
    spans: Sequence[RowSpan],
) -> dict[int, pa.ChunkedArray]:
    """Return columns of spans of stored rows without the deleted ones among them."""
    if not deleted:
        return dict(columns)
    among, before = [np.empty(0, np.int64)], 0
    for span in spans:
        gone = deletions.unpack(deleted[span.group])
        first, last = np.searchsorted(gone, [span.start, span.stop])
        among.append(gone[first:last] - span.start + before)
        before += span.count
    gone = np.concatenate(among)
    if not len(gone):
        return dict(columns)
    pieces_of = {index: [[chunk] for chunk in column.chunks] for index, column in columns.items()}
    masks: dict[tuple[int, int], pa.Array] = {}
    cuts: list[Task] = []
    for chunks in pieces_of.values():
        begin = 0
        for pieces in chunks:
            rows = len(pieces[0])
            first, last = np.searchsorted(gone, [begin, begin + rows])
            positions = gone[first:last] - begin
            if first < last <= first + rows // SLICED_ROWS:
                ends = [-1, *positions.tolist(), rows]
                pieces[:] = [pieces[0][end + 1 : start] for end, start in pairwise(ends)]
            elif first < last:
                mask = masks.get((begin, rows))
                if mask is None:
                    is_kept = np.ones(rows, np.bool_)
                    is_kept[positions] = False
                    mask = masks[begin, rows] = pa.array(is_kept)
                cuts.append(partial(_keep, pieces, mask))
            begin += rows
    run(cuts)
    return {
        index: pa.chunked_array(list(chain.from_iterable(chunks)), columns[index].type)
        for index, chunks in pieces_of.items()
    }


def _keep(pieces: list[pa.Array], mask: pa.Array) -> None:
    """Replace an array by its rows for which the mask is true."""
    pieces[0] = _filtered(pieces[0], mask)


def _filtered(array: pa.Array, mask: pa.Array) -> pa.Array:
    """Return the rows of an array for which the mask is true."""
    if is_nested(array.type):
        # Arrow's `filter` does not know all types.
        kept = take(array, np.flatnonzero(mask))
    else:
        kept = as_stored(array).filter(mask)
    return _cast(kept, array.type)


def stored_portion(
    version: Version, group: int, arrays: Sequence[pa.Array | pa.ChunkedArray]
) -> Portion:
    """Return columns of all live rows of a row group as columns of its stored rows.

    A deleted row has the value of the next live one, or of the last.
    """
    rows, deleted = version.row_groups[group], version.all_deleted[group]
    if deleted:
        stored = rows + deletions.count(deleted)
        check_rows(stored, "the rows of a row group")
        positions = np.minimum(deletions.live(deleted, np.arange(stored)), rows - 1)
        whole = [one_array(a) if isinstance(a, pa.ChunkedArray) else a for a in arrays]
        arrays, rows = [take(array, positions) for array in whole], stored
    return pa.Table.from_arrays(list(arrays), names=list(map(str, range(len(arrays))))), rows


def of_spans(parts: NodeParts, selected: Sequence[RowSpan]) -> list[RowSpan]:
    """Return the pages of ascending spans, as spans; adjacent pages are joined.

    Items that are a chunk each are read without the rest of their page.
    """
    pages: list[RowSpan] = []
    for span in selected:
        unit = parts.unit_rows(span.group)
        start = span.start // unit * unit
        stop = min(-(-span.stop // unit) * unit, parts.rows[span.group])
        if pages and pages[-1].group == span.group and pages[-1].stop >= start:
            start = pages.pop().start
        pages.append(RowSpan(span.group, start, stop))
    return pages


def of_rows(parts: NodeParts, selected: Sequence[RowIndices]) -> list[RowSpan]:
    """Return the pages of rows, as spans; adjacent pages are joined."""
    pages: list[RowSpan] = []
    for picked in selected:
        page_rows = parts.page_rows[picked.group]
        touched = picked.rows // page_rows
        touched = touched[np.flatnonzero(np.diff(touched, prepend=-1))]
        cuts = np.flatnonzero(np.diff(touched) != 1) + 1
        rows = parts.rows[picked.group]
        firsts = touched[np.append(0, cuts)] * page_rows
        stops = (touched[np.append(cuts - 1, -1)] + 1) * page_rows
        pages += (
            RowSpan(picked.group, start, min(stop, rows))
            for start, stop in zip(firsts.tolist(), stops.tolist(), strict=True)
        )
    return pages


def chosen(
    column: pa.ChunkedArray, flags: np.ndarray, positions: np.ndarray, begin: int = 0
) -> pa.ChunkedArray:
    """Return rows of a column, chunk by chunk, because not all chunks can be joined.

    `flags` has a flag for each row, `places` the indices of those that are set, ascending. Both
    count from `begin` rows before the column.
    """
    chunks = []
    for chunk in column.chunks:
        end = begin + len(chunk)
        first, last = np.searchsorted(positions, (begin, end)).tolist()
        if (len(chunk) - (last - first)) * NEARLY_ALL <= len(chunk):
            # Arrow copies runs of rows, not one after another.
            bits = bitmap(flags[begin:end])
            mask = pa.Array.from_buffers(pa.bool_(), len(chunk), [None, bits])
            chunks.append(_filtered(chunk, mask))
        elif first < last:
            rows = positions[first:last]
            chunks.append(_cast(take(chunk, rows - begin if begin else rows), column.type))
        begin = end
    return pa.chunked_array(chunks, column.type)


def reordered(column: pa.ChunkedArray, order: np.ndarray) -> pa.ChunkedArray:
    """Return rows in another order, repeated as often as `order` has their index, in few arrays."""
    stored = pa.chunked_array(list(map(as_stored, column.chunks)), stored_type(column.type))
    ordered = _reordered(stored, order)
    return pa.chunked_array([_cast(chunk, column.type) for chunk in ordered.chunks], column.type)


def _cast(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return an array in the type of its column, which is not the stored one for views."""
    return array if array.type.id == type_.id else array.cast(type_)


def _reordered(column: pa.ChunkedArray, order: np.ndarray) -> pa.ChunkedArray:
    try:
        whole = one_array(column)
    except SchemaError:
        begins = np.cumsum([0, *map(len, column.chunks)])
        chunks = np.searchsorted(begins, order, "right") - 1
        cuts = np.flatnonzero(np.diff(chunks)) + 1
        taken = [
            take(column.chunk(int(chunks[start])), rows - begins[chunks[start]])
            for start, rows in zip([0, *cuts.tolist()], np.split(order, cuts), strict=True)
        ]
        return pa.chunked_array(taken, column.type)
    return pa.chunked_array(list(_taken_as_fits(whole, order)), column.type)


def _taken_as_fits(array: pa.Array, order: np.ndarray) -> Iterator[pa.Array]:
    """Take rows; if the result exceeds 2 GiB of text, split the request in half and retry."""
    try:
        yield take(array, order)
    except pa.ArrowInvalid:
        if len(order) < 2:
            raise
        for half in np.array_split(order, 2):
            yield from _taken_as_fits(array, half)
