"""Write a part: encode its array, compress its chunks, store its file or add it to a bundle.

Theory of operation. `PartWriter.encode` encodes the array to streams and page records, and cuts the
streams into chunks. It returns tasks that compress about a MiB each, which any thread may run; the
task that finishes last stores the file. Knows one part at a time, but for many columns of one type
(`encode_batch`).
"""

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa

from blztable import tuning
from blztable.arrow.types import as_stored, is_number, numbers_in
from blztable.columns.digits import rounded
from blztable.columns.parts.batch import EncodedBatch, encode_batch
from blztable.columns.parts.encode import PAGE, EncodedPart, EncodingOptions, encode
from blztable.columns.parts.physical import NUMPY_TYPES, physical
from blztable.columns.types import one_array
from blztable.engine.run.limits import MemoryBudget, check_pages
from blztable.engine.run.pool import Progress, Task
from blztable.engine.write.bundles import Bundle, BundledBatch
from blztable.engine.write.chunks import (
    FAR_CHUNK_BYTES,
    ChunkInput,
    cuts_of,
    facts_of,
    inputs_of,
    records_of,
    runs_of,
)
from blztable.engine.write.column_writer import ColumnWriter, FileWriter
from blztable.engine.write.options import (
    CompressionOptions,
    Storage,
    asked_of,
    is_packed,
    is_plain,
)
from blztable.engine.write.reuse import Old, chunk_sizes, compressing, copying, opened
from blztable.engine.write.trial import compression_of, dictionary_worth
from blztable.errors import SchemaError
from blztable.format.checksums import crc32
from blztable.format.records import Records

# A part of more items is packed: its file has an offset and a digest for each chunk.
MOST_ITEMS = 1 << 20

# The id of a type, a number of rows, and what was asked for the compression, by its identity.
_BatchKey = tuple[int | None, int, int]


class Wanted(NamedTuple):
    """What is asked for a column."""

    storage: Storage
    compression: CompressionOptions
    # Genuine Bloscpack files, pages of the caller's size, and chunks of one item each, are in files
    # of their own.
    may_be_bundled: bool

    @classmethod
    def of(cls, storage: Storage) -> Self:
        """Return the wishes of the options of a column."""
        is_usual = not is_plain(storage) and storage.page_rows is None and is_packed(storage)
        return cls(storage, asked_of(storage), is_usual)


class Shared:
    """What all parts of a write share."""

    def __init__(
        self,
        files: FileWriter,
        storage: Storage,
        progress: Progress,
        budget: MemoryBudget,
        old: Old | None,
    ) -> None:
        self.files, self.progress, self.budget, self.old = files, progress, budget, old
        self.chunk_bytes = storage.chunk_bytes
        if files.store.fetches:
            self.chunk_bytes = min(self.chunk_bytes, FAR_CHUNK_BYTES)
        # What is asked for columns: for most of them, and for some by name.
        self.usual = Wanted.of(storage)
        self.own = {name: Wanted.of(storage.of(name)) for name in storage.columns or ()}


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
        self._storage, self._asked, _ = shared.own.get(column.name, shared.usual)
        self._column = column
        # Numbers are taken in the order of the rows, for readers that sort the files by number.
        self._number = shared.files.numbers.next() if bundle is None else 0
        self._bundle = bundle
        self._group, self._rows = group
        self._array = array
        self._nbytes = nbytes
        self._lock = threading.Lock()
        self._unfinished = 0

    def encode(self) -> list[Task]:
        """Encode the array; return the tasks that compress the chunks."""
        try:
            part = self._encoded()
        except SchemaError as error:
            raise SchemaError(f"column {self._column.name!r}: {error}") from None
        # Encoding takes memory, so the next row group waits for it.
        self._release(self._nbytes)
        batch = EncodedBatch.of(part, self._index)
        if self._bundle is not None:
            # A part without streams is stored nowhere.
            has_bytes = bool(part.streams)
            if not has_bytes:
                self._finish(batch)
            return self._bundle.add(1, [BundledBatch(batch, self._asked)] if has_bytes else [])
        if not part.streams:
            self._finish(batch)
            return []
        return self._compressing(batch)

    def _encoded(self) -> EncodedPart:
        array = self._array_to_store()
        page_rows = self._storage.page_rows
        page = PAGE if page_rows is None else page_rows.bit_length() - 1
        check_pages(self._column.type, len(array), 1 << page)
        options = EncodingOptions(
            is_plain(self._storage),
            not is_packed(self._storage) and len(array) <= MOST_ITEMS,
            self._column.has_bounds,
            partial(dictionary_worth, options=self._asked),
        )
        return encode(array, page, options)

    def _array_to_store(self) -> pa.Array:
        """Return the rows as one array, and forget them."""
        array = as_stored(one_array(self._array))
        # The caller's array is released as soon as a copy of it exists.
        del self._array
        return array if self._column.digits is None else rounded(array, self._column.digits)

    def _release(self, nbytes: int) -> None:
        """Release the bytes of arrays, whose copies are small or are compressed at once."""
        if self._bundle is None or not self._bundle.is_large:
            self._shared.budget.release(nbytes)

    @property
    def kind(self) -> _BatchKey:
        """What columns have in common that are encoded together.

        The type is None unless this is a column of numbers without nulls that goes to a bundle.
        """
        type_ = self._column.type
        is_number = type_.id in NUMPY_TYPES and not pa.types.is_decimal(type_)
        is_batched = is_number and self._bundle is not None and not self._array.null_count
        is_batched &= self._column.has_bounds
        return type_.id if is_batched else None, len(self._array), id(self._asked)

    @staticmethod
    def encode_batch(writers: Sequence["PartWriter"]) -> list[Task]:
        """Encode columns of one kind together, as `encode` does one by one."""
        first = writers[0]
        form, rows, bundle = physical(first._column.type), len(first._array), first._bundle
        assert form.dtype is not None
        assert bundle is not None
        columns = np.empty((len(writers), rows), form.dtype)
        is_simple = is_number(first._column.type)
        for row, writer in zip(columns, writers, strict=True):
            # numpy itself takes half of the time.
            if is_simple and writer._column.digits is None:
                row[:] = writer._array.to_numpy()
                del writer._array
            else:
                array = writer._array_to_store()
                row[:] = numbers_in(array.buffers()[1], form.dtype.str, array.offset, rows)
        first._release(sum([writer._nbytes for writer in writers]))
        indices = np.array([writer._index for writer in writers])
        batches = [
            BundledBatch(replace(batch, columns=indices[batch.columns]), first._asked)
            for batch in encode_batch(columns, form, PAGE)
        ]
        return bundle.add(len(writers), batches)

    def _compressing(self, batch: EncodedBatch) -> list[Task]:
        """Return the tasks that compress the chunks; the last of them stores the file."""
        shared, target = self._shared, self._shared.chunk_bytes
        compressions = [
            compression_of(stream, [data[0]], self._asked)
            for stream, data in zip(batch.streams, batch.data, strict=True)
        ]
        old = None if shared.old is None else opened(shared.old, self._index, self._group)
        cuts = cuts_of(batch, target, None if old is None else chunk_sizes(old))
        pieces, facts = list(inputs_of(batch, cuts, compressions)), facts_of(batch, cuts)
        make = compressing if old is None else copying(old, batch, cuts)
        chunks: list[bytes] = [b""] * len(pieces)
        crcs = [0] * len(pieces)
        runs = runs_of(pieces)
        self._unfinished = len(runs)

        def compress(start: int, some: Sequence[ChunkInput]) -> None:
            for index, piece in enumerate(some, start):
                chunk = chunks[index] = make(index, piece)
                crcs[index] = crc32(chunk)
            with self._lock:
                self._unfinished -= 1
                is_last = self._unfinished == 0
            if is_last:
                self._put(records_of([facts], chunks, crcs), chunks, crcs)

        return [partial(compress, start, pieces[start:stop]) for start, stop in runs]

    def _put(self, records: Records, chunks: Sequence[bytes], crcs: Sequence[int]) -> None:
        """Store the part."""
        column = self._column
        number, records = self._shared.files.put(
            column.path, self._number, [column], records, chunks, crcs
        )
        column.file_numbers.append(number)
        column.parts[self._group] = records
        self._shared.progress.add(self._rows)

    def _finish(self, batch: EncodedBatch) -> None:
        """Record a part that is stored nowhere."""
        column = self._column
        column.parts[self._group] = records_of([facts_of(batch, [])], [], [])
        # A node counts like a column, whatever rows it has.
        self._shared.progress.add(self._rows)
