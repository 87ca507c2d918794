"""Values: data for one column, one value for all rows or one value per row.

Knows how each kind is read, nothing of the column; `coerce_column` knows that.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from blztable.arrow.casts import cast_exactly
from blztable.arrow.nested.casts import Cast
from blztable.convert.arrays import UNSUITABLE
from blztable.convert.frames.descriptor import Descriptor
from blztable.convert.frames.text import check_text
from blztable.convert.gateway import AS_USUAL, IngestOptions, cast_of, encoded
from blztable.errors import SchemaError

# pandas keeps more of these than Arrow would.
_OF_PANDAS = pd.Timestamp | pd.Timedelta | pd.Period | pd.Interval
# One value each, although they have a length.
_WHOLE = (str, bytes, bytearray, memoryview, Mapping, pa.MonthDayNano)


class GivenValues(NamedTuple):
    """Values for a column as an array, or one value for all of its rows as a scalar."""

    values: pa.Array | pa.ChunkedArray | pa.Scalar
    # Of a pandas dtype.
    descriptor: Descriptor | None = None
    cast: Cast = cast_exactly


def values_of(values: Any, context: str, options: IngestOptions = AS_USUAL) -> GivenValues:
    """Return values as an array, or one value as a scalar; with the descriptor of a pandas dtype.

    The index of a Series is ignored. None, pd.NA and pd.NaT are nulls, and NaN as `options` says.

    Raises
    ------
    SchemaError
        The values cannot be stored; `context` begins the message.
    """
    if isinstance(values, pa.Scalar):
        return GivenValues(values)
    if isinstance(values, pd.DataFrame | pa.Table | pa.RecordBatch):
        raise SchemaError(f"{context}: expected one column, found a {type(values).__name__}")
    if isinstance(values, np.ndarray) and values.ndim == 0:
        values = values[()]
    is_set = isinstance(values, set | frozenset)
    if _is_one(values) or (is_set and options.has_sets):
        return _of_one(values, context, options)
    if is_set:
        raise SchemaError(
            f"{context}: the values of a {type(values).__name__} have no order; pass a list"
        )
    array, descriptor = encoded(values, context, options)
    return GivenValues(array, descriptor, cast_of(values, array.type))


def nested_value(
    value: Any, type_: pa.DataType, context: str, options: IngestOptions, are_objects: bool
) -> GivenValues:
    """Return one value of a column of a nested type, such as a list; raises as `values_of` does.

    `are_objects` says that the column holds objects of Python.
    """
    if isinstance(value, pa.Scalar):
        return GivenValues(value)
    if are_objects:
        objects = np.empty(1, object)
        objects[0] = value
        array, descriptor = encoded(objects, context, options)
    elif pa.types.is_map(type_) and not (value is None or value is pd.NA):
        return GivenValues(_map(value, type_, context))
    elif isinstance(value, np.ndarray):
        array, descriptor = encoded(value[np.newaxis], context, options)
    else:
        return _of_one(value, context, options)
    return GivenValues(array[0], descriptor)


def _map(value: Any, type_: pa.MapType, context: str) -> pa.Scalar:
    """Return a mapping, or pairs of keys and values, as a map."""
    try:
        pairs = list(value.items() if isinstance(value, Mapping) else value)
        scalar = pa.scalar(pairs, type_)
    except UNSUITABLE as error:
        raise SchemaError(f"{context}: expected a value of {type_} ({error})") from None
    if scalar.as_py() != [tuple(pair) for pair in pairs]:
        # Arrow drops the keys that a struct lacks.
        raise SchemaError(f"{context}: {type_} would change {value!r:.100}; pass a pyarrow scalar")
    return scalar


def _is_one(values: Any) -> bool:
    is_arrow = hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__")
    return isinstance(values, _WHOLE) or not (is_arrow or hasattr(values, "__len__"))


def _of_one(value: Any, context: str, options: IngestOptions) -> GivenValues:
    """Return one value as a scalar."""
    if value is pd.NA or value is pd.NaT:
        return GivenValues(pa.nulls(1)[0])
    if isinstance(value, _OF_PANDAS):
        array, descriptor = encoded(pd.Series([value]), context)
        return GivenValues(array[0], descriptor)
    check_text(value, context)
    try:
        array, descriptor = encoded([value], context, options)
        return GivenValues(array[0], descriptor, cast_of([value], array.type))
    except SchemaError as error:
        raise SchemaError(str(error).replace(f"{context}, row 0:", f"{context}:", 1)) from None
