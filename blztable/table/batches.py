"""Batches: a table read as a stream, a few row groups at a time.

Theory of operation. A version is cut into windows: ranges of rows that take a bounded amount of
memory. A generator (`Snapshot.windows`) yields one call per window. The prefetcher of engine/run
draws these calls and runs one ahead in its own thread, which decodes with the pool, while the
caller's thread cuts the last window into record batches of at most `batch_rows` rows. The next
window is begun only when the caller asks for the last batches of the current one, so about two
windows are in memory.
Any thread may iterate or close: one at a time holds the turn. Closing ends the generator, which
closes the files. Knows nothing of what a filter is.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from blztable.arrow.types import as_views, is_view, recoded, view_type, without_view
from blztable.closing import Closing
from blztable.engine.run.pool import Prefetcher
from blztable.table import display
from blztable.table.display import ReadOptions
from blztable.table.snapshot import Snapshot

# Default maximum number of rows of a batch, as in other readers.
BATCH_ROWS = 1 << 17


class Batches(Closing):
    """The rows of a table as a stream of record batches, a few row groups in memory at a time.

    Made by `CTable.to_batches`. An iterator and a context manager: while the caller works with one
    batch, the next rows are decoded. Closing it, or dropping the last reference, stops that. It has
    the Arrow PyCapsule interface, so pyarrow, polars and duckdb read it as a stream.

    References
    ----------
    The Arrow PyCapsule interface,
    https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"a": range(10)}, "t.blz")
    >>> with blz.open("t.blz") as t, t.to_batches(batch_rows=6) as batches:
    ...     print([batch.num_rows for batch in batches])
    [6, 4]
    """

    def __init__(
        self,
        snapshot: Snapshot,
        positions: Sequence[int],
        batch_rows: int | None = None,
        options: ReadOptions | None = None,
        rows: range | None = None,
    ) -> None:
        options = options or ReadOptions()
        rows = range(snapshot.rows) if rows is None else rows
        schema = snapshot.schema(positions)
        if options.on_corrupt == "null":
            schema = pa.schema([field.with_nullable(True) for field in schema], schema.metadata)
        # Before the first window is read: it raises if the filter is wrong.
        windows = snapshot.windows(positions, rows, options, schema)
        # pyarrow takes no number above 64 bits.
        self._batch_rows = None if batch_rows is None else min(batch_rows, max(len(rows), 1))
        self._schema = schema
        # None once closed: a closed stream keeps no version.
        self._snapshot: Snapshot | None = snapshot
        self._tables = Prefetcher(windows)
        # Batches of the current window: the next ones, and an iterator that cuts the others.
        self._ready: deque[pa.RecordBatch] = deque()
        self._uncut: Iterator[pa.RecordBatch] = iter(())

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the batches."""
        return self._schema

    def __iter__(self) -> "Batches":
        return self

    def __next__(self) -> pa.RecordBatch:
        """Return the next batch.

        Returns
        -------
        pyarrow.RecordBatch
            At least one and at most `batch_rows` rows.

        Raises
        ------
        ClosedError
            The stream, or its table, was closed.
        """
        with self._tables.exclusive():
            self._tables.check_open()
            if self._snapshot is not None:
                self._snapshot.check_open()
            ready = self._ready  # `close` replaces it.
            if ready:
                # Only now: before, the caller may still hold the batches of the last window.
                self._tables.prefetch()
            while not ready:
                read = next(self._tables)
                display.warn_of(read.lost)
                table = read.table
                # Rows of the null type are not cut by default: their number has no bound.
                most = self._batch_rows or (BATCH_ROWS if table.nbytes else None)
                # A filter may leave no row of a window.
                self._uncut = table.to_reader(max_chunksize=most) if table.num_rows else iter(())
                del read, table
                self._cut(ready, 2)
                if len(ready) == 1:
                    self._tables.prefetch()
            batch = ready.popleft()
            if not ready:
                self._cut(ready, 1)
            return batch

    def _cut(self, ready: deque[pa.RecordBatch], count: int) -> None:
        """Cut `count` more batches; all at once may be millions if `batch_rows` is small."""
        batches = list(islice(self._uncut, count))
        ready.extend(batches)
        if len(batches) < count:
            self._uncut = iter(())  # An exhausted Arrow reader still holds its table.

    def close(self) -> None:
        """Stop decoding and release memory and files; closing twice is harmless.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": range(10)}, "t.blz")
        >>> with blz.open("t.blz") as t:
        ...     batches = t.to_batches(batch_rows=2)
        ...     first = next(batches)
        ...     batches.close()
        """
        self._tables.close()
        self._ready = deque()
        self._uncut = iter(())
        self._snapshot = None

    def __arrow_c_schema__(self) -> object:
        """Return the schema as an Arrow PyCapsule."""
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the remaining batches as an Arrow PyCapsule stream, cast to `requested_schema`.

        ValueError if the names differ, ArrowTypeError if a type cannot be cast. A value that does
        not fit raises when its batch is read.
        """
        if requested_schema is None:
            return pa.RecordBatchReader.from_batches(self._schema, self).__arrow_c_stream__()
        # Arrow casts everything but dictionaries of views.
        schema = without_views(self._schema)
        batches = (cast(batch, schema) for batch in self)
        reader = pa.RecordBatchReader.from_batches(schema, batches)
        return reader.__arrow_c_stream__(requested_schema)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a stream of batches cannot be pickled; pickle the table instead")


def without_views(schema: pa.Schema) -> pa.Schema:
    """Return the schema with large text and bytes instead of views, which few kernels support."""
    return pa.schema(map(_without_view, schema), schema.metadata)


def with_views(schema: pa.Schema, coded: pa.Schema) -> pa.Schema:
    """Return the schema with views of the text and bytes that `coded` has dictionaries of."""
    fields = [
        field.with_type(view_type(field.type)) if pa.types.is_dictionary(other) else field
        for field, other in zip(schema, coded.types, strict=True)
    ]
    return pa.schema(fields, schema.metadata)


def cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Cast a batch to the types of a dataset."""
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
    if array.type == type_:
        return array
    if is_view(type_):
        return as_views(array, type_)
    if not pa.types.is_dictionary(type_):
        return array.cast(type_)
    return recoded(array, type_)
