"""Stream: data for a new table, in parts of an unknown number.

Knows nothing of where the table is. The first item decides the columns and the index of the table.
Later items are coerced to its types; where these lack a value, they become wider.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from blztable.arrow.types import Portion
from blztable.convert.append_source import AppendSource, SchemaRun, TableSpec
from blztable.convert.categories import Orders, with_room
from blztable.convert.frames.descriptor import Descriptor
from blztable.convert.frames.frame import Facts
from blztable.convert.frames.pandas_metadata import from_metadata
from blztable.convert.gateway import AS_USUAL, Ingested, Reading
from blztable.convert.source import Item, Source, source
from blztable.errors import SchemaError


@dataclass(frozen=True, slots=True)
class Stream:
    """Data for a new table, part by part."""

    schema: pa.Schema
    parts: Iterator[Portion]
    # Number of rows; None if it is unknown.
    rows: int | None
    # Returns the frame descriptor for a row count.
    frame: Callable[[int], Descriptor | None]
    attrs: dict[str, Any]
    # Later parts that need another schema, after all of `parts` were drawn.
    more: Iterator[SchemaRun] = field(default_factory=lambda: iter(()))


def stream(
    data: Any, *, index: bool | None, how: Reading = AS_USUAL, evolve: bool = False
) -> Stream:
    """Return tabular `data`, or an iterable of tabular data, as parts of one table.

    With `evolve`, later items may have other columns than the first one.
    """
    items = source(data, index=index, how=how)
    if items.schema is not None:
        return _of_batches(items.items, items.schema)
    # The first item is drawn at once, because it decides what the table is.
    first = next(items.items, None)
    if first is None:
        raise SchemaError(
            f"a {type(data).__name__} without items has no columns; for a table without rows "
            "pass a DataFrame, or a RecordBatchReader with a schema"
        )
    if items.rows is not None:
        return _of_one(first.data)
    return _of_items(first, items.items, evolve)


def _of_one(data: Ingested) -> Stream:
    parts = _in_order([Item("the data", data)])
    return Stream(data.table.schema, parts, data.rows, lambda rows: data.frame, data.attrs)


def _of_batches(batches: Iterator[Item], schema: pa.Schema) -> Stream:
    parts = _in_order(batches)
    attrs = from_metadata(schema, 0)[1]
    return Stream(schema, parts, None, lambda rows: from_metadata(schema, rows)[0], attrs)


def _in_order(items: Iterable[Item]) -> Iterator[Portion]:
    """Yield the rows of the items; SchemaError if ordered categories differ between items."""
    orders = Orders(lambda index: None, "the first row")
    for item in items:
        context, table, rows = item.context, item.data.table, item.data.rows
        del item  # Not held while the next one comes.
        orders.check(table, context)
        yield table, rows
        del table


def _of_items(first: Item, others: Iterator[Item], evolve: bool) -> Stream:
    schema, frame, attrs = first.data.table.schema, first.data.frame, first.data.attrs
    if frame is not None:
        schema = with_room(schema, Facts.decode(frame))
    nothing = TableSpec(
        schema, frame, 0, lambda index: None, lambda index: None, lambda index: True
    )
    items = Source(_and_others([first], others))
    runs = AppendSource(items, nothing, evolve, is_new=True).runs
    run = next(runs)
    return Stream(run.schema, run.parts, None, lambda rows: run.frame, attrs, runs)


def _and_others(first: list[Item], others: Iterator[Item]) -> Iterator[Item]:
    # Not held while the next one comes.
    yield first.pop()
    yield from others
