"""Wider: the type that holds the values of a table's column and those of appended data.

Knows types and the appended values, nothing of schemas and names. Of the table's values it knows
only the type: where the chosen type may lack some of them, the writer looks at each.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.casts import cast_exactly
from blztable.arrow.nested.casts import Cast, field_of, fields_of, lists_of
from blztable.arrow.types import (
    REFUSALS,
    has_items,
    is_moment,
    is_number,
    is_zoned,
    value_type,
    with_fields,
)

INTEGERS = (
    pa.int8(),
    pa.uint8(),
    pa.int16(),
    pa.uint16(),
    pa.int32(),
    pa.uint32(),
    pa.int64(),
    pa.uint64(),
)
# The bits of the integers that each type holds without a gap.
FLOATS = {pa.float16(): 11, pa.float32(): 24, pa.float64(): 53}
# The most digits of each type.
DECIMALS = {pa.decimal32: 9, pa.decimal64: 18, pa.decimal128: 38, pa.decimal256: 76}
# From fine to coarse.
UNITS = ("ns", "us", "ms", "s")
_NULL = pa.null()


def wider(
    column: pa.ChunkedArray,
    type_: pa.DataType,
    *,
    is_empty: bool = False,
    cast: Cast = cast_exactly,
) -> pa.DataType:
    """Return a type for the old values and the column; `type_` if it is wide enough, or none is.

    `is_empty` says that there are no old values but nulls. `cast` says which types the column fits.
    """
    if cast(column, type_) is not None:
        return type_
    if is_empty or pa.types.is_null(type_):
        return roomy(column.type)
    wide = _candidates(column, type_, cast)
    return next((candidate for candidate in wide if cast(column, candidate) is not None), type_)


def common(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type that holds the values of two columns, as far as the types say; None for none.

    Times have the zone of the first.
    """
    if one.equals(other):
        return one
    types = pa.types
    if types.is_dictionary(one) or types.is_dictionary(other):
        values = common(value_type(one), value_type(other))
        if values is None or not (types.is_dictionary(one) and types.is_dictionary(other)):
            return values
        return None if one.ordered or other.ordered else pa.dictionary(pa.int32(), values)
    if is_moment(one) and is_moment(other) and not (types.is_date(one) and types.is_date(other)):
        if is_zoned(one) != is_zoned(other):
            return None
        return pa.timestamp(_units(one, other)[0], one.tz if is_zoned(one) else None)
    if types.is_struct(one) and types.is_struct(other):
        return _common_struct(one, other)
    if has_items(one) and has_items(other) and one.id == other.id:
        item = common(one.value_type, other.value_type)
        is_sized = types.is_fixed_size_list(one)
        if item is None or (is_sized and one.list_size != other.list_size):
            return None
        return with_fields(one, lambda field: field.with_type(item).with_nullable(True))
    try:
        both = [pa.schema([pa.field("", type_)]) for type_ in (one, other)]
        return pa.unify_schemas(both, promote_options="permissive").field(0).type
    except REFUSALS:
        return None


def _common_struct(one: pa.StructType, other: pa.StructType) -> pa.StructType | None:
    theirs = {field.name: field for field in other}
    if len(theirs) < other.num_fields or len({field.name for field in one}) < one.num_fields:
        return None
    fields = []
    for field in one:
        their = theirs.pop(field.name, None)
        type_ = field.type if their is None else common(field.type, their.type)
        if type_ is None:
            return None
        is_nullable = their is None or field.nullable or their.nullable
        fields.append(field.with_type(type_).with_nullable(is_nullable))
    return pa.struct([*fields, *(field.with_nullable(True) for field in theirs.values())])


def has_nulls(type_: pa.DataType) -> bool:
    """True for the null type, and for a type with it inside."""
    if type_.id == pa.lib.Type_NA:
        return True
    if type_.id == pa.lib.Type_DICTIONARY:
        return has_nulls(type_.value_type)
    inner = range(type_.num_fields)
    return bool(inner) and any(has_nulls(type_.field(number).type) for number in inner)


def filled(type_: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return a type with those of `other` where it has the null type, which takes any values."""
    types = pa.types
    if types.is_null(type_):
        return roomy(other)
    other = value_type(other)
    if types.is_dictionary(type_):
        values = filled(type_.value_type, other)
        return pa.dictionary(type_.index_type, values, type_.ordered)
    if types.is_struct(type_) and types.is_struct(other):
        theirs = {field.name: field.type for field in other}
        return with_fields(
            type_, lambda field: field.with_type(filled(field.type, theirs.get(field.name, _NULL)))
        )
    if has_items(type_) and has_items(other):
        item = other.value_type
        return with_fields(type_, lambda field: field.with_type(filled(field.type, item)))
    if types.is_map(type_) and types.is_map(other):
        key = type_.key_field.with_type(filled(type_.key_type, other.key_type))
        item = type_.item_field.with_type(filled(type_.item_type, other.item_type))
        return pa.map_(key, item, type_.keys_sorted)
    return type_


def roomy(type_: pa.DataType) -> pa.DataType:
    """Return a dictionary type with room for more categories; any other type unchanged."""
    if not pa.types.is_dictionary(type_) or type_.index_type.bit_width >= 32:
        return type_
    return pa.dictionary(pa.int32(), type_.value_type, type_.ordered)


def _candidates(column: pa.ChunkedArray, type_: pa.DataType, cast: Cast) -> Iterator[pa.DataType]:
    """Yield types that may hold both, the best one first."""
    source, types = column.type, pa.types
    if types.is_dictionary(type_):
        index, values = pa.int32(), type_.value_type
        if types.is_dictionary(source):
            index = source.index_type
            if types.is_nested(values):
                held = [chunk.dictionary for chunk in column.chunks]
                values = wider(pa.chunked_array(held, source.value_type), values, cast=cast)
        for wide in INTEGERS:
            if _holds_both(wide, type_.index_type, index):
                yield pa.dictionary(wide, values, type_.ordered)
    elif is_number(source) and is_number(type_):
        yield from _numbers(source, type_)
    elif types.is_decimal(type_) and (types.is_decimal(source) or types.is_integer(source)):
        yield from _decimals(column, type_)
    elif is_moment(source) and is_moment(type_) and is_zoned(source) == is_zoned(type_):
        zone = type_.tz if is_zoned(type_) else None
        yield from (pa.timestamp(unit, zone) for unit in _units(source, type_))
    elif types.is_duration(source) and types.is_duration(type_):
        yield from map(pa.duration, _units(source, type_))
    elif types.is_time(source) and types.is_time(type_):
        for unit in _units(source, type_):
            yield pa.time64(unit) if unit in UNITS[:2] else pa.time32(unit)
    elif types.is_struct(source) and types.is_struct(type_):
        yield _struct(column, type_, cast)
    elif has_items(source) and has_items(type_):
        items = pa.chunked_array([chunk.flatten() for chunk in column.chunks], source.value_type)
        item = wider(items, type_.value_type, cast=cast)
        yield with_fields(type_, lambda field: field.with_type(item))
    elif types.is_map(source) and types.is_map(type_):
        entries = [fields_of(lists_of(chunk).flatten()) for chunk in column.chunks]
        keys, values = ([pair[side] for pair in entries] for side in (0, 1))
        key = wider(pa.chunked_array(keys, source.key_type), type_.key_type, cast=cast)
        item = wider(pa.chunked_array(values, source.item_type), type_.item_type, cast=cast)
        yield pa.map_(key, type_.item_field.with_type(item), type_.keys_sorted)


def _struct(column: pa.ChunkedArray, type_: pa.StructType, cast: Cast) -> pa.StructType:
    """Return the struct with wider fields, and those that it lacks at the end."""
    fields = {field.name: field for field in type_}
    for number, field in enumerate(column.type):
        if field.name in fields:
            present = fields[field.name]
            values = [field_of(chunk, number) for chunk in column.chunks]
            wide = wider(pa.chunked_array(values, field.type), present.type, cast=cast)
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
    return UNITS[min(UNITS.index(_unit(source)), UNITS.index(_unit(type_))) :]


def _unit(type_: pa.DataType) -> str:
    return "s" if pa.types.is_date(type_) else str(type_.unit)


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
