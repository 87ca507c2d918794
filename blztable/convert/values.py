"""Values: what users give for one column, a value for all of its rows or one for each.

Knows how each comes in, nothing of the column they are for: `fit` knows that.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from blztable.convert.frames.descriptor import Descriptor
from blztable.convert.frames.text import check_text
from blztable.convert.gateway import arrow_array, encoded
from blztable.errors import SchemaError

# Of the kinds that pandas knows more of than Arrow.
_OF_PANDAS = pd.Timestamp | pd.Timedelta | pd.Period | pd.Interval
# Values that have a length.
_WHOLE = (str, bytes, bytearray, memoryview, Mapping)


def values_of(
    values: Any, place: str
) -> tuple[pa.Array | pa.ChunkedArray | pa.Scalar, Descriptor | None]:
    """One value as a scalar, else an array; with the descriptor a frame's column would have.

    A Series goes by position, whatever its index. A NaN is a number, None and pandas' others are
    nulls.

    Raises
    ------
    SchemaError
        What is no value and no array that can be stored; `place` begins the message.
    """
    if isinstance(values, pa.Scalar):
        return values, None
    if isinstance(values, pd.DataFrame | pa.Table | pa.RecordBatch):
        raise SchemaError(f"{place}: expected one column, found a {type(values).__name__}")
    if isinstance(values, np.ndarray) and values.ndim == 0:
        values = values[()]
    if _is_one(values):
        array, descriptor = _of_one(values, place)
        return array[0], descriptor
    if isinstance(values, set | frozenset):
        raise SchemaError(f"{place}: the values of a {type(values).__name__} have no order")
    return encoded(values, place)


def _is_one(values: Any) -> bool:
    is_arrow = hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__")
    return isinstance(values, _WHOLE) or not (is_arrow or hasattr(values, "__len__"))


def _of_one(value: Any, place: str) -> tuple[pa.Array | pa.ChunkedArray, Descriptor | None]:
    """The value as an array of one."""
    if value is pd.NA or value is pd.NaT:
        return pa.nulls(1), None
    if isinstance(value, _OF_PANDAS):
        return encoded(pd.Series([value]), place)
    check_text(value, place)
    return arrow_array([value], place), None
