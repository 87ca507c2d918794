"""Expressions over columns: which columns one refers to, its type, its value for each row.

Arrow evaluates them, by one thread, the caller's. Knows nothing of files, versions and the rows
that a read may pass over.

A column is compared as its values: of a dictionary what the codes stand for, and where Arrow
compares a type badly or not at all a wider one that holds the same values (`compared_type`).
"""

import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc
import pyarrow.parquet as parquet

from blztable.arrow_errors import REFUSALS
from blztable.columns.codecs import null
from blztable.columns.codecs.families import as_compared, compared_type
from blztable.columns.codecs.validity import bits_of
from blztable.engine.query.expression_tree import with_safe_literals
from blztable.engine.run.limits import check_rows
from blztable.errors import ColumnNotFoundError, SchemaError

_OPERATORS = ("=", "==", "!=", "<", ">", "<=", ">=", "in", "not in")
_OF_MANY = ("in", "not in")


def as_expression(where: object, schema: pa.Schema | None = None) -> pc.Expression:
    """A filter as an expression: itself, or pandas' list of tuples (and), or list of those (or).

    Values of tuples become the type that their column is compared as, where they lose nothing.

    Raises
    ------
    TypeError
        Neither of them.
    ValueError
        Tuples that are no filter.
    """
    if isinstance(where, pc.Expression):
        return with_safe_literals(where)
    if not isinstance(where, list):
        raise TypeError(
            "a filter is a pyarrow Expression or a list of tuples (column, operator, value), "
            f"not {type(where).__name__}"
        )
    for predicate in _predicates(where):
        _check_predicate(predicate)
    try:
        return with_safe_literals(
            parquet.filters_to_expression(_typed(where, schema or pa.schema([])))
        )
    except (*REFUSALS, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"the filter {where!r:.500} is not understood: {error}") from None


def _typed(where: list[Any], schema: pa.Schema) -> list[Any]:
    """The tuples, their values as their columns compare them, where these are there."""
    return [
        _typed_predicate(item, schema) if _is_predicate(item) else _typed(item, schema)
        for item in where
    ]


def _typed_predicate(predicate: Sequence[Any], schema: pa.Schema) -> tuple[str, str, Any]:
    column, operator, value = predicate
    found = schema.get_all_field_indices(column)
    if len(found) == 1 and not isinstance(value, pa.Array | pa.ChunkedArray | pa.Scalar):
        type_ = compared_type(schema.types[found[0]])
        is_many = operator in _OF_MANY
        typed = _as_type(list(value) if is_many else [value], type_)
        if typed is not None:
            return column, operator, typed if is_many else typed[0]
    return column, operator, value


def _as_type(values: list[Any], type_: pa.DataType) -> pa.Array | None:
    """The values as this type; None where that would change one."""
    is_float = pa.types.is_floating(type_)
    try:
        # What pandas has for a missing value is a null, but NaN of floats.
        typed = pa.array(values, type_, from_pandas=not is_float)
        is_same = is_float or all(
            one is None or one == other
            for one, other in zip(typed.to_pylist(), values, strict=True)
        )
    except (*REFUSALS, TypeError, ValueError, OverflowError):
        return None
    return typed if is_same else None


def check(expression: pc.Expression, schema: pa.Schema) -> tuple[int, ...]:
    """The columns a filter refers to, by position; it is sound and says yes or no to a row.

    Raises
    ------
    ColumnNotFoundError
        A column that is not there.
    SchemaError
        Types that do not go together, a name that is there twice, a result that is not boolean.
    """
    check_type(expression, schema)
    return columns_of(expression, schema)


def check_type(expression: pc.Expression, schema: pa.Schema) -> None:
    """What `check` raises, without a look at which columns are needed."""
    found = type_of(expression, schema)
    if not pa.types.is_boolean(found):
        raise SchemaError(f"a filter is true or false; {text_of(expression)} is {found}")


def type_of(expression: pc.Expression, schema: pa.Schema) -> pa.DataType:
    """The type of an expression's values; raises what `check` does, but of any type."""
    among = _candidates(expression, schema)
    return _type_among(expression, schema, _rows_of_nulls(schema, among), among)


def columns_of(expression: pc.Expression, schema: pa.Schema) -> tuple[int, ...]:
    """The columns an expression refers to, by position; raises what `type_of` does.

    One that refers to columns by position needs all before them, so that they keep theirs.
    """
    among = _candidates(expression, schema)
    rows = _rows_of_nulls(schema, among)
    _type_among(expression, schema, rows, among)
    text = text_of(expression)
    # The name of no column, so of none that the expression refers to.
    other = "?" * (1 + max(map(len, schema.names), default=0))
    names = [schema.names[position] for position in among]
    needed = set(range(_leading(expression, text)))
    for place, position in enumerate(among):
        if position in needed or names[place] not in text:
            continue
        renamed = [*names[:place], other, *names[place + 1 :]]
        try:
            project([expression], rows.rename_columns(renamed))
        except REFUSALS:
            needed.add(position)
    chosen = tuple(sorted(needed))
    _check_unique([schema.names[position] for position in chosen])
    return chosen


def evaluate(
    expression: pc.Expression, columns: Mapping[str, pa.ChunkedArray], rows: int
) -> pa.ChunkedArray:
    """The expression's value for each of `rows` rows, from the columns that `columns_of` returns.

    SchemaError where a value does not allow it: a number divided by zero, a cast that does not fit.
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
    """Which rows a filter keeps; a null is no."""
    found = [_truths(chunk) for chunk in evaluate(expression, columns, rows).chunks]
    return found[0] if len(found) == 1 else np.concatenate([np.zeros(0, np.bool_), *found])


def _truths(chunk: pa.BooleanArray) -> np.ndarray:
    """Of each row whether it is true; Arrow's own way to numpy takes many times as long."""
    valid, values = chunk.buffers()
    true = bits_of(np.frombuffer(values, np.uint8), chunk.offset, len(chunk))
    if chunk.null_count:
        true &= bits_of(np.frombuffer(valid, np.uint8), chunk.offset, len(chunk))
    return true.view(np.bool_)


def _predicates(where: Sequence[object]) -> Iterator[object]:
    """The tuples of a list of them, or of a list of such lists."""
    if not where:
        raise ValueError("a filter without any tuple (column, operator, value)")
    if _is_predicate(where[0]):
        yield from where
        return
    for conjunction in where:
        if not isinstance(conjunction, list) or not conjunction:
            raise ValueError(
                "a filter is a list of tuples (column, operator, value) or a list of such lists; "
                f"{conjunction!r} is neither"
            )
        yield from conjunction


def _is_predicate(item: object) -> bool:
    return isinstance(item, tuple) or (
        isinstance(item, list) and bool(item) and isinstance(item[0], str)
    )


def _check_predicate(predicate: object) -> None:
    if not isinstance(predicate, tuple | list) or len(predicate) != 3:
        raise ValueError(f"a filter's tuple is (column, operator, value), not {predicate!r}")
    column, operator, value = predicate
    if not isinstance(column, str):
        raise ValueError(f"a filter names its column as text, not {column!r}")
    if operator not in _OPERATORS:
        raise ValueError(f"a filter's operator is one of {_OPERATORS}, not {operator!r}")
    # The letters of a text would be taken for the values.
    if operator in _OF_MANY and isinstance(value, str | bytes):
        raise ValueError(f"{operator!r} takes a list of values, not {value!r}")


def _candidates(expression: pc.Expression, schema: pa.Schema) -> list[int]:
    """Positions of all columns that an expression may refer to: its text holds their names."""
    text = text_of(expression)
    if _leading(expression, text):
        return list(range(len(schema)))
    return [position for position, name in enumerate(schema.names) if name in text]


def text_of(expression: pc.Expression) -> str:
    """An expression as Arrow writes it, names as they are."""
    try:
        return str(expression)
    except UnicodeDecodeError as error:
        # Of a long text in a set Arrow leaves out the middle, to the byte.
        return error.object.decode(errors="replace")


def _leading(expression: pc.Expression, text: str) -> int:
    """How many of the first columns have to be in place; 0 for an expression that only names."""
    found = re.findall(r"FieldPath\((\d+)\)", text)
    if not found:
        return 0
    try:
        # It may have been a literal's text. Arrow writes down names and nothing else.
        pickle.dumps(expression)
    except pa.ArrowNotImplementedError:
        return max(map(int, found)) + 1
    return 0


def _rows_of_nulls(schema: pa.Schema, among: Sequence[int]) -> pa.Table:
    """A row, for a function that is not one of rows is found out when it is called only."""
    if not among:
        return _no_columns(1)
    arrays = [pa.nulls(1, compared_type(schema.types[position])) for position in among]
    return pa.Table.from_arrays(arrays, names=[schema.names[position] for position in among])


def _type_among(
    expression: pc.Expression, schema: pa.Schema, rows: pa.Table, among: Sequence[int]
) -> pa.DataType:
    try:
        return project([expression], rows)[0].type
    except REFUSALS as error:
        message = str(error)
    named = re.match(r"(No|Multiple) match\w* for FieldRef\.Name\((.*)\) in ", message, re.DOTALL)
    if named and named[1] == "Multiple":
        raise _twice(named[2])
    if message.startswith("No match for "):
        what = repr(named[2]) if named else f"for {text_of(expression)}"
        raise ColumnNotFoundError(f"no column {what}; there are {schema.names!r:.500}")
    raise SchemaError(f"{text_of(expression)} does not go with the types of its columns: {message}")


def _check_unique(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise _twice(name)


def _twice(name: str) -> SchemaError:
    return SchemaError(f"column {name!r} is there twice; an expression needs one")


def project(expressions: Sequence[pc.Expression], table: pa.Table) -> list[pa.ChunkedArray]:
    """The value of each expression for each row; raises one of `REFUSALS`."""
    names = [str(place) for place in range(len(expressions))]
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    node = acero.Declaration("project", acero.ProjectNodeOptions(list(expressions), names))
    # Whoever calls may be one of our threads already.
    result = acero.Declaration.from_sequence([source, node]).to_table(use_threads=False)
    return result.columns


def _no_columns(rows: int) -> pa.Table:
    """Rows for an expression that refers to no column."""
    return pa.Table.from_arrays([null.nulls(rows)], names=[""]).select([])


def comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column as it is compared and sorted."""
    type_ = compared_type(column.type)
    if type_ == column.type:
        return column
    if not pa.types.is_dictionary(column.type):
        return as_compared(column)
    values = [as_compared(chunk.dictionary).take(chunk.indices) for chunk in column.chunks]
    return pa.chunked_array(values, type_)
