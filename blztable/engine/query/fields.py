"""Fields: fields of nested columns, shown as columns of a view of the version.

A field of structs is a column with a row for each row of the table: it is null where a struct is,
in its files too. So a filter on it is a filter on a flat column, with statistics and codes, and
neither the struct nor its other fields are read. Knows nothing of rows.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.extensions import retyped
from blztable.arrow.nested.nodes import Node
from blztable.arrow.nested.paths import Names, Path, find_in, pruned, within_structs
from blztable.engine.query.expression_tree import with_columns_for_fields
from blztable.engine.version.versions import Version
from blztable.errors import SchemaError


@dataclass(frozen=True, slots=True)
class FieldView:
    """A column of a view.

    Attributes
    ----------
    index
        The nested column.
    paths
        The fields of it that are shown.
    name
        The name of the column that shows the values of a single field of structs; "" for a column
        of the type of the nested one, without its other fields.
    """

    index: int
    paths: tuple[Path, ...]
    name: str = ""

    def of(self, version: Version) -> tuple[pa.Field, Sequence[int]]:
        """Return the field of the view, and the lines of its nodes."""
        field, lines = version.schema.field(self.index), version.tree.nodes(self.index)
        if not self.name:
            type_, places = pruned(Node.of(field.type), self.paths)
            return retyped(field, type_), [lines[place] for place in places]
        inner = within_structs(field, self.paths[0])
        assert inner is not None, self
        value, nodes = inner
        return value.with_name(self.name).with_nullable(True), [lines[place] for place in nodes]


def find_field(version: Version, names: Names, among: Collection[int]) -> tuple[int, Path] | None:
    """Return the column and the path of a field of nested columns; None if there is none.

    Raises
    ------
    SchemaError
        Several fields have these names.
    """
    if version.tree.is_flat:
        return None
    matches = [one for one in find_in(version.schema, names) if one[0] in among]
    if len(matches) > 1:
        raise SchemaError(
            f"{len(matches)} fields are named {names!r}; give the names of a path as a tuple, or "
            "read the whole column"
        )
    return matches[0] if matches else None


def value_view(version: Version, names: Names, among: Collection[int]) -> FieldView | None:
    """Return the view of a field's own values; None if there is no field with these names.

    Raises
    ------
    SchemaError
        Several fields have these names, or the field has not one value for each row.
    """
    found = find_field(version, names, among)
    if found is None:
        return None
    index, path = found
    if within_structs(version.schema.field(index), path) is None:
        raise SchemaError(
            f"{names!r} has not one value for each row; read it within its column, "
            f"to_arrow([{names!r}])"
        )
    return FieldView(index, (path,), names if isinstance(names, str) else ".".join(names))


def as_columns(version: Version, expression: pc.Expression) -> tuple[Version, pc.Expression]:
    """Return a view of a version, and a filter that refers to columns of it instead of fields.

    Other references to fields stay, and need the whole column. Columns that are views in `version`
    get other names, because a filter refers to columns of the table.
    """
    if version.tree.is_flat:
        return version, expression
    views: dict[tuple[str, ...], FieldView] = {}
    everything = range(len(version.stored_schema))

    def column_of(names: tuple[str, ...]) -> str | None:
        """Return the name of the column that shows a field; None if none can."""
        try:
            view = views.get(names) or value_view(version, names, everything)
        except SchemaError:
            return None
        if view is not None and names not in views:
            view = views[names] = replace(view, name=_free(view.name, taken))
        return view.name if view else None

    taken = set(version.stored_schema.names)
    shown = [_free(name, taken) for name in version.schema.names[len(everything) :]]
    expression = with_columns_for_fields(expression, column_of)
    names = [*version.stored_schema.names, *shown, *(view.name for view in views.values())]
    view = version.with_views([view.of(version) for view in views.values()])
    fields = [field.with_name(name) for field, name in zip(view.schema, names, strict=True)]
    return replace(view, schema=pa.schema(fields, view.schema.metadata)), expression


def _free(name: str, taken: set[str]) -> str:
    """Return a name that no other column has, and add it to these."""
    while name in taken:
        name += "'"
    taken.add(name)
    return name
