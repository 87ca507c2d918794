"""Morsel: some blocks that one thread looks at, and the rows in them that are left, step by step.

While many rows are left the columns of a step are decoded whole and evaluated for all rows; once
few are, only these rows are picked out of the chunks. What was read for one step is not read again
for the next, nor where it is returned.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.engine.query import expressions
from blztable.engine.query.blocks import Blocks
from blztable.engine.query.expression_tree import Term
from blztable.engine.query.pruning import Pruner
from blztable.engine.read.columns import read_columns, read_rows
from blztable.engine.read.parts import OpenParts
from blztable.engine.read.selection import RowSelection, RowSpan, cut_spans, take_places, take_rows
from blztable.engine.version.versions import Version

# Rows are picked where not more than one of so many is left.
SPARSE = 16


@dataclass(frozen=True, slots=True)
class Step:
    """One part of a conjunction, and the columns that it is evaluated from."""

    expression: pc.Expression
    positions: tuple[int, ...]
    names: tuple[str, ...]
    pruner: Pruner
    # Its parts, where they can be told.
    terms: tuple[Term, ...]

    def mask(self, columns: Mapping[int, pa.ChunkedArray], rows: int) -> np.ndarray:
        """Whether it is true of each row."""
        arrays = (columns[position] for position in self.positions)
        return expressions.mask(self.expression, dict(zip(self.names, arrays, strict=True)), rows)


@dataclass(frozen=True, slots=True)
class Found:
    """The rows left, in their order, and columns of these, by position."""

    left: list[RowSelection]
    columns: Mapping[int, pa.ChunkedArray]

    @property
    def rows(self) -> int:
        """How many rows are left."""
        return sum(left.count for left in self.left)


@dataclass(frozen=True, slots=True)
class _Whole:
    """A column of all rows of some blocks."""

    chosen: np.ndarray
    spans: list[RowSpan]
    column: pa.ChunkedArray


@dataclass(frozen=True, slots=True)
class _Picked:
    """A column of single rows, by their places among those of all blocks."""

    places: np.ndarray
    column: pa.ChunkedArray


class Morsel:
    """Blocks under the steps of a filter."""

    def __init__(self, blocks: Blocks, parts: OpenParts) -> None:
        """All rows are left."""
        self._blocks = blocks
        self._parts = parts
        self._ends = np.cumsum(blocks.rows)
        # A flag for each row, until few are set; then their places. Neither while all are left.
        self._alive: np.ndarray | None = None
        self._places: np.ndarray | None = None
        self._whole: dict[int, _Whole] = {}
        self._picked: dict[int, _Picked] = {}

    def apply(self, number: int, step: Step) -> None:
        """Leave the rows for which the step of this number is true, where it is open."""
        if self._places is None:
            self._apply_to_blocks(self._blocks.open[number], step)
        else:
            self._apply_to_rows(self._blocks.open[number], step, self._places)

    def found(self, returned: Iterable[int]) -> Found:
        """The rows left, and these columns of them."""
        left = self._left()
        version = self._parts.version
        places = self._places
        had = [
            each
            for each in returned
            if places is not None and len(places) and self._has(each, places)
        ]
        lacking = [each for each in dict.fromkeys(returned) if each not in had]
        columns = dict(zip(lacking, read_left(version, lacking, left, self._parts), strict=True))
        if places is not None:
            columns |= {each: self._of_rows(each, places) for each in had}
        return Found(left, columns)

    def _left(self) -> list[RowSelection]:
        if self._places is None:
            if self._alive is None:
                return list(self._blocks.spans())
            self._places, self._alive = np.flatnonzero(self._alive), None
        return list(self._blocks.picked(self._places))

    def _apply_to_blocks(self, is_open: np.ndarray, step: Step) -> None:
        blocks, alive = self._blocks, self._alive
        if alive is not None:
            is_open = is_open & np.logical_or.reduceat(alive, self._ends - blocks.rows)
        if not is_open.any():
            return
        columns = self._of_blocks(step, is_open)
        true = step.mask(columns, int(blocks.rows[is_open].sum()))
        if is_open.all():
            alive = true if alive is None else alive & true
        else:
            alive = np.ones(self._ends[-1], np.bool_) if alive is None else alive
            alive[np.repeat(is_open, blocks.rows)] &= true
        self._alive = alive
        if np.count_nonzero(alive) * SPARSE <= len(alive):
            self._places, self._alive = np.flatnonzero(alive), None

    def _apply_to_rows(self, is_open: np.ndarray, step: Step, places: np.ndarray) -> None:
        asked = is_open[np.searchsorted(self._ends, places, "right")]
        some = places[asked]
        if not len(some):
            return
        lacking = [each for each in step.positions if not self._has(each, some)]
        wanted = self._blocks.picked(some)
        columns = read_rows(self._parts.version, lacking, wanted, parts=self._parts)
        self._picked |= {
            each: _Picked(some, column) for each, column in zip(lacking, columns, strict=True)
        }
        values = {each: self._of_rows(each, some) for each in step.positions}
        asked[asked] = ~step.mask(values, len(some))
        self._places = places[~asked]

    def _of_blocks(self, step: Step, chosen: np.ndarray) -> dict[int, pa.ChunkedArray]:
        """The columns of a step in the blocks chosen."""
        spans = self._blocks[chosen].spans()
        read = {position: whole.chosen for position, whole in self._whole.items()}
        lacking = unread(step, chosen, read)
        columns = read_columns(self._parts.version, lacking, spans, parts=self._parts)
        for position, column in zip(lacking, columns, strict=True):
            self._whole[position] = _Whole(chosen, spans, column)
        of_step = {position: self._whole[position] for position in step.positions}
        return {each: cut_spans(one.column, one.spans, spans) for each, one in of_step.items()}

    def _has(self, position: int, places: np.ndarray) -> bool:
        """Whether the column was read at all of these places."""
        if self._is_whole_at(position, places):
            return True
        picked = self._picked.get(position)
        return picked is not None and bool(np.isin(places, picked.places, assume_unique=True).all())

    def _is_whole_at(self, position: int, places: np.ndarray) -> bool:
        whole = self._whole.get(position)
        block = np.searchsorted(self._ends, places, "right")
        return whole is not None and bool(whole.chosen[block].all())

    def _of_rows(self, position: int, places: np.ndarray) -> pa.ChunkedArray:
        """A column at these places, where it was read."""
        if self._is_whole_at(position, places):
            whole = self._whole[position]
            return take_rows(whole.column, whole.spans, self._blocks.picked(places))
        picked = self._picked[position]
        return take_places(picked.column, np.searchsorted(picked.places, places))


def read_left(
    version: Version, positions: Sequence[int], left: Sequence[RowSelection], parts: OpenParts
) -> list[pa.ChunkedArray]:
    """The columns at these positions, of the rows left."""
    whole = [one for one in left if isinstance(one, RowSpan)]
    if len(whole) == len(left):
        return read_columns(version, positions, whole, parts=parts)
    return read_rows(version, positions, [one.picked() for one in left], parts=parts)


def unread(step: Step, chosen: np.ndarray, read: Mapping[int, np.ndarray]) -> list[int]:
    """The columns of a step that were not read before in all blocks chosen."""
    return [
        position
        for position in step.positions
        if chosen.any() and (position not in read or (chosen & ~read[position]).any())
    ]
