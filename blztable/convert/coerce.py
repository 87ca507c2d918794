"""Coerce: one item of data as more rows of a table that exists.

Knows names, types and the index of the table, not where the table is.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from blztable.arrow.casts import cast_exactly
from blztable.convert.categories import check_kind
from blztable.convert.coerce_column import CoercionContext, coerce_column
from blztable.convert.frames.descriptor import Descriptor
from blztable.convert.frames.dtypes import is_reinterpreted
from blztable.convert.frames.frame import FrameInfo, descriptor_of
from blztable.convert.frames.index import DEFAULT
from blztable.convert.frames.labels import decode_label
from blztable.convert.gateway import Ingested
from blztable.errors import SchemaError, check_none


def align_index(
    data: Ingested, table: FrameInfo, frame: FrameInfo, rows: int, context: str
) -> pa.Table:
    """Return the columns of a DataFrame whose index continues the table's at `rows` rows.

    A default RangeIndex continues any other. An unnamed index of integers, such as a filter leaves,
    goes into a table with a default RangeIndex, unless the call asks for the index.
    """
    ours, theirs = table.levels, frame.levels
    if ours == [DEFAULT] and not data.keeps_index and _is_unnamed(data, theirs):
        fields = [level["field"] for level in theirs if level["kind"] == "field"]
        return data.table.drop_columns(fields)
    if ours[0]["kind"] == "field":
        if theirs[0]["kind"] == "range" and len(ours) == 1 and _name(ours[0]) == _name(theirs[0]):
            # pandas may return a slice of a stored index without gaps as a RangeIndex.
            start, step = theirs[0]["start"], theirs[0]["step"]
            values = pa.array(start + step * np.arange(data.rows))
            return data.table.append_column(ours[0]["field"], values)
        if _fields(ours) == _fields(theirs):
            return data.table
    elif theirs[0]["kind"] == "range":
        start, step = ours[0]["start"], ours[0]["step"]
        continued = {**ours[0], "start": start + step * rows}
        if theirs[0] in (continued, DEFAULT):
            return data.table
    raise SchemaError(
        f"{context}: the DataFrame has {_index_text(theirs, data.rows)}, "
        f"the table {_index_text(ours, rows)}. {_remedy(ours)}"
    )


def align_empty_index(table: pa.Table, ours: FrameInfo, theirs: FrameInfo) -> pa.Table:
    """Return the columns of a DataFrame without rows, whose index continues any other."""
    for name in set(theirs.index_fields()) & set(table.schema.names):
        table = table.drop_columns(name)
    for name in ours.index_fields():
        table = table.append_column(name, pa.nulls(0))
    return table


def needs_exact_rows(data: Ingested, frame: Descriptor | None) -> bool:
    """True if the RangeIndex of `data` continues the table's only at the present row count."""
    ours, theirs = FrameInfo.decode(frame).levels[0], FrameInfo.decode(data.frame).levels[0]
    if data.frame is None or not data.rows or ours["kind"] != "range" or theirs["kind"] != "range":
        return False
    # In a default RangeIndex the labels are the row numbers, whatever those of the data are.
    return DEFAULT not in (ours, theirs)


def _is_unnamed(data: Ingested, levels: list[Descriptor]) -> bool:
    """True for an index without a name whose labels are integers."""
    if len(levels) > 1 or _name(levels[0]) is not None:
        return False
    if levels[0]["kind"] == "range":
        return True
    field = data.table.schema.field(levels[0]["field"])
    is_other = is_reinterpreted(descriptor_of(field, FrameInfo.decode(data.frame)))
    return bool(pa.types.is_integer(field.type) and not is_other)


def _fields(levels: list[Descriptor]) -> list[tuple[str | None, object]]:
    return [(level.get("field"), _name(level)) for level in levels]


def _name(level: Descriptor) -> object:
    return decode_label(level.get("name"))


def _index_text(levels: list[Descriptor], rows: int) -> str:
    """Describe an index of this row count for an error."""
    names = [_name(level) for level in levels]
    named = "" if names == [None] else f" named {names if len(names) > 1 else names[0]!r:.200}"
    if levels[0]["kind"] == "field":
        return f"a stored index{named}"
    start, step = levels[0]["start"], levels[0]["step"]
    by = "" if step == 1 else f", step {step}"
    return f"a RangeIndex ({start}..{start + step * rows}{by}){named}"


def _remedy(levels: list[Descriptor]) -> str:
    """Return the advice that gives a DataFrame an index that continues this one."""
    if levels[0]["kind"] == "range":
        return "Call df.reset_index(drop=True), or pass index=False"
    return "Give it an index of the same names, with df.set_index() or df.index.set_names()"


# Returns the values of a column that the data lacks, given its index and row count.
Fill = Callable[[int, int], pa.ChunkedArray]


def coerce_item(
    data: Ingested,
    schema: pa.Schema,
    frame: Descriptor | None,
    rows: int,
    context: str,
    *,
    fill: Fill | None = None,
    evolve: bool | None = None,
    is_new: bool = False,
    is_empty: Callable[[int], bool] = lambda index: False,
) -> pa.Table:
    """Return `data` with the columns and types of a table of `rows` rows.

    Without `fill` the data needs all columns. `evolve` is the option of the call, None if it has
    none. `is_new` says that the table is being created, `is_empty` whether a column holds nothing
    but nulls.

    Raises
    ------
    SchemaError
        The columns, a type, a dtype or the index do not match the table; `context` begins the
        message, which names every column that does not.
    """
    target = CoercionContext(FrameInfo.decode(frame), "appended to", evolve, is_new)
    info, table = FrameInfo.decode(data.frame), data.table
    if data.frame is not None and data.rows:
        table = align_index(data, target.info, info, rows, context)
    elif data.frame is not None:
        table = align_empty_index(table, target.info, info)
    is_same = table.schema.equals(schema, check_metadata=True)
    if is_same and target.info.dtypes == info.dtypes:
        # Unchanged, because Arrow refuses to rebuild some arrays, such as empty views.
        return table
    indices = _match(table.schema.names, schema.names, context, fill is None, evolve)

    def coerced(index: int, field: pa.Field, context: str) -> pa.ChunkedArray:
        position = indices[index]
        if position is None:
            assert fill is not None
            return _filled(fill, index, data.rows, field, target, context)
        source = table.schema.field(position)
        check_kind(source, field, descriptor_of(field, target.info), context)
        descriptor = descriptor_of(source, info)
        column = coerce_column(
            table.column(position),
            descriptor,
            field,
            target,
            context,
            is_empty=partial(is_empty, index),
            cast=data.casts.get(source.name, cast_exactly),
        )
        if source.nullable:
            # Data that promise no nulls and have some are kept, as those of a new table are.
            target.check_nulls(column, field, context)
        return column

    columns = _each(schema, context, coerced)
    return table if is_same else pa.Table.from_arrays(columns, schema=schema)


def _each(
    schema: pa.Schema, context: str, coerced: Callable[[int, pa.Field, str], pa.ChunkedArray]
) -> list[pa.ChunkedArray]:
    """Return each column; SchemaError that names all columns that do not fit."""
    columns, errors = [], []
    for index, field in enumerate(schema):
        try:
            columns.append(coerced(index, field, f"{context}, column {field.name!r}"))
        except SchemaError as error:
            errors.append(str(error))
    check_none(errors)
    return columns


def indices_by_name(names_present: Sequence[str], names: Sequence[str]) -> list[int | None] | None:
    """Return the index of each of `names` in `names_present`, None for an absent name.

    Return None if duplicate names make the order ambiguous.
    """
    if names_present == names:
        return list(range(len(names)))
    if len(set(names)) < len(names) or len(set(names_present)) < len(names_present):
        return None
    index_of = {name: index for index, name in enumerate(names_present)}
    return [index_of.get(name) for name in names]


def _match(
    names_present: list[str], names: list[str], context: str, need_all: bool, evolve: bool | None
) -> list[int | None]:
    """Return the index in the data of each column of the table, if the data has no others."""
    indices = indices_by_name(names_present, names)
    present, known = set(names_present), set(names)
    missing = [name for name in names if name not in present] if need_all else []
    unknown = [name for name in names_present if name not in known]
    if indices is not None and not unknown and not missing:
        return indices
    or_evolve = ", or pass evolve=True" if evolve is False and indices is not None else ""
    verbs = [verb for verb, names in (("add", missing), ("drop", unknown)) if names]
    remedies = [
        f"; missing: {missing!r:.200}" if missing else "",
        f"; unknown: {unknown!r:.200}" if unknown else "",
        f"; {' and '.join(verbs)} them{or_evolve}" if verbs else "",
        "; duplicate names need the order of the table" if indices is None else "",
    ]
    raise SchemaError(
        f"{context}: expected the columns {names!r:.300}, found {names_present!r:.300}"
        + "".join(remedies)
    )


def _filled(
    fill: Fill, index: int, rows: int, field: pa.Field, target: CoercionContext, context: str
) -> pa.ChunkedArray:
    """Return the rows of a column that the data lacks, if the column can hold them."""
    if field.name in target.info.index_fields():
        raise SchemaError(f"{context}: missing, and it is the table's index; set it in the data")
    descriptor, values = descriptor_of(field, target.info), fill(index, rows)
    try:
        column = coerce_column(values, descriptor, field, target, context)
        target.check_nulls(column, field, context)
        return column
    except SchemaError:
        raise SchemaError(
            f"{context}: missing, not nullable and without a default; add it to the data, or call "
            f"alter_column({field.name!r}, default=...)"
        ) from None
