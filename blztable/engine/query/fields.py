"""Fields: fields of nested columns, as columns of a projection.

A field of structs is a column with a row for each row of the table: it is null where a struct is,
in its files too. So a filter on it is a filter on a flat column, with statistics and codes, and
neither the struct nor its other fields are read. Knows nothing of rows.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.extensions import retyped
from blztable.arrow.nested.nodes import Node
from blztable.arrow.nested.paths import Names, Path, find_in, pruned, within_structs
from blztable.engine.query.expression_tree import with_columns_for_fields
from blztable.engine.version.projection import NestedField, Projection
from blztable.errors import SchemaError


def narrowed(projection: Projection, index: int, paths: Sequence[Path]) -> NestedField:
    """Return a nested column with some of its fields alone, and their nodes."""
    field, lines = projection.schema.field(index), projection.nodes(index)
    type_, node_lines = pruned(Node.of(field.type), paths)
    return retyped(field, type_), [lines[line] for line in node_lines]


def find_field(
    projection: Projection, names: Names, among: Collection[int]
) -> tuple[int, Path] | None:
    """Return the column and the path of a field of nested columns; None if there is none.

    Raises
    ------
    SchemaError
        Several fields have these names.
    """
    if projection.version.is_flat:
        return None
    matches = [match for match in find_in(projection.schema, names) if match[0] in among]
    if len(matches) > 1:
        raise SchemaError(
            f"{len(matches)} fields are named {names!r}; give the names of a path as a tuple, or "
            "read the whole column"
        )
    return matches[0] if matches else None


def values_of(projection: Projection, names: Names, among: Collection[int]) -> NestedField | None:
    """Return a field as a column of its own values; None if there is none with these names.

    Raises
    ------
    SchemaError
        Several fields have these names, or the field has not one value for each row.
    """
    field = find_field(projection, names, among)
    if field is None:
        return None
    index, path = field
    inner = within_structs(projection.schema.field(index), path)
    if inner is None:
        raise SchemaError(
            f"{names!r} has not one value for each row; read it within its column, "
            f"to_arrow([{names!r}])"
        )
    (value, node_lines), lines = inner, projection.nodes(index)
    name = names if isinstance(names, str) else ".".join(names)
    return value.with_name(name).with_nullable(True), [lines[line] for line in node_lines]


def as_columns(
    projection: Projection, expression: pc.Expression
) -> tuple[Projection, pc.Expression]:
    """Return a projection with the fields in a filter as columns, and a filter of these columns.

    Other references to fields stay, and need the whole column. Fields that the projection has
    already get other names, because a filter refers to columns of the table.
    """
    if projection.version.is_flat:
        return projection, expression
    fields: dict[tuple[str, ...], NestedField] = {}
    columns = projection.whole_columns.names

    def column_of(names: tuple[str, ...]) -> str | None:
        """Return the name of the column with the values of a field; None if none can have them."""
        if names not in fields:
            try:
                values = values_of(projection, names, range(len(columns)))
            except SchemaError:
                return None
            if values is None:
                return None
            field, nodes = values
            fields[names] = field.with_name(_free(field.name, taken)), nodes
        name: str = fields[names][0].name
        return name

    taken = set(columns)
    renamed = [_free(name, taken) for name in projection.schema.names[len(columns) :]]
    expression = with_columns_for_fields(expression, column_of)
    wider = projection.with_fields(fields.values())
    names = [*columns, *renamed, *wider.schema.names[len(columns) + len(renamed) :]]
    schema = [field.with_name(name) for field, name in zip(wider.schema, names, strict=True)]
    return replace(wider, schema=pa.schema(schema, wider.schema.metadata)), expression


def _free(name: str, taken: set[str]) -> str:
    """Return a name that no other column has, and add it to these."""
    while name in taken:
        name += "'"
    taken.add(name)
    return name
