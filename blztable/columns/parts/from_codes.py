"""Values from codes: those of adjacent rows, chunk by chunk, or of single rows.

The opposite of `numbers.py`. Sums wrap, so any codes make some values; what the sums of lengths
must be is checked. Codes are decoded while they are in the cache. Knows no files.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from blztable.arrow.types import empty
from blztable.columns.parts.physical import Form, Physical
from blztable.columns.parts.stream import EncodedStream, need
from blztable.format.records import CONSTANT, NAN_CODE, PLAIN, SUM, TIMES, Array

_ALL = (1 << 64) - 1
_TOP = np.uint64(1 << 63)
_LEAST = np.int64(-(1 << 63))
# Ranges of at most so many bytes are copied byte by byte.
_SHORT = 64


def fill(
    stream: EncodedStream, form: Physical, page: int, base: Array, start: int, stop: int, out: Array
) -> None:
    """Put the values of adjacent rows into a result, given the base of each page."""
    values, width = values_in(form, out), stream.width
    is_scaled = stream.power or stream.flags & NAN_CODE
    if stream.flags & SUM:
        _fill_sums(stream, form, page, start, stop, values)
        _finish(form, out)
        return
    if not width:
        first, last = start >> page, (stop - 1 >> page) + 1
        bases = base[first:last]
        if len(bases) and (bases == bases[0]).all():
            values[:] = bases[0]
        else:
            values[:] = bases.repeat(1 << page)[start - (first << page) :][: stop - start]
        if is_scaled:
            _scale(stream, values, values)
    for at, data in stream.runs(start * width, stop * width):
        codes, row = data.view(f"<u{width}"), at // width
        target = values[row - start : row - start + len(codes)]
        # This casts, and is no call of Python as `np.copyto` is.
        target[...] = codes
        bases = base[row >> page : (row + len(codes) - 1 >> page) + 1]
        if len(bases) == 1 or (bases == bases[0]).all():
            if bases[0]:
                target += bases[0]
        else:
            for number in range(row >> page, (row + len(codes) - 1 >> page) + 1):
                first = number << page
                target[max(first - row, 0) : first + (1 << page) - row] += base[number]
        if is_scaled:
            _scale(stream, target, codes)
    if form.form is Form.WIDE:
        _finish(form, out)


def pick(
    stream: EncodedStream, form: Physical, page: int, base: Array, rows: Array, out: Array
) -> None:
    """Put the values of ascending rows into a result, given the base of each page."""
    values = values_in(form, out)
    if stream.flags & SUM:
        steps, first, at, number = _steps(stream, page, rows)
        steps = steps.cumsum(dtype=np.uint64)
        inside = (rows - (number << page)).astype(np.uint64)
        words = steps[at] - steps[first] + inside * np.uint64(int(stream.words[-1]) & _ALL)
        words += _firsts(stream, form)[number]
        values[...] = words
    else:
        _put(stream, codes_at(stream, rows), base[rows >> page], values)
    if form.form is Form.WIDE:
        _finish(form, out)


def fill_matrix(
    form: Any, physical_form: Physical, codes: Array | None, words: Array, out: Array
) -> None:
    """Put the values of parts of one form and one page into the rows of a matrix.

    Parameters
    ----------
    form
        The numbers of the parts: kind, flags, power, width, rows.
    physical_form
        The form of the type, which numpy knows.
    codes
        The bytes of the codes of each part, or of the values.
    words
        The base of each part; or the first word, and the least step.
    out
        The values.
    """
    dtype = f"<u{physical_form.width}"
    if form["kind"] == PLAIN:
        assert codes is not None
        out.view(dtype)[:] = codes.view(dtype)
        return
    if form["kind"] == CONSTANT:
        out.view(dtype)[:] = words[:, :1].astype(dtype)
        return
    is_float = physical_form.form is Form.FLOAT
    is_large = physical_form.form is Form.UNSIGNED and physical_form.width == 8
    values = out if is_float else out.view(dtype)
    base, least = words[:, :1], words[:, 1:]
    base = (base ^ _LEAST if is_large else base).astype(values.dtype)
    rows = int(form["rows"])
    if codes is None:
        values[:] = 0
    else:
        codes = codes.view(f"<u{form['width']}")[:, :rows]
        np.copyto(values, codes, casting="unsafe")
    if form["flags"] & SUM:
        values += least.astype(values.dtype)
        values[:, :1] = base
        np.cumsum(values, axis=1, out=values)
        return
    if base.any():
        values += base
    if form["power"] and form["flags"] & TIMES:
        values *= float(f"1e-{form['power']}")
    elif form["power"]:
        values /= float(f"1e{form['power']}")
    if form["flags"] & NAN_CODE:
        assert codes is not None
        np.copyto(values, np.nan, where=codes == np.iinfo(codes.dtype).max)


def put(stream: EncodedStream, form: Physical, codes: Array, base: Array, out: Array) -> None:
    """Put the values of codes with a base into a result."""
    _put(stream, codes, bases_of(stream, form, base)[0], values_in(form, out))
    _finish(form, out)


def values_in(form: Physical, out: Array) -> Array:
    """Return a view of a result that words are added in: floats, or integers that wrap."""
    if form.form is Form.FLOAT:
        return out.view("<f8")
    if form.form is Form.WIDE:
        return out.view("<u8").reshape(-1, form.width // 8)[:, 0]
    return out.view(f"<u{form.width}")


def _finish(form: Physical, out: Array) -> None:
    """Make values of words, where these differ."""
    if form.form is Form.WIDE:
        words = out.view("<i8").reshape(-1, form.width // 8)
        np.right_shift(words[:, :1], 63, out=words[:, 1:])


def bases_of(stream: EncodedStream, form: Physical, low: Array) -> Array:
    """Return the base of each page in the form of the values, given its least word."""
    base = stream.words[: len(low)] if len(stream.words) else low
    if form.form is Form.UNSIGNED and form.width == 8:
        base = base ^ _LEAST
    if form.form is Form.FLOAT:
        return base.astype("<f8")
    return base.astype(f"<u{min(form.width, 8)}")


def _put(stream: EncodedStream, codes: Array, base: Any, values: Array) -> None:
    """Put codes with a base, or with one each, into a result."""
    values[...] = codes
    if base.ndim or base:
        values += base
    if stream.power or stream.flags & NAN_CODE:
        _scale(stream, values, codes)


def _scale(stream: EncodedStream, values: Array, codes: Array) -> None:
    """Turn integers into the floats that they stand for."""
    if stream.power and stream.flags & TIMES:
        values *= float(f"1e-{stream.power}")
    elif stream.power:
        values /= float(f"1e{stream.power}")
    if stream.flags & NAN_CODE:
        np.copyto(values, np.nan, where=codes == np.iinfo(codes.dtype).max)


def _segments(row: int, count: int, page: int) -> Iterator[tuple[int, int, int]]:
    """Yield the pages of adjacent rows, and where the rows of each begin and end among these."""
    for number in range(row >> page, (row + count - 1 >> page) + 1):
        first = number << page
        yield number, max(first - row, 0), min(first + (1 << page) - row, count)


def _firsts(stream: EncodedStream, form: Physical) -> Array:
    """Return the first value of each page, for a stream of sums."""
    words = stream.words[:-1].view(np.uint64)
    return words ^ _TOP if form.form is Form.UNSIGNED and form.width == 8 else words


def _fill_sums(
    stream: EncodedStream, form: Physical, page: int, start: int, stop: int, values: Array
) -> None:
    first, least = _firsts(stream, form), stream.words[-1:].view(np.uint64)
    begin, width = start >> page << page, stream.width
    if not width:
        rows = np.arange(start, stop)
        inside = (rows & (1 << page) - 1).astype(np.uint64)
        np.copyto(values, first[rows >> page] + inside * least, casting="unsafe")
        return
    first, least = first.astype(values.dtype), least.astype(values.dtype)[0]
    last = values.dtype.type(0)
    for at, data in stream.runs(begin * width, stop * width):
        codes, row = data.view(f"<u{width}"), at // width
        skipped = max(start - row, 0)
        for number, low, high in _segments(row, len(codes), page):
            # Rows before the first are only summed up.
            is_before = low < skipped
            place = row - start
            part = values[max(place + low, 0) : place + high]
            if is_before:
                part = np.empty(high - low, values.dtype)
            np.copyto(part, codes[low:high], casting="unsafe")
            if least:
                part += least
            if row + low == number << page:
                part[0] = first[number]
            else:
                # Arrays wrap in silence, numbers warn.
                part[:1] += last
            np.cumsum(part, out=part)
            last = part[-1]
            if is_before and skipped < high:
                values[: place + high] = part[skipped - low :]


def _steps(stream: EncodedStream, page: int, rows: Array) -> tuple[Array, Array, Array, Array]:
    """Return the codes up to the last of some rows of each page that has some.

    Returns the codes; for each row where its page begins among them, where the row is, and its
    page.
    """
    number = rows >> page
    is_first = np.ones(len(number), bool)
    is_first[1:] = number[1:] != number[:-1]
    firsts = is_first.nonzero()[0]
    counts = np.empty(len(firsts), np.int64)
    counts[:-1], counts[-1:] = firsts[1:] - firsts[:-1], len(rows) - firsts[-1:]
    begin = number[firsts] << page
    stops = rows[firsts + counts - 1] + 1
    before = (stops - begin).cumsum() - (stops - begin)
    first = before.repeat(counts)
    if not stream.width:
        codes = np.zeros(int((stops - begin).sum()), np.uint8)
    else:
        data = gathered(stream, begin * stream.width, stops * stream.width)
        codes = data.view(f"<u{stream.width}")
    return codes, first, first + rows - (number << page), number


def ends(
    stream: EncodedStream, rows: int, page: int, start: int, stop: int, first: int = 0
) -> Array:
    """Return where the items of adjacent rows begin, and where the last one ends.

    `first` is added to each. `start` is where a page begins.
    """
    least, width, words = int(stream.words[-1]), stream.width, stream.words
    sums = empty(stop - start + 1, np.int64)
    sums[0] = int(words[start >> page]) + first if start < rows else first
    if not width:
        np.multiply(np.arange(1, len(sums)), least, out=sums[1:])
        sums[1:] += sums[0]
    total = 0.0
    for at, data in stream.runs(start * width, stop * width):
        codes, row = data.view(f"<u{width}"), at // width - start
        target = sums[1 + row : 1 + row + len(codes)]
        if width >= 4:
            total += float(codes.sum(dtype="<f8"))
        if least:
            np.add(codes, least, out=target, dtype=np.int64, casting="unsafe")
            np.cumsum(target, out=target)
        else:
            np.cumsum(codes, dtype=np.int64, out=target)
        target += sums[row]
    _check_total(total, stop - start, least)
    bounds = np.append(np.arange((start >> page) + 1, (stop - 1 >> page) + 1) << page, stop)
    if start < stop:
        number = -(-bounds // (1 << page))
        here, there = sums[bounds - start], words[number] + first
        is_end = (bounds & (1 << page) - 1 == 0) | (bounds == rows)
        need(np.where(is_end, here == there, here <= there).all(), "lengths of a page")
    return sums


def ends_of_rows(stream: EncodedStream, rows: int, page: int, chosen: Array) -> tuple[Array, Array]:
    """Return where the items of ascending rows begin and end in the bytes of the part."""
    if not len(chosen):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    codes, first, at, number = _steps(stream, page, chosen)
    words, least = stream.words, int(stream.words[-1])
    if stream.width >= 4:
        _check_total(float(codes.sum(dtype="<f8")), len(codes), least)
    else:
        _check_total(0.0, len(codes), least)
    before = np.zeros(len(codes) + 1, np.int64)
    np.cumsum(codes, dtype=np.int64, out=before[1:])
    begins = words[number] + before[at] - before[first] + least * (at - first)
    stops = begins + codes[at].astype(np.int64) + least
    is_end = (chosen + 1 == rows) | ((chosen + 1) & (1 << page) - 1 == 0)
    after = words[number + 1]
    need(np.where(is_end, stops == after, stops <= after).all(), "lengths of a page")
    return begins, stops


def _check_total(total: float, count: int, least: int) -> None:
    """Check that sums of lengths do not wrap."""
    need(total + float(count) * least < 1 << 62, "lengths")


def codes_at(stream: EncodedStream, rows: Array) -> Array:
    """Return the codes of ascending rows; there are none of width 0."""
    width = stream.width
    if not width:
        return np.zeros(len(rows), np.uint8)
    return numbers_at(stream, rows, np.dtype(f"<u{width}"))


def numbers_at(stream: EncodedStream, rows: Array, dtype: np.dtype[Any]) -> Array:
    """Return the values of ascending rows of a stream of values of one width.

    Its chunks have whole values.
    """
    width = dtype.itemsize
    out = np.empty(len(rows), dtype)
    starts = rows * width
    for at, first, last, data in stream.pick(starts, starts + width):
        whole = data[: len(data) // width * width].view(dtype)
        out[first:last] = whole[rows[first:last] - at // width]
    return out


def gathered(stream: EncodedStream, starts: Array, stops: Array) -> Array:
    """Return the bytes of ascending ranges, one after the other."""
    sizes = stops - starts
    before = sizes.cumsum() - sizes
    out = np.empty(int(sizes.sum()), np.uint8)
    for at, first, last, data in stream.pick(starts, stops):
        low = np.maximum(starts[first:last], at)
        high = np.minimum(stops[first:last], at + len(data))
        begins = before[first:last] + low - starts[first:last]
        counts = high - low
        total = int(counts.sum())
        if total > _SHORT * (last - first):
            moves = zip((low - at).tolist(), (high - at).tolist(), begins.tolist(), strict=True)
            for begin, end, to in moves:
                out[to : to + end - begin] = data[begin:end]
        elif total:
            inner = counts.cumsum() - counts
            index = (low - at - inner).repeat(counts) + np.arange(total)
            out[begins[0] : begins[0] + total] = data[index]
    return out
