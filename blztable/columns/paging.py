"""The number of rows of a page, and the division of streams into chunks.

A page is the unit of statistics and random access, a chunk the unit of decompression. Both aim at
`CHUNK_BYTES`: such a chunk fits into the cache of a core, and decompressing it takes much longer
than the 20 microseconds of Python that a chunk costs. Items of `LARGE_ITEM` and more have chunks of
their own, so that one is read without its neighbours. Knows nothing of types.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from blztable.block_terms import MIN_PAGE_ROWS, split_evenly

CHUNK_BYTES = 1 << 20
# Decompressing such an item takes longer than the Python of a chunk, even as fast as memory.
LARGE_ITEM = CHUNK_BYTES // 4
USUAL_PAGE_ROWS = 1 << 17
# A chunk below this is not cut any further.
_LEAST_CUT = 1 << 16


def page_rows_for(row_bytes: float) -> int:
    """Return the number of rows of a page, a power of two, given the bytes of a typical row."""
    rows = int(CHUNK_BYTES / max(row_bytes, 1))
    return 1 << (min(max(rows, MIN_PAGE_ROWS), USUAL_PAGE_ROWS).bit_length() - 1)


def cut_even(nbytes: int, page_bytes: int, row_bytes: int, target: int) -> tuple[int, ...]:
    """Return the chunk sizes of a stream of fixed-size rows: some pages, or 1/2, 1/4... page.

    All chunks but the last have one size, which fits into the header. A chunk boundary lies within
    a row only if the row is larger than `target`.
    """
    if page_bytes <= target:
        return split_evenly(nbytes, target // page_bytes * page_bytes)
    size = target
    if row_bytes <= target:
        size = row_bytes << (target // row_bytes).bit_length() - 1
    return split_evenly(nbytes, size)


def cut_tail(chunks: tuple[int, ...], unit: int) -> tuple[int, ...]:
    """Cut off the end of the last chunk, so that the rest of it is whole units.

    Blosc does not shuffle the bits of a block that is no multiple of 8 items, and such a chunk is
    often one block. A small chunk is not cut, because reading another chunk takes time.
    """
    if not chunks or chunks[-1] < _LEAST_CUT or chunks[-1] < unit or chunks[-1] % unit == 0:
        return chunks
    tail = chunks[-1] % unit
    return (*chunks[:-1], chunks[-1] - tail, tail)


def cut_pages(
    pages: Sequence[int], target: int, ends: np.ndarray, page_rows: int
) -> tuple[int, ...]:
    """Return the chunk sizes of a stream of items with these pages and item ends.

    Pages above `target`, and those with a large item, are cut, each by itself and between items.
    """
    large = min(target, LARGE_ITEM)
    lengths = np.diff(ends, prepend=ends.dtype.type(0))
    cut = set((np.flatnonzero(lengths >= large) // page_rows).tolist())
    chunks: list[int] = []
    room = 0
    for number, page in enumerate(pages):
        if page > target or number in cut:
            rows = lengths[number * page_rows : (number + 1) * page_rows]
            chunks += _cut_page(rows, target, large)
            room = 0
        elif 0 < page <= room:
            chunks[-1] += page
            room -= page
        elif page:
            chunks.append(page)
            room = target - page
    return tuple(chunks)


def page_bytes(ends: np.ndarray, page_rows: int) -> tuple[int, ...]:
    """Return the number of bytes of each page of items, given the item ends."""
    if len(ends) == 0:
        return ()
    last = np.append(ends[page_rows - 1 :: page_rows], ends[-1])
    if len(ends) % page_rows == 0:
        last = last[:-1]
    return tuple(np.diff(last, prepend=last.dtype.type(0)).tolist())


def _cut_page(lengths: np.ndarray, target: int, large: int) -> Iterator[int]:
    """Yield the chunk sizes of a page: large items alone, the items between them together."""
    start = 0
    for row in (*np.flatnonzero(lengths >= large).tolist(), len(lengths)):
        yield from _cut_run(np.cumsum(lengths[start:row], dtype=np.int64), target)
        if row < len(lengths):
            nbytes = int(lengths[row])
            count = -(-nbytes // target)
            yield from split_evenly(nbytes, -(-nbytes // count))
        start = row + 1


def _cut_run(ends: np.ndarray, target: int) -> Iterator[int]:
    """Yield the chunk sizes of items below `target`, given their ends: as many items as fit."""
    begin, stop = 0, int(ends[-1]) if len(ends) else 0
    while begin < stop:
        end = int(ends[np.searchsorted(ends, begin + target, "right") - 1])
        yield end - begin
        begin = end
