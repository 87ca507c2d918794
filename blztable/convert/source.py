"""Source: whatever tabular data are, as the items they come in.

A frame or a table is one item; of a reader, a dataset or an iterator an item is made when it is
asked for, and nobody knows how many there will be. Knows nothing of where they go.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from blztable.convert.frames.descriptor import Descriptor
from blztable.convert.frames.pandas_metadata import from_metadata
from blztable.convert.gateway import (
    ACCEPTED,
    Ingested,
    check_no_series,
    ingest,
    is_tabular,
    reader_of,
)
from blztable.errors import SchemaError

# Values of one column that can be drawn again.
IN_MEMORY = (
    *(np.ndarray, pa.Array, pa.ChunkedArray, pd.Series, pd.Index),
    *(pd.api.extensions.ExtensionArray, list, tuple, range),
)


@dataclass(frozen=True, slots=True)
class Item:
    """One item, and what errors call it."""

    what: str
    data: Ingested


@dataclass(frozen=True, slots=True)
class Source:
    """Items, none of which is held here once it was asked for."""

    items: Iterator[Item]
    # None where the end is not known.
    rows: int | None = None
    # Of a reader, which knows it before its first batch.
    schema: pa.Schema | None = None


def source(data: Any, *, index: bool | None = None) -> Source:
    """The items of whatever tabular `data` is, or of an iterable of such."""
    if isinstance(data, pd.DataFrame | pa.Table | pa.RecordBatch):
        return _of_one(data, index)
    check_no_series(data, "the data")
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
        return _of_one(data, index)
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | bytearray | memoryview):
        # By `map`, which unlike a generator holds no item while it is used.
        return Source(map(partial(_item, index), count(), data))
    raise TypeError(f"expected {ACCEPTED}, or an iterable of these; found {type(data).__name__}")


def is_repeatable(data: Any) -> bool:
    """True for data that give the same rows each time they are drawn, as they lie in memory.

    Anything else may be a cursor, a queue or a socket: what was drawn from it is gone.
    """
    if isinstance(data, list | tuple):
        return all(map(is_repeatable, data))
    if isinstance(data, Mapping):
        return all(isinstance(values, IN_MEMORY) for values in data.values())
    if isinstance(data, pd.DataFrame | pa.Table | pa.RecordBatch):
        return True
    # The frames of polars and others; a cursor is no array.
    return hasattr(data, "__arrow_c_stream__") and hasattr(data, "__array__")


def _of_one(data: Any, index: bool | None) -> Source:
    found = ingest(data, index=index)
    return Source(iter([Item("the data", found)]), found.rows)


def _of_reader(reader: Any) -> Source:
    """The batches of a reader of Arrow's, or of any iterator of batches with a schema."""
    schema = reader.schema
    frame = from_metadata(schema, 0)[0]
    return Source(map(partial(_batch, schema, frame), count(), reader), schema=schema)


def _batch(schema: pa.Schema, frame: Descriptor | None, number: int, batch: pa.RecordBatch) -> Item:
    table = pa.Table.from_batches([batch], schema)
    return Item(f"batch {number}", Ingested(table, batch.num_rows, frame, {}))


def _item(index: bool | None, number: int, item: Any) -> Item:
    """One item. Its memory is copied where it could be written to before we are done with it."""
    what = f"item {number}"
    check_no_series(item, what)
    if not is_tabular(item):
        raise TypeError(f"{what}: expected {ACCEPTED}; found {type(item).__name__}")
    if isinstance(item, pd.DataFrame):
        item = item.copy().set_axis(item.index.copy(deep=True))
    elif isinstance(item, Mapping):
        item = {name: kept(values) for name, values in item.items()}
    try:
        return Item(what, ingest(item, index=index))
    except SchemaError as error:
        raise SchemaError(f"{what}: {error}") from None


def kept(values: Any) -> Any:
    """Values that nobody writes to while they wait."""
    # What speaks Arrow is not written to once it was handed out.
    is_arrow = hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__")
    if is_arrow and not isinstance(values, pd.Series):
        return values
    if isinstance(values, pd.Series | pd.Index):
        return values.copy(deep=True)
    if hasattr(values, "copy"):
        return values.copy()
    return np.array(values) if hasattr(values, "__array__") else values
