"""The null type: rows and nothing else, neither stream nor file."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa

from blztable.columns.blocks import Piece, Stream, StreamLayout, Target
from blztable.columns.paging import USUAL_PAGE_ROWS

TYPE_IDS = (pa.lib.Type_NA,)


def layout(type_: pa.DataType) -> tuple[StreamLayout, ...]:
    """No stream."""
    assert type_.id in TYPE_IDS, type_
    return ()


def encode(
    array: pa.Array, mask: np.ndarray | None, page_rows: int | None
) -> tuple[int, tuple[Stream, ...]]:
    """The rows of a page, and no stream."""
    del array, mask
    return page_rows or USUAL_PAGE_ROWS, ()


class NullDecoder:
    """Counts rows."""

    def __init__(self, type_: pa.DataType, pieces: Sequence[Piece]) -> None:
        """Count the rows."""
        assert type_.id in TYPE_IDS, type_
        self._rows = sum(piece.rows for piece in pieces)

    def target(self, piece: int, stream: str) -> Target:
        """Never asked: there is no stream."""
        raise AssertionError(f"piece {piece} of a null column has no stream {stream!r}")

    def checks(self) -> Iterable[Callable[[], None]]:
        """None."""
        return ()

    def finish(self) -> pa.ChunkedArray:
        """The column."""
        return pa.chunked_array([nulls(self._rows)])


def nulls(rows: int) -> pa.Array:
    """So many nulls in no memory, of which `pa.nulls` takes a bit a row."""
    return pa.Array.from_buffers(pa.null(), rows, [None])


decoder = NullDecoder
