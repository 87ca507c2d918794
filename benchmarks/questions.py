"""What is asked of a table: the tasks, their questions, and whether an answer is right.

Knows nothing of systems. A condition is written once; each system says it in its own language.
"""

import operator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

WRITE, PANDAS, APPEND = "write", "into pandas", "append 1,000 rows"
READ_ALL, TWO_COLUMNS = "read all into Arrow", "two columns"
KEY_AND_TEXT, ONE_COLUMN = "key + text", "one column"
CLUSTERED, SCATTERED = "clustered filter", "scattered filter"
# Filters that so many percent of the rows pass, anywhere in the table.
SHARES = {f"filter, {percent} % pass": percent for percent in (1, 10, 50, 98)}
TAKE_MANY, TAKE_FEW = "take 1,000 rows, all columns", "take 10 rows, two columns"
READS = (READ_ALL, TWO_COLUMNS, KEY_AND_TEXT, ONE_COLUMN)
FILTERS, TAKES = (CLUSTERED, SCATTERED), (TAKE_MANY, TAKE_FEW)
# The same asked of a table that is open already; every other task opens it by its path.
KEPT_OPEN = {
    f"{task}, kept open": task for task in (READ_ALL, TWO_COLUMNS, ONE_COLUMN, *FILTERS, *TAKES)
}
BY_PATH = (WRITE, *READS, PANDAS, *FILTERS, *SHARES, *TAKES, APPEND)
TASKS = (*BY_PATH[:-1], *KEPT_OPEN, APPEND)
# An append is too short for one reading of the clock, and every few of ours merge row groups.
APPENDS, APPENDED_ROWS = 20, 1_000
OPERATORS = {"==": operator.eq, ">": operator.gt, ">=": operator.ge, "<=": operator.le}


class Condition(NamedTuple):
    """A comparison of a column with a value."""

    column: str
    operator: str
    value: Any


class Question(NamedTuple):
    """These columns, all if None, of the rows that match all conditions, or of the given rows."""

    columns: list[str] | None = None
    conditions: tuple[Condition, ...] = ()
    rows: np.ndarray | None = None


def expression(conditions: tuple[Condition, ...], schema: pa.Schema) -> pc.Expression:
    """Return the conditions for Arrow, with values of the columns' types."""
    whole = None
    for name, sign, value in conditions:
        typed = pc.scalar(pa.scalar(value, schema.field(name).type))
        condition = OPERATORS[sign](pc.field(name), typed)
        whole = condition if whole is None else whole & condition
    return whole


def sql(conditions: tuple[Condition, ...]) -> str:
    """Return the conditions in SQL."""
    return " and ".join(
        f"{name} {'=' if sign == '==' else sign} {literal(value)}"
        for name, sign, value in conditions
    )


def literal(value: Any) -> str:
    if isinstance(value, str):
        return f"'{value}'"
    if hasattr(value, "hour"):
        return f"timestamp '{value}'"
    return f"date '{value}'" if hasattr(value, "year") else repr(value)


def answer(table: pa.Table, asked: Question) -> pa.Table:
    """Return Arrow's answer."""
    if asked.conditions:
        table = table.filter(expression(asked.conditions, table.schema))
    if asked.rows is not None:
        table = table.take(pa.array(asked.rows))
    return table.select(asked.columns) if asked.columns else table


def difference(found: pa.Table | pd.DataFrame, expected: pa.Table, ordered: bool) -> str | None:
    """Say how an answer differs from Arrow's; other types with the same values are right.

    Rows of a filter or take may come in any order, which some systems do not keep.
    """
    if isinstance(found, pd.DataFrame):
        found = pa.Table.from_pandas(found, schema=expected.schema, preserve_index=False)
    if found.num_rows != expected.num_rows:
        return f"{found.num_rows:,} rows instead of {expected.num_rows:,}"
    if set(found.column_names) != set(expected.column_names):
        return f"columns {found.column_names[:5]} instead of {expected.column_names[:5]}"
    found, expected = (table.replace_schema_metadata(None) for table in (found, expected))
    found = found.select(expected.column_names)
    if not ordered:
        keys = [(name, "ascending") for name in expected.column_names]
        found, expected = as_typed(found, expected.schema).sort_by(keys), expected.sort_by(keys)
    for name in expected.column_names:
        column = expected.schema.field(name)
        if not as_typed(found.select([name]), pa.schema([column]))[name].equals(expected[name]):
            return f"other values in {name}"
    return None


def as_typed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast to the types of the source; whatever loses a value raises."""
    plain = pa.schema([pa.field(field.name, field.type) for field in schema])
    return table.cast(plain)
