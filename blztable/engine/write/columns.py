"""Write row groups of Arrow columns to superchunk files: encode, compress, store.

Commits nothing: no manifest names the new files yet.

Theory of operation. The calling thread draws row groups from the stream, one ahead. The threads of
the pool do the rest, in two kinds of tasks. One task per part encodes its array to streams,
computes the statistics and divides the streams into chunks. It returns tasks that compress about
`TASK_BYTES` each, which any free thread runs; the task that finishes last stores the file. A memory
budget bounds the uncompressed bytes of the row groups in progress. The parts of a small row group
go to a bundle (`bundles.py`); a task makes several of them.
"""

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from operator import itemgetter

import pyarrow as pa

from blztable.arrow_types import Portion
from blztable.columns import paging
from blztable.columns.blocks import Block, Stream
from blztable.columns.encodings.choose import encoded
from blztable.columns.encodings.few_items import encode_few_items
from blztable.columns.statistics.compute import statistics
from blztable.columns.stored import as_stored
from blztable.columns.types import encode, one_array, stream_layouts
from blztable.engine.read.parts import Part
from blztable.engine.run.budget import MemoryBudget
from blztable.engine.run.limits import check_pages
from blztable.engine.run.pool import run_groups
from blztable.engine.run.progress import Progress
from blztable.engine.run.tasks import Task
from blztable.engine.version.staged import NewGroups
from blztable.engine.write.bundles import Bundle, BundleWriter, is_small
from blztable.engine.write.options import CompressionOptions, WriteOptions
from blztable.engine.write.reuse import ChunkInput, Make, Old, compressing, copying, opened
from blztable.engine.write.trial import compression_of, dictionary_worth
from blztable.errors import LimitError, SchemaError
from blztable.format import layout
from blztable.format.line import NO_FILE, ColumnParts, FactArrays
from blztable.format.metadata import BlockInfo, StreamInfo
from blztable.format.statistics import PAGES_LAYER, Statistics
from blztable.format.superchunk import PartFacts, pack
from blztable.format.trailer import MAX_LAYER_BYTES, Layer
from blztable.storage.store import KeyTaken, Store

# Smaller tasks would spend more time in Python than in compression.
TASK_BYTES = 1 << 20
# Encodings gain less than their metadata take in a part of fewer bytes.
LEAST_BYTES = 1 << 10
# Up to this size most of the time is spent in Python, which runs one thread at a time.
SMALL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """The facts of a written part for the manifest."""

    k: int
    facts: PartFacts
    sizes: dict[str, int]
    statistics: Statistics
    # Where the part begins in its bundle; 0 if it is in none.
    at: int = 0
    # True if the rows are null where the value is NaN.
    nan_is_null: bool = False


@dataclass(slots=True)
class ColumnWriter:
    """A column while it is written: its file numbers, and its written parts by row group."""

    path: layout.Path
    name: str
    type: pa.DataType
    nullable: bool = True
    # The first file number to use; above 1 if the column has files already.
    first_k: int = 1
    parts: dict[int, WrittenPart] = field(default_factory=dict)
    numbers: Iterator[int] = field(init=False)

    def __post_init__(self) -> None:
        """Begin to count file numbers."""
        self.numbers = count(self.first_k)

    @property
    def file_numbers(self) -> list[int]:
        """Numbers of the files written so far."""
        return [part.k for part in self.parts.values() if part.k]

    @property
    def next_k(self) -> int:
        """The file number after the largest one used; no number is used twice."""
        return max([self.first_k, *(part.k + 1 for part in self.parts.values())])

    def finish(self) -> ColumnParts:
        """Return the parts as a line of the manifest."""
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
            tuple(part.at for part in parts) if any(part.at for part in parts) else (),
            tuple(int(part.nan_is_null) for part in parts)
            if any(part.nan_is_null for part in parts)
            else (),
        )


def write_groups(
    store: Store,
    columns: Sequence[ColumnWriter],
    groups: Iterable[Portion],
    options: WriteOptions,
    progress: Progress,
    old: Old | None = None,
    bundles: BundleWriter | None = None,
) -> NewGroups:
    """Write row groups in their order, and return them; none may be empty.

    Small row groups are bundled if there is a writer of bundles. The next row group is fetched
    while one is written. The memory of an array is released as soon as it is encoded. Chunks with
    the same contents as in the part that `old` returns are copied.
    """
    rows: list[int] = []
    made: list[Bundle | None] = []
    shared = _Shared(store, options, progress, MemoryBudget(SMALL_BYTES), old)

    def tasks() -> Iterator[Iterator[Task]]:
        for table, nrows in groups:
            nbytes = [column.nbytes for column in table.columns]
            entries = zip(range(len(columns)), columns, table.columns, nbytes, strict=True)
            del table
            # The largest first: memory is released early, and small tasks remain for the end.
            arrays = deque(sorted(entries, key=_nbytes, reverse=True))
            del entries
            shared.budget.acquire(sum(map(_nbytes, arrays)))
            made.append(_bundle(shared, arrays, bundles))
            yield _encode_tasks(shared, arrays, len(rows), made[-1])
            rows.append(nrows)

    run_groups(tasks(), shared.budget, progress.report)
    return NewGroups(rows, [bundle.k if bundle else 0 for bundle in made])


@dataclass(frozen=True, slots=True)
class _Shared:
    """The state that all parts of a write share."""

    store: Store
    options: WriteOptions
    progress: Progress
    budget: MemoryBudget
    old: Old | None


# The index of a column, its writer, its rows in one row group, and their bytes.
_Entry = tuple[int, ColumnWriter, pa.ChunkedArray, int]
_nbytes = itemgetter(3)


def _encode_tasks(
    shared: _Shared, arrays: deque[_Entry], group: int, bundle: Bundle | None
) -> Iterator[Task]:
    """Yield the tasks that encode one row group; `arrays` has the columns not begun yet."""
    bundled = bundle.columns if bundle else ()
    while arrays:
        entry = arrays.popleft()
        if entry[0] not in bundled:
            yield _PartWriter(shared, *entry, group).encode
            continue
        writers, nbytes = [_PartWriter(shared, *entry, group, bundle)], _nbytes(entry)
        while arrays and nbytes < TASK_BYTES and arrays[0][0] in bundled:
            nbytes += _nbytes(arrays[0])
            writers.append(_PartWriter(shared, *arrays.popleft(), group, bundle))
        yield partial(_make_all, writers)


def _bundle(
    shared: _Shared, arrays: Iterable[_Entry], writer: BundleWriter | None
) -> Bundle | None:
    """Return the bundle of a small row group; None if its parts get files of their own."""
    options = shared.options
    nbytes = {
        index: nbytes
        for index, column, _, nbytes in arrays
        # Genuine Bloscpack files are files of their own.
        if options.encoding_of(column.name) != "plain"
    }
    if writer is None or not is_small(nbytes.values()):
        return None
    return Bundle(sorted(nbytes), writer)


def _make_all(writers: list["_PartWriter"]) -> None:
    """Make whole parts, one after the other."""
    for writer in writers:
        for task in writer.encode():
            task()


class _PartWriter:
    """A part that is written: its array, then its chunks, then its file."""

    def __init__(
        self,
        shared: _Shared,
        index: int,
        column: ColumnWriter,
        array: pa.ChunkedArray,
        nbytes: int,
        group: int,
        bundle: Bundle | None = None,
    ) -> None:
        self._shared = shared
        self._index = index
        self._options = shared.options
        self._column = column
        # Numbers are taken in the order of the rows, for readers that sort the files by number.
        self._k = next(column.numbers) if bundle is None else NO_FILE
        self._bundle = bundle
        self._group = group
        self._array = array
        self._nbytes = nbytes
        self._checksum = shared.options.checksum_of_chunks
        # The part that this one replaces, if its chunks may be copied.
        self._old_part: Part | None = None
        self._lock = threading.Lock()
        self._unfinished = 0

    def encode(self) -> list[Task]:
        """Encode the array and compute statistics; return the tasks that compress the chunks."""
        try:
            if self._array.null_count and not self._column.nullable:
                raise SchemaError("found nulls; the schema says not null; fill or drop them")
            array = as_stored(one_array(self._array))
            # The caller's array is released as soon as a copy of it exists.
            del self._array
            block, array = self._block(array)
            check_pages(self._column.type, block.rows, block.page_rows)
        except SchemaError as error:
            raise SchemaError(f"column {self._column.name!r}: {error}") from None
        # Encoding takes memory, so the next row group waits for it.
        self._shared.budget.release(self._nbytes)
        self._sizes = {name: stream.nbytes for name, stream in block.walk()}
        self._nan_is_null = block.nan_is_null
        self._pages, self._whole = statistics(array, block.page_rows)
        target = self._options.chunk_bytes
        self._info = _block_info(block, target)
        asked = self._options.compression_of(self._column.name)
        pieces = [
            piece
            for (_, stream), (_, info) in zip(block.walk(), self._info.walk(), strict=True)
            for piece in _pieces(stream, info.chunks, asked)
        ]
        self._chunks: list[bytes] = [b""] * len(pieces)
        self._digests: list[bytes] = [b""] * len(pieces)
        if not any(True for _ in block.walk()):
            self._k = NO_FILE
            self._store([], PartFacts(block.rows, block.page_rows, 0, 0, 0, 0))
            return []
        if not pieces:
            return [self._put]
        batches = list(_batches(pieces))
        self._unfinished = len(batches)
        if self._shared.old is not None:
            self._old_part = opened(self._shared.old, self._index, self._group)
        make = self._make()
        return [self._compress_task(make, start, batch) for start, batch in batches]

    def _block(self, array: pa.Array) -> tuple[Block, pa.Array]:
        """Return the tree of blocks of an array, and an array of the same values for statistics."""
        page_rows = self._options.page_rows_of(self._column.name)
        is_small = array.nbytes < LEAST_BYTES
        if is_small or self._options.encoding_of(self._column.name) != "auto":
            return encode(array, page_rows), array
        asked = self._options.compression_of(self._column.name)
        few = encode_few_items(array, page_rows, partial(dictionary_worth, options=asked))
        return few or (encoded(encode(array, page_rows)), array)

    def _make(self) -> Make:
        """Return the function that makes the chunks of this part."""
        if self._old_part is None:
            return compressing(self._checksum)
        return copying(self._old_part, self._info, self._checksum)

    def _compress_task(self, make: Make, start: int, batch: list[ChunkInput]) -> Task:
        def compress() -> None:
            for index, piece in enumerate(batch, start):
                self._chunks[index], self._digests[index] = make(index, piece)
            with self._lock:
                self._unfinished -= 1
                is_last = self._unfinished == 0
            if is_last:
                self._put()

        return compress

    def _put(self) -> None:
        """Store the part."""
        layers = _zone_map(self._pages)
        pieces, facts = pack(self._info, self._chunks, self._digests, self._checksum, layers)
        self._store(pieces, facts)
        if self._old_part is not None:
            self._old_part.forget()

    def _store(self, pieces: list[bytes], facts: PartFacts) -> None:
        """Add the part to the bundle, or store its file."""
        if self._bundle is not None:
            self._bundle.add(self._index, pieces, partial(self._finish, facts))
            return
        if pieces:
            self._put_file(pieces)
        self._finish(facts, 0)

    def _put_file(self, pieces: list[bytes]) -> None:
        """Store the file under the first number that is free."""
        while True:
            if self._k > layout.MAX_ID:
                raise LimitError(
                    f"column {self._column.name!r}: all file numbers up to {layout.MAX_ID} are used"
                )
            try:
                self._shared.store.put_new(layout.part(self._column.path, self._k), pieces)
            except KeyTaken:
                self._k = next(self._column.numbers)  # Another writer uses that number.
            else:
                break

    def _finish(self, facts: PartFacts, at: int) -> None:
        """Record the part, which begins at `at` in its bundle."""
        self._column.parts[self._group] = WrittenPart(
            self._k, facts, self._sizes, self._whole, at, self._nan_is_null
        )
        self._shared.progress.add(facts.rows)


def _block_info(block: Block, target: int) -> BlockInfo:
    streams = tuple(_stream_info(stream, block.page_rows, target) for stream in block.streams)
    children = {name: _block_info(child, target) for name, child in block.children.items()}
    return BlockInfo(block.rows, block.page_rows, streams, children, block.encoding)


def _stream_info(stream: Stream, page_rows: int, target: int) -> StreamInfo:
    own = stream.layout
    if not stream.data.nbytes:
        chunks: tuple[int, ...] = ()
    elif stream.pages is not None:
        chunks = paging.cut_pages(stream.pages, target)
    else:
        page_bytes = own.nbytes(page_rows)
        if stream.encoding is not None and stream.encoding.needs_pages:
            target = max(target, page_bytes)
        chunks = paging.cut_even(stream.data.nbytes, page_bytes, own.nbytes(1), target)
    if stream.encoding is not None:
        unit = 8 * own.typesize
        whole = own.nbytes(page_rows) if stream.encoding.needs_pages else unit
        chunks = paging.cut_tail(chunks, max(unit, whole))
    encoding = stream.encoding.to_json() if stream.encoding else None
    return StreamInfo(own.name, own.dtype, own.typesize, chunks, stream.pages, encoding)


def _pieces(
    stream: Stream, sizes: Sequence[int], asked: CompressionOptions
) -> Iterator[ChunkInput]:
    compression = compression_of(stream, asked)
    start = 0
    for size in sizes:
        yield ChunkInput(stream.data[start : start + size], stream.layout.typesize, compression)
        start += size
    assert start == stream.data.nbytes


def _batches(pieces: list[ChunkInput]) -> Iterator[tuple[int, list[ChunkInput]]]:
    """Yield runs of pieces of at least `TASK_BYTES`, each with the index of its first piece."""
    start, nbytes = 0, 0
    for stop, piece in enumerate(pieces, 1):
        nbytes += piece.data.nbytes
        if nbytes >= TASK_BYTES or stop == len(pieces):
            yield start, pieces[start:stop]
            start, nbytes = stop, 0


def _zone_map(pages: Statistics) -> dict[str, Layer]:
    """Return the layer with the statistics of each page.

    None is needed for a single page, which has the statistics of the part. None is written for more
    pages than a layer can hold; readers work without it.
    """
    if len(pages) < 2:
        return {}
    zone_map = pages.encode()
    return {PAGES_LAYER: Layer.encode(zone_map)} if len(zone_map) <= MAX_LAYER_BYTES else {}
