"""How many rows a page has, and how the pages of a stream are cut into chunks.

A page is the unit of statistics and random access, a chunk the unit of decompression. Both aim at
`CHUNK_BYTES`: it fits the cache of a core, and makes the 20 microseconds of Python a chunk small.
"""

from collections.abc import Sequence

import numpy as np

CHUNK_BYTES = 1 << 20
MIN_PAGE_ROWS = 8
USUAL_PAGE_ROWS = 1 << 17


def page_rows_for(row_bytes: float) -> int:
    """The rows of a page whose typical row takes `row_bytes`: a power of two."""
    fitting = int(CHUNK_BYTES / max(row_bytes, 1))
    return 1 << (min(max(fitting, MIN_PAGE_ROWS), USUAL_PAGE_ROWS).bit_length() - 1)


def cut_even(nbytes: int, page_bytes: int, row_bytes: int, target: int) -> tuple[int, ...]:
    """Chunks of a stream of even rows: whole pages, or half, a quarter... of one.

    All have one size but the last, so that a header can say it. Only a row larger than `target`
    is cut itself.
    """
    if page_bytes <= target:
        return _split(nbytes, target // page_bytes * page_bytes)
    size = target
    if row_bytes <= target:
        size = row_bytes << (target // row_bytes).bit_length() - 1
    return _split(nbytes, size)


def cut_pages(pages: Sequence[int], target: int) -> tuple[int, ...]:
    """Chunks of a stream whose pages have these bytes: small ones whole, large ones cut."""
    chunks: list[int] = []
    room = 0
    for page in pages:
        if page > target:
            chunks += _cut_page(page, target)
            room = 0
        elif 0 < page <= room:
            chunks[-1] += page
            room -= page
        elif page:
            chunks.append(page)
            room = target - page
    return tuple(chunks)


def page_bytes(ends: np.ndarray, page_rows: int) -> tuple[int, ...]:
    """Bytes of each page of items that end there."""
    if len(ends) == 0:
        return ()
    last = np.append(ends[page_rows - 1 :: page_rows], ends[-1])
    if len(ends) % page_rows == 0:
        last = last[:-1]
    return tuple(np.diff(last, prepend=last.dtype.type(0)).tolist())


def _cut_page(nbytes: int, target: int) -> tuple[int, ...]:
    """A page in chunks of `target` or less and of about the same size."""
    count = -(-nbytes // target)
    return _split(nbytes, -(-nbytes // count))


def _split(nbytes: int, size: int) -> tuple[int, ...]:
    full, rest = divmod(nbytes, size)
    return (size,) * full + ((rest,) if rest else ())
