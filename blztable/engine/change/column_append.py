"""Columnwise append: columns get their rows one at a time, and are appended together.

Theory of operation
-------------------
All columns are cut into the same row groups. Each column is written in the thread of the caller as
soon as it has the rows of one row group, so about one row group is in memory. The size of a row
group is decided once, when the first column has enough rows. It follows from the bytes per row of
each column that has rows, and from an estimate for each other column. A column whose later rows are
much wider raises LimitError instead of taking unbounded memory.
"""

from collections.abc import Iterator, Mapping

import pyarrow as pa

from blztable import tuning
from blztable.arrow.casts import widened
from blztable.arrow.nested.nodes import Node
from blztable.arrow.types import value_type
from blztable.columns.parts.physical import Form, physical
from blztable.columns.types import one_array
from blztable.engine.change.change_set import ChangeSet
from blztable.engine.change.changes import Append, Select
from blztable.engine.change.columns import widen
from blztable.engine.change.reliance import ReadSet
from blztable.engine.read.columns import OpenColumns
from blztable.engine.read.selection import RowSpan
from blztable.engine.version.projection import Projection
from blztable.engine.version.staged import NewGroups, StagedColumn, StagedVersion
from blztable.engine.write.options import group_rows_of
from blztable.engine.write.row_groups import (
    bytes_taken,
    is_fixed,
    rows_per_group,
)
from blztable.errors import LimitError, SchemaError
from blztable.format.jsontext import Json
from blztable.format.records import join

# Estimated bytes of a text value.
ITEM_BYTES = 64


class ColumnwiseAppend:
    """Rows that are added to all columns of a table, one column at a time."""

    def __init__(self, change_set: ChangeSet) -> None:
        staged = change_set.staged
        indices = range(len(staged.schema))
        self._change_set = change_set
        self._staged = staged
        self._columns = [
            _WaitingColumn(change_set, index, _width(staged, index)) for index in indices
        ]
        self._waiting_bytes = 0
        # Rows of a row group, None until decided; a column with `_enough` rows decides it.
        self._size = change_set.storage.row_group_rows
        self._enough = self._rows_per_group()

    def add(self, index: int, values: pa.ChunkedArray) -> None:
        """Add rows to one column, in its type.

        Raises
        ------
        LimitError
            A row group of this column would take more memory than is allowed.
        """
        column = self._columns[index]
        if self._size is None:
            self._waiting_bytes += bytes_taken(values)
        column.add(values, self._size)
        if self._size is None and (
            column.rows >= self._enough
            or column.nbytes >= tuning.current.group_column_bytes
            or self._waiting_bytes >= tuning.current.group_bytes
        ):
            self._size = self._rows_per_group()
            for each in self._columns:
                each.write(self._size)

    def widen(self, schema: pa.Schema, frame: Mapping[str, Json] | None) -> None:
        """Change the table to a schema with wider types or more columns, and the rows added before.

        Raises
        ------
        SchemaError
            A wider type does not hold all values. The table and the rows are as before.
        """
        change_set, before = self._change_set, self._staged
        with change_set.attempt():
            wider = [
                index
                for index, field in enumerate(before.schema)
                if not schema.field(index).equals(field, check_metadata=True)
            ]
            rows = {index: self._columns[index].all_rows(before) for index in wider}
            widen(change_set, schema, frame)
            staged = change_set.staged
            columns = {
                index: _WaitingColumn(change_set, index, _width(staged, index))
                for index in [*wider, *range(len(before.schema), len(schema))]
            }
            for index, parts in rows.items():
                field = schema.field(index)
                context = f"column {field.name!r}, rows appended before"
                for part in parts:
                    wide = widened(part, field.type, context, "give all values one type")
                    columns[index].add(wide, self._size)
        self._staged = staged
        present = dict(enumerate(self._columns))
        self._columns = [(present | columns)[index] for index in range(len(schema))]

    def finish(self) -> None:
        """Append the rows of all columns; SchemaError if their numbers differ."""
        lengths = [column.rows for column in self._columns]
        if len(set(lengths)) > 1:
            names = self._staged.schema.names
            counts = ", ".join(
                f"{name!r} {rows}" for name, rows in zip(names, lengths, strict=True)
            )
            raise SchemaError(
                f"{self._staged.store.name}: all columns must get the same number of rows; "
                f"they got {counts:.1000}"
            )
        rows = lengths[0] if lengths else 0
        if rows:
            size = self._size or self._rows_per_group()
            written = [node for column in self._columns for node in column.finish(size)]
            cuts = [min(size, rows - start) for start in range(0, rows, size)]
            read_set, groups = ReadSet.columns_of(self._staged), NewGroups(cuts, [0] * len(cuts))
            self._change_set.add("append", Append(read_set, groups, written))
            self._change_set.count(appended=rows)

    def _rows_per_group(self) -> int:
        """Return the rows of a row group for the present widths of the columns."""
        storage = self._change_set.storage
        # Count the bytes of a thousand rows, because a row may take less than a byte.
        nbytes = [int(1000 * column.width) for column in self._columns]
        size = rows_per_group(nbytes, 1000, group_rows_of(storage))
        # Halve the size while its rows would be too large, as an append does.
        is_free = not storage.row_group_rows
        most = 1000 * tuning.current.group_text_bytes
        while is_free and size > 1 and size * max(nbytes, default=0) > most:
            size //= 2
        return size


class _WaitingColumn:
    """One column: its written parts and its waiting rows."""

    def __init__(self, change_set: ChangeSet, index: int, width: float) -> None:
        self.rows = 0
        # Bytes of all rows added.
        self.nbytes = 0
        self._estimate = width
        self._change_set = change_set
        self._index, self._field = index, change_set.staged.schema.field(index)
        self._waiting: list[pa.Array] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        # The nodes of each write, and the row groups of all.
        self._written: list[list[StagedColumn]] = []
        self._groups = 0
        # The rows of each row group that was written.
        self._size = 0

    @property
    def width(self) -> float:
        """Bytes per row of the added rows; the estimate if there are none."""
        return self.nbytes / self.rows if self.rows else self._estimate

    def add(self, values: pa.ChunkedArray, size: int | None) -> None:
        """Keep rows until they fill a row group; `size` is None until it is decided."""
        nbytes = bytes_taken(values)
        self.rows += len(values)
        self.nbytes += nbytes
        self._waiting += [chunk for chunk in values.chunks if len(chunk)]
        self._waiting_rows += len(values)
        self._waiting_bytes += nbytes
        if size is not None:
            self.write(size)
        if len(self._waiting) > tuning.current.joined_tables:
            # Thousands of small arrays take more memory than their rows.
            try:
                self._waiting = [one_array(self._whole())]
            except SchemaError as error:
                raise SchemaError(f"column {self._field.name!r}: {error}") from None

    def all_rows(self, staged: StagedVersion) -> Iterator[pa.ChunkedArray]:
        """Yield the rows added so far, by their row groups in the files; and those that wait."""
        count = self._groups
        if count:
            only = Select(ReadSet.columns_of(staged), [self._index], None).rebase(staged)
            groups, first = NewGroups([self._size] * count, [0] * count), only.group_count
            both = Append(ReadSet.columns_of(only), groups, self._nodes()).rebase(only)
            with OpenColumns.whole(both) as opened:
                for group in range(first, first + count):
                    opened.forget_before(group)
                    [rows] = opened.columns([0], [RowSpan(group, 0, self._size)])
                    yield rows
        yield self._whole()

    def write(self, size: int) -> None:
        """Write the waiting rows that fill row groups of `size` rows."""
        full = self._waiting_rows // size * size
        if full:
            whole = self._whole()
            self._write(whole.slice(0, full), size)
            rest = whole.slice(full)
            self._waiting = rest.chunks
            self._waiting_rows = len(rest)
            self._waiting_bytes = bytes_taken(rest)
        self._check(self._waiting_rows, self._waiting_bytes, size)

    def finish(self, size: int) -> list[StagedColumn]:
        """Write all waiting rows; return the nodes of the column."""
        self.write(size)
        if self._waiting_rows:
            self._write(self._whole(), size)
        return self._nodes()

    def _nodes(self) -> list[StagedColumn]:
        """Return the nodes of the column, with the parts written so far."""
        return [
            StagedColumn(nodes[0].path, join([node.parts for node in nodes]))
            for nodes in zip(*self._written, strict=True)
        ]

    def _whole(self) -> pa.ChunkedArray:
        return pa.chunked_array(self._waiting, self._field.type)

    def _write(self, rows: pa.ChunkedArray, size: int) -> None:
        self._size = size
        pieces = [rows.slice(start, size) for start in range(0, len(rows), size)]
        for piece in pieces:
            self._check(len(piece), bytes_taken(piece), size)
        groups = ((pa.table({"rows": piece}), len(piece)) for piece in pieces)
        writers = self._change_set.column_writers([self._index])
        self._written.append(self._change_set.write(writers, groups)[1])
        self._groups += len(pieces)

    def _check(self, rows: int, nbytes: int, size: int) -> None:
        """Raise LimitError if these rows are too large for a row group.

        A single row is always allowed, and so are rows of a fixed width, whose size is known.
        """
        most = tuning.current.group_text_bytes
        if rows > 1 and nbytes > most and not is_fixed(self._field.type):
            raise LimitError(
                f"column {self._field.name!r}: {rows} rows take {nbytes} bytes, more than the "
                f"{most} allowed in a row group, and row groups have {size} rows; append "
                "whole rows with append(), or pass a smaller row_group_rows"
            )


def _width(staged: StagedVersion, index: int) -> float:
    """Return the estimated bytes per row of a column."""
    rows = staged.head.rows
    if rows:
        return Projection.of(staged).nbytes(index) / rows
    nodes = Node.of(staged.schema.field(index).type).walk()
    forms = [physical(value_type(node.flat)) for node in nodes]
    return sum(form.width + ITEM_BYTES * (form.form is Form.BYTES) for form in forms)
