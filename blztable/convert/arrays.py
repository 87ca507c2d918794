"""Arrays: Arrow buffers as numpy arrays, and numpy arrays as Arrow buffers.

Knows nothing of pandas. An array is a view if its memory is writable, otherwise a copy.
"""

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from blztable.arrow.types import REFUSALS, bits_of, mask_of, nulls
from blztable.errors import SchemaError

# An extension array of pandas; the stubs lack some of its members.
PandasArray: TypeAlias = Any
# What Arrow raises for values of which it makes no array.
UNSUITABLE = (*REFUSALS, TypeError, ValueError, OverflowError, LookupError)


def from_values(values: np.ndarray, missing: np.ndarray | None, type_: pa.DataType) -> pa.Array:
    """Return an Arrow array over the memory of `values`, null where `missing` is True."""
    count = len(values)
    if missing is not None and not missing.any():
        missing = None
    if pa.types.is_boolean(type_):
        data = np.packbits(np.asarray(values, dtype=np.bool_), bitorder="little")
    else:
        # numpy exports no buffer of datetimes, only of their bytes.
        data = np.ascontiguousarray(values).view(np.uint8)
    if missing is None:
        return pa.Array.from_buffers(type_, count, [None, pa.py_buffer(data)], 0)
    validity = pa.py_buffer(np.packbits(~missing, bitorder="little"))
    nulls = int(np.count_nonzero(missing))
    return pa.Array.from_buffers(type_, count, [validity, pa.py_buffer(data)], nulls)


def arrow_array(values: Any, context: str, nan_as_null: bool = False) -> pa.Array | pa.ChunkedArray:
    """Return values as an Arrow array of the type that Arrow infers."""
    try:
        try:
            array = pa.array(values)
        except OverflowError:
            # Arrow infers no unsigned type.
            return pa.array(values, pa.uint64())
        is_float = nan_as_null and pa.types.is_floating(array.type)
        return pa.array(values, array.type, from_pandas=True) if is_float else array
    except UNSUITABLE as error:
        is_one = isinstance(values, np.ndarray) or len(values) == 1
        where = context if is_one else _first_unsuitable(values, context)
        raise SchemaError(f"{where}: {error}") from None


def _first_unsuitable(values: Any, context: str) -> str:
    """Return the context with the number of the first row that Arrow cannot take."""
    fine, wrong = 0, len(values)
    while wrong - fine > 1:
        middle = (fine + wrong) // 2
        try:
            pa.array(values[:middle])
            fine = middle
        except UNSUITABLE:
            wrong = middle
    return f"{context}, row {fine}"


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return all chunks as one array, without a copy of a single chunk."""
    match column.num_chunks:
        case 0:
            # Arrow cannot concatenate no chunks of some dictionaries.
            return nulls(0, column.type)
        case 1:
            return column.chunk(0)
        case _:
            return pa.concat_arrays(column.chunks)


def values_of(array: pa.Array, dtype: np.dtype) -> np.ndarray:
    """Return the fixed-width values of an array, writable; the value of a null is undefined."""
    buffer = array.buffers()[1]
    if len(array) == 0 or buffer is None:
        return np.zeros(len(array), dtype)
    view = np.frombuffer(buffer, dtype, len(array), array.offset * dtype.itemsize)
    return view if view.flags.writeable else view.copy()


def booleans_of(array: pa.Array) -> np.ndarray:
    """Return the values of a boolean array, one byte per row."""
    buffer = array.buffers()[1]
    if len(array) == 0 or buffer is None:
        return np.zeros(len(array), np.bool_)
    bits = bits_of(np.frombuffer(buffer, np.uint8), array.offset, len(array))
    return bits.view(np.bool_)


def missing_of(array: pa.Array) -> np.ndarray | None:
    """Return a mask that is True for each null row; None without nulls."""
    if array.null_count == 0:
        return None
    mask = mask_of(array)
    return np.ones(len(array), np.bool_) if mask is None else ~mask
