"""Names: the columns, and the fields of nested columns, that names select. Reads nothing."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from blztable.arrow.nested.paths import Names, Path, column_of
from blztable.engine.query.fields import find_field, narrowed
from blztable.engine.version.projection import NestedField, Projection
from blztable.errors import no_column


def named(
    projection: Projection,
    columns: Iterable[Names],
    among: Sequence[int],
    argument: str = "columns",
) -> list[int]:
    """Return the indices of all columns with these names, among some.

    Raises
    ------
    ColumnNotFoundError
        No column has one of the names.
    TypeError
        `columns` is not a list of names.
    """
    columns = listed(columns, argument)
    names = projection.schema.names
    indices: dict[Names, list[int]] = {name: [] for name in columns}
    # Each column once, even if the table was made with a list that names it twice.
    for index in dict.fromkeys(among):
        if names[index] in indices:
            indices[names[index]].append(index)
    for name, of_name in indices.items():
        if not of_name:
            raise no_column(name, [names[index] for index in among], projection.version.store.name)
    return [index for name in columns for index in indices[name]]


def named_with_fields(
    projection: Projection, columns: Iterable[Names], among: Sequence[int]
) -> tuple[list[NestedField], list[int]]:
    """Return the fields that are named, and the indices of all columns with these names.

    A nested column of which fields are named is a further column with these fields alone. Raises as
    `named` does.
    """
    columns = listed(columns, "columns")
    names = projection.schema.names
    known = {names[index] for index in among}
    if known.issuperset(columns):
        return [], named(projection, columns, among)
    # For each name the columns that have it, or the column that has such a field.
    found: list[list[tuple[int, Path]]] = []
    for name in columns:
        field = None if name in known else find_field(projection, name, among)
        found.append([field] if field else [(one, ()) for one in named(projection, [name], among)])
    paths: dict[int, list[Path]] = {}
    for index, path in chain.from_iterable(found):
        paths.setdefault(index, []).append(path)
    in_part = [index for index, each in paths.items() if all(each)]
    fields = [narrowed(projection, index, paths[index]) for index in in_part]
    places = {index: len(projection.schema) + n for n, index in enumerate(in_part)}
    shown = [places.get(index, index) for index, _ in chain.from_iterable(found)]
    once = {places.get(index, index) for index, each in paths.items() if any(each)}
    return fields, [one for n, one in enumerate(shown) if one not in once or one not in shown[:n]]


def listed(columns: Iterable[Names], argument: str) -> list[Names]:
    """Return the names as a list; TypeError if they are none."""
    if isinstance(columns, str):
        raise TypeError(f"{argument} must be a list of names, not a str; pass [{columns!r}]")
    if not isinstance(columns, Iterable):
        raise TypeError(f"{argument} must be a list of names, not {type(columns).__name__}")
    return list(map(column_of, columns))


def repeatable(names: Any) -> Any:
    """Return the names so that they can be read twice; what is no iterator is checked later."""
    return list(names) if isinstance(names, Iterator) else names


def names_asked_for(names: Sequence[str], indices: Sequence[int]) -> list[str]:
    """Return the names that select these columns; one name selects all columns that share it."""
    first: dict[str, int] = {}
    for index in indices:
        first.setdefault(names[index], index)
    return [names[index] for index in indices if first[names[index]] == index]


def list_of(columns: Iterable[Names] | None) -> Sequence[Names] | None:
    """Return the names as a list that can be read twice; a single str is refused later."""
    return columns if columns is None or isinstance(columns, str) else list(columns)
