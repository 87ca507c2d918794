"""Feeding: columns that get their rows one by one, and are appended together.

Where row groups are cut is fixed when it begins, from what a row takes by the types and by the
rows there are; so each column is written by itself, as soon as it has the rows of a row group.
"""

from dataclasses import replace

import pyarrow as pa

from blztable.columns.types import layouts, one_array
from blztable.engine.changes import Append
from blztable.engine.edition import Edition, Written
from blztable.engine.grouping import MOST_SMALL, rows_per_group
from blztable.engine.work import Work
from blztable.errors import SchemaError

# What an item of text takes, where nothing is known.
ITEM_BYTES = 64


class Feeding:
    """Rows on their way into all columns of a table."""

    def __init__(self, work: Work) -> None:
        """Decide on the row groups."""
        edition = work.edition
        widths = [_width(edition, index) for index in range(len(edition.columns))]
        # As if there were a thousand rows: widths may be less than a byte.
        nbytes = [int(1000 * width) for width in widths]
        self._work = work
        self._edition = edition
        self._size = rows_per_group(nbytes, 1000, work.options.row_group_rows)
        self._columns = [_Column(work, index, self._size) for index in range(len(widths))]

    def add(self, index: int, values: pa.ChunkedArray) -> None:
        """More rows of one column, of its type."""
        self._columns[index].add(values)

    def finish(self) -> None:
        """Append what the columns were given; SchemaError where some were given more rows."""
        lengths = [column.rows for column in self._columns]
        if len(set(lengths)) > 1:
            names = self._edition.schema.names
            found = ", ".join(f"{name!r} {rows}" for name, rows in zip(names, lengths, strict=True))
            raise SchemaError(
                f"{self._edition.store.name}: the columns were fed unequal numbers of rows: "
                f"{found:.1000}"
            )
        rows = lengths[0] if lengths else 0
        if rows:
            written = [column.finish() for column in self._columns]
            cuts = [min(self._size, rows - start) for start in range(0, rows, self._size)]
            self._work.add("append", Append(self._edition, cuts, written))


class _Column:
    """One column: what was written of it, and what waits."""

    def __init__(self, work: Work, index: int, size: int) -> None:
        self.rows = 0
        self._work = work
        self._writer = work.column_writer(index)
        self._size = size
        self._waiting: list[pa.Array] = []
        self._waiting_rows = 0
        self._written: list[Written] = []

    def add(self, values: pa.ChunkedArray) -> None:
        self._waiting += [chunk for chunk in values.chunks if len(chunk)]
        self._waiting_rows += len(values)
        self.rows += len(values)
        if self._waiting_rows >= self._size:
            whole = pa.chunked_array(self._waiting, values.type)
            full = len(whole) // self._size * self._size
            self._write(whole.slice(0, full))
            self._waiting = whole.slice(full).chunks
            self._waiting_rows -= full
        elif len(self._waiting) > MOST_SMALL:
            # Thousands of small arrays would take more memory than their rows.
            self._waiting = [one_array(pa.chunked_array(self._waiting, values.type))]

    def finish(self) -> Written:
        """All that was written, the rows that waited too."""
        if self._waiting_rows:
            self._write(pa.chunked_array(self._waiting, self._writer.type))
        parts = self._written[0].parts
        for more in self._written[1:]:
            parts = parts.arranged(more.parts, range(len(parts.k) + len(more.parts.k)))
        return Written(parts, self._written[-1].next_k)

    def _write(self, rows: pa.ChunkedArray) -> None:
        starts = range(0, len(rows), self._size)
        pieces = (rows.slice(start, self._size) for start in starts)
        groups = ((pa.table({"rows": piece}), len(piece)) for piece in pieces)
        _, written = self._work.write([self._writer], groups)
        self._written += written
        # Another one, for a writer counts its row groups from the first.
        self._writer = replace(self._writer, first_k=written[0].next_k, parts={})


def _width(edition: Edition, index: int) -> float:
    """The bytes a row takes, about."""
    rows = edition.head.rows
    if rows:
        return edition.columns[index].nbytes / rows
    bits = [stream.bits for stream in layouts(edition.schema.field(index).type).values()]
    return sum(ITEM_BYTES if width is None else width / 8 for width in bits)
