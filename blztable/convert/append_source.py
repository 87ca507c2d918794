"""Append source: data as more rows of a table that is there, which keeps its schema or evolves.

Columns go by name; a column the data have not is filled. Where the table may evolve, data that do
not fit end a segment and begin the next, with a schema that takes them. Knows nothing of where the
table is.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from blztable.convert.categories import check_orders, orders_of
from blztable.convert.coerce import filled, fitted, needs_exact_rows
from blztable.convert.frames.descriptor import Descriptor
from blztable.convert.gateway import Ingested
from blztable.convert.source import Source, source
from blztable.convert.stream import Portion
from blztable.convert.widen import evolved


def _no_order(place: int) -> pa.Array | None:
    return None


@dataclass(frozen=True, slots=True)
class TableSpec:
    """What data have to know of the table they go on."""

    schema: pa.Schema
    frame: Descriptor | None
    rows: int
    # By a column's place, the value of rows that have none.
    defaults: Mapping[int, pa.Scalar] = field(default_factory=dict)
    # The categories of an ordered column at a place; None where no row has any.
    orders: Callable[[int], pa.Array | None] = _no_order


@dataclass(frozen=True, slots=True)
class SchemaRun:
    """Rows of one schema. Its parts are drawn before the next segment is asked for."""

    schema: pa.Schema
    frame: Descriptor | None
    parts: Iterator[Portion]


def append_source(
    data: Any, table: TableSpec, *, index: bool | None = None, evolve: bool = False
) -> "AppendSource":
    """Whatever `stream` takes, as more rows of the table; its errors come as parts are drawn."""
    return AppendSource(source(data, index=index), table, evolve)


class AppendSource:
    """Data to append to a table, segment after segment; one only where it may not evolve."""

    def __init__(self, given: Source, table: TableSpec, evolve: bool) -> None:
        # None where the end is not known.
        self.rows = given.rows
        # Once all is drawn: whether a range index of the data goes on `table.rows` rows only.
        self.continues_index = False
        self.segments: Iterator[SchemaRun] = self._segments()
        self._items = given.items
        self._table = table
        self._evolve = evolve
        self._schema, self._frame = table.schema, table.frame
        self._orders: dict[int, pa.Array | None] = {}
        self._drawn = 0
        # Fitted, but not handed out: it says whether the segment goes on.
        self._next: Portion | None = None

    def _segments(self) -> Iterator[SchemaRun]:
        self._advance()
        while True:
            schema = self._schema
            yield SchemaRun(schema, self._frame, self._parts(schema))
            if self._next is None:
                return
            # Else rows would be lost.
            assert self._schema is not schema, "all parts are drawn before the next segment"

    def _parts(self, schema: pa.Schema) -> Iterator[Portion]:
        while self._next is not None and self._schema is schema:
            portion, self._next = self._next, None
            yield portion
            del portion  # Not held while the next one comes.
            self._advance()

    def _advance(self) -> None:
        """Fit the next item, to a schema that takes it."""
        item = next(self._items, None)
        if item is None:
            return
        what, data = item.what, item.data
        del item
        table = self._fitted(data, what)
        self._check_orders(table, what)
        self._drawn += data.rows
        self._next = table, data.rows

    def _fitted(self, data: Ingested, what: str) -> pa.Table:
        if self._evolve:
            schema, frame = evolved(data, self._schema, self._frame)
            # The schema ends a segment by being another object.
            if not schema.equals(self._schema, check_metadata=True):
                self._schema, self._frame = schema, frame
        rows = self._table.rows + self._drawn
        # Data that began to count where the table stops do not count from 0 as well.
        drawn = None if self.continues_index else self._drawn
        table = fitted(data, self._schema, self._frame, rows, what, drawn=drawn, fill=self._fill)
        self.continues_index |= needs_exact_rows(data, self._frame, drawn)
        return table

    def _fill(self, place: int, rows: int) -> pa.ChunkedArray:
        return filled(self._schema.field(place).type, rows, self._table.defaults.get(place))

    def _check_orders(self, table: pa.Table, what: str) -> None:
        for place, order in orders_of(table).items():
            # Of a table without rows the first ones decide.
            if self._order_at(place) is None:
                self._orders[place] = order
        check_orders(table, self._order_at, what, "the table")

    def _order_at(self, place: int) -> pa.Array | None:
        if place not in self._orders and place < len(self._table.schema):
            self._orders[place] = self._table.orders(place)
        return self._orders.get(place)
