"""Rows: what the verbs of a transaction that change rows do with the data of users.

Knows how data become rows and values of the table's types. Writes no file.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.casts import narrowed
from blztable.convert.append_source import append_source
from blztable.convert.frames.frame import Facts, descriptor_of
from blztable.convert.gateway import Reading
from blztable.convert.values import Values
from blztable.engine.change import columns as evolving
from blztable.engine.change import rows
from blztable.engine.change import update as updating
from blztable.engine.change.change_set import ChangeSet
from blztable.engine.query import expressions
from blztable.engine.read.columns import OpenColumns
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
    change_set: ChangeSet, target: Target, values: Mapping[str, Any], where: Any, evolve: bool
) -> tuple[Changed, bool]:
    """Set columns in some rows; return True as well if a value belongs to a single row."""
    staged, new_values, of_rows = target.staged, {}, False
    with ExitStack() as stack:
        opened = stack.enter_context(OpenColumns.whole(staged))
        masks, meant = updating.selected(opened, where)
        for name, value in evolving.checked_mapping(values, "values").items():
            evolving.check_target(staged, name, evolve)
            new: Values | pc.Expression
            if not isinstance(value, pc.Expression):
                new = target.given(name, value)
                of_rows |= not isinstance(new.values, pa.Scalar)
            elif evolve or target.has_nulls(name):
                # Computed before the column becomes another, because that may change the result.
                new = _results(
                    opened, target, name, expressions.decided(value, staged.schema), masks
                )
            else:
                new = expressions.decided(value, staged.schema)
            wide = None if isinstance(new, pc.Expression) else target.widened(name, new, evolve)
            if wide is not None:
                evolving.widen(change_set, wide.schema, wide.frame)
                target = replace(target, staged=change_set.staged)
            index = target.staged.index_of(name)
            is_expression = isinstance(new, pc.Expression)
            new_values[index] = new if is_expression else target.values(index, new, evolve)
        if change_set.staged is not staged:
            opened = stack.enter_context(OpenColumns.whole(change_set.staged))
        coerce = target.computed(new_values)
        updated = updating.set_values(change_set, opened, new_values, masks, meant, coerce)
    return Changed(rows_updated=updated), of_rows


def _results(
    opened: OpenColumns,
    target: Target,
    name: str,
    expression: pc.Expression,
    masks: Mapping[int, rows.RowMask],
) -> Values:
    """Return the values of an expression in the selected rows."""
    field = target.field_of(expression)
    parts = [
        updating.evaluated(opened, expression, group, mask.unpacked())
        for group, mask in masks.items()
    ]
    chunks = [chunk for part in parts for chunk in part.chunks]
    column = pa.chunked_array(chunks, chunks[0].type if chunks else field.type)
    if name in target.staged.schema.names:
        column = narrowed(column, target.staged.schema.field(name).type)
    return Values(column, descriptor_of(field, Facts()))


def resize(change_set: ChangeSet, target: Target, rows_wanted: int) -> None:
    """Keep the first rows, or add rows with default values."""
    filling, columns = target.fillings(are_all=True), range(len(target.staged.schema))
    rows.resize(change_set, rows_wanted, lambda: list(map(filling, columns)))


def check_replacing(change_set: ChangeSet, groups_before: int, where: Any) -> None:
    """Raise ValueError if a row that was appended after these row groups does not meet `where`."""
    staged = change_set.staged
    rows.check_all_match(staged, range(groups_before, len(staged.head.row_groups)), where)
