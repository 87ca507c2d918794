"""Codes: a condition on one column, evaluated once on the values that its codes stand for.

An encoded part has codes of one or two bytes, a part of a dictionary type has indices. If each code
stands for the same value in all pages, Arrow evaluates a condition on these values as it does on
rows. A row passes if its code does. So values are not decoded, and text and floats are not compared
row by row.

Knows nothing of files, nor of the other conditions of a filter.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from blztable.arrow_types import bits_of
from blztable.engine.read.columns import read_codes, values_of_codes
from blztable.engine.read.parts import OpenParts
from blztable.engine.read.selection import RowSpan
from blztable.errors import SchemaError

# The values of codes are evaluated only if there are so many rows for each of them.
ROWS_PER_VALUE = 4


def mask(
    condition: Callable[[pa.ChunkedArray], np.ndarray],
    index: int,
    spans: Sequence[RowSpan],
    parts: OpenParts,
) -> np.ndarray | None:
    """Return for each row of these spans whether a condition on a column is true.

    Return None if the condition has to be evaluated on the values of the rows: a part has no such
    codes, or Arrow cannot evaluate the condition on a value that no row has.

    Parameters
    ----------
    condition
        Returns for each value of the column's type whether the condition is true.
    index
        The index of the column.
    spans
        The rows.
    parts
        The parts of the version.
    """
    passing: dict[int, np.ndarray] = {}
    for group in dict.fromkeys(span.group for span in spans):
        rows = sum(span.count for span in spans if span.group == group)
        values = values_of_codes(parts, index, group, int(rows / ROWS_PER_VALUE))
        if values is None:
            return None
        try:
            # At the end, whether a null passes.
            passing[group] = condition(pa.chunked_array([values, pa.nulls(1, values.type)]))
        except SchemaError:
            return None
    masks = []
    for group, codes in read_codes(parts, index, spans):
        for chunk in codes.chunks:
            numbers = np.frombuffer(chunk.buffers()[1], f"<u{chunk.type.bit_width // 8}")
            numbers = numbers[chunk.offset : chunk.offset + len(chunk)]
            if int(numbers.max()) >= len(passing[group]) - 1:
                # The values are read, with an error that names the file.
                return None
            masks.append(_passing(passing[group], chunk, numbers))
    return np.concatenate(masks)


def _passing(passing: np.ndarray, codes: pa.Array, numbers: np.ndarray) -> np.ndarray:
    """Return for each row whether its code, or null, passes."""
    found = lookup(passing[:-1], numbers)
    if codes.null_count:
        bitmap = np.frombuffer(codes.buffers()[0], np.uint8)
        valid = bits_of(bitmap, codes.offset, len(codes)).view(np.bool_)
        found[~valid] = passing[-1]
    return found


def lookup(passing: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return `passing[codes]`; by comparisons where one range of codes passes, or does not."""
    low, high = _range(passing)
    if high - low == np.count_nonzero(passing):
        return _within(codes, low, high)
    low, high = _range(~passing)
    if high - low == len(passing) - np.count_nonzero(passing):
        return ~_within(codes, low, high)
    return passing[codes]


def _range(flags: np.ndarray) -> tuple[int, int]:
    """Return the smallest range that has all set flags."""
    places = np.flatnonzero(flags)
    return (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 0)


def _within(codes: np.ndarray, low: int, high: int) -> np.ndarray:
    if low >= high:
        return np.zeros(len(codes), np.bool_)
    # Differences wrap, so one comparison is enough.
    return codes - codes.dtype.type(low) <= high - low - 1
