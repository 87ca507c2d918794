"""The phased reader: nodes of columns, decoded into the memory of the result, in threads.

Theory of operation. A read is a plan that is carried out in phases. The calling thread goes from
phase to phase; within a phase a pool runs the tasks of all columns and row groups at once.

1. open: read and check the front and the trailer of each part (`parts.py`).
2. locate: decode the item ends, which tell the size of single rows of text. Others skip this phase.
3. plan: sum up the bytes of the result; raise LimitError if they exceed the machine's memory.
   Parts that claim far more bytes than they have are decoded once and dropped, as a check.
4. allocate the memory of each column, in one thread: memory that several threads allocate is
   returned late and reused rarely, which costs a large read some percent.
5. fill: decode chunks to their sinks (`requests.py`); no chunk becomes an array of its own.
6. copy out: encode and check the rows that were picked one by one.
7. check: run the checks that need whole streams, for example of UTF-8 after the item ends.
8. finish: wrap the memory as Arrow arrays. Nothing is concatenated.

The selected rows are spans (whole pages are decoded, then sliced without a copy) or indices (only
these rows are kept). `requests.py` turns both into byte ranges. `explain` uses phases 1 to 5.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import numpy as np
import pyarrow as pa

from blztable.arrow.types import as_stored
from blztable.columns.blocks import Decoder, Piece
from blztable.columns.types import decoder
from blztable.engine.read import selection
from blztable.engine.read.parts import OpenParts, Part
from blztable.engine.read.requests import ChunkSpan, PartRows, PickedRows, SpanRows, joined
from blztable.engine.read.selection import RowIndices, RowSelection, RowSpan
from blztable.engine.run.limits import check_memory
from blztable.engine.run.pool import Progress, Task, batches, run
from blztable.errors import CorruptError

# A part whose uncompressed size exceeds its bytes by this factor is doubted: only zstd compresses
# that well, and only uniform data. If the doubted parts of a read claim more than `DOUBTED_BYTES`
# together, they are decoded twice.
DOUBTED_RATIO = 1 << 10
DOUBTED_BYTES = 64 << 20
# Number of picked rows that one task settles.
SETTLED_ROWS = 1 << 18


def read_phases(
    parts: OpenParts, columns: Sequence["ColumnRead"], progress: Progress | None = None
) -> list[pa.ChunkedArray]:
    """Run all phases for the selected rows of each column."""
    for column in columns:
        column.open_bundled()
    run(batches(task for column in columns for task in column.opening()))
    run(joined(one for column in columns for one in column.locate()))
    check_memory(sum(column.plan() for column in columns), parts.version.store.name)
    run(_doubts(columns))
    for column in columns:
        column.allocate()
    spans = (one for column in columns for one in column.fill(column.decoder))
    run(joined(spans, progress), progress.report if progress else None)
    most = max((column.picked for column in columns), default=0)
    if most:
        settling = (rows.copy_out for column in columns for rows in column.rows)
        run(batches(settling, SETTLED_ROWS // most))
    run(task for column in columns for task in column.checks())
    return [column.finish() for column in columns]


def _doubts(columns: Sequence["ColumnRead"]) -> list[Task]:
    """Return tasks that decode doubted parts and drop the bytes, if these are many."""
    doubted = [rows for column in columns for rows in column.doubted()]
    if sum(piece.nbytes for rows in doubted for piece in rows.pieces) <= DOUBTED_BYTES:
        return []
    return list(joined(one for rows in doubted for one in rows.fill(None, 0)))


class ColumnRead:
    """The read of one column: the selected rows of its parts, and the decoder of the result."""

    def __init__(
        self,
        parts: OpenParts,
        line: int,
        selected: Sequence[RowSelection],
        view: Callable[[Part], Part] | None = None,
    ) -> None:
        """Read the rows of a node, or the rows of a view of each part."""
        self._line = line
        self._view = view
        self.decoder: Decoder
        self._parts = parts
        # Read the column's line of the manifest here, before the threads need it.
        self._lines = parts.version.parts(line)
        self._selected = _by_part([one for one in selected if one.count])
        self.rows: list[PartRows] = [None] * len(self._selected)  # type: ignore[list-item]
        self._pieces: list[Piece] = []

    @property
    def picked(self) -> int:
        """Return the largest number of single rows selected from a part; 0 for spans."""
        counts = (one.count for one in self._selected if isinstance(one, RowIndices))
        return max(counts, default=0)

    def open_bundled(self) -> None:
        """Open the parts that are in bundles, which reads no file but the first time."""
        at = self._lines.at
        for number, selected in enumerate(self._selected) if at else ():
            if at[_group(selected)]:
                self._open(number)

    def opening(self) -> Iterator[Callable[[], None]]:
        """Yield a task for each part that is not open, which opens it."""
        for number, rows in enumerate(self.rows):
            if rows is None:
                yield partial(self._open, number)

    def _open(self, number: int) -> None:
        selected = self._selected[number]
        if isinstance(selected, RowIndices):
            pages = selection.of_rows(self._lines, [selected])
            self.rows[number] = PickedRows(self._part(selected.group), selected.rows, pages)
        else:
            self.rows[number] = SpanRows(self._part(selected[0].group), selected)

    def _part(self, group: int) -> Part:
        part = self._parts.open(self._line, group)
        return part if self._view is None else self._view(part)

    def locate(self) -> Iterator[ChunkSpan]:
        """Yield the spans to decode before the plan."""
        for rows in self.rows:
            yield from rows.locate()

    def plan(self) -> int:
        """Return the bytes of the result, with a bitmap of all rows if any part has nulls."""
        for rows in self.rows:
            rows.plan()
        self._pieces = [piece for rows in self.rows for piece in rows.pieces]
        has_nulls = any(piece.has_nulls for piece in self._pieces)
        bitmap = sum(piece.rows for piece in self._pieces) // 8 if has_nulls else 0
        return bitmap + sum(piece.nbytes for piece in self._pieces)

    def doubted(self) -> Iterator[PartRows]:
        """Yield the rows of parts that claim far more bytes than they have."""
        for rows in self.rows:
            if sum(piece.nbytes for piece in rows.pieces) > DOUBTED_RATIO * rows.part.cbytes:
                yield rows

    def allocate(self) -> None:
        """Allocate the memory of the result."""
        with self._error_context():
            type_ = (
                self.rows[0].part.type if self.rows else self._parts.version.node(self._line).type
            )
            self.decoder = decoder(type_, self._pieces)

    def fill(self, decoder: Decoder | None) -> Iterator[ChunkSpan]:
        """Yield the spans to decode, in the order of the files."""
        first = 0
        for rows in self.rows:
            yield from rows.fill(decoder, first)
            first += len(rows.pieces)

    def checks(self) -> Iterator[Task]:
        """Yield the checks of whole streams."""
        with self._error_context():
            for check in self.decoder.checks():
                yield partial(self._decode_spans, check)

    def finish(self) -> pa.ChunkedArray:
        """Return the rows."""
        with self._error_context():
            return self.decoder.finish()

    def _decode_spans(self, check: Callable[[], None]) -> None:
        with self._error_context():
            check()

    def _error_context(self) -> AbstractContextManager[None]:
        """Return the error context of the first part, for errors about all parts."""
        return self.rows[0].part.error_context() if self.rows else nullcontext()


class DictionaryRead(ColumnRead):
    """The read of the rows of one part, whose values are shown as a dictionary."""

    def __init__(
        self,
        parts: OpenParts,
        line: int,
        selected: Sequence[RowSelection],
        type_: pa.DictionaryType,
        values: pa.DictionaryArray | None,
    ) -> None:
        """Read codes that stand for these values, or the values themselves."""
        super().__init__(parts, line, selected, None if values is None else Part.as_codes)
        self._type, self._values = type_, values

    def finish(self) -> pa.ChunkedArray:
        """Return the rows as dictionary arrays."""
        column = super().finish()
        type_ = self._type
        if self._values is None:
            chunks = [as_stored(chunk).dictionary_encode().cast(type_) for chunk in column.chunks]
        else:
            values = self._values.dictionary.cast(type_.value_type)
            with self._error_context():
                chunks = [_dictionary_array(chunk, values, type_) for chunk in column.chunks]
        return pa.chunked_array(chunks, type_)


def _dictionary_array(
    codes: pa.Array, values: pa.Array, type_: pa.DictionaryType
) -> pa.DictionaryArray:
    """Return a dictionary array of unsigned codes; raise CorruptError if one has no value."""
    width = codes.type.bit_width // 8
    numbers = np.frombuffer(codes.buffers()[1], f"<u{width}")[codes.offset :][: len(codes)]
    if len(numbers) and int(numbers.max()) >= len(values):
        raise CorruptError(f"a code is outside of a dictionary of {len(values)} items")
    return pa.DictionaryArray.from_arrays(codes.cast(type_.index_type), values)


def _group(selected: RowIndices | list[RowSpan]) -> int:
    """Return the row group of these rows of one part."""
    return selected.group if isinstance(selected, RowIndices) else selected[0].group


def _by_part(selected: Sequence[RowSelection]) -> list[RowIndices | list[RowSpan]]:
    """Join neighbouring spans of one part in a list; indices stay by themselves."""
    result: list[RowIndices | list[RowSpan]] = []
    for one in selected:
        before = result[-1] if result else None
        if isinstance(one, RowIndices):
            result.append(one)
        elif isinstance(before, list) and before[0].group == one.group:
            before.append(one)
        else:
            result.append([one])
    return result
