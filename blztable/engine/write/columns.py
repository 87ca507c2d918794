"""Row groups of Arrow columns to superchunk files: encode, compress, store, all in threads.

The walk of a part: its array becomes streams, streams are cut in chunks, chunks are compressed by
whoever is free, and the last to finish puts the file. Nothing is committed here: files lie under
numbers no manifest names yet.
"""

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import pyarrow as pa

from blztable.columns import paging
from blztable.columns.blocks import Block, Stream
from blztable.columns.statistics.compute import statistics
from blztable.columns.stored import as_stored
from blztable.columns.types import encode, one_array, stream_layouts
from blztable.engine.read.parts import Part
from blztable.engine.run.budget import MemoryBudget
from blztable.engine.run.limits import check_pages
from blztable.engine.run.pool import run_groups
from blztable.engine.run.progress import Progress
from blztable.engine.run.tasks import Task
from blztable.engine.write.options import WriteOptions
from blztable.engine.write.reuse import Make, Old, compressing, copying, opened
from blztable.engine.write.row_groups import Portion
from blztable.errors import LimitError, SchemaError
from blztable.format import layout
from blztable.format.line import NO_FILE, ColumnParts, FactArrays
from blztable.format.metadata import BlockInfo, StreamInfo
from blztable.format.statistics import PAGES_LAYER, Statistics
from blztable.format.superchunk import PartFacts, pack
from blztable.format.trailer import MAX_LAYER_BYTES, Layer
from blztable.storage.store import KeyTaken, Store

# Below this a task costs more Python than work.
TASK_BYTES = 1 << 20
# Python runs one thread at a time, and of so few bytes most work is Python's.
SMALL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """What the manifest keeps of a part that was written."""

    k: int
    facts: PartFacts
    sizes: dict[str, int]
    statistics: Statistics


@dataclass(slots=True)
class ColumnWriter:
    """One column: where its next part goes, and the parts written, by row group."""

    path: layout.Path
    name: str
    type: pa.DataType
    nullable: bool = True
    # Of a column that is there, the number its files go on with.
    first_k: int = 1
    parts: dict[int, WrittenPart] = field(default_factory=dict)
    numbers: Iterator[int] = field(init=False)

    def __post_init__(self) -> None:
        """Begin to count."""
        self.numbers = count(self.first_k)

    @property
    def file_numbers(self) -> list[int]:
        """Numbers of the files written so far."""
        return [part.k for part in self.parts.values() if part.k]

    @property
    def next_k(self) -> int:
        """The number after the last one used; none is given out twice."""
        return max([self.first_k, *(part.k + 1 for part in self.parts.values())])

    def finish(self) -> ColumnParts:
        """The parts as the manifest lists them."""
        parts = [self.parts[group] for group in sorted(self.parts)]
        names = [
            name for name in stream_layouts(self.type) if any(name in part.sizes for part in parts)
        ]
        return ColumnParts(
            self.path,
            tuple(part.k for part in parts),
            FactArrays.of([part.facts for part in parts]),
            {name: tuple(part.sizes.get(name, 0) for part in parts) for name in names},
            Statistics.joined([part.statistics for part in parts]).to_json(),
        )


def write_groups(
    store: Store,
    columns: Sequence[ColumnWriter],
    groups: Iterable[Portion],
    options: WriteOptions,
    progress: Progress,
    old: Old | None = None,
) -> list[int]:
    """Write row groups as they come, none of them empty; the rows of each.

    While one is written the next is fetched; what was written of a group is let go at once. Chunks
    that hold what they held in the part that `old` gives are copied from there.
    """
    rows: list[int] = []
    shared = _Shared(store, options, progress, MemoryBudget(SMALL_BYTES), old)

    def tasks() -> Iterator[Iterator[Task]]:
        for table, nrows in groups:
            entries = zip(range(len(columns)), columns, table.columns, strict=True)
            del table
            # The largest first: what is left at the end is small, and memory is free early.
            arrays = deque(sorted(entries, key=_nbytes, reverse=True))
            del entries
            rows.append(nrows)
            shared.budget.acquire(sum(map(_nbytes, arrays)))
            yield _writing(shared, arrays, len(rows) - 1)

    run_groups(tasks(), shared.budget, progress.report)
    return rows


@dataclass(frozen=True, slots=True)
class _Shared:
    """What all parts of a write have in common."""

    store: Store
    options: WriteOptions
    progress: Progress
    budget: MemoryBudget
    old: Old | None


# The position of a column, the column, and its rows in one row group.
_Entry = tuple[int, ColumnWriter, pa.ChunkedArray]


def _nbytes(entry: _Entry) -> int:
    nbytes: int = entry[2].nbytes
    return nbytes


def _writing(shared: _Shared, arrays: deque[_Entry], group: int) -> Iterator[Task]:
    """The tasks of one row group; `arrays` has those not begun yet."""
    while arrays:
        yield _PartWriter(shared, *arrays.popleft(), group).encode


class _PartWriter:
    """One part on its way to its file."""

    def __init__(
        self,
        shared: _Shared,
        position: int,
        column: ColumnWriter,
        array: pa.ChunkedArray,
        group: int,
    ) -> None:
        self._shared = shared
        self._position = position
        self._options = shared.options
        self._column = column
        # Taken in the order of the rows: readers that sort the files by number find them so.
        self._k = next(column.numbers)
        self._group = group
        self._array = array
        self._checksum = shared.options.checksum_of_chunks
        # The part whose place this one takes.
        self._before: Part | None = None
        self._lock = threading.Lock()
        self._left = 0

    def encode(self) -> list[Task]:
        """Make streams and statistics; what is returned compresses the chunks."""
        try:
            if self._array.null_count and not self._column.nullable:
                raise SchemaError("nulls, where the schema says that there are none")
            nbytes = self._array.nbytes
            array = as_stored(one_array(self._array))
            # What the caller gave is let go as soon as there is a copy of it.
            del self._array
            self._shared.budget.release(nbytes)
            block = encode(array, self._options.page_rows_of(self._column.name))
            check_pages(self._column.type, block.rows, block.page_rows)
        except SchemaError as error:
            raise SchemaError(f"column {self._column.name!r}: {error}") from None
        self._pages, self._whole = statistics(array, block.page_rows)
        target = self._options.chunk_bytes
        self._info = _block_info(block, target)
        pieces = [
            (piece, stream.layout.typesize)
            for (_, stream), (_, info) in zip(block.walk(), self._info.walk(), strict=True)
            for piece in _pieces(stream.data, info.chunks)
        ]
        self._chunks: list[bytes] = [b""] * len(pieces)
        self._digests: list[bytes] = [b""] * len(pieces)
        if not pieces:
            self._finish(NO_FILE, PartFacts(block.rows, block.page_rows, 0, 0, 0, 0))
            return []
        batches = list(_batches(pieces))
        self._left = len(batches)
        if self._shared.old is not None:
            self._before = opened(self._shared.old, self._position, self._group)
        make = self._make()
        return [self._compressing(make, start, batch) for start, batch in batches]

    def _make(self) -> Make:
        """What makes the chunks of this part."""
        compression = self._options.compression_of(self._column.name)
        if self._before is None:
            return compressing(compression, self._checksum)
        return copying(self._before, self._info, compression, self._checksum)

    def _compressing(self, make: Make, start: int, batch: list[tuple[np.ndarray, int]]) -> Task:
        def compress() -> None:
            for index, (piece, typesize) in enumerate(batch, start):
                self._chunks[index], self._digests[index] = make(index, piece, typesize)
            with self._lock:
                self._left -= 1
                is_last = self._left == 0
            if is_last:
                self._put()

        return compress

    def _put(self) -> None:
        """Store the file under the first free number."""
        layers = _zone_map(self._pages)
        pieces, facts = pack(self._info, self._chunks, self._digests, self._checksum, layers)
        while True:
            if self._k > layout.MAX_ID:
                raise LimitError(f"column {self._column.name!r}: no numbers of files are left")
            try:
                self._shared.store.put_new(layout.part(self._column.path, self._k), pieces)
            except KeyTaken:
                self._k = next(self._column.numbers)  # That one is another writer's.
            else:
                break
        if self._before is not None:
            self._before.forget()
        self._finish(self._k, facts)

    def _finish(self, k: int, facts: PartFacts) -> None:
        sizes = {name: stream.nbytes for name, stream in self._info.walk()}
        self._column.parts[self._group] = WrittenPart(k, facts, sizes, self._whole)
        self._shared.progress.add(facts.rows)


def _block_info(block: Block, target: int) -> BlockInfo:
    streams = tuple(_stream_info(stream, block.page_rows, target) for stream in block.streams)
    children = {name: _block_info(child, target) for name, child in block.children.items()}
    return BlockInfo(block.rows, block.page_rows, streams, children, block.encoding)


def _stream_info(stream: Stream, page_rows: int, target: int) -> StreamInfo:
    own = stream.layout
    if stream.pages is not None:
        chunks = paging.cut_pages(stream.pages, target)
    else:
        page_bytes = own.nbytes(page_rows)
        chunks = paging.cut_even(stream.data.nbytes, page_bytes, own.nbytes(1), target)
    return StreamInfo(own.name, own.dtype, own.typesize, chunks, stream.pages)


def _pieces(data: np.ndarray, sizes: Sequence[int]) -> Iterator[np.ndarray]:
    start = 0
    for size in sizes:
        yield data[start : start + size]
        start += size
    assert start == data.nbytes


def _batches(
    pieces: list[tuple[np.ndarray, int]],
) -> Iterator[tuple[int, list[tuple[np.ndarray, int]]]]:
    """Runs of pieces of `TASK_BYTES` or a little more, each with the number of its first."""
    start, nbytes = 0, 0
    for stop, (piece, _) in enumerate(pieces, 1):
        nbytes += piece.nbytes
        if nbytes >= TASK_BYTES or stop == len(pieces):
            yield start, pieces[start:stop]
            start, nbytes = stop, 0


def _zone_map(pages: Statistics) -> dict[str, Layer]:
    """The layer with what is known of each page.

    One page is what the manifest says of the part; where pages are too many for a layer, readers
    do without.
    """
    if len(pages) < 2:
        return {}
    zone_map = pages.encode()
    return {PAGES_LAYER: Layer.encode(zone_map)} if len(zone_map) <= MAX_LAYER_BYTES else {}
