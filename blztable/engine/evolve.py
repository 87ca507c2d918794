"""Evolve: other columns. What is not a new column or a wider type is the manifest's alone."""

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa

from blztable.columns.default import decode_default, encode_default, zero_of
from blztable.engine import schema as schemas
from blztable.engine.changes import AddColumns, Rename, Retype, Select
from blztable.engine.edition import Edition
from blztable.engine.grouping import Portion
from blztable.engine.pages import Span
from blztable.engine.parts import OpenParts
from blztable.engine.read import read_columns
from blztable.engine.work import Work
from blztable.engine.write import ColumnWriter
from blztable.errors import ColumnNotFoundError, CorruptError, LimitError, SchemaError
from blztable.format.jsontext import Json

# The rows of one row group.
Rows = Callable[[int], pa.Array | pa.ChunkedArray]


def add_column(
    work: Work,
    field: pa.Field,
    rows_of: Rows,
    *,
    frame: Mapping[str, Json] | None = None,
    default: pa.Scalar | None = None,
) -> None:
    """Write one more column, in the row groups there are, and touch no other."""
    schemas.check(pa.schema([field]))
    edition = work.edition
    if field.name in edition.schema.names:
        raise SchemaError(f"column {field.name!r} is in {edition.store.name} already")
    path = (work.new_column(),)
    column = ColumnWriter(path, field.name, field.type, field.nullable)
    _, written = work.write([column], _portions(edition, rows_of))
    defaults = {} if default is None else {str(path[0]): _text(default)}
    work.add("add_column", AddColumns(edition, [field], written, defaults, frame))


def drop_columns(work: Work, names: Sequence[str], frame: Mapping[str, Json] | None) -> None:
    """Leave out columns; their files go when the last version with them goes.

    `frame` is the descriptor without them.
    """
    gone = set(names)
    kept = [index for index, name in enumerate(work.edition.schema.names) if name not in gone]
    work.add("drop_columns", Select(work.edition, kept, frame))


def reorder_columns(work: Work, names: Sequence[str]) -> None:
    """Put these columns first, in this order."""
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"column {name!r} is to be in two places")
    there = work.edition.schema.names
    first = [index for name in names for index, other in enumerate(there) if other == name]
    rest = [index for index in range(len(there)) if index not in set(first)]
    work.add("reorder_columns", Select(work.edition, [*first, *rest], work.edition.head.pandas))


def rename_columns(work: Work, names: Mapping[str, str], frame: Mapping[str, Json] | None) -> None:
    """Give columns other names; `frame` is the descriptor with these."""
    edition = work.edition
    there = edition.schema.names
    after = [names.get(name, name) for name in there]
    twice = [name for name in names.values() if after.count(name) > there.count(name)]
    if any(after.count(name) > 1 for name in twice):
        raise SchemaError(f"two columns of {edition.store.name} would be named {twice[0]!r}")
    schemas.check(pa.schema([edition.schema.field(0).with_name(name) for name in names.values()]))
    work.add("rename_columns", Rename(edition, dict(names), frame))


def widen(work: Work, schema: pa.Schema, frame: Mapping[str, Json] | None) -> None:
    """Make the table one of this schema, that has wider types and more columns at its end."""
    there = work.edition.schema
    for index, field in enumerate(schema):
        if index >= len(there):
            add_column(work, field, partial(_nulls, work.edition, field.type), frame=frame)
        elif not field.equals(there.field(index), check_metadata=True):
            _retype(work, index, field, frame)


def defaults(edition: Edition) -> dict[int, pa.Scalar]:
    """The values that were declared for new rows, by position."""
    found = {}
    for index, column in enumerate(edition.columns):
        text = edition.defaults.get(str(column.path[0]))
        if text is None:
            continue
        field = edition.schema.field(index)
        try:
            found[index] = _value(text, field.type)
        except (CorruptError, LimitError) as error:
            what = f"{edition.store.name}: the default of column {field.name!r}"
            raise type(error)(f"{what}: {error}") from None
    return found


def _nulls(edition: Edition, type_: pa.DataType, group: int) -> pa.Array:
    return pa.nulls(edition.head.row_groups[group], type_)


def fillings(edition: Edition, nullable: Sequence[bool]) -> list[pa.Scalar]:
    """What rows have in each column that are made without any data: declared, null, or zero."""
    declared = defaults(edition)
    values = []
    for index, field in enumerate(edition.schema):
        # Arrow makes no null scalar of some dictionary types, but arrays of nulls of all.
        empty = pa.nulls(1, field.type)[0] if nullable[index] else zero_of(field.type)
        values.append(declared.get(index, empty))
    return values


def _retype(work: Work, index: int, field: pa.Field, frame: Mapping[str, Json] | None) -> None:
    """Write a column anew, as another type."""
    edition = work.edition
    column = edition.columns[index]
    writer = ColumnWriter(column.path, field.name, field.type, field.nullable, column.next_k)
    with OpenParts(edition) as opened:

        def rows_of(group: int) -> pa.ChunkedArray:
            opened.forget_before(group)
            span = Span(group, 0, edition.head.row_groups[group])
            column = read_columns(edition, [index], [span], parts=opened)[0]
            return _wider(column, field.type)

        _, written = work.write([writer], _portions(edition, rows_of))
    default = defaults(edition).get(index)
    wider = {}
    # Of a dictionary type the value is kept, and only codes grow.
    if default is not None and not pa.types.is_dictionary(field.type):
        wider[str(column.path[0])] = _text(default.cast(field.type))
    work.add("widen", Retype(edition, index, field, written[0], wider, frame))


def _wider(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """The column as a type that holds all its values; of a dictionary type the codes are wider."""
    if not pa.types.is_dictionary(type_):
        return column.cast(type_)
    chunks = [
        pa.DictionaryArray.from_arrays(
            chunk.indices.cast(type_.index_type),
            chunk.dictionary,
            ordered=type_.ordered,
            safe=False,
        )
        for chunk in column.chunks
    ]
    return pa.chunked_array(chunks, type_)


def _portions(edition: Edition, rows_of: Rows) -> Iterator[Portion]:
    for group, rows in enumerate(edition.head.row_groups):
        yield pa.Table.from_arrays([rows_of(group)], names=["rows"]), rows


def check_text(name: object) -> None:
    """TypeError for what cannot name a column."""
    if not isinstance(name, str):
        raise TypeError(f"a column's name is text, not {name!r} of type {type(name).__name__}")


def checked_names(edition: Edition, names: Iterable[str]) -> list[str]:
    """The names of columns that are there, as a list; ColumnNotFoundError where one is not."""
    if isinstance(names, str):
        raise TypeError(f"a list of names; for one column give [{names!r}]")
    there, names = set(edition.schema.names), list(names)
    for name in names:
        check_text(name)
        if name not in there:
            raise ColumnNotFoundError(
                f"no column {name!r} in {edition.store.name}; "
                f"there are {edition.schema.names!r:.1000}"
            )
    return names


def _text(value: pa.Scalar) -> str:
    return base64.b64encode(encode_default(value)).decode("ascii")


def _value(text: Json, type_: pa.DataType) -> pa.Scalar:
    try:
        data = base64.b64decode(text, validate=True)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise CorruptError("a default value that is not base64") from None
    return decode_default(data, type_)
