"""Gateway: the entry for tabular data: DataFrames, Arrow data of any kind, mappings of arrays.

Knows how each kind is read, nothing of its destination. Arrow data passes unchanged; the facts
that only pandas has go into descriptors.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from blztable.arrow.casts import cast_exactly, cast_rounded
from blztable.arrow.extensions import plain_table
from blztable.arrow.nested.casts import Cast
from blztable.arrow.types import has_floats
from blztable.convert import foreign
from blztable.convert.foreign import numpy_arrays
from blztable.convert.foreign.rows import are_rows, columns_of, is_row, is_value, refuse_row
from blztable.convert.frames import dtypes
from blztable.convert.frames.descriptor import Descriptor
from blztable.convert.frames.frame import described, from_frame, without_false_kinds
from blztable.convert.frames.objects import are_bare
from blztable.convert.frames.pandas_metadata import from_metadata
from blztable.convert.frames.text import check_text
from blztable.convert.objects.tagged import checked_attrs
from blztable.errors import SchemaError

TABULAR = (pd.DataFrame, pd.Series, pd.Index, pa.Table, pa.RecordBatch, np.ndarray, Mapping)
ACCEPTED = (
    "a pandas DataFrame, an Arrow table, record batch or reader, anything with __arrow_c_stream__ "
    "or __arrow_c_array__ (polars, duckdb, ...), a structured numpy array, a mapping of names to "
    "arrays, or a list of mappings of names to values"
)


class Nan(Enum):
    """What a NaN among floats is. In Arrow data it is always a value."""

    VALUE = "a value"
    NULL_IN_PANDAS = "null in pandas objects; a value in numpy arrays, lists and single values"
    NULL = "null"

    @classmethod
    def of(cls, nan_as_null: bool | None, is_frame: bool) -> "Nan":
        """Return the meaning of the option `nan_as_null`, given whether the table is a frame's."""
        if nan_as_null is None:
            return cls.NULL if is_frame else cls.NULL_IN_PANDAS
        return cls.NULL if nan_as_null else cls.VALUE


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """How data are read: what a NaN is, and what becomes of Python objects."""

    nan: Nan = Nan.NULL_IN_PANDAS
    objects: str = "infer"
    # True if a set is one value.
    has_sets: bool = False


AS_USUAL = IngestOptions()


@dataclass(frozen=True, slots=True)
class Ingested:
    """Tabular data as an Arrow table, with the facts that only pandas has."""

    table: pa.Table
    # An Arrow table without columns loses its row count.
    rows: int
    # The frame descriptor; None for data other than a DataFrame.
    frame: Descriptor | None
    attrs: dict[str, Any]
    # Which values of a column are the same in another type; `cast_exactly` says it of others.
    casts: Mapping[str, Cast] = field(default_factory=dict)
    # True if the call asks for the index of a DataFrame.
    keeps_index: bool = False

    def __post_init__(self) -> None:
        """Show extension types as their storage types, which are stored."""
        object.__setattr__(self, "table", plain_table(self.table))


def is_tabular(data: Any) -> bool:
    """True for data that `ingest` takes."""
    return (
        isinstance(data, TABULAR)
        or are_rows(data)
        or hasattr(data, "__arrow_c_stream__")
        or hasattr(data, "__arrow_c_array__")
    )


def ingest(data: Any, *, index: bool | None = None, options: IngestOptions = AS_USUAL) -> Ingested:
    """Return tabular data of any kind as an Arrow table and its facts for pandas."""
    data = framed(data)
    check_no_objects(data, "the data")
    if isinstance(data, pd.DataFrame):
        attrs = checked_attrs(data.attrs)
        table, frame = from_frame(data, index, options.nan is not Nan.VALUE, options.objects)
        return Ingested(table, len(data), frame, attrs, keeps_index=index is True)
    if isinstance(data, pa.Table):
        return _from_arrow(data, data.num_rows)
    if isinstance(data, pa.RecordBatch):
        # A table made from a batch without columns has no rows.
        return _from_arrow(pa.Table.from_batches([data]), data.num_rows)
    if hasattr(data, "__arrow_c_stream__"):
        return _from_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        try:
            batch = pa.record_batch(data)
        except pa.ArrowInvalid as error:
            raise _not_a_table(data, error) from None
        return _from_arrow(pa.Table.from_batches([batch]), batch.num_rows)
    if isinstance(data, np.ndarray):
        return _from_mapping(foreign.structured.fields_of(data), options)
    if are_rows(data):
        # Rows without any name are no columns, and rows all the same.
        return replace(_from_mapping(columns_of(data), options), rows=len(data))
    if is_row(data):
        raise refuse_row(data)
    if isinstance(data, Mapping):
        return _from_mapping(data, options)
    raise TypeError(f"expected {ACCEPTED}; found {type(data).__name__}")


def _from_arrow(table: pa.Table, rows: int) -> Ingested:
    frame, attrs = from_metadata(table.schema, rows)
    if frame is not None:
        frame = without_false_kinds(frame, table)
    return Ingested(table, rows, frame, attrs)


def _not_a_table(data: Any, error: Exception) -> SchemaError:
    if hasattr(data, "columns"):
        return SchemaError(
            f"the data: Arrow does not take this {type(data).__name__} ({error}); cast the column "
            "of this type, or leave it out"
        )
    return SchemaError(
        f"the data: expected a table, found {type(data).__name__} ({error}); "
        'pass one column as {"name": data}'
    )


def reader_of(data: Any) -> pa.RecordBatchReader:
    """Return a reader of anything with `__arrow_c_stream__`; return a reader unchanged."""
    if isinstance(data, pa.RecordBatchReader):
        # A capsule would lose the exceptions of a Python iterator below it.
        return data
    try:
        return pa.RecordBatchReader.from_stream(data)
    except pa.ArrowInvalid as error:
        raise _not_a_table(data, error) from None


def _from_stream(data: Any) -> Ingested:
    reader = reader_of(data)
    batches = list(reader)
    table = pa.Table.from_batches(batches, schema=reader.schema)
    return _from_arrow(table, sum(batch.num_rows for batch in batches))


def _from_mapping(data: Mapping[str, Any], options: IngestOptions) -> Ingested:
    fields, arrays, casts = [], [], {}
    for name, values in data.items():
        if not isinstance(name, str):
            raise SchemaError(f"a column name must be str; found {name!r:.60}")
        check_text(name, f"column {name!r}")
        array, descriptor = encoded(values, f"column {name!r}", options)
        fields.append(described(pa.field(str(name), array.type), descriptor))
        arrays.append(array)
        casts[name] = cast_of(values, array.type)
    if len(set(map(len, arrays))) > 1:
        lengths = {field.name: len(array) for field, array in zip(fields, arrays, strict=True)}
        raise SchemaError(
            "columns of different lengths: expected one length for all columns, "
            f"found {lengths!r:.500}"
        )
    table = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
    return Ingested(table, table.num_rows, None, {}, casts)


def encoded(values: Any, context: str, options: IngestOptions = AS_USUAL) -> dtypes.Encoded:
    """Return the values of one column as Arrow, with a descriptor if pandas has more facts."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values, None
    is_arrow = hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__")
    nan_as_null = options.nan is Nan.NULL and not is_arrow
    if isinstance(values, pd.Series | pd.Index | pd.api.extensions.ExtensionArray):
        values, nan_as_null = getattr(values, "array", values), options.nan is not Nan.VALUE
    if isinstance(values, np.ndarray):
        return numpy_arrays.encode(values, context, nan_as_null, options.objects)
    if isinstance(values, pd.api.extensions.ExtensionArray):
        return dtypes.encode(values, context, nan_as_null, options.objects)
    if is_value(values):
        raise SchemaError(f"{context}: expected an array, found {type(values).__name__}")
    check_no_objects(values, context)
    return foreign.python_values.encode(values, context, nan_as_null, options.objects)


def cast_of(values: Any, type_: pa.DataType) -> Cast:
    """Return the cast for values, given their Arrow type: it rounds only floats of Python.

    These have no width. Values that have one of numpy's floats among them are not rounded.
    """
    if isinstance(values, Mapping):
        values = list(values.values())
    if isinstance(values, list | tuple):
        if not has_floats(type_) or foreign.python_values.have_dtype(values):
            return cast_exactly
        return partial(cast_rounded, largest=foreign.python_values.largest_integer(values, type_))
    is_float = isinstance(values, float) and not isinstance(values, np.generic)
    return cast_rounded if is_float else cast_exactly


def cast_for(descriptor: Descriptor | None, cast: Cast) -> Cast:
    """Return the cast of a column of data: it rounds floats of Python among Python objects too."""
    return cast_rounded if are_bare(descriptor) else cast


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
