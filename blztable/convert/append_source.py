"""Append source: data as more rows of a table, which keeps its schema or evolves.

A new table has no rows and the columns of its first item. Knows nothing of where the table is.

Theory of operation
-------------------
`append_source` reads no data, and `new_source` at most one item. They return segments of rows with
one schema each; each segment is an iterator of parts. The writer draws the parts, in one thread at
a time, in the order of the rows.

1. `source` yields a DataFrame or an Arrow table as one item, and an iterator item by item.
2. With `evolve`, `evolved` widens the schema for the item. A changed schema ends the segment. For
   a new table, `evolved` always widens types. Columns of the null type take any type in each call.
3. `coerce_item` matches columns by name, casts each without loss, fills the columns that the item
   lacks, and checks that its index continues the table's.
4. Ordered categories are compared with the table's, or with those of the first item.

One coerced part is held, because its schema decides if the segment continues; no other item is
held. All errors of an item are raised before its part is yielded, so a part is never written in
half.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from blztable.arrow.casts import repeated
from blztable.arrow.extensions import plain_schema
from blztable.arrow.types import Portion
from blztable.convert.categories import Orders, with_room
from blztable.convert.coerce import coerce_item, needs_exact_rows
from blztable.convert.column_type import EmptyColumns
from blztable.convert.frames.descriptor import Descriptor
from blztable.convert.frames.frame import FrameInfo
from blztable.convert.gateway import AS_USUAL, Ingested, IngestOptions
from blztable.convert.source import Item, ItemSource, source
from blztable.convert.widen import evolved
from blztable.convert.wider import has_nulls
from blztable.errors import SchemaError


@dataclass(frozen=True, slots=True)
class TableSpec:
    """The facts of a table that appended data depends on."""

    schema: pa.Schema
    frame: Descriptor | None
    rows: int
    # Returns the default of a column, by its index; None for no default.
    default: Callable[[int], pa.Scalar | None]
    # Returns the categories of an ordered column, by its index; None if no row has any.
    orders: Callable[[int], pa.Array | None]
    # True for a column, by its index, that holds nothing but nulls and has no declared default.
    is_empty: Callable[[int], bool] = lambda index: False


class SchemaSegment(NamedTuple):
    """Rows of one schema. All parts must be drawn before the next segment."""

    schema: pa.Schema
    frame: Descriptor | None
    parts: Iterator[Portion]


def append_source(
    data: Any,
    table: TableSpec,
    *,
    index: bool | None,
    evolve: bool,
    options: IngestOptions = AS_USUAL,
) -> "AppendSource":
    """Return any data that `new_source` takes as more rows of the table; parts raise its errors."""
    return AppendSource(source(data, index=index, options=options), table, evolve)


def new_source(
    data: Any, *, index: bool | None, evolve: bool = False, options: IngestOptions = AS_USUAL
) -> "AppendSource":
    """Return tabular `data`, or an iterable of tabular data, as the rows of a new table.

    The first item decides the columns and the index. Later items are coerced to its types; where
    these lack a value, they become wider. With `evolve`, later items may have other columns.
    """
    items = source(data, index=index, options=options)
    if items.schema is not None:
        spec = _spec_of_new(items.schema, items.frame(items.rows or 0))
        return AppendSource(items, spec, evolve, is_new=True)
    # The first item is drawn at once, because it decides what the table is.
    first = next(items.items, None)
    if first is None:
        raise SchemaError(
            f"a {type(data).__name__} without items has no columns; for a table without rows "
            "pass a DataFrame, or a RecordBatchReader with a schema"
        )
    schema, frame, attrs = first[1].table.schema, first[1].frame, first[1].attrs
    if frame is not None:
        schema = with_room(schema, FrameInfo.decode(frame))
    items = ItemSource(_and_others([first], items.items), attrs=attrs)
    del first  # Not held while it is written.
    return AppendSource(items, _spec_of_new(schema, frame), evolve, is_new=True)


def new_without_rows(columns: EmptyColumns) -> "AppendSource":
    """Return the source of a new table with these columns and without rows."""
    schema = plain_schema(columns.schema)
    items = ItemSource(iter(()), 0, schema, lambda rows: columns.frame, columns.attrs)
    return AppendSource(items, _spec_of_new(schema, columns.frame), False, is_new=True)


def _spec_of_new(schema: pa.Schema, frame: Descriptor | None) -> TableSpec:
    return TableSpec(schema, frame, 0, lambda index: None, lambda index: None, lambda index: True)


def _and_others(first: list[Item], others: Iterator[Item]) -> Iterator[Item]:
    # Not held while the next one comes.
    yield first.pop()
    yield from others


class AppendSource:
    """Data to append to a table, as segments of one schema.

    Without `evolve` a table that exists gets a single segment, and the items of a new table must
    have the columns of the first one. Items that all have the schema of a new table are not
    coerced.
    """

    def __init__(
        self, items: ItemSource, table: TableSpec, evolve: bool, *, is_new: bool = False
    ) -> None:
        # Number of rows; None if it is unknown.
        self.rows = items.rows
        # The schema of the first segment.
        self.schema = table.schema
        self.attrs = items.attrs
        # Valid after all parts of a segment were drawn: the columns that an item lacked.
        self.filled: set[int] = set()
        self._continues_index = False
        self._items = items.items
        self._frame_of = items.frame
        self._is_coerced = not is_new or items.schema is None
        self._table = table
        self._evolve, self._is_new = evolve, is_new
        self._schema, self._frame = table.schema, table.frame
        self._has_nulls = not is_new and any(map(has_nulls, table.schema.types))
        # The table has no categories of a column that it lacks.
        known = len(table.schema)
        self._orders = Orders(
            lambda index: table.orders(index) if index < known else None,
            "the first item" if is_new else "the table",
        )
        self._drawn = 0
        # The columns that have a value in the parts drawn so far.
        self._valued: set[int] = set()
        # A part that is coerced but not yielded yet: its schema decides if the segment continues.
        self._next: Portion | None = None

    def continues_index(self) -> bool:
        """True if the parts drawn so far fit only after the rows of the table."""
        return self._continues_index

    def frame(self, rows: int) -> Descriptor | None:
        """Return the frame descriptor of a new table, whose rows were drawn; this many."""
        return self._frame if self._is_coerced else self._frame_of(rows)

    @property
    def segments(self) -> Iterator[SchemaSegment]:
        """The segments, to be drawn once.

        The source does not keep them: they keep the source.
        """
        self._advance()
        while True:
            schema = self._schema
            yield SchemaSegment(schema, self._frame, self._parts(schema))
            if self._next is None:
                return
            # Otherwise rows would be lost.
            assert self._schema is not schema, "all parts are drawn before the next segment"

    def _parts(self, schema: pa.Schema) -> Iterator[Portion]:
        while self._next is not None and self._schema is schema:
            portion, self._next = self._next, None
            yield portion
            del portion  # Not held while the next one comes.
            self._advance()

    def _advance(self) -> None:
        """Coerce the next item, to a widened schema if `evolve` is set."""
        item = next(self._items, None)
        while item is not None and self._is_new and self._drawn and _is_nothing(item[1]):
            item = next(self._items, None)
        if item is None:
            return
        context, data = item
        del item
        table = self._coerced(data, context) if self._is_coerced else data.table
        self._orders.check(table, context)
        self._drawn += data.rows
        self._next = table, data.rows

    def _coerced(self, data: Ingested, context: str) -> pa.Table:
        if self._evolve or self._is_new or self._has_nulls:
            schema, frame = evolved(
                data,
                self._schema,
                self._frame,
                is_empty=self._is_empty,
                takes_columns=self._evolve,
                widens=self._evolve or self._is_new,
            )
            # Another schema object ends the segment.
            if not schema.equals(self._schema, check_metadata=True):
                self._schema, self._frame = schema, frame
        rows = self._table.rows + self._drawn
        table = coerce_item(
            data,
            self._schema,
            self._frame,
            rows,
            context,
            fill=None if self._is_new and not self._evolve else self._fill,
            evolve=self._evolve,
            is_new=self._is_new,
            is_empty=self._is_empty,
        )
        self._continues_index |= needs_exact_rows(data, self._frame)
        if (self._evolve or self._is_new) and len(self._valued) < len(self._schema):
            columns = enumerate(table.columns)
            self._valued |= {index for index, column in columns if column.null_count < len(column)}
        return table

    def _is_empty(self, index: int) -> bool:
        """True if a column has no value yet, in the table and in the parts drawn so far."""
        known = index >= len(self._table.schema) or self._table.is_empty(index)
        return known and index not in self._valued

    def _fill(self, index: int, rows: int) -> pa.ChunkedArray:
        self.filled.add(index)
        return repeated(self._schema.field(index).type, rows, self._table.default(index))


def _is_nothing(data: Ingested) -> bool:
    """True for a DataFrame without rows and columns, such as a day without data."""
    return data.frame is not None and not (data.rows or data.table.num_columns)
