"""Picking: the bytes of single rows, taken out of each chunk of a stream while it is warm.

So nothing is kept of a page but the rows that are wanted; together they are streams of a part that
has these rows only, for the decoders to go on with. Chunks come in any order, from any thread.

Knows streams and no types. Rows are numbers in the part, and ascend.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from blztable.columns.memory import view
from blztable.errors import CorruptError

# Takes the bytes of a chunk, which are gone afterwards, and where in the stream they begin.
Accept = Callable[[int, np.ndarray], None]
# Copied as numbers of their width; others go byte by byte.
_WORDS = {1: "|u1", 2: "<u2", 4: "<u4", 8: "<u8"}


class Bits:
    """Of a stream of a bit a row."""

    def __init__(self, rows: np.ndarray) -> None:
        self._rows = rows
        self._flags = np.zeros(len(rows), np.uint8)

    def accept(self, begin: int, data: np.ndarray) -> None:
        """Take the bits that are in these bytes."""
        first, last = np.searchsorted(self._rows, [8 * begin, 8 * (begin + len(data))])
        rows = self._rows[first:last]
        self._flags[first:last] = data[(rows >> 3) - begin] >> (rows & 7).astype(np.uint8) & 1

    def packed(self) -> np.ndarray:
        """The bits, when all chunks have come."""
        return np.packbits(self._flags, bitorder="little")


class Words:
    """Of a stream of values of one width, into memory that has room for the rows."""

    def __init__(self, rows: np.ndarray, width: int, out: np.ndarray) -> None:
        self._rows = rows
        self._width = width
        self._out = out
        starts = rows * width
        self._bytes = Bytes(starts, starts + width, out)
        self._dtype = _WORDS.get(width)

    def accept(self, begin: int, data: np.ndarray) -> None:
        """Take the values that are in these bytes."""
        width = self._width
        if self._dtype is None or begin % width or len(data) % width:
            # A chunk may cut a value of many bytes.
            self._bytes.accept(begin, data)
            return
        start = begin // width
        first, last = np.searchsorted(self._rows, [start, start + len(data) // width])
        values = data.view(self._dtype)
        self._out.view(self._dtype)[first:last] = values[self._rows[first:last] - start]


class Ends:
    """Of a stream of item ends: where the items of some rows begin and end in the part's bytes."""

    def __init__(
        self, rows: np.ndarray, width: int, count: int, page_rows: int, pages: Sequence[int]
    ) -> None:
        """Of `count` rows; `pages` says where each page's items begin, and the last one's end."""
        page = rows // page_rows
        bounds = np.array(pages, np.int64)
        self._width = width
        self._rows = rows
        self._begins_page = rows % page_rows == 0
        self._ends_page = ((rows + 1) % page_rows == 0) | (rows + 1 == count)
        self._low, self._high = bounds[page], bounds[page + 1]
        self.starts = self._low.copy()
        self.ends = np.zeros(len(rows), np.int64)

    def accept(self, begin: int, data: np.ndarray) -> None:
        """Take the ends of these items, and of those before them."""
        if begin % self._width or len(data) % self._width:
            raise CorruptError(f"a chunk that cuts an item of {self._width} bytes")
        ends = data.view(f"<i{self._width}")
        start = begin // self._width
        first, last = np.searchsorted(self._rows, [start, start + len(ends)])
        self.ends[first:last] = ends[self._rows[first:last] - start]
        first, last = np.searchsorted(self._rows, [start + 1, start + len(ends) + 1])
        rows, begins_page = self._rows[first:last], self._begins_page[first:last]
        self.starts[first:last][~begins_page] = ends[rows[~begins_page] - 1 - start]

    @property
    def nbytes(self) -> int:
        """Bytes of the items together."""
        return int((self.ends - self.starts).sum())

    def encode(self) -> np.ndarray:
        """The ends of the items where they stand one after another, as a stream has them."""
        ends = np.cumsum(self.ends - self.starts).astype(f"<i{self._width}")
        return ends.view(np.uint8)

    def check(self) -> None:
        """CorruptError unless each item lies in its page, behind the one before it."""
        starts, ends = self.starts, self.ends
        if (
            (starts > ends).any()
            or (starts < self._low).any()
            or (ends > self._high).any()
            or (starts[1:] < ends[:-1]).any()
        ):
            raise CorruptError("item ends that do not ascend within their page")
        # Else the item would be another one than in a read of all.
        if (ends < self._high)[self._ends_page].any():
            raise CorruptError("item ends that are not those of their pages")


class Bytes:
    """Of a stream of bytes: those from each start to each end, which ascend, one after another."""

    def __init__(self, starts: np.ndarray, ends: np.ndarray, out: np.ndarray) -> None:
        self._starts = starts
        self._ends = ends
        lengths = ends - starts
        self._places = np.cumsum(lengths) - lengths
        self._out = out

    def accept(self, begin: int, data: np.ndarray) -> None:
        """Take what is in these bytes."""
        stop = begin + len(data)
        first = np.searchsorted(self._ends, begin, "right")
        last = np.searchsorted(self._starts, stop)
        if first >= last:
            return
        starts = np.maximum(self._starts[first:last], begin) - begin
        ends = np.minimum(self._ends[first:last], stop) - begin
        place = int(self._places[first] + begin + starts[0] - self._starts[first])
        # Neighbours as one.
        cuts = np.flatnonzero(starts[1:] != ends[:-1])
        starts, ends = starts[np.append(0, cuts + 1)], ends[np.append(cuts, -1)]
        taken = data[starts[0] : ends[0]] if len(starts) == 1 else _ranges(data, starts, ends)
        self._out[place : place + len(taken)] = taken


def _ranges(data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The bytes from each start to each end, one after another, copied by Arrow."""
    # Items of an array: a range, the gap behind it, the next range...
    offsets = np.stack([starts, ends], axis=1).reshape(-1)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    items = pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
    return view(items.take(pa.array(np.arange(0, len(offsets), 2))).buffers()[2])
