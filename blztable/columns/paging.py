"""How many rows a page has, and how the pages of a stream are cut into chunks.

A page is the unit of statistics and random access, a chunk the unit of decompression. Both aim at
`CHUNK_BYTES`: it fits the cache of a core, and makes the 20 microseconds of Python a chunk small.
"""

from collections.abc import Sequence

import numpy as np

CHUNK_BYTES = 1 << 20
# Of the format: no chunk we write is larger, see facts on C-Blosc in docs/format.md.
MAX_CHUNK_BYTES = 8 << 20
MIN_PAGE_ROWS = 8
MAX_PAGE_ROWS = 1 << 17


def page_rows_for(row_bytes: float) -> int:
    """The rows of a page whose typical row takes `row_bytes`: a power of two."""
    fitting = int(CHUNK_BYTES / max(row_bytes, 1))
    return 1 << (min(max(fitting, MIN_PAGE_ROWS), MAX_PAGE_ROWS).bit_length() - 1)


def cut_even(nbytes: int, page_bytes: int, row_bytes: int, target: int) -> tuple[int, ...]:
    """Chunks of a stream whose pages all have `page_bytes`, but a shorter last one."""
    if page_bytes <= target:
        return _split(nbytes, target // page_bytes * page_bytes)
    pages, rest = divmod(nbytes, page_bytes)
    return _cut_page(page_bytes, row_bytes, target) * pages + _cut_page(rest, row_bytes, target)


def cut_pages(pages: Sequence[int], target: int) -> tuple[int, ...]:
    """Chunks of a stream whose pages have these bytes: small ones whole, large ones cut."""
    chunks: list[int] = []
    room = 0
    for page in pages:
        if page > target:
            chunks += _cut_page(page, 1, target)
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


def _cut_page(nbytes: int, row_bytes: int, target: int) -> tuple[int, ...]:
    """A page in chunks of about `target` and about the same size, on a row where one fits."""
    if nbytes == 0:
        return ()
    count = -(-nbytes // target)
    size = -(-nbytes // count)
    if row_bytes <= size:
        size = -(-size // row_bytes) * row_bytes
    return _split(nbytes, min(size, MAX_CHUNK_BYTES))


def _split(nbytes: int, size: int) -> tuple[int, ...]:
    full, rest = divmod(nbytes, size)
    return (size,) * full + ((rest,) if rest else ())
