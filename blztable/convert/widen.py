"""Widen: change the schema of a table so that it accepts data that its present schema refuses.

Knows nothing of where the table is. New columns come last and can be null. Integers and floats
become the narrowest type that holds the old and the new values. Other differences stay, and
`coerce_item` refuses them.
"""

import pyarrow as pa

from blztable.arrow_errors import REFUSALS
from blztable.arrow_types import is_number
from blztable.convert.categories import with_room
from blztable.convert.coerce import indices_by_name
from blztable.convert.coerce_column import TableFacts
from blztable.convert.exact_cast import cast_exactly
from blztable.convert.frames.descriptor import Descriptor
from blztable.convert.frames.frame import Facts, described, descriptor_of, with_labels
from blztable.convert.gateway import Ingested

INTEGERS = (
    *(pa.int8(), pa.uint8(), pa.int16(), pa.uint16()),
    *(pa.int32(), pa.uint32(), pa.int64(), pa.uint64()),
)
# The bits of the integers that each type holds without a gap.
FLOATS = {pa.float16(): 11, pa.float32(): 24, pa.float64(): 53}


def evolved(
    data: Ingested, schema: pa.Schema, frame: Descriptor | None
) -> tuple[pa.Schema, Descriptor | None]:
    """Return the schema and the frame descriptor of a table that accepts the rows of `data`."""
    new_schema = data.table.schema
    indices = indices_by_name(new_schema.names, schema.names)
    if indices is None:
        return schema, frame
    fields = [
        field if index is None else _widened(field, data.table.column(index))
        for field, index in zip(schema, indices, strict=True)
    ]
    facts, table = Facts.decode(data.frame), TableFacts.of(frame)
    # An index level is no new column: `coerce_item` checks whether the index continues.
    known = {*schema.names, *facts.index_fields()}
    if data.frame is not None:
        new_schema = with_room(new_schema, facts)
    new = [
        _nullable(described(field, descriptor_of(field, facts)), table)
        for field in new_schema
        if field.name not in known
    ]
    schema = pa.schema([*fields, *new], schema.metadata)
    return schema, with_labels(frame, data.frame, {field.name for field in new})


def with_nulls(field: pa.Field, frame: Descriptor | None) -> pa.Field:
    """Return the field as one that can be null in a table with this frame."""
    return _nullable(field, TableFacts.of(frame))


def _nullable(field: pa.Field, table: TableFacts) -> pa.Field:
    field = field.with_nullable(True)
    # pandas' concat would convert them to floats or objects; nullable dtypes keep every value.
    return field if table.can_be_null(field) else described(field, {"dtype": "masked"})


def _widened(field: pa.Field, column: pa.ChunkedArray) -> pa.Field:
    if column.type.equals(field.type):
        return field
    return field.with_type(_wider(column, field.type))


def _wider(column: pa.ChunkedArray, type_: pa.DataType) -> pa.DataType:
    """Return a type for the old values and the column; `type_` if it is wide enough, or none is."""
    source = column.type
    if _fits(column, type_):
        return type_
    if pa.types.is_dictionary(source) and pa.types.is_dictionary(type_):
        both = type_.index_type, source.index_type
        codes = [wide for wide in INTEGERS if _holds_both(wide, *both)]
        same = (source.value_type, source.ordered) == (type_.value_type, type_.ordered)
        return pa.dictionary(codes[0], type_.value_type, type_.ordered) if same else type_
    if not (is_number(source) and is_number(type_)):
        return type_
    wider: tuple[pa.DataType, ...] = tuple(FLOATS)
    if pa.types.is_integer(source) and pa.types.is_integer(type_):
        wider = INTEGERS
    elif pa.types.is_integer(type_):
        # pandas has nullable dtypes for all of these but float16.
        wider = wider[1:]
    # If no type holds all values of both types, the actual values decide.
    holding = (
        *(wide for wide in wider if _holds_both(wide, type_, source)),
        *(wide for wide in wider if _holds(wide, type_) and _fits(column, wide)),
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
