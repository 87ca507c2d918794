"""Encode and decode many columns of numbers of one type at once, as in a wide table.

A choice for each column takes longer than its few kilobytes. Here numpy works on all columns
together, and only `narrow` and `scaled` are tried. Each column has the encoding and the codes that
it could have by itself, and the values that it would be decoded to. Knows no nulls.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from blztable import tuning
from blztable.block_terms import VALUES
from blztable.columns.blocks import Encoding, Stream, StreamLayout
from blztable.columns.encodings.choose import EXACT, may_be_decimals
from blztable.columns.encodings.numbers import (
    FORMS,
    MOST_ODD,
    POWERS,
    Narrow,
    Scaled,
    codes_layout,
)

# So many values of each column, or up to twice as many, show how many decimals it may have.
FEW_VALUES = 16

# Makes an encoding without a base, given the form of its codes.
_Make = Callable[[StreamLayout], Encoding]
# The base of an encoding of several columns, which is not used.
_NO_BASE = np.zeros(1, "<i8")


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """The streams of columns whose encodings differ at most in their bases and odd values.

    Attributes
    ----------
    columns
        The columns, as ascending rows of the matrix of values.
    layout
        The form of the bytes.
    encoding
        The encoding, whose own base is not used; None if the bytes are the values.
    bases
        The base of each column as i64; 0 where there is no encoding.
    data
        The bytes, one column in each row.
    values_nbytes
        The bytes of the values of a column.
    odd
        The encodings of columns that have odd values, by their place among the columns.
    """

    columns: np.ndarray
    layout: StreamLayout
    encoding: Encoding | None
    bases: np.ndarray
    data: np.ndarray
    values_nbytes: int
    odd: Mapping[int, Encoding] = field(default_factory=dict)

    def stream(self, column: int) -> Stream:
        """Return one of the streams."""
        encoding = self.odd.get(column, self.encoding)
        encoding = encoding and encoding.rebased(int(self.bases[column]))
        return Stream(self.layout, self.data[column], None, encoding, self.values_nbytes)


def encode_batch(layout: StreamLayout, columns: np.ndarray, page_rows: int) -> list[StreamBatch]:
    """Return the streams of all columns, encoded where that makes them narrower.

    Parameters
    ----------
    layout
        The form of the values.
    columns
        The values, one column in each row of the matrix.
    page_rows
        Rows of a page; each column has one page.
    """
    found: list[StreamBatch] = []
    if columns.dtype.kind in "iu" and columns.itemsize > 1:
        width = columns.itemsize
        found += _narrowed(columns, lambda stored: Narrow(stored, width, _NO_BASE, page_rows))
    elif columns.dtype == np.float64:
        found += _scaled(columns, page_rows)
    is_left = np.ones(len(columns), np.bool_)
    for streams in found:
        is_left[streams.columns] = False
    if is_left.any():
        left = np.flatnonzero(is_left)
        data, bases = columns[left].view(np.uint8), np.zeros(len(left), "<i8")
        found.append(StreamBatch(left, layout, None, bases, data, columns[0].nbytes))
    return found


def decode_batch(
    encoding: Narrow | Scaled | None, bases: np.ndarray, codes: np.ndarray, out: np.ndarray
) -> None:
    """Make the values of columns that differ in their bases, but for odd values.

    Parameters
    ----------
    encoding
        The encoding of all columns, whose base is not used; None if the codes are the values.
    bases
        The base of each column.
    codes
        The bytes of the codes, one column in each row of the matrix.
    out
        Room for the values, one column in each row.
    """
    if encoding is None:
        out[:] = codes.view(out.dtype)
        return
    numbers = codes.view(encoding.stored.dtype)
    if isinstance(encoding, Scaled):
        np.copyto(out, numbers, casting="unsafe")
        out += bases.astype("<f8")[:, None]
        encoding.scale(out)
        if encoding.nan is not None:
            out[numbers == encoding.nan] = np.nan
        return
    values = out.view(f"<u{encoding.width}")
    np.copyto(values, numbers, casting="unsafe")
    # Sums wrap, so the lower bytes of a base are enough.
    values += bases.astype("<u8").astype(values.dtype)[:, None]


def form_of(encoding: Narrow | Scaled | None) -> object:
    """Return what is equal for encodings of columns that `decode_batch` can decode together."""
    if isinstance(encoding, Scaled):
        return encoding.stored.dtype, encoding.power, encoding.form, encoding.nan
    return encoding and encoding.stored.dtype


def _narrowed(columns: np.ndarray, make: _Make) -> Iterator[StreamBatch]:
    """Yield the columns whose distances from their least values are narrower."""
    least, most = columns.min(axis=1), columns.max(axis=1)
    unsigned = f"<u{columns.itemsize}"
    # Differences of integers wrap, so they are right as unsigned numbers.
    ranges = most.view(unsigned) - least.view(unsigned)
    bases = least.astype("<u8" if columns.dtype.kind == "u" else "<i8").view("<i8")
    below = 0
    for width in (1, 2, 4):
        if width == columns.itemsize:
            break
        end = 1 << 8 * width
        chosen = np.flatnonzero((ranges >= below) & (ranges < end))
        below = end
        if not len(chosen):
            continue
        stored = codes_layout(VALUES, width)
        codes = (columns[chosen].view(unsigned) - least.view(unsigned)[chosen, None]).astype(
            stored.dtype
        )
        data, nbytes = codes.view(np.uint8), columns[0].nbytes
        yield StreamBatch(chosen, stored, make(stored), bases[chosen], data, nbytes)


def _scaled(columns: np.ndarray, page_rows: int) -> Iterator[StreamBatch]:
    """Yield the columns whose doubles have few decimals."""
    may_have = may_be_decimals(columns[:, :: max(columns.shape[1] // FEW_VALUES, 1)])
    for power in range(may_have.shape[1]):
        for form in FORMS if power else FORMS[:1]:
            chosen = np.flatnonzero(may_have[:, power])
            if not len(chosen):
                continue
            for streams in _scaled_by(columns[chosen], power, form, page_rows):
                found = chosen[streams.columns]
                may_have[found] = False
                yield replace(streams, columns=found)


def _scaled_by(columns: np.ndarray, power: int, form: str, page_rows: int) -> Iterator[StreamBatch]:
    """Yield the columns whose doubles are whole numbers of 10**-power in this form."""
    with np.errstate(invalid="ignore", over="ignore"):
        wide = np.rint(columns * POWERS[power])
        wide[~(np.abs(wide) < EXACT)] = 0
    whole = wide.astype("<i8")
    plain = Scaled(codes_layout(VALUES, 4), power, form, _NO_BASE, page_rows)
    # A reader adds base and code, both exact, and so gets these floats.
    is_odd = plain.scale(whole.astype("<f8")).view("<u8") != columns.view("<u8")
    odd_counts = np.count_nonzero(is_odd, axis=1)
    fits = np.flatnonzero(
        odd_counts <= min(MOST_ODD, columns.shape[1] // tuning.current.rows_per_exception)
    )
    if not len(fits):
        return
    whole, is_odd, odd_counts = whole[fits], is_odd[fits], odd_counts[fits]
    # An odd value takes no part in the bounds.
    some = whole[np.arange(len(whole)), is_odd.argmin(axis=1)]
    whole = np.where(is_odd, some[:, None], whole)
    for streams in _narrowed(whole, lambda stored: replace(plain, stored=stored)):
        odd = {}
        for place in np.flatnonzero(odd_counts[streams.columns]).tolist():
            row = streams.columns[place]
            at = np.flatnonzero(is_odd[row]).astype("<i8")
            bits = columns[fits[row], at].view("<i8")
            odd[place] = Scaled(streams.layout, power, form, _NO_BASE, page_rows, at, bits)
        yield replace(streams, columns=fits[streams.columns], odd=odd)
