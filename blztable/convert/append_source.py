"""Append source: data as more rows of a table that exists, which keeps its schema or evolves.

Knows nothing of where the table is.

Theory of operation
-------------------
`append_source` reads no data. It returns runs of rows with one schema each; each run is an iterator
of parts. The writer draws the parts, in one thread at a time, in the order of the rows.

1. `source` yields a DataFrame or an Arrow table as one item, and an iterator item by item.
2. With `evolve`, `evolved` widens the schema for the item. A changed schema ends the run. For a new
   table, `evolved` always widens types. Columns of the null type take any type in each call.
3. `coerce_item` matches columns by name, casts each without loss, fills the columns that the item
   lacks, and checks that its index continues the table's.
4. Ordered categories are compared with the table's, or with those of the first item.

One coerced part is held, because its schema decides if the run continues; no other item is held.
All errors of an item are raised before its part is yielded, so a part is never written in half.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from blztable.arrow.casts import repeated
from blztable.arrow.types import Portion
from blztable.convert.categories import Orders
from blztable.convert.coerce import coerce_item, needs_exact_rows
from blztable.convert.frames.descriptor import Descriptor
from blztable.convert.gateway import AS_USUAL, Ingested, Reading
from blztable.convert.source import Source, source
from blztable.convert.widen import evolved
from blztable.convert.wider import has_nulls


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


class SchemaRun(NamedTuple):
    """Rows of one schema. All parts must be drawn before the next run."""

    schema: pa.Schema
    frame: Descriptor | None
    parts: Iterator[Portion]


def append_source(
    data: Any,
    table: TableSpec,
    *,
    index: bool | None,
    evolve: bool,
    how: Reading = AS_USUAL,
) -> "AppendSource":
    """Return any data that `stream` takes as more rows of the table; parts raise its errors."""
    return AppendSource(source(data, index=index, how=how), table, evolve)


class AppendSource:
    """Data to append to a table, as runs of one schema.

    Without `evolve` a table that exists gets a single run, and the items of a new table must have
    the columns of the first one.
    """

    def __init__(
        self, items: Source, table: TableSpec, evolve: bool, *, is_new: bool = False
    ) -> None:
        # Number of rows; None if it is unknown.
        self.rows = items.rows
        # Valid after all parts were drawn: True if the data fits only after `table.rows` rows.
        self.continues_index = False
        # Valid after all parts of a run were drawn: the columns that an item lacked.
        self.filled: set[int] = set()
        self._items = items.items
        self._table = table
        self._evolve, self._is_new = evolve, is_new
        self._schema, self._frame = table.schema, table.frame
        self._has_nulls = any(has_nulls(field.type) for field in table.schema)
        # The table has no categories of a column that it lacks.
        known = len(table.schema)
        self._orders = Orders(
            lambda index: table.orders(index) if index < known else None,
            "the first item" if is_new else "the table",
        )
        self._drawn = 0
        # The columns that have a value in the parts drawn so far.
        self._valued: set[int] = set()
        # A part that is coerced but not yielded yet: its schema decides if the run continues.
        self._next: Portion | None = None

    @property
    def runs(self) -> Iterator[SchemaRun]:
        """The runs, to be drawn once.

        The source does not keep them: they keep the source.
        """
        self._advance()
        while True:
            schema = self._schema
            yield SchemaRun(schema, self._frame, self._parts(schema))
            if self._next is None:
                return
            # Otherwise rows would be lost.
            assert self._schema is not schema, "all parts are drawn before the next run"

    def _parts(self, schema: pa.Schema) -> Iterator[Portion]:
        while self._next is not None and self._schema is schema:
            portion, self._next = self._next, None
            yield portion
            del portion  # Not held while the next one comes.
            self._advance()

    def _advance(self) -> None:
        """Coerce the next item, to a widened schema if `evolve` is set."""
        item = next(self._items, None)
        while item is not None and self._is_new and self._drawn and _is_nothing(item.data):
            item = next(self._items, None)
        if item is None:
            return
        context, data = item.context, item.data
        del item
        table = self._coerced(data, context)
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
            # Another schema object ends the run.
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
        self.continues_index |= needs_exact_rows(data, self._frame)
        if (self._evolve or self._is_new) and len(self._valued) < len(self._schema):
            columns = enumerate(table.columns)
            self._valued |= {index for index, one in columns if one.null_count < len(one)}
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
