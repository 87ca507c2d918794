"""OldVersion: a table of another program as a version of ours: names, types and sizes, no parts."""

import json
from dataclasses import dataclass, field

import pyarrow as pa

from blztable.arrow.extensions import plain_schema
from blztable.compat import bcolz, bloscpack
from blztable.compat.arrays import OldColumn, OldFiles, StoredArray, row_bytes
from blztable.compat.numpy_types import arrow_type
from blztable.convert.objects.tagged import checked_attrs
from blztable.engine.version import schema as schemas
from blztable.engine.version.column_tree import paths_of
from blztable.engine.version.versions import Version
from blztable.errors import BlzError, FormatError, SchemaError
from blztable.format.layout import Path
from blztable.format.line import ColumnParts, FactArrays
from blztable.format.manifest import ColumnIndex, Head
from blztable.storage.store import Store

# The key of a column's attributes in the metadata of its field, as JSON.
COLUMN_ATTRS = b"attrs"


@dataclass(frozen=True, slots=True)
class OldVersion(Version):
    """The only version of a table of another program; its number is 0, and it has no lines.

    All rows are one row group, whose pages are the chunks of each column, without statistics.
    """

    files: OldFiles = field(kw_only=True)

    def line_parts(self, line: int) -> ColumnParts:
        """Return what a line would say; raise the error of a column that cannot be read."""
        rows, values = self.head.row_groups, self.values(self.field_of(line))
        pages, none = (values.chunk_rows,) * len(rows), (0,) * len(rows)
        facts = FactArrays(rows, pages, none, none, none, none)
        return ColumnParts(self.head.columns.paths[line], (1,) * len(rows), facts, {}, {})

    def values(self, index: int) -> StoredArray:
        """Return the stored array of a column; raise the error that it has instead."""
        columns = self.files.columns
        values = columns[index].values
        if isinstance(values, BlzError):
            others = [one.name for one in columns if not isinstance(one.values, BlzError)]
            raise type(values)(
                f"column {columns[index].name!r}: {values}; the others can be read, "
                f"columns={others!r:.1000}"
            )
        return values


def old_version(store: Store) -> OldVersion:
    """Read what another program stored, without values.

    Raises
    ------
    CorruptError
        It is damaged.
    FormatError
        It cannot be read, or Arrow has no type for a column, or an attribute cannot be kept.
    """
    read = bloscpack.read_file if bloscpack.is_file(store) else bcolz.read_directory
    files = read(store)
    try:
        schema = plain_schema(pa.schema([_field(column, files.kind) for column in files.columns]))
        attributes = checked_attrs(files.attrs)
    except SchemaError as error:
        raise FormatError(f"{files.store.name}: {error}") from None
    paths, nbytes, cbytes = list[Path](), list[int](), list[int]()
    for column, of_column in zip(files.columns, schema, strict=True):
        nodes = paths_of(of_column.type, (len(paths),))
        paths += nodes
        values = None if isinstance(column.values, BlzError) else column.values
        nbytes += _shares(values.shape[0] * row_bytes(values) if values else 0, len(nodes))
        cbytes += _shares(values.cbytes if values else 0, len(nodes))
    index = ColumnIndex(tuple(paths), (1,) * len(paths), tuple(nbytes), tuple(cbytes))
    head = Head(
        row_groups=(files.rows,) if files.rows else (),
        schema=schemas.encode(schema),
        fields=schemas.readable(schema),
        attributes=attributes,
        columns=index,
    )
    return OldVersion(files.store, head, schemas.decode(head.schema), files=files)


def _shares(nbytes: int, nodes: int) -> list[int]:
    """Return the bytes of each node of a column, whose values are stored together."""
    share = nbytes // nodes
    return [nbytes - share * (nodes - 1), *[share] * (nodes - 1)]


def _field(column: OldColumn, kind: str) -> pa.Field:
    """Return the field of a column; one that cannot be read has the null type."""
    values = column.values
    metadata = {COLUMN_ATTRS: json.dumps(column.attrs).encode()} if column.attrs else None
    type_ = pa.null()
    if not isinstance(values, BlzError):
        type_ = arrow_type(values.dtype, values.shape[1:], f"column {column.name!r} of a {kind}")
    return pa.field(column.name, type_, metadata=metadata)
