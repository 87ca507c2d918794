"""Structured arrays of numpy: their fields as columns, and the columns of a table as one array.

Knows nothing of how a single column is stored.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.types import is_binary, is_text, is_view, recoded, without_view
from blztable.convert.arrays import whole
from blztable.convert.foreign import numpy_arrays
from blztable.errors import SchemaError

# Raises if the machine cannot hold so many rows of so many bytes; the text says of what.
Check = Callable[[int, str, int], None]


def fields_of(array: np.ndarray) -> dict[str, np.ndarray]:
    """Return the fields of a structured array as columns; SchemaError for any other array."""
    dtype, names = array.dtype, array.dtype.names
    if names is None:
        remedy = '{"name": array}'
        if array.ndim == 2:
            remedy = "dict(zip(names, array.T)), with one name per column"
        raise SchemaError(
            f"the data: expected columns with names, found an array of shape {array.shape} and "
            f"dtype {dtype}; pass {remedy}"
        )
    if array.ndim != 1:
        raise SchemaError(
            "the data: expected a structured array of one dimension, found the shape "
            f"{array.shape}; pass array.reshape(-1)"
        )
    return {name: array[name] for name in names}


def structured_array(table: pa.Table, check: Check) -> np.ndarray:
    """Return the columns of a table as the fields of one array."""
    names = table.column_names
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise SchemaError(
            f"two columns are named {twice[0]!r}, and the names of fields are unique; select "
            "columns, or rename one"
        )
    columns = [
        _fixed(column, name, check) for name, column in zip(names, table.columns, strict=True)
    ]
    return _records(names, columns, table.num_rows, check)


def _records(names: list[str], columns: list[np.ndarray], rows: int, check: Check) -> np.ndarray:
    """Return columns as the fields of one array."""
    formats = [(values.dtype, values.shape[1:]) for values in columns]
    dtype = np.dtype({"names": names, "formats": formats})
    check(rows, "the array", dtype.itemsize)
    result = np.empty(rows, dtype)
    for name, values in zip(names, columns, strict=True):
        result[name] = values
    return result


def matrix(table: pa.Table, check: Check) -> np.ndarray:
    """Return the columns of a table as those of an array of two dimensions, in one dtype."""
    columns = [
        numpy_arrays.decode(whole(column), f"column {name!r}")
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    for name, values in zip(table.column_names, columns, strict=True):
        if values.ndim > 1:
            raise SchemaError(
                f"column {name!r} has values of shape {values.shape[1:]}, so it is not one column "
                "of an array; read it with table[name].to_numpy()"
            )
    try:
        dtype: Any = np.result_type(*columns) if columns else np.dtype(np.float64)
    except TypeError:
        # Such as dates beside numbers.
        dtype = np.dtype(object)
    check(table.num_rows, "the array", dtype.itemsize * len(columns))
    result = np.empty((table.num_rows, len(columns)), dtype)
    for index, values in enumerate(columns):
        result[:, index] = values
    return result


def _fixed(column: pa.ChunkedArray, name: str, check: Check) -> np.ndarray:
    """Return a column as an array; text and binary without nulls in values of one width."""
    context, array = f"column {name!r}", whole(column)
    if pa.types.is_dictionary(array.type):
        if is_view(array.type.value_type):
            plain = pa.dictionary(array.type.index_type, without_view(array.type.value_type))
            array = recoded(array, plain)
        array = array.dictionary_decode()
    type_ = array.type
    if pa.types.is_struct(type_) and not array.null_count:
        names = [field.name for field in type_]
        columns = [pa.chunked_array([values]) for values in array.flatten()]
        fields = zip(columns, names, strict=True)
        inner = [_fixed(column, f"{name}.{field}", check) for column, field in fields]
        return _records(names, inner, len(array), check)
    if is_view(type_):
        array = array.cast(without_view(type_))
    if not array.null_count and pa.types.is_fixed_size_binary(type_):
        width = type_.byte_width
        data = np.frombuffer(array.buffers()[1] or b"", np.uint8)
        first = array.offset * width
        return data[first : first + len(array) * width].view(f"V{width}")
    if array.null_count or not (is_text(type_) or is_binary(type_)):
        return numpy_arrays.decode(array, context)
    # numpy takes zeros at the end of a value for padding.
    if pc.any(pc.ends_with(array, "\0")).as_py():
        return numpy_arrays.decode(array, context)
    length, kind = (pc.utf8_length, "U") if is_text(type_) else (pc.binary_length, "S")
    width = max(pc.max(length(array)).as_py() or 0, 1)
    dtype = np.dtype(f"{kind}{width}")
    check(len(array), context, dtype.itemsize)
    return numpy_arrays.decode(array, context).astype(dtype)
