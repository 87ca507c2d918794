"""Extremes: the least or the greatest value of a column, from few of its runs.

Knows nothing of files: the caller reads the values of a run.

Theory of operation. The bounds of a run need not be values. So runs are read in the order of their
bounds, until a value is found that no other run can be beyond.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.columns.statistics.bounds import Runs
from blztable.columns.stored import as_compared


def extreme(runs: Runs, read: Callable[[int], pa.Array], *, is_least: bool) -> pa.Scalar:
    """Return the least or the greatest value of some runs; null if there is none, or no order.

    Nulls and NaNs are no values.

    Parameters
    ----------
    runs : Runs
        Statistics of each run.
    read : callable
        Returns the values of a run, given its number.
    is_least : bool
        Whether the least value is wanted.
    """
    bounds = runs.lowest if is_least else runs.highest
    best = pa.scalar(None, bounds.type)
    if pa.types.is_null(bounds.type):
        return best
    is_beyond = pc.less if is_least else pc.greater
    with_values = np.flatnonzero(runs.nulls + runs.nans < runs.rows)
    for run in _in_order(bounds, with_values, is_least):
        # Null if the bound is unknown, and at first, when there is no value yet.
        if is_beyond(bounds[run], best).as_py() is False:
            break
        best = _better(best, extreme_of(read(run), is_least=is_least), is_least)
    return best


def extreme_of_all(arrays: Iterator[pa.Array], *, is_least: bool) -> pa.Scalar:
    """Return the least or the greatest value of one array or more, of which nothing is known."""
    best = extreme_of(next(arrays), is_least=is_least)
    for array in arrays:
        best = _better(best, extreme_of(array, is_least=is_least), is_least)
    return best


def _better(best: pa.Scalar, value: pa.Scalar, is_least: bool) -> pa.Scalar:
    is_beyond = pc.less if is_least else pc.greater
    return value if not best.is_valid or is_beyond(value, best).as_py() else best


def _in_order(bounds: pa.Array, runs: np.ndarray, is_least: bool) -> Iterator[int]:
    """Yield the runs, those with unknown bounds first, and then the most promising ones."""
    order = "ascending" if is_least else "descending"
    taken = bounds.take(pa.array(runs))
    places = pc.array_sort_indices(taken, order=order, null_placement="at_start")
    yield from runs[places.to_numpy()].tolist()


def extreme_of(array: pa.Array, *, is_least: bool) -> pa.Scalar:
    """Return the least or greatest value; null if there is none."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    array = as_compared(array)
    if pa.types.is_floating(array.type):
        array = array.filter(pc.invert(pc.is_nan(array)))
    type_ = array.type
    if pa.types.is_duration(type_):
        # Arrow has no minimum of durations.
        array = array.view(pa.int64())
    return (pc.min if is_least else pc.max)(array).cast(type_)
