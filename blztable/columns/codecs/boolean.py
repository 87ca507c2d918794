"""Booleans: one byte per row, 0 or 1, so that other readers of Bloscpack see a plain array.

Knows nothing of files.
"""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa

from blztable.arrow.types import bits_of, bytes_of
from blztable.block_terms import VALID, VALUES
from blztable.columns.blocks import Codec, Decoder, Piece, Stream, StreamBuffer, StreamLayout, leaf
from blztable.columns.codecs.validity import Validity
from blztable.columns.paging import page_rows_for
from blztable.errors import CorruptError

TYPE_IDS = (pa.lib.Type_BOOL,)
_LAYOUT = (StreamLayout(VALUES, "|u1", 1, 8),)


def layout(type_: pa.DataType) -> tuple[StreamLayout, ...]:
    """Return the stream of values."""
    assert type_.id in TYPE_IDS, type_
    return _LAYOUT


def encode(
    array: pa.Array, mask: np.ndarray | None, page_rows: int | None
) -> tuple[int, tuple[Stream, ...]]:
    """Return the number of rows of a page, and the stream: one byte for each row."""
    data = bits_of(bytes_of(array.buffers()[1]), array.offset, len(array))
    if mask is not None:
        data = data & mask
    return page_rows or page_rows_for(1), (Stream(_LAYOUT[0], data),)


class BooleanDecoder(Decoder):
    """A decoder that collects bytes, and packs them into Arrow's bits at the end."""

    def __init__(self, type_: pa.DataType, pieces: Sequence[Piece]) -> None:
        """Allocate memory for all pieces."""
        self._type = type_
        self._starts = list(accumulate((piece.rows for piece in pieces), initial=0))
        self._validity = Validity(pieces)
        self._bytes = np.empty(self._starts[-1], np.uint8)

    def target(self, piece: int, stream: str) -> StreamBuffer:
        """Return the buffer for this stream of this piece."""
        if stream == VALID:
            return self._validity.target(piece)
        part = self._bytes[self._starts[piece] : self._starts[piece + 1]]

        def check(start: int, stop: int) -> None:
            if part[start:stop].max() > 1:
                raise CorruptError(f"a boolean is {part[start:stop].max()}; expected 0 or 1")

        return StreamBuffer(part, check)

    def finish(self) -> pa.ChunkedArray:
        """Return the column."""
        bitmap, nulls = self._validity.finish()
        bits = pa.py_buffer(np.packbits(self._bytes, bitorder="little"))
        buffers = [bitmap, bits]
        array = pa.Array.from_buffers(self._type, self._starts[-1], buffers, nulls)
        return pa.chunked_array([array])


CODEC = Codec(layout, encode, leaf(BooleanDecoder))
