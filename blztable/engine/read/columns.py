"""The phased reader: columns of a version, decoded into the memory of the result, in threads.

Theory of operation. A read is a plan that is carried out in phases. The calling thread goes from
phase to phase; within a phase a pool runs the tasks of all columns and row groups at once.

1. open: read and check the front and the trailer of each part (`parts.py`).
2. locate: decode the item ends, which tell the size of single rows of text. Others skip this phase.
3. plan: sum up the bytes of the result; raise LimitError if they exceed the machine's memory.
   Parts that claim far more bytes than they have are decoded once and dropped, as a check.
4. allocate the memory of each column, in one thread: memory that several threads allocate is
   returned late and reused rarely, which costs a large read some percent.
5. fill: decode chunks to their sinks (`chunks.py`); no chunk becomes an array of its own.
6. settle: encode and check the rows that were picked one by one.
7. check: run the checks that need whole streams, for example of UTF-8 after the item ends.
8. finish: wrap the memory as Arrow arrays. Nothing is concatenated.

The selected rows are spans (whole pages are decoded, then sliced without a copy) or indices (only
these rows are kept). `requests.py` turns both into byte ranges. `explain` uses phases 1 to 5.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import numpy as np
import pyarrow as pa

from blztable.block_terms import DICTIONARY
from blztable.columns.blocks import Decoder, Piece
from blztable.columns.nested.nodes import is_nested
from blztable.columns.stored import as_stored
from blztable.columns.types import decoder, one_array
from blztable.engine.read import selection
from blztable.engine.read.chunks import Run, joined
from blztable.engine.read.direct import DirectColumn, direct
from blztable.engine.read.nested import NestedRead
from blztable.engine.read.parts import OpenParts, Part
from blztable.engine.read.requests import PartRows, PickedRows, SpanRows
from blztable.engine.read.selection import RowIndices, RowSelection, RowSpan
from blztable.engine.run.limits import check_memory
from blztable.engine.run.pool import run
from blztable.engine.run.progress import Progress
from blztable.engine.run.tasks import Task, batches
from blztable.errors import CorruptError

# A part whose uncompressed size exceeds its bytes by this factor is doubted: only zstd compresses
# that well, and only uniform data. If the doubted parts of a read claim more than `DOUBTED_BYTES`
# together, they are decoded twice.
DOUBTED_RATIO = 1 << 10
DOUBTED_BYTES = 64 << 20
# Number of picked rows that one task settles.
SETTLED_ROWS = 1 << 18


def read_columns(
    parts: OpenParts,
    indices: Sequence[int],
    selected: Sequence[RowSpan],
    progress: Progress | None = None,
    with_nans: Container[int] = (),
) -> list[pa.ChunkedArray]:
    """Return spans of rows of the columns at these indices; a column named twice is read once.

    In the columns `with_nans`, nulls that are stored as NaN are NaN, which takes no bitmap.

    Raises
    ------
    CorruptError
        A file is missing or damaged; the message names the file, the column and the chunk.
    LimitError
        The result does not fit into the machine's memory.
    """
    tree = parts.version.tree
    nested = _nested(parts, dict.fromkeys(indices, selected))
    flat = {index: tree.nodes(index)[0] for index in indices if index not in nested}
    pages: dict[int, Sequence[RowSelection]] = {
        line: selection.of_spans(parts.flat.column(line), selected) for line in flat.values()
    }
    for one in nested.values():
        pages |= one.pages
    nans = {tree.nodes(index)[0] for index in flat if index in with_nans}
    columns = _read_by_line(parts, pages, progress, nans)
    found = {index: one.array(columns) for index, one in nested.items()}
    for index, line in flat.items():
        found[index] = selection.cut_spans(columns[line], pages[line], selected)
    return [found[index] for index in indices]


def read_rows(
    parts: OpenParts,
    indices: Sequence[int],
    selected: Sequence[RowIndices],
    order: np.ndarray | None = None,
) -> list[pa.ChunkedArray]:
    """Return single rows of the columns at these indices; raise as `read_columns` does.

    `order` has, for each row of the result, its index among the selected rows.
    """
    tree = parts.version.tree
    nested = _nested(parts, dict.fromkeys(indices, selected))
    flat = {index: tree.nodes(index)[0] for index in indices if index not in nested}
    pages: dict[int, Sequence[RowSelection]] = dict.fromkeys(flat.values(), selected)
    for one in nested.values():
        pages |= one.pages
    columns = _read_by_line(parts, pages)
    found = {index: columns[line] for index, line in flat.items()}
    found |= {index: one.array(columns) for index, one in nested.items()}
    if order is not None:
        found = {index: selection.reordered(one, order) for index, one in found.items()}
    return [found[index] for index in indices]


def read_nodes(
    parts: OpenParts, selected: Mapping[int, Sequence[RowSpan]]
) -> dict[int, pa.ChunkedArray]:
    """Return whole parts of nodes, by line; raise as `read_columns` does."""
    return _read_by_line(parts, selected)


def _nested(
    parts: OpenParts, selected: Mapping[int, Sequence[RowSelection]]
) -> dict[int, NestedRead]:
    """Return the reads of the columns among these whose type is nested."""
    if parts.version.tree.is_flat:
        return {}
    types = parts.version.schema
    return {
        index: NestedRead(parts, index, rows)
        for index, rows in selected.items()
        if is_nested(types.field(index).type)
    }


def read_codes(
    parts: OpenParts, index: int, selected: Sequence[RowSpan]
) -> list[tuple[int, pa.ChunkedArray]]:
    """Return (row group, codes) of spans of rows of a column whose parts all have codes.

    The codes are unsigned integers, null where the row is null. Raise as `read_columns` does.
    """
    groups = {span.group: [one for one in selected if one.group == span.group] for span in selected}
    (line,) = parts.version.tree.nodes(index)
    lines = parts.flat.column(line)
    pages = [selection.of_spans(lines, spans) for spans in groups.values()]
    codes = _read(parts, [_Column(parts, line, rows, Part.as_codes) for rows in pages])
    return [
        (group, selection.cut_spans(column, rows, spans))
        for (group, spans), rows, column in zip(groups.items(), pages, codes, strict=True)
    ]


def values_of_codes(parts: OpenParts, index: int, group: int, most: int) -> pa.Array | None:
    """Return what the codes of a part stand for, in order, if they are at most `most`.

    Return None if they are more, or if a code has no one value. Raise as `read_columns` does.
    """
    nodes, type_ = parts.version.tree.nodes(index), parts.version.schema.field(index).type
    if is_nested(type_):
        return None
    part = parts.open(nodes[0], group)
    if not pa.types.is_dictionary(part.type):
        values = part.values_of_codes(most)
        if values is None or not pa.types.is_dictionary(type_):
            return values
        codes = np.arange(len(values), dtype=np.int32)
        return pa.DictionaryArray.from_arrays(codes, values.cast(type_.value_type))
    dictionary = part.root.children.get(DICTIONARY)
    if dictionary is None or not 0 < dictionary.rows <= most:
        return None
    try:
        # A dictionary may have more values than its type has indices.
        indices = pa.array(np.arange(dictionary.rows)).cast(part.type.index_type)
    except pa.ArrowInvalid:
        return None
    column = _Column(parts, nodes[0], [RowSpan(group, 0, dictionary.rows)], Part.dictionary)
    values = one_array(_read(parts, [column])[0])
    return pa.DictionaryArray.from_arrays(indices, values, ordered=part.type.ordered)


def read_array(parts: OpenParts, index: int, selected: Sequence[RowSpan]) -> pa.Array:
    """Return spans of rows of one column as one array; raise SchemaError if it cannot hold them."""
    return one_array(read_columns(parts, [index], selected)[0])


def file_bytes(parts: OpenParts, index: int, pages: Sequence[RowSpan]) -> int:
    """Return the number of bytes that a read of these pages takes from files not yet read."""
    column = _Column(parts, index, pages)
    run(batches(column.opening()))
    return sum(one.cbytes for one in column.fill(None) if not one.part.is_small)


def _read_by_line(
    parts: OpenParts,
    selected: Mapping[int, Sequence[RowSelection]],
    progress: Progress | None = None,
    with_nans: Container[int] = (),
) -> dict[int, pa.ChunkedArray]:
    """Return the selected rows of each node."""
    readers = {
        index: _readers(parts, index, rows, index in with_nans) for index, rows in selected.items()
    }
    arrays = iter(_read(parts, [one for many in readers.values() for one in many], progress))
    columns = {}
    for index, of_index in readers.items():
        if len(of_index) == 1:
            columns[index] = next(arrays)
        else:
            chunks = [chunk for _ in of_index for chunk in next(arrays).chunks]
            columns[index] = pa.chunked_array(chunks, parts.flat.schema.field(index).type)
    return columns


def _readers(
    parts: OpenParts, index: int, selected: Sequence[RowSelection], with_nans: bool
) -> list["_Column"]:
    """Return the reads of a column: one, or one a part if values are shown as dictionaries."""
    version = parts.flat
    if not version.shows_dictionary(index):
        # Otherwise a null in a field that has none would not be seen.
        is_nullable = version.schema.field(index).nullable
        view = Part.with_nans if with_nans and selected and is_nullable else None
        return [_Column(parts, index, selected, view)]
    groups: dict[int, list[RowSelection]] = {}
    for one in selected:
        groups.setdefault(one.group, []).append(one)
    readers: list[_Column] = []
    for group, rows in groups.items():
        field = parts.version.tree.field_of(index)
        values = values_of_codes(parts, field, group, version.head.row_groups[group])
        view = Part.itself if values is None else Part.as_codes
        readers.append(_DictionaryColumn(parts, index, rows, view, values))
    return readers


def _read(
    parts: OpenParts, opening: Sequence["_Column"], progress: Progress | None = None
) -> list[pa.ChunkedArray]:
    """Run all phases for the selected rows of each column."""
    for one in opening:
        one.open_bundled()
    run(batches(task for one in opening for task in one.opening()))
    columns: list[_Column | DirectColumn] = [one.direct() or one for one in opening]
    run(joined(one for column in columns for one in column.locate()))
    check_memory(sum(column.plan() for column in columns), parts.version.store.name)
    run(_doubts(columns))
    for column in columns:
        column.allocate()
    runs = (one for column in columns for one in column.fill(column.decoder))
    # Of such columns most of the time is Python, which threads would only hand to each other.
    is_alone = all(isinstance(column, DirectColumn) for column in columns)
    run(joined(runs, progress), progress.report if progress else None, is_alone=is_alone)
    most = max((column.picked for column in columns), default=0)
    if most:
        settling = (rows.settle for column in columns for rows in column.rows)
        run(batches(settling, SETTLED_ROWS // most))
    run(task for column in columns for task in column.checks())
    return [column.finish() for column in columns]


def _doubts(columns: Sequence["_Column | DirectColumn"]) -> list[Task]:
    """Return tasks that decode doubted parts and drop the bytes, if these are many."""
    doubted = [rows for column in columns for rows in column.doubted()]
    if sum(piece.nbytes for rows in doubted for piece in rows.pieces) <= DOUBTED_BYTES:
        return []
    return list(joined(one for rows in doubted for one in rows.fill(None, 0)))


class _Column:
    """The read of one column: the selected rows of its parts, and the decoder of the result."""

    def __init__(
        self,
        parts: OpenParts,
        index: int,
        selected: Sequence[RowSelection],
        view: Callable[[Part], Part] | None = None,
    ) -> None:
        """Read the rows, or the rows of a view of each part."""
        self._index = index
        self._view = view
        self.decoder: Decoder
        self._parts = parts
        self._field: pa.Field = parts.flat.schema.field(index)
        # Read the column's line of the manifest here, before the threads need it.
        self._lines = parts.flat.column(index)
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
        part = self._parts.open(self._index, group)
        return part if self._view is None else self._view(part)

    def direct(self) -> DirectColumn | None:
        """Return a faster read of the opened rows, if there is one."""
        is_plain = self._view in (None, Part.with_nans)
        return direct(self._field, self.rows) if is_plain else None

    def locate(self) -> Iterator[Run]:
        """Yield the runs to decode before the plan."""
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
            type_ = self.rows[0].part.type if self._view else self._field.type
            self.decoder = decoder(type_, self._pieces)

    def fill(self, decoder: Decoder | None) -> Iterator[Run]:
        """Yield the runs to decode, in the order of the files."""
        first = 0
        for rows in self.rows:
            yield from rows.fill(decoder, first)
            first += len(rows.pieces)

    def checks(self) -> Iterator[Task]:
        """Yield the checks of whole streams."""
        with self._error_context():
            for check in self.decoder.checks():
                yield partial(self._run, check)

    def finish(self) -> pa.ChunkedArray:
        """Return the rows."""
        with self._error_context():
            column = self.decoder.finish()
            if self._view is None and not self._field.nullable and column.null_count:
                raise CorruptError("found nulls; the schema says not null")
        return column

    def _run(self, check: Callable[[], None]) -> None:
        with self._error_context():
            check()

    def _error_context(self) -> AbstractContextManager[None]:
        """Return the error context of the first part, for errors about all parts."""
        return self.rows[0].part.error_context() if self.rows else nullcontext()


class _DictionaryColumn(_Column):
    """The read of the rows of one part, whose values are shown as a dictionary."""

    def __init__(
        self,
        parts: OpenParts,
        index: int,
        selected: Sequence[RowSelection],
        view: Callable[[Part], Part],
        values: pa.DictionaryArray | None,
    ) -> None:
        """Read codes that stand for these values, or the values themselves."""
        super().__init__(parts, index, selected, view)
        self._values = values

    def finish(self) -> pa.ChunkedArray:
        """Return the rows as dictionary arrays."""
        column = super().finish()
        type_ = self._field.type
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
