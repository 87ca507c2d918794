"""The encoding `numbers`: a base for each page, and a code for each row.

The base of a page is its least word, which its page record has, or a word of the stream; with `sum`
a code is the distance from the row before, and with exceptions some rows have words of their own.
Sums wrap, so any codes make some words. Knows no types.

A sample tells first whether an encoding may help; then every value is verified.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from blztable import tuning
from blztable.columns.parts.stream import (
    Stream,
    bytes_of_codes,
    cuts,
    room_for,
    sample,
    sampled,
    typesize_of_codes,
    width_of,
)
from blztable.format.bounds import words_of_integers
from blztable.format.records import LENGTHS, NAN_CODE, NUMBERS, SUM, TIMES, VALUES, WORD, Array

MAX_EXCEPTIONS = 4096
# Base and code of a float are integers that a double has.
MAX_INTEGER = 1 << 53
# By these floats integers are divided or multiplied; they are never computed from a file.
POWERS = tuple(10.0**power for power in range(19))
INVERSES = tuple(float(f"1e-{power}") for power in range(19))
# The bits of NaN, which may have a code of its own.
NAN = int(np.array(np.nan, "<f8").view("<u8"))
# The powers of ten that are tried, and the values of a sample that are looked at first.
MOST_POWER, FEW_VALUES = 6, 32
_POWERS, _INVERSES = np.array(POWERS[: MOST_POWER + 1]), np.array(INVERSES[: MOST_POWER + 1])
# Rows that are verified at once, so that they stay in the cache: whole pages.
_STEP = 1 << 15


def extremes(values: Array, valid: Array | None, page: int) -> tuple[Array, Array]:
    """Return the least and the greatest integer of each page; least above greatest for none."""
    first = cuts(values.shape[-1], page)
    if valid is None:
        least = np.minimum.reduceat(values, first, axis=-1)
        return least, np.maximum.reduceat(values, first, axis=-1)
    info = np.iinfo(values.dtype)
    least = np.minimum.reduceat(np.where(valid, values, values.dtype.type(info.max)), first)
    most = np.maximum.reduceat(np.where(valid, values, values.dtype.type(info.min)), first)
    return least, most


def span_of(low: Array, high: Array) -> int:
    """Return the greatest distance from the least to the greatest integer of a page."""
    unsigned = f"<u{low.itemsize}"
    spans = (high.view(unsigned) - low.view(unsigned))[low <= high]
    return int(spans.max()) if len(spans) else 0


def encode(
    values: Array,
    bounds: tuple[Array, Array],
    valid: Array | None,
    page: int,
    size: int,
    *,
    sums: bool = True,
) -> Stream | None:
    """Return integers as codes, or None if codes are no narrower than values of `size` bytes.

    `bounds` are the `extremes` of the values.
    """
    low, high = bounds
    width = width_of(span_of(low, high))
    if sums and width > 1 and valid is None:
        stream = _sums(values, page, min(width, size))
        if stream is not None:
            return stream
    if width >= size:
        return None
    data = distances(values, np.where(low <= high, low, low.dtype.type(0)), page, width)
    if valid is not None and width:
        data.view(f"<u{width}")[: len(values)][~valid] = 0
    return _codes(data, width)


def distances(values: Array, base: Array, page: int, width: int) -> Array:
    """Return the distance of each value from the base of its page, as bytes of codes."""
    if width == 0:
        return bytes_of_codes(values, 0)
    rows, size, full = len(values), 1 << page, len(values) >> page
    unsigned = f"<u{values.itemsize}"
    numbers, base = values.view(unsigned), base.view(unsigned)
    codes, end = room_for(rows, width), full << page
    if full:
        left, right = numbers[:end].reshape(full, size), base[:full, None]
        out = codes[:end].reshape(full, size)
        np.subtract(left, right, out=out, casting="unsafe")
    if end < rows:
        np.subtract(numbers[end:], base[full], out=codes[end:rows], casting="unsafe")
    return codes.view(np.uint8)


def _codes(data: Array, width: int, **fields: Any) -> Stream:
    typesize = typesize_of_codes(len(data), width)
    return Stream(VALUES, NUMBERS, data, typesize, width=width, **fields)


def _sums(values: Array, page: int, below: int) -> Stream | None:
    """Return integers as distances from the row before, if these are narrower than `below`."""
    some = [_steps(values[rows]) for rows in sample(len(values))]
    some = [steps for steps in some if len(steps)]
    if not some or _width_of_steps(some) >= below:
        return None
    steps, first = _steps(values), cuts(len(values), page)
    # No code is the distance from one page to the next.
    steps[first[1:] - 1] = steps[0]
    width = _width_of_steps([steps])
    if width >= below:
        return None
    least = int(steps.min())
    words = np.append(words_of_integers(values[first]), np.int64(least))
    data = bytes_of_codes(values, 0)
    if width:
        codes = room_for(len(values), width)
        np.subtract(steps, np.int64(least), out=codes[1 : len(values)], casting="unsafe")
        codes[first] = 0
        data = codes.view(np.uint8)
    return _codes(data, width, words=words, flags=SUM)


def _steps(values: Array) -> Array:
    """Return the distances from row to row, modulo 2**64."""
    if values.itemsize < 8:
        return np.subtract(values[1:], values[:-1], dtype=np.int64)
    numbers = values.view(np.uint64)
    return (numbers[1:] - numbers[:-1]).view(np.int64)


def _width_of_steps(parts: list[Array]) -> int:
    least, most = min(int(part.min()) for part in parts), max(int(part.max()) for part in parts)
    return width_of(most - least)


def encode_lengths(offsets: Array, page: int) -> Stream:
    """Return the lengths of items: codes, where each page begins and the last ends, the least."""
    lengths = np.diff(offsets)
    rows = len(lengths)
    least = int(lengths.min()) if rows else 0
    width = width_of(int(lengths.max()) - least) if rows else 0
    starts = offsets[cuts(rows, page)].astype(WORD) - int(offsets[0])
    words = np.append(starts, [int(offsets[-1]) - int(offsets[0]), least])
    data = bytes_of_codes(lengths, 0)
    if width:
        codes = room_for(rows, width)
        np.subtract(lengths, lengths.dtype.type(least), out=codes[:rows], casting="unsafe")
        data = codes.view(np.uint8)
    typesize = typesize_of_codes(len(data), width)
    return Stream(LENGTHS, NUMBERS, data, typesize, words, SUM, width=width)


@dataclass(frozen=True)
class Decimals:
    """Doubles as integers: value = integer / 10**power, or times 10**-power.

    `coded` has the rows whose value comes back so; None if all do. The exceptions are ascending
    rows without NaN; `has_nans` says that NaN is among the other rows, with a code of its own.
    """

    power: int
    times: bool
    integers: Array
    coded: Array | None
    exceptions: Array
    has_nans: bool


def encode_decimals(
    decimals: Decimals, values: Array, bounds: tuple[Array, Array], page: int
) -> Stream | None:
    """Return doubles as codes of their integers; None if these need more than four bytes."""
    low, high = bounds
    width = width_of(span_of(low, high) + decimals.has_nans)
    if width > 4:
        return None
    width = max(width, int(decimals.has_nans))
    base = np.where(low <= high, low, 0)
    data = distances(decimals.integers, base, page, width)
    if decimals.coded is not None and width:
        codes = data.view(f"<u{width}")
        codes[: len(values)][~decimals.coded] = 0
        if decimals.has_nans:
            is_nan = values.view("<u8") == np.uint64(NAN)
            codes[: len(values)][is_nan] = codes.dtype.type((1 << 8 * width) - 1)
    flags = (TIMES if decimals.times else 0) | (NAN_CODE if decimals.has_nans else 0)
    encoded = _codes(data, width, power=decimals.power, flags=flags)
    odd = decimals.exceptions
    if not len(odd):
        return encoded
    words = np.concatenate([base, odd, values[odd].view(WORD)])
    return replace(encoded, words=words.astype(WORD), exceptions=len(odd))


def decimals(values: Array, valid: Array | None) -> Decimals | None:
    """Return doubles as integers with a power of ten; None unless nearly all have few decimals."""
    some = sampled(values, valid)
    if np.isnan(some).any():
        is_number = values.view("<u8") != np.uint64(NAN)
        some = sampled(values, is_number if valid is None else is_number & valid)
    if not len(some):
        return None
    (enough,) = may_be_decimals(some[np.newaxis, :: -(-len(some) // FEW_VALUES)])
    for power in np.flatnonzero(enough).tolist():
        for times in (False, True) if power else (False,):
            integers = np.empty(len(some), WORD)
            odd = np.count_nonzero(whole(some, power, times, integers))
            if odd <= len(some) // tuning.current.rows_per_exception:
                return _decimals(values, valid, power, times)
    return None


def _decimals(values: Array, valid: Array | None, power: int, times: bool) -> Decimals | None:
    rows = len(values)
    integers = np.empty(rows, WORD)
    most = min(MAX_EXCEPTIONS, rows // tuning.current.rows_per_exception)
    coded, odd, has_nans = valid, [], False
    count = 0
    for start in range(0, rows, _STEP):
        some = slice(start, start + _STEP)
        wrong = whole(values[some], power, times, integers[some])
        if valid is not None:
            wrong &= valid[some]
        if not wrong.any():
            continue
        if coded is valid:
            coded = np.ones(rows, bool) if valid is None else valid.copy()
        assert coded is not None
        coded[some] &= ~wrong
        at = np.flatnonzero(wrong) + start
        is_nan = values.view("<u8")[at] == np.uint64(NAN)
        has_nans |= bool(is_nan.any())
        odd.append(at[~is_nan])
        count += len(odd[-1])
        if count > most:
            return None
    exceptions = np.concatenate(odd) if count else np.zeros(0, np.int64)
    return Decimals(power, times, integers, coded, exceptions, has_nans)


def may_be_decimals(columns: Array) -> Array:
    """Return for each column, and each power of ten, if half of its values may have it.

    `columns` are a few doubles of each column, one column in each row of the matrix.
    """
    few = columns[:, :, np.newaxis]
    with np.errstate(invalid="ignore", over="ignore"):
        integers = np.rint(few * _POWERS)
        is_decimal = (integers / _POWERS == few) | (integers * _INVERSES == few)
    enough: Array = 2 * np.count_nonzero(is_decimal, axis=1) >= few.shape[1]
    return enough


def whole(values: Array, power: int, times: bool, integers: Array) -> Array:
    """Make the integers of doubles, and return which doubles do not come back from them."""
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = np.multiply(values, POWERS[power])
        np.rint(scaled, out=scaled)
        # False for NaN.
        if not -MAX_INTEGER < scaled.min() <= scaled.max() < MAX_INTEGER:
            scaled[~(np.abs(scaled) < MAX_INTEGER)] = 0
        np.copyto(integers, scaled, casting="unsafe")
        # An integer has no sign if it is zero.
        if times:
            np.multiply(integers, INVERSES[power], out=scaled)
        else:
            np.divide(integers, POWERS[power], out=scaled)
    wrong: Array = scaled.view("<u8") != values.view("<u8")
    return wrong
