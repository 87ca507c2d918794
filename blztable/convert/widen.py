"""Widen: change the schema of a table so that it accepts data that its present schema refuses.

Knows nothing of where the table is. New columns come last and can be null. Integers and floats
become the narrowest type that holds the old and the new values. Other differences stay, and
`coerce_item` refuses them.
"""

import pyarrow as pa

from blztable.convert.categories import with_room
from blztable.convert.coerce import indices_by_name
from blztable.convert.coerce_column import TableFacts
from blztable.convert.frames.descriptor import Descriptor
from blztable.convert.frames.frame import Facts, described, descriptor_of, with_labels
from blztable.convert.gateway import Ingested
from blztable.convert.wider import wider


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
    return field.with_type(wider(column, field.type))
