"""A sample of the rows of a part: runs of rows, spread evenly. Knows no types."""

from collections.abc import Iterator

import numpy as np

from blztable import tuning
from blztable.format.records import Array

# This many runs of this many rows.
RUNS, RUN_ROWS = 8, 512
SAMPLED_ROWS = RUNS * RUN_ROWS


def sample(rows: int) -> Iterator[slice]:
    """Yield runs of rows; one run of all rows if these are few."""
    if rows <= SAMPLED_ROWS:
        yield slice(0, rows)
        return
    for number in range(RUNS):
        start = (rows - RUN_ROWS) * number // (RUNS - 1)
        yield slice(start, start + RUN_ROWS)


def sampled(values: Array, valid: Array | None) -> Array:
    """Return a sample of the values, nulls aside; none only if all rows are null."""
    runs = list(sample(len(values)))
    if valid is None:
        return values if len(runs) == 1 else np.concatenate([values[rows] for rows in runs])
    some = np.concatenate([values[rows][valid[rows]] for rows in runs])
    if len(some) >= tuning.current.sampled_values or len(runs) == 1:
        return some
    return sampled(values[valid], None)
