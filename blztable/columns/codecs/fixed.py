"""Fixed-width values: numbers, decimals, dates, times, intervals, fixed-size binary.

One stream holds the values with Arrow's bytes. The slot of a null is zero. Any bytes are valid,
except for decimals.

Nulls among floats need no bitmap if no value is NaN: they are stored as NaN. The decoder makes the
bitmap of each range of values once they are decoded, while they are in the cache.
"""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate

import numpy as np
import pyarrow as pa

from blztable.arrow.types import allocate, bytes_of, mask_of, view
from blztable.block_terms import VALID, VALUES
from blztable.columns.blocks import Codec, Decoder, Piece, Stream, StreamBuffer, StreamLayout, leaf
from blztable.columns.codecs.validity import Validity, whole_items
from blztable.columns.paging import page_rows_for
from blztable.columns.parts import decimals
from blztable.columns.parts.physical import NUMPY_TYPES
from blztable.errors import CorruptError, SchemaError

# The NaN that takes the place of a null, by the bytes of a value: quiet, positive, nothing else.
_NANS = {size: np.array(np.nan, f"<f{size}").view(f"<u{size}") for size in (2, 4, 8)}
# Arrow has a 32-bit integer for the number of bits of a value.
MAX_WIDTH = (1 << 28) - 1
TYPE_IDS = (
    *NUMPY_TYPES,
    pa.lib.Type_DECIMAL128,
    pa.lib.Type_DECIMAL256,
    pa.lib.Type_INTERVAL_MONTH_DAY_NANO,
    pa.lib.Type_FIXED_SIZE_BINARY,
)


def width_of(type_: pa.DataType) -> int:
    """Return the number of bytes of a value."""
    width: int = type_.byte_width
    return width


def layout(type_: pa.DataType) -> tuple[StreamLayout, ...]:
    """Return the stream of values; binary of width 0 has none."""
    width = width_of(type_)
    dtype = NUMPY_TYPES.get(type_.id, f"|V{width}")
    typesize = width if width <= 255 else 1
    return (StreamLayout(VALUES, dtype, typesize, 8 * width),) if width else ()


def encode(
    array: pa.Array, mask: np.ndarray | None, page_rows: int | None
) -> tuple[int, tuple[Stream, ...]]:
    """Return the number of rows of a page, and the stream of values."""
    width = width_of(array.type)
    page_rows = page_rows or page_rows_for(width)
    first = array.offset * width
    data = bytes_of(array.buffers()[1])[first : first + len(array) * width]
    if mask is not None and width:
        data = data.copy()
        data.reshape(-1, width)[~mask] = 0
    if pa.types.is_decimal(array.type) and not decimals.are_within(array.type, data):
        raise SchemaError(f"a value has more digits than {array.type}; cast to a wider type")
    return page_rows, tuple(Stream(stream, data) for stream in layout(array.type))


def nan_for_null(array: pa.Array) -> pa.Array | None:
    """Return floats with NaN in place of nulls; None for other types, if no row is null, or if a
    value is NaN.
    """
    if not (pa.types.is_floating(array.type) and array.null_count):
        return None
    valid = mask_of(array)
    assert valid is not None
    # The buffer may have bytes behind the last value.
    width, data = width_of(array.type), bytes_of(array.buffers()[1])
    data = data[array.offset * width : (array.offset + len(array)) * width]
    values = data.view(NUMPY_TYPES[array.type.id])
    nan = _NANS[values.itemsize]
    if (np.isnan(values) & valid).any():
        return None
    bits = values.view(f"<u{values.itemsize}")
    if np.count_nonzero(bits == nan) != array.null_count:
        bits = np.where(valid, bits, nan)
    return pa.Array.from_buffers(array.type, len(array), [None, pa.py_buffer(bits)], 0)


class FixedDecoder(Decoder):
    """A decoder that decodes values straight into one buffer."""

    def __init__(self, type_: pa.DataType, pieces: Sequence[Piece]) -> None:
        """Allocate memory for all pieces."""
        self._type = type_
        self._width = width_of(type_)
        self._is_decimal = pa.types.is_decimal(type_)
        # The pieces whose bitmap is made at the end, because a chunk cuts eight rows.
        self._cut: set[int] = set()
        self._pieces = pieces
        self._starts = list(accumulate((piece.rows for piece in pieces), initial=0))
        self._validity = Validity(pieces)
        self._values = allocate(self._starts[-1] * self._width)
        self._bytes = view(self._values)

    def target(self, piece: int, stream: str) -> StreamBuffer:
        """Return the buffer for this stream of this piece."""
        if stream == VALID:
            return self._validity.target(piece)
        start = self._starts[piece] * self._width
        stop = self._starts[piece + 1] * self._width
        part = self._bytes[start:stop]
        if self._pieces[piece].nan_is_null:
            check = partial(self._find_nulls, piece, part)
            return StreamBuffer(part, check, valid=self._validity.bits(piece))
        return StreamBuffer(part, partial(self._check, part) if self._is_decimal else None)

    def _check(self, part: np.ndarray, start: int, stop: int) -> None:
        whole_items(start, stop, self._width)
        if not decimals.are_within(self._type, part[start:stop]):
            raise CorruptError(f"a value has more digits than {self._type}")

    def _find_nulls(self, piece: int, part: np.ndarray, start: int, stop: int) -> None:
        """Set the bits of the rows whose values are not NaN."""
        eight = 8 * self._width
        if start % eight or (stop % eight and stop < len(part)):
            self._cut.add(piece)
            return
        values = part[start:stop].view(NUMPY_TYPES[self._type.id])
        bits = self._validity.bits(piece)[start // eight : -(-stop // eight)]
        bits[:] = np.packbits(values == values, bitorder="little")

    def finish(self) -> pa.ChunkedArray:
        """Return the column."""
        for piece in self._cut:
            part = self.target(piece, VALUES).buffer
            self._find_nulls(piece, part, 0, len(part))
        bitmap, nulls = self._validity.finish()
        buffers = [bitmap, self._values]
        array = pa.Array.from_buffers(self._type, self._starts[-1], buffers, nulls)
        return pa.chunked_array([array])


CODEC = Codec(layout, encode, leaf(FixedDecoder))
