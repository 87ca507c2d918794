"""Pick: single rows of columns, out of the pages that have one of them; each is decoded once.

In two turns, for of text it must be known where the items lie before they are taken. What is taken
out of the chunks (`columns/sinks.py`) goes through the decoders as if there were no other rows.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from blztable.columns.blocks import DICTIONARY, ENDS, VALUES, Piece, Target
from blztable.columns.sinks import Accept, Bits, Bytes, Ends, Words
from blztable.engine.read import selection
from blztable.engine.read.chunks import Goal, Run, joined, runs
from blztable.engine.read.columns import (
    DOUBTED_RATIO,
    Result,
    byte_range,
    dictionary_of,
    doubts,
    nbytes_of,
)
from blztable.engine.read.parts import OpenedPart, OpenParts
from blztable.engine.read.selection import RowIndices
from blztable.engine.run.limits import check_memory
from blztable.engine.run.pool import run
from blztable.engine.run.tasks import batches
from blztable.engine.version.versions import Version

# Of so many rows one thread looks at what was taken.
SMALL_ROWS = 1 << 18


def read_rows(
    version: Version,
    indices: Sequence[int],
    wanted: Sequence[RowIndices],
    order: np.ndarray | None = None,
    parts: OpenParts | None = None,
) -> list[pa.ChunkedArray]:
    """The columns at these positions, of the rows wanted; raises as `read_columns` does.

    With an `order` they come in this one, by their places among the rows wanted.
    """
    if parts is None:
        with OpenParts(version) as parts:
            return read_rows(version, indices, wanted, order, parts)
    by_index = {index: _Column(parts, index, wanted) for index in indices}
    columns = list(by_index.values())
    rows = max((picked.count for picked in wanted), default=1)
    run(batches(part.open for column in columns for part in column.parts))
    run(joined(one for column in columns for one in column.ends()))
    check_memory(sum(column.plan() for column in columns), version.store.name)
    run(doubts(one for column in columns for one in column.doubted()))
    for column in columns:
        column.make_room()
    run(joined(one for column in columns for one in column.runs()))
    run(batches((part.settle for column in columns for part in column.parts), SMALL_ROWS // rows))
    run(task for column in columns for task in column.result.checks())
    found = {index: column.result.finish() for index, column in by_index.items()}
    if order is not None:
        found = {index: selection.reordered(column, order) for index, column in found.items()}
    return [found[index] for index in indices]


class _Column:
    """Rows of one column on their way from its parts to the result."""

    def __init__(self, parts: OpenParts, index: int, wanted: Sequence[RowIndices]) -> None:
        self._field: pa.Field = parts.version.schema.field(index)
        parts.version.column(index)  # Its line, before the threads want it.
        self.parts = [_Part(parts, index, picked) for picked in wanted]

    def ends(self) -> Iterator[Run]:
        """The first turn: where the items of text are."""
        for part in self.parts:
            yield from part.ends()

    def plan(self) -> int:
        """The bytes that the rows take."""
        self._pieces = [part.piece() for part in self.parts]
        return sum(map(nbytes_of, self._pieces))

    def doubted(self) -> Iterator[Run]:
        """What there is to decode in files that claim a great deal, without a place to go."""
        for part, piece in zip(self.parts, self._pieces, strict=True):
            if nbytes_of(piece) > DOUBTED_RATIO * part.opened.cbytes:
                yield from part.untargeted()

    def make_room(self) -> None:
        """Allocate what the rows take."""
        first = self.parts[0].opened if self.parts else None
        self.result = Result(self._field, self._pieces, first)

    def runs(self) -> Iterator[Run]:
        """The second turn: all the rest."""
        for number, part in enumerate(self.parts):
            yield from part.runs(partial(self.result.target, number))


class _Part:
    """The rows of one part."""

    def __init__(self, parts: OpenParts, index: int, picked: RowIndices) -> None:
        self._parts = parts
        self._index = index
        self._rows = picked.rows
        self._group = picked.group
        self._spans = selection.of_rows(parts.version.column(index), [picked])
        self._ends: Ends | None = None
        self._taken: list[tuple[str, Target, Bits | None]] = []
        self.opened: OpenedPart

    def open(self) -> None:
        """Front and trailer."""
        self.opened = self._parts.open(self._index, self._group)

    def ends(self) -> Iterator[Run]:
        """Find where the items begin and end, if they have ends."""
        place = self.opened.streams.get(ENDS)
        if place is None:
            return
        width = place.layout.typesize
        bounds = self.opened.streams[VALUES].bounds
        opened = self.opened
        self._ends = Ends(self._rows, width, opened.rows, opened.page_rows, bounds)
        yield from runs(self.opened, ENDS, self._goals(ENDS, self._ends.accept))

    def piece(self) -> Piece:
        """The rows as a part that has no others."""
        if self._ends is not None:
            with self.opened.error_context(ENDS):
                self._ends.check()
        rows, sizes = len(self._rows), {}
        for name, place in self.opened.streams.items():
            if name.startswith(DICTIONARY):
                continue
            if place.layout.bits is None:
                assert self._ends is not None
                sizes[name] = self._ends.nbytes
            else:
                sizes[name] = place.layout.nbytes(rows)
        return Piece(rows, sizes, page_rows=rows, dictionary=dictionary_of(self.opened))

    def runs(self, target: Callable[[str], Target]) -> Iterator[Run]:
        """Take the rows of all streams but the ends, which are known."""
        yield from self._dictionary(target)
        for name, place in self.opened.streams.items():
            if name.startswith(DICTIONARY):
                continue
            into = target(name)
            bits = Bits(self._rows) if place.layout.bits == 1 else None
            self._taken.append((name, into, bits))
            if name == ENDS:
                continue
            if bits is not None:
                accept = bits.accept
            elif place.layout.bits is None:
                assert self._ends is not None
                accept = Bytes(self._ends.starts, self._ends.ends, into.buffer).accept
            else:
                accept = Words(self._rows, place.layout.bits // 8, into.buffer).accept
            yield from runs(self.opened, name, self._goals(name, accept))

    def untargeted(self) -> Iterator[Run]:
        """What the second turn decodes, without a place to go."""
        yield from self._dictionary(lambda name: None)
        for name in self.opened.streams:
            if not name.startswith(DICTIONARY) and name != ENDS:
                yield from runs(self.opened, name, self._goals(name))

    def _dictionary(self, target: Callable[[str], Target | None]) -> Iterator[Run]:
        """The dictionary, whole."""
        for name, place in self.opened.streams.items():
            if name.startswith(DICTIONARY) and place.info.nbytes:
                goal = Goal(0, place.info.nbytes, target(name))
                yield from runs(self.opened, name, [goal])

    def settle(self) -> None:
        """Check what was taken, as it would be where it is decoded."""
        for name, target, bits in self._taken:
            if bits is not None:
                target.buffer[:] = bits.packed()
            elif name == ENDS:
                assert self._ends is not None
                target.buffer[:] = self._ends.encode()
            if target.check is not None and len(target.buffer):
                with self.opened.error_context(name):
                    target.check(0, len(target.buffer))

    def _goals(self, name: str, accept: Accept | None = None) -> list[Goal]:
        """The bytes that a stream has of the pages that are touched."""
        ranges = (byte_range(self.opened, name, span) for span in self._spans)
        return [Goal(low, high, accept=accept) for low, high in ranges if low < high]
