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
            tuple([stream.data[None] for stream in part.streams]),
            tuple([stream.words[None] for stream in part.streams]),
            part.pages[None],
            part.flags,
            part.prefix,
        )


def encode_batch(columns: Array, form: Physical, page: int) -> list[EncodedBatch]:
    """Return columns of numbers as parts, encoded where that makes them narrower.

    `columns` is a matrix of the values, one column in each row; there are no nulls.
    """
    batches: list[EncodedBatch] = []
    if form.form in (Form.SIGNED, Form.UNSIGNED) and form.width > 1:
        batches += _integers(columns, page)
    elif form.form is Form.FLOAT and form.width == 8:
        batches += _decimals(columns, page)
    is_left = np.ones(len(columns), bool)
    for batch in batches:
        is_left[batch.columns] = False
    left = is_left.nonzero()[0]
    if len(left):
        batches.append(_plain(columns[left], left, form, page))
    return batches


def _plain(values: Array, indices: Array, form: Physical, page: int) -> EncodedBatch:
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
    return _batch(indices, rows, page, form.width, stream, data, _no_words(len(indices)), pages)


def _integers(columns: Array, page: int) -> Iterator[EncodedBatch]:
    """Yield the columns whose distances from the least values of their pages are narrower."""
    rows, size = columns.shape[1], columns.itemsize
    low, high = numbers.extremes(columns, None, page)
    unsigned = f"<u{size}"
    # Differences of integers wrap, so they are right as unsigned numbers.
    spans = (high.view(unsigned) - low.view(unsigned)).max(axis=1)
    pages = np.zeros(low.shape, PAGE)
    bounds.put(pages, words_of_integers(low), words_of_integers(high))
    widths = _widths(spans)
    for width in np.unique(widths[widths < size]).tolist():
        some = (widths == width).nonzero()[0]
        data = _distances(_rows_of(columns, some), low[some], page, width)
        stream = _numbers(data, width)
        words = _no_words(len(some))
        yield _batch(some, rows, page, size, stream, data, words, pages[some])


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
            chosen = may_have[:, power].nonzero()[0]
            if not len(chosen):
                continue
            values = columns if len(chosen) == len(columns) else columns[chosen]
            for batch in _decimals_by(values, chosen, power, times, page):
                may_have[batch.columns] = False
                yield batch


def _decimals_by(
    columns: Array, indices: Array, power: int, times: bool, page: int
) -> Iterator[EncodedBatch]:
    """Yield the columns whose doubles are whole numbers of a power of ten."""
    count, rows = columns.shape
    first = cuts(rows, page)
    integers = np.empty(columns.shape, WORD)
    wrong = numbers.whole(columns, power, times, integers).reshape(-1).nonzero()[0]
    column, row = np.divmod(wrong, rows)
    bits, flat = columns.reshape(-1)[wrong].view(WORD), integers.reshape(-1)
    is_nan = bits.view("<u8") == np.uint64(numbers.NAN)
    has_nans, odd = np.zeros(count, np.int64), np.bincount(column[~is_nan], minlength=count)
    has_nans[column[is_nan]] = 1
    # A wrong row takes no part in the bounds, and its code is 0.
    flat[wrong] = GREATEST
    low = np.minimum.reduceat(integers, first, axis=1)
    flat[wrong] = LEAST
    high = np.maximum.reduceat(integers, first, axis=1)
    filled = low <= high
    base = np.where(filled, low, 0)
    of_page = column * len(first) + (row >> page)
    flat[wrong] = base.reshape(-1)[of_page]
    spans = np.where(filled, high - base, 0).max(axis=1) + has_nans
    widths = np.maximum(_widths(spans), has_nans)
    most = min(numbers.MAX_EXCEPTIONS, rows // tuning.current.rows_per_exception)
    widths[odd > most] = 8
    pages = np.zeros(low.shape, PAGE)
    pages["min"], pages["max"] = low, high
    if len(wrong):
        # Only one NaN of many has a code.
        np.add.at(pages.reshape(-1)["nans"], of_page[np.isnan(bits.view("<f8"))], 1)
        with np.errstate(over="ignore"):
            scaled = bits[~is_nan].view("<f8") * numbers.POWERS[power]
        bounds.widen(pages.reshape(-1), scaled, of_page[~is_nan])
    for width in np.unique(widths[widths <= 4]).tolist():
        of_width = (widths == width).nonzero()[0]
        data = _distances(_rows_of(integers, of_width), base[of_width], page, width)
        if has_nans[of_width].any():
            codes = data.view(f"<u{width}")
            position = np.searchsorted(of_width, column[is_nan])
            own = of_width[np.minimum(position, len(of_width) - 1)] == column[is_nan]
            codes[position[own], row[is_nan][own]] = codes.dtype.type((1 << 8 * width) - 1)
        kinds = np.column_stack([has_nans[of_width], odd[of_width]])
        for has, many in set(map(tuple, kinds.tolist())):
            inside = (kinds == (has, many)).all(axis=1).nonzero()[0]
            some = of_width[inside]
            words = _no_words(len(some))
            if many:
                is_own = np.zeros(count, bool)
                is_own[some] = True
                own = (is_own[column] & ~is_nan).nonzero()[0]
                shape = len(some), many
                exceptions = row[own].reshape(shape), bits[own].reshape(shape)
                words = np.concatenate([base[some], *exceptions], axis=1)
            flags = (TIMES if times else 0) | (NAN_CODE if has else 0)
            stream = _numbers(data, width, power, flags, many)
            codes = _rows_of(data, inside)
            yield _batch(indices[some], rows, page, 8, stream, codes, words, pages[some])


def _rows_of(matrix: Array, rows: Array) -> Array:
    """Return some rows of a matrix; without a copy if these are all."""
    return matrix if len(rows) == len(matrix) else matrix[rows]


def _widths(spans: Array) -> Array:
    """Return the bytes of codes that reach from 0 to each span."""
    edges = np.array([0, (1 << 8) - 1, (1 << 16) - 1, (1 << 32) - 1], np.uint64)
    widths: Array = np.array([0, 1, 2, 4, 8])[np.searchsorted(edges, spans.astype(np.uint64))]
    return widths


def _numbers(
    data: Array, width: int, power: int = 0, flags: int = 0, exceptions: int = 0
) -> Stream:
    typesize = typesize_of_codes(data.shape[1], width)
    return Stream(
        VALUES,
        NUMBERS,
        typesize=typesize,
        flags=flags,
        power=power,
        width=width,
        exceptions=exceptions,
    )


def _no_words(count: int) -> Array:
    return NO_WORDS.reshape(1, 0).repeat(count, axis=0)


def _batch(
    indices: Array,
    rows: int,
    page: int,
    size: int,
    stream: Stream,
    data: Array,
    words: Array,
    pages: Array,
) -> EncodedBatch:
    flags = 0 if stream.exceptions else EXACT_BOUNDS
    return EncodedBatch(
        indices, rows, page, size * rows, (stream,), (data,), (words,), pages, flags
    )
