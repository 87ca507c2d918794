"""Feeding: columns that get their rows one by one, and are appended together.

Row groups are cut alike in all columns, and each column is written by itself, as soon as it has
the rows of one. How many these are is decided late, when the first column has enough for one: from
what a row takes in the columns that were fed by then, and from a guess for the others. From then
on it stands, so a column that turns out far wider than thought is an error, not memory without end.
"""

from dataclasses import replace

import pyarrow as pa

from blztable.columns.types import one_array, stream_layouts
from blztable.engine.change.change_set import ChangeSet
from blztable.engine.change.changes import Append, Seen
from blztable.engine.change.staged import StagedVersion, Written
from blztable.engine.write.columns import WrittenPart
from blztable.engine.write.row_groups import (
    COLUMN_BYTES,
    GROUP_BYTES,
    MOST_BYTES,
    MOST_SMALL,
    bytes_taken,
    is_fixed,
    rows_per_group,
)
from blztable.errors import LimitError, SchemaError

# What an item of text takes, where nothing is known.
ITEM_BYTES = 64


class Feeding:
    """Rows on their way into all columns of a table."""

    def __init__(self, change_set: ChangeSet) -> None:
        """Guess what a row takes."""
        staged = change_set.staged
        indices = range(len(staged.columns))
        self._change_set = change_set
        self._edition = staged
        self._columns = [_Column(change_set, index, _width(staged, index)) for index in indices]
        self._waiting_bytes = 0
        # The rows of a row group, once that is decided; and how many are enough to decide.
        self._size = change_set.options.row_group_rows
        self._enough = self._decided()

    def add(self, index: int, values: pa.ChunkedArray) -> None:
        """More rows of one column, of its type.

        Raises
        ------
        LimitError
            A row group of this column would take more memory than one may.
        """
        column = self._columns[index]
        if self._size is None:
            self._waiting_bytes += bytes_taken(values)
        column.add(values, self._size)
        if self._size is None and (
            column.rows >= self._enough
            or column.nbytes >= COLUMN_BYTES
            or self._waiting_bytes >= GROUP_BYTES
        ):
            self._size = self._decided()
            for each in self._columns:
                each.write(self._size)

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
            size = self._size or self._decided()
            written = [column.finish(size) for column in self._columns]
            cuts = [min(size, rows - start) for start in range(0, rows, size)]
            self._change_set.add("append", Append(Seen.columns_of(self._edition), cuts, written))

    def _decided(self) -> int:
        """The rows of a row group, by what is known of the columns now."""
        wanted = self._change_set.options.row_group_rows
        # As if there were a thousand rows: widths may be less than a byte.
        nbytes = [int(1000 * column.width) for column in self._columns]
        size = rows_per_group(nbytes, 1000, wanted)
        # A few rows may be too many where each is huge; an append halves row groups, too.
        while not wanted and size > 1 and size * max(nbytes, default=0) > 1000 * MOST_BYTES:
            size //= 2
        return size


class _Column:
    """One column: what was written of it, and what waits."""

    def __init__(self, change_set: ChangeSet, index: int, width: float) -> None:
        self.rows = 0
        # Of all rows it was fed.
        self.nbytes = 0
        self._guess = width
        self._change_set = change_set
        self._writer = change_set.column_writer(index)
        self._waiting: list[pa.Array] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self._parts: list[WrittenPart] = []

    @property
    def width(self) -> float:
        """The bytes a row takes: of those it was fed, else as guessed."""
        return self.nbytes / self.rows if self.rows else self._guess

    def add(self, values: pa.ChunkedArray, size: int | None) -> None:
        """Let rows wait until there are `size`; without it, until that is decided."""
        nbytes = bytes_taken(values)
        self.rows += len(values)
        self.nbytes += nbytes
        self._waiting += [chunk for chunk in values.chunks if len(chunk)]
        self._waiting_rows += len(values)
        self._waiting_bytes += nbytes
        if size is not None:
            self.write(size)
        if len(self._waiting) > MOST_SMALL:
            # Thousands of small arrays would take more memory than their rows.
            try:
                self._waiting = [one_array(self._whole())]
            except SchemaError as error:
                raise SchemaError(f"column {self._writer.name!r}: {error}") from None

    def write(self, size: int) -> None:
        """Write those that wait, as far as they fill row groups of so many rows."""
        full = self._waiting_rows // size * size
        if full:
            whole = self._whole()
            self._write(whole.slice(0, full), size)
            rest = whole.slice(full)
            self._waiting = rest.chunks
            self._waiting_rows = len(rest)
            self._waiting_bytes = bytes_taken(rest)
        self._check(self._waiting_rows, self._waiting_bytes, size)

    def finish(self, size: int) -> Written:
        """All that was written, the rows that waited too."""
        self.write(size)
        if self._waiting_rows:
            self._write(self._whole(), size)
        whole = replace(self._writer, parts=dict(enumerate(self._parts)))
        return Written(whole.finish(), whole.next_k)

    def _whole(self) -> pa.ChunkedArray:
        return pa.chunked_array(self._waiting, self._writer.type)

    def _write(self, rows: pa.ChunkedArray, size: int) -> None:
        pieces = [rows.slice(start, size) for start in range(0, len(rows), size)]
        for piece in pieces:
            self._check(len(piece), bytes_taken(piece), size)
        writer = self._writer
        groups = ((pa.table({"rows": piece}), len(piece)) for piece in pieces)
        self._change_set.write([writer], groups)
        self._parts += [writer.parts[group] for group in range(len(pieces))]
        # Another one, for a writer counts its row groups from the first.
        self._writer = replace(writer, first_k=writer.next_k, parts={})

    def _check(self, rows: int, nbytes: int, size: int) -> None:
        """LimitError where so many rows are too much for one row group; one row never is.

        Of a fixed width they are as many bytes as was decided, or asked for.
        """
        if rows > 1 and nbytes > MOST_BYTES and not is_fixed(self._writer.type):
            raise LimitError(
                f"column {self._writer.name!r}: {rows} rows take {nbytes} bytes, and row groups "
                f"of {size} rows are decided on; none may take more than {MOST_BYTES}: "
                "append rows in whole, or give a smaller row_group_rows"
            )


def _width(staged: StagedVersion, index: int) -> float:
    """The bytes a row takes, about."""
    rows = staged.head.rows
    if rows:
        return staged.columns[index].nbytes / rows
    bits = [stream.bits for stream in stream_layouts(staged.schema.field(index).type).values()]
    return sum(ITEM_BYTES if width is None else width / 8 for width in bits)
