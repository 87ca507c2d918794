"""The types that can be stored, and how arrays of them are joined and taken from.

The types are a closed list. Another one is refused before anything is written. Knows nothing of
files.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from blztable.arrow.nested import assemble
from blztable.arrow.nested.nodes import (
    LARGE_LIST,
    LIST,
    STRUCT,
    Node,
    is_nested,
    is_nested_storable,
)
from blztable.arrow.types import as_stored, is_binary, is_text, nulls
from blztable.columns import dictionaries, joined
from blztable.columns.parts.physical import NUMPY_TYPES
from blztable.errors import SchemaError

# Codes of at most this many bits may be too small for the values of several arrays.
NARROW_CODES = 16
# Arrow has a 32-bit integer for the number of bits of a value.
MAX_WIDTH = (1 << 28) - 1
# The ids of the flat types, beside text, binary and dictionaries.
FLAT_TYPES = {
    *NUMPY_TYPES,
    pa.lib.Type_BOOL,
    pa.lib.Type_DECIMAL128,
    pa.lib.Type_DECIMAL256,
    pa.lib.Type_FIXED_SIZE_BINARY,
    pa.lib.Type_INTERVAL_MONTH_DAY_NANO,
    pa.lib.Type_NA,
}


def is_storable(type_: pa.DataType) -> bool:
    """True if the type is in the closed list, and so are the types below it."""
    if is_nested(type_):
        return is_nested_storable(type_, is_storable)
    if pa.types.is_dictionary(type_):
        values = type_.value_type
        return not (pa.types.is_dictionary(values) or is_nested(values)) and is_storable(values)
    if pa.types.is_fixed_size_binary(type_) and type_.byte_width > MAX_WIDTH:
        return False
    if isinstance(type_, pa.BaseExtensionType):
        return False
    return is_text(type_) or is_binary(type_) or type_.id in FLAT_TYPES


def has_items(type_: pa.DataType) -> bool:
    """True if the type, or a type below it, is text or binary that is no dictionary's."""
    return any(is_text(node.flat) or is_binary(node.flat) for node in Node.of(type_).walk())


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; raise SchemaError if one array cannot hold it."""
    if column.num_chunks == 0:
        return nulls(0, column.type)
    if column.num_chunks == 1:
        return column.chunk(0)
    if is_nested(column.type) and column.type not in (STRUCT, LIST, LARGE_LIST):
        return joined.joined(column.chunks, one_array)
    if pa.types.is_dictionary(column.type):
        whole = dictionaries.join(column.chunks)
    else:
        # Empty chunks are left out: Arrow reads the bytes before an imported empty slice.
        chunks = [chunk for chunk in column.chunks if len(chunk)]
        whole = _combined(pa.chunked_array(chunks, column.type))
    if not isinstance(whole, pa.Array):
        raise SchemaError(f"{len(column)} rows do not fit into one array of {column.type}")
    return whole


def changes(column: pa.ChunkedArray) -> list[int]:
    """Return the rows where a new array must begin because codes have no room for more values."""
    if not pa.types.is_dictionary(column.type):
        return _changes_within(column) if column.num_chunks > 1 else []
    if is_nested(column.type):
        return joined.changes(column, one_array)
    return dictionaries.changes(column)


def _changes_within(column: pa.ChunkedArray) -> list[int]:
    """Return the same for a column whose dictionaries, if it has any, are those of its nodes."""
    if not any(map(_is_narrow, Node.of(column.type).walk())) or _fit(column.chunks):
        return []
    rows, row, first = [], 0, 0
    for number, chunk in enumerate(column.chunks):
        if number > first and not _fit(column.chunks[first : number + 1]):
            rows.append(row)
            first = number
        row += len(chunk)
    return rows


def _is_narrow(node: Node) -> bool:
    """True for a dictionary whose codes may have no room for the values of several arrays."""
    is_dictionary = pa.types.is_dictionary(node.type)
    return bool(is_dictionary and node.type.index_type.bit_width <= NARROW_CODES)


def _fit(chunks: Sequence[pa.Array]) -> bool:
    """True if arrays can be joined."""
    try:
        one_array(pa.chunked_array(chunks))
    except SchemaError:
        return False
    return True


def take(array: pa.Array, rows: np.ndarray) -> pa.Array:
    """Return rows of an array by index, in the type that it is stored as."""
    if is_nested(array.type):
        return assemble.taken(array, rows)
    return as_stored(array).take(pa.array(rows))


def _combined(column: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray | None:
    """Concatenate chunks into as few arrays as can hold them; return None if Arrow refuses."""
    try:
        return column.combine_chunks()
    except pa.ArrowInvalid:
        return None
