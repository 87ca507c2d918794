"""Fixed-width values: numbers, decimals, dates, times, intervals, fixed-size binary.

One stream holds the values with Arrow's bytes. The slot of a null is zero. Any bytes are valid,
except for decimals.
"""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate

import numpy as np
import pyarrow as pa

from blztable.block_terms import VALID, VALUES
from blztable.columns.blocks import Codec, Decoder, Piece, Stream, StreamLayout, Target, leaf
from blztable.columns.codecs import decimals
from blztable.columns.codecs.validity import Validity, whole_items
from blztable.columns.memory import allocate, bytes_of, view
from blztable.columns.paging import page_rows_for
from blztable.errors import CorruptError, SchemaError

# The numpy types of the types whose values numpy can view and order.
NUMPY_TYPES = {
    pa.lib.Type_INT8: "<i1",
    pa.lib.Type_INT16: "<i2",
    pa.lib.Type_INT32: "<i4",
    pa.lib.Type_INT64: "<i8",
    pa.lib.Type_UINT8: "<u1",
    pa.lib.Type_UINT16: "<u2",
    pa.lib.Type_UINT32: "<u4",
    pa.lib.Type_UINT64: "<u8",
    pa.lib.Type_HALF_FLOAT: "<f2",
    pa.lib.Type_FLOAT: "<f4",
    pa.lib.Type_DOUBLE: "<f8",
    pa.lib.Type_DECIMAL32: "<i4",
    pa.lib.Type_DECIMAL64: "<i8",
    pa.lib.Type_DATE32: "<i4",
    pa.lib.Type_DATE64: "<i8",
    pa.lib.Type_TIME32: "<i4",
    pa.lib.Type_TIME64: "<i8",
    pa.lib.Type_TIMESTAMP: "<i8",
    pa.lib.Type_DURATION: "<i8",
}
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


class FixedDecoder(Decoder):
    """A decoder that decodes values straight into one buffer."""

    def __init__(self, type_: pa.DataType, pieces: Sequence[Piece]) -> None:
        """Allocate memory for all pieces."""
        self._type = type_
        self._width = width_of(type_)
        self._is_decimal = pa.types.is_decimal(type_)
        self._pieces = pieces
        self._starts = list(accumulate((piece.rows for piece in pieces), initial=0))
        self._validity = Validity(pieces)
        self._values = allocate(self._starts[-1] * self._width)
        self._bytes = view(self._values)

    def target(self, piece: int, stream: str) -> Target:
        """Return the buffer for this stream of this piece."""
        if stream == VALID:
            return self._validity.target(piece)
        start = self._starts[piece] * self._width
        stop = self._starts[piece + 1] * self._width
        part = self._bytes[start:stop]
        return Target(part, partial(self._check, part) if self._is_decimal else None)

    def _check(self, part: np.ndarray, start: int, stop: int) -> None:
        whole_items(start, stop, self._width)
        if not decimals.are_within(self._type, part[start:stop]):
            raise CorruptError(f"a value has more digits than {self._type}")

    def finish(self) -> pa.ChunkedArray:
        """Return the column."""
        bitmap, nulls = self._validity.finish()
        buffers = [bitmap, self._values]
        array = pa.Array.from_buffers(self._type, self._starts[-1], buffers, nulls)
        return pa.chunked_array([array])


CODEC = Codec(layout, encode, leaf(FixedDecoder))
