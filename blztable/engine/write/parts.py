"""Write a part: encode its array, compress its chunks, store its file or add it to a bundle.

Theory of operation. `PartWriter.encode` encodes the array to streams, computes the statistics and
divides the streams into chunks. It returns tasks that compress about a MiB each, which any thread
may run; the task that finishes last stores the file. Knows one part at a time, but for
many columns of one type (`encode_batch`).
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from blztable import tuning
from blztable.arrow.types import as_stored, numbers_in
from blztable.block_terms import PER_ITEM, VALUES
from blztable.columns import paging
from blztable.columns.blocks import Block, Stream
from blztable.columns.codecs import fixed
from blztable.columns.codecs.fixed import NUMPY_TYPES
from blztable.columns.digits import rounded
from blztable.columns.encodings.batch import StreamBatch, encode_batch
from blztable.columns.encodings.choose import encoded
from blztable.columns.encodings.dictionary import encode_few_items
from blztable.columns.encodings.items import per_item
from blztable.columns.statistics.compute import statistics
from blztable.columns.types import encode, one_array
from blztable.engine.read.parts import Part
from blztable.engine.run.limits import MemoryBudget, check_pages
from blztable.engine.run.pool import Progress, Task
from blztable.engine.write.bundle_builder import BundledPart, PartBatch
from blztable.engine.write.bundles import Bundle
from blztable.engine.write.column_writer import ColumnWriter, WrittenPart
from blztable.engine.write.options import (
    CompressionOptions,
    Storage,
    asked_of,
    checksum_of,
    is_packed,
    is_plain,
)
from blztable.engine.write.reuse import ChunkInput, Make, Old, compressing, copying, opened
from blztable.engine.write.trial import compression_of, dictionary_worth
from blztable.errors import LimitError, SchemaError
from blztable.format import layout
from blztable.format.bundle import page_rows_of
from blztable.format.header import MAX_CHUNKS, MAX_LAYER_BYTES, Layer
from blztable.format.line import NAN_IS_NULL, NO_FILE, PAGES_LAYER, Statistics
from blztable.format.metadata import MAX_ITEM_BYTES, BlockInfo, StreamInfo
from blztable.format.superchunk import PartMeta, pack
from blztable.storage.store import KeyTaken, Store

# A part of more items is packed: its chunks and those of its bitmap have to be few enough.
MOST_ITEMS = MAX_CHUNKS // 2


# A type, a number of rows, and what was asked for the compression.
_BatchKey = tuple[pa.DataType | None, int, CompressionOptions]


@dataclass(frozen=True, slots=True)
class Shared:
    """The state that all parts of a write share."""

    store: Store
    storage: Storage
    progress: Progress
    budget: MemoryBudget
    old: Old | None


def write_all(writers: Sequence["PartWriter"]) -> list[Task]:
    """Encode several parts of a bundle; return the tasks that the bundle needs after its last."""
    kinds: dict[_BatchKey, list[PartWriter]] = {}
    for writer in writers:
        kinds.setdefault(writer.kind, []).append(writer)
    tasks: list[Task] = []
    for (kind, rows, _), batch in kinds.items():
        if rows and kind is not None and len(batch) >= tuning.current.matrix_columns_written:
            tasks += PartWriter.encode_batch(batch)
        else:
            tasks += (task for writer in batch for task in writer.encode())
    return tasks


class PartWriter:
    """A part that is written: its array, then its chunks, then its file."""

    def __init__(
        self,
        shared: Shared,
        index: int,
        column: ColumnWriter,
        array: pa.ChunkedArray,
        nbytes: int,
        group: tuple[int, int],
        bundle: Bundle | None = None,
    ) -> None:
        """Write an array; `group` is the index of its row group, and the rows of that."""
        self._shared = shared
        self._index = index
        self._storage = shared.storage.of(column.name)
        self._column = column
        # Numbers are taken in the order of the rows, for readers that sort the files by number.
        self._k = next(column.numbers) if bundle is None else NO_FILE
        self._bundle = bundle
        self._group, self._rows = group
        self._array = array
        self._nbytes = nbytes
        self._checksum = checksum_of(shared.storage)
        self._asked = asked_of(self._storage)
        self._flags: frozenset[str] = frozenset()
        # The part that this one replaces, if its chunks may be copied.
        self._old_part: Part | None = None
        self._lock = threading.Lock()
        self._unfinished = 0

    def encode(self) -> list[Task]:
        """Encode the array and compute statistics; return the tasks that compress the chunks."""
        try:
            array = self._array_to_store()
            block, array = self._block(array)
            check_pages(self._column.type, block.rows, block.page_rows)
        except SchemaError as error:
            raise SchemaError(f"column {self._column.name!r}: {error}") from None
        # Encoding takes memory, so the next row group waits for it.
        self._release()
        return self._encoded(block, *statistics(array, block.page_rows))

    def _array_to_store(self) -> pa.Array:
        """Return the rows as one array, and forget them."""
        array = as_stored(one_array(self._array))
        # The caller's array is released as soon as a copy of it exists.
        del self._array
        return array if self._column.digits is None else rounded(array, self._column.digits)

    def _release(self) -> None:
        """Release the array, whose copy is small or is compressed at once."""
        if self._bundle is None or not self._bundle.is_large:
            self._shared.budget.release(self._nbytes)

    def _encoded(self, block: Block, pages: Statistics, whole: Statistics) -> list[Task]:
        """Add the part to its bundle, or return the tasks that compress its chunks."""
        if not self._column.has_bounds:
            pages, whole = pages.without_bounds(), whole.without_bounds()
        self._pages, self._whole = pages, whole
        self._sizes = {name: stream.nbytes for name, stream in block.walk()}
        flags = {NAN_IS_NULL: block.nan_is_null, PER_ITEM: block.packing == PER_ITEM}
        self._flags = frozenset(name for name, holds in flags.items() if holds)
        if self._bundle is None:
            return self._compressing(block)

        # The bundle keeps the call for a stored part, which must not keep the block.
        on_stored = partial(self._on_stored, block.rows, block.page_rows)
        part = BundledPart(self._column.type, block, self._asked, on_stored)
        if self._bundle.takes(part):
            return self._bundle.add([self._index], part)
        return [*self._bundle.add([self._index], None), *self._compressing(block)]

    @property
    def kind(self) -> _BatchKey:
        """What columns have in common that are encoded together.

        The type is None unless this is a column of numbers without nulls that goes to a bundle.
        """
        type_ = self._column.type
        is_number = type_.id in NUMPY_TYPES and not pa.types.is_decimal(type_)
        is_batched = is_number and self._bundle is not None and not self._array.null_count
        is_batched &= self._column.has_bounds
        return type_ if is_batched else None, len(self._array), self._asked

    @staticmethod
    def encode_batch(writers: Sequence["PartWriter"]) -> list[Task]:
        """Encode columns of one kind together, as `encode` does one by one."""
        first = writers[0]
        type_, rows = first._column.type, len(first._array)
        (layout,) = fixed.layout(type_)
        columns = np.empty((len(writers), rows), layout.dtype)
        for row, writer in zip(columns, writers, strict=True):
            array = writer._array_to_store()
            row[:] = numbers_in(array.buffers()[1], layout.dtype, array.offset, rows)
            writer._release()
        page_rows, tasks = page_rows_of(rows), []
        values = [None, pa.py_buffer(columns)]
        # Each column is a page of the matrix.
        pages, _ = statistics(pa.Array.from_buffers(type_, columns.size, values), rows)
        for streams in encode_batch(layout, columns, page_rows):
            some = [writers[number] for number in streams.columns.tolist()]
            of_batch = [pages.of_zone(number) for number in streams.columns.tolist()]
            tasks += PartWriter._add_batch(some, (rows, page_rows), streams, of_batch)
        return tasks

    @staticmethod
    def _add_batch(
        writers: Sequence["PartWriter"],
        rows: tuple[int, int],
        streams: StreamBatch,
        of_parts: Sequence[Statistics],
    ) -> list[Task]:
        """Add parts to their bundle; those that it has no room for get files.

        `rows` are those of a part and of a page, and `of_parts` has the statistics of each part.
        """
        first = writers[0]
        assert first._bundle is not None
        sizes = {VALUES: streams.values_nbytes}

        def on_stored(at: Sequence[int], cbytes: Sequence[int]) -> None:
            for writer, whole, entry, nbytes in zip(writers, of_parts, at, cbytes, strict=True):
                writer._sizes, writer._whole = sizes, whole
                writer._finish(PartMeta(*rows, nbytes, 0, 0, 0), entry)

        part = PartBatch(first._column.type, *rows, streams, first._asked, on_stored)
        if len(writers) > 1 and first._bundle.takes(part):
            return first._bundle.add([writer._index for writer in writers], part)
        tasks = []
        for place, (writer, whole) in enumerate(zip(writers, of_parts, strict=True)):
            # The one page of a part has the statistics of the part.
            tasks += writer._encoded(Block(*rows, (streams.stream(place),)), whole, whole)
        return tasks

    def _compressing(self, block: Block) -> list[Task]:
        """Return the tasks that compress the chunks; the last of them stores the file."""
        if not (block.rows and block.streams):
            # A dictionary without rows is stored nowhere, whatever values it has.
            self._k, self._sizes = NO_FILE, {}
            self._finish(PartMeta(block.rows, block.page_rows, 0, 0, 0, 0))
            return []
        if self._k == NO_FILE:
            self._k = next(self._column.numbers)
        self._info = _block_info(block, self._shared.storage.chunk_bytes)
        pieces = [
            piece
            for (_, stream), (_, info) in zip(block.walk(), self._info.walk(), strict=True)
            for piece in _pieces(stream, info.chunks, self._asked)
        ]
        self._chunks: list[bytes] = [b""] * len(pieces)
        self._digests: list[bytes] = [b""] * len(pieces)
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
        page_rows = self._storage.page_rows
        if self._bundle is not None:
            page_rows = page_rows_of(len(array))
        has_values = array.nbytes < tuning.current.encoded_bytes or is_plain(self._storage)
        if not is_packed(self._storage):
            block = encode(array, page_rows)
            block = block if has_values else encoded(block)
            return _with_items(block), array
        if has_values:
            return encode(array, page_rows), array
        worth = partial(dictionary_worth, options=self._asked)
        few = encode_few_items(array, page_rows, worth)
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
        pieces, meta = pack(self._info, self._chunks, self._digests, self._checksum, layers)
        self._put_file(pieces)
        self._finish(meta)
        if self._old_part is not None:
            self._old_part.forget()

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
                self._column.file_numbers.append(self._k)
                break

    def _on_stored(
        self, rows: int, page_rows: int, at: Sequence[int], cbytes: Sequence[int]
    ) -> None:
        """Record the part, whose first entry in the bundle is the one of `at`."""
        self._finish(PartMeta(rows, page_rows, cbytes[0], 0, 0, 0), at[0])

    def _finish(self, meta: PartMeta, at: int = 0) -> None:
        """Record the part."""
        k = NO_FILE if at else self._k
        self._column.parts[self._group] = WrittenPart(
            k, meta, self._sizes, self._whole, at, self._flags
        )
        # A node counts like a column, whatever rows it has.
        self._shared.progress.add(self._rows)


def _with_items(block: Block) -> Block:
    """Return the block with a chunk for each item, if it has items and they can be chunks."""
    found = per_item(block)
    if found is None or not 0 < block.rows <= MOST_ITEMS:
        return block
    sizes = (size for stream in found.streams for size in _item_sizes(stream))
    return found if max(sizes, default=0) <= MAX_ITEM_BYTES else block


def _item_sizes(stream: Stream) -> list[int]:
    """Return the bytes of each item of a stream; none if it has no items."""
    if stream.ends is None:
        return []
    sizes: list[int] = np.diff(stream.ends, prepend=stream.ends.dtype.type(0)).tolist()
    return sizes


def _block_info(block: Block, target: int) -> BlockInfo:
    streams = tuple(_stream_info(stream, block, target) for stream in block.streams)
    children = {name: _block_info(child, target) for name, child in block.children.items()}
    sizes = (block.rows, block.page_rows)
    return BlockInfo(*sizes, streams, children, block.encoding, block.packing)


def _stream_info(stream: Stream, block: Block, target: int) -> StreamInfo:
    own, page_rows = stream.layout, block.page_rows
    if block.packing == PER_ITEM and stream.ends is not None:
        chunks = tuple(_item_sizes(stream))
    elif not stream.data.nbytes:
        chunks = ()
    elif stream.pages is not None:
        assert stream.ends is not None
        chunks = paging.cut_pages(stream.pages, target, stream.ends, page_rows)
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
    """Yield runs of pieces that make a task, each with the index of its first piece."""
    start, nbytes = 0, 0
    for stop, piece in enumerate(pieces, 1):
        nbytes += piece.data.nbytes
        if nbytes >= tuning.current.write_task_bytes or stop == len(pieces):
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
