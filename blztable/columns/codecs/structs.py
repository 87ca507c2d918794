"""Structs: only which rows are null; each field is a part of its own."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from blztable.columns.blocks import Codec, Decoder, Piece, Stream, StreamBuffer, StreamLayout, leaf
from blztable.columns.codecs.validity import Validity
from blztable.columns.paging import USUAL_PAGE_ROWS

TYPE_IDS = (pa.lib.Type_STRUCT,)


def layout(type_: pa.DataType) -> tuple[StreamLayout, ...]:
    """Return no stream beside the validity."""
    assert type_.id in TYPE_IDS, type_
    return ()


def encode(
    array: pa.Array, mask: np.ndarray | None, page_rows: int | None
) -> tuple[int, tuple[Stream, ...]]:
    """Return the number of rows of a page, and no stream."""
    del array, mask
    return page_rows or USUAL_PAGE_ROWS, ()


class StructDecoder(Decoder):
    """A decoder of the validity."""

    def __init__(self, type_: pa.DataType, pieces: Sequence[Piece]) -> None:
        """Count the rows."""
        self._type = type_
        self._validity = Validity(pieces)
        self._rows = sum(piece.rows for piece in pieces)

    def target(self, piece: int, stream: str) -> StreamBuffer:
        """Return the buffer for the validity of this piece."""
        del stream
        return self._validity.target(piece)

    def finish(self) -> pa.ChunkedArray:
        """Return the column."""
        bitmap, nulls = self._validity.finish()
        return pa.chunked_array([pa.Array.from_buffers(self._type, self._rows, [bitmap], nulls)])


CODEC = Codec(layout, encode, leaf(StructDecoder))
