"""The sample that decides which encoding is tried."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.columns.paging import CHUNK_BYTES

# A sample of values: this many runs of this many values.
SAMPLE_RUNS, SAMPLE_ROWS = 8, 512
SAMPLED_ROWS = SAMPLE_RUNS * SAMPLE_ROWS
# A dictionary must have at least this many rows for each item.
ROWS_PER_ITEM = 8
# Few items: two of their codes are looked up at once.
FEW_ITEMS = 128
# Of more items a sample of 4,096 rows has mostly different ones: there are above 6,000.
_MOST_SAMPLED = SAMPLED_ROWS * 3 // 4


def sample(rows: int) -> Iterator[slice]:
    """Yield runs of rows, spread evenly."""
    if rows <= SAMPLED_ROWS:
        yield slice(0, rows)
        return
    for number in range(SAMPLE_RUNS):
        start = (rows - SAMPLE_ROWS) * number // (SAMPLE_RUNS - 1)
        yield slice(start, start + SAMPLE_ROWS)


def is_one_chunk(rows: int, page_rows: int, width: int) -> bool:
    """True if a page of codes fits into a chunk, so that a chunk can be decoded by itself."""
    return min(rows, page_rows) * width <= CHUNK_BYTES


def to_try(array: pa.Array, most: int) -> tuple[pa.Array, ...]:
    """Return the rows to make a dictionary of at most `most` items of, one array after the other.

    Return none if a sample has too many different items. If it has many, the first array is an
    eighth of the rows: a dictionary of all takes long if they do not repeat.
    """
    count = _count_distinct([array[rows] for rows in sample(len(array))])
    if not 0 < count <= min(most, _MOST_SAMPLED, len(array) // ROWS_PER_ITEM):
        return ()
    return (array,) if count <= FEW_ITEMS else (array[: len(array) // 8], array)


def _count_distinct(parts: list[pa.Array]) -> int:
    if not pa.types.is_integer(parts[0].type):
        return int(pc.count_distinct(pa.chunked_array(parts)).as_py())
    # numpy sorts integers in a third of the time that Arrow takes to count them.
    values = np.sort(np.concatenate([part.to_numpy() for part in parts]))
    return int(np.count_nonzero(values[1:] != values[:-1])) + min(len(values), 1)
