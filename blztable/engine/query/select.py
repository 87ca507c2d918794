"""Select: read columns of the rows that pass a filter, or of rows given by index.

Does not know how a filter is evaluated (`scan`).

Theory of operation. A filtered read goes through the table window by window, in the calling
thread. A window is a range of rows whose columns of the filter take at most `filter_bytes`, without
the row groups that the records prune. The `Scan` filters one window with all threads of
the pool, then the next window begins: memory is one window of the filter's columns and the result.
A read without a filter, or with one that the records decide, decodes straight into the result.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from operator import attrgetter

import numpy as np
import pyarrow as pa

from blztable import tuning
from blztable.arrow.nested.nodes import counts_nulls, is_nested
from blztable.arrow.types import nulls
from blztable.columns.statistics.bounds import (
    Zones,
    extreme,
    extreme_of_all,
    null_count,
    zones_of_groups,
)
from blztable.columns.types import one_array
from blztable.engine.query.blocks import Blocks
from blztable.engine.query.scan import Scan, records_of
from blztable.engine.read.column_reader import ColumnReader
from blztable.engine.read.selection import RowIndices, RowSelection, RowSpan, spans, spans_of
from blztable.engine.run.pool import Progress
from blztable.engine.version.projection import Projection
from blztable.engine.version.versions import Version

# Row groups of a read of which a plan keeps the windows.
_KEPT_GROUPS = 256


def row_windows(
    row_groups: Sequence[int],
    row_bytes: float,
    may_be_cut: Callable[[int], bool],
    nbytes: int | None = None,
) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of each window: some pages of one row group, or some row groups.

    `may_be_cut` is False for a row group that takes no memory, and may claim any
    number of rows.
    """
    unit = tuning.current.window_rows
    fitting = int((nbytes or tuning.current.window_bytes) / max(row_bytes, 1))
    size = max(fitting // unit, 1) * unit
    start = stop = 0
    for group, rows in enumerate(row_groups):
        if stop > start and stop + rows - start > size:
            yield start, stop
            start = stop
        stop += rows
        if stop - start > size and may_be_cut(group):
            # Whole pages, if the pages have the usual size.
            for first in range(start, stop, size):
                yield first, min(first + size, stop)
            start = stop
    if stop > start:
        yield start, stop


@dataclass(frozen=True, slots=True)
class Selected:
    """Columns of some rows, and the indices of these rows in the table."""

    arrays: list[pa.ChunkedArray]
    numbers: range | np.ndarray


def read_selected(
    reader: ColumnReader,
    columns: Sequence[int],
    scan: Scan | None,
    rows: range | Sequence[RowSpan],
    progress: Progress | None,
    with_nans: Container[int] = (),
) -> Selected:
    """Return columns of these rows of the table, or of those among them that pass the filter.

    Without a filter, the columns `with_nans` may have NaN in place of null. Closes the reader.
    """
    results = []
    with reader:
        if scan is None or scan.plan.is_decided:
            spans = row_spans(reader.projection.version, scan, rows)
            if scan is not None:
                spans = scan.blocks(spans).spans
            arrays = reader.columns(columns, spans, progress, with_nans)
            return Selected(arrays, numbers(reader.projection.version, spans))
        for window, morsels in _windows_of(reader.projection, scan, rows):
            results.append(_filtered(reader, columns, window, scan, morsels))
            if progress is not None:
                progress.add(sum(span.count for span in window) * len(columns))
                progress.report()
    if len(results) == 1:
        return results[0]
    types = [reader.projection.schema.field(index).type for index in columns]
    arrays = [
        pa.chunked_array([c for result in results for c in result.arrays[number].chunks], type_)
        for number, type_ in enumerate(types)
    ]
    return Selected(arrays, _joined([result.numbers for result in results]))


def row_spans(
    version: Version, scan: Scan | None, rows: range | Sequence[RowSpan]
) -> Sequence[RowSpan]:
    """Return rows of the table by row group, without those of which a filter leaves none."""
    if not isinstance(rows, range):
        return rows
    if scan is None:
        return spans_of(version, rows.start, rows.stop)
    return scan.spans(rows.start, rows.stop)


def _windows_of(
    projection: Projection, scan: Scan, rows: range | Sequence[RowSpan]
) -> list[tuple[list[RowSpan], list[Blocks]]]:
    """Return the windows of a filtered read, and the morsels of each; a plan keeps few of them."""
    known, key = scan.plan.windows, None
    if isinstance(rows, range):
        # Another number of the tuning may cut others.
        key = rows, id(tuning.current)
        if key in known:
            return known[key]
        rows = row_spans(projection.version, scan, rows)
    cut = windows(projection, scan.columns, rows, tuning.current.filter_bytes, scan)
    with_morsels = [(window, scan.morsels(window)) for window in cut]
    if key and len(rows) <= _KEPT_GROUPS:
        known.clear()
        known[key] = with_morsels
    return with_morsels


def windows(
    projection: Projection,
    columns: Sequence[int],
    rows: Sequence[RowSpan],
    nbytes: int | None,
    scan: Scan | None,
) -> Iterator[list[RowSpan]]:
    """Yield the rows to read together, without row groups in which no row may match.

    A window has about `nbytes` bytes in these columns, by default the size for a stream. It has
    whole row groups, or some pages of a larger one.
    """
    kept = list(rows)
    if scan is not None:
        projection, kept = scan.projection, scan.within(rows)
    size = sum([projection.nbytes(index) for index in columns])

    def may_be_cut(number: int) -> bool:
        return any(projection.root(index).takes_memory(kept[number].group) for index in columns)

    counts = [span.count for span in kept]
    row_bytes = size / max(projection.version.head.rows, 1)
    for start, stop in row_windows(counts, row_bytes, may_be_cut, nbytes):
        yield [
            RowSpan(span.group, span.start + part.start, span.start + part.stop)
            for part in spans(counts, start, stop)
            for span in (kept[part.group],)
        ]


def select(
    reader: ColumnReader, columns: Sequence[int], window: Sequence[RowSpan], scan: Scan | None
) -> Selected:
    """Return columns of the rows of a window that pass the filter."""
    if scan is not None:
        return _filtered(reader, columns, window, scan, scan.morsels(window))
    reader.forget_before(window[0].group)
    numbers_ = numbers(reader.projection.version, window)
    return Selected(reader.columns(columns, window), numbers_)


def _filtered(
    reader: ColumnReader,
    columns: Sequence[int],
    window: Sequence[RowSpan],
    scan: Scan,
    morsels: Sequence[Blocks],
) -> Selected:
    """Return columns of the rows of the morsels of a window that pass the filter."""
    reader.forget_before(window[0].group)
    rows = scan.filter(morsels, reader, columns)
    version = reader.projection.version
    arrays = list(map(rows.columns.__getitem__, columns))
    return Selected(arrays, numbers(version, rows.selection, scan))


def take(reader: ColumnReader, columns: Sequence[int], rows: np.ndarray) -> list[pa.ChunkedArray]:
    """Return columns of the rows with these indices, in any order, also repeated."""
    distinct, order = rows, None
    if not (rows[1:] > rows[:-1]).all():
        distinct, order = np.unique(rows, return_inverse=True)
    groups, firsts = reader.projection.version.located(distinct)
    cuts = ((groups[1:] != groups[:-1]).nonzero()[0] + 1).tolist()
    selection = []
    for begin, end in pairwise([0, *cuts, len(distinct)] if len(distinct) else []):
        selection.append(RowIndices(int(groups[begin]), distinct[begin:end] - firsts[begin]))
    return reader.rows(columns, selection, order)


def count(reader: ColumnReader, scan: Scan, start: int, stop: int) -> int:
    """Return how many of some rows pass a filter; reads only the columns of the filter."""
    blocks = scan.blocks(scan.spans(start, stop))
    is_open: np.ndarray = np.logical_or.reduce(blocks.open)
    rows = int(blocks[~is_open].rows.sum())
    undecided = blocks[is_open].spans
    nbytes = tuning.current.filter_bytes
    for window in windows(scan.projection, scan.columns, undecided, nbytes, scan):
        reader.forget_before(window[0].group)
        rows += scan.filter(scan.morsels(window), reader).count
    return rows


def null_counts(reader: ColumnReader, index: int) -> np.ndarray:
    """Return the number of nulls of a column in each row group.

    Records say it, but they count deleted rows, too. So row groups with deleted rows are read, and
    those of which nothing is known.
    """
    projection = reader.projection
    if not counts_nulls(projection.schema.field(index).type):
        counts = np.array(projection.version.row_groups, np.int64)
        unknown = np.ones(len(counts), np.bool_)
    else:
        zones, is_whole = zones_by_group(projection, index)
        counts, unknown = zones.nulls.copy(), ~(zones.is_counted & is_whole)
    for group in np.flatnonzero(unknown & (counts > 0)).tolist():
        counts[group] = sum(map(_nulls, _arrays(reader, index, [group])))
    return counts


def zones_by_group(projection: Projection, index: int) -> tuple[Zones, np.ndarray]:
    """Return the statistics of a column's row groups, and which of these have no deleted row."""
    zones = zones_of_groups(projection.schema.field(index).type, records_of(projection, index))
    return zones, zones.rows == np.array(projection.version.row_groups, np.int64)


def _nulls(array: pa.Array) -> int:
    return int(array.null_count) if is_nested(array.type) else null_count(array)


def _arrays(reader: ColumnReader, index: int, groups: Iterable[int]) -> Iterator[pa.Array]:
    """Yield the rows of a column in these row groups, in windows."""
    rows = [RowSpan(group, 0, reader.projection.version.row_groups[group]) for group in groups]
    for window in windows(reader.projection, [index], rows, None, None):
        yield from reader.columns([index], window)[0].chunks


def extreme_of(reader: ColumnReader, index: int, *, is_least: bool) -> pa.Scalar:
    """Return the least or the greatest value of a flat column; few of its row groups are read."""
    type_ = reader.projection.schema.field(index).type
    zones, is_whole = zones_by_group(reader.projection, index)
    if not zones.is_counted.all():
        groups = range(len(reader.projection.version.row_groups))
        arrays = chain([nulls(0, type_)], _arrays(reader, index, groups))
        return extreme_of_all(arrays, is_least=is_least)
    # The extreme value of a row group may be that of a deleted row.
    zones = replace(zones, exact=zones.exact & is_whole)

    def read(group: int) -> pa.Array:
        span = RowSpan(group, 0, reader.projection.version.row_groups[group])
        return one_array(reader.columns([index], [span])[0])

    return extreme(zones, read, is_least=is_least)


def numbers(
    version: Version, selection: Sequence[RowSelection], scan: Scan | None = None
) -> range | np.ndarray:
    """Return the indices in the table of the rows of a selection, which a filter may have left."""
    count = 0
    for span in selection:
        count += span.stop - span.start if isinstance(span, RowSpan) else 0
    if count == version.head.rows:
        return range(count)
    groups = sorted(set(map(attrgetter("group"), selection)))
    if scan is not None:
        rows = scan.first_rows(groups)
    else:
        rows = version.first_rows(np.array(groups, np.int64)).tolist()
    first = dict(zip(groups, rows, strict=True))
    indices: list[range | np.ndarray] = []
    for span in selection:
        before = first[span.group]
        if isinstance(span, RowSpan):
            indices.append(range(before + span.start, before + span.stop))
        else:
            indices.append(span.rows + before)
    return _joined(indices)


def _joined(parts: Sequence[range | np.ndarray]) -> range | np.ndarray:
    """Concatenate indices, as one range if they are consecutive."""
    if len(parts) < 2:
        return parts[0] if parts else range(0)
    ranges = [part for part in parts if isinstance(part, range)]
    if len(ranges) == len(parts) and all(a.stop == b.start for a, b in pairwise(ranges)):
        return range(ranges[0].start, ranges[-1].stop)
    return np.concatenate([np.asarray(part, np.int64) for part in parts])
