"""Numbers: integers, floats and booleans, plain as in numpy or masked as in pandas' nullables.

Plain ones need no descriptor. A NaN is a value and stays one, with its payload; only a masked row
is a null.
"""

import numpy as np
import pandas as pd
import pyarrow as pa

from blztable.convert.arrays import (
    PandasArray,
    booleans_of,
    from_values,
    missing_of,
    values_of,
    whole,
)
from blztable.convert.frames.descriptor import Descriptor, expect_keys
from blztable.errors import FormatError

PLAIN = {
    np.dtype(name): type_
    for name, type_ in {
        "bool": pa.bool_(),
        "int8": pa.int8(),
        "int16": pa.int16(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "uint8": pa.uint8(),
        "uint16": pa.uint16(),
        "uint32": pa.uint32(),
        "uint64": pa.uint64(),
        "float16": pa.float16(),
        "float32": pa.float32(),
        "float64": pa.float64(),
    }.items()
}
DTYPES = {type_: dtype for dtype, type_ in PLAIN.items()}


def encode_plain(values: np.ndarray) -> pa.Array:
    """A numpy array of numbers as it is, without a copy when it is contiguous."""
    return from_values(values, None, PLAIN[values.dtype])


def decode_integers(column: pa.ChunkedArray) -> np.ndarray:
    """Integers; float64 with NaN where there are nulls, as pandas does."""
    array = whole(column)
    values = values_of(array, DTYPES[array.type])
    missing = missing_of(array)
    if missing is None:
        return values
    floats = values.astype(np.float64)
    floats[missing] = np.nan
    return floats


def decode_floats(column: pa.ChunkedArray) -> np.ndarray:
    """Floats; a null becomes NaN in place."""
    array = whole(column)
    values = values_of(array, DTYPES[array.type])
    missing = missing_of(array)
    if missing is not None:
        values[missing] = np.nan
    return values


def decode_booleans(column: pa.ChunkedArray) -> np.ndarray:
    """Booleans, one byte a row; objects with None where there are nulls, as pandas does."""
    array = whole(column)
    values = booleans_of(array)
    missing = missing_of(array)
    if missing is None:
        return values
    objects = values.astype(object)
    objects[missing] = None
    return objects


def encode_masked(values: PandasArray) -> tuple[pa.Array, Descriptor]:
    """A nullable array of pandas: its values and its mask as Arrow keeps them."""
    data, mask = values._data, values._mask
    return from_values(data, mask, PLAIN[data.dtype]), {"dtype": "masked"}


def decode_masked(column: pa.ChunkedArray, descriptor: Descriptor) -> PandasArray:
    """The nullable array of pandas whose width the Arrow type says."""
    expect_keys(descriptor, ["dtype"])
    array = whole(column)
    missing = missing_of(array)
    if missing is None:
        missing = np.zeros(len(array), np.bool_)
    if pa.types.is_boolean(array.type):
        return pd.arrays.BooleanArray(booleans_of(array), missing, copy=False)
    if pa.types.is_integer(array.type):
        return pd.arrays.IntegerArray(values_of(array, DTYPES[array.type]), missing, copy=False)
    if array.type in (pa.float32(), pa.float64()):
        return pd.arrays.FloatingArray(values_of(array, DTYPES[array.type]), missing, copy=False)
    raise FormatError(f"no nullable dtype of pandas holds {array.type}")
