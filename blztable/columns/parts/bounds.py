"""Page records of a part: its nulls, its NaNs, and the least and greatest word of each page."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.columns.parts.physical import Physical, words_of
from blztable.columns.parts.stream import cuts
from blztable.format.bounds import (
    ANY,
    GREATEST,
    LEAST,
    MAX_PREFIX,
    NONE,
    WORD_BYTES,
    common_prefix,
    word_of_bytes,
)
from blztable.format.records import PAGE, WORD, Array

# The first bytes of an item that a bound may have, and one more.
_MOST_BYTES = MAX_PREFIX + WORD_BYTES + 1
# The bounds of a page as bytes; None if it has no value.
Extremes = list[tuple[bytes, bytes] | None]


def empty(rows: int, page: int) -> Array:
    """Return page records of values without an order."""
    pages = np.zeros(len(cuts(rows, page)), PAGE)
    pages["min"], pages["max"] = ANY
    return pages


def count(pages: Array, rows: int, page: int, valid: Array | None, nans: Array | None) -> None:
    """Put the number of nulls and of NaNs into page records."""
    if valid is None and nans is None:
        return
    first = cuts(rows, page)
    if valid is not None:
        pages["nulls"] = np.add.reduceat(~valid, first, dtype=np.int64)
    if nans is not None:
        pages["nans"] = np.add.reduceat(nans, first, dtype=np.int64)
    sizes = np.diff(np.append(first, rows))
    none = pages["nulls"].astype(np.int64) + pages["nans"] == sizes
    pages["min"][none], pages["max"][none] = NONE


def put(pages: Array, low: Array, high: Array) -> None:
    """Put words into page records: `low` above `high` for a page without values."""
    none = low > high
    if none.any():
        low, high = np.where(none, GREATEST, low), np.where(none, LEAST, high)
    pages["min"], pages["max"] = low, high


def of_words(pages: Array, words: Array, page: int, ordered: Array | None) -> None:
    """Put the extremes of words into page records; `ordered` are the rows that have an order."""
    first = cuts(len(words), page)
    low = words if ordered is None else np.where(ordered, words, GREATEST)
    high = words if ordered is None else np.where(ordered, words, LEAST)
    pages["min"], pages["max"] = np.minimum.reduceat(low, first), np.maximum.reduceat(high, first)


def of_floats(
    pages: Array, values: Array, form: Physical, page: int, ordered: Array | None
) -> None:
    """Put the extremes of floats into page records; `ordered` are the rows that have an order.

    Of a matrix, each row is that of a part, and so is each row of the page records.
    """
    first = cuts(values.shape[-1], page)
    if values.itemsize == 2:
        with np.errstate(invalid="ignore"):
            values = values.astype("<f4")
    least, most = values, values
    if ordered is not None:
        infinity = values.dtype.type(np.inf)
        least, most = np.where(ordered, values, infinity), np.where(ordered, values, -infinity)
    low = np.minimum.reduceat(least, first, axis=-1)
    high = np.maximum.reduceat(most, first, axis=-1)
    put(pages, words_of(low, form), words_of(high, form))
    # The least of 0.0 and -0.0 may be either: there the bits decide.
    zeros = (low == 0) | (high == 0)
    if zeros.any() and (np.signbit(values) & (values == 0)).any():
        for position in np.argwhere(zeros).tolist():
            of_part, start = tuple(position[:-1]), position[-1] << page
            rows = slice(start, start + (1 << page))
            exact = values[of_part][rows]
            if ordered is not None:
                exact = exact[ordered[of_part][rows]]
            words = words_of(exact, form)
            pages[tuple(position)]["min"], pages[tuple(position)]["max"] = words.min(), words.max()


def widen(pages: Array, scaled: Array, of: Array) -> None:
    """Let page records hold floats that are no integers; `of` has the page of each."""
    known = ~np.isnan(scaled)
    numbers, of = scaled[known], of[known]
    # More on each side: the products with the power of ten are rounded, here and by a reader.
    more = np.where(np.isinf(numbers), 0, np.abs(numbers) * 2.0**-50 + 1)
    for name, bound, extreme in (
        ("min", np.floor(numbers - more), np.minimum),
        ("max", np.ceil(numbers + more), np.maximum),
    ):
        inside = np.abs(bound) < 1 << 62
        outside = np.where(bound < 0, LEAST, GREATEST)
        words = np.where(inside, np.where(inside, bound, 0).astype(np.int64), outside)
        extreme.at(pages[name], of, words)


def of_items(array: pa.Array, page: int) -> Extremes:
    """Return the least and the greatest item of each page of binary."""
    extremes: Extremes = []
    for first in cuts(len(array), page).tolist():
        low, high = pc.min_max(array[first : first + (1 << page)]).values()
        extremes.append((first_bytes(low), first_bytes(high)) if low.is_valid else None)
    return extremes


def first_bytes(item: pa.Scalar) -> bytes:
    """Return the first bytes of an item, more than a bound may have."""
    data: bytes = item.as_buffer()[:_MOST_BYTES].to_pybytes()
    return data


def of_bytes(pages: Array, extremes: Extremes) -> tuple[bytes, bool]:
    """Put the extremes of items into page records; return their prefix, and if they are values."""
    known = [pair for pair in extremes if pair is not None]
    if not known:
        pages["min"], pages["max"] = NONE
        return b"", True
    prefix = common_prefix(min(known)[0], max([high for _, high in known]))
    begin = len(prefix)
    words = [
        NONE if pair is None else (word_of_bytes(pair[0][begin:]), word_of_bytes(pair[1][begin:]))
        for pair in extremes
    ]
    pages["min"], pages["max"] = np.array(words, WORD).T
    most = begin + WORD_BYTES
    exact = all(
        len(bound) <= most and not bound.endswith(b"\0") for pair in known for bound in pair
    )
    return prefix, exact
