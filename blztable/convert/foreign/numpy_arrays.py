"""Numpy arrays: an array as a column, and a column as an array.

Knows nothing of tables. Values stay what they are, or the array is refused: foreign byte order
becomes native, masked values become null, and times get the nearest unit that Arrow has, if that
changes none. The first dimension of an array are the rows. Numbers of two dimensions are lists of a
fixed size, those of more are tensors; a structured dtype is a struct.
"""

import contextlib
from math import prod

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.types import REFUSALS, is_number, is_view, recoded, without_view
from blztable.convert.arrays import arrow_array, whole
from blztable.convert.frames import dtypes
from blztable.convert.frames.text import check_text
from blztable.errors import SchemaError

# The units of Arrow, and for the others the nearest one that holds them.
_UNITS = {unit: unit for unit in ("s", "ms", "us", "ns")}
_UNITS |= dict.fromkeys(("W", "D", "h", "m"), "s") | dict.fromkeys(("ps", "fs", "as"), "ns")
# Units of dates, which have no time of the day.
_DAYS = ("Y", "M", "W", "D")
_INT32 = np.iinfo(np.int32)


def encode(
    values: np.ndarray, context: str, nan_as_null: bool, choice: str = "infer"
) -> dtypes.Encoded:
    """Return an array as an Arrow column, with a descriptor for some object arrays."""
    dtype = values.dtype
    if values.ndim == 0:
        raise SchemaError(
            f"{context}: expected one value per row, found an array without dimensions; for a "
            "single row pass [value]"
        )
    if values.ndim > 1:
        inner = _bare(values.reshape(-1), context, nan_as_null, choice)
        return _tensors(inner, values.shape), None
    if dtype.names is not None:
        fields = [_bare(values[name], context, nan_as_null, choice) for name in dtype.names]
        if not fields:
            return pa.array([{}] * len(values), pa.struct([])), None
        return pa.StructArray.from_arrays(fields, dtype.names), None
    if isinstance(values, np.ma.MaskedArray):
        return _masked(values, context, nan_as_null, choice)
    if not dtype.isnative:
        values = values.astype(dtype.newbyteorder("="))
    match dtype.kind:
        case "i" | "u" | "f" | "c" | "b" | "O":
            return dtypes.encode(values, context, nan_as_null, choice)
        case "M" | "m":
            return _times(values, context), None
        case "V":
            data = np.ascontiguousarray(values).view(np.uint8)
            type_ = pa.binary(dtype.itemsize)
            return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(data)], 0), None
        case "S" | "U":
            # Arrow would end a value at its first zero.
            objects = values.tolist() or values
            try:
                return arrow_array(objects, context), None
            except SchemaError:
                for row, value in enumerate(objects):
                    check_text(value, f"{context}, row {row}")
                raise
    return arrow_array(values, context), None


def decode(array: pa.Array, context: str) -> np.ndarray:
    """Return a column as an array, over its own memory if that holds numbers without nulls.

    Lists of a fixed size, and tensors, are further dimensions, if none of them is null.
    """
    type_ = array.type
    if isinstance(type_, pa.FixedShapeTensorType) and not array.null_count:
        rows = _in_rows(array.storage, context).reshape(len(array), *type_.shape)
        order = type_.permutation
        return rows if order is None else rows.transpose(0, *(1 + axis for axis in order))
    if pa.types.is_fixed_size_list(type_) and not array.null_count:
        return _in_rows(array, context)
    if is_number(type_) and array.null_count == 0 and len(array):
        buffer, dtype = array.buffers()[1], np.dtype(type_.to_pandas_dtype())
        return np.frombuffer(buffer, dtype, len(array), array.offset * dtype.itemsize)
    if pa.types.is_dictionary(type_) and is_view(type_.value_type):
        # Arrow has no kernel that takes views out of a dictionary.
        plain = pa.dictionary(type_.index_type, without_view(type_.value_type))
        array = recoded(array, plain)
    try:
        return array.to_numpy(zero_copy_only=False)
    except (*REFUSALS, ArithmeticError, ValueError) as error:
        raise SchemaError(
            f"{context}: numpy has no type for {type_}: {error}; use to_arrow()"
        ) from None


def _bare(values: np.ndarray, context: str, nan_as_null: bool, choice: str) -> pa.Array:
    """Return the values of a nested column; SchemaError if Arrow's types do not say all of them."""
    array, descriptor = encode(values, context, nan_as_null, choice)
    if descriptor is not None:
        raise SchemaError(
            f"{context}: values of {values.dtype} cannot be stored with several in a row; pass "
            "array[:, 0], array[:, 1], ... or each field as a column of its own"
        )
    return whole(array) if isinstance(array, pa.ChunkedArray) else array


def _tensors(inner: pa.Array, shape: tuple[int, ...]) -> pa.Array:
    """Return values as rows of this shape; its first number is that of the rows."""
    rows, sizes = shape[0], shape[1:]
    if len(sizes) > 1 and is_number(inner.type) and 0 not in sizes:
        type_ = pa.fixed_shape_tensor(inner.type, sizes)
        return pa.ExtensionArray.from_storage(type_, _tensors(inner, (rows, prod(sizes))))
    for level in range(len(sizes), 0, -1):
        type_ = pa.list_(inner.type, sizes[level - 1])
        inner = pa.Array.from_buffers(type_, prod(shape[:level]), [None], children=[inner])
    return inner


def _in_rows(array: pa.FixedSizeListArray, context: str) -> np.ndarray:
    """Return lists without nulls as rows of an array."""
    rows, size = len(array), array.type.list_size
    items = decode(array.values[array.offset * size : (array.offset + rows) * size], context)
    return items.reshape(rows, size, *items.shape[1:])


def _masked(
    values: np.ma.MaskedArray, context: str, nan_as_null: bool, choice: str
) -> dtypes.Encoded:
    """Return an array with null for each masked value, whatever is below the mask."""
    mask, data = np.ma.getmaskarray(values), np.array(values.data)
    data[mask] = None if data.dtype == object else np.zeros(1, data.dtype)[0]
    array, descriptor = encode(data, context, nan_as_null, choice)
    if mask.any():
        array = pc.if_else(pa.array(~mask), array, pa.scalar(None, array.type))
    return array, descriptor


def _times(values: np.ndarray, context: str) -> pa.Array:
    """Return dates, times or durations of any unit in a unit of Arrow."""
    kind = values.dtype.kind
    unit, _ = np.datetime_data(values.dtype)
    is_date = kind == "M" and unit in _DAYS
    nearest = "D" if is_date else _UNITS.get(unit)
    if unit == "generic":
        raise SchemaError(
            f'{context}: {values.dtype} has no unit; choose one, array.astype("{kind}8[ns]")'
        )
    if nearest is None:
        raise SchemaError(
            f"{context}: {values.dtype} has no fixed length; for the average length of a year or "
            'a month use array.astype("m8[D]")'
        )
    near = _cast(values, np.dtype(f"{kind}8[{nearest}]"))
    changed = (near.astype(values.dtype) != values) & ~np.isnat(values)
    if is_date:
        days = near.view(np.int64)
        changed |= ((days < _INT32.min) | (days > _INT32.max)) & ~np.isnat(values)
    if changed.any():
        row = int(np.argmax(changed))
        other = "s" if is_date else nearest
        raise SchemaError(
            f"{context}, row {row}: {values[row]} of {values.dtype} cannot be stored in "
            f"{nearest} without change; use array.astype({f'{kind}8[{other}]'!r}), which changes "
            "what does not fit, or array.astype(np.int64)"
        )
    if is_date:
        return pa.array(near)
    array, _ = dtypes.encode(near, context)
    assert isinstance(array, pa.Array)
    return array


def _cast(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return times in another unit; one that does not fit has another value, or none."""
    try:
        return values.astype(dtype)
    except OverflowError:  # Since numpy 2.5; numpy before it wraps.
        near = np.full(values.shape, "NaT", dtype)
        for row, value in enumerate(values):
            with contextlib.suppress(OverflowError):
                near[row] = value.astype(dtype)
        return near
