"""Where a table is cut into row groups: the same rows in all columns.

A row group is what is appended, sharded and rewritten at once. It should be large enough that its
files are read in long runs, and small enough that one fits memory several times over.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from blztable.columns import dictionary
from blztable.columns.paging import USUAL_PAGE_ROWS

GROUP_BYTES = 256_000_000
COLUMN_BYTES = 64_000_000
LEAST_ROWS = 65_536
MOST_BYTES = 1_000_000_000


def row_ranges(table: pa.Table, rows: int, wanted: int | None) -> Iterator[tuple[int, int]]:
    """The rows of each group; `wanted` rows where they were asked for."""
    size = wanted or _rows_per_group(table, rows)
    cuts = set(range(0, rows, size)) | {rows}
    for column in table.columns:
        if pa.types.is_dictionary(column.type):
            cuts |= set(dictionary.changes(column))
    ordered = sorted(cuts)
    for start, stop in pairwise(ordered):
        yield from _within_limits(table, start, stop)


def _rows_per_group(table: pa.Table, rows: int) -> int:
    widths = [_bytes_of(column) / max(rows, 1) for column in table.columns]
    total, widest = sum(widths), max(widths, default=0)
    if total == 0:
        return max(rows, 1)
    fitting = int(min(GROUP_BYTES / total, COLUMN_BYTES / widest))
    if fitting < LEAST_ROWS:
        fitting = min(LEAST_ROWS, int(MOST_BYTES / total))
    # Whole pages, so that no group but the last ends with a short one.
    return fitting // USUAL_PAGE_ROWS * USUAL_PAGE_ROWS or max(fitting // 8 * 8, 8)


def _within_limits(table: pa.Table, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """The range, halved while a column of varying width holds too many bytes in it."""
    rows = stop - start
    if rows <= 0:
        return
    if rows > 1 and any(
        _bytes_of(column.slice(start, rows)) > MOST_BYTES
        for column in table.columns
        if not _is_fixed(column.type)
    ):
        middle = start + rows // 2
        yield from _within_limits(table, start, middle)
        yield from _within_limits(table, middle, stop)
    else:
        yield start, stop


def _is_fixed(type_: pa.DataType) -> bool:
    return pa.types.is_primitive(type_) or pa.types.is_fixed_size_binary(type_)


def _bytes_of(column: pa.ChunkedArray) -> int:
    """About what the rows take, without what they share with others: dictionaries, view buffers."""
    if pa.types.is_dictionary(column.type):
        return sum(chunk.indices.nbytes for chunk in column.chunks)
    if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
        return sum(map(_view_bytes, column.chunks)) + 8 * len(column)
    return sum(chunk.nbytes for chunk in column.chunks)


def _view_bytes(chunk: pa.Array) -> int:
    """The lengths of all views; each is the first of a view's four words."""
    views = chunk.buffers()[1]
    if views is None or len(chunk) == 0:
        return 0
    words = np.frombuffer(views, "<i4").reshape(-1, 4)
    lengths = words[chunk.offset : chunk.offset + len(chunk), 0]
    return int(np.maximum(lengths, 0).sum(dtype=np.int64))
