"""Batches: a table read a few row groups at a time, the next decoded while the caller works."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import pyarrow as pa

from blztable.arrow_types import without_view
from blztable.engine.query.scan import Scan
from blztable.engine.read.parts import OpenParts
from blztable.engine.run.prefetch import Prefetcher
from blztable.table.snapshot import Snapshot

# The most rows of a batch by default, as other readers have it.
BATCH_ROWS = 1 << 17


class Batches:
    """The rows of a table as record batches, a few row groups in memory at a time.

    An iterator: while the caller works with one batch, the rows that come next are decoded. Closing
    it early, at the end of a `with` or when nobody holds it any more, ends that too.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        positions: Sequence[int],
        batch_rows: int | None = None,
        filters: object = None,
    ) -> None:
        scan = snapshot.scan(filters)
        # pyarrow takes no number of more than 64 bits.
        self._batch_rows = None if batch_rows is None else min(batch_rows, max(snapshot.rows, 1))
        self._schema = snapshot.schema(positions)
        # Until it is closed: a stream closed keeps no version.
        self._snapshot: Snapshot | None = snapshot
        self._tables = Prefetcher(_jobs(snapshot, positions, scan))
        # Batches of a window: the next ones, and those that are made when they are asked for.
        self._ready: deque[pa.RecordBatch] = deque()
        self._uncut: Iterator[pa.RecordBatch] = iter(())

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""
        return self._schema

    def __iter__(self) -> "Batches":
        return self

    def __next__(self) -> pa.RecordBatch:
        """The next batch.

        Raises
        ------
        CorruptError
            A file is damaged or missing.
        BlzError
            This iterator, or its table, was closed.
        """
        with self._tables.exclusive():
            self._tables.check_open()
            if self._snapshot is not None:
                self._snapshot.check_open()
            ready = self._ready  # Another one takes its place when someone closes.
            if ready:
                # Only now, for at the first of them the caller may still hold those before.
                self._tables.prefetch()
            while not ready:
                table = next(self._tables)
                # Rows of nothing are not cut by default: there may be any number of them.
                most = self._batch_rows or (BATCH_ROWS if table.nbytes else None)
                # Nothing of a window may be left by a filter.
                self._uncut = table.to_reader(max_chunksize=most) if table.num_rows else iter(())
                del table
                self._cut(ready, 2)
                if len(ready) == 1:
                    self._tables.prefetch()
            batch = ready.popleft()
            if not ready:
                self._cut(ready, 1)
            return batch

    def _cut(self, ready: deque[pa.RecordBatch], count: int) -> None:
        """Cut a few more batches of the window: a small `batch_rows` makes millions of them."""
        found = list(islice(self._uncut, count))
        ready.extend(found)
        if len(found) < count:
            self._uncut = iter(())  # An Arrow reader keeps its table to the end.

    def close(self) -> None:
        """Decode no more; closing twice is harmless."""
        self._tables.close()
        self._ready = deque()
        self._uncut = iter(())
        self._snapshot = None

    def __arrow_c_schema__(self) -> object:
        """The schema as an Arrow PyCapsule."""
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The batches left, as an Arrow PyCapsule stream, cast to the schema requested.

        ValueError for other names than those of the columns, ArrowTypeError for types that cannot
        be cast to; a value that does not fit is told by the batch that has it.
        """
        if requested_schema is None:
            return pa.RecordBatchReader.from_batches(self._schema, self).__arrow_c_stream__()
        # Arrow casts all but the values of a dictionary that are views.
        schema = without_views(self._schema)
        batches = (cast(batch, schema) for batch in self)
        reader = pa.RecordBatchReader.from_batches(schema, batches)
        return reader.__arrow_c_stream__(requested_schema)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a stream goes on only where it was begun; pickle the table instead")

    def __enter__(self) -> "Batches":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _jobs(
    snapshot: Snapshot, positions: Sequence[int], scan: Scan | None
) -> Iterator[Callable[[], pa.Table]]:
    """The call that reads each window. The files stay open until the generator ends."""
    with OpenParts(snapshot.version) as parts:
        for window in snapshot.windows(positions, scan):
            yield partial(snapshot.window, positions, window, parts, scan)


def without_views(schema: pa.Schema) -> pa.Schema:
    """The schema with text and bytes in place of views, which Arrow can do little with."""
    return pa.schema(map(_without_view, schema), schema.metadata)


def cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch as one of a schema without views."""
    if batch.schema == schema:
        return batch
    arrays = map(_cast, batch.columns, schema.types)
    return pa.RecordBatch.from_arrays(list(arrays), schema=schema)


def _without_view(field: pa.Field) -> pa.Field:
    type_ = field.type
    if pa.types.is_dictionary(type_):
        values = without_view(type_.value_type)
        return field.with_type(pa.dictionary(type_.index_type, values, type_.ordered))
    return field.with_type(without_view(type_))


def _cast(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if array.type == type_ or not pa.types.is_dictionary(type_):
        return array.cast(type_)
    values = array.dictionary.cast(type_.value_type)
    return pa.DictionaryArray.from_arrays(array.indices, values, ordered=type_.ordered)
