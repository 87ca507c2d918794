"""Windows: the ranges of rows that a read decodes at a time.

Knows nothing of filters and values.
"""

from collections.abc import Callable, Iterator, Sequence

from blztable.columns.paging import USUAL_PAGE_ROWS

# Bytes of a window of a stream.
WINDOW_BYTES = 64_000_000


def row_windows(
    row_groups: Sequence[int],
    row_bytes: float,
    may_be_cut: Callable[[int], bool],
    nbytes: int | None = None,
) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of each window: some pages of one row group, or some row groups.

    `may_be_cut` is False for a row group without files: it takes no memory, and may claim any
    number of rows.
    """
    size = (
        max(int((nbytes or WINDOW_BYTES) / max(row_bytes, 1)) // USUAL_PAGE_ROWS, 1)
        * USUAL_PAGE_ROWS
    )
    start = stop = 0
    for group, rows in enumerate(row_groups):
        if stop > start and stop + rows - start > size:
            yield start, stop
            start = stop
        stop += rows
        if stop - start > size and may_be_cut(group):
            # Whole pages, if the pages have the usual size.
            for first in range(start, stop, size):
                yield first, min(first + size, stop)
            start = stop
    if stop > start:
        yield start, stop
