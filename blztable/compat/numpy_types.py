"""Dtypes that files of other programs name: text to numpy, and arrays of numpy to Arrow.

A text becomes a dtype only if a pattern of this file allows it. Knows nothing of files.
"""

import re

import numpy as np
import pyarrow as pa

from blztable.convert.arrays import whole
from blztable.convert.foreign.numpy_arrays import encode
from blztable.errors import BlzError, CorruptError, FormatError, SchemaError

# Most bytes of a value: the width of text and bytes.
WIDTH_MAX = 1 << 28

_NAMED = {
    name: np.dtype(name)
    for name in (
        *("bool", "float16", "float32", "float64"),
        *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    )
}
_SIZED = re.compile(r"([<>|=]?)([biufSUV])([1-9][0-9]{0,8})", re.ASCII)
_SIZES = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8)}
# Years and months are no length of time.
_UNITS = {"M": "Y|M|W|D|h|m|s|ms|us|ns", "m": "W|D|h|m|s|ms|us|ns"}
_TIMES = re.compile(
    rf"([<>=]?)(?:(?:M8|datetime64)\[({_UNITS['M']})\]|(?:m8|timedelta64)\[({_UNITS['m']})\])",
    re.ASCII,
)
_OBJECTS = {"object", "O", "|O", "|O4", "|O8"}
# Above it, and between these, a number is no character.
_LAST_CHARACTER = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)


def dtype_of(text: object, context: str) -> np.dtype:
    """Return the dtype that a file names.

    Raises
    ------
    FormatError
        The values are pickles, which are programs, or the dtype is not one that can be read.
    """
    if isinstance(text, str):
        if text in _OBJECTS:
            raise FormatError(
                f"{context} holds pickled objects of Python, which are never read, because a "
                "pickle can run any program; convert them with the program that wrote them"
            )
        if text in _NAMED:
            return _NAMED[text]
        if found := _SIZED.fullmatch(text):
            order, kind, size = found[1], found[2], int(found[3])
            is_known = size in _SIZES[kind] if kind in _SIZES else size <= WIDTH_MAX // 4
            if is_known:
                return np.dtype(f"{order}{kind}{size}")
        if found := _TIMES.fullmatch(text):
            kind, unit = ("M", found[2]) if found[2] else ("m", found[3])
            return np.dtype(f"{found[1]}{kind}8[{unit}]")
    raise FormatError(f"{context} has the dtype {text!r:.100}, which cannot be read")


def arrow_type(dtype: np.dtype, inner: tuple[int, ...], context: str) -> pa.DataType:
    """Return the Arrow type of rows of this dtype, each an array of the shape `inner`."""
    return arrow_array(np.empty((0, *inner), dtype), context).type


def arrow_array(values: np.ndarray, context: str) -> pa.Array:
    """Return an array as an Arrow array: NaT is null, NaN stays; text loses zeros at its end.

    Raises
    ------
    CorruptError
        A number is no character.
    FormatError
        Arrow has no type for these values, or a time does not fit into it.
    """
    dtype = values.dtype
    if dtype.kind == "U":
        _check_characters(values, context)
    try:
        if dtype.kind in "SU" and values.ndim == 1 and values.size and not _has_zeros(values):
            return pa.array(values if dtype.isnative else values.astype(dtype.newbyteorder("=")))
        array, descriptor = encode(values, context, nan_as_null=False)
    except SchemaError as error:
        raise FormatError(str(error)) from None
    if descriptor is not None:
        raise FormatError(f"{context}: values of {dtype} cannot be read")
    return whole(array) if isinstance(array, pa.ChunkedArray) else array


def scalar_of(value: object, dtype: np.dtype, inner: tuple[int, ...]) -> pa.Scalar | None:
    """Return a value of JSON as one row; None if it is none, or null."""
    if value is None:
        return None
    row = np.zeros((1, *inner), dtype)
    try:
        is_count = dtype.kind in "Mm" and isinstance(value, int)
        row[...] = np.array(value, "i8").view(dtype.newbyteorder("=")) if is_count else value
        array = arrow_array(row, "the default")
        scalar = (array.storage if isinstance(array, pa.ExtensionArray) else array)[0]
    except (ValueError, TypeError, OverflowError, BlzError):
        return None
    return scalar if scalar.is_valid else None


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
    codes = _codes(values)
    if codes.size:
        first, last = _SURROGATES
        wrong = (codes > _LAST_CHARACTER) | ((codes >= first) & (codes <= last))
        if wrong.any():
            raise CorruptError(f"{context}: {int(codes[wrong][0]):#x} is no character")
