"""Windows: columns of some rows that match, and what views of a table show of its columns.

Knows nothing of files.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.engine.query.fields import FieldView


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition, and the positions of its columns."""

    expression: pc.Expression
    columns: Sequence[int]


@dataclass(frozen=True, slots=True)
class Window:
    """Columns of the rows of a window that match, and the numbers of these rows."""

    arrays: list[pa.Array]
    numbers: range | np.ndarray


def numbers_of(results: Sequence[Window]) -> range | np.ndarray:
    """Return the numbers of the rows of windows, one after another."""
    numbers = [one.numbers for one in results if len(one.numbers)]
    if not numbers:
        return range(0)
    first, last = int(numbers[0][0]), int(numbers[-1][-1]) + 1
    if last - first == sum(map(len, numbers)):
        return range(first, last)
    return np.concatenate([np.asarray(one, np.int64) for one in numbers])


def root_of(views: Sequence[FieldView], position: int, count: int) -> int:
    """Return the one of `count` columns that a column is, or that a view shows a part of."""
    return position if position < count else root_of(views, views[position - count].index, count)


def narrowed(
    array: pa.Array,
    views: Sequence[FieldView],
    number: int,
    schema: pa.Schema,
    type_: pa.DataType,
) -> pa.Array:
    """Return what a view shows of the array of a stored column; all of it if there is no view.

    The schema has the columns that are stored, and then those of the views, of which this one is
    stored as `type_`.
    """
    if number < 0:
        return array
    view, count = views[number], len(schema) - len(views)
    whole = schema.field(view.index).type
    array = narrowed(array, views, view.index - count, schema, whole)
    for field in view.paths[0] if view.name else ():
        array = array.field(field)
    return array.cast(type_)
