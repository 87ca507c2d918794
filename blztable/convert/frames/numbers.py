"""Numbers: integers, floats, complex numbers and booleans of numpy, and pandas' nullable dtypes.

Knows nothing of other dtypes. numpy's numbers need no descriptor. The caller says whether a NaN of
numpy is a null; in a nullable dtype only a masked row is one. A complex number is a struct of its
parts.
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
COMPLEX = (np.dtype(np.complex64), np.dtype(np.complex128))
# A float64 holds each integer up to this one.
FLOAT_INTEGERS = 1 << 53
DTYPES = {type_: dtype for dtype, type_ in PLAIN.items()}


def encode_plain(values: np.ndarray, nan_as_null: bool = False) -> pa.Array:
    """Return a numpy array of numbers as Arrow, without a copy if it is contiguous."""
    missing = np.isnan(values) if nan_as_null and has_nan(values) else None
    return from_values(values, missing, PLAIN[values.dtype])


def has_nan(values: np.ndarray) -> bool:
    """True if a number is NaN."""
    if values.dtype.kind != "f" or not len(values):
        return False
    with np.errstate(invalid="ignore"):
        # Finding the least number takes less time than looking at each, and no memory.
        return bool(np.isnan(values.min()))


def decode_integers(column: pa.ChunkedArray) -> np.ndarray | PandasArray:
    """Return integers; with nulls, float64 with NaN, as pandas does.

    Return a nullable array if a number is too large for a float64.
    """
    array = whole(column)
    values = values_of(array, DTYPES[array.type])
    missing = missing_of(array)
    if missing is None:
        return values
    values[missing] = 0
    if max(-int(values.min()), int(values.max())) > FLOAT_INTEGERS:
        return pd.arrays.IntegerArray(values, missing, copy=False)
    floats = values.astype(np.float64)
    floats[missing] = np.nan
    return floats


def decode_floats(column: pa.ChunkedArray) -> np.ndarray:
    """Return floats; set nulls to NaN in place."""
    array = whole(column)
    values = values_of(array, DTYPES[array.type])
    missing = missing_of(array)
    if missing is not None:
        values[missing] = np.nan
    return values


def decode_booleans(column: pa.ChunkedArray) -> np.ndarray:
    """Return booleans; with nulls, objects with None, as pandas does."""
    array = whole(column)
    values = booleans_of(array)
    missing = missing_of(array)
    if missing is None:
        return values
    objects = values.astype(object)
    objects[missing] = None
    return objects


def encode_complex(values: np.ndarray, nan_as_null: bool) -> tuple[pa.Array, Descriptor]:
    """Return complex numbers; null is the NaN that pandas makes of a missing value."""
    missing = np.isnan(values.real) & (values.imag == 0) & ~np.signbit(values.imag)
    return complex_array(values, missing if nan_as_null else None), {"dtype": "complex"}


def decode_complex(column: pa.ChunkedArray, descriptor: Descriptor) -> np.ndarray:
    """Return complex numbers from structs of their parts."""
    expect_keys(descriptor, ["dtype"])
    if not is_complex(column.type):
        raise FormatError(f"expected the parts of complex numbers, found {column.type!s:.200}")
    array = whole(column)
    values, missing = complex_values(array), missing_of(array)
    if missing is not None:
        values[missing] = np.nan
    return values


def complex_array(values: np.ndarray, missing: np.ndarray | None) -> pa.Array:
    """Return complex numbers as structs of their parts."""
    parts = [np.ascontiguousarray(part) for part in (values.real, values.imag)]
    arrays = [from_values(part, missing, PLAIN[part.dtype]) for part in parts]
    mask = None if missing is None or not missing.any() else pa.array(missing)
    return pa.StructArray.from_arrays(arrays, ["real", "imag"], mask=mask)


def complex_values(array: pa.Array) -> np.ndarray:
    """Return complex numbers from structs; a missing part is NaN, a null row undefined."""
    parts = [decode_floats(pa.chunked_array([array.field(index)])) for index in (0, 1)]
    result = np.empty(len(array), np.result_type(parts[0], np.complex64))
    result.real, result.imag = parts
    return result


def is_complex(type_: pa.DataType) -> bool:
    """True for structs of the parts of complex numbers."""
    return any(
        type_.equals(pa.struct([("real", part), ("imag", part)]))
        for part in (pa.float32(), pa.float64())
    )


def encode_masked(values: PandasArray) -> tuple[pa.Array, Descriptor]:
    """Return the values and the mask of a nullable array as Arrow."""
    data, mask = values._data, values._mask
    return from_values(data, mask, PLAIN[data.dtype]), {"dtype": "masked"}


def decode_masked(column: pa.ChunkedArray, descriptor: Descriptor) -> PandasArray:
    """Return the nullable array of pandas with the width of the Arrow type."""
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
    raise FormatError(f"pandas has no nullable dtype for {array.type}")
