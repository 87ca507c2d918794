"""Text and binary: a stream of item ends and a stream of bytes.

Item ends count from the part's first byte; the leading 0 is not stored. They are as wide as the
offsets of the Arrow type. The decoder turns them into offsets into one buffer of the whole column:
it adds to the ends of each part the number of bytes of the parts before it. A column of a 32-bit
type is cut into arrays below 2 GiB. A null is an empty item.

Text is checked to be UTF-8 before Arrow reads it. A range of ASCII needs no further check. In other
ranges, whole items are checked in a second step, after their ends were checked.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.block_terms import ENDS, VALID, VALUES
from blztable.columns.blocks import Codec, Decoder, Piece, Stream, StreamLayout, Target, leaf
from blztable.columns.codecs.validity import Validity, whole_items
from blztable.columns.memory import allocate, bytes_of, numbers_in, view
from blztable.columns.paging import page_bytes, page_rows_for
from blztable.errors import CorruptError, SchemaError

NARROW = (pa.lib.Type_STRING, pa.lib.Type_BINARY)
TEXT = (pa.lib.Type_STRING, pa.lib.Type_LARGE_STRING)
TYPE_IDS = (*NARROW, pa.lib.Type_LARGE_STRING, pa.lib.Type_LARGE_BINARY)

MAX_NARROW_BYTES = (1 << 31) - 1
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
    array, offsets, values = sound_items(array, mask)
    if array.type.id in TEXT and not _is_ascii(values):
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as error:
            raise SchemaError(f"the text is not UTF-8: {error}") from None
    ends = offsets[1:] - offsets[0] if offsets[0] else offsets[1:]
    page_rows = page_rows or page_rows_of(np.diff(offsets))
    of_ends, of_values = layout(array.type)
    pages = page_bytes(ends, page_rows)
    return page_rows, (Stream(of_ends, ends.view(np.uint8)), Stream(of_values, values, pages))


def sound_items(
    array: pa.Array, mask: np.ndarray | None
) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """Return the array with empty items as nulls, its offsets, and the bytes of its items.

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
    return array, offsets, values


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


class TextDecoder(Decoder):
    """A decoder straight into one buffer of offsets and one buffer of data per segment."""

    def __init__(
        self, type_: pa.DataType, pieces: Sequence[Piece], limit: int | None = None
    ) -> None:
        """Allocate segments of at most `limit` bytes; a 32-bit type has its own limit."""
        self._type = type_
        self._is_text = type_.id in TEXT
        self._pieces = pieces
        self._validity = Validity(pieces)
        if type_.id in NARROW:
            limit = MAX_NARROW_BYTES
        sizes = [piece.sizes.get(VALUES, 0) for piece in pieces]
        self._segments = [
            _Segment(type_, pieces[start:stop]) for start, stop in _segment(sizes, limit)
        ]
        self._places = [
            (segment, index) for segment in self._segments for index in range(len(segment.pieces))
        ]
        self._beyond_ascii: set[int] = set()

    def target(self, piece: int, stream: str) -> Target:
        """Return the buffer for this stream of this piece."""
        if stream == VALID:
            return self._validity.target(piece)
        segment, index = self._places[piece]
        if stream == ENDS:
            return segment.ends_target(index)
        data = segment.values_of(index)

        def check(start: int, stop: int) -> None:
            if not _is_ascii(data[start:stop]):
                self._beyond_ascii.add(piece)

        return Target(data, check if self._is_text else None)

    def checks(self) -> Iterable[Callable[[], None]]:
        """Check the order of all ends; return UTF-8 checks, of a few megabytes each."""
        for segment in self._segments:
            segment.check_order()
        for piece in sorted(self._beyond_ascii):
            segment, index = self._places[piece]
            yield from segment.utf8_checks(index)

    def finish(self) -> pa.ChunkedArray:
        """Return the column."""
        bitmap, nulls = self._validity.finish()
        if len(self._segments) == 1:
            return pa.chunked_array([self._segments[0].finish(bitmap, 0, nulls)])
        arrays, start = [], 0
        for segment in self._segments:
            arrays.append(segment.finish(bitmap, start, -1))
            start += segment.rows
        return pa.chunked_array(arrays, self._type)


class _Segment:
    """One array of the result: its offsets and data, and the pieces that fill them."""

    def __init__(self, type_: pa.DataType, pieces: Sequence[Piece]) -> None:
        self.type = type_
        self.pieces = pieces
        self.width = _width(type_)
        self.starts = list(accumulate((piece.rows for piece in pieces), initial=0))
        sizes = (piece.sizes.get(VALUES, 0) for piece in pieces)
        self.bases = list(accumulate(sizes, initial=0))
        self.rows = self.starts[-1]
        self.offsets_buffer = allocate((self.rows + 1) * self.width)
        self.offsets = view(self.offsets_buffer).view(f"<i{self.width}")
        self.offsets[0] = 0
        self.values_buffer = allocate(self.bases[-1])
        self.values = view(self.values_buffer)
        self.seams: list[int] = []

    def values_of(self, index: int) -> np.ndarray:
        return self.values[self.bases[index] : self.bases[index + 1]]

    def ends_target(self, index: int) -> Target:
        first, last = self.starts[index] + 1, self.starts[index + 1] + 1
        size = self.bases[index + 1] - self.bases[index]
        low = self.pieces[index].first_byte
        shift = self.bases[index] - low
        ends = self.offsets[first:last]

        def check(start: int, stop: int) -> None:
            items = whole_items(start, stop, self.width)
            part = ends[items]
            if part[0] < low or part[-1] > low + size or (part[1:] < part[:-1]).any():
                raise CorruptError(f"the item ends do not ascend within {size} bytes")
            if shift:
                ends[start // self.width : stop // self.width] += shift
            self.seams.append(first + items.start)

        return Target(ends.view(np.uint8), check, shift)

    def check_order(self) -> None:
        """Raise CorruptError unless ends ascend across chunks and fill each piece and page."""
        seams = np.array(self.seams, np.int64)
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

    def utf8_checks(self, index: int) -> Iterable[Callable[[], None]]:
        first, last = self.starts[index], self.starts[index + 1]
        offsets = self.offsets[first : last + 1]
        marks = np.arange(self.bases[index], self.bases[index + 1], _CHECK_BYTES)
        cuts = np.unique(np.append(np.searchsorted(offsets, marks), last - first)).tolist()
        for start, stop in zip([0, *cuts], cuts, strict=False):
            if start < stop:
                yield partial(_check_utf8, self.values, offsets[start : stop + 1])

    def finish(self, bitmap: pa.Buffer | None, start: int, nulls: int) -> pa.Array:
        if bitmap is not None and start % 8 == 0:
            bitmap = bitmap.slice(start // 8)
        elif bitmap is not None:
            bits = np.unpackbits(view(bitmap), bitorder="little")[start : start + self.rows]
            bitmap = pa.py_buffer(np.packbits(bits, bitorder="little"))
        buffers = [bitmap, self.offsets_buffer, self.values_buffer]
        return pa.Array.from_buffers(self.type, self.rows, buffers, nulls)


CODEC = Codec(layout, encode, leaf(TextDecoder))


def _width(type_: pa.DataType) -> int:
    return 4 if type_.id in NARROW else 8


def _offsets(array: pa.Array) -> np.ndarray:
    """Return the offsets of an array; their number is one more than its rows."""
    dtype = f"<i{_width(array.type)}"
    offsets = numbers_in(array.buffers()[1], dtype, array.offset, len(array) + 1)
    return offsets if len(offsets) else np.zeros(1, dtype)


def _is_ascii(data: np.ndarray) -> bool:
    return len(data) == 0 or bool(data.view(np.int8).min() >= 0)


def _segment(sizes: Sequence[int], limit: int | None) -> list[tuple[int, int]]:
    """Return ranges of pieces whose bytes together stay within `limit`."""
    cuts, total = [0], 0
    for index, size in enumerate(sizes):
        if limit is not None and size > limit:
            raise CorruptError(f"a part has {size} bytes; 32-bit offsets reach to {limit}")
        if limit is not None and total + size > limit:
            cuts.append(index)
            total = 0
        total += size
    return list(zip(cuts, [*cuts[1:], len(sizes)], strict=True))


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
