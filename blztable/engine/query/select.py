"""Select: columns of some of the rows: of those a filter leaves, or of those that are named.

What is decoded at a time is bounded by windows of the table, whatever is left of it. Which rows a
filter leaves is for `scan` to say.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from blztable.columns.types import one_array
from blztable.engine.query.scan import Scan
from blztable.engine.query.windows import row_windows
from blztable.engine.read.columns import read_columns, read_rows
from blztable.engine.read.parts import OpenParts
from blztable.engine.read.selection import RowIndices, RowSelection, RowSpan, spans
from blztable.engine.run.progress import Progress
from blztable.engine.version.versions import Version

# What a filter is evaluated from at a time, where all that it leaves is to be there at once.
READ_BYTES = 256_000_000


@dataclass(frozen=True, slots=True)
class Selected:
    """Columns of some rows, and the numbers of these rows in the table."""

    arrays: list[pa.ChunkedArray]
    numbers: range | np.ndarray


def read_selected(
    version: Version,
    positions: Sequence[int],
    wanted: Sequence[RowSpan],
    scan: Scan | None,
    progress: Progress | None = None,
) -> Selected:
    """The columns at these positions, of the rows wanted, or of those a filter leaves of them."""
    # Straight into memory for all of it, where nothing is to be looked at first.
    if scan is None or scan.is_decided:
        rows = wanted if scan is None else scan.within(wanted)
        return Selected(read_columns(version, positions, rows, progress), numbers(version, rows))
    found = []
    with OpenParts(version) as parts:
        for window in windows(version, scan.positions, wanted, READ_BYTES, scan):
            found.append(select(version, positions, window, parts, scan))
            if progress is not None:
                progress.add(sum(span.count for span in window) * len(positions))
                progress.tell()
    types = [version.schema.field(position).type for position in positions]
    arrays = [
        pa.chunked_array([chunk for one in found for chunk in one.arrays[number].chunks], type_)
        for number, type_ in enumerate(types)
    ]
    return Selected(arrays, _joined([one.numbers for one in found]))


def windows(
    version: Version,
    positions: Sequence[int],
    wanted: Sequence[RowSpan],
    nbytes: int | None,
    scan: Scan | None,
) -> Iterator[list[RowSpan]]:
    """The rows wanted of which something may be left, in parts with so many bytes in these columns.

    Row groups are whole then; where it is not said, as a stream takes them.
    """
    kept = list(wanted) if scan is None else scan.within(wanted)
    size = sum(version.head.columns.nbytes[position] for position in positions)

    def may_be_cut(number: int) -> bool:
        if nbytes is not None:
            return False
        return any(version.column(position).k[kept[number].group] for position in positions)

    rows = [span.count for span in kept]
    for start, stop in row_windows(rows, size / max(version.head.rows, 1), may_be_cut, nbytes):
        yield [
            RowSpan(span.group, span.start + part.start, span.start + part.stop)
            for part in spans(rows, start, stop)
            for span in (kept[part.group],)
        ]


def select(
    version: Version,
    positions: Sequence[int],
    window: Sequence[RowSpan],
    parts: OpenParts,
    scan: Scan | None,
) -> Selected:
    """The columns at these positions, of the rows of a window that are left."""
    parts.forget_before(window[0].group)
    if scan is None:
        arrays = read_columns(version, positions, window, parts=parts)
        return Selected(arrays, numbers(version, window))
    found = scan.find(window, parts, positions)
    return Selected([found.columns[each] for each in positions], numbers(version, found.left))


def take(version: Version, positions: Sequence[int], rows: np.ndarray) -> list[pa.ChunkedArray]:
    """The columns at these positions, of these rows of the table, in any order."""
    distinct, order = np.unique(rows, return_inverse=True)
    first = np.cumsum([0, *version.head.row_groups])
    groups = np.searchsorted(first, distinct, "right") - 1
    there, begins = np.unique(groups, return_index=True)
    wanted = [
        RowIndices(group, some - first[group])
        for group, some in zip(there.tolist(), np.split(distinct, begins[1:]), strict=False)
    ]
    in_order = len(distinct) == len(rows) and bool((np.diff(order) > 0).all())
    return read_rows(version, positions, wanted, None if in_order else order)


def take_array(version: Version, position: int, rows: np.ndarray) -> pa.Array:
    """These rows of one column, as one array; SchemaError where they have no room in one."""
    return one_array(take(version, [position], rows)[0])


def count(scan: Scan) -> int:
    """How many rows are left; no column is read that the filter does not need."""
    version = scan.version
    groups = np.array(version.head.row_groups, np.int64)
    is_open: np.ndarray = np.logical_or.reduce(scan.open)
    rows = int(groups[scan.some & ~is_open].sum())
    left = np.flatnonzero(scan.some & is_open).tolist()
    undecided = [RowSpan(group, 0, version.head.row_groups[group]) for group in left]
    with OpenParts(version) as parts:
        for window in windows(version, scan.positions, undecided, READ_BYTES, scan):
            parts.forget_before(window[0].group)
            rows += scan.find(window, parts).rows
    return rows


def numbers(version: Version, left: Sequence[RowSelection]) -> range | np.ndarray:
    """The numbers of rows in the table."""
    first = np.cumsum([0, *version.head.row_groups]).tolist()
    return _joined(
        [
            range(first[one.group] + one.start, first[one.group] + one.stop)
            if isinstance(one, RowSpan)
            else one.rows + first[one.group]
            for one in left
        ]
    )


def _joined(parts: Sequence[range | np.ndarray]) -> range | np.ndarray:
    """Numbers one after the other; as a range where they are one."""
    if not parts:
        return range(0)
    ranges = [part for part in parts if isinstance(part, range)]
    if len(ranges) == len(parts) and all(one.stop == two.start for one, two in pairwise(ranges)):
        return range(ranges[0].start, ranges[-1].stop)
    return np.concatenate([np.asarray(part, np.int64) for part in parts])
