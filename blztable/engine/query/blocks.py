"""Blocks: the pages and row groups in which rows may match a filter, as arrays.

Knows how rows are divided; knows nothing of filters and files.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from blztable import tuning
from blztable.cached import cached_property
from blztable.engine.read.selection import RowIndices, RowSpan
from blztable.engine.run.limits import PAGE_BYTES, check_rows
from blztable.format import deletions
from blztable.format.deletions import DeletedIn


@dataclass(frozen=True)
class Blocks:
    """Ranges of rows in table order; a block lies within one row group.

    A plan keeps blocks, so what follows from them is made once.
    """

    groups: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    # Shape (steps, blocks): True if a step of the filter has to be evaluated on the rows.
    open: np.ndarray

    def __len__(self) -> int:
        """Return the number of blocks."""
        return len(self.groups)

    def __getitem__(self, chosen: np.ndarray | slice) -> "Blocks":
        """Return the blocks that a mask, a slice or an array of indices selects."""
        return Blocks(
            self.groups[chosen], self.starts[chosen], self.stops[chosen], self.open[:, chosen]
        )

    @cached_property
    def rows(self) -> np.ndarray:
        """Number of rows of each block."""
        return self.stops - self.starts

    @cached_property
    def count(self) -> int:
        """Number of rows of all blocks."""
        return int(self.rows.sum())

    @cached_property
    def page_of(self) -> dict[tuple[int, ...], int | None]:
        """By columns, the power of two of their smallest page; None if they have none."""
        return {}

    @cached_property
    def _divided(self) -> dict[int, "Blocks"]:
        return {}

    def divided(self, page: int) -> "Blocks":
        """Return the blocks divided into pages of so many rows, as a power of two."""
        divided = self._divided.get(page)
        if divided is None:
            divided = self._divided[page] = self.pages(1 << page)[0]
        return divided

    @cached_property
    def _opened(self) -> dict[int, "Blocks"]:
        return {}

    def opened(self, number: int) -> "Blocks":
        """Return the blocks in which a step is open."""
        opened = self._opened.get(number)
        if opened is None:
            is_open = self.open[number]
            opened = self._opened[number] = self if is_open.all() else self[is_open]
        return opened

    @classmethod
    def joined(cls, parts: Sequence["Blocks"]) -> "Blocks":
        """Return the blocks of all parts, part after part; at least one part is needed."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.groups for part in parts]),
            np.concatenate([part.starts for part in parts]),
            np.concatenate([part.stops for part in parts]),
            np.concatenate([part.open for part in parts], axis=1),
        )

    def merged(self) -> "Blocks":
        """Return adjacent blocks of one row group with the same open steps as one."""
        if len(self.groups) < 2:
            return self
        is_first = np.ones(len(self.groups), np.bool_)
        is_first[1:] = (
            (self.groups[1:] != self.groups[:-1])
            | (self.starts[1:] != self.stops[:-1])
            | (self.open[:, 1:] != self.open[:, :-1]).any(0)
        )
        (firsts,) = is_first.nonzero()
        lasts = np.append(firsts[1:], len(self.groups)) - 1
        first_blocks = self[firsts]
        return replace(first_blocks, stops=self.stops[lasts])

    def within(self, spans: Sequence[RowSpan]) -> "Blocks":
        """Return what the blocks have of these ascending spans."""
        if not spans or not len(self.groups):
            return self[:0]
        (groups, starts, stops) = np.array(
            [(span.group, span.start, span.stop) for span in spans], np.int64
        ).T
        # Blocks and spans that end before, or begin after, are told by one search: numbers order
        # rows by row group.
        blocks, of_spans = self.groups << 40, groups << 40
        firsts = (blocks + self.stops).searchsorted(of_spans + starts, "right")
        lasts = (blocks + self.starts).searchsorted(of_spans + stops)
        counts = np.maximum(lasts - firsts, 0)
        which = np.arange(len(spans)).repeat(counts)
        before = counts.cumsum() - counts
        cut = np.arange(len(which)) + (firsts - before)[which]
        return Blocks(
            self.groups[cut],
            np.maximum(self.starts[cut], starts[which]),
            np.minimum(self.stops[cut], stops[which]),
            self.open[:, cut],
        )

    def live(self, deleted: DeletedIn) -> "Blocks":
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
        which = np.arange(len(self.groups)).repeat(counts)
        if (counts == 1).all():
            return self, which
        number = np.arange(len(which)) - (counts.cumsum() - counts).repeat(counts)
        sizes = page_rows[which] if isinstance(page_rows, np.ndarray) else page_rows
        starts = (first[which] + number) * sizes
        pages = Blocks(
            self.groups[which],
            np.maximum(starts, self.starts[which]),
            np.minimum(starts + sizes, self.stops[which]),
            self.open[:, which],
        )
        return pages, which

    @cached_property
    def spans(self) -> list[RowSpan]:
        """Return the rows as spans; adjacent blocks are joined."""
        if not len(self.groups):
            return []
        is_cut = (self.groups[1:] != self.groups[:-1]) | (self.starts[1:] != self.stops[:-1])
        cuts = is_cut.nonzero()[0].tolist()
        groups, starts, stops = self.groups, self.starts, self.stops
        return [
            RowSpan(int(groups[first]), int(starts[first]), int(stops[last]))
            for first, last in zip([0, *[cut + 1 for cut in cuts]], [*cuts, -1], strict=True)
        ]

    def picked(self, positions: np.ndarray) -> list[RowIndices]:
        """Return the rows at these ascending indices, which count through all blocks."""
        if not len(self.groups):
            return []
        ends = self.rows.cumsum()
        # Where the rows of each block end among the places; there are far fewer blocks than rows.
        row_ends = positions.searchsorted(ends)
        counts = row_ends.copy()
        counts[1:] -= row_ends[:-1]
        rows = positions + (self.stops - ends).repeat(counts)
        # The last block of each row group.
        is_last = self.groups.searchsorted(self.groups, "right") - 1 == np.arange(len(self.groups))
        picked, begin = [], 0
        for group, end in zip(
            self.groups[is_last].tolist(), row_ends[is_last].tolist(), strict=True
        ):
            if begin < end:
                picked.append(RowIndices(group, rows[begin:end]))
            begin = end
        return picked


def morsels(blocks: Blocks) -> Iterator[Blocks]:
    """Yield the blocks of each morsel: whole row groups, so that no chunk is decoded twice."""
    if not len(blocks.groups):
        return
    rows = blocks.rows
    # The rows before the row group of each block.
    before = (rows.cumsum() - rows)[blocks.groups.searchsorted(blocks.groups)]
    number = before // tuning.current.morsel_rows
    cuts = (number[1:] != number[:-1]).nonzero()[0] + 1
    for first, last in pairwise([0, *cuts.tolist(), len(blocks.groups)]):
        yield blocks[first:last]
