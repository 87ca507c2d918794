"""The null type: a number of rows, without a stream and without a file."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from blztable.columns.blocks import Codec, Decoder, Piece, Stream, StreamLayout, leaf
from blztable.columns.paging import USUAL_PAGE_ROWS

TYPE_IDS = (pa.lib.Type_NA,)


def layout(type_: pa.DataType) -> tuple[StreamLayout, ...]:
    """Return no stream."""
    assert type_.id in TYPE_IDS, type_
    return ()


def encode(
    array: pa.Array, mask: np.ndarray | None, page_rows: int | None
) -> tuple[int, tuple[Stream, ...]]:
    """Return the number of rows of a page, and no stream."""
    del array, mask
    return page_rows or USUAL_PAGE_ROWS, ()


class NullDecoder(Decoder):
    """A decoder that only counts rows."""

    def __init__(self, type_: pa.DataType, pieces: Sequence[Piece]) -> None:
        """Count the rows."""
        assert type_.id in TYPE_IDS, type_
        self._rows = sum(piece.rows for piece in pieces)

    def finish(self) -> pa.ChunkedArray:
        """Return the column."""
        return pa.chunked_array([nulls(self._rows)])


def nulls(rows: int) -> pa.Array:
    """Return an array of `rows` nulls that takes no memory; `pa.nulls` takes a bit per row."""
    return pa.Array.from_buffers(pa.null(), rows, [None])


CODEC = Codec(layout, encode, leaf(NullDecoder))
