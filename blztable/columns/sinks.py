"""Sinks: they receive the bytes of a stream, chunk by chunk, while each chunk is in the cache.

`Memory`, `Shifted` and `ItemsSink` take rows one after another, `Decoding` makes values of codes
for another sink, and `DecodingNulls` the bitmap, too. Other sinks pick single rows out of the
chunks of their pages. Chunks come in any order and from any thread, each once.

Knows streams and no types. Rows are indices within the part, in ascending order.

The picked rows are the stream of a part without other rows, so a decoder can read them.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from blztable.arrow.types import view
from blztable.columns.blocks import Encoding, StreamBuffer
from blztable.columns.encodings.dictionary import Dictionary
from blztable.columns.encodings.numbers import Delta, Scaled
from blztable.errors import CorruptError

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

    def __init__(self, target: StreamBuffer, low: int) -> None:
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

    def __init__(self, target: StreamBuffer, first: int, rows: int) -> None:
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


class ItemsSink(Sink):
    """Codes of a dictionary of items, from which it makes the ends and the bytes of whole pages."""

    def __init__(
        self,
        encoding: Dictionary,
        pages: range,
        ends: StreamBuffer | None,
        values: StreamBuffer | None,
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


# Values of these widths are copied as numbers, others byte by byte.
_WORDS = {1: "|u1", 2: "<u2", 4: "<u4", 8: "<u8"}
# So many ranges are copied one by one.
FEW_RANGES = 256


class PickedItems(Sink):
    """A sink that picks the codes of single rows, and makes their items."""

    def __init__(self, rows: np.ndarray, encoding: Dictionary) -> None:
        """Pick these rows."""
        self._encoding = encoding
        code = encoding.stored.nbytes(1)
        picked = np.empty(len(rows) * code, np.uint8)
        self._words = Words(rows, code, picked)
        self._codes = picked.view(encoding.stored.dtype)

    def needed(self, begin: int, stop: int) -> Ranges:
        """Return the ranges of the codes."""
        return self._words.needed(begin, stop)

    def take(self, begin: int, data: np.ndarray) -> None:
        """Pick the codes that are in these bytes."""
        self._words.take(begin, data)

    def check(self) -> None:
        """Raise CorruptError if a code leads out of the dictionary."""
        self._encoding.check(self._codes)

    @property
    def nbytes(self) -> int:
        """Return the number of bytes of all picked items."""
        return int(self._encoding.lengths_of(self._codes).sum())

    def encode(self) -> np.ndarray:
        """Return the ends of the picked items, one after another, as the bytes of a stream."""
        ends = np.cumsum(self._encoding.lengths_of(self._codes))
        return ends.astype(f"<i{self._encoding.width}").view(np.uint8)

    def items(self) -> np.ndarray:
        """Return the bytes of the picked items."""
        return self._encoding.items_of(self._codes)


class Bits(Sink):
    """A sink that picks rows of a stream with one bit per row."""

    def __init__(self, rows: np.ndarray) -> None:
        self._rows = rows
        self._flags = np.zeros(len(rows), np.uint8)

    def needed(self, begin: int, stop: int) -> Ranges:
        """Return the bytes of the bits."""
        first, last = np.searchsorted(self._rows, [8 * begin, 8 * stop])
        starts = (self._rows[first:last] >> 3) - begin
        return starts, starts + 1

    def take(self, begin: int, data: np.ndarray) -> None:
        """Pick the bits that are in these bytes."""
        first, last = np.searchsorted(self._rows, [8 * begin, 8 * (begin + len(data))])
        rows = self._rows[first:last]
        self._flags[first:last] = data[(rows >> 3) - begin] >> (rows & 7).astype(np.uint8) & 1

    def encode(self) -> np.ndarray:
        """Return the picked bits as the bytes of a stream."""
        return np.packbits(self._flags, bitorder="little")


class Words(Sink):
    """A sink that picks rows of a stream of fixed-width values, into memory for these rows."""

    def __init__(self, rows: np.ndarray, width: int, out: np.ndarray) -> None:
        self._rows = rows
        self._width = width
        self._out = out
        starts = rows * width
        self._bytes = Bytes(starts, starts + width, out)
        self._dtype = _WORDS.get(width)

    def needed(self, begin: int, stop: int) -> Ranges:
        """Return the ranges of the values."""
        return self._bytes.needed(begin, stop)

    def take(self, begin: int, data: np.ndarray) -> None:
        """Pick the values that are in these bytes."""
        width = self._width
        if self._dtype is None or begin % width or len(data) % width:
            # A chunk may cut a value of many bytes.
            self._bytes.take(begin, data)
            return
        start = begin // width
        first, last = np.searchsorted(self._rows, [start, start + len(data) // width])
        values = data.view(self._dtype)
        self._out.view(self._dtype)[first:last] = values[self._rows[first:last] - start]


class Codes(Sink):
    """A sink that picks rows of an encoded stream, and decodes only the codes of these rows."""

    def __init__(self, rows: np.ndarray, encoding: Encoding, width: int) -> None:
        """Pick codes that stand for values of `width` bytes."""
        self._rows = rows
        self._encoding = encoding
        self._width = width
        code = encoding.stored.nbytes(1)
        self._codes = np.empty(len(rows) * code, np.uint8)
        self._words = Words(rows, code, self._codes)

    def needed(self, begin: int, stop: int) -> Ranges:
        """Return the ranges of the codes."""
        return self._words.needed(begin, stop)

    def take(self, begin: int, data: np.ndarray) -> None:
        """Pick the codes that are in these bytes."""
        self._words.take(begin, data)

    def encode(self) -> np.ndarray:
        """Return the values of the picked rows as the bytes of a stream."""
        out = np.empty(len(self._rows) * self._width, np.uint8)
        self._encoding.pick(self._rows, self._codes, out)
        return out


class Sums(Sink):
    """A sink that picks rows of values that are sums, of which it adds up no more than needed."""

    def __init__(self, rows: np.ndarray, encoding: Delta) -> None:
        """Pick these rows."""
        self._rows = rows
        self._encoding = encoding
        self._code = encoding.stored.nbytes(1)
        self._values = np.empty(len(rows), f"<u{encoding.width}")

    def needed(self, begin: int, stop: int) -> Ranges:
        """Return the codes of each page up to its last row; a chunk has whole pages."""
        code, unit = self._code, self._encoding.page_rows
        first, last = np.searchsorted(self._rows, [begin // code, stop // code])
        rows = self._rows[first:last]
        is_last = np.append(rows[1:] // unit != rows[:-1] // unit, True)[: len(rows)]
        stops = rows[is_last] + 1
        return (stops - 1) // unit * unit * code - begin, stops * code - begin

    def take(self, begin: int, data: np.ndarray) -> None:
        """Pick the rows of each page that is in these bytes."""
        encoding, unit = self._encoding, self._encoding.page_rows
        codes, start = data.view(encoding.stored.dtype), begin // self._code
        for low in range(0, len(codes), unit):
            first, last = np.searchsorted(self._rows, [start + low, start + low + unit])
            if first < last:
                page, rows = (start + low) // unit, self._rows[first:last] - (start + low)
                found = encoding.pick_of_page(page, rows, codes[low : low + unit])
                self._values[first:last] = found

    def encode(self) -> np.ndarray:
        """Return the values of the picked rows as the bytes of a stream."""
        return self._values.view(np.uint8)


class Ends(Sink):
    """A sink that picks rows of a stream of item ends: where items begin and end in the bytes."""

    def __init__(
        self, rows: np.ndarray, width: int, count: int, page_rows: int, pages: Sequence[int]
    ) -> None:
        """Pick from `count` rows; `pages` has the offset of each page's items, and the last end."""
        page = rows // page_rows
        bounds = np.array(pages, np.int64)
        self._width = width
        self._rows = rows
        self._begins_page = rows % page_rows == 0
        self._ends_page = ((rows + 1) % page_rows == 0) | (rows + 1 == count)
        self._low, self._high = bounds[page], bounds[page + 1]
        self.starts = self._low.copy()
        self.ends = np.zeros(len(rows), np.int64)

    def needed(self, begin: int, stop: int) -> Ranges:
        """Return the ranges of the ends that are in these bytes."""
        width = self._width
        start, end = begin // width, stop // width
        rows = self._rows[slice(*np.searchsorted(self._rows, [start, end + 1]))]
        return (
            (np.maximum(rows - 1, start) - start) * width,
            (np.minimum(rows + 1, end) - start) * width,
        )

    def take(self, begin: int, data: np.ndarray) -> None:
        """Pick the ends of the rows' items, and of the items before them."""
        if begin % self._width or len(data) % self._width:
            raise CorruptError(f"a chunk cuts an item end of {self._width} bytes")
        ends = data.view(f"<i{self._width}")
        start = begin // self._width
        first, last = np.searchsorted(self._rows, [start, start + len(ends)])
        self.ends[first:last] = ends[self._rows[first:last] - start]
        first, last = np.searchsorted(self._rows, [start + 1, start + len(ends) + 1])
        rows, begins_page = self._rows[first:last], self._begins_page[first:last]
        self.starts[first:last][~begins_page] = ends[rows[~begins_page] - 1 - start]

    @property
    def nbytes(self) -> int:
        """Return the number of bytes of all picked items."""
        return int((self.ends - self.starts).sum())

    def encode(self) -> np.ndarray:
        """Return the ends of the picked items, one after another, as the bytes of a stream."""
        ends = np.cumsum(self.ends - self.starts).astype(f"<i{self._width}")
        return ends.view(np.uint8)

    def check(self) -> None:
        """Raise CorruptError unless each item lies in its page, behind the item before it."""
        starts, ends = self.starts, self.ends
        if (
            (starts > ends).any()
            or (starts < self._low).any()
            or (ends > self._high).any()
            or (starts[1:] < ends[:-1]).any()
        ):
            raise CorruptError("the item ends do not ascend within their page")
        # Otherwise the item would differ from the one that a full read returns.
        if (ends < self._high)[self._ends_page].any():
            raise CorruptError("the item ends do not match the end of their page")


class Bytes(Sink):
    """A sink that copies ascending ranges of a stream of bytes into memory, one after another."""

    def __init__(self, starts: np.ndarray, ends: np.ndarray, out: np.ndarray) -> None:
        self._starts = starts
        self._ends = ends
        lengths = ends - starts
        self._offsets = np.cumsum(lengths) - lengths
        self._out = out

    def needed(self, begin: int, stop: int) -> Ranges:
        """Return the parts of the ranges that are in these bytes."""
        return self._cut(begin, *self._found(begin, stop), stop)

    def take(self, begin: int, data: np.ndarray) -> None:
        """Copy the bytes that are within a range."""
        first, last = self._found(begin, begin + len(data))
        if first >= last:
            return
        starts, ends = self._cut(begin, first, last, begin + len(data))
        offset = int(self._offsets[first] + begin + starts[0] - self._starts[first])
        # Adjacent ranges become one.
        cuts = np.flatnonzero(starts[1:] != ends[:-1])
        starts, ends = starts[np.append(0, cuts + 1)], ends[np.append(cuts, -1)]
        taken = data[starts[0] : ends[0]] if len(starts) == 1 else _ranges(data, starts, ends)
        self._out[offset : offset + len(taken)] = taken

    def _found(self, begin: int, stop: int) -> tuple[int, int]:
        """Return the ranges that have bytes from `begin` to `stop`, as indices."""
        first = np.searchsorted(self._ends, begin, "right")
        return int(first), int(np.searchsorted(self._starts, stop))

    def _cut(self, begin: int, first: int, last: int, stop: int) -> Ranges:
        starts = np.maximum(self._starts[first:last], begin) - begin
        return starts, np.minimum(self._ends[first:last], stop) - begin


def _ranges(data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the bytes from each start to each end, one after another."""
    if len(starts) <= FEW_RANGES:
        return np.concatenate(
            [data[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
        )
    # Arrow copies faster, but allocates memory for items of average size, gaps included.
    # The items of the array are a range, the gap behind it, the next range, and so on.
    offsets = np.stack([starts, ends], axis=1).reshape(-1)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    items = pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
    return view(items.take(pa.array(np.arange(0, len(offsets), 2))).buffers()[2])
