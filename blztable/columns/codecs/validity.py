"""Validity: one bit per row. A set bit means that the row has a value.

Knows nothing of types or files.
"""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa

from blztable.arrow.types import allocate, bits_of, view
from blztable.columns.blocks import VALIDITY, Piece, Stream, StreamBuffer
from blztable.errors import CorruptError


def encode(mask: np.ndarray | None) -> tuple[Stream, ...]:
    """Return the stream of a mask; no stream if every row has a value."""
    if mask is None:
        return ()
    return (Stream(VALIDITY, np.packbits(mask, bitorder="little")),)


class Validity:
    """The bitmap of a column being decoded.

    If each piece begins at a whole byte, all pieces are decoded straight into the bitmap. Otherwise
    each piece is decoded into its own memory and merged at the end, because two threads must not
    write to the same byte.
    """

    def __init__(self, pieces: Sequence[Piece]) -> None:
        """Allocate the bitmap if any piece has one."""
        self._pieces = pieces
        self._starts = list(accumulate((piece.rows for piece in pieces), initial=0))
        self._rows = self._starts[-1]
        present = [piece.has_nulls for piece in pieces]
        self._bitmap: pa.Buffer | None = None
        self._aside: dict[int, np.ndarray] | None = None
        if not any(present):
            return
        self._bitmap = allocate(-(-self._rows // 8))
        if any(start % 8 for start in self._starts[:-1]):
            self._aside = {
                index: np.empty(-(-piece.rows // 8), np.uint8)
                for index, piece in enumerate(pieces)
                if present[index]
            }
            return
        for index, is_present in enumerate(present):
            if not is_present:
                self._bytes(index)[:] = 0xFF

    def target(self, piece: int) -> StreamBuffer:
        """Return the buffer for the bitmap of this piece."""
        return StreamBuffer(self.bits(piece))

    def bits(self, piece: int) -> np.ndarray:
        """Return the bytes of the bitmap of this piece, which must have nulls."""
        return self._bytes(piece) if self._aside is None else self._aside[piece]

    def finish(self) -> tuple[pa.Buffer | None, int]:
        """Return the bitmap and the number of nulls; no bitmap if there are none."""
        if self._bitmap is None:
            return None, 0
        bitmap = view(self._bitmap)
        if self._aside is not None:
            bits = np.ones(self._rows, np.uint8)
            for index, packed in self._aside.items():
                rows = self._pieces[index].rows
                start = self._starts[index]
                bits[start : start + rows] = bits_of(packed, 0, rows)
            bitmap[:] = np.packbits(bits, bitorder="little")
        elif self._rows % 8:
            bitmap[-1] &= (1 << self._rows % 8) - 1
        nulls = self._rows - int(np.bitwise_count(bitmap).sum(dtype=np.int64))
        return (self._bitmap if nulls else None), nulls

    def _bytes(self, piece: int) -> np.ndarray:
        assert self._bitmap is not None
        start, rows = self._starts[piece], self._pieces[piece].rows
        return view(self._bitmap)[start // 8 : start // 8 + -(-rows // 8)]


def whole_items(start: int, stop: int, width: int) -> slice:
    """Return the items that lie in these bytes; raise CorruptError if a chunk cuts an item."""
    if start % width or stop % width:
        raise CorruptError(f"bytes {start} to {stop} cut an item of {width} bytes")
    return slice(start // width, stop // width)
