"""Select: read columns of the rows that pass a filter, or of rows given by index.

Does not know how a filter is evaluated (`scan`).

Theory of operation. A filtered read goes through the table window by window, in the calling
thread; `windows` cuts them so that the columns of the filter take at most `READ_BYTES` each, and
leaves out row groups that the manifest prunes. The `Scan` filters one window with all threads of
the pool, then the next window begins: memory is one window of the filter's columns and the result.
A read without a filter, or with one that the manifest decides, decodes straight into the result.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from blztable.arrow.nested.nodes import is_nested
from blztable.columns.statistics.compute import statistics
from blztable.columns.statistics.extremes import extreme
from blztable.columns.types import one_array
from blztable.engine.query.scan import Scan, statistics_of_groups
from blztable.engine.query.windows import row_windows
from blztable.engine.read.columns import read_columns, read_rows
from blztable.engine.read.parts import OpenParts
from blztable.engine.read.selection import RowIndices, RowSelection, RowSpan, spans
from blztable.engine.run.progress import Progress
from blztable.engine.version.versions import Version

# Bytes of a window of a filter's columns, for a read whose result is one table.
READ_BYTES = 256_000_000


@dataclass(frozen=True, slots=True)
class Selected:
    """Columns of some rows, and the indices of these rows in the table."""

    arrays: list[pa.ChunkedArray]
    numbers: range | np.ndarray


def read_selected(
    version: Version,
    columns: Sequence[int],
    scan: Scan | None,
    rows: Sequence[RowSpan],
    progress: Progress | None,
    with_nans: Container[int] = (),
) -> Selected:
    """Return columns of these rows, or of the rows among them that pass the filter.

    Without a filter, the columns `with_nans` may have NaN in place of null.
    """
    results = []
    with OpenParts(version) as parts:
        if scan is None or scan.is_decided:
            rows = rows if scan is None else scan.within(rows)
            arrays = read_columns(parts, columns, rows, progress, with_nans)
            return Selected(arrays, numbers(version, rows))
        for window in windows(version, scan.columns, rows, READ_BYTES, scan):
            results.append(select(version, columns, window, parts, scan))
            if progress is not None:
                progress.add(sum(span.count for span in window) * len(columns))
                progress.report()
    types = [version.schema.field(index).type for index in columns]
    arrays = [
        pa.chunked_array([chunk for one in results for chunk in one.arrays[place].chunks], type_)
        for place, type_ in enumerate(types)
    ]
    return Selected(arrays, _joined([one.numbers for one in results]))


def windows(
    version: Version,
    columns: Sequence[int],
    rows: Sequence[RowSpan],
    nbytes: int | None,
    scan: Scan | None,
) -> Iterator[list[RowSpan]]:
    """Yield the rows to read together, without row groups in which no row may match.

    A window has about `nbytes` bytes in these columns, and whole row groups. Without `nbytes`, a
    window has the size for a stream, and may consist of some pages of a row group.
    """
    kept = list(rows)
    if scan is not None:
        version, kept = scan.version, scan.within(rows)
    size = sum(version.nbytes(index) for index in columns)

    def may_be_cut(number: int) -> bool:
        if nbytes is not None:
            return False
        return any(version.column(index).has_bytes(kept[number].group) for index in columns)

    counts = [span.count for span in kept]
    for start, stop in row_windows(counts, size / max(version.head.rows, 1), may_be_cut, nbytes):
        yield [
            RowSpan(span.group, span.start + part.start, span.start + part.stop)
            for part in spans(counts, start, stop)
            for span in (kept[part.group],)
        ]


def select(
    version: Version,
    columns: Sequence[int],
    window: Sequence[RowSpan],
    parts: OpenParts,
    scan: Scan | None,
) -> Selected:
    """Return columns of the rows of a window that pass the filter."""
    parts.forget_before(window[0].group)
    if scan is None:
        arrays = read_columns(parts, columns, window)
        return Selected(arrays, numbers(version, window))
    rows = scan.filter(window, parts, columns)
    return Selected([rows.columns[index] for index in columns], numbers(version, rows.selection))


def take(version: Version, columns: Sequence[int], rows: np.ndarray) -> list[pa.ChunkedArray]:
    """Return columns of the rows with these indices, in any order, also repeated."""
    distinct, order = np.unique(rows, return_inverse=True)
    first = np.cumsum([0, *version.head.row_groups])
    groups, begins = np.unique(np.searchsorted(first, distinct, "right") - 1, return_index=True)
    selection = [
        RowIndices(group, indices - first[group])
        for group, indices in zip(groups.tolist(), np.split(distinct, begins[1:]), strict=False)
    ]
    in_order = len(distinct) == len(rows) and bool((np.diff(order) > 0).all())
    with OpenParts(version) as parts:
        return read_rows(parts, columns, selection, None if in_order else order)


def take_array(version: Version, column: int, rows: np.ndarray) -> pa.Array:
    """Return rows of one column as one array; SchemaError if they exceed one Arrow array."""
    return one_array(take(version, [column], rows)[0])


def count(scan: Scan) -> int:
    """Return the number of rows that pass a filter; reads only the columns of the filter."""
    version = scan.version
    groups = np.array(version.head.row_groups, np.int64)
    is_open: np.ndarray = np.logical_or.reduce(scan.open)
    rows = int(groups[scan.may_match & ~is_open].sum())
    undecided = [
        RowSpan(group, 0, version.head.row_groups[group])
        for group in np.flatnonzero(scan.may_match & is_open).tolist()
    ]
    with OpenParts(version) as parts:
        for window in windows(version, scan.columns, undecided, READ_BYTES, scan):
            parts.forget_before(window[0].group)
            rows += scan.filter(window, parts).count
    return rows


def null_counts(version: Version, index: int) -> np.ndarray:
    """Return the number of nulls of a column in each row group.

    Statistics say it, but they count deleted rows, too. So row groups with deleted rows are read.
    """
    nulls = np.array(version.column(index).statistics.nulls, np.int64)
    head = version.head
    for group in np.flatnonzero(nulls).tolist() if head.deleted else ():
        if head.deleted[group]:
            with OpenParts(version) as parts:
                span = RowSpan(group, 0, head.row_groups[group])
                array = one_array(read_columns(parts, [index], [span])[0])
            if is_nested(array.type):
                nulls[group] = array.null_count
            else:
                (nulls[group],) = statistics(array, len(array))[1].nulls
    return nulls


def extreme_of(version: Version, index: int, *, is_least: bool) -> pa.Scalar:
    """Return the least or the greatest value of a flat column; few of its row groups are read."""

    def read(group: int) -> pa.Array:
        with OpenParts(version) as parts:
            span = RowSpan(group, 0, version.head.row_groups[group])
            return one_array(read_columns(parts, [index], [span])[0])

    return extreme(statistics_of_groups(version, index), read, is_least=is_least)


def numbers(version: Version, selection: Sequence[RowSelection]) -> range | np.ndarray:
    """Return the indices in the table of the rows of a selection."""
    first = np.cumsum([0, *version.head.row_groups]).tolist()
    return _joined(
        [
            range(first[one.group] + one.start, first[one.group] + one.stop)
            if isinstance(one, RowSpan)
            else one.rows + first[one.group]
            for one in selection
        ]
    )


def _joined(parts: Sequence[range | np.ndarray]) -> range | np.ndarray:
    """Concatenate indices, as one range if they are consecutive."""
    if not parts:
        return range(0)
    ranges = [part for part in parts if isinstance(part, range)]
    if len(ranges) == len(parts) and all(one.stop == two.start for one, two in pairwise(ranges)):
        return range(ranges[0].start, ranges[-1].stop)
    return np.concatenate([np.asarray(part, np.int64) for part in parts])
