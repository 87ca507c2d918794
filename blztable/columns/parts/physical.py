"""The physical form of a type: which streams it has, how wide a value is, how its words are made.

A word is a 64-bit integer that compares as the value does (`format/bounds.py`). Knows nothing of
encodings.
"""

import enum
import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from blztable.arrow.nested.nodes import NESTED
from blztable.arrow.types import bytes_of, mask_of, numbers_in, stored_type
from blztable.errors import FormatError
from blztable.format.bounds import Order, words_of_floats, words_of_integers
from blztable.format.records import WORD, Array

# The numpy types of the types whose values numpy can view and order.
NUMPY_TYPES = {
    pa.lib.Type_INT8: "<i1",
    pa.lib.Type_INT16: "<i2",
    pa.lib.Type_INT32: "<i4",
    pa.lib.Type_INT64: "<i8",
    pa.lib.Type_UINT8: "<u1",
    pa.lib.Type_UINT16: "<u2",
    pa.lib.Type_UINT32: "<u4",
    pa.lib.Type_UINT64: "<u8",
    pa.lib.Type_HALF_FLOAT: "<f2",
    pa.lib.Type_FLOAT: "<f4",
    pa.lib.Type_DOUBLE: "<f8",
    pa.lib.Type_DECIMAL32: "<i4",
    pa.lib.Type_DECIMAL64: "<i8",
    pa.lib.Type_DATE32: "<i4",
    pa.lib.Type_DATE64: "<i8",
    pa.lib.Type_TIME32: "<i4",
    pa.lib.Type_TIME64: "<i8",
    pa.lib.Type_TIMESTAMP: "<i8",
    pa.lib.Type_DURATION: "<i8",
}


class Form(enum.Enum):
    """What the values of a type are."""

    SIGNED = "integers, dates, times, timestamps, durations, decimals of at most 64 bits"
    UNSIGNED = "unsigned integers"
    FLOAT = "floats"
    BOOL = "one byte a row, 0 or 1"
    WIDE = "decimals of 128 and 256 bits"
    OPAQUE = "bytes of one width without an order of their own"
    BYTES = "text and binary: lengths and bytes"
    ITEMS = "lists, maps and runs: lengths; the items are rows of a child"
    NOTHING = "no values: structs and nulls"


ORDERS = {
    Form.SIGNED: Order.NUMBER,
    Form.UNSIGNED: Order.NUMBER,
    Form.BOOL: Order.NUMBER,
    Form.FLOAT: Order.FLOAT,
    Form.WIDE: Order.WIDE,
    Form.BYTES: Order.TEXT,
}
# Types whose values are bytes behind offsets, by the width of an offset.
_BYTES = {
    pa.lib.Type_STRING: 4,
    pa.lib.Type_BINARY: 4,
    pa.lib.Type_LARGE_STRING: 8,
    pa.lib.Type_LARGE_BINARY: 8,
}
_TEXT = {pa.lib.Type_STRING, pa.lib.Type_LARGE_STRING}
# What the values of a part are, beside the texts of numpy dtypes.
STR, BYTES, LENGTHS = "str", "bytes", "lengths"
_TYPES_OF_ITEMS = {STR: pa.large_string(), BYTES: pa.large_binary()}
_DTYPE = re.compile(
    r"\|[iu]1|<[iu][248]|<f[248]|\|b1|\|V\d{1,9}|<M8\[(?:s|ms|us|ns)\]|<m8\[(?:s|ms|us|ns)\]"
)


@dataclass(frozen=True)
class Physical:
    """The form of a stored type. `width` is the bytes of a value, or of an offset of items."""

    form: Form
    width: int
    dtype: np.dtype[np.generic] | None = None
    is_text: bool = False

    @property
    def order(self) -> Order | None:
        """Return how its values are compared; None if they are not."""
        return ORDERS.get(self.form)


@lru_cache(maxsize=256)
def physical(type_: pa.DataType) -> Physical:
    """Return the form of a flat type, or of the node of a nested one without its children."""
    stored = stored_type(type_)
    if stored.id in NUMPY_TYPES:
        dtype = np.dtype(NUMPY_TYPES[stored.id])
        forms = {"i": Form.SIGNED, "u": Form.UNSIGNED, "f": Form.FLOAT}
        return Physical(forms[dtype.kind], dtype.itemsize, dtype)
    if pa.types.is_boolean(stored):
        return Physical(Form.BOOL, 1, np.dtype("u1"))
    if pa.types.is_decimal(stored):
        return Physical(Form.WIDE, stored.bit_width // 8)
    if stored.id in _BYTES:
        return Physical(Form.BYTES, _BYTES[stored.id], is_text=stored.id in _TEXT)
    if pa.types.is_list(stored) or pa.types.is_large_list(stored):
        return Physical(Form.ITEMS, 8 if pa.types.is_large_list(stored) else 4)
    if pa.types.is_null(stored) or stored.id in NESTED:
        return Physical(Form.NOTHING, 0)
    return Physical(Form.OPAQUE, stored.bit_width // 8)


@lru_cache(maxsize=256)
@lru_cache(maxsize=256)
def dtype_text(type_: pa.DataType) -> str:
    """Return what the values of a node are, for readers of its data file alone.

    The text of a numpy dtype, `str` or `bytes`, `lengths` of items in a child, or nothing. A
    dictionary has those of its values, or of its codes if the values are nested.
    """
    if pa.types.is_dictionary(type_):
        is_nested = pa.types.is_nested(type_.value_type)
        return dtype_text(type_.index_type if is_nested else type_.value_type)
    if pa.types.is_nested(type_):
        if pa.types.is_union(type_):
            return "|i1"
        is_row = pa.types.is_struct(type_) or pa.types.is_fixed_size_list(type_)
        return "" if is_row else LENGTHS
    form = physical(type_)
    if form.form is Form.BYTES:
        return STR if form.is_text else BYTES
    if form.form is Form.NOTHING:
        return ""
    if pa.types.is_timestamp(type_) or pa.types.is_duration(type_):
        return f"<{'M' if pa.types.is_timestamp(type_) else 'm'}8[{type_.unit}]"
    if pa.types.is_date64(type_):
        return "<M8[ms]"
    if form.form is Form.BOOL:
        return "|b1"
    return f"|V{form.width}" if form.dtype is None else form.dtype.str


def type_of_text(text: str) -> pa.DataType:
    """Return the type that values of a part are read as, by their text; FormatError for another.

    Wide decimals are `|V` too.
    """
    if text in _TYPES_OF_ITEMS:
        return _TYPES_OF_ITEMS[text]
    if not _DTYPE.fullmatch(text):
        raise FormatError(f"values of the kind {text[:40]!r}")
    if text.startswith("|V"):
        return pa.binary(int(text[2:]))
    return pa.from_numpy_dtype(np.dtype(text))


def validity_of(array: pa.Array) -> Array | None:
    """Return which rows have a value, a boolean a row; None if all have."""
    return None if array.null_count == 0 else mask_of(array)


def values_of(array: pa.Array, form: Physical) -> Array:
    """Return the values of an array of fixed width: numbers, or rows of bytes."""
    if form.form is Form.BOOL:
        bits = np.unpackbits(bytes_of(array.buffers()[1]), bitorder="little")
        return bits[array.offset : array.offset + len(array)]
    if form.dtype is not None:
        return numbers_in(array.buffers()[1], form.dtype.str, array.offset, len(array))
    size = len(array) * form.width
    first = array.offset * form.width
    return bytes_of(array.buffers()[1])[first : first + size].reshape(len(array), form.width)


def words_of(values: Array, form: Physical) -> Array:
    """Return the word of each number or boolean."""
    if form.form is Form.FLOAT:
        with np.errstate(invalid="ignore"):  # a signalling NaN, which has no order
            return words_of_floats(values.astype("<f8"))
    return words_of_integers(values)


def upper_words(values: Array, form: Physical) -> Array:
    """Return a word of each wide decimal that bounds it: its upper 64 bits."""
    return np.ascontiguousarray(values).view(WORD).reshape(len(values), form.width // 8)[:, -1]
