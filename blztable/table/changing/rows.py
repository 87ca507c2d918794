"""Rows: what the verbs of a transaction that change rows do with the data of users.

Knows how data become rows and values of the table's types. Writes no file.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from blztable.convert.append_source import append_source
from blztable.convert.gateway import Reading
from blztable.engine.change import columns as evolving
from blztable.engine.change import rows
from blztable.engine.change import update as updating
from blztable.engine.change.change_set import ChangeSet
from blztable.engine.query import expressions
from blztable.engine.run.progress import Callback
from blztable.report import Changed
from blztable.table.changing.target import Target


def append(
    change_set: ChangeSet,
    target: Target,
    data: Any,
    *,
    index: bool | None,
    how: Reading,
    evolve: bool = False,
    progress: Callback | None = None,
) -> bool:
    """Add rows at the end; return True if their index continues from the rows before."""
    source = append_source(data, target.spec(), index=index, evolve=evolve, how=how)
    rows.append(
        *(change_set, source.runs),
        continues_index=lambda: source.continues_index,
        filled=lambda: source.filled,
        rows=source.rows,
        progress=progress,
    )
    return source.continues_index


def update(
    change_set: ChangeSet, target: Target, values: Mapping[str, Any], where: Any
) -> tuple[Changed, bool]:
    """Set columns in some rows; return True as well if a value belongs to a single row."""
    new_values = {}
    for name, value in evolving.checked_mapping(values, "values").items():
        index = target.staged.index_of(evolving.checked_text(name))
        is_expression = isinstance(value, pc.Expression)
        new_values[index] = (
            expressions.decided(value, target.staged.schema)
            if is_expression
            else target.values(index, value)
        )
    coerce = target.computed(new_values)
    updated = updating.update(change_set, new_values, where, coerce)
    of_rows = any(isinstance(value, pa.ChunkedArray) for value in new_values.values())
    return Changed(rows_updated=updated), of_rows


def resize(change_set: ChangeSet, target: Target, rows_wanted: int) -> None:
    """Keep the first rows, or add rows with default values."""
    fillings = enumerate(evolving.fillings(change_set.staged))
    in_order = [target.in_order(index, value) for index, value in fillings]
    rows.resize(change_set, rows_wanted, in_order)


def check_replacing(change_set: ChangeSet, groups_before: int, where: Any) -> None:
    """Raise ValueError if a row that was appended after these row groups does not meet `where`."""
    staged = change_set.staged
    rows.check_all_match(staged, range(groups_before, len(staged.head.row_groups)), where)
