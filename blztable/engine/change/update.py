"""Update: set values of some columns in the rows for which a condition is true.

The named columns of each row group with such rows are written again; chunks that did not change
are copied. All new values are computed from the old ones.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.types import Portion, as_stored
from blztable.columns.types import one_array, take
from blztable.engine.change import reliance
from blztable.engine.change.change_set import ChangeSet
from blztable.engine.change.changes import NoRewrite, Update
from blztable.engine.change.reliance import Predicate, WriteSet
from blztable.engine.change.rows import Condition, RowMask, read_group, repeated
from blztable.engine.query import expressions
from blztable.engine.read.columns import OpenColumns
from blztable.engine.read.parts import Part
from blztable.engine.read.selection import RowSpan, stored_portion
from blztable.engine.version.staged import StagedVersion
from blztable.errors import SchemaError

# Types of which Arrow replaces single values in one pass; a take reads an index for each row.
_SPLICED = (pa.types.is_integer, pa.types.is_float32, pa.types.is_float64)
# New values of a column: one for all rows, one for each selected row, or an expression.
Values: TypeAlias = pa.Scalar | pa.ChunkedArray | pc.Expression
# Converts values to the type of the column at this index; SchemaError if it cannot.
Coerce = Callable[[int, pa.ChunkedArray], pa.ChunkedArray]


def selected(opened: OpenColumns, where: object) -> tuple[dict[int, RowMask], Predicate]:
    """Return the rows that meet a condition, by row group, and the predicate of these rows."""
    staged = opened.version
    assert isinstance(staged, StagedVersion)
    predicate = reliance.any_row if where is None else reliance.any_where(staged, where)
    return dict(_selected(opened, where)), predicate


def set_values(
    change_set: ChangeSet,
    opened: OpenColumns,
    values: Mapping[int, Values],
    selected_rows: Mapping[int, RowMask],
    predicate: Predicate,
    coerce: Coerce | None = None,
) -> int:
    """Set values in the selected rows of each row group; return the number of these rows.

    `predicate` is the predicate of the selected rows; `coerce` is needed for expressions.

    Raises
    ------
    SchemaError
        The values have another type, or their number differs from the number of selected rows.
    """
    staged = change_set.staged
    first = np.cumsum([0, *(selected.count for selected in selected_rows.values())])
    rows = int(first[-1])
    for index, value in values.items():
        if isinstance(value, pa.ChunkedArray) and len(value) != rows:
            raise SchemaError(
                f"column {staged.schema.field(index).name!r}: expected {rows} values, one for each "
                f"selected row, found {len(value)}; pass that many values or a single one"
            )
    if not values:
        return 0
    indices, groups = list(values), list(selected_rows)
    write_set = WriteSet.of(staged, groups, predicate)
    if not rows:
        change_set.add_reliance(NoRewrite(write_set))
        return 0

    def portions() -> Iterator[Portion]:
        for number, group in enumerate(opened.ahead(selected_rows, indices)):
            opened.forget_before(group)
            selected = selected_rows[group]
            mask = selected.unpacked()
            arrays = []
            for index, value in values.items():
                start, stop = first[number], first[number + 1]
                if isinstance(value, pc.Expression):
                    assert coerce is not None, "values of an expression are coerced"
                    new = coerce(index, evaluated(opened, value, group, mask))
                elif isinstance(value, pa.Scalar):
                    new = pa.chunked_array([repeated(value, stop - start)])
                else:
                    new = value.slice(start, stop - start)
                arrays.append(_merged(opened, index, group, mask, new))
            yield stored_portion(staged, group, arrays)

    lines = [line for index in indices for line in staged.nodes(index)]

    def old(node: int, number: int) -> Part:
        return opened.parts.open(lines[node], groups[number])

    columns = change_set.column_writers(indices)
    _, written = change_set.write(columns, portions(), old=old)
    change_set.add("update", Update(write_set, dict(zip(lines, written, strict=True))))
    change_set.count(updated=rows)
    return rows


def computed(staged: StagedVersion, expression: pc.Expression, group: int) -> pa.ChunkedArray:
    """Evaluate an expression over the rows of a row group."""
    with OpenColumns.whole(staged) as opened:
        return evaluated(opened, expression, group)


def evaluated(
    opened: OpenColumns, expression: pc.Expression, group: int, mask: np.ndarray | None = None
) -> pa.ChunkedArray:
    """Evaluate an expression over the rows of a row group, or over the rows of `mask`.

    Parts of earlier row groups are released.
    """
    staged = opened.version
    opened.forget_before(group)
    indices = expressions.columns_of(expression, staged.schema)
    rows = staged.row_groups[group]
    columns = opened.columns(indices, [RowSpan(group, 0, rows)])
    names = [staged.schema.field(index).name for index in indices]
    if len(names) == 1 and expression.equals(pc.field(names[0])):
        # Arrow would make plain values of categories.
        result = columns[0]
    else:
        result = expressions.evaluate(expression, dict(zip(names, columns, strict=True)), rows)
    if mask is None:
        return result
    return pa.chunked_array([take(one_array(result), np.flatnonzero(mask))])


def _selected(opened: OpenColumns, where: object) -> Iterator[tuple[int, RowMask]]:
    """Yield each row group that has selected rows, with these rows."""
    row_groups = opened.version.row_groups
    if where is None:
        yield from ((group, RowMask(rows, rows)) for group, rows in enumerate(row_groups))
        return
    for group, selected in Condition(opened, where).each():
        if selected.count:
            yield group, selected


def _merged(
    opened: OpenColumns, index: int, group: int, mask: np.ndarray | None, new: pa.ChunkedArray
) -> pa.Array:
    """Return a column of a row group with the new values in the rows of `mask`."""
    stored = [as_stored(chunk) for chunk in new.chunks]
    if mask is None:
        return one_array(pa.chunked_array(stored))
    old = read_group(opened, [index], group).column(0)
    if any(is_one(old.type) for is_one in _SPLICED):
        return pc.replace_with_mask(
            one_array(old), pa.array(mask), one_array(pa.chunked_array(stored, old.type))
        )
    both = one_array(pa.chunked_array([*old.chunks, *stored]))
    rows = np.arange(len(mask))
    rows[mask] = np.arange(len(mask), len(both))
    return take(both, rows)
