"""Encodings of item ends: the length of each item, one length for all, or the sizes of chunks.

Knows numpy's numbers, and nothing of Arrow types.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from blztable.block_terms import ENDS, PER_ITEM
from blztable.columns.blocks import Block, Encoding, Stream, StreamLayout
from blztable.errors import CorruptError

# A stream whose bytes are made of nothing is at most this large: the file claims it for free.
MAX_MADE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Lengths(Encoding):
    """Item ends as the lengths of the items.

    Attributes
    ----------
    stored
        The form of the lengths.
    width
        The bytes of an item end.
    starts
        Where the items of each page begin, and where the last ones end.
    page_rows
        Rows of a page.
    """

    kind: ClassVar[str] = "lengths"
    needs_pages: ClassVar[bool] = True

    stored: StreamLayout
    width: int
    starts: np.ndarray
    page_rows: int

    def parameters(self) -> Mapping[str, object]:
        """Return none: the stream of the items states the bytes of each page."""
        return {}

    def shifted(self, by: int) -> "Lengths":
        """Return an encoding that adds a number to the ends."""
        return replace(self, starts=self.starts + by)

    def decode(self, row: int, codes: np.ndarray, out: np.ndarray) -> None:
        """Sum up the lengths of each page; raise CorruptError if they are not those of its items.

        Ends that could wrap are summed up in 64 bits first, which no page can exceed. So the ends
        ascend.
        """
        ends, lengths = out.view(f"<i{self.width}"), codes.view(self.stored.dtype)
        for first in range(0, len(lengths), self.page_rows):
            part = lengths[first : first + self.page_rows]
            place = ends[first : first + len(part)]
            page = (row + first) // self.page_rows
            start, stop = int(self.starts[page]), int(self.starts[page + 1])
            most = max(start, 0) + (len(part) << 8 * part.itemsize)
            may_wrap = most >> (8 * self.width - 1) > 0
            is_sound = not may_wrap or int(part.sum(dtype=np.int64)) == stop - start
            np.cumsum(part, out=place)
            if start:
                place += start
            if not is_sound or int(place[-1]) != stop:
                raise CorruptError(f"the lengths of the items of page {page} do not add up")


@dataclass(frozen=True, slots=True)
class OneLength(Encoding):
    """Item ends of items that all have one length."""

    kind: ClassVar[str] = "each"
    has_codes: ClassVar[bool] = False

    stored: StreamLayout
    length: int
    first: int = 0

    def parameters(self) -> Mapping[str, object]:
        """Return the length."""
        return {"length": self.length}

    def shifted(self, by: int) -> "OneLength":
        """Return an encoding that adds a number to the ends."""
        return replace(self, first=self.first + by)

    def decode(self, row: int, codes: np.ndarray, out: np.ndarray) -> None:
        """Count up by the length of an item."""
        ends = out.view(self.stored.dtype)
        ends[:] = np.arange(row + 1, row + 1 + len(ends)) * self.length + self.first


@dataclass(frozen=True, slots=True)
class ByChunks(Encoding):
    """Item ends of items that are a chunk each.

    Attributes
    ----------
    ends
        Where each chunk ends in the stream of the items.
    """

    kind: ClassVar[str] = PER_ITEM
    has_codes: ClassVar[bool] = False

    stored: StreamLayout
    ends: np.ndarray
    first: int = 0

    def parameters(self) -> Mapping[str, object]:
        """Return none: the stream of the items states the bytes of each chunk."""
        return {}

    def shifted(self, by: int) -> "ByChunks":
        """Return an encoding that adds a number to the ends."""
        return replace(self, first=self.first + by)

    def decode(self, row: int, codes: np.ndarray, out: np.ndarray) -> None:
        """Return the ends of the chunks of these rows."""
        ends = out.view(self.stored.dtype)
        ends[:] = self.ends[row : row + len(ends)] + self.first


def per_item(block: Block) -> Block | None:
    """Return a block of text or binary whose items are to be a chunk each; None for other types."""
    values = next((one for one in block.streams if one.ends is not None), None)
    if values is None:
        return None
    assert values.ends is not None
    streams = list(block.streams)
    for number, stream in enumerate(streams):
        if stream.layout.name == ENDS:
            width = values.ends.itemsize
            own = StreamLayout(ENDS, values.ends.dtype.str, width, 8 * width)
            encoding = ByChunks(own, values.ends)
            streams[number] = Stream(own, stream.data[:0], None, encoding, values.ends.nbytes)
    return replace(block, streams=tuple(streams), packing=PER_ITEM)


def starts_of(pages: Sequence[int] | None) -> np.ndarray:
    """Return where the items of each page begin, and where the last ones end."""
    return np.cumsum(np.array([0, *(pages or ())], np.int64))
