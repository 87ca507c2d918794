"""Stream: data that come in parts, none of which knows how many there will be.

The first part decides on columns, types and index of a new table; the others are fitted to it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from blztable.convert.categories import check_orders, orders_of, with_room
from blztable.convert.coerce import fitted
from blztable.convert.frames.descriptor import Descriptor
from blztable.convert.frames.frame import Facts
from blztable.convert.frames.pandas_metadata import from_metadata
from blztable.convert.gateway import Ingested
from blztable.convert.source import Item, source
from blztable.errors import SchemaError

# Rows, told apart, for a table without columns has some too.
Portion = tuple[pa.Table, int]


@dataclass(frozen=True, slots=True)
class Stream:
    """Data on their way into a table, part after part."""

    schema: pa.Schema
    parts: Iterator[Portion]
    # None where the end is not known.
    rows: int | None
    # The frame descriptor of so many rows.
    frame: Callable[[int], Descriptor | None]
    attrs: dict[str, Any]


def stream(data: Any, *, index: bool | None = None) -> Stream:
    """Whatever tabular `data` is, or an iterable of such, as parts of one table."""
    given = source(data, index=index)
    if given.schema is not None:
        return _of_batches(given.items, given.schema)
    # The first item is taken at once: it says what the table is.
    first = next(given.items, None)
    if first is None:
        raise SchemaError(
            f"a {type(data).__name__} without an item has no columns; "
            "for a table without rows give a DataFrame, or a RecordBatchReader with a schema"
        )
    if given.rows is not None:
        return _of_one(first.data)
    return _of_items(first, given.items)


def _of_one(data: Ingested) -> Stream:
    parts = _in_order([Item("the data", data)])
    return Stream(data.table.schema, parts, data.rows, lambda rows: data.frame, data.attrs)


def _of_batches(batches: Iterator[Item], schema: pa.Schema) -> Stream:
    parts = _in_order(batches)
    attrs = from_metadata(schema, 0)[1]
    return Stream(schema, parts, None, lambda rows: from_metadata(schema, rows)[0], attrs)


def _in_order(items: Iterable[Item]) -> Iterator[Portion]:
    """The rows of the items, whose ordered columns have the same categories throughout."""
    orders: dict[int, pa.Array] = {}
    for item in items:
        what, table, rows = item.what, item.data.table, item.data.rows
        del item  # Not held while the next one comes.
        orders = orders_of(table) | orders
        check_orders(table, orders.get, what, "the first row")
        yield table, rows
        del table


def _of_items(first: Item, others: Iterator[Item]) -> Stream:
    schema, frame, attrs = first.data.table.schema, first.data.frame, first.data.attrs
    if frame is not None:
        schema = with_room(schema, Facts.decode(frame))

    def parts(item: Item) -> Iterator[Portion]:
        rows, orders = 0, dict[int, pa.Array]()
        for later in chain([None], others):
            if later is not None:
                if _is_nothing(later.data):
                    continue
                item = later
            del later
            table, count = fitted(item.data, schema, frame, rows, item.what), item.data.rows
            what = item.what
            del item  # Not held while the next one comes.
            orders = orders_of(table) | orders
            check_orders(table, orders.get, what, "the first item")
            rows += count
            yield table, count
            del table

    return Stream(schema, parts(first), None, lambda rows: frame, attrs)


def _is_nothing(data: Ingested) -> bool:
    """An empty frame, for a day without data."""
    return data.frame is not None and not (data.rows or data.table.num_columns)
