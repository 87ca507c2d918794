"""The sample that decides which encoding is tried."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from blztable.columns.paging import CHUNK_BYTES

# A sample of values: this many runs of this many values.
SAMPLE_RUNS, SAMPLE_ROWS = 8, 512
SAMPLED_ROWS = SAMPLE_RUNS * SAMPLE_ROWS
# A dictionary must have at least this many rows for each item.
ROWS_PER_ITEM = 8
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


def seems_few(array: pa.Array, most: int) -> bool:
    """True if a sample has few different items for a dictionary of at most `most` items."""
    parts = pa.chunked_array([array[rows] for rows in sample(len(array))], array.type)
    count: int = pc.count_distinct(parts).as_py()
    return 0 < count <= min(most, _MOST_SAMPLED, len(array) // ROWS_PER_ITEM)


def first_of(array: pa.Array) -> pa.Array:
    """Return an eighth of the rows: a dictionary of all takes long if they do not repeat."""
    return array[: max(len(array) // 8, 1)]
