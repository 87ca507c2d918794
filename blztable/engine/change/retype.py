"""Retype: change what columns hold: their types, whether they are nullable, their default values.

A column keeps its files if their bytes are the same values in the new type. Any other column is
written again, one row group at a time. Other columns are not touched.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

import pyarrow as pa

from blztable.arrow.casts import cast_exactly, keeps_anyhow, misfit, repeated, short_text_of
from blztable.arrow.nested.nodes import Node, counts_nulls
from blztable.arrow.types import (
    Portion,
    first_missing,
    is_binary,
    is_text,
    is_view,
    is_zoned,
    stored_type,
)
from blztable.columns.default import to_json
from blztable.columns.parts.physical import physical
from blztable.engine.change.change_set import ChangeSet
from blztable.engine.change.changes import Retype
from blztable.engine.change.reliance import ReadSet
from blztable.engine.query.select import null_counts
from blztable.engine.read.columns import OpenColumns
from blztable.engine.read.selection import RowSpan, stored_portion
from blztable.engine.version import schema as schemas
from blztable.engine.version.schema import paths_of
from blztable.engine.version.staged import StagedColumn, StagedVersion
from blztable.engine.write.column_writer import ColumnWriter, writers_of
from blztable.errors import SchemaError
from blztable.format.jsontext import Json

# Returns a column in another type; None if a value cannot be cast.
Cast = Callable[[pa.ChunkedArray, pa.DataType], pa.ChunkedArray | None]


def retype(
    change_set: ChangeSet,
    operation: str,
    fields: Mapping[int, pa.Field],
    frame: Mapping[str, Json] | None,
    *,
    cast: Cast = cast_exactly,
    new_defaults: Mapping[int, pa.Scalar | None] | None = None,
) -> None:
    """Replace the fields of the columns at these indices, in one change.

    Parameters
    ----------
    frame
        The frame descriptor that belongs to the new fields.
    new_defaults
        New default values; None for no default. Other defaults are cast.

    Raises
    ------
    SchemaError
        A value, or a default, cannot be cast, or is missing in a column that is not nullable.
    """
    staged = change_set.staged
    schemas.check(pa.schema(list(fields.values())))
    fields = {index: schemas.without_false_digits(field) for index, field in fields.items()}
    present = {index: staged.schema.field(index) for index in fields}
    strict = [index for index, new in fields.items() if present[index].nullable > new.nullable]
    for index in strict:
        _check_no_nulls(staged, index)
    rewritten = {
        index: field
        for index, field in fields.items()
        if not _keeps_bytes(present[index].type, field.type)
    }
    defaults = dict(new_defaults or {})
    # A new default replaces a damaged one.
    recast = {
        index: field
        for index, field in fields.items()
        if index not in defaults and not field.type.equals(present[index].type)
    }
    defaults |= _cast_defaults(staged, recast, cast) if recast else {}
    columns = _rewritten(change_set, rewritten, cast) if rewritten else []
    read_set = ReadSet.rows_of(staged) if rewritten or strict else ReadSet.columns_of(staged)
    read_set = read_set.and_defaults(staged, recast)
    by_id = {
        str(staged.root(index).path[0]): None if value is None else to_json(value)
        for index, value in defaults.items()
    }
    nodes = iter(columns)
    written = {
        index: list(islice(nodes, Node.of(field.type).count)) for index, field in rewritten.items()
    }
    change_set.add(operation, Retype(read_set, fields, written, by_id, frame))


def _rewritten(
    change_set: ChangeSet, fields: Mapping[int, pa.Field], cast: Cast
) -> list[StagedColumn]:
    """Write the columns at these indices in other types; return their nodes."""
    staged = change_set.staged
    writers = [
        writer for index, field in fields.items() for writer in _writers(change_set, index, field)
    ]
    with OpenColumns.whole(staged) as opened:
        portions = _portions(opened, list(fields), list(fields.values()), cast)
        return change_set.write(writers, portions)[1]


def _writers(change_set: ChangeSet, index: int, field: pa.Field) -> list[ColumnWriter]:
    """Return the writers of a column in another type; nodes below the root get new directories."""
    root = change_set.staged.root(index)
    nodes = Node.of(field.type)
    if nodes.count == 1:
        return writers_of(field, [root.path])
    (first,), *_ = change_set.commit.files.reserve_columns(nodes.count - 1)
    return writers_of(field, paths_of(field.type, root.path, first))


def _portions(
    opened: OpenColumns, indices: Sequence[int], fields: Sequence[pa.Field], cast: Cast
) -> Iterator[Portion]:
    """Yield the columns of each row group in the types of `fields`."""
    first = 0
    for group, rows in enumerate(opened.version.row_groups):
        opened.forget_before(group)
        columns = opened.columns(indices, [RowSpan(group, 0, rows)])
        arrays = [
            _cast(column, field, cast, first) for column, field in zip(columns, fields, strict=True)
        ]
        yield stored_portion(opened.version, group, arrays)
        first += rows


def _cast(column: pa.ChunkedArray, field: pa.Field, cast: Cast, first: int) -> pa.ChunkedArray:
    """Return a column, whose rows begin at `first`, as another type."""
    result = cast(column, field.type)
    if result is not None:
        return result
    row, value = misfit(column, lambda rows: cast(rows, field.type))
    how = " without loss" if cast is cast_exactly else ""
    remedy = "update the value, or choose another type"
    if cast is cast_exactly and keeps_anyhow(column.type, field.type):
        remedy = "call alter_column with safe=False"
    are_times = pa.types.is_timestamp(column.type) and pa.types.is_timestamp(field.type)
    if are_times and is_zoned(column.type) != is_zoned(field.type):
        times = f"t[{field.name!r}][:]"
        made = f"local_timestamp({times})"
        if is_zoned(field.type):
            made = f"assume_timezone({times}, {field.type.tz!r})"
        remedy = f'add the times as another column, with t.add_column("new", pc.{made})'
    raise SchemaError(
        f"column {field.name!r}: {column.type} cannot become {field.type}{how}: "
        f"row {first + row} is {value}; {remedy}"
    )


def _cast_defaults(
    staged: StagedVersion, fields: Mapping[int, pa.Field], cast: Cast
) -> dict[int, pa.Scalar | None]:
    """Return the declared default values of these columns in their new types."""
    values: dict[int, pa.Scalar | None] = {}
    for index, value in staged.default_values().items():
        field = fields.get(index)
        if field is None:
            continue
        column = repeated(stored_type(value.type), 1, value)
        column = cast(column, field.type)
        if column is None:
            raise SchemaError(
                f"column {field.name!r}: the default value {short_text_of(value)} cannot become "
                f"{field.type}; pass another default to alter_column"
            )
        values[index] = column[0]
    return values


def _check_no_nulls(staged: StagedVersion, index: int) -> None:
    """Raise SchemaError if a row of a column is null; the statistics of the row groups know."""
    field, first = staged.schema.field(index), 0
    with OpenColumns.whole(staged) as opened:
        nulls = null_counts(opened, index)
    for group, (rows, missing) in enumerate(zip(staged.row_groups, nulls, strict=True)):
        if missing or not counts_nulls(field.type):
            with OpenColumns.whole(staged) as opened:
                [column] = opened.columns([index], [RowSpan(group, 0, rows)])
            row = first_missing(column)
            if row is not None:
                raise SchemaError(
                    f"column {field.name!r}: row {first + row} is null, so the column cannot be "
                    f"not null; fill it first, with update({{{field.name!r}: ...}}, "
                    f"where=pc.field({field.name!r}).is_null())"
                )
        first += rows


def _keeps_bytes(old: pa.DataType, new: pa.DataType) -> bool:
    """True if the files of a column of type `old` hold the same values of type `new`."""
    types = pa.types
    if types.is_dictionary(old) and types.is_dictionary(new):
        is_same = old.index_type == new.index_type and new.ordered in (False, old.ordered)
        return is_same and _keeps_bytes(old.value_type, new.value_type)
    if types.is_decimal(old) and old.id == new.id:
        return bool(old.scale == new.scale and old.precision <= new.precision)
    if types.is_timestamp(old) and types.is_timestamp(new):
        return bool(old.unit == new.unit and (old.tz is None) == (new.tz is None))
    stored, wanted = stored_type(old), stored_type(new)
    if is_text(stored) and is_binary(wanted):
        return physical(stored).width == physical(wanted).width
    # A part of a large type may be too large for a view.
    return stored.equals(wanted) and is_view(new) <= is_view(old)
