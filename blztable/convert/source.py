"""Source: tabular data of any kind as a sequence of items.

Knows nothing of the table that the items go to. A DataFrame or an Arrow table is one item. A
reader, a dataset or an iterator gives one item at a time, and their number is unknown.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from blztable.arrow.extensions import plain_schema
from blztable.convert.foreign.rows import Grouped, are_rows
from blztable.convert.frames.descriptor import Descriptor
from blztable.convert.frames.pandas_metadata import from_metadata
from blztable.convert.gateway import (
    ACCEPTED,
    AS_USUAL,
    Ingested,
    IngestOptions,
    check_no_objects,
    framed,
    ingest,
    is_tabular,
    reader_of,
)
from blztable.errors import SchemaError

# Values of one column that can be read twice.
IN_MEMORY = (
    np.ndarray,
    pa.Array,
    pa.ChunkedArray,
    pd.Series,
    pd.Index,
    pd.api.extensions.ExtensionArray,
    list,
    tuple,
    range,
)


# The context prefix of the errors of one item, and the item.
Item = tuple[str, Ingested]


@dataclass(frozen=True, slots=True)
class ItemSource:
    """Items; none is held here once it is drawn."""

    items: Iterator[Item]
    # Number of rows; None if it is unknown.
    rows: int | None = None
    # The schema of all items; None if each has its own.
    schema: pa.Schema | None = None
    # Returns the frame descriptor of all items, given the number of their rows.
    frame: Callable[[int], Descriptor | None] = lambda rows: None
    attrs: Mapping[str, Any] = field(default_factory=dict)


def source(data: Any, *, index: bool | None, options: IngestOptions = AS_USUAL) -> ItemSource:
    """Return the items of tabular `data`, or of an iterable of tabular data."""
    if isinstance(data, pa.Table | pa.RecordBatch):
        return _of_one(data, index, options)
    data = framed(_in_parts(data))
    if isinstance(data, pd.DataFrame | np.ndarray) or are_rows(data):
        return _of_one(data, index, options)
    if hasattr(data, "scanner"):  # A dataset.
        # A dataset reads far ahead by default.
        data = data.scanner(batch_readahead=1, fragment_readahead=1)
    if hasattr(data, "to_reader"):  # A scanner.
        data = data.to_reader()
    elif hasattr(data, "to_batches"):  # Such as a CTable.
        data = data.to_batches()
    if isinstance(data, Iterator) and isinstance(getattr(data, "schema", None), pa.Schema):
        # Not through a capsule, which loses the exceptions of the iterator.
        return _of_reader(data)
    if hasattr(data, "__arrow_c_stream__"):
        check_no_objects(data, "the data")
        return _of_reader(reader_of(data))
    if hasattr(data, "__arrow_c_array__") or isinstance(data, Mapping):
        return _of_one(data, index, options)
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | bytearray | memoryview):
        # `map` holds no item while it is used; a generator would.
        return ItemSource(map(partial(_item, index, options), count(), Grouped(data)))
    raise TypeError(f"expected {ACCEPTED}, or an iterable of these; found {type(data).__name__}")


def _in_parts(data: Any) -> Any:
    """Return an iterator over data that is read in parts; any other data unchanged."""
    if hasattr(data, "collect_batches"):  # A LazyFrame of Polars.
        # A query without rows has no batch, but it has columns.
        return chain([data.head(0).collect()], data.collect_batches())
    if hasattr(data, "iter_batches"):  # Such as a ParquetFile.
        schema = getattr(data, "schema_arrow", None)
        batches = iter(data.iter_batches())
        if not isinstance(schema, pa.Schema):
            return batches
        return pa.RecordBatchReader.from_batches(schema, batches)
    if hasattr(data, "get_batch") and hasattr(data, "num_record_batches"):  # A file of Arrow IPC.
        batches = map(data.get_batch, range(data.num_record_batches))
        return pa.RecordBatchReader.from_batches(data.schema, batches)
    return data


def is_repeatable(data: Any) -> bool:
    """True for data in memory, which gives the same rows each time it is read.

    Anything else may be a cursor, a queue or a socket, which can be read once.
    """
    if are_rows(data) or isinstance(data, IN_MEMORY[:5]):
        return True
    if isinstance(data, list | tuple):
        return all(map(is_repeatable, data))
    if isinstance(data, Mapping):
        return all(isinstance(values, IN_MEMORY) for values in data.values())
    if isinstance(data, pd.DataFrame | pa.Table | pa.RecordBatch):
        return True
    # DataFrames of polars and others have both; a cursor has no __array__.
    return hasattr(data, "__arrow_c_stream__") and hasattr(data, "__array__")


def _of_one(data: Any, index: bool | None, options: IngestOptions) -> ItemSource:
    whole = ingest(data, index=index, options=options)
    frame, item = whole.frame, ("the data", whole)
    return ItemSource(iter([item]), whole.rows, whole.table.schema, lambda rows: frame, whole.attrs)


def _of_reader(reader: Any) -> ItemSource:
    """Return the batches of an Arrow reader, or of any iterator of batches with a schema."""
    schema = reader.schema
    frame, attrs = from_metadata(schema, 0)
    batches = map(partial(_batch, schema, frame), count(), reader)
    return ItemSource(
        batches, None, plain_schema(schema), lambda rows: from_metadata(schema, rows)[0], attrs
    )


def _batch(schema: pa.Schema, frame: Descriptor | None, number: int, batch: pa.RecordBatch) -> Item:
    table = pa.Table.from_batches([batch], schema)
    return f"batch {number}", Ingested(table, batch.num_rows, frame, {})


def _item(index: bool | None, options: IngestOptions, number: int, item: Any) -> Item:
    """Return one item; copy its memory where the caller could write to it before it is stored."""
    context = f"item {number}"
    if not is_tabular(item):
        raise TypeError(f"{context}: expected {ACCEPTED}; found {type(item).__name__}")
    if isinstance(item, pd.DataFrame):
        item = item.copy().set_axis(item.index.copy(deep=True))
    elif isinstance(item, np.ndarray):
        item = item.copy()
    elif isinstance(item, Mapping):
        item = {name: kept(values) for name, values in item.items()}
    try:
        return context, ingest(item, index=index, options=options)
    except SchemaError as error:
        raise SchemaError(f"{context}: {error}") from None


def kept(values: Any) -> Any:
    """Return the values, copied where the caller could write to them meanwhile."""
    # Arrow data is immutable once it is handed out.
    is_arrow = hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__")
    if is_arrow and not isinstance(values, pd.Series):
        return values
    if isinstance(values, pd.Series | pd.Index):
        return values.copy(deep=True)
    if hasattr(values, "copy"):
        return values.copy()
    return np.array(values) if hasattr(values, "__array__") else values
