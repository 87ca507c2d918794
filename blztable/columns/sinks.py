"""Sinks: they receive the bytes of a stream, chunk by chunk, while each chunk is in the cache.

`Memory`, `Shifted` and `Items` take rows one after another, `Decoding` makes values of codes for
another sink, and `DecodingNulls` the bitmap, too. The sinks that pick single rows are in
`picks.py`. Chunks come in any order and from any thread, each once.

Knows streams and no types. Rows are indices within the part, in ascending order.
"""

from dataclasses import replace

import numpy as np

from blztable.columns.blocks import Encoding, Target
from blztable.columns.encodings.dictionary import Dictionary
from blztable.columns.encodings.numbers import Scaled

# Starts and stops of ranges of bytes.
Ranges = tuple[np.ndarray, np.ndarray]


class Sink:
    """A receiver of the bytes of a stream; this one drops them, so chunks are only checked.

    Attributes
    ----------
    address
        The memory address of the stream's byte 0, if chunks can be decompressed in place. If it is
        None, each chunk is passed to `take`.
    """

    address: int | None = None

    def take(self, begin: int, data: np.ndarray) -> None:
        """Take a chunk that begins at byte `begin`; its memory is reused afterwards."""

    def room(self, begin: int, nbytes: int) -> np.ndarray | None:
        """Return where these bytes are wanted; None if not all of them are, or not in a row."""
        return None

    def needed(self, begin: int, stop: int) -> Ranges | None:
        """Return the ranges of the bytes from `begin` to `stop` that `take` will use.

        The ranges count from `begin`, ascend, and may be empty. None means all bytes.
        """
        return None

    def finish(self, begin: int, stop: int) -> None:
        """Check the bytes from `begin` to `stop` of the stream, which have just arrived."""


class Memory(Sink):
    """A sink that copies the bytes of a stream from `low` on into the buffer of a target."""

    def __init__(self, target: Target, low: int) -> None:
        self._target = target
        self._check = target.check
        self._low = low
        self._high = low + len(target.buffer)
        self.address = target.buffer.ctypes.data - low

    def take(self, begin: int, data: np.ndarray) -> None:
        """Copy the bytes that are within the range."""
        low = self._low
        start, stop = max(begin, low), min(begin + len(data), self._high)
        self._target.buffer[start - low : stop - low] = data[start - begin : stop - begin]

    def room(self, begin: int, nbytes: int) -> np.ndarray | None:
        """Return these bytes of the buffer, if they are within the range."""
        if begin < self._low or begin + nbytes > self._high:
            return None
        return self._target.buffer[begin - self._low : begin - self._low + nbytes]

    def needed(self, begin: int, stop: int) -> Ranges | None:
        """Return the bytes that are within the range; None if all are."""
        if self._low <= begin and stop <= self._high:
            return None
        low, high = max(begin, self._low) - begin, min(stop, self._high) - begin
        return np.array([low]), np.array([max(low, high)])

    def finish(self, begin: int, stop: int) -> None:
        """Call the check of the target."""
        if self._check is not None:
            low = self._low
            self._check(max(begin, low) - low, min(stop, self._high) - low)


class Shifted(Sink):
    """A sink that moves the bits of a bitmap from a row on that begins no byte."""

    def __init__(self, target: Target, first: int, rows: int) -> None:
        """Move so many rows to the beginning of the target."""
        self._target = target
        self._first = first
        self._bits = np.zeros(rows, np.uint8)

    def take(self, begin: int, data: np.ndarray) -> None:
        """Copy the bits that are within the range."""
        bits = np.unpackbits(data, bitorder="little")
        at = 8 * begin - self._first
        start, stop = max(at, 0), min(at + len(bits), len(self._bits))
        self._bits[start:stop] = bits[start - at : stop - at]

    def finish(self, begin: int, stop: int) -> None:
        """Fill the target; the bitmap of a part is small, so all bits have arrived at once."""
        self._target.buffer[:] = np.packbits(self._bits, bitorder="little")


class Decoding(Sink):
    """Codes of an encoded stream, from which it makes values for another sink."""

    def __init__(self, encoding: Encoding, width: int, sink: Sink) -> None:
        """Decode values of `width` bytes."""
        self._encoding = encoding
        self._width = width
        self._sink = sink
        self._code = encoding.stored.nbytes(1)

    def needed(self, begin: int, stop: int) -> Ranges | None:
        """Return the codes of the rows that the other sink needs, or of their pages."""
        code, width, encoding = self._code, self._width, self._encoding
        first = begin // code
        rows = self._sink.needed(first * width, stop // code * width)
        if rows is None:
            return None
        # A chunk has whole pages. Ranges that meet become one.
        unit = encoding.page_rows if encoding.needs_pages else 1
        starts, stops = rows[0] // (width * unit), -(-rows[1] // (width * unit))
        if not encoding.needs_pages:
            # To decode the rows between two ranges costs less than another call.
            starts, stops = starts[:1], stops[-1:]
        filled = starts < stops
        starts, stops = starts[filled], stops[filled]
        starts[1:] = np.maximum(starts[1:], stops[:-1])
        starts, stops = starts * unit * code, np.minimum(stops * unit * code, stop - begin)
        return starts[starts < stops], stops[starts < stops]

    def take(self, begin: int, data: np.ndarray) -> None:
        """Decode a chunk, or the pages of it that are needed."""
        needed = self.needed(begin, begin + len(data))
        if needed is None:
            self._decode(begin, data)
            return
        for start, stop in zip(*needed, strict=True):
            self._decode(begin + int(start), data[start:stop])

    def _decode(self, begin: int, data: np.ndarray) -> None:
        """Decode codes, in the memory of the result if all of the values are wanted there."""
        row, rows = begin // self._code, len(data) // self._code
        out = self._sink.room(row * self._width, rows * self._width)
        is_aside = out is None
        if out is None:
            out = np.empty(rows * self._width, np.uint8)
        self._encoding.decode(row, data, out)
        if is_aside:
            self._sink.take(row * self._width, out)

    def finish(self, begin: int, stop: int) -> None:
        """Check the values of these codes."""
        self._sink.finish(begin // self._code * self._width, stop // self._code * self._width)


class DecodingNulls(Decoding):
    """Codes of floats one of which is null; it makes the bitmap of the codes, not of the values.

    The value of a null is any float. Each chunk but the last has codes of whole bytes of bits.
    """

    def __init__(self, encoding: Scaled, sink: Sink, valid: np.ndarray, first: int) -> None:
        """Make the bitmap of the rows from `first` on, a multiple of 8."""
        super().__init__(replace(encoding, nan=None), 8, sink)
        self._nan = encoding.nan
        self._at = encoding.at
        self._dtype = encoding.stored.dtype
        self._valid = valid
        self._first = first // 8

    def _decode(self, begin: int, data: np.ndarray) -> None:
        """Decode codes, and set the bits of the rows that are wanted of these."""
        super()._decode(begin, data)
        is_value = data.view(self._dtype) != self._nan
        # An odd value has any code, also the one of NaN.
        row = begin // self._code
        first, last = np.searchsorted(self._at, [row, row + len(is_value)])
        is_value[self._at[first:last] - row] = True
        bits = np.packbits(is_value, bitorder="little")
        at = begin // (8 * self._code) - self._first
        self._valid[max(at, 0) : at + len(bits)] = bits[max(-at, 0) : len(self._valid) - at]


class Items(Sink):
    """Codes of a dictionary of items, from which it makes the ends and the bytes of whole pages."""

    def __init__(
        self, encoding: Dictionary, pages: range, ends: Target | None, values: Target | None
    ) -> None:
        """Make these pages of the part; without targets they are only checked."""
        self._encoding = encoding.shifted(ends.shift) if ends else encoding
        self._code = encoding.stored.nbytes(1)
        self._pages = pages
        self._ends = ends
        self._values = values

    def take(self, begin: int, data: np.ndarray) -> None:
        """Make the items of the pages that are in this chunk."""
        one, first = self._encoding, self._pages.start
        codes, row = data.view(one.stored.dtype), begin // self._code
        for start in range(0, len(codes), one.page_rows):
            page = (row + start) // one.page_rows
            if page not in self._pages:
                continue
            part = codes[start : start + one.page_rows]
            ends = values = None
            if self._ends is not None and self._values is not None:
                at = (page - first) * one.page_rows * one.width
                ends = self._ends.buffer[at : at + len(part) * one.width].view(f"<i{one.width}")
                low, high = (int(one.starts[at] - one.starts[first]) for at in (page, page + 1))
                values = self._values.buffer[low:high]
            one.spell(page, part, ends, values)
