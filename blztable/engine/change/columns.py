"""Columns: add, drop, rename, reorder and widen columns.

Only a new column and a wider type write files; the other changes concern the manifest alone.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

import pyarrow as pa

from blztable.arrow.nested.paths import Names, column_of
from blztable.arrow.types import Portion, nulls
from blztable.columns.default import to_json, zero_of
from blztable.engine.change.change_set import ChangeSet
from blztable.engine.change.changes import AddColumns, Rename, Select
from blztable.engine.change.fields import Path, find
from blztable.engine.change.reliance import ReadSet
from blztable.engine.change.retype import retype
from blztable.engine.read.selection import stored_portion
from blztable.engine.run.limits import check_values
from blztable.engine.version import schema as schemas
from blztable.engine.version.staged import StagedColumn, StagedVersion
from blztable.errors import SchemaError, check_encodes, no_column
from blztable.format.jsontext import Json

# Returns the rows of the row group with this index.
MakeRows = Callable[[int], pa.Array | pa.ChunkedArray]


def add_column(
    change_set: ChangeSet,
    field: pa.Field,
    rows_of: MakeRows,
    default: pa.Scalar | None = None,
    meta: Mapping[str, bytes] | None = None,
) -> None:
    """Add a column with the present row groups. Other columns are not touched."""
    staged = change_set.staged
    written = _write(change_set, [field], lambda group: [rows_of(group)])
    defaults = {} if default is None else {str(written[0].path[0]): to_json(default)}
    change_set.add(
        "add_column",
        AddColumns(
            ReadSet.rows_of(staged), [field], written, defaults, staged.head.pandas, meta or {}
        ),
    )


def _write(
    change_set: ChangeSet,
    fields: Sequence[pa.Field],
    rows_of: Callable[[int], Sequence[pa.Array | pa.ChunkedArray]],
) -> list[StagedColumn]:
    """Write the parts of new columns; SchemaError if a name is taken."""
    schemas.check(pa.schema(fields))
    staged = change_set.staged
    names = set(staged.schema.names)
    for field in fields:
        if field.name in names:
            raise SchemaError(
                f"{staged.store.name} already has a column {field.name!r}; choose another name, "
                "or drop the column first"
            )
        names.add(field.name)
    columns = change_set.new_columns(fields)
    return change_set.write(columns, _portions(staged, rows_of))[1]


def drop_columns(
    change_set: ChangeSet, names: Sequence[str], frame: Mapping[str, Json] | None
) -> None:
    """Drop columns. Their files are removed with the last version that has them.

    `frame` is the frame descriptor without these columns.
    """
    dropped = set(names)
    present = enumerate(change_set.staged.schema.names)
    kept = [index for index, name in present if name not in dropped]
    change_set.add("drop_columns", Select(ReadSet.columns_of(change_set.staged), kept, frame))


def move_column(change_set: ChangeSet, index: int, position: int) -> None:
    """Give a column another position, negative from the end."""
    staged = change_set.staged
    order = list(range(len(staged.schema)))
    if not -len(order) <= position < len(order):
        raise ValueError(f"position must be from 0 to {len(order) - 1}, not {position}")
    order.insert(position % len(order), order.pop(index))
    change_set.add("alter_column", Select(ReadSet.columns_of(staged), order, staged.head.pandas))


def rename_columns(
    change_set: ChangeSet, names: Mapping[str, str], frame: Mapping[str, Json] | None
) -> None:
    """Rename columns; `names` maps present names to new ones, `frame` has the new names."""
    staged = change_set.staged
    present = staged.schema.names
    before, after = Counter(present), Counter(names.get(name, name) for name in present)
    for name in names.values():
        if after[name] > max(before[name], 1):
            raise SchemaError(
                f"two columns of {staged.store.name} would be named {name!r}; "
                "give each column a name of its own"
            )
    schemas.check(pa.schema([staged.schema.field(0).with_name(name) for name in names.values()]))
    change_set.add("rename_columns", Rename(ReadSet.columns_of(staged), dict(names), frame))


def widen(change_set: ChangeSet, schema: pa.Schema, frame: Mapping[str, Json] | None) -> None:
    """Change the table to a schema with wider types, or with more columns at the end.

    Columns of floats keep as many digits as before.
    """
    present = change_set.staged.schema
    if schema.equals(present, check_metadata=True):
        return
    kept = list(map(schemas.digits_of, present))
    fields = [
        schemas.with_digits(field, digits) if pa.types.is_floating(field.type) else field
        for field, digits in zip_longest(schema, kept)
    ]
    wider = {
        index: field
        for index, (field, old) in enumerate(zip(fields, present, strict=False))
        if not field.equals(old, check_metadata=True)
    }
    if wider:
        retype(change_set, "widen", wider, frame)
    new = fields[len(present) :]
    if new:
        rows_of = partial(_nulls, change_set.staged, [field.type for field in new])
        # All in one change, because the time of a change grows with the number of columns.
        staged, written = change_set.staged, _write(change_set, new, rows_of)
        change_set.add("add_column", AddColumns(ReadSet.rows_of(staged), new, written, {}, frame))


def _nulls(staged: StagedVersion, types: Sequence[pa.DataType], group: int) -> list[pa.Array]:
    rows = staged.row_groups[group]
    for type_ in types:
        check_values(rows, type_)
    return [nulls(rows, type_) for type_ in types]


def empty_of(field: pa.Field) -> pa.Scalar:
    """Return the value of a column without a default in rows without data: null or zero."""
    # For some dictionary types Arrow can make a null only in an array.
    return nulls(1, field.type)[0] if field.nullable else zero_of(field.type)


def _portions(
    staged: StagedVersion, rows_of: Callable[[int], Sequence[pa.Array | pa.ChunkedArray]]
) -> Iterator[Portion]:
    for group in range(len(staged.row_groups)):
        yield stored_portion(staged, group, rows_of(group))


def checked_text(name: object) -> str:
    """Return a name; TypeError if it is not text."""
    if not isinstance(name, str):
        raise TypeError(f"a column name must be text, not {name!r} of type {type(name).__name__}")
    return name


def checked_new(name: object) -> str:
    """Return the name of a new column; SchemaError if UTF-8 cannot encode it."""
    text = checked_text(name)
    check_encodes(text, "the name")
    return text


def check_target(staged: StagedVersion, name: object, evolve: bool) -> None:
    """Raise an error for a name of no column, or of several; with `evolve`, for no name at all."""
    if not evolve or checked_new(name) in staged.schema.names:
        staged.index_of(checked_text(name))


def checked_mapping(
    mapping: Mapping[Any, Any], argument: str, contents: str = "column names to values"
) -> dict[Any, Any]:
    """Return the mapping as a dict; TypeError if it is no mapping."""
    # A DataFrame is not a Mapping, but its items are.
    if not hasattr(mapping, "items"):
        raise TypeError(f"{argument} must be a mapping of {contents}, not {type(mapping).__name__}")
    return dict(mapping.items())


def checked_names(
    staged: StagedVersion, names: Iterable[Names]
) -> tuple[list[str], list[tuple[int, Path]]]:
    """Return the columns and the fields with these names.

    Raises
    ------
    ColumnNotFoundError
        There is no column and no field of a name, or several fields.
    """
    if isinstance(names, str):
        raise TypeError(f"expected a list of column names; for one column pass [{names!r}]")
    if not isinstance(names, Iterable):
        raise TypeError(f"columns must be a list of column names, not {type(names).__name__}")
    present = set(staged.schema.names)
    columns: list[str] = []
    fields: list[tuple[int, Path]] = []
    for name in names:
        column = column_of(name)
        if not isinstance(name, tuple):
            checked_text(name)
        if isinstance(column, str) and column in present:
            columns.append(column)
            continue
        field = find(staged, name)
        if field is None:
            raise no_column(name, staged.schema.names, staged.store.name)
        fields.append(field)
    return columns, fields
