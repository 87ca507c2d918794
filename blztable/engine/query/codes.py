"""Codes: evaluate a condition on the few values that codes stand for, not on each row.

An encoded part has codes of one or two bytes, a part of a dictionary type has indices. If each code
stands for the same value in all pages, Arrow evaluates a condition on these values as it does on
rows. A row passes if its code does. So values are not decoded, and text and floats are not compared
row by row. Rows that pass are looked up at the end, so nothing is read twice.

Knows nothing of files, nor of the steps of a filter.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

import numpy as np
import pyarrow as pa

from blztable import tuning
from blztable.arrow.types import as_stored, bits_of
from blztable.columns.parts.decode import MOST_KEPT_VALUES
from blztable.engine.read import selection
from blztable.engine.read.column_reader import ColumnReader
from blztable.engine.read.selection import RowSpan
from blztable.errors import CorruptError
from blztable.storage.store import Nothing

# Row groups that tell whether a column has codes, and the share of their rows that must have them.
# A look at all row groups may take as long as a scan.
_LOOKED_AT, _CODED_SHARE = 8, 0.9
# Row groups of which a step of a filter keeps which codes pass.
_KEPT_GROUPS = 256


@dataclass(frozen=True, slots=True)
class CodedColumn:
    """A column of some rows.

    Attributes
    ----------
    type
        The type of the column.
    groups, parts
        The row groups, and for each of them the value of each code, and the codes of its rows.
    """

    type: pa.DataType
    groups: Sequence[int]
    parts: Sequence[tuple[pa.Array, pa.ChunkedArray]]

    def __len__(self) -> int:
        """Return the number of rows."""
        count = 0
        for _, codes in self.parts:
            count += len(codes)
        return count

    def mask(
        self,
        condition: Callable[[pa.ChunkedArray], np.ndarray],
        known: dict[int, np.ndarray],
    ) -> np.ndarray:
        """Return for each row whether a condition is true.

        Parameters
        ----------
        condition
            Returns for each value of the column's type whether the condition is true.
        known
            By row group, what it returned for the values; the same is not asked again.
        """
        masks: list[np.ndarray] = []
        for group, (values, codes) in zip(self.groups, self.parts, strict=True):
            passing = known.get(group)
            if passing is None:
                # At the end, whether a null passes.
                passing = condition(pa.chunked_array([values, pa.nulls(1, values.type)]))
                if len(values) <= MOST_KEPT_VALUES and len(known) < _KEPT_GROUPS:
                    known[group] = passing
            masks += map(partial(_passing, passing), codes.chunks)
        return masks[0] if len(masks) == 1 else np.concatenate(masks)

    def decoded(self) -> pa.ChunkedArray:
        """Return the values of all rows."""
        chunks = (
            _looked_up(values, chunk) for values, codes in self.parts for chunk in codes.chunks
        )
        return pa.chunked_array(list(chunks), self.type)

    def chosen(self, flags: np.ndarray, positions: np.ndarray) -> pa.ChunkedArray:
        """Return the values of some rows: `selection.chosen` of the codes, looked up."""
        chunks, begin = [], 0
        for values, codes in self.parts:
            rows = selection.chosen(codes, flags, positions, begin)
            chunks += [_looked_up(values, chunk) for chunk in rows.chunks]
            begin += len(codes)
        return pa.chunked_array(chunks, self.type)


def read(reader: ColumnReader, index: int, spans: Sequence[RowSpan]) -> CodedColumn | None:
    """Read spans of rows of a column as codes; None if they have to be read as values."""
    parts = reader.codes(index, spans, tuning.current.rows_per_code)
    if parts is None:
        return None
    for values, codes in parts:
        for chunk in codes.chunks:
            if numbers_of(chunk).max() >= len(values):
                # To read the values fails with an error that names the file.
                return None
    groups = list(dict.fromkeys(map(attrgetter("group"), spans)))
    return CodedColumn(reader.projection.schema.field(index).type, groups, parts)


def with_codes(reader: ColumnReader, indices: Sequence[int]) -> list[int]:
    """Return the columns of which nearly all rows have codes of few values, and files are intact.

    Only the largest row groups are looked at: the others may have values.
    """
    rows = np.array(reader.projection.version.row_groups, np.int64)
    largest = np.argsort(-rows, kind="stable")[:_LOOKED_AT].tolist()
    # The values come with the codes of a row.
    spans = [RowSpan(group, 0, 1) for group in sorted(largest)]
    with reader.fetched(indices, spans) if reader.fetches else Nothing():
        return [index for index in indices if _has_codes(reader, index, rows, largest)]


def _has_codes(reader: ColumnReader, index: int, rows: np.ndarray, largest: Sequence[int]) -> bool:
    coded = 0
    try:
        for group in largest:
            most = int(rows[group] / tuning.current.rows_per_code)
            if reader.values_of_codes(index, group, most) is not None:
                coded += int(rows[group])
    except CorruptError:
        # A scan reports the damage, or leaves it out.
        return False
    return coded > 0 and coded >= _CODED_SHARE * int(rows[largest].sum())


def numbers_of(codes: pa.Array) -> np.ndarray:
    """Return codes as numbers, whatever the rows of nulls have."""
    numbers = np.frombuffer(codes.buffers()[1], f"<u{codes.type.bit_width // 8}")
    return numbers[codes.offset : codes.offset + len(codes)]


def lookup(passing: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return `passing[codes]`; by comparisons where one range of codes passes, or does not."""
    low, high = _range(passing)
    if high - low == np.count_nonzero(passing):
        return _within(codes, low, high)
    low, high = _range(~passing)
    if high - low == len(passing) - np.count_nonzero(passing):
        return ~_within(codes, low, high)
    return passing[codes]


def _passing(passing: np.ndarray, codes: pa.Array) -> np.ndarray:
    """Return for each row whether its code, or null, passes."""
    passes = lookup(passing[:-1], numbers_of(codes))
    if codes.null_count:
        bitmap = np.frombuffer(codes.buffers()[0], np.uint8)
        valid = bits_of(bitmap, codes.offset, len(codes)).view(np.bool_)
        passes[~valid] = passing[-1]
    return passes


def _looked_up(values: pa.Array, codes: pa.Array) -> pa.Array:
    """Return the value of each code."""
    if not pa.types.is_dictionary(values.type):
        # Arrow's `take` does not support views.
        return as_stored(values).take(codes).cast(values.type)
    indices = codes.cast(values.type.index_type)
    return pa.DictionaryArray.from_arrays(indices, values.dictionary, ordered=values.type.ordered)


def _range(flags: np.ndarray) -> tuple[int, int]:
    """Return the smallest range that has all set flags."""
    (positions,) = flags.nonzero()
    return (int(positions[0]), int(positions[-1]) + 1) if len(positions) else (0, 0)


def _within(codes: np.ndarray, low: int, high: int) -> np.ndarray:
    if low >= high:
        return np.zeros(len(codes), np.bool_)
    # Differences wrap, so one comparison is enough.
    return codes - codes.dtype.type(low) <= high - low - 1
