"""Arrow types: predicates for text, bytes, views and numbers, casts of dictionaries, and bits.

Knows nothing of columns, tables or pandas.
"""

import numpy as np
import pyarrow as pa

# A table and its number of rows, which a table without columns does not know.
Portion = tuple[pa.Table, int]
# Arrow has few kernels for views. Each has a large type of the same values.
LARGE_OF_VIEW = {
    pa.lib.Type_STRING_VIEW: pa.large_string(),
    pa.lib.Type_BINARY_VIEW: pa.large_binary(),
}
_LARGE = LARGE_OF_VIEW | {
    pa.lib.Type_STRING: pa.large_string(),
    pa.lib.Type_BINARY: pa.large_binary(),
}
_TEXT = {pa.lib.Type_STRING, pa.lib.Type_LARGE_STRING, pa.lib.Type_STRING_VIEW}
_BINARY = {pa.lib.Type_BINARY, pa.lib.Type_LARGE_BINARY, pa.lib.Type_BINARY_VIEW}


def is_text(type_: pa.DataType) -> bool:
    """True for string, large_string and string_view."""
    return type_.id in _TEXT


def is_binary(type_: pa.DataType) -> bool:
    """True for binary, large_binary and binary_view; not for fixed_size_binary."""
    return type_.id in _BINARY


def is_view(type_: pa.DataType) -> bool:
    """True for string_view and binary_view."""
    return type_.id in LARGE_OF_VIEW


def is_number(type_: pa.DataType) -> bool:
    """True for integers and floats; not for booleans and decimals."""
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_))


def without_view(type_: pa.DataType) -> pa.DataType:
    """Return the large type of a view; any other type unchanged."""
    return LARGE_OF_VIEW.get(type_.id, type_)


def large_type(type_: pa.DataType) -> pa.DataType:
    """Return the large type of any text or bytes; any other type unchanged."""
    return _LARGE.get(type_.id, type_)


def recoded(array: pa.DictionaryArray, type_: pa.DictionaryType) -> pa.DictionaryArray:
    """Return a dictionary array with the codes and the values cast to a dictionary type."""
    # Not safe: the codes of null rows may be anything.
    indices = array.indices.cast(type_.index_type, safe=False)
    values = array.dictionary
    if values.type != type_.value_type:
        values = values.cast(type_.value_type)
    return pa.DictionaryArray.from_arrays(indices, values, ordered=type_.ordered, safe=False)


def value_type(type_: pa.DataType) -> pa.DataType:
    """Return the type of a dictionary's values; any other type unchanged."""
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def bits_of(bitmap: np.ndarray, offset: int, rows: int) -> np.ndarray:
    """Return a byte, 0 or 1, for each of `rows` bits from `offset`."""
    first, skipped = divmod(offset, 8)
    return np.unpackbits(bitmap[first:], count=skipped + rows, bitorder="little")[skipped:]
