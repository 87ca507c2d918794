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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc

from blztable.arrow.nested.assemble import decoded
from blztable.arrow.nested.casts import has_safe_fields, inner_field
from blztable.arrow.nested.nodes import is_nested
from blztable.arrow.nested.paths import Names, value_of
from blztable.arrow.types import REFUSALS, as_compared, bits_of, compared_type, nulls
from blztable.engine.query import literals, where
from blztable.engine.query.expression_tree import (
    Argument,
    functions,
    rewritten,
    tree,
    with_columns_for_fields,
)
from blztable.engine.query.literals import ComparedColumn
from blztable.engine.run.limits import check_rows
from blztable.errors import ColumnNotFoundError, SchemaError, check_encodes, no_column

_OPERATORS = {"=": eq, "==": eq, "!=": ne, "<": lt, ">": gt, "<=": le, ">=": ge}
_OF_MANY = ("in", "not in")
# The functions of Arrow whose literals are decided; `is_in` has its set among the options.
_COMPARED = {
    **{"equal": eq, "not_equal": ne, "is_in": eq},
    **{"less": lt, "less_equal": le, "greater": gt, "greater_equal": ge},
}


def as_expression(filters: object, schema: pa.Schema) -> pc.Expression:
    """Return a filter as an expression: a text, an expression, or a list of (lists of) tuples.

    `where` says what a text is. Tuples of one list are joined by and, lists by or. Each literal
    becomes a value of the type of the column beside it, as `literals` says.

    Raises
    ------
    TypeError
        The filter is neither a text, an expression nor a list.
    ValueError
        The text or the list is not a valid filter.
    SchemaError
        A literal cannot be compared with its column.
    """
    if isinstance(filters, str):
        return where.parse(filters, schema)
    if isinstance(filters, pc.Expression):
        return decided(filters, schema)
    if _is_predicate(filters):
        filters = [filters]
    if not isinstance(filters, list):
        raise TypeError(
            "a filter must be a pyarrow Expression, a text, or a list of tuples (column, operator, "
            f"value), not {type(filters).__name__}"
        )
    conjunctions = [
        reduce(and_, [_of_predicate(predicate, schema) for predicate in conjunction])
        for conjunction in _conjunctions(filters)
    ]
    return reduce(or_, conjunctions)


def _of_predicate(predicate: Any, schema: pa.Schema) -> pc.Expression:
    """Return a tuple (column, operator, value) as an expression."""
    _check_predicate(predicate)
    name, operator, value = predicate
    column = _column_named(name, schema)
    if column is None:
        # To check the expression fails with an error that has the names.
        return pc.field(name).is_valid()
    if operator in _OF_MANY:
        test = literals.among(column, literals.values_of(value, column))
        return test if operator == "in" else ~test
    return literals.compared(column, _OPERATORS[operator], literals.operand_of(value, column))


def _column_named(name: Names, schema: pa.Schema) -> ComparedColumn | None:
    """Return the column, or the field of structs, of a tuple; None if there is not one."""
    indices = schema.get_all_field_indices(name) if isinstance(name, str) else []
    if isinstance(name, str) and indices:
        is_one = len(indices) == 1
        return ComparedColumn(name, pc.field(name), schema.types[indices[0]]) if is_one else None
    field = value_of(schema, name)
    return field and ComparedColumn(".".join(field[0]), pc.field(*field[0]), field[1])


def decided(expression: pc.Expression, schema: pa.Schema) -> pc.Expression:
    """Return an expression of any type with values of the types beside them as literals.

    Raises
    ------
    SchemaError
        A literal cannot be compared with its column.
    """
    return rewritten(expression, _COMPARED, partial(_decided, schema))


def _decided(
    schema: pa.Schema,
    function: str,
    arguments: Sequence[Argument],
    options: Mapping[str, pa.Scalar],
) -> pc.Expression | None:
    """Return a comparison or a set with decided literals; None to leave it as it is."""
    are_literals = [isinstance(argument, pa.Scalar) for argument in arguments]
    if all(are_literals):
        return None
    column = _column(arguments[are_literals.index(False)], schema)
    if column is None:
        return None
    if function != "is_in":
        compare, literal = _COMPARED[function], arguments[are_literals.index(True)]
        if literals.is_decided(column, literal):
            return None
        if are_literals[0]:
            compare = literals.mirrored(compare)
        return literals.compared(column, compare, literal)
    values, nulls_match = options["value_set"].values, options["null_matching_behavior"].as_py()
    if nulls_match > 1:
        # Arrow makes such sets only in its own code.
        return None
    if literals.is_decided(column, values) and not pa.types.is_floating(values.type):
        return None
    return literals.among(column, values.drop_null() if nulls_match else values)


def _column(argument: Argument, schema: pa.Schema) -> ComparedColumn | None:
    """Return an argument that is no literal with its type; None if there is no such column."""
    if isinstance(argument, pc.Expression):
        argument = decided(argument, schema)
        return ComparedColumn(text_of(argument), argument, type_of(argument, schema))
    first, *rest = argument
    indices = schema.get_all_field_indices(first)
    if len(indices) != 1:
        return None
    type_ = schema.types[indices[0]]
    for name in rest:
        if not pa.types.is_struct(type_) or len(type_.get_all_field_indices(name)) != 1:
            return None
        type_ = type_.field(name).type
    return ComparedColumn(".".join(argument), pc.field(*argument), type_)


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
    for number, index in enumerate(candidates):
        if index in needed or names[number] not in text:
            continue
        renamed = [*names[:number], unused, *names[number + 1 :]]
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
    if columns:
        arrays = list(map(comparable, columns.values()))
        table = pa.Table.from_arrays(arrays, names=list(columns))
    else:
        check_rows(rows, text_of(expression))
        table = _no_columns(rows)
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
    whole = evaluate(expression, columns, rows).combine_chunks()
    valid, values = whole.buffers()
    if values is None:
        return np.zeros(0, np.bool_)
    # Arrow's own conversion to numpy is many times slower.
    true = bits_of(np.frombuffer(values, np.uint8), whole.offset, rows)
    if whole.null_count:
        true &= bits_of(np.frombuffer(valid, np.uint8), whole.offset, rows)
    return true.view(np.bool_)


def _conjunctions(filters: list[Any]) -> Iterator[list[Any]]:
    """Yield the lists of tuples of a list of tuples, or of a list of such lists."""
    if not filters:
        raise ValueError("a filter must have at least one tuple (column, operator, value)")
    if _is_predicate(filters[0]):
        yield filters
        return
    for conjunction in filters:
        if not isinstance(conjunction, list) or not conjunction:
            raise ValueError(
                "a filter must be a list of tuples (column, operator, value) or a list of such "
                f"lists; {conjunction!r} is neither"
            )
        yield conjunction


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
    for name in (column,) if isinstance(column, str) else column:
        check_encodes(name, "the name")
    if operator not in _OPERATORS and operator not in _OF_MANY:
        operators = (*_OPERATORS, *_OF_MANY)
        raise ValueError(f"the operator of a filter must be one of {operators}, not {operator!r}")
    # A str would be taken as a list of its characters.
    if operator in _OF_MANY and (isinstance(value, str | bytes) or not isinstance(value, Iterable)):
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
    if types := re.search(r"'(\w+)' has no kernel matching input types \((.*)\)", message):
        message = f"{types[1]} is not for {types[2]}"
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
    names = list(map(str, range(len(expressions))))
    if any(map(pa.types.is_struct, table.schema.types)):
        expressions, table = _with_columns_for_fields(expressions, table)
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    options = acero.ProjectNodeOptions(list(expressions), names)
    node = acero.Declaration("project", options, inputs=[source])
    # The calling thread may be one of the pool.
    return node.to_table(use_threads=False).columns


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

    made = [with_columns_for_fields(expression, column_of) for expression in expressions]
    if not all(map(has_safe_fields, table.schema.types)):
        for expression in made:
            if "struct_field" in functions(tree(expression)):
                raise SchemaError(
                    f"{text_of(expression)}: a field of a struct that has unions or runs must be "
                    "named by its path, pc.field('a', 'b')"
                )
    return made, table


def _no_columns(rows: int) -> pa.Table:
    """Return a table of this many rows, for an expression without columns."""
    return pa.Table.from_arrays([nulls(rows, pa.null())], names=[""]).select([])


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
