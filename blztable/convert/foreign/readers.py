"""Readers: objects of other programs that are read in parts, and frames that Arrow cannot hold.

Knows their methods, not their types: none of these programs needs to be installed.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any, Self

import pandas as pd
import pyarrow as pa

from blztable.errors import SchemaError


class BatchReader(Iterator[Any]):
    """Batches with the schema that they have, also if there are none."""

    def __init__(self, schema: pa.Schema, batches: Iterator[Any]) -> None:
        self.schema = schema
        self._batches = batches

    def __iter__(self) -> Self:
        """Return the iterator itself."""
        return self

    def __next__(self) -> Any:
        """Return the next batch."""
        return next(self._batches)


def in_parts(data: Any) -> Any:
    """Return an iterator over data that is read in parts; any other data unchanged."""
    if hasattr(data, "collect_batches"):  # A LazyFrame of Polars.
        # A query without rows has no batch, but it has columns.
        return chain([data.head(0).collect()], data.collect_batches())
    if hasattr(data, "iter_batches"):  # Such as a ParquetFile.
        schema = getattr(data, "schema_arrow", None)
        batches = iter(data.iter_batches())
        return BatchReader(schema, batches) if isinstance(schema, pa.Schema) else batches
    if hasattr(data, "get_batch") and hasattr(data, "num_record_batches"):  # A file of Arrow IPC.
        return BatchReader(data.schema, map(data.get_batch, range(data.num_record_batches)))
    return data


def framed(data: Any) -> Any:
    """Return a Series of pandas or Polars as a frame of one column; any other data unchanged."""
    if isinstance(data, pd.Index):
        raise SchemaError("the data: an Index has no columns; pass index.to_frame(index=False)")
    if isinstance(data, pd.Series):
        return data.to_frame()
    if not (hasattr(data, "to_frame") and hasattr(data, "__arrow_c_stream__")):
        return data
    # A struct of Polars has columns.
    return data if hasattr(getattr(data, "dtype", None), "fields") else data.to_frame()


def check_no_objects(data: Any, context: str) -> None:
    """SchemaError for Python objects in a frame or a Series of Polars.

    Polars exports such a column as the addresses of the objects.
    """
    # A frame of narwhals has the one of Polars in it.
    native = data.to_native() if hasattr(data, "to_native") else data
    if not type(native).__module__.startswith("polars."):
        return
    schema = native.schema if hasattr(native, "schema") else {native.name: native.dtype}
    names = [name for name, dtype in schema.items() if str(dtype) == "Object"]
    if names:
        which = f"the columns {names!r:.300} have" if hasattr(native, "schema") else "it has"
        raise SchemaError(
            f"{context}: {which} the dtype Object of Polars, and Arrow cannot hold Python objects; "
            "cast to a type of Polars, or leave it out"
        )
