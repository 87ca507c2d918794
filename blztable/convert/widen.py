"""Widen: change the schema of a table so that it accepts data that its present schema refuses.

Knows nothing of where the table is. New columns come last and can be null. A column that holds
nothing but nulls takes the type of the data. Any other gets the narrowest type that holds the old
and the new values (`wider`). Other differences stay, and `coerce_item` refuses them. All of this
is for calls with `evolve`. Without it, only the null type takes the type of the data (`filled`).
"""

from collections.abc import Callable

import pyarrow as pa

from blztable.arrow.casts import cast_exactly
from blztable.arrow.extensions import are_same, typed_as
from blztable.arrow.types import with_fields
from blztable.convert.categories import descriptor_of_values, with_room
from blztable.convert.coerce import indices_by_name
from blztable.convert.column_type import meaning, with_type
from blztable.convert.frames import dtypes, objects
from blztable.convert.frames.descriptor import Descriptor
from blztable.convert.frames.frame import FrameInfo, described, descriptor_of, with_labels
from blztable.convert.gateway import Ingested, cast_for
from blztable.convert.wider import filled, has_nulls, roomy, wider
from blztable.errors import SchemaError


def evolved(
    data: Ingested,
    schema: pa.Schema,
    frame: Descriptor | None,
    *,
    is_empty: Callable[[int], bool] = lambda index: False,
    takes_columns: bool = True,
    widens: bool = True,
) -> tuple[pa.Schema, Descriptor | None]:
    """Return the schema and the frame descriptor of a table that accepts the rows of `data`.

    `is_empty` says of a column, by its index, whether it holds nothing but nulls. Without `widens`,
    only the null type becomes another.
    """
    new_schema = data.table.schema
    indices = indices_by_name(new_schema.names, schema.names)
    if indices is None:
        return schema, frame
    held, info, fields = FrameInfo.decode(frame), FrameInfo.decode(data.frame), list(schema)
    has_same_dtypes = held.dtypes == info.dtypes
    for index, position in enumerate(indices):
        field = fields[index]
        column = None if position is None else data.table.column(position)
        if column is None or not (widens or has_nulls(field.type)):
            continue
        source = new_schema.field(position)
        if has_same_dtypes and source.equals(field, check_metadata=True):
            continue
        stated, theirs = descriptor_of(field, held), descriptor_of(source, info)
        cast = cast_for(theirs, data.casts.get(source.name, cast_exactly))
        means_same = are_same(source, field) and _same_values(stated, theirs)
        if means_same and column.type.equals(field.type):
            continue
        is_free = pa.types.is_null(field.type) or (widens and is_empty(index))
        if is_free and column.null_count < len(column):
            if not means_same or cast(column, field.type) is None:
                type_ = roomy(column.type)
                field, frame = with_type(field, frame, type_, theirs, keep=False)
                fields[index] = typed_as(field, source.with_type(type_))
            continue
        is_other = dtypes.is_reinterpreted(stated)
        if is_other and meaning(stated) != meaning(theirs):
            continue  # `coerce_item` says that the dtypes differ.
        if not widens:
            type_ = filled(field.type, column.type)
        elif is_other:
            type_ = _wider_parts(column, field.type)
        else:
            type_ = wider(column, field.type, cast=cast)
        if type_ != field.type:
            try:
                theirs = objects.merged(stated, theirs)
            except SchemaError:
                continue  # `coerce_item` says which value does not fit.
            fields[index], frame = with_type(field, frame, type_, None, other=theirs)
    # An index level is no new column: `coerce_item` checks whether the index continues.
    known = {*schema.names, *info.index_fields()}
    if not takes_columns:
        known.update(new_schema.names)
    if data.frame is not None:
        new_schema = with_room(new_schema, info)
    new = [
        described(field, descriptor_of(field, info)).with_nullable(True)
        for field in new_schema
        if field.name not in known
    ]
    schema = pa.schema([*fields, *new], schema.metadata)
    return schema, with_labels(frame, data.frame, {field.name for field in new})


def _same_values(*descriptors: Descriptor | None) -> bool:
    """True if equal values of Arrow are equal in pandas, for columns or categories of both."""
    one, other = map(descriptor_of_values, descriptors)
    return one == other or not (dtypes.is_reinterpreted(one) or dtypes.is_reinterpreted(other))


def _wider_parts(column: pa.ChunkedArray, type_: pa.DataType) -> pa.DataType:
    """Return the type for both, in which the ends of intervals have one type, as before."""
    if not (pa.types.is_struct(type_) and pa.types.is_struct(column.type)):
        return type_
    parts = [part for chunk in column.chunks for part in chunk.flatten()]
    part = wider(pa.chunked_array(parts, column.type[0].type), type_[0].type)
    return with_fields(type_, lambda field: field.with_type(part))
