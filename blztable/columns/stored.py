"""The type that a column is stored as, and the type that its values are compared as.

Knows nothing of streams.
"""

import pyarrow as pa

from blztable.arrow.types import value_type, without_view, without_views


def stored_type(type_: pa.DataType) -> pa.DataType:
    """Return the type that `type_` is stored as."""
    # Views are stored as large types and cast back last.
    return without_view(type_)


def as_stored(array: pa.Array) -> pa.Array:
    """Return the array in its stored type; only views are cast."""
    return without_views(array)


def compared_type(type_: pa.DataType) -> pa.DataType:
    """Return the type that values are compared as: a wider one if Arrow cannot compare theirs."""
    type_ = value_type(type_)
    if pa.types.is_float16(type_):
        return pa.float32()
    if pa.types.is_decimal32(type_) or pa.types.is_decimal64(type_):
        return pa.decimal128(type_.precision, type_.scale)
    return stored_type(type_)


def as_compared(array: pa.Array) -> pa.Array:
    """Cast an array without dictionary to the type that its values are compared as."""
    # The type is wide enough. Decimals may have more digits than the precision of their type, and
    # Arrow's safe cast would refuse them.
    return array.cast(compared_type(array.type), safe=False)
