"""Wider: the type that holds the values of a table's column and those of appended data.

Knows types and values, nothing of schemas and names.
"""

import pyarrow as pa

from blztable.arrow_errors import REFUSALS
from blztable.arrow_types import is_number
from blztable.convert.exact_cast import cast_exactly

INTEGERS = (
    *(pa.int8(), pa.uint8(), pa.int16(), pa.uint16()),
    *(pa.int32(), pa.uint32(), pa.int64(), pa.uint64()),
)
# The bits of the integers that each type holds without a gap.
FLOATS = {pa.float16(): 11, pa.float32(): 24, pa.float64(): 53}


def wider(column: pa.ChunkedArray, type_: pa.DataType) -> pa.DataType:
    """Return a type for the old values and the column; `type_` if it is wide enough, or none is."""
    source = column.type
    if _fits(column, type_):
        return type_
    if pa.types.is_dictionary(source) and pa.types.is_dictionary(type_):
        both = type_.index_type, source.index_type
        codes = [wide for wide in INTEGERS if _holds_both(wide, *both)]
        same = (source.value_type, source.ordered) == (type_.value_type, type_.ordered)
        return pa.dictionary(codes[0], type_.value_type, type_.ordered) if same and codes else type_
    if not (is_number(source) and is_number(type_)):
        return type_
    types: tuple[pa.DataType, ...] = tuple(FLOATS)
    if pa.types.is_integer(source) and pa.types.is_integer(type_):
        types = INTEGERS
    elif pa.types.is_integer(type_):
        # pandas has nullable dtypes for all of these but float16.
        types = types[1:]
    # If no type holds all values of both types, the actual values decide.
    holding = (
        *(wide for wide in types if _holds_both(wide, type_, source)),
        *(wide for wide in types if _holds(wide, type_) and _fits(column, wide)),
    )
    return holding[0] if holding else type_


def _fits(column: pa.ChunkedArray, type_: pa.DataType) -> bool:
    try:
        return cast_exactly(column, type_) is not None
    except REFUSALS:
        return False


def _holds_both(wide: pa.DataType, one: pa.DataType, other: pa.DataType) -> bool:
    return _holds(wide, one) and _holds(wide, other)


def _holds(wide: pa.DataType, narrow: pa.DataType) -> bool:
    """True if the numeric type `wide` has all values of `narrow`."""
    if pa.types.is_floating(narrow):
        return pa.types.is_floating(wide) and wide.bit_width >= narrow.bit_width
    is_signed = pa.types.is_signed_integer(narrow)
    bits = narrow.bit_width - is_signed
    if wide in FLOATS:
        return FLOATS[wide] >= bits
    room = wide.bit_width - pa.types.is_signed_integer(wide)
    return room >= bits and (pa.types.is_signed_integer(wide) or not is_signed)
