"""Display: columns and schemas with extension types and without our metadata.

Also the options that users give a read.
"""

import json
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import pyarrow as pa

from blztable.arrow.extensions import column_as, has_others, registered_schema
from blztable.arrow.types import REFUSALS
from blztable.caller import stack_level
from blztable.columns import types as column_types
from blztable.convert.column_type import with_type
from blztable.convert.frames.descriptor import FIELD_KEY
from blztable.engine.read.damage import ON_CORRUPT, DamagedRows
from blztable.engine.run.pool import Callback
from blztable.engine.version.projection import Projection
from blztable.engine.version.versions import Version
from blztable.engine.write.options import check_choice
from blztable.errors import SchemaError
from blztable.format.jsontext import Json
from blztable.report import counted, short_text
from blztable.table.names import row_numbers

# Keys under which a result lists the rows it lacks, and by column the rows whose values it lacks:
# pairs of the first row and the row after.
MISSING_ROWS = "blz:missing_rows"
MISSING_VALUES = "blz:missing_values"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of a read: the filter, the treatment of damage, and a callback for progress."""

    filters: object = None
    on_corrupt: str = "raise"
    progress: Callback | None = None

    def __post_init__(self) -> None:
        """Raise ValueError if `on_corrupt` is not one of its choices."""
        if self.on_corrupt not in ON_CORRUPT:
            check_choice("on_corrupt", self.on_corrupt, ON_CORRUPT)


@dataclass(frozen=True, slots=True)
class ReadTable:
    """Rows of a stream as a table, and what is left out of it or null in it."""

    table: pa.Table
    lost: Sequence[DamagedRows]


def display_schema(projection: Projection) -> pa.Schema:
    """Return the schema of columns with the extension types that are registered here."""
    has_any = has_extensions(projection.version)
    return registered_schema(projection.schema) if has_any else projection.schema


def has_extensions(version: Version) -> bool:
    """True if a type may be an extension type, or have run ends of 16 bits."""
    return version.made("has extensions", lambda: has_others(version.schema_bytes))


def display_columns(
    columns: Sequence[pa.ChunkedArray], types: Sequence[pa.DataType]
) -> list[pa.ChunkedArray]:
    """Return columns in types of the same storage."""
    return list(map(column_as, columns, types))


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; SchemaError if its run ends do not reach all rows."""
    if column.num_chunks > 1:
        raise SchemaError(
            f"{len(column)} rows do not fit into one array of {column.type}; read fewer rows, or a "
            "table with to_arrow"
        )
    return column.chunk(0)


def described(
    projection: Projection, schema: pa.Schema, positions: Iterable[int]
) -> tuple[pa.Schema, dict[str, Json] | None]:
    """Return the schema of some columns as users get them, and the frame descriptor for them.

    A column with some fields of a nested one may be none of the dtype that the whole one has.
    """
    fields, frame = [], projection.version.frame
    for position in positions:
        field = schema.field(position)
        if projection.is_field(position):
            whole = schema.field(projection.column_of(position))
            field, descriptor = with_type(whole, frame, field.type, None)
            frame = None if descriptor is None else dict(descriptor)
        fields.append(field)
    return pa.schema(fields, projection.schema.metadata), frame


def table_of(arrays: list[pa.ChunkedArray], schema: pa.Schema, rows: int) -> pa.Table:
    """Return a table of these columns; without columns it keeps its number of rows."""
    if arrays:
        return pa.Table.from_arrays(arrays, schema=schema)
    # Not `pa.nulls`, which takes one bit per row.
    nulls = pa.Array.from_buffers(pa.null(), rows, [None])
    counted = pa.table({"rows": nulls}).replace_schema_metadata(schema.metadata)
    return counted.select([])  # Last: without columns, a change of metadata forgets the rows.


def rows_of(table: pa.Table, indices: Any) -> pa.Table:
    """Return rows of a table by number, of any types; raises as `row_numbers` does."""
    rows = row_numbers(indices, table.num_rows)
    return table_of([_rows_of(column, rows) for column in table.columns], table.schema, len(rows))


def _rows_of(column: pa.ChunkedArray, rows: np.ndarray) -> pa.ChunkedArray:
    try:
        return column.take(pa.array(rows))
    except REFUSALS:
        # Arrow takes no views and no runs, and does not join all dictionaries.
        taken = pa.chunked_array([column_types.take(column_types.one_array(column), rows)])
        return taken if taken.type == column.type else taken.cast(column.type)


def warn_of(lost: Iterable[DamagedRows]) -> None:
    """Warn the user of rows that are left out."""
    for damaged in lost:
        warnings.warn(str(damaged), stacklevel=stack_level())


def told(lost: Iterable[DamagedRows]) -> dict[str, Any]:
    """Return the attributes of a result that list the rows left out, and the values made null."""
    attributes: dict[str, Any] = {}
    for damaged in lost:
        pair = [damaged.start, damaged.stop]
        if damaged.column is None:
            attributes.setdefault(MISSING_ROWS, []).append(pair)
        else:
            values = attributes.setdefault(MISSING_VALUES, {})
            values.setdefault(damaged.column, []).append(pair)
    return attributes


def with_missing(schema: pa.Schema, lost: Sequence[DamagedRows]) -> pa.Schema:
    """Return a schema whose metadata list what was lost, if anything was."""
    if not lost:
        return schema
    texts = {key.encode(): json.dumps(value).encode() for key, value in told(lost).items()}
    return with_nullable(schema, lost).with_metadata({**(schema.metadata or {}), **texts})


def with_nullable(schema: pa.Schema, lost: Iterable[DamagedRows]) -> pa.Schema:
    """Return a schema in which all columns with lost values may have nulls."""
    names = {damaged.column for damaged in lost}
    fields = [field.with_nullable(True) if field.name in names else field for field in schema]
    return pa.schema(fields, schema.metadata)


def without_ours(version: Version, fields: Sequence[pa.Field]) -> Iterable[pa.Field]:
    """Return fields of a version without the metadata that we added to some of them."""
    # A wide table made from Arrow has none.
    return map(_without_ours, fields) if FIELD_KEY in version.schema_bytes else fields


def _without_ours(field: pa.Field) -> pa.Field:
    metadata = dict(field.metadata or {})
    if metadata.pop(FIELD_KEY, None) is None:
        return field
    return field.with_metadata(metadata or None)


def as_html(title: str, rows: pa.Table, size: tuple[int, int], why: str) -> str:
    """Return rows of a table as notebooks show them, or why there are none.

    `size` is the number of rows and columns of the table.
    """
    types = [str(field.type) for field in rows.schema]
    cells = zip(*[list(map(_cell, column)) for column in rows.columns], strict=True)
    lines = [_line(rows.column_names, "th"), *(_line(row, "td") for row in (types, *cells))]
    hidden = (size[0] - rows.num_rows, "more row"), (size[1] - rows.num_columns, "more column")
    notes = [why] if why else [counted(number, noun) for number, noun in hidden if number]
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f"<p>{escape(title)}</p><table>{''.join(lines)}</table>{below}"


def _line(cells: Sequence[str], tag: str) -> str:
    texts = (f"<{tag}>{escape(short_text(cell))}</{tag}>" for cell in cells)
    return f"<tr>{''.join(texts)}</tr>"


def _cell(value: pa.Scalar) -> str:
    try:
        return str(value.as_py())
    except (ValueError, OverflowError):
        # A time that Python does not have.
        return str(value.cast(pa.string()))
