"""Page records of a part: its nulls, its NaNs, and the least and greatest word of each page."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.columns.parts.stream import cuts
from blztable.format.bounds import (
    ANY,
    GREATEST,
    LEAST,
    NONE,
    WORD_BYTES,
    common_prefix,
    word_of_bytes,
)
from blztable.format.records import PAGE, Array


def empty(rows: int, page: int) -> Array:
    """Return page records of values without an order."""
    pages = np.zeros(len(cuts(rows, page)), PAGE)
    pages["min"], pages["max"] = ANY
    return pages


def count(pages: Array, rows: int, page: int, valid: Array | None, nans: Array | None) -> None:
    """Put the number of nulls and of NaNs into page records."""
    first = cuts(rows, page)
    for name, which in (("nulls", None if valid is None else ~valid), ("nans", nans)):
        if which is not None and rows:
            pages[name] = np.add.reduceat(which, first, dtype=np.int64)
    sizes = np.diff(np.append(first, rows))
    none = pages["nulls"].astype(np.int64) + pages["nans"] == sizes
    pages["min"][none], pages["max"][none] = NONE


def of_words(pages: Array, words: Array, page: int, ordered: Array | None) -> None:
    """Put the extremes of words into page records; `ordered` are the rows that have an order."""
    if not len(words):
        return
    first = cuts(len(words), page)
    low = words if ordered is None else np.where(ordered, words, GREATEST)
    high = words if ordered is None else np.where(ordered, words, LEAST)
    pages["min"], pages["max"] = np.minimum.reduceat(low, first), np.maximum.reduceat(high, first)


def widen(pages: Array, scaled: Array, of: Array) -> None:
    """Let page records hold floats that are no integers; `of` has the page of each."""
    known = ~np.isnan(scaled)
    numbers, of = scaled[known], of[known]
    # More on each side: the products with the power of ten are rounded, here and by a reader.
    more = np.abs(numbers) * 2.0**-50 + 1
    for name, bound, extreme in (
        ("min", np.floor(numbers - more), np.minimum),
        ("max", np.ceil(numbers + more), np.maximum),
    ):
        inside = np.abs(bound) < 1 << 62
        outside = np.where(bound < 0, LEAST, GREATEST)
        words = np.where(inside, np.where(inside, bound, 0).astype(np.int64), outside)
        extreme.at(pages[name], of, words)


def of_bytes(pages: Array, array: pa.Array, page: int) -> tuple[bytes, bool]:
    """Put the extremes of items into page records; return their prefix, and if they are values."""
    extremes = []
    for first in cuts(len(array), page).tolist():
        found = pc.min_max(array.slice(first, 1 << page).cast(_binary(array.type))).as_py()
        extremes.append((found["min"], found["max"]))
    known = [pair for pair in extremes if pair[0] is not None]
    if not known:
        pages["min"], pages["max"] = NONE
        return b"", True
    least, greatest = min(low for low, _ in known), max(high for _, high in known)
    prefix = common_prefix(least, greatest)
    for number, (low, high) in enumerate(extremes):
        if low is None:
            pages["min"][number], pages["max"][number] = NONE
        else:
            pages["min"][number] = word_of_bytes(low[len(prefix) :])
            pages["max"][number] = word_of_bytes(high[len(prefix) :])
    most = len(prefix) + WORD_BYTES
    exact = all(len(one) <= most and not one.endswith(b"\0") for pair in known for one in pair)
    return prefix, exact


def _binary(type_: pa.DataType) -> pa.DataType:
    """Return the binary type of text: Arrow orders both by their bytes."""
    large = pa.types.is_large_string(type_) or pa.types.is_large_binary(type_)
    return pa.large_binary() if large else pa.binary()
