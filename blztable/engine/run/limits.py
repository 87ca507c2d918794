"""Limits: how much memory a request may take, and a write.

A request that exceeds the machine's memory is refused before memory is allocated. A manifest of a
few hundred bytes may state any number of rows without a file, for example nulls. Code that
allocates memory per row first calls a check of this file. `MemoryBudget` counts the bytes of the
row groups of a write that are not encoded yet; several threads may use one.

Knows nothing of files.
"""

import os
import threading

import pyarrow as pa

from blztable.errors import LimitError

# Null columns take no memory and may have any number of rows; results made from them take memory.
MOST_ROWS = 1 << 36

# Minimum size of the statistics of one page in memory.
PAGE_BYTES = 64


def check_rows(rows: int, context: str, row_bytes: int = 1) -> None:
    """Raise LimitError if the machine cannot hold `rows` rows of `row_bytes` bytes each."""
    if rows > MOST_ROWS:
        raise LimitError(f"{context}: at most {MOST_ROWS} rows can be read at once, found {rows}")
    memory = _memory()
    if memory is not None and rows * row_bytes > memory:
        raise LimitError(
            f"{context}: {rows} rows need at least {rows * row_bytes} bytes of memory, and the "
            f"machine has {memory}; read fewer rows at once"
        )


def check_values(rows: int, type_: pa.DataType) -> None:
    """Raise LimitError if the machine cannot hold `rows` values of this type."""
    try:
        row_bytes = type_.bit_width // 8
    except ValueError:
        # A type of variable width: the offset of an item takes at least 4 bytes.
        row_bytes = 4
    check_rows(rows, f"{type_} values", row_bytes)


def check_pages(type_: pa.DataType, rows: int, page_rows: int) -> None:
    """Raise LimitError if the machine cannot hold the statistics of all pages of these rows."""
    if not pa.types.is_null(type_):
        check_rows(-(-rows // page_rows), "statistics of pages", PAGE_BYTES)


def check_memory(
    nbytes: int, name: str, remedy: str = "read fewer columns or rows, or use to_batches()"
) -> None:
    """Raise LimitError if the machine has less than `nbytes` bytes of memory."""
    memory = _memory()
    if memory is not None and nbytes > memory:
        raise LimitError(
            f"{name}: the rows need {nbytes} bytes of memory, and the machine has {memory}; "
            f"{remedy}"
        )


def _memory() -> int | None:
    """Return the machine's memory in bytes; None on Windows, where the allocation fails instead."""
    if not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class MemoryBudget:
    """A budget that has room for another row group while at most half of the last one is held.

    So memory holds about two row groups at a time, with their copies and chunks.
    """

    def __init__(self, small_bytes: int) -> None:
        self._small_bytes = small_bytes
        self._lock = threading.Lock()
        self._nbytes = 0
        self._room_below = 0
        self._total = 0

    def acquire(self, nbytes: int) -> None:
        """Hold a row group of `nbytes` bytes."""
        with self._lock:
            self._nbytes += nbytes
            self._room_below = nbytes // 2
            self._total += nbytes

    def release(self, nbytes: int) -> None:
        """Release an array of `nbytes` bytes."""
        with self._lock:
            self._nbytes -= nbytes

    def has_room(self) -> bool:
        """True if another row group may be fetched."""
        return self._nbytes <= self._room_below

    def is_small(self) -> bool:
        """True if all row groups so far are so small that helpers would start too late."""
        return self._total <= self._small_bytes
