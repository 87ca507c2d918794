"""Blocks: the pages and row groups in which rows may match a filter, as arrays.

Knows how rows are divided; knows nothing of filters and files.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from blztable import tuning
from blztable.engine.read.selection import RowIndices, RowSpan
from blztable.engine.run.limits import PAGE_BYTES, check_rows
from blztable.format import deletions
from blztable.format.deletions import Deleted


@dataclass(frozen=True, slots=True)
class Blocks:
    """Ranges of rows in table order; a block lies within one row group."""

    groups: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    # Shape (steps, blocks): True if a step of the filter has to be evaluated on the rows.
    open: np.ndarray

    def __len__(self) -> int:
        """Return the number of blocks."""
        return len(self.groups)

    def __getitem__(self, chosen: np.ndarray | slice) -> "Blocks":
        """Return the blocks that a mask or slice selects."""
        return Blocks(
            self.groups[chosen], self.starts[chosen], self.stops[chosen], self.open[:, chosen]
        )

    @property
    def rows(self) -> np.ndarray:
        """Number of rows of each block."""
        return self.stops - self.starts

    def live(self, deleted: Deleted) -> "Blocks":
        """Return blocks of stored rows as blocks of live rows, without those that have none."""
        if not deleted:
            return self
        starts, stops = self.starts.copy(), self.stops.copy()
        for group in np.unique(self.groups).tolist():
            first, last = np.searchsorted(self.groups, [group, group + 1])
            for ends in (starts, stops):
                ends[first:last] = deletions.live(deleted[group], ends[first:last])
        return replace(self, starts=starts, stops=stops)[stops > starts]

    def pages(self, page_rows: np.ndarray | int) -> tuple["Blocks", np.ndarray]:
        """Divide each block at the multiples of its `page_rows`.

        Returns the pages, and for each page the number of its block.
        """
        first = self.starts // page_rows
        counts = -(-self.stops // page_rows) - first
        check_rows(sum(counts.tolist()), "pages of a filter", PAGE_BYTES)
        which = np.repeat(np.arange(len(self)), counts)
        if (counts == 1).all():
            return self, which
        number = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
        sizes = np.broadcast_to(page_rows, len(self))[which]
        starts = (first[which] + number) * sizes
        pages = Blocks(
            self.groups[which],
            np.maximum(starts, self.starts[which]),
            np.minimum(starts + sizes, self.stops[which]),
            self.open[:, which],
        )
        return pages, which

    def spans(self) -> list[RowSpan]:
        """Return the rows as spans; adjacent blocks are joined."""
        if not len(self):
            return []
        cuts = np.flatnonzero(
            (self.groups[1:] != self.groups[:-1]) | (self.starts[1:] != self.stops[:-1])
        )
        firsts, lasts = np.append(0, cuts + 1), np.append(cuts, -1)
        ranges = self.groups[firsts], self.starts[firsts], self.stops[lasts]
        return [RowSpan(*one) for one in zip(*(array.tolist() for array in ranges), strict=True)]

    def picked(self, positions: np.ndarray) -> list[RowIndices]:
        """Return the rows at these ascending indices, which count through all blocks."""
        if not len(self):
            return []
        ends = np.cumsum(self.rows)
        # Where the rows of each block end among the places; there are far fewer blocks than rows.
        counts = np.diff(np.searchsorted(positions, ends), prepend=0)
        rows = positions + np.repeat(self.stops - ends, counts)
        firsts = np.flatnonzero(np.diff(self.groups, prepend=-1))
        of_groups = np.split(rows, np.cumsum(np.add.reduceat(counts, firsts))[:-1])
        return [
            RowIndices(group, indices)
            for group, indices in zip(self.groups[firsts].tolist(), of_groups, strict=True)
            if len(indices)
        ]


def cut(
    spans: Sequence[RowSpan], page_rows: Sequence[int | None], is_open: np.ndarray
) -> tuple[Blocks, np.ndarray]:
    """Divide spans into pages, or keep a span as one block if its `page_rows` is None.

    Returns the blocks, and for each block whether it is a page. `is_open` has shape (steps, row
    groups); a block takes the flags of its row group.
    """
    groups = np.array([span.group for span in spans], np.int64)
    whole = Blocks(
        groups,
        np.array([span.start for span in spans], np.int64),
        np.array([span.stop for span in spans], np.int64),
        is_open[:, groups],
    )
    sizes = [rows or max(span.stop, 1) for span, rows in zip(spans, page_rows, strict=True)]
    blocks, which = whole.pages(np.array(sizes, np.int64))
    return blocks, np.array([rows is not None for rows in page_rows], np.bool_)[which]


def morsels(blocks: Blocks) -> Iterator[Blocks]:
    """Yield the blocks of each morsel: whole row groups, so that no chunk is decoded twice."""
    if not len(blocks):
        return
    is_first = np.diff(blocks.groups, prepend=-1) != 0
    before = (np.cumsum(blocks.rows) - blocks.rows)[is_first]
    number = (before // tuning.current.morsel_rows)[np.cumsum(is_first) - 1]
    cuts = np.flatnonzero(np.diff(number)) + 1
    for first, last in pairwise([0, *cuts.tolist(), len(blocks)]):
        yield blocks[first:last]
