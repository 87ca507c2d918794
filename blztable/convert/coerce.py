"""Coerce: one item of data as more rows of a table that exists.

Knows names, types and the index of the table, not where the table is.
"""

from collections.abc import Callable, Sequence

import pyarrow as pa

from blztable.convert.coerce_column import TableFacts, coerce_column
from blztable.convert.coerce_index import align_empty_index, align_index
from blztable.convert.frames.descriptor import Descriptor
from blztable.convert.frames.frame import Facts, descriptor_of
from blztable.convert.gateway import Ingested
from blztable.errors import SchemaError

# Returns the values of a column that the data lacks, given its index and row count.
Fill = Callable[[int, int], pa.ChunkedArray]


def coerce_item(
    data: Ingested,
    schema: pa.Schema,
    frame: Descriptor | None,
    rows: int,
    context: str,
    *,
    drawn: int | None = None,
    fill: Fill | None = None,
    evolve: bool | None = None,
) -> pa.Table:
    """Return `data` with the columns and types of a table of `rows` rows.

    `drawn` of these rows came from the same source, which may count its own rows. Without `fill`
    the data needs all columns. `evolve` is the option of the call, None if it has none.

    Raises
    ------
    SchemaError
        The columns, a type, a dtype or the index do not match the table; `context` begins the
        message.
    """
    target = TableFacts.of(frame, "appended to", evolve)
    facts, table = Facts.decode(data.frame), data.table
    if data.frame is not None and data.rows:
        table = align_index(data, target.facts, facts, rows, drawn, context)
    elif data.frame is not None:
        table = align_empty_index(table, target.facts, facts)
    is_same = table.schema.equals(schema, check_metadata=True)
    if is_same and target.facts.dtypes == facts.dtypes:
        _check_nulls(table, target, context)
        return (
            table  # Unchanged, because Arrow refuses to rebuild some arrays, such as empty views.
        )
    indices = _match(table.schema.names, schema.names, context, fill is None, evolve)
    columns = []
    for index, (field, position) in enumerate(zip(schema, indices, strict=True)):
        column_context = f"{context}, column {field.name!r}"
        if position is None:
            assert fill is not None
            columns.append(_filled(fill, index, data.rows, field, target, column_context))
        else:
            descriptor = descriptor_of(table.schema.field(position), facts)
            column = table.column(position)
            columns.append(coerce_column(column, descriptor, field, target, column_context))
    return table if is_same else pa.Table.from_arrays(columns, schema=schema)


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
    remedies = [
        f"; missing: {missing!r:.200}" if missing else "",
        f"; unknown: {unknown!r:.200}; drop them{or_evolve}" if unknown else "",
        "; duplicate names need the order of the table" if indices is None else "",
    ]
    raise SchemaError(
        f"{context}: expected the columns {names!r:.300}, found {names_present!r:.300}"
        + "".join(remedies)
    )


def _check_nulls(table: pa.Table, target: TableFacts, context: str) -> None:
    """Raise SchemaError for missing values in a column that cannot be null."""
    for index, field in enumerate(table.schema):
        if target.is_frame or not field.nullable:
            target.check_nulls(table.column(index), field, f"{context}, column {field.name!r}")


def _filled(
    fill: Fill, index: int, rows: int, field: pa.Field, target: TableFacts, context: str
) -> pa.ChunkedArray:
    """Return the rows of a column that the data lacks, if the column can hold them."""
    if field.name in target.facts.index_fields():
        raise SchemaError(f"{context}: missing, and it is the table's index; set it in the data")
    descriptor = descriptor_of(field, target.facts)
    try:
        return coerce_column(fill(index, rows), descriptor, field, target, context)
    except SchemaError:
        raise SchemaError(
            f"{context}: missing, without a default, and {field.type} cannot be null here; "
            "add it to the data"
        ) from None
