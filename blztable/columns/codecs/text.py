"""Text and binary: a stream of item ends and a stream of bytes; the ends of the items of lists.

Item ends are as wide as the offsets of the Arrow type. A null is an empty item.

Text is checked to be UTF-8 before Arrow reads it. A range of ASCII needs no further check. In other
ranges, whole items are checked in a second step, after their ends were checked.

Items: the ends of items as offsets of Arrow arrays, for text and for lists. Item ends count from
the part's first item; the leading 0 is not stored. The decoder turns them into offsets into the
items of the whole column: it adds to the ends of each part the number of items of the parts before
it. A column with offsets of 32 bits is cut into arrays below 2**31.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.types import allocate, bytes_of, offsets_of, view
from blztable.block_terms import ENDS, VALID, VALUES
from blztable.columns.blocks import Codec, Decoder, Piece, Stream, StreamBuffer, StreamLayout, leaf
from blztable.columns.codecs.validity import Validity, whole_items
from blztable.columns.paging import page_bytes, page_rows_for
from blztable.errors import CorruptError, SchemaError

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

    def target(self, piece: int, stream: str) -> StreamBuffer:
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

    def ends_target(self, index: int) -> StreamBuffer:
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

        return StreamBuffer(ends.view(np.uint8), check, shift)

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


NARROW = (pa.lib.Type_STRING, pa.lib.Type_BINARY)
TEXT = (pa.lib.Type_STRING, pa.lib.Type_LARGE_STRING)
TYPE_IDS = (*NARROW, pa.lib.Type_LARGE_STRING, pa.lib.Type_LARGE_BINARY)

# Larger items are ignored for the size of a page: a few huge items must not shrink all pages.
_HUGE_ITEM = 1 << 16
# Number of bytes of text in one UTF-8 check.
_CHECK_BYTES = 4 << 20


def layout(type_: pa.DataType) -> tuple[StreamLayout, ...]:
    """Return the streams of item ends and of bytes."""
    width = _width(type_)
    return StreamLayout(ENDS, f"<i{width}", width, 8 * width), StreamLayout(VALUES, "|u1", 1, None)


def encode(
    array: pa.Array, mask: np.ndarray | None, page_rows: int | None
) -> tuple[int, tuple[Stream, ...]]:
    """Return the number of rows of a page, and the streams of item ends and bytes."""
    array, offsets, lengths, values = sound_items(array, mask)
    if array.type.id in TEXT and not _is_ascii(values):
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as error:
            raise SchemaError(f"the text is not UTF-8: {error}") from None
    ends = offsets[1:] - offsets[0] if offsets[0] else offsets[1:]
    page_rows = page_rows or page_rows_of(lengths)
    of_ends, of_values = layout(array.type)
    pages = page_bytes(ends, page_rows)
    items = Stream(of_values, values, pages, ends=ends)
    return page_rows, (Stream(of_ends, ends.view(np.uint8)), items)


def sound_items(
    array: pa.Array, mask: np.ndarray | None
) -> tuple[pa.Array, np.ndarray, np.ndarray, np.ndarray]:
    """Return the array with empty items as nulls; its offsets, and lengths and bytes of its items.

    Raise SchemaError if the offsets lead out of the bytes.
    """
    offsets = _offsets(array)
    lengths = np.diff(offsets)
    if mask is not None and lengths[~mask].any():
        array = pc.fill_null(array, pa.scalar("", array.type))
        offsets = _offsets(array)
        lengths = np.diff(offsets)
    first, last = int(offsets[0]), int(offsets[-1])
    values = bytes_of(array.buffers()[2])[first:last]
    if first < 0 or len(values) != last - first or (len(lengths) and lengths.min() < 0):
        raise SchemaError("the offsets of an Arrow array do not ascend within its data")
    return array, offsets, lengths, values


def page_rows_of(lengths: np.ndarray) -> int:
    """Return the number of rows of a page of items of these lengths."""
    return page_rows_for(max(_usual_length(lengths), 8))


def _usual_length(lengths: np.ndarray) -> float:
    """Return the mean length of an item; huge items count only if all items are huge."""
    if len(lengths) == 0:
        return 0
    if lengths.max() > _HUGE_ITEM >= lengths.min():
        lengths = lengths[lengths <= _HUGE_ITEM]
    return float(lengths.mean())


class TextDecoder(ItemsDecoder):
    """A decoder straight into one buffer of offsets and one buffer of data per segment."""

    def __init__(
        self, type_: pa.DataType, pieces: Sequence[Piece], limit: int | None = None
    ) -> None:
        """Allocate segments of at most `limit` bytes; a 32-bit type has its own limit."""
        self._is_text = type_.id in TEXT
        if type_.id in NARROW:
            limit = MAX_NARROW
        super().__init__(type_, _width(type_), pieces, limit)
        self._buffers = {id(segment): allocate(segment.bases[-1]) for segment in self.segments}
        self._beyond_ascii: set[int] = set()

    def target(self, piece: int, stream: str) -> StreamBuffer:
        """Return the buffer for this stream of this piece."""
        if stream != VALUES:
            return super().target(piece, stream)
        segment, index = self.places[piece]
        data = self._bytes(segment)[segment.bases[index] : segment.bases[index + 1]]

        def check(start: int, stop: int) -> None:
            if not _is_ascii(data[start:stop]):
                self._beyond_ascii.add(piece)

        return StreamBuffer(data, check if self._is_text else None)

    def checks(self) -> Iterable[Callable[[], None]]:
        """Check the order of all ends; return UTF-8 checks, of a few megabytes each."""
        yield from super().checks()
        for piece in sorted(self._beyond_ascii):
            segment, index = self.places[piece]
            offsets = segment.offsets_of(index)
            yield from _utf8_checks(self._bytes(segment), offsets)

    def array(self, segment: Segment, bitmap: pa.Buffer | None, nulls: int) -> pa.Array:
        """Return the text of a segment."""
        buffers = [bitmap, segment.offsets_buffer, self._buffers[id(segment)]]
        return pa.Array.from_buffers(self.type, segment.rows, buffers, nulls)

    def _bytes(self, segment: Segment) -> np.ndarray:
        return view(self._buffers[id(segment)])


CODEC = Codec(layout, encode, leaf(TextDecoder))


def _width(type_: pa.DataType) -> int:
    return 4 if type_.id in NARROW else 8


def _offsets(array: pa.Array) -> np.ndarray:
    """Return the offsets of an array; their number is one more than its rows."""
    return offsets_of(array, f"<i{_width(array.type)}")


def _is_ascii(data: np.ndarray) -> bool:
    return len(data) == 0 or bool(data.view(np.int8).min() >= 0)


def _utf8_checks(values: np.ndarray, offsets: np.ndarray) -> Iterator[Callable[[], None]]:
    """Yield checks of the items with these offsets, of a few megabytes each."""
    marks = np.arange(int(offsets[0]), int(offsets[-1]), _CHECK_BYTES)
    cuts = np.unique(np.append(np.searchsorted(offsets, marks), len(offsets) - 1)).tolist()
    for start, stop in zip([0, *cuts], cuts, strict=False):
        if start < stop:
            yield partial(_check_utf8, values, offsets[start : stop + 1])


def _check_utf8(values: np.ndarray, offsets: np.ndarray) -> None:
    """Raise CorruptError unless the bytes are UTF-8 and no item begins inside a character."""
    start, stop = int(offsets[0]), int(offsets[-1])
    data = values[start:stop]
    ends = pa.py_buffer(np.array([0, len(data)], np.int64))
    whole = pa.Array.from_buffers(pa.large_string(), 1, [None, ends, pa.py_buffer(data)])
    try:
        whole.validate(full=True)
    except pa.ArrowInvalid:
        raise CorruptError("the text is not UTF-8") from None
    begins = offsets[offsets < stop] - start
    if ((data[begins] & 0xC0) == 0x80).any():
        raise CorruptError("an item of text begins inside a character")
