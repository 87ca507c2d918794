"""The sample that decides which encoding is tried."""

from collections.abc import Iterator

from blztable.columns.paging import CHUNK_BYTES

# A sample of values: this many runs of this many values.
SAMPLE_RUNS, SAMPLE_ROWS = 8, 512
SAMPLED_ROWS = SAMPLE_RUNS * SAMPLE_ROWS


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
