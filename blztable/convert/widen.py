"""Evolve: the schema of a table so that it takes data which do not fit it as it is.

Columns that are new come last, and can be null; integers and floats become the narrowest type that
holds what is there and what comes. All else stays, for `fit` to refuse.
"""

import pyarrow as pa

from blztable.arrow_errors import REFUSALS
from blztable.arrow_types import is_number
from blztable.convert.categories import with_room
from blztable.convert.coerce import cast_exactly, may_be_null, places_by_name
from blztable.convert.frames.descriptor import Descriptor
from blztable.convert.frames.frame import Facts, described, descriptor_of, with_labels
from blztable.convert.gateway import Ingested
from blztable.errors import SchemaError

INTEGERS = (
    *(pa.int8(), pa.uint8(), pa.int16(), pa.uint16()),
    *(pa.int32(), pa.uint32(), pa.int64(), pa.uint64()),
)
# With the bits of the whole numbers each holds without a gap.
FLOATS = {pa.float16(): 11, pa.float32(): 24, pa.float64(): 53}


def evolved(
    data: Ingested, schema: pa.Schema, frame: Descriptor | None
) -> tuple[pa.Schema, Descriptor | None]:
    """The schema and the frame descriptor of the table once it has the rows of `data`."""
    found = data.table.schema
    places = places_by_name(found.names, schema.names)
    if places is None:
        return schema, frame
    fields = [
        field if source is None else _widened(field, data.table.column(source))
        for field, source in zip(schema, places, strict=True)
    ]
    theirs = Facts.decode(data.frame)
    # An index is no column that comes later: `fit` says whether it goes on.
    known = {*schema.names, *theirs.index_fields()}
    if data.frame is not None:
        found = with_room(found, theirs)
    new = [_new(field, theirs, frame) for field in found if field.name not in known]
    schema = pa.schema([*fields, *new], schema.metadata)
    return schema, with_labels(frame, data.frame, {field.name for field in new})


def with_nulls(field: pa.Field, frame: Descriptor | None) -> pa.Field:
    """The field so that rows without a value can have it, in a table of this frame."""
    field = field.with_nullable(True)
    # pandas' concat makes floats or objects of them; the nullable dtypes keep every value.
    return field if may_be_null(field, frame) else described(field, {"dtype": "masked"})


def _new(field: pa.Field, theirs: Facts, frame: Descriptor | None) -> pa.Field:
    return with_nulls(described(field, descriptor_of(field, theirs)), frame)


def _widened(field: pa.Field, column: pa.ChunkedArray) -> pa.Field:
    return field.with_type(_wider(column, field.type))


def _wider(column: pa.ChunkedArray, type_: pa.DataType) -> pa.DataType:
    """A type for what is there and for the column; `type_` where it is wide enough, or none is."""
    found = column.type
    if _fits(column, type_):
        return type_
    if pa.types.is_dictionary(found) and pa.types.is_dictionary(type_):
        codes = [wide for wide in INTEGERS if _holds_both(wide, type_.index_type, found.index_type)]
        same = (found.value_type, found.ordered) == (type_.value_type, type_.ordered)
        return pa.dictionary(codes[0], type_.value_type, type_.ordered) if same else type_
    if not (is_number(found) and is_number(type_)):
        return type_
    wider: tuple[pa.DataType, ...] = tuple(FLOATS)
    if pa.types.is_integer(found) and pa.types.is_integer(type_):
        wider = INTEGERS
    elif pa.types.is_integer(type_):
        # A nullable dtype of pandas stays one, and none is this narrow.
        wider = wider[1:]
    # The values decide where no type holds all that both types may.
    holding = (
        *(wide for wide in wider if _holds_both(wide, type_, found)),
        *(wide for wide in wider if _holds(wide, type_) and _fits(column, wide)),
    )
    return holding[0] if holding else type_


def _fits(column: pa.ChunkedArray, type_: pa.DataType) -> bool:
    try:
        cast_exactly(column, type_)
    except (SchemaError, *REFUSALS):
        return False
    return True


def _holds_both(wide: pa.DataType, one: pa.DataType, other: pa.DataType) -> bool:
    return _holds(wide, one) and _holds(wide, other)


def _holds(wide: pa.DataType, narrow: pa.DataType) -> bool:
    """Whether one type of numbers has all values of the other."""
    if pa.types.is_floating(narrow):
        return pa.types.is_floating(wide) and wide.bit_width >= narrow.bit_width
    is_signed = pa.types.is_signed_integer(narrow)
    bits = narrow.bit_width - is_signed
    if wide in FLOATS:
        return FLOATS[wide] >= bits
    room = wide.bit_width - pa.types.is_signed_integer(wide)
    return room >= bits and (pa.types.is_signed_integer(wide) or not is_signed)
