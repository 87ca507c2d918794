"""Items: the ends of items as offsets of Arrow arrays, for text and for lists.

Item ends count from the part's first item; the leading 0 is not stored. The decoder turns them
into offsets into the items of the whole column: it adds to the ends of each part the number of
items of the parts before it. A column with offsets of 32 bits is cut into arrays below 2**31.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa

from blztable.arrow.memory import allocate, view
from blztable.block_terms import ENDS, VALID
from blztable.columns.blocks import Decoder, Piece, Target
from blztable.columns.codecs.validity import Validity, whole_items
from blztable.errors import CorruptError

# The most items, or bytes of text, that offsets of 32 bits reach.
MAX_NARROW = (1 << 31) - 1


class ItemsDecoder(Decoder):
    """A decoder of item ends into one buffer of offsets per segment.

    Attributes
    ----------
    segments
        The arrays of the result.
    places
        For each piece its segment, and its index in the segment.
    """

    def __init__(
        self, type_: pa.DataType, width: int, pieces: Sequence[Piece], limit: int | None
    ) -> None:
        """Allocate segments with at most `limit` items, and offsets of `width` bytes."""
        self.type = type_
        self._validity = Validity(pieces)
        sizes = [piece.end_of_items for piece in pieces]
        self.segments = [
            Segment(width, pieces[start:stop]) for start, stop in _segment(sizes, limit)
        ]
        self.places = [
            (segment, index) for segment in self.segments for index in range(len(segment.pieces))
        ]

    def target(self, piece: int, stream: str) -> Target:
        """Return the buffer for the validity or the item ends of this piece."""
        if stream == VALID:
            return self._validity.target(piece)
        assert stream == ENDS, stream
        segment, index = self.places[piece]
        return segment.ends_target(index)

    def checks(self) -> Iterable[Callable[[], None]]:
        """Check the order of all ends."""
        for segment in self.segments:
            segment.check_order()
        return ()

    def finish(self) -> pa.ChunkedArray:
        """Return the column."""
        bitmap, nulls = self._validity.finish()
        if len(self.segments) == 1:
            return pa.chunked_array([self.array(self.segments[0], bitmap, nulls)])
        arrays, start = [], 0
        for segment in self.segments:
            arrays.append(self.array(segment, _bits_from(bitmap, start, segment.rows), -1))
            start += segment.rows
        return pa.chunked_array(arrays, self.type)

    def array(self, segment: "Segment", bitmap: pa.Buffer | None, nulls: int) -> pa.Array:
        """Return the array of a segment, with this number of nulls, -1 if unknown."""
        raise NotImplementedError


class Segment:
    """The offsets of one array of the result, and the pieces that fill them.

    Attributes
    ----------
    bases
        Where the items of each piece begin, and the number of all items.
    offsets
        The offsets, with a leading 0.
    """

    def __init__(self, width: int, pieces: Sequence[Piece]) -> None:
        """Allocate the offsets."""
        self.pieces = pieces
        self._width = width
        self.starts = list(accumulate((piece.rows for piece in pieces), initial=0))
        sizes = (piece.end_of_items for piece in pieces)
        self.bases = list(accumulate(sizes, initial=0))
        self.rows = self.starts[-1]
        self.offsets_buffer = allocate((self.rows + 1) * width)
        self.offsets = view(self.offsets_buffer).view(f"<i{width}")
        self.offsets[0] = 0
        self._seams: list[int] = []

    def offsets_of(self, index: int) -> np.ndarray:
        """Return the offsets of a piece."""
        return self.offsets[self.starts[index] : self.starts[index + 1] + 1]

    def ends_target(self, index: int) -> Target:
        """Return the buffer for the item ends of a piece."""
        first, last = self.starts[index] + 1, self.starts[index + 1] + 1
        size = self.bases[index + 1] - self.bases[index]
        low = self.pieces[index].first_byte
        shift = self.bases[index] - low
        ends = self.offsets[first:last]

        def check(start: int, stop: int) -> None:
            items = whole_items(start, stop, self._width)
            part = ends[items]
            if part[0] < low or part[-1] > low + size or (part[1:] < part[:-1]).any():
                raise CorruptError(f"the item ends do not ascend within {size} bytes")
            if shift:
                ends[start // self._width : stop // self._width] += shift
            self._seams.append(first + items.start)

        return Target(ends.view(np.uint8), check, shift)

    def check_order(self) -> None:
        """Raise CorruptError unless ends ascend across chunks and fill each piece and page."""
        seams = np.array(self._seams, np.int64)
        if (self.offsets[seams] < self.offsets[seams - 1]).any():
            raise CorruptError("the item ends descend from one chunk to the next")
        if (self.offsets[self.starts] != np.array(self.bases)).any():
            raise CorruptError("the item ends do not match the end of the bytes")
        # Otherwise a page that is read alone would have other items than in a full read.
        for piece, start, base in zip(self.pieces, self.starts, self.bases, strict=False):
            ends = np.cumsum(piece.pages, dtype=np.int64) + base
            rows = np.arange(1, len(ends) + 1) * piece.page_rows
            if (self.offsets[start + np.minimum(rows, piece.rows)] != ends).any():
                raise CorruptError("the item ends do not match the end of their page")


def _bits_from(bitmap: pa.Buffer | None, start: int, rows: int) -> pa.Buffer | None:
    """Return the bits of these rows, from bit 0 on."""
    if bitmap is None:
        return None
    if start % 8 == 0:
        return bitmap.slice(start // 8)
    bits = np.unpackbits(view(bitmap), bitorder="little")[start : start + rows]
    return pa.py_buffer(np.packbits(bits, bitorder="little"))


def _segment(sizes: Sequence[int], limit: int | None) -> list[tuple[int, int]]:
    """Return ranges of pieces whose items together stay within `limit`."""
    cuts, total = [0], 0
    for index, size in enumerate(sizes):
        if limit is not None and size > limit:
            raise CorruptError(f"a part has {size} bytes; 32-bit offsets reach to {limit}")
        if limit is not None and total + size > limit:
            cuts.append(index)
            total = 0
        total += size
    return list(zip(cuts, [*cuts[1:], len(sizes)], strict=True))
