"""Windows: how many rows a reader of a stream takes at a time."""

from collections.abc import Callable, Iterator, Sequence

from blztable.columns.paging import USUAL_PAGE_ROWS

# What a reader of a stream takes at a time.
WINDOW_BYTES = 64_000_000


def row_windows(
    row_groups: Sequence[int],
    row_bytes: float,
    may_be_cut: Callable[[int], bool],
    nbytes: int | None = None,
) -> Iterator[tuple[int, int]]:
    """Rows to be read at a time, from one to another: some pages of a row group, or some groups.

    A row group without a file is one window: it takes no memory, and may claim any number of rows.
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
            # Whole pages, as far as they are usual.
            for first in range(start, stop, size):
                yield first, min(first + size, stop)
            start = stop
    if stop > start:
        yield start, stop
