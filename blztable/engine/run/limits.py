"""Limits: what the machine has no memory for is refused before the memory is asked for.

A manifest of a few hundred bytes may state any number of rows that need no file, nulls among them.
Whatever makes something of each row asks here first.
"""

import os

import pyarrow as pa

from blztable.errors import LimitError

# Nulls take no memory and may be any number of rows, but what is made of rows takes some.
MOST_ROWS = 1 << 36

# What each page takes at least in arrays and tuples of facts about pages.
PAGE_BYTES = 64


def check_rows(rows: int, what: str, row_bytes: int = 1) -> None:
    """LimitError for more rows than the machine could hold at so many bytes each."""
    if rows > MOST_ROWS:
        raise LimitError(f"{what}: at most {MOST_ROWS} rows are taken at once, found {rows}")
    memory = _memory()
    if memory is not None and rows * row_bytes > memory:
        raise LimitError(
            f"{what}: {rows} rows take at least {rows * row_bytes} bytes of memory, of which "
            f"there are {memory}; take fewer rows at once"
        )


def check_values(rows: int, type_: pa.DataType) -> None:
    """LimitError for more values of this type than the machine could hold."""
    try:
        row_bytes = type_.bit_width // 8
    except ValueError:
        # Of variable width: the end of an item takes 4 bytes at least.
        row_bytes = 4
    check_rows(rows, f"{type_} values", row_bytes)


def check_pages(type_: pa.DataType, rows: int, page_rows: int) -> None:
    """LimitError for more pages than the machine could hold statistics of."""
    if not pa.types.is_null(type_):
        check_rows(-(-rows // page_rows), "statistics of pages", PAGE_BYTES)


def check_memory(nbytes: int, table: str) -> None:
    """LimitError where the machine could not hold so many bytes, whatever else it does."""
    memory = _memory()
    if memory is not None and nbytes > memory:
        raise LimitError(
            f"{table}: to be read at once it takes {nbytes} bytes of memory, of which there are "
            f"{memory}; read fewer columns or rows, or use to_batches"
        )


def _memory() -> int | None:
    """The bytes of the machine's memory; None on Windows, where allocating fails instead."""
    if not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
