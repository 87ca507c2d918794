"""Dtypes that files of other programs name: text to numpy, and arrays of numpy to Arrow.

A text becomes a dtype only if a pattern of this file allows it. Knows nothing of files.
"""

import re
from typing import Any

import numpy as np
import pyarrow as pa

from blztable.arrays.files import dtypes
from blztable.convert.arrays import whole
from blztable.convert.foreign.numpy_arrays import encode
from blztable.errors import BlzError, CorruptError, FormatError, SchemaError

_OBJECTS = {"object", "O", "|O", "|O4", "|O8"}
# As numpy prints them; files of arrays have their short names.
_TIMES = re.compile(r"([<>=]?)(datetime|timedelta)64(\[\w{1,9}\])?", re.ASCII)
# Above it, and between these, a number is no character.
_LAST_CHARACTER = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)


def dtype_of(value: Any, context: str) -> np.dtype:
    """Return the dtype that a file names.

    Raises
    ------
    FormatError
        The values are pickles, which are programs, or the dtype is not one that can be read.
    """
    if isinstance(value, str):
        if value in _OBJECTS:
            raise FormatError(
                f"{context} holds pickled objects of Python, which are never read, because a "
                "pickle can run any program; convert them with the program that wrote them"
            )
        if match := _TIMES.fullmatch(value):
            value = f"{match[1]}{'M' if match[2] == 'datetime' else 'm'}8{match[3] or ''}"
    try:
        dtype = dtypes.dtype_of(value)
    except FormatError as error:
        raise FormatError(f"{context}: {error}") from None
    check_dtype(dtype, context)
    return dtype


def check_dtype(dtype: np.dtype, context: str) -> None:
    """Raise FormatError if Arrow has no type for the values of a dtype."""
    arrow_type(dtype, (), context)


def arrow_type(dtype: np.dtype, inner: tuple[int, ...], context: str) -> pa.DataType:
    """Return the Arrow type of rows of this dtype, each an array of the shape `inner`."""
    return arrow_array(np.empty((0, *inner), dtype), context).type


def arrow_array(values: np.ndarray, context: str) -> pa.Array:
    """Return an array as an Arrow array: NaT is null, NaN stays; text loses zeros at its end.

    A complex number is a struct of its parts, as in a table that is made from pandas.

    Raises
    ------
    CorruptError
        A number is no character.
    FormatError
        Arrow has no type for these values, or a time does not fit into it.
    """
    dtype = values.dtype
    _check_characters(values, context)
    descriptor = None
    try:
        if dtype.kind in "SU" and values.ndim == 1 and values.size and not _has_zeros(values):
            # Many times faster than `encode`, which makes an object of each value.
            array = pa.array(values.astype(dtype.newbyteorder("="), copy=False))
        else:
            parts = values.view(_with_parts(dtype))
            array, descriptor = encode(parts, context, nan_as_null=False)
        array = whole(array) if isinstance(array, pa.ChunkedArray) else array
    except SchemaError as error:
        raise FormatError(str(error)) from None
    if descriptor is not None:
        raise FormatError(f"{context}: values of {dtype} cannot be read")
    return array


def scalar_of(value: object, dtype: np.dtype, inner: tuple[int, ...]) -> pa.Scalar | None:
    """Return a value of JSON as one row; None if it is none, or null."""
    if value is None:
        return None
    row = np.zeros((1, *inner), dtype)
    try:
        is_count = dtype.kind in "Mm" and isinstance(value, int)
        # A number may not fit; the programs take what numpy makes of it.
        with np.errstate(all="ignore"):
            row[...] = np.array(value, "i8").view(dtype.newbyteorder("=")) if is_count else value
        array = arrow_array(row, "the default")
        scalar = (array.storage if isinstance(array, pa.ExtensionArray) else array)[0]
    except (ValueError, TypeError, OverflowError, BlzError):
        return None
    return scalar if scalar.is_valid else None


def _with_parts(dtype: np.dtype) -> np.dtype:
    """Return a dtype in which each complex number is a struct of its parts."""
    if dtype.kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}").newbyteorder(dtype.byteorder)
        return np.dtype([("real", part), ("imag", part)])
    if dtype.subdtype is not None:
        return np.dtype((_with_parts(dtype.subdtype[0]), dtype.subdtype[1]))
    if dtype.fields is None or dtype.names is None:
        return dtype
    parts = [dtype.fields[name] for name in dtype.names]
    return np.dtype(
        {
            "names": list(dtype.names),
            "formats": [_with_parts(part[0]) for part in parts],
            "offsets": [part[1] for part in parts],
            "itemsize": dtype.itemsize,
        }
    )


def _codes(values: np.ndarray) -> np.ndarray:
    """Return characters or bytes as numbers, a row for each value."""
    dtype = values.dtype
    numbers = np.dtype("u1") if dtype.kind == "S" else np.dtype("u4").newbyteorder(dtype.byteorder)
    return np.ascontiguousarray(values).reshape(-1, 1).view(numbers)


def _has_zeros(values: np.ndarray) -> bool:
    """True if a zero lies within a value: Arrow would end the value there."""
    is_zero = _codes(values) == 0
    return bool((is_zero[:, :-1] & ~is_zero[:, 1:]).any())


def _check_characters(values: np.ndarray, context: str) -> None:
    """Raise CorruptError if text, or text within structs, has a number that is no character."""
    for name in values.dtype.names or ():
        _check_characters(values[name], context)
    if values.dtype.kind == "U" and values.size:
        codes = _codes(values)
        first, last = _SURROGATES
        wrong = (codes > _LAST_CHARACTER) | ((codes >= first) & (codes <= last))
        if wrong.any():
            raise CorruptError(f"{context}: {int(codes[wrong][0]):#x} is no character")
