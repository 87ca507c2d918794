"""Encode and decode many columns of numbers of one type at once, as in a wide table.

A choice for each column takes longer than its few kilobytes. Here numpy works on all columns
together, and only `narrow` and `scaled` are tried. Each column has the encoding and the codes that
it could have by itself, and the values that it would be decoded to. Knows no nulls.
"""

from collections.abc import Callable

import numpy as np

from blztable.block_terms import VALUES
from blztable.columns.blocks import Encoding, Stream, StreamLayout
from blztable.columns.encodings.choose import EXACT, ROWS_PER_ODD, may_be_decimals
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

# Makes the encoding of a column, given its index, the form of its codes and its base.
_Make = Callable[[int, StreamLayout, np.ndarray], Encoding]
# An encoding, and the codes.
_Encoded = tuple[Encoding, np.ndarray]


def encode_alike(layout: StreamLayout, columns: np.ndarray, page_rows: int) -> list[Stream]:
    """Return the stream of each column, encoded where that makes it narrower.

    Parameters
    ----------
    layout
        The form of the values.
    columns
        The values, one column in each row of the matrix.
    page_rows
        Rows of a page; each column has one page.
    """
    encoded: dict[int, _Encoded] = {}
    if columns.dtype.kind in "iu" and columns.itemsize > 1:
        encoded = _narrowed(columns, _narrow(columns.itemsize, page_rows))
    elif columns.dtype == np.float64:
        encoded = _scaled(columns, page_rows)
    nbytes = columns[0].nbytes
    streams = []
    for index, column in enumerate(columns):
        if index in encoded:
            encoding, codes = encoded[index]
            data = codes.view(np.uint8)
            streams.append(Stream(encoding.stored, data, None, encoding, nbytes))
        else:
            streams.append(Stream(layout, column.view(np.uint8)))
    return streams


def decode_alike(
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
    """Return what is equal for encodings of columns that `decode_alike` can decode together."""
    if isinstance(encoding, Scaled):
        return encoding.stored.dtype, encoding.power, encoding.form, encoding.nan
    return encoding and encoding.stored.dtype


def _narrow(width: int, page_rows: int) -> _Make:
    return lambda index, stored, base: Narrow(stored, width, base, page_rows)


def _narrowed(columns: np.ndarray, make: _Make) -> dict[int, _Encoded]:
    """Return the columns whose distances from their least values are narrower, by index."""
    least, most = columns.min(axis=1), columns.max(axis=1)
    unsigned = f"<u{columns.itemsize}"
    # Differences of integers wrap, so they are right as unsigned numbers.
    ranges = most.view(unsigned) - least.view(unsigned)
    bases = least.astype("<u8" if columns.dtype.kind == "u" else "<i8").view("<i8")
    encoded: dict[int, _Encoded] = {}
    below = 0
    for width in (1, 2, 4):
        if width == columns.itemsize:
            break
        end = 1 << 8 * width
        chosen = np.flatnonzero((ranges >= below) & (ranges < end))
        below = end
        stored = codes_layout(VALUES, width)
        codes = (columns[chosen].view(unsigned) - least.view(unsigned)[chosen, None]).astype(
            stored.dtype
        )
        for place, index in enumerate(chosen.tolist()):
            encoded[index] = make(index, stored, bases[index : index + 1]), codes[place]
    return encoded


def _scaled(columns: np.ndarray, page_rows: int) -> dict[int, _Encoded]:
    """Return the columns whose doubles have few decimals, by index."""
    may_have = may_be_decimals(columns[:, :: max(columns.shape[1] // FEW_VALUES, 1)])
    encoded: dict[int, _Encoded] = {}
    for power in range(may_have.shape[1]):
        for form in FORMS if power else FORMS[:1]:
            chosen = np.flatnonzero(may_have[:, power])
            if len(chosen):
                found = _scaled_by(columns[chosen], power, form, page_rows)
                encoded |= {int(chosen[index]): one for index, one in found.items()}
                may_have[chosen[list(found)]] = False
    return encoded


def _scaled_by(columns: np.ndarray, power: int, form: str, page_rows: int) -> dict[int, _Encoded]:
    """Return the columns whose doubles are whole numbers of 10**-power in this form, by index."""
    with np.errstate(invalid="ignore", over="ignore"):
        wide = np.rint(columns * POWERS[power])
        wide[~(np.abs(wide) < EXACT)] = 0
    whole = wide.astype("<i8")
    plain = Scaled(codes_layout(VALUES, 4), power, form, np.zeros(1, "<i8"), page_rows)
    # A reader adds base and code, both exact, and so gets these floats.
    is_odd = plain.scale(whole.astype("<f8")).view("<u8") != columns.view("<u8")
    odd = np.count_nonzero(is_odd, axis=1)
    fits = np.flatnonzero(odd <= min(MOST_ODD, columns.shape[1] // ROWS_PER_ODD))
    whole, is_odd = whole[fits], is_odd[fits]
    # An odd value takes no part in the bounds.
    some = whole[np.arange(len(whole)), is_odd.argmin(axis=1)]
    whole = np.where(is_odd, some[:, None], whole)

    def scaled(index: int, stored: StreamLayout, base: np.ndarray) -> Encoding:
        if not odd[fits[index]]:
            return Scaled(stored, power, form, base, page_rows)
        at = np.flatnonzero(is_odd[index])
        bits = columns[fits[index], at].view("<i8")
        return Scaled(stored, power, form, base, page_rows, at.astype("<i8"), bits)

    return {int(fits[index]): one for index, one in _narrowed(whole, scaled).items()}
