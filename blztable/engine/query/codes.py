"""Codes: a condition on one column, evaluated once on the values that its codes stand for.

An encoded part has codes of one or two bytes. If each code stands for the same value in all pages,
a condition is evaluated on at most 65,536 values by Arrow, as rows are. A row passes if its code
does. So values are not decoded, and text or floats are not compared row by row.

Knows nothing of files, nor of the other conditions of a filter.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from blztable.arrow_types import bits_of
from blztable.engine.read.columns import read_codes
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
        values = parts.open(index, group).values_of_codes()
        rows = sum(span.count for span in spans if span.group == group)
        if values is None or len(values) * ROWS_PER_VALUE > rows:
            return None
        try:
            # At the end, whether a null passes.
            passing[group] = condition(pa.chunked_array([values, pa.nulls(1, values.type)]))
        except SchemaError:
            return None
    return np.concatenate(
        [
            _passing(passing[group], chunk)
            for group, codes in read_codes(parts, index, spans)
            for chunk in codes.chunks
        ]
    )


def _passing(passing: np.ndarray, codes: pa.Array) -> np.ndarray:
    """Return for each row whether its code, or null, passes."""
    numbers = np.frombuffer(codes.buffers()[1], f"<u{codes.type.bit_width // 8}")
    found = lookup(passing[:-1], numbers[codes.offset : codes.offset + len(codes)])
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
