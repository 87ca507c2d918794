"""A list without its items: a stream of item ends, and how many items each page has.

The items are rows of a part of their own. The stream `values` has no bytes in the file: its pages
count rows of that part, so a reader knows which of them a page needs before it reads an end. A null
is an empty list.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from blztable.arrow.types import offsets_of
from blztable.block_terms import ENDS, VALUES
from blztable.columns.blocks import Codec, Encoding, Piece, Stream, StreamLayout, leaf
from blztable.columns.codecs.text import MAX_NARROW, ItemsDecoder, Segment, page_rows_of
from blztable.columns.paging import page_bytes

TYPE_IDS = (pa.lib.Type_LIST, pa.lib.Type_LARGE_LIST)
# Assumed bytes of an item, which decide how many rows a page has.
ITEM_BYTES = 8
# The dtype of items, in place of one of numpy.
ROWS = "rows"


@dataclass(frozen=True, slots=True)
class Below(Encoding):
    """Items that are rows of another part."""

    kind: ClassVar[str] = ROWS
    has_codes: ClassVar[bool] = False

    stored: StreamLayout

    def parameters(self) -> Mapping[str, object]:
        """Return none."""
        return {}


def layout(type_: pa.DataType) -> tuple[StreamLayout, ...]:
    """Return the streams of item ends and of items."""
    width = _width(type_)
    return StreamLayout(ENDS, f"<i{width}", width, 8 * width), StreamLayout(VALUES, ROWS, 1, None)


def encode(
    array: pa.Array, mask: np.ndarray | None, page_rows: int | None
) -> tuple[int, tuple[Stream, ...]]:
    """Return the number of rows of a page, the stream of item ends, and the items of each page.

    The array is one that `flatten` made: its null rows have no items.
    """
    del mask
    of_ends, of_items = layout(array.type)
    offsets = offsets_of(array, of_ends.dtype)
    ends = offsets[1:] - offsets[0]
    page_rows = page_rows or page_rows_of(np.diff(offsets) * ITEM_BYTES)
    items = Stream(of_items, np.empty(0, np.uint8), page_bytes(ends, page_rows), Below(of_items), 0)
    return page_rows, (Stream(of_ends, ends.view(np.uint8)), items)


class ListDecoder(ItemsDecoder):
    """A decoder of item ends; the items of its arrays are nulls, which take no memory."""

    def __init__(self, type_: pa.DataType, pieces: Sequence[Piece]) -> None:
        """Allocate the offsets."""
        width = _width(type_)
        super().__init__(type_, width, pieces, MAX_NARROW if width == 4 else None)

    def array(self, segment: Segment, bitmap: pa.Buffer | None, nulls: int) -> pa.Array:
        """Return the lists of a segment."""
        items = pa.Array.from_buffers(pa.null(), segment.bases[-1], [None])
        buffers = [bitmap, segment.offsets_buffer]
        return pa.Array.from_buffers(self.type, segment.rows, buffers, nulls, children=[items])


def _width(type_: pa.DataType) -> int:
    return 4 if pa.types.is_list(type_) else 8


CODEC = Codec(layout, encode, leaf(ListDecoder))
