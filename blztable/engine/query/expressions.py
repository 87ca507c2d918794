"""Expressions: check a filter against a schema, and evaluate it for all rows of some arrays.

Knows nothing of files, versions, statistics or pruning.

Theory of operation. A filter is an Arrow expression; pandas' tuples become one. Arrow (Acero)
evaluates it, in the calling thread only: callers are tasks of the pool, which has as many threads
as cores. Arrow does not list the columns of an expression, so they are searched by trial: the
columns whose name occurs in its text are renamed one by one, and where it no longer evaluates on
a row of nulls, it needs that column. That row also finds type errors before any data are read.

A column is compared by its values: a dictionary is decoded, and a type for which Arrow lacks
kernels is cast to a wider one with the same values (`compared_type`).
"""

import pickle
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc
import pyarrow.parquet as parquet

from blztable.arrow.errors import REFUSALS
from blztable.arrow.nested.assemble import decoded
from blztable.arrow.nested.nodes import is_nested
from blztable.arrow.nested.paths import Names, value_of
from blztable.arrow.nested.struct_fields import has_safe_fields, inner_field
from blztable.arrow.types import bits_of, nulls
from blztable.columns.codecs import null
from blztable.columns.stored import as_compared, compared_type
from blztable.engine.query.expression_tree import (
    functions,
    tree,
    with_columns_for_fields,
    with_safe_literals,
)
from blztable.engine.query.text import literals, where
from blztable.engine.run.limits import check_rows
from blztable.errors import ColumnNotFoundError, SchemaError, no_column

_OPERATORS = ("=", "==", "!=", "<", ">", "<=", ">=", "in", "not in")
_OF_MANY = ("in", "not in")


def as_expression(filters: object, schema: pa.Schema | None = None) -> pc.Expression:
    """Return a filter as an expression: a text, an expression, or a list of (lists of) tuples.

    `where` says what a text is. Tuples of one list are joined by and, lists by or. A value is cast
    to the type as which its column is compared, if that loses nothing.

    Raises
    ------
    TypeError
        The filter is neither a text, an expression nor a list.
    ValueError
        The text or the list is not a valid filter.
    """
    if isinstance(filters, str) and schema is not None:
        filters = where.parse(filters, schema)
    if _is_predicate(filters):
        filters = [filters]
    if isinstance(filters, pc.Expression):
        return with_safe_literals(filters)
    if not isinstance(filters, list):
        raise TypeError(
            "a filter must be a pyarrow Expression, a text, or a list of tuples (column, operator, "
            f"value), not {type(filters).__name__}"
        )
    for predicate in _predicates(filters):
        _check_predicate(predicate)
    try:
        return with_safe_literals(
            parquet.filters_to_expression(_typed(filters, schema or pa.schema([])))
        )
    except (*REFUSALS, TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"the filter {filters!r:.500} is not valid: {error}; "
            "give a value that Arrow can compare with the column"
        ) from None


def _typed(filters: list[Any], schema: pa.Schema) -> list[Any]:
    """Return lists of tuples, with their values cast to the types of their columns."""
    if _is_predicate(filters[0]):
        filters = [filters]
    return [[_typed_predicate(one, schema) for one in conjunction] for conjunction in filters]


def _typed_predicate(predicate: Sequence[Any], schema: pa.Schema) -> tuple[Names, str, Any]:
    """Return a tuple with its value cast to the type of its column, or of its field."""
    column, operator, value = predicate
    indices = schema.get_all_field_indices(column) if isinstance(column, str) else []
    type_ = schema.types[indices[0]] if len(indices) == 1 else None
    field = None if indices else value_of(schema, column)
    if field is not None:
        column, type_ = field
    if isinstance(value, pa.Array | pa.ChunkedArray | pa.Scalar):
        return column, operator, _comparable(value)
    is_many = operator in _OF_MANY
    values = list(map(_comparable, value)) if is_many else [_comparable(value)]
    if type_ is not None:
        type_ = compared_type(type_)
        typed = _as_type(values, type_)
        if typed is not None:
            return column, operator, typed if is_many else typed[0]
        values = [_moment(one, type_) for one in values]
    return column, operator, values if is_many else values[0]


def _moment(value: Any, type_: pa.DataType) -> Any:
    """Return the text of a date or time as a value of a type of time; else the value unchanged."""
    if not isinstance(value, str) or not pa.types.is_temporal(type_):
        return value
    with suppress(*REFUSALS, ValueError):
        return literals.moment(value, type_) or value
    return value


def _comparable(value: Any) -> Any:
    """Return a value in a type that Arrow can compare; a value that is no Arrow one unchanged."""
    if isinstance(value, uuid.UUID):
        # pyarrow makes no array of a value and a type of it.
        return value.bytes
    if isinstance(value, pa.ExtensionScalar):
        value = value.value
    if isinstance(value, pa.ExtensionArray):
        value = value.storage
    if not isinstance(value, pa.Array | pa.ChunkedArray | pa.Scalar):
        return value
    type_ = compared_type(value.type)
    return value if type_ == value.type else value.cast(type_)


def _as_type(values: list[Any], type_: pa.DataType) -> pa.Array | None:
    """Return the values as this type; None if the cast would change one."""
    is_float = pa.types.is_floating(type_)
    try:
        # Missing values of pandas are nulls, except that NaN stays NaN among floats.
        typed = pa.array(values, type_, from_pandas=not is_float)
        is_same = is_float or all(
            one is None or one == other
            for one, other in zip(typed.to_pylist(), values, strict=True)
        )
    except (*REFUSALS, TypeError, ValueError, OverflowError):
        return None
    return typed if is_same else None


def check(expression: pc.Expression, schema: pa.Schema) -> tuple[int, ...]:
    """Check that an expression is a filter for this schema; return the indices of its columns.

    Raises
    ------
    ColumnNotFoundError
        The schema lacks a column.
    SchemaError
        Types do not match, a column name is ambiguous, or the result is not boolean.
    """
    check_type(expression, schema)
    return columns_of(expression, schema)


def check_type(expression: pc.Expression, schema: pa.Schema) -> None:
    """Raise as `check` does, without searching the columns."""
    type_ = type_of(expression, schema)
    if not pa.types.is_boolean(type_):
        raise SchemaError(
            f"a filter must be boolean; {text_of(expression)} is {type_}; compare it with a value"
        )


def type_of(expression: pc.Expression, schema: pa.Schema) -> pa.DataType:
    """Return the type of an expression of any type; raises as `check` does."""
    return _type(expression, schema, _row_of_nulls(schema, _candidates(expression, schema)))


def columns_of(expression: pc.Expression, schema: pa.Schema) -> tuple[int, ...]:
    """Return the indices of the columns that an expression refers to; raises as `type_of` does.

    A reference by index needs all columns before it, so that they keep their indices.
    """
    candidates = _candidates(expression, schema)
    row = _row_of_nulls(schema, candidates)
    _type(expression, schema, row)
    text = text_of(expression)
    # Longer than any column name, so the expression does not refer to it.
    unused = "?" * (1 + max(map(len, schema.names), default=0))
    names = [schema.names[index] for index in candidates]
    needed = set(range(_leading(expression, text)))
    for place, index in enumerate(candidates):
        if index in needed or names[place] not in text:
            continue
        renamed = [*names[:place], unused, *names[place + 1 :]]
        try:
            project([expression], row.rename_columns(renamed))
        except REFUSALS:
            needed.add(index)
    columns = tuple(sorted(needed))
    _check_unique([schema.names[index] for index in columns])
    return columns


def column_of(expression: pc.Expression, schema: pa.Schema) -> int | None:
    """Return the index of the column that an expression is; None for any other expression."""
    indices = columns_of(expression, schema)
    is_one = len(indices) == 1 and expression.equals(pc.field(schema.names[indices[0]]))
    return indices[0] if is_one else None


def evaluate(
    expression: pc.Expression, columns: Mapping[str, pa.ChunkedArray], rows: int
) -> pa.ChunkedArray:
    """Return the value of an expression for each row, given the columns of `columns_of` by name.

    SchemaError if a value does not allow it: a division by zero, a cast that overflows.
    """
    check_rows(rows, text_of(expression))
    arrays = [comparable(column) for column in columns.values()]
    table = pa.Table.from_arrays(arrays, names=list(columns)) if columns else _no_columns(rows)
    try:
        (result,) = project([expression], table)
    except REFUSALS as error:
        raise SchemaError(f"{text_of(expression)} cannot be evaluated: {error}") from None
    assert len(result) == rows, (len(result), rows)
    return result


def mask(
    expression: pc.Expression, columns: Mapping[str, pa.ChunkedArray], rows: int
) -> np.ndarray:
    """Return for each row whether a filter is true; a null counts as false."""
    masks = [_mask(chunk) for chunk in evaluate(expression, columns, rows).chunks]
    return masks[0] if len(masks) == 1 else np.concatenate([np.zeros(0, np.bool_), *masks])


def _mask(chunk: pa.BooleanArray) -> np.ndarray:
    """Convert to numpy, nulls as false; Arrow's own conversion is many times slower."""
    valid, values = chunk.buffers()
    true = bits_of(np.frombuffer(values, np.uint8), chunk.offset, len(chunk))
    if chunk.null_count:
        true &= bits_of(np.frombuffer(valid, np.uint8), chunk.offset, len(chunk))
    return true.view(np.bool_)


def _predicates(filters: Sequence[object]) -> Iterator[object]:
    """Yield the tuples of a list of tuples, or of a list of such lists."""
    if not filters:
        raise ValueError("a filter must have at least one tuple (column, operator, value)")
    if _is_predicate(filters[0]):
        yield from filters
        return
    for conjunction in filters:
        if not isinstance(conjunction, list) or not conjunction:
            raise ValueError(
                "a filter must be a list of tuples (column, operator, value) or a list of such "
                f"lists; {conjunction!r} is neither"
            )
        yield from conjunction


def _is_predicate(item: object) -> bool:
    return isinstance(item, tuple) or (
        isinstance(item, list) and bool(item) and isinstance(item[0], str)
    )


def _check_predicate(predicate: object) -> None:
    if not isinstance(predicate, tuple | list) or len(predicate) != 3:
        raise ValueError(
            f"a tuple of a filter must be (column, operator, value), not {predicate!r}"
        )
    column, operator, value = predicate
    is_path = isinstance(column, tuple) and all(isinstance(name, str) for name in column)
    if not (isinstance(column, str) or is_path):
        raise ValueError(f"a filter must name its column as a str, not {column!r}")
    if operator not in _OPERATORS:
        raise ValueError(f"the operator of a filter must be one of {_OPERATORS}, not {operator!r}")
    # A str would be taken as a list of its characters.
    if operator in _OF_MANY and isinstance(value, str | bytes):
        raise ValueError(f"{operator!r} needs a list of values, not {value!r}")


def _candidates(expression: pc.Expression, schema: pa.Schema) -> list[int]:
    """Return the columns to which an expression may refer: its text contains their names."""
    text = text_of(expression)
    if _leading(expression, text):
        return list(range(len(schema)))
    return [index for index, name in enumerate(schema.names) if name in text]


def text_of(expression: pc.Expression) -> str:
    """Return an expression as Arrow prints it."""
    try:
        return str(expression)
    except UnicodeDecodeError as error:
        # Arrow shortens a long text in a value set, and may cut within a character.
        return error.object.decode(errors="replace")


def _leading(expression: pc.Expression, text: str) -> int:
    """Number of leading columns that a reference by index needs; 0 if all references are names."""
    paths = re.findall(r"FieldPath\((\d+)\)", text)
    if not paths:
        return 0
    try:
        # The match may be the text of a literal. Arrow refuses to pickle references by index.
        pickle.dumps(expression)
    except pa.ArrowNotImplementedError:
        return max(map(int, paths)) + 1
    return 0


def _row_of_nulls(schema: pa.Schema, columns: Sequence[int]) -> pa.Table:
    """Return one row: Arrow rejects an aggregate function only when it is called on rows."""
    if not columns:
        return _no_columns(1)
    arrays = [nulls(1, compared_type(schema.types[index])) for index in columns]
    return pa.Table.from_arrays(arrays, names=[schema.names[index] for index in columns])


def _type(expression: pc.Expression, schema: pa.Schema, row: pa.Table) -> pa.DataType:
    try:
        return project([expression], row)[0].type
    except REFUSALS as error:
        message = str(error)
    named = re.match(r"(No|Multiple) match\w* for FieldRef\.Name\((.*)\) in ", message, re.DOTALL)
    if named and named[1] == "Multiple":
        raise _ambiguous(named[2])
    if message.startswith("No match for "):
        if named:
            raise no_column(named[2], schema.names)
        raise ColumnNotFoundError(
            f"no column for {text_of(expression)}; the columns are {schema.names!r:.1000}"
        )
    raise SchemaError(
        f"{text_of(expression)} does not match the types of its columns: {message}; "
        "cast the value or the column"
    )


def _check_unique(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise _ambiguous(name)


def _ambiguous(name: str) -> SchemaError:
    return SchemaError(
        f"several columns are named {name!r}; an expression can refer only to unique names"
    )


def project(expressions: Sequence[pc.Expression], table: pa.Table) -> list[pa.ChunkedArray]:
    """Return the value of each expression for each row; raises one of `REFUSALS`."""
    names = [str(place) for place in range(len(expressions))]
    if any(map(pa.types.is_struct, table.schema.types)):
        expressions, table = _with_columns_for_fields(expressions, table)
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    node = acero.Declaration("project", acero.ProjectNodeOptions(list(expressions), names))
    # The calling thread may be one of the pool.
    result = acero.Declaration.from_sequence([source, node]).to_table(use_threads=False)
    return result.columns


def _with_columns_for_fields(
    expressions: Sequence[pc.Expression], table: pa.Table
) -> tuple[list[pc.Expression], pa.Table]:
    """Return expressions that refer to fields of structs as columns, and the table with these."""
    fields: dict[tuple[str, ...], str] = {}

    def column_of(names: tuple[str, ...]) -> str | None:
        nonlocal table
        if names not in fields and table.schema.names.count(names[0]) == 1:
            column = inner_field(table[names[0]], names[1:])
            if column is not None:
                # Longer than any name.
                fields[names] = "?" * (1 + max(map(len, table.schema.names)))
                table = table.append_column(fields[names], comparable(column))
        return fields.get(names)

    made = [with_columns_for_fields(one, column_of) for one in expressions]
    if not all(map(has_safe_fields, table.schema.types)):
        for one in made:
            if "struct_field" in functions(tree(one)):
                raise SchemaError(
                    f"{text_of(one)}: a field of a struct that has unions or runs must be named by "
                    "its path, pc.field('a', 'b')"
                )
    return made, table


def _no_columns(rows: int) -> pa.Table:
    """Return a table of this many rows, for an expression without columns."""
    return pa.Table.from_arrays([null.nulls(rows)], names=[""]).select([])


def comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column as it is compared and sorted."""
    type_ = compared_type(column.type)
    if type_ == column.type:
        return column
    if not pa.types.is_dictionary(column.type):
        return as_compared(column)
    if is_nested(column.type):
        return pa.chunked_array(list(map(decoded, column.chunks)), type_)
    values = [as_compared(chunk.dictionary).take(chunk.indices) for chunk in column.chunks]
    return pa.chunked_array(values, type_)
