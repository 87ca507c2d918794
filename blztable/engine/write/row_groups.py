"""Row groups: how a stream of tables is divided into row groups, the same rows in all columns.

Knows nothing of files. A row group is the unit that is appended, sharded and rewritten. It should
be large, so that its files are read in long runs, and small, so that several fit in memory.

Theory of operation. `row_groups` is a generator between the user's stream and the writer, run by
the thread that draws from it. It collects tables until they exceed the size of a row group, then
yields whole row groups and keeps the last, unfinished one. It holds at most the rows of one row
group and the table that filled it. Small tables are joined early, because an Arrow array has a
fixed cost. A row group also ends if a dictionary has no more codes, or text exceeds its limit.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise, zip_longest

import numpy as np
import pyarrow as pa

from blztable import tuning
from blztable.arrow.types import Portion, is_view, numbers_in
from blztable.columns.parts.physical import NUMPY_TYPES
from blztable.columns.types import changes, one_array
from blztable.errors import SchemaError

# The ids of numbers, times and booleans: to ask Arrow takes longer.
FIXED = {*NUMPY_TYPES, pa.lib.Type_BOOL}


@dataclass(frozen=True, slots=True)
class Expected:
    """The rows that a table will have, as its writer expects; a false number does little harm."""

    rows: int

    def divided(self, most: int) -> int:
        """Return the rows of row groups of the same size, each at most `most` and at least half."""
        even = -(-self.rows // -(-self.rows // most))
        # Whole bytes of bitmaps. Fewer rows than one row group are no reason to make it smaller.
        return most if self.rows <= most else min(-(-even // 8) * 8, most)


# A number of rows, or what the usual number, None, is adapted to.
GroupRows = int | Expected | None


def row_groups(parts: Iterable[Portion], group_rows: GroupRows) -> Iterator[Portion]:
    """Divide tables of any size into row groups, of `group_rows` rows each if given."""
    pending = _Pending()
    for table, rows in parts:
        if rows == 0:
            continue
        pending.add(table, rows)
        del table
        if pending.rows > rows_per_group(pending.nbytes, pending.rows, group_rows):
            ready = pending.cut(group_rows)
            pending.add(*ready.pop())
            while ready:
                yield ready.popleft()
    ready = pending.cut(group_rows)
    while ready:
        yield ready.popleft()


class _Pending:
    """Tables that wait until their row group is full."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._tables: list[pa.Table] = []
        # The last tables, if they are small: thousands of arrays would take more memory than rows.
        self._small: list[pa.Table] = []
        self.rows = 0
        # Bytes of each column.
        self.nbytes: list[int] = []

    def add(self, table: pa.Table, rows: int) -> None:
        """Append a table."""
        more = list(map(bytes_taken, table.columns))
        self.nbytes = [sum(pair) for pair in zip_longest(self.nbytes, more, fillvalue=0)]
        self.rows += rows
        is_large = sum(more) >= tuning.current.joined_bytes
        if not is_large:
            self._small.append(table)
        if is_large or len(self._small) == tuning.current.joined_tables:
            self._tables += _joined(self._small)
            self._small = []
        if is_large:
            self._tables.append(table)

    def cut(self, group_rows: GroupRows) -> "deque[Portion]":
        """Remove all rows and return them as row groups; the last may be incomplete."""
        tables, rows = [*self._tables, *_joined(self._small)], self.rows
        nbytes = self.nbytes
        self._clear()
        if not rows:
            return deque()
        table = pa.concat_tables(tables) if len(tables) > 1 else tables[0]
        ranges = row_ranges(table, rows, group_rows, nbytes)
        return deque((table.slice(start, stop - start), stop - start) for start, stop in ranges)


def _joined(tables: list[pa.Table]) -> list[pa.Table]:
    """Join small tables, each column into one array unless it exceeds an Arrow array."""
    if len(tables) < 2:
        return tables
    whole = pa.concat_tables(tables)
    columns = []
    for column in whole.columns:
        with suppress(SchemaError):
            column = one_array(column)
        columns.append(column)
    return [pa.Table.from_arrays(columns, schema=whole.schema)]


def row_ranges(
    table: pa.Table, rows: int, group_rows: GroupRows, nbytes: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of each row group of a table, given the bytes of each column."""
    size = rows_per_group(nbytes, rows, group_rows)
    cuts = set(range(0, rows, size)) | {rows}
    for column in table.columns:
        if column.num_chunks > 1:
            cuts |= set(changes(column))
    is_within = max(nbytes, default=0) <= tuning.current.group_text_bytes
    for start, stop in pairwise(sorted(cuts)):
        if is_within:
            yield start, stop
        else:
            yield from _within_limits(table, start, stop)


def rows_per_group(nbytes: Sequence[int], rows: int, group_rows: GroupRows) -> int:
    """Return the number of rows of a row group, given the bytes of each column for `rows` rows."""
    if isinstance(group_rows, int):
        return group_rows
    widths = [column / max(rows, 1) for column in nbytes]
    total, widest = sum(widths), max(widths, default=0)
    if total == 0:
        return max(rows, 1)
    limit = int(min(tuning.current.group_bytes / total, tuning.current.group_column_bytes / widest))
    if limit < tuning.current.least_group_rows:
        limit = min(tuning.current.least_group_rows, int(tuning.current.group_text_bytes / total))
    # Whole pages, so that only the last row group ends with a short page.
    unit = tuning.current.window_rows
    usual = limit // unit * unit or max(limit // 8 * 8, 8)
    return group_rows.divided(usual) if group_rows else usual


def _within_limits(table: pa.Table, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the range, halved until each column of variable width is within its limit."""
    rows = stop - start
    if rows <= 0:
        return
    if rows > 1 and any(
        bytes_taken(column.slice(start, rows)) > tuning.current.group_text_bytes
        for column in table.columns
        if not is_fixed(column.type)
    ):
        middle = start + rows // 2
        yield from _within_limits(table, start, middle)
        yield from _within_limits(table, middle, stop)
    else:
        yield start, stop


def is_fixed(type_: pa.DataType) -> bool:
    """True if all values of the type have the same size."""
    return type_.id in FIXED or pa.types.is_fixed_size_binary(type_)


def bytes_taken(column: pa.ChunkedArray) -> int:
    """Return the approximate size of a column, without buffers it shares: dictionaries, views."""
    type_ = column.type
    if type_.id in FIXED:
        # Arrow takes far longer to add up its buffers.
        return len(column) * (type_.bit_width + bool(column.null_count)) // 8
    if pa.types.is_dictionary(type_):
        return sum(chunk.indices.nbytes for chunk in column.chunks)
    if is_view(type_):
        return sum(map(_view_bytes, column.chunks)) + 8 * len(column)
    return sum(chunk.nbytes for chunk in column.chunks)


def _view_bytes(chunk: pa.Array) -> int:
    """Return the summed lengths of all views; the length is the first of a view's four words."""
    lengths = numbers_in(chunk.buffers()[1], "<i4", 4 * chunk.offset, 4 * len(chunk))[::4]
    return int(np.maximum(lengths, 0).sum(dtype=np.int64))
