"""Names, row numbers and counts that users pass, checked. Reads nothing.

Names select columns, and fields of nested columns.
"""

import operator
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from blztable.arrow.nested.paths import Names, Path, column_of
from blztable.engine.query.fields import find_field, narrowed
from blztable.engine.version.projection import NestedField, Projection
from blztable.errors import no_column

# Names of columns, or those that are stored as dictionaries.
Coded: TypeAlias = Sequence[str] | Literal["auto"] | None
# The first row and the row after the last one; None stands for all rows.
Rows: TypeAlias = tuple[int, int] | Sequence[int] | None


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
    return _named(projection, listed(columns, argument), among)


def _named(projection: Projection, columns: Sequence[Names], among: Sequence[int]) -> list[int]:
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
        return [], _named(projection, columns, among)
    # For each name the columns that have it, or the column that has such a field.
    requested: list[tuple[int, Path]] = []
    for name in columns:
        field = None if name in known else find_field(projection, name, among)
        indices = [] if field else named(projection, [name], among)
        requested += [field] if field else [(index, ()) for index in indices]
    paths: dict[int, list[Path]] = {}
    for index, path in requested:
        paths.setdefault(index, []).append(path)
    in_part = [index for index, each in paths.items() if all(each)]
    fields = [narrowed(projection, index, paths[index]) for index in in_part]
    positions = {index: len(projection.schema) + n for n, index in enumerate(in_part)}
    indices = [positions.get(index, index) for index, _ in requested]
    once = {positions.get(index, index) for index, each in paths.items() if any(each)}
    return fields, [
        index for n, index in enumerate(indices) if index not in once or index not in indices[:n]
    ]


def listed(columns: Iterable[Names], argument: str) -> list[Names]:
    """Return the names as a list; TypeError if they are none."""
    if isinstance(columns, str):
        raise TypeError(f"{argument} must be a list of names, not a str; pass [{columns!r}]")
    if not isinstance(columns, list | Iterable):
        raise TypeError(f"{argument} must be a list of names, not {type(columns).__name__}")
    return [one if isinstance(one, str) else column_of(one) for one in columns]


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


def row_numbers(indices: Any, rows: int) -> np.ndarray:
    """Return the row numbers as an int64 array; IndexError unless each is from 0 to `rows` - 1."""
    if isinstance(indices, pa.Array | pa.ChunkedArray):
        if indices.null_count:
            raise IndexError("a row number is null; drop the nulls first")
        indices = indices.to_numpy(zero_copy_only=False) if len(indices) else np.zeros(0, np.int64)
    try:
        numbers = np.asarray(indices)
    except (TypeError, ValueError):
        numbers = np.array(None)
    if numbers.size == 0 and numbers.ndim == 1:
        return np.zeros(0, np.int64)
    if numbers.dtype.kind not in "iu" or numbers.ndim != 1:
        kind = f"{numbers.ndim}-d {numbers.dtype}" if numbers.size else type(indices).__name__
        raise TypeError(
            f"row numbers must be a 1-d array of integers, not {kind}; for a condition pass "
            "filters= to to_arrow()"
        )
    least, most = numbers.min(), numbers.max()
    if least < 0 or most >= rows:
        wrong = least if least < 0 else most
        raise IndexError(f"row {wrong} is out of range for a table of {rows} rows")
    return numbers.astype(np.int64, copy=False)


def row_range(rows: Any, count: int) -> tuple[int, int]:
    """Return the first row and the row after the last one, of a table of `count` rows.

    As in a slice, rows behind the last one are left out. Raises TypeError unless `rows` are two
    integers, and ValueError if they are negative or do not ascend.
    """
    if isinstance(rows, slice | range | str | bytes) or not isinstance(rows, Iterable):
        pair = []
    else:
        pair = list(islice(rows, 3))
    if len(pair) != 2:
        raise TypeError(
            f"rows must be (first row, row after the last one), not {rows!r:.60}; read single rows "
            "with take()"
        )
    start, stop = (checked_integer(one, "a row number") for one in pair)
    if not 0 <= start <= stop:
        raise ValueError(
            f"rows must be (first row, row after the last one) with 0 <= first <= after, not "
            f"{(start, stop)}; read the last rows with tail()"
        )
    return min(start, count), min(stop, count)


def checked_count(value: Any, name: str, least: int = 0) -> int:
    """Return the number as an int; TypeError if it is no integer, ValueError if it is too small."""
    number = checked_integer(value, name)
    if number < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    return number


def checked_integer(value: Any, name: str) -> int:
    """Return the value as an int; TypeError if it is no integer."""
    if not isinstance(value, bool):
        with suppress(TypeError):
            return operator.index(value)
    raise TypeError(f"{name} must be an integer, not {value!r:.60} of type {type(value).__name__}")
