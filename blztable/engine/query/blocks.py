"""Blocks: rows of which a filter may leave some, pages or row groups; many of them, in arrays.

Knows how rows are cut, and neither what a filter is nor where rows lie in a file.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from blztable.engine.read.selection import RowIndices, RowSpan
from blztable.engine.run.limits import PAGE_BYTES, check_rows

# Rows that one thread looks at at a time, where row groups are smaller.
MORSEL_ROWS = 1 << 19


@dataclass(frozen=True, slots=True)
class Blocks:
    """Rows one after another, each block within one row group, in the order of the table."""

    groups: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    # By step of a filter and block: whether it is open there, to be told by a look at the rows.
    open: np.ndarray

    def __len__(self) -> int:
        """The number of blocks."""
        return len(self.groups)

    def __getitem__(self, chosen: np.ndarray | slice) -> "Blocks":
        """Some of them."""
        return Blocks(
            self.groups[chosen], self.starts[chosen], self.stops[chosen], self.open[:, chosen]
        )

    @property
    def rows(self) -> np.ndarray:
        """The rows of each."""
        return self.stops - self.starts

    def spans(self) -> list[RowSpan]:
        """Their rows, those of neighbours together."""
        if not len(self):
            return []
        cuts = np.flatnonzero(
            (self.groups[1:] != self.groups[:-1]) | (self.starts[1:] != self.stops[:-1])
        )
        firsts, lasts = np.append(0, cuts + 1), np.append(cuts, -1)
        ranges = self.groups[firsts], self.starts[firsts], self.stops[lasts]
        return [RowSpan(*one) for one in zip(*(array.tolist() for array in ranges), strict=True)]

    def picked(self, places: np.ndarray) -> list[RowIndices]:
        """The rows at these places among those of all blocks."""
        ends = np.cumsum(self.rows)
        block = np.searchsorted(ends, places, "right")
        rows = places + (self.stops - ends)[block]
        groups = self.groups[block]
        cuts = np.flatnonzero(np.diff(groups)) + 1
        return [
            RowIndices(int(groups[first]), some)
            for first, some in zip([0, *cuts.tolist()], np.split(rows, cuts), strict=True)
            if len(some)
        ]


def cut(
    spans: Sequence[RowSpan], page_rows: Sequence[int | None], is_open: np.ndarray
) -> tuple[Blocks, np.ndarray]:
    """The pages of each span, or the span where there is no need of them; and which are pages.

    Steps are open in them as they are in their row group.
    """
    counts = np.array(
        [
            1 if rows is None else -(-span.stop // rows) - span.start // rows
            for span, rows in zip(spans, page_rows, strict=True)
        ],
        np.int64,
    )
    check_rows(sum(counts.tolist()), "pages of a filter", PAGE_BYTES)
    which = np.repeat(np.arange(len(spans)), counts)
    number = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    groups = np.array([span.group for span in spans], np.int64)[which]
    first = np.array([span.start for span in spans], np.int64)[which]
    last = np.array([span.stop for span in spans], np.int64)[which]
    sizes = np.array(
        [rows or span.stop for span, rows in zip(spans, page_rows, strict=True)], np.int64
    )[which]
    starts = (first // sizes + number) * sizes
    blocks = Blocks(
        groups, np.maximum(starts, first), np.minimum(starts + sizes, last), is_open[:, groups]
    )
    return blocks, np.array([rows is not None for rows in page_rows], np.bool_)[which]


def morsels(blocks: Blocks) -> Iterator[Blocks]:
    """The blocks, so many at a time as one thread looks at.

    Of a row group all: a chunk may have several pages, and is to be decoded once.
    """
    if not len(blocks):
        return
    is_first = np.diff(blocks.groups, prepend=-1) != 0
    before = (np.cumsum(blocks.rows) - blocks.rows)[is_first]
    number = (before // MORSEL_ROWS)[np.cumsum(is_first) - 1]
    cuts = np.flatnonzero(np.diff(number)) + 1
    for first, last in pairwise([0, *cuts.tolist(), len(blocks)]):
        yield blocks[first:last]
