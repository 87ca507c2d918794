"""Rows: append, update, delete, sort and compact, for the verbs of a table and a transaction.

Knows how data become rows and values of the table's types. Writes no file.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.casts import narrowed
from blztable.convert.append_source import append_source
from blztable.convert.frames.frame import FrameInfo, descriptor_of
from blztable.convert.source import is_repeatable
from blztable.convert.values import GivenValues
from blztable.engine import change
from blztable.engine.query import expressions
from blztable.engine.read.columns import OpenColumns
from blztable.engine.read.damage import DamagedRows
from blztable.engine.run.pool import Callback, Progress
from blztable.engine.write import sort_keys
from blztable.engine.write.options import Storage
from blztable.table.changing.target import ChangeTarget
from blztable.table.names import checked_count

if TYPE_CHECKING:
    from blztable.engine.change.rows import RowMask


def append(
    target: ChangeTarget,
    data: Any,
    evolve: bool,
    index: bool | None,
    storage: Storage | None,
    progress: Callback | None,
) -> None:
    """Add rows at the end."""
    target.check_appends()
    continues = _append(target, data, evolve, index, storage, progress)
    # Their index is of the rows before.
    target.change_set.only_once |= continues


def _append(
    target: ChangeTarget,
    data: Any,
    evolve: bool,
    index: bool | None,
    storage: Storage | None,
    progress: Callback | None = None,
) -> bool:
    """Add rows; return True if their index continues from the rows before."""
    target.change_set.only_once |= not is_repeatable(data)
    with target.stored_as(storage) as how:
        source = append_source(data, target.spec(), index=index, evolve=evolve, options=how)
        reports = Progress(progress, source.rows, len(target.staged.columns))
        appended = change.rows.append(
            target.change_set,
            source.segments,
            reports,
            continues_index=source.continues_index,
            filled=source.filled,
        )
        reports.finish(appended)
    return source.continues_index()


def update(target: ChangeTarget, values: Mapping[str, Any], where: Any, evolve: bool) -> None:
    """Set columns in some rows."""
    change_set, staged = target.change_set, target.staged
    new_values: dict[int, Any] = {}
    with ExitStack() as stack:
        opened = stack.enter_context(OpenColumns.whole(staged))
        masks, predicate = change.update.selected(opened, where)
        for name, value in change.columns.checked_mapping(values, "values").items():
            change.columns.check_target(staged, name, evolve)
            new: GivenValues | pc.Expression
            if not isinstance(value, pc.Expression):
                new = target.given(name, value)
                change_set.only_once |= not isinstance(new.values, pa.Scalar)
            elif evolve or target.has_nulls(name):
                # Computed before the column becomes another, because that may change the result.
                new = _results(
                    opened, target, name, expressions.decided(value, staged.schema), masks
                )
            else:
                new = expressions.decided(value, staged.schema)
            wide = None if isinstance(new, pc.Expression) else target.widened(name, new, evolve)
            if wide is not None:
                change.columns.widen(change_set, wide.schema, wide.frame)
                target = target.renewed()
            index = target.staged.index_of(name)
            is_expression = isinstance(new, pc.Expression)
            new_values[index] = new if is_expression else target.values(index, new, evolve)
        if change_set.staged is not staged:
            opened = stack.enter_context(OpenColumns.whole(change_set.staged))
        coerce = target.computed(new_values)
        change.update.set_values(change_set, opened, new_values, masks, predicate, coerce)


def delete(target: ChangeTarget, where: Any) -> None:
    """Remove the rows that meet a condition."""
    change.rows.delete(target.change_set, where)


def replace_where(
    target: ChangeTarget,
    data: Any,
    where: Any,
    evolve: bool,
    index: bool | None,
    storage: Storage | None,
    progress: Callback | None,
) -> None:
    """Remove the rows that meet a condition, and append rows that all meet it."""
    target.check_appends()
    change_set = target.change_set
    with change_set.named("replace_where"):
        change.rows.delete(change_set, where)
        before = len(change_set.staged.row_groups)
        _append(target.renewed(), data, evolve, index, storage, progress)
    new = range(before, len(change_set.staged.row_groups))
    change.rows.check_all_match(change_set.staged, new, where)


def resize(target: ChangeTarget, n: int) -> None:
    """Keep the first rows, or add rows with default values."""
    filling, columns = target.fillings(are_all=True), range(len(target.staged.schema))
    change.rows.resize(
        target.change_set, checked_count(n, "n"), lambda: list(map(filling, columns))
    )


def compact(target: ChangeTarget, sort_by: str | Sequence[str | tuple[str, str]] | None) -> None:
    """Merge small row groups, or sort all rows."""
    order = None if sort_by is None else sort_keys.parsed(sort_by)
    change.compact.compact(target.change_set, order)


def erase(target: ChangeTarget, where: Any) -> None:
    """Remove rows, and write again what has their values."""
    change.erase.erase(target.change_set, where)


def repair(
    target: ChangeTarget, on_corrupt: str, lost: list[DamagedRows], rebuilt: list[str]
) -> None:
    """Write again what can be read of the damaged row groups.

    Put what is lost into `lost`, and which leaves are written again into `rebuilt`.
    """
    lost[:], rebuilt[:] = change.repair.repair(target.change_set, on_corrupt)


def _results(
    opened: OpenColumns,
    target: ChangeTarget,
    name: str,
    expression: pc.Expression,
    masks: Mapping[int, "RowMask"],
) -> GivenValues:
    """Return the values of an expression in the selected rows."""
    field = target.field_of(expression)
    parts = [
        change.update.evaluated(opened, expression, group, mask.unpacked())
        for group, mask in masks.items()
    ]
    chunks = [chunk for part in parts for chunk in part.chunks]
    column = pa.chunked_array(chunks, chunks[0].type if chunks else field.type)
    if name in target.staged.schema.names:
        column = narrowed(column, target.staged.schema.field(name).type)
    return GivenValues(column, descriptor_of(field, FrameInfo()))
