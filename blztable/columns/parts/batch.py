"""Parts of equal form, encoded together: columns of one type and equal rows, as a matrix.

A choice for each column takes longer than its few kilobytes. Here numpy works on all columns
together, and only `numbers` is tried, without sums. Each column has the encoding and the codes that
it could have by itself. Knows no nulls.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np

from blztable import tuning
from blztable.columns.parts import bounds, numbers
from blztable.columns.parts.encode import EncodedPart
from blztable.columns.parts.physical import Form, Physical
from blztable.columns.parts.stream import (
    NO_WORDS,
    Stream,
    cuts,
    padded,
    typesize_of_codes,
    width_of,
)
from blztable.format.bounds import GREATEST, LEAST, words_of_integers
from blztable.format.records import (
    EXACT_BOUNDS,
    NAN_CODE,
    NUMBERS,
    PAGE,
    PLAIN,
    TIMES,
    VALUES,
    WORD,
    Array,
)

# So many values of each column, or up to twice as many, show how many decimals it may have.
FEW_VALUES = 16


@dataclass(frozen=True)
class EncodedBatch:
    """Parts of equal form before their streams are cut into chunks.

    `data` and `words` of the streams, and `pages`, are matrices with a row for each part.
    """

    columns: Array
    rows: int
    page: int
    nbytes: int
    streams: tuple[Stream, ...]
    data: tuple[Array, ...]
    words: tuple[Array, ...]
    pages: Array
    flags: int = 0
    prefix: bytes = b""

    @classmethod
    def of(cls, part: EncodedPart, column: int) -> Self:
        """Return one part as a batch."""
        return cls(
            np.array([column]),
            part.rows,
            part.page,
            part.nbytes,
            part.streams,
            tuple(stream.data[None] for stream in part.streams),
            tuple(stream.words[None] for stream in part.streams),
            part.pages[None],
            part.flags,
            part.prefix,
        )


def encode_batch(columns: Array, form: Physical, page: int) -> list[EncodedBatch]:
    """Return columns of numbers as parts, encoded where that makes them narrower.

    `columns` is a matrix of the values, one column in each row; there are no nulls.
    """
    found: list[EncodedBatch] = []
    if form.form in (Form.SIGNED, Form.UNSIGNED) and form.width > 1:
        found += _integers(columns, page)
    elif form.form is Form.FLOAT and form.width == 8:
        found += _decimals(columns, page)
    is_left = np.ones(len(columns), bool)
    for batch in found:
        is_left[batch.columns] = False
    left = np.flatnonzero(is_left)
    if len(left):
        found.append(_plain(columns[left], left, form, page))
    return found


def _plain(values: Array, places: Array, form: Physical, page: int) -> EncodedBatch:
    rows = values.shape[1]
    pages = np.zeros((len(values), len(cuts(rows, page))), PAGE)
    if form.form is Form.FLOAT:
        with np.errstate(invalid="ignore"):
            nans = np.isnan(values)
        some = nans if nans.any() else None
        bounds.of_floats(pages, values, form, page, None if some is None else ~some)
        if some is not None:
            pages["nans"] = np.add.reduceat(some, cuts(rows, page), axis=-1, dtype=np.int64)
    else:
        low, high = numbers.extremes(values, None, page)
        bounds.put(pages, words_of_integers(low), words_of_integers(high))
    stream = Stream(VALUES, PLAIN, typesize=form.width)
    data = np.ascontiguousarray(values).view(np.uint8)
    return _batch(places, rows, page, form.width, stream, data, _no_words(len(places)), pages)


def _integers(columns: Array, page: int) -> Iterator[EncodedBatch]:
    """Yield the columns whose distances from the least values of their pages are narrower."""
    rows, size = columns.shape[1], columns.itemsize
    low, high = numbers.extremes(columns, None, page)
    unsigned = f"<u{size}"
    # Differences of integers wrap, so they are right as unsigned numbers.
    spans = (high.view(unsigned) - low.view(unsigned)).max(axis=1)
    pages = np.zeros(low.shape, PAGE)
    bounds.put(pages, words_of_integers(low), words_of_integers(high))
    for width, some in _by_width(spans, size):
        data = _distances(columns[some], low[some], page, width)
        stream = _numbers(data, width)
        words = _no_words(len(some))
        yield _batch(some, rows, page, size, stream, data, words, pages[some])


def _by_width(spans: Array, below: int) -> Iterator[tuple[int, Array]]:
    """Yield the widths of codes that are narrower, each with the columns that have it."""
    edges = np.array([0, (1 << 8) - 1, (1 << 16) - 1, (1 << 32) - 1], np.uint64)
    kinds = np.searchsorted(edges, spans.astype(np.uint64))
    for kind, width in enumerate((0, 1, 2, 4)):
        some = np.flatnonzero(kinds == kind)
        if len(some) and width < below:
            yield width, some


def _distances(columns: Array, base: Array, page: int, width: int) -> Array:
    """Return the distances of values from the bases of their pages, as bytes of codes."""
    count, rows = columns.shape
    if width == 0:
        return np.zeros((count, 0), np.uint8)
    unsigned = f"<u{columns.itemsize}"
    values, base = columns.view(unsigned), base.view(unsigned)
    codes = np.empty((count, padded(rows)), f"<u{width}")
    codes[:, rows:] = 0
    for number, first in enumerate(cuts(rows, page).tolist()):
        some = slice(first, min(first + (1 << page), rows))
        left, right = values[:, some], base[:, number, None]
        np.subtract(left, right, out=codes[:, some], casting="unsafe")
    return codes.view(np.uint8)


def _decimals(columns: Array, page: int) -> Iterator[EncodedBatch]:
    """Yield the columns whose doubles have few decimals."""
    may_have = numbers.may_be_decimals(columns[:, :: max(columns.shape[1] // FEW_VALUES, 1)])
    for power in range(may_have.shape[1]):
        for times in (False, True) if power else (False,):
            chosen = np.flatnonzero(may_have[:, power])
            if not len(chosen):
                continue
            values = columns if len(chosen) == len(columns) else columns[chosen]
            for batch in _decimals_by(values, chosen, power, times, page):
                may_have[batch.columns] = False
                yield batch


def _decimals_by(
    columns: Array, places: Array, power: int, times: bool, page: int
) -> Iterator[EncodedBatch]:
    """Yield the columns whose doubles are whole numbers of a power of ten."""
    rows, first = columns.shape[1], cuts(columns.shape[1], page)
    integers = np.empty(columns.shape, WORD)
    wrong = numbers.whole(columns, power, times, integers)
    is_exact = not wrong.any()
    counts = np.zeros((len(columns), 2), np.int64)
    if is_exact:
        low, high = numbers.extremes(integers, None, page)
    else:
        nans = wrong & (columns.view("<u8") == np.uint64(numbers.NAN))
        odd = wrong & ~nans
        counts = np.stack([nans.any(axis=1), np.count_nonzero(odd, axis=1)], axis=1)
        low = np.minimum.reduceat(np.where(wrong, GREATEST, integers), first, axis=1)
        high = np.maximum.reduceat(np.where(wrong, LEAST, integers), first, axis=1)
    most = min(numbers.MAX_EXCEPTIONS, rows // tuning.current.rows_per_exception)
    filled = low <= high
    base = np.where(filled, low, 0)
    spans = np.where(filled, high - base, 0).max(axis=1) + counts[:, 0]
    widths = np.maximum(np.array(list(map(width_of, spans.tolist()))), counts[:, 0])
    widths[counts[:, 1] > most] = 8
    for width, has_nans, many in np.unique(np.column_stack([widths, counts]), axis=0).tolist():
        if width > 4:
            continue
        some = np.flatnonzero((widths == width) & (counts == (has_nans, many)).all(axis=1))
        data = _distances(integers[some], base[some], page, width)
        pages = np.zeros((len(some), len(first)), PAGE)
        pages["min"], pages["max"] = low[some], high[some]
        words = _no_words(len(some))
        if has_nans or many:
            codes = data.view(f"<u{width}")[:, :rows] if width else data
            if width:
                codes[wrong[some]] = 0
        if has_nans:
            codes[nans[some]] = codes.dtype.type((1 << 8 * width) - 1)
            pages["nans"] = np.add.reduceat(nans[some], first, axis=1, dtype=np.int64)
        if many:
            at = np.nonzero(odd[some])[1].reshape(len(some), many)
            bits = np.take_along_axis(columns[some], at, axis=1)
            words = np.concatenate([base[some], at, bits.view(WORD)], axis=1)
            _widen(pages, bits, at, power, page)
        flags = (TIMES if times else 0) | (NAN_CODE if has_nans else 0)
        stream = _numbers(data, width, power=power, flags=flags, exceptions=many)
        yield _batch(places[some], rows, page, 8, stream, data, words, pages)


def _widen(pages: Array, values: Array, rows: Array, power: int, page: int) -> None:
    """Let page records hold exceptions, a row of a matrix for each part."""
    with np.errstate(over="ignore"):
        scaled = values * numbers.POWERS[power]
    of = (rows >> page) + np.arange(len(rows))[:, None] * pages.shape[1]
    bounds.widen(pages.reshape(-1), scaled.reshape(-1), of.reshape(-1))


def _numbers(data: Array, width: int, **fields: int) -> Stream:
    typesize = typesize_of_codes(data.shape[1], width)
    return Stream(VALUES, NUMBERS, typesize=typesize, width=width, **fields)


def _no_words(count: int) -> Array:
    return NO_WORDS.reshape(1, 0).repeat(count, axis=0)


def _batch(
    places: Array,
    rows: int,
    page: int,
    size: int,
    stream: Stream,
    data: Array,
    words: Array,
    pages: Array,
) -> EncodedBatch:
    flags = 0 if stream.exceptions else EXACT_BOUNDS
    return EncodedBatch(places, rows, page, size * rows, (stream,), (data,), (words,), pages, flags)
