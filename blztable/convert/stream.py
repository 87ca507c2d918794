"""Stream: data that come in parts, none of which knows how many there will be.

A reader, a dataset or an iterator is a table whose parts are made as they are asked for. The first
part decides on columns, types and index; the others are fitted to it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from blztable.convert.descriptor import Descriptor
from blztable.convert.fit import fitted
from blztable.convert.frame import Facts, descriptor_of
from blztable.convert.gateway import ACCEPTED, Ingested, ingest, is_tabular, reader_of
from blztable.convert.interop import from_metadata
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
    if isinstance(data, pd.DataFrame | pa.Table | pa.RecordBatch):
        return _of_one(ingest(data, index=index))
    if hasattr(data, "scanner"):  # A dataset.
        # It would read far ahead of us.
        data = data.scanner(batch_readahead=1, fragment_readahead=1)
    if hasattr(data, "to_reader"):  # A scanner.
        data = data.to_reader()
    elif hasattr(data, "to_batches"):  # A table of ours, for one.
        data = data.to_batches()
    if isinstance(data, Iterator) and isinstance(getattr(data, "schema", None), pa.Schema):
        # Not by way of a capsule: what its batches raise would be lost.
        return _of_reader(data)
    if hasattr(data, "__arrow_c_stream__"):
        return _of_reader(reader_of(data))
    if hasattr(data, "__arrow_c_array__") or isinstance(data, Mapping):
        return _of_one(ingest(data, index=index))
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | bytearray | memoryview):
        return _of_items(data, index)
    raise TypeError(f"expected {ACCEPTED}, or an iterable of these; found {type(data).__name__}")


def _of_one(data: Ingested) -> Stream:
    parts = iter([(data.table, data.rows)])
    return Stream(data.table.schema, parts, data.rows, lambda rows: data.frame, data.attrs)


def _of_reader(reader: Any) -> Stream:
    """A reader of Arrow's, or any iterator of batches with a schema."""
    schema = reader.schema

    def parts() -> Iterator[Portion]:
        for batch in reader:
            yield pa.Table.from_batches([batch], schema), batch.num_rows

    attrs = from_metadata(schema, 0)[1]
    return Stream(schema, parts(), None, lambda rows: from_metadata(schema, rows)[0], attrs)


def _of_items(items: Iterable[Any], index: bool | None) -> Stream:
    """The first item is taken at once: it says what the table is."""
    remaining = enumerate(items)
    first_item = next(remaining, None)
    if first_item is None:
        raise SchemaError(
            f"a {type(items).__name__} without an item has no columns; "
            "for a table without rows give a DataFrame, or a RecordBatchReader with a schema"
        )
    first = _ingested(first_item[1], index, 0)
    del first_item
    schema, frame = first.table.schema, first.frame
    orders: dict[int, pa.Array] = {}
    if frame is not None:
        schema, orders = _with_room(schema, Facts.decode(frame)), _orders(first.table)

    def parts(data: Ingested) -> Iterator[Portion]:
        rows = 0
        for number, item in chain([(0, None)], remaining):
            if number:
                data = _ingested(item, index, number)
            del item
            if number and data.frame is not None and not (data.rows or data.table.num_columns):
                continue  # An empty frame, for a day without data.
            table, count = fitted(data, schema, frame, rows, f"item {number}"), data.rows
            del data  # Not held while the next one comes.
            _check_orders(table, orders, number)
            rows += count
            yield table, count
            del table

    return Stream(schema, parts(first), None, lambda rows: frame, first.attrs)


def _with_room(schema: pa.Schema, facts: Facts) -> pa.Schema:
    """The schema with codes that have room for the categories of later frames, too."""
    for place, field in enumerate(schema):
        type_ = field.type
        if not pa.types.is_dictionary(type_) or type_.index_type.bit_width >= 32:
            continue
        descriptor = descriptor_of(field, facts)
        # pandas chooses codes by itself, but for what is Arrow's already.
        if descriptor is None or descriptor["dtype"] == "category":
            wide = pa.dictionary(pa.int32(), type_.value_type, type_.ordered)
            schema = schema.set(place, field.with_type(wide))
    return schema


def _orders(table: pa.Table) -> dict[int, pa.Array]:
    """The categories of the ordered columns, by their place."""
    return {
        place: column.chunk(0).dictionary
        for place, column in enumerate(table.columns)
        if pa.types.is_dictionary(column.type) and column.type.ordered and column.num_chunks
    }


def _check_orders(table: pa.Table, orders: Mapping[int, pa.Array], number: int) -> None:
    """SchemaError where ordered categories are others than those of the first item."""
    for place, order in orders.items():
        for chunk in table.column(place).chunks:
            found = chunk.dictionary
            if len(found) and not found.equals(order):
                raise SchemaError(
                    f"item {number}, column {table.schema.names[place]!r}: ordered categories "
                    f"{found.to_pylist()!r:.200}; the first item has {order.to_pylist()!r:.200}"
                )


def _ingested(item: Any, index: bool | None, number: int) -> Ingested:
    """One item. Its memory is copied where it could be written to before we are done with it."""
    if not is_tabular(item):
        raise TypeError(f"item {number}: expected {ACCEPTED}; found {type(item).__name__}")
    if isinstance(item, pd.DataFrame):
        item = item.copy().set_axis(item.index.copy(deep=True))
    elif isinstance(item, Mapping):
        item = {name: _kept(values) for name, values in item.items()}
    try:
        return ingest(item, index=index)
    except SchemaError as error:
        raise SchemaError(f"item {number}: {error}") from None


def _kept(values: Any) -> Any:
    # What speaks Arrow is not written to once it was handed out.
    is_arrow = hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__")
    if is_arrow and not isinstance(values, pd.Series):
        return values
    if isinstance(values, pd.Series | pd.Index):
        return values.copy(deep=True)
    if hasattr(values, "copy"):
        return values.copy()
    return np.array(values) if hasattr(values, "__array__") else values
