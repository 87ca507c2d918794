"""Evolve: other columns. What is not a new column or a wider type is the manifest's alone."""

import base64
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

import pyarrow as pa

from blztable.columns.default import decode_default, encode_default, zero_of
from blztable.engine.change.change_set import Work
from blztable.engine.change.changes import AddColumns, Rename, Retype, Seen, Select
from blztable.engine.change.staged import Edition, Written
from blztable.engine.read.columns import read_columns
from blztable.engine.read.parts import OpenParts
from blztable.engine.read.selection import Span
from blztable.engine.run.limits import check_values
from blztable.engine.version import schema as schemas
from blztable.engine.write.columns import ColumnWriter
from blztable.engine.write.row_groups import Portion
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
    settled: Callable[[], tuple[pa.Field, pa.Scalar | None]] | None = None,
) -> None:
    """Write one more column, in the row groups there are, and touch no other.

    `settled` is called when the rows are written, and returns the field and the default value: the
    metadata of the field may depend on the rows, which are computed only once.
    """
    edition = work.edition
    written = _written(work, [field], lambda group: [rows_of(group)])
    final, default = (field, None) if settled is None else settled()
    assert (final.name, final.type, final.nullable) == (field.name, field.type, field.nullable)
    kept = {} if default is None else {str(written[0].parts.path[0]): _text(default)}
    work.add("add_column", AddColumns(Seen.rows_of(edition), [final], written, kept, frame))


def _written(
    work: Work,
    fields: Sequence[pa.Field],
    rows_of: Callable[[int], Sequence[pa.Array | pa.ChunkedArray]],
) -> list[Written]:
    """Write the parts of new columns."""
    schemas.check(pa.schema(fields))
    edition = work.edition
    there = set(edition.schema.names)
    for field in fields:
        if field.name in there:
            raise SchemaError(f"column {field.name!r} is in {edition.store.name} already")
        there.add(field.name)
    columns = [
        ColumnWriter((work.new_column(),), field.name, field.type, field.nullable)
        for field in fields
    ]
    return work.write(columns, _portions(edition, rows_of))[1]


def drop_columns(work: Work, names: Sequence[str], frame: Mapping[str, Json] | None) -> None:
    """Leave out columns; their files go when the last version with them goes.

    `frame` is the descriptor without them.
    """
    gone = set(names)
    kept = [index for index, name in enumerate(work.edition.schema.names) if name not in gone]
    work.add("drop_columns", Select(Seen.columns_of(work.edition), kept, frame))


def reorder_columns(work: Work, names: Sequence[str]) -> None:
    """Put these columns first, in this order."""
    # In this order; several columns may have one name.
    first: dict[str, list[int]] = {name: [] for name in names}
    if len(first) < len(names):
        name = next(name for name, count in Counter(names).items() if count > 1)
        raise ValueError(f"column {name!r} is to be in two places; name each column once")
    rest: list[int] = []
    edition = work.edition
    for index, name in enumerate(edition.schema.names):
        first.get(name, rest).append(index)
    order = [*chain.from_iterable(first.values()), *rest]
    work.add("reorder_columns", Select(Seen.columns_of(edition), order, edition.head.pandas))


def rename_columns(work: Work, names: Mapping[str, str], frame: Mapping[str, Json] | None) -> None:
    """Give columns other names; `frame` is the descriptor with these."""
    edition = work.edition
    there = edition.schema.names
    before, after = Counter(there), Counter(names.get(name, name) for name in there)
    for name in names.values():
        if after[name] > max(before[name], 1):
            raise SchemaError(f"two columns of {edition.store.name} would be named {name!r}")
    schemas.check(pa.schema([edition.schema.field(0).with_name(name) for name in names.values()]))
    work.add("rename_columns", Rename(Seen.columns_of(edition), dict(names), frame))


def widen(work: Work, schema: pa.Schema, frame: Mapping[str, Json] | None) -> None:
    """Make the table one of this schema, that has wider types and more columns at its end."""
    there = work.edition.schema
    fields = list(schema)
    wider = {
        index: field
        for index, (field, old) in enumerate(zip(fields, there, strict=False))
        if not field.equals(old, check_metadata=True)
    }
    if wider:
        _retype(work, wider, frame)
    new = fields[len(there) :]
    if new:
        rows_of = partial(_nulls, work.edition, [field.type for field in new])
        # In one change: each takes time for all columns there are.
        edition, written = work.edition, _written(work, new, rows_of)
        work.add("add_column", AddColumns(Seen.rows_of(edition), new, written, {}, frame))


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


def _nulls(edition: Edition, types: Sequence[pa.DataType], group: int) -> list[pa.Array]:
    rows = edition.head.row_groups[group]
    for type_ in types:
        check_values(rows, type_)
    return [pa.nulls(rows, type_) for type_ in types]


def fillings(edition: Edition, nullable: Sequence[bool]) -> list[pa.Scalar]:
    """What rows have in each column that are made without any data: declared, null, or zero."""
    declared = defaults(edition)
    values = []
    for index, field in enumerate(edition.schema):
        # Arrow makes no null scalar of some dictionary types, but arrays of nulls of all.
        empty = pa.nulls(1, field.type)[0] if nullable[index] else zero_of(field.type)
        values.append(declared.get(index, empty))
    return values


def _retype(work: Work, fields: Mapping[int, pa.Field], frame: Mapping[str, Json] | None) -> None:
    """Write the columns at these positions anew, as other types, all in one change."""
    edition = work.edition
    columns = [edition.columns[index] for index in fields]
    writers = [
        ColumnWriter(column.path, field.name, field.type, field.nullable, column.next_k)
        for column, field in zip(columns, fields.values(), strict=True)
    ]
    with OpenParts(edition) as opened:

        def rows_of(group: int) -> list[pa.ChunkedArray]:
            opened.forget_before(group)
            span = Span(group, 0, edition.head.row_groups[group])
            columns = read_columns(edition, list(fields), [span], parts=opened)
            types = [field.type for field in fields.values()]
            return list(map(_wider, columns, types))

        _, written = work.write(writers, _portions(edition, rows_of))
    declared = defaults(edition)
    kept = {
        str(edition.columns[index].path[0]): _text(declared[index].cast(field.type))
        for index, field in fields.items()
        # Of a dictionary type the value is kept, and only codes grow.
        if index in declared and not pa.types.is_dictionary(field.type)
    }
    parts = dict(zip(fields, written, strict=True))
    work.add("widen", Retype(Seen.rows_of(edition), fields, parts, kept, frame))


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


def _portions(
    edition: Edition, rows_of: Callable[[int], Sequence[pa.Array | pa.ChunkedArray]]
) -> Iterator[Portion]:
    for group, rows in enumerate(edition.head.row_groups):
        arrays = list(rows_of(group))
        yield pa.Table.from_arrays(arrays, names=list(map(str, range(len(arrays))))), rows


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
