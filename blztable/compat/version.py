"""The version as which a table of another program is shown: names, types and sizes, no parts."""

import json

import pyarrow as pa

from blztable.arrow.extensions import plain_schema
from blztable.compat.arrays import OldColumn, OldFiles, row_bytes
from blztable.compat.numpy_types import arrow_type
from blztable.convert.objects.tagged import checked_attrs
from blztable.engine.version import schema as schemas
from blztable.engine.version.column_tree import paths_of
from blztable.engine.version.versions import Version
from blztable.errors import BlzError, FormatError, SchemaError
from blztable.format.layout import Path
from blztable.format.manifest import ColumnIndex, Head

# The key of a column's attributes in the metadata of its field, as JSON.
COLUMN_ATTRS = b"attrs"


def version_of(files: OldFiles) -> Version:
    """Return a version whose head states the columns; its number is 0, and it has no lines.

    FormatError if Arrow has no type for a column, or an attribute cannot be kept.
    """
    try:
        schema = plain_schema(pa.schema([_field(column, files.kind) for column in files.columns]))
        attributes = checked_attrs(files.attrs)
    except SchemaError as error:
        raise FormatError(f"{files.store.name}: {error}") from None
    paths, nbytes, cbytes = list[Path](), list[int](), list[int]()
    for column, field in zip(files.columns, schema, strict=True):
        nodes = paths_of(field.type, (len(paths),))
        # The root of a column stands for all of its nodes.
        rest = [0] * (len(nodes) - 1)
        paths += nodes
        values = None if isinstance(column.values, BlzError) else column.values
        nbytes += [values.shape[0] * row_bytes(values) if values else 0, *rest]
        cbytes += [values.cbytes if values else 0, *rest]
    index = ColumnIndex(tuple(paths), (1,) * len(paths), tuple(nbytes), tuple(cbytes))
    head = Head(
        row_groups=(files.rows,) if files.rows else (),
        schema=schemas.encode(schema),
        fields=schemas.readable(schema),
        attributes=attributes,
        columns=index,
    )
    return Version(files.store, head, schemas.decode(head.schema))


def _field(column: OldColumn, kind: str) -> pa.Field:
    """Return the field of a column; one that cannot be read has the null type."""
    values = column.values
    metadata = {COLUMN_ATTRS: json.dumps(column.attrs).encode()} if column.attrs else None
    type_ = pa.null()
    if not isinstance(values, BlzError):
        type_ = arrow_type(values.dtype, values.shape[1:], f"column {column.name!r} of a {kind}")
    return pa.field(column.name, type_, metadata=metadata)
