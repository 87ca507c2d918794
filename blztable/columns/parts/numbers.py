"""The encoding `numbers`: a base for each page, and a code for each row.

The base of a page is its least word, which its page record has; with `sum` a code is the distance
from the row before, and with exceptions some rows have words of their own. Sums wrap, so any codes
make some words. Knows no types.
"""

from collections.abc import Callable

import numpy as np

from blztable.columns.parts.stream import Stream, bytes_of_codes, cuts, need, width_of
from blztable.format.records import LENGTHS, NUMBERS, SUM, TIMES, VALUES, WORD, Array

MAX_POWER = 18
MAX_EXCEPTIONS = 4096
# Base and code of a float are integers that a double has.
MAX_INTEGER = 1 << 53
# Values of a sample that must be decimals before all are tried.
_SAMPLE = 1024
_SHARE = 0.99


def encode(
    words: Array, low: Array, high: Array, page: int, size: int, *, sums: bool = True
) -> Stream | None:
    """Return words as codes, or None if codes are no narrower than values of `size` bytes.

    `low` and `high` are the bounds of each page. A row without a value must have a word between
    those of its page.
    """
    rows, first = len(words), cuts(len(words), page)
    has_values = low <= high
    spans = high[has_values].view(np.uint64) - low[has_values].view(np.uint64)
    width = width_of(int(spans.max())) if len(spans) else 0
    by_sums = _sums(words, first, page, min(width, size)) if sums and width > 1 else None
    if by_sums is not None:
        return by_sums
    if width >= size:
        return None
    base = np.where(has_values, low, words[first])
    distances = words - np.repeat(base, 1 << page)[:rows]
    codes = np.where(np.repeat(has_values, 1 << page)[:rows], distances, 0)
    data = bytes_of_codes(codes.view(np.uint64), width)
    return Stream(VALUES, NUMBERS, data, max(width, 1), width=width)


def _sums(words: Array, first: Array, page: int, below: int) -> Stream | None:
    """Return words as distances from the row before, if these are narrower."""
    distances = np.diff(words, prepend=words[:1])
    inner = np.ones(len(words), bool)
    inner[first] = False
    if not inner.any():
        return None
    least, greatest = int(distances[inner].min()), int(distances[inner].max())
    width = width_of(greatest - least)
    if width >= below:
        return None
    codes = np.where(inner, distances - least, 0).view(np.uint64)
    said = np.append(words[first], least).astype(WORD)
    data = bytes_of_codes(codes, width)
    return Stream(VALUES, NUMBERS, data, max(width, 1), said, SUM, width=width)


def decode(stream: Stream, rows: int, page: int, low: Array, chosen: Array | slice) -> Array:
    """Return the words of some rows of a part: a slice of them, or ascending rows."""
    codes = stream.codes(rows)
    if stream.flags & SUM:
        return _summed(stream, codes, page, chosen)
    if stream.width == 8:
        # Sums of unsigned and signed numbers would be floats.
        codes = codes.view(WORD)
    base = stream.words[: len(low)] if stream.exceptions else low
    need(len(base) == len(low), "bases")
    some = codes[chosen]
    if isinstance(chosen, slice):
        start, stop, _ = chosen.indices(rows)
        inside = slice(start - (start >> page << page), None)
        bases = np.repeat(base[start >> page : (stop + (1 << page) - 1) >> page], 1 << page)
        words = some + bases[inside][: len(some)]
    else:
        words = some + base[chosen >> page]
    return words


def _summed(stream: Stream, codes: Array, page: int, chosen: Array | slice) -> Array:
    """Return the words of some rows: the first of their page, and the distances up to them."""
    rows = len(codes)
    first, least = stream.words[:-1], int(stream.words[-1])
    need(len(first) == len(cuts(rows, page)), "bases")
    numbers = np.arange(rows)[chosen] if isinstance(chosen, slice) else chosen
    words = np.empty(len(numbers), WORD)
    for number in np.unique(numbers >> page).tolist():
        begin = number << page
        here = (numbers >> page) == number
        inside = numbers[here] - begin
        steps = np.cumsum(codes[begin : begin + int(inside.max()) + 1], dtype=np.uint64)
        steps -= steps[0]
        distance = inside.astype(np.uint64) * np.uint64(least & (1 << 64) - 1)
        words[here] = (steps[inside] + distance).view(WORD) + first[number]
    return words


def encode_lengths(lengths: Array, page: int) -> Stream:
    """Return the lengths of items: codes, where each page begins and the last ends, the least."""
    ends = np.cumsum(lengths, dtype=np.int64)
    first = cuts(len(lengths), page)
    total = int(ends[-1]) if len(ends) else 0
    starts = ends[first] - lengths[first] if len(ends) else np.zeros(0, np.int64)
    least = int(lengths.min()) if len(lengths) else 0
    width = width_of(int(lengths.max()) - least) if len(lengths) else 0
    data = bytes_of_codes(lengths - least, width)
    said = np.concatenate([starts, [total, least]]).astype(WORD)
    return Stream(LENGTHS, NUMBERS, data, max(width, 1), said, SUM, width=width)


def check_lengths(stream: Stream, rows: int, page: int) -> None:
    """Check what the words of lengths say of pages, without their codes."""
    starts, least = stream.words[:-1], int(stream.words[-1]) if len(stream.words) else -1
    need(len(starts) == len(cuts(rows, page)) + 1, "bases of lengths")
    need(least >= 0 and int(starts[0]) == 0, "bases of lengths")
    need((np.diff(starts) >= 0).all(), "bases of lengths")
    need(int(starts[-1]) < 1 << 44, "total of lengths")


def ends_of_rows(stream: Stream, rows: int, page: int, chosen: Array) -> tuple[Array, Array]:
    """Return where the items of ascending rows begin and end in the bytes of the part."""
    codes, starts, least = stream.codes(rows), stream.words[:-1], int(stream.words[-1])
    begins, ends = np.empty(len(chosen), np.int64), np.empty(len(chosen), np.int64)
    page_of = chosen >> page
    for number in np.unique(page_of).tolist():
        here = page_of == number
        begin = number << page
        inside = chosen[here] - begin
        last = int(inside.max()) + 1
        lengths = codes[begin : begin + last].astype(np.int64) + least
        need(last < 1 or int(lengths.max(initial=0)) < 1 << 44, "lengths")
        after = np.cumsum(lengths) + starts[number]
        need(int(after[-1]) <= int(starts[number + 1]), "lengths of a page")
        if begin + last == min(begin + (1 << page), rows):
            need(int(after[-1]) == int(starts[number + 1]), "lengths of a page")
        ends[here] = after[inside]
        begins[here] = after[inside] - lengths[inside]
    return begins, ends


def decimals(values: Array) -> tuple[int, bool, Array, Array] | None:
    """Return doubles as integers with a power of ten: (power, multiplied, integers, exceptions).

    The exceptions are the rows whose bits do not come back so. None if there are too many.
    """
    sample = values[:: max(len(values) // _SAMPLE, 1)]
    for power in range(MAX_POWER + 1):
        for times in (False, True) if power else (False,):
            integers, wrong = _integers(sample, power, times)
            if wrong.mean() > 1 - _SHARE:
                continue
            integers, wrong = _integers(values, power, times)
            rows = np.flatnonzero(wrong)
            if len(rows) <= min(MAX_EXCEPTIONS, len(values) // 8):
                return power, times, integers, rows
    return None


def _integers(values: Array, power: int, times: bool) -> tuple[Array, Array]:
    with np.errstate(all="ignore"):
        rounded = np.rint(values * float(f"1e{power}"))
        wrong = ~(np.abs(rounded) <= MAX_INTEGER)
        integers = np.where(wrong, 0, rounded)
        back = value_of(power, times)(integers)
        wrong |= back.view("<i8") != values.view("<i8")
    return integers.astype(WORD), wrong


def value_of(power: int, times: bool) -> Callable[[Array], Array]:
    """Return the function from integers to doubles."""
    if power == 0:
        return lambda integers: np.asarray(integers, "<f8")
    if times:
        return lambda integers: integers * float(f"1e{-power}")
    return lambda integers: integers / float(f"1e{power}")


def is_times(stream: Stream) -> bool:
    """True if the integers of a stream are multiplied by a power of ten."""
    return bool(stream.flags & TIMES)
