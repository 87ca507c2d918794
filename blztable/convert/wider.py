"""Wider: the type that holds the values of a table's column and those of appended data.

Knows types and the appended values, nothing of schemas and names. Of the table's values it knows
only the type: where the chosen type may lack some of them, the writer looks at each.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.casts import cast_exactly
from blztable.arrow.nested.casts import lists_of
from blztable.arrow.nested.struct_fields import field_of, fields_of
from blztable.arrow.nesting import has_items, with_fields
from blztable.arrow.types import is_number

INTEGERS = (
    *(pa.int8(), pa.uint8(), pa.int16(), pa.uint16()),
    *(pa.int32(), pa.uint32(), pa.int64(), pa.uint64()),
)
# The bits of the integers that each type holds without a gap.
FLOATS = {pa.float16(): 11, pa.float32(): 24, pa.float64(): 53}
# The most digits of each type.
DECIMALS = {pa.decimal32: 9, pa.decimal64: 18, pa.decimal128: 38, pa.decimal256: 76}
# From fine to coarse.
UNITS = ("ns", "us", "ms", "s")


def wider(column: pa.ChunkedArray, type_: pa.DataType, *, is_empty: bool = False) -> pa.DataType:
    """Return a type for the old values and the column; `type_` if it is wide enough, or none is.

    `is_empty` says that there are no old values but nulls.
    """
    if _fits(column, type_):
        return type_
    if is_empty or pa.types.is_null(type_):
        return roomy(column.type)
    return next((wide for wide in _candidates(column, type_) if _fits(column, wide)), type_)


def _fits(column: pa.ChunkedArray, type_: pa.DataType) -> bool:
    return cast_exactly(column, type_) is not None


def roomy(type_: pa.DataType) -> pa.DataType:
    """Return a dictionary type with room for more categories; any other type unchanged."""
    if not pa.types.is_dictionary(type_) or type_.index_type.bit_width >= 32:
        return type_
    return pa.dictionary(pa.int32(), type_.value_type, type_.ordered)


def _candidates(column: pa.ChunkedArray, type_: pa.DataType) -> Iterator[pa.DataType]:
    """Yield types that may hold both, the best one first."""
    source, types = column.type, pa.types
    if types.is_dictionary(type_):
        index, values = pa.int32(), type_.value_type
        if types.is_dictionary(source):
            index = source.index_type
            if types.is_nested(values):
                held = [chunk.dictionary for chunk in column.chunks]
                values = wider(pa.chunked_array(held, source.value_type), values)
        for wide in INTEGERS:
            if _holds_both(wide, type_.index_type, index):
                yield pa.dictionary(wide, values, type_.ordered)
    elif is_number(source) and is_number(type_):
        yield from _numbers(source, type_)
    elif types.is_decimal(type_) and (types.is_decimal(source) or types.is_integer(source)):
        yield from _decimals(column, type_)
    elif types.is_timestamp(source) and types.is_timestamp(type_) and source.tz == type_.tz:
        yield from (pa.timestamp(unit, type_.tz) for unit in _units(source, type_))
    elif types.is_duration(source) and types.is_duration(type_):
        yield from map(pa.duration, _units(source, type_))
    elif types.is_time(source) and types.is_time(type_):
        for unit in _units(source, type_):
            yield pa.time64(unit) if unit in UNITS[:2] else pa.time32(unit)
    elif types.is_struct(source) and types.is_struct(type_):
        yield _struct(column, type_)
    elif has_items(source) and has_items(type_):
        items = pa.chunked_array([chunk.flatten() for chunk in column.chunks], source.value_type)
        item = wider(items, type_.value_type)
        yield with_fields(type_, lambda field: field.with_type(item))
    elif types.is_map(source) and types.is_map(type_):
        entries = [fields_of(lists_of(chunk).flatten()) for chunk in column.chunks]
        keys, values = ([pair[side] for pair in entries] for side in (0, 1))
        key = wider(pa.chunked_array(keys, source.key_type), type_.key_type)
        item = wider(pa.chunked_array(values, source.item_type), type_.item_type)
        yield pa.map_(key, type_.item_field.with_type(item), type_.keys_sorted)


def _struct(column: pa.ChunkedArray, type_: pa.StructType) -> pa.StructType:
    """Return the struct with wider fields, and those that it lacks at the end."""
    fields = {field.name: field for field in type_}
    for number, field in enumerate(column.type):
        if field.name in fields:
            present = fields[field.name]
            values = [field_of(chunk, number) for chunk in column.chunks]
            wide = wider(pa.chunked_array(values, field.type), present.type)
            fields[field.name] = present.with_type(wide)
        else:
            fields[field.name] = field.with_nullable(True)
    return pa.struct(list(fields.values()))


def _numbers(source: pa.DataType, type_: pa.DataType) -> Iterator[pa.DataType]:
    types: tuple[pa.DataType, ...] = tuple(FLOATS)
    if pa.types.is_integer(source) and pa.types.is_integer(type_):
        types = INTEGERS
    elif pa.types.is_integer(type_):
        # pandas has nullable dtypes for all of these but float16.
        types = types[1:]
    yield from (wide for wide in types if _holds_both(wide, type_, source))
    # If no type holds all values of both types, the actual values decide.
    yield from (wide for wide in types if _holds(wide, type_))
    yield from (pa.int64(), pa.uint64()) if types is INTEGERS else (pa.float64(),)


def _decimals(column: pa.ChunkedArray, type_: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the decimal that has all digits of both, before and after the point."""
    source = column.type
    if pa.types.is_integer(source):
        whole = max(len(str(abs(end))) for end in pc.min_max(column).as_py().values())
        scale, width = type_.scale, type_.bit_width
    else:
        whole, scale = source.precision - source.scale, max(source.scale, type_.scale)
        width = max(source.bit_width, type_.bit_width)
    digits = max(whole, type_.precision - type_.scale) + scale
    for make, most in DECIMALS.items():
        if digits <= most and make(1).bit_width >= width:
            yield make(digits, scale)
            return


def _units(source: pa.DataType, type_: pa.DataType) -> tuple[str, ...]:
    """Return the finer of both units, and coarser ones for values that it has no room for."""
    return UNITS[min(UNITS.index(source.unit), UNITS.index(type_.unit)) :]


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
