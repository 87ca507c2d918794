"""Snapshot: a version and its pin, read into Arrow tables and DataFrames.

Every read passes here: the engine returns columns, `convert` makes frames of them. Knows nothing of
how users open or change a table.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa

from blztable.arrow.nested.paths import Names
from blztable.arrow.types import no_rows
from blztable.columns.types import one_array
from blztable.convert.frames.frame import FrameInfo, index_fields, numpy_floats, to_frame
from blztable.convert.frames.pandas_metadata import arrow_metadata
from blztable.engine import check, query
from blztable.engine.query import select
from blztable.engine.query.fields import values_of
from blztable.engine.query.scan import Scan
from blztable.engine.read.column_reader import ColumnReader
from blztable.engine.read.columns import OpenColumns
from blztable.engine.read.damage import DamagedRows
from blztable.engine.read.parts import OpenParts
from blztable.engine.read.selection import RowSpan, spans_of
from blztable.engine.run.limits import check_rows
from blztable.engine.run.pool import Progress
from blztable.engine.version.leases import Hold
from blztable.engine.version.projection import NestedField, Projection
from blztable.engine.version.staged import PANDAS_KEY, StagedVersion
from blztable.engine.version.versions import Version, pin
from blztable.errors import BlzError, ClosedError, ConflictError, CorruptError
from blztable.report import Explanation, Report, StreamStorage
from blztable.storage.store import Lock, Store
from blztable.table import display
from blztable.table.display import ReadOptions
from blztable.table.names import named, named_with_fields

T = TypeVar("T")


class Scope:
    """Whether a transaction is open.

    The snapshots of a transaction refer to this and not to the transaction. Together they would be
    a cycle, which would keep the table's version until a garbage collection.
    """

    is_open = False


class Snapshot:
    """One version, the columns of it that are read, and the lock that keeps its files."""

    def __init__(
        self,
        version: Version,
        pinned: Lock | None,
        is_open: Callable[[], bool] = lambda: True,
        projection: Projection | None = None,
        parts: OpenParts | None = None,
        hold: Hold | None = None,
    ) -> None:
        self.version = version
        self._hold = hold
        self._unheld: BlzError | None = None
        # For how long each version that the table shows is held.
        self.hold_seconds: float | None = None
        # The parts of all reads: files stay open with the table, and are described once.
        self._parts = OpenParts(version) if parts is None else parts
        self.projection = projection or Projection.of(version)
        self._pinned = pinned
        # For a transaction: its snapshots end with it.
        self._is_open = is_open
        self._is_closed = False
        self._fields: pa.Schema | None = None
        # Rows that a killed writer did not write.
        self.unfinished: list[DamagedRows] = []

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self.version, StagedVersion):
            raise TypeError(
                f"{self.name}: an open transaction cannot be pickled; pickle the table instead"
            )
        # A copy opens the table for itself: descriptors and locks belong to one handle.
        head, columns = self.version.head, self.projection
        which = (head.version, head.commit)
        how = (columns.schema, columns.fields, columns.dictionaries)
        return _reopened, (self.version.store, which, *how, self.hold_seconds)

    @property
    def name(self) -> str:
        """Path of the table."""
        return self.version.store.name

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.version.head.rows

    @property
    def levels(self) -> list[str]:
        """Names of the columns that are the index of a frame, outermost first."""
        names = self.projection.schema.names
        levels = index_fields(self.version.frame)
        return [name for name in levels if names.count(name) == 1]

    @property
    def is_closed(self) -> bool:
        """True after `close`."""
        return self._is_closed

    def keep(self, seconds: float | None, *, is_needed: bool = True) -> None:
        """Hold the version for so many seconds where no lock does; None does nothing.

        TableNotFoundError if it was removed meanwhile. If not `is_needed`, the next read tells what
        has failed: a commit was made before.
        """
        self.hold_seconds, store = seconds, self.version.store
        if seconds is None or store.locks or self._is_closed:
            return
        try:
            self._hold = Hold(store, self.version.head.version, seconds)
        except BlzError as error:
            if is_needed:
                raise
            self._unheld = error

    def close(self) -> None:
        """Release the version, and close the store."""
        self.release()
        self.version.store.close()

    def release(self) -> None:
        """Release the version."""
        self._is_closed = True
        self._parts.close()
        if self._hold is not None:
            self._hold.close()
        if self._pinned is not None:
            self._pinned.close()

    def check_open(self) -> None:
        """Raise ClosedError after `close`."""
        if self._is_closed or not self._is_open():
            raise ClosedError(f"{self.name} was closed; open the table again")
        if self._hold is not None:
            self._hold.check()
        if self._unheld is not None:
            raise self._unheld

    def with_dictionaries(self, indices: Sequence[int]) -> "Snapshot":
        """Return a snapshot that reads columns of text or binary as dictionaries."""
        return self._with(self.projection.with_dictionaries(indices))

    def with_fields(self, fields: Sequence[NestedField]) -> "Snapshot":
        """Return a snapshot with fields of nested columns as further columns."""
        return self._with(self.projection.with_fields(fields)) if fields else self

    def _with(self, projection: Projection) -> "Snapshot":
        """Return a snapshot of another projection of the version, which this one keeps."""
        if projection is self.projection:
            return self
        return type(self)(
            self.version,
            None,
            lambda: self._is_open() and not self.is_closed,
            projection,
            self._parts,
            self._hold,
        )

    def opened(self, projection: Projection) -> ColumnReader:
        """Return a new reader of a projection of the version."""
        return OpenColumns(projection, self._parts)

    def reader(self) -> ColumnReader:
        """Return a new reader of the columns."""
        return self.opened(self.projection)

    def _guarded(self) -> Self:
        """Guard a read: if the table was closed meanwhile, report that, not damage it caused."""
        self.check_open()
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, BlzError):
            self.check_open()

    def positions(
        self, columns: Iterable[Names], among: Sequence[int], argument: str = "columns"
    ) -> Sequence[int]:
        """Return the indices of all columns with these names."""
        return named(self.projection, columns, among, argument)

    def showing(
        self, columns: Iterable[Names] | None, among: Sequence[int]
    ) -> tuple["Snapshot", Sequence[int]]:
        """Return a snapshot that has the named columns and fields, and their indices in it."""
        if columns is None:
            return self, among
        fields, positions = named_with_fields(self.projection, columns, among)
        return self.with_fields(fields), positions

    def field(self, name: Names, among: Sequence[int]) -> tuple["Snapshot", int] | None:
        """Return a snapshot with the values of a field of nested columns, and the field's index."""
        field = values_of(self.projection, name, among)
        return (self.with_fields([field]), len(self.projection.schema)) if field else None

    @property
    def fields(self) -> pa.Schema:
        """The schema as users see it."""
        if self._fields is None:
            self._fields = display.display_schema(self.projection)
        return self._fields

    def _show(
        self, positions: Sequence[int], columns: Sequence[pa.ChunkedArray]
    ) -> list[pa.ChunkedArray]:
        """Return columns as users see them."""
        if not display.has_extensions(self.version):
            return list(columns)
        return display.display_columns(
            columns, [self.fields.field(position).type for position in positions]
        )

    def schema(self, positions: Sequence[int]) -> pa.Schema:
        """Return the schema of some columns, with pandas metadata instead of our own."""
        schema, head = self.fields, self.version.head
        fields = [schema.field(index) for index in positions]
        metadata = dict(schema.metadata or {})
        if PANDAS_KEY not in metadata:
            frame, attributes = self.version.frame, dict(head.attributes)
            text = arrow_metadata(frame, pa.schema(fields), head.rows, attributes)
            if text is not None:
                metadata[PANDAS_KEY] = text
        return pa.schema(display.without_ours(self.version, fields), metadata or None)

    def column(self, position: int) -> pa.ChunkedArray:
        """Read all rows of one column."""
        rows, _ = self._read([position], 0, self.rows, ReadOptions())
        return self._show([position], rows.arrays)[0]

    def array(self, position: int, rows: range) -> pa.Array:
        """Read rows of one column as one array."""
        with self._guarded():
            with self.reader() as reader:
                if rows.step != 1 or len(rows) == 1:
                    (stored,) = select.take(reader, [position], self.numbers(rows))
                else:
                    row_spans = spans_of(self.version, rows.start, rows.stop)
                    (stored,) = reader.columns([position], row_spans)
            array = one_array(stored)
        (column,) = self._show([position], [pa.chunked_array([array])])
        return display.one_array(column)

    def streams(self, position: int) -> tuple[StreamStorage, ...]:
        """Return how the streams of one column are stored."""
        with self._guarded():
            return check.usage.streams_of(self.projection, position)

    def numbers(self, rows: range) -> np.ndarray:
        """Return the numbers of these rows as an array."""
        self.check_rows(len(rows), "rows by their numbers")
        return np.arange(rows.start, rows.stop, rows.step)

    def check_rows(self, rows: int, context: str, row_bytes: int = 8) -> None:
        """Raise LimitError if the machine cannot hold these rows."""
        check_rows(rows, f"{self.name}, {context}", row_bytes)

    def arrow(
        self, positions: Sequence[int], start: int, stop: int, options: ReadOptions | None = None
    ) -> pa.Table:
        """Read rows of some columns as a table; only their pages are decoded."""
        rows, lost = self._read(positions, start, stop, options or ReadOptions())
        schema = display.with_missing(self.schema(positions), lost)
        return display.table_of(self._show(positions, rows.arrays), schema, len(rows.numbers))

    def scan(self, filters: object) -> Scan | None:
        """Return a filter over the columns, checked; None without a filter."""
        self.check_open()
        return None if filters is None else Scan(self.projection, filters)

    def windows(
        self, positions: Sequence[int], rows: range, options: ReadOptions, schema: pa.Schema
    ) -> Iterator[Callable[[], display.ReadTable]]:
        """Check a filter; return one call for each window of a stream of rows, which reads it."""
        return self._windows(positions, rows, self.scan(options.filters), options, schema)

    def _windows(
        self,
        positions: Sequence[int],
        rows: range,
        scan: Scan | None,
        options: ReadOptions,
        schema: pa.Schema,
    ) -> Iterator[Callable[[], display.ReadTable]]:
        read = list({*positions, *(scan.columns if scan else ())})
        # Files stay open until the generator ends.
        with self.reader() as reader:
            spans = select.row_spans(self.version, scan, rows)
            for window in select.windows(self.projection, read, spans, None, scan):
                yield partial(self.window, positions, window, reader, scan, options, schema)
        if self.unfinished and rows.stop == self.rows:
            yield lambda: display.ReadTable(no_rows(schema), self.unfinished)

    def window(
        self,
        positions: Sequence[int],
        window: Sequence[RowSpan],
        reader: ColumnReader,
        scan: Scan | None,
        options: ReadOptions,
        schema: pa.Schema,
    ) -> display.ReadTable:
        """Read one window; the reader keeps open the files that the next windows need."""
        read = self._twice(partial(select.select, reader, positions, window, scan))
        with self._guarded():
            rows, lost = query.salvage.salvaged(
                read,
                self.projection,
                self.opened,
                positions,
                scan,
                lambda: window,
                options.on_corrupt,
            )
        if lost:
            self.check_open()
        columns = self._show(positions, rows.arrays)
        return display.ReadTable(display.table_of(columns, schema, len(rows.numbers)), lost)

    def take(self, positions: Sequence[int], rows: np.ndarray) -> pa.Table:
        """Read rows by number, in any order and with repetitions."""
        with self._guarded(), self.reader() as reader:
            arrays = self._twice(partial(select.take, reader, positions, rows))()
        return display.table_of(self._show(positions, arrays), self.schema(positions), len(rows))

    def explain(self, positions: Sequence[int], filters: object) -> Explanation:
        """Return the pages and bytes that a read with this filter decodes and skips."""
        with self._guarded():
            scan = self.scan(filters)
            everything = select.row_spans(self.version, scan, range(self.rows))
            return query.explain.explain(self.projection, positions, everything, scan)

    def statistics(self, positions: Sequence[int]) -> pa.Table:
        """Return what the records say of each row group, in some columns."""
        with self._guarded():
            return query.statistics.statistics(self.projection, positions)

    def verify(self, positions: Sequence[int], *, full: bool) -> Report:
        """Check columns of the version for damage; of a field, the column that it is in."""
        self.check_open()
        columns = dict.fromkeys(map(self.projection.column_of, positions))
        return check.verify.verify(self.version, list(columns), full=full)

    def null_count(self, position: int) -> int:
        """Return the number of nulls of a column, mostly from statistics."""
        with self._guarded(), self.reader() as reader:
            return int(select.null_counts(reader, position).sum())

    def extreme(self, position: int, *, is_least: bool) -> pa.Scalar:
        """Return the least or the greatest value of a flat column, from few of its row groups."""
        with self._guarded(), self.reader() as reader:
            return select.extreme_of(reader, position, is_least=is_least)

    def count(self, filters: object, rows: tuple[int, int] | None = None) -> int:
        """Count the rows that meet a condition, among all or some of them."""
        start, stop = rows or (0, self.rows)
        with self._guarded():
            scan = self.scan(filters)
            if scan is None:
                return stop - start
            with self.reader() as reader:
                return select.count(reader, scan, start, stop)

    def pandas(
        self,
        positions: Sequence[int],
        *,
        columns: list[str] | None,
        dtype_backend: Any,
        options: ReadOptions | None = None,
        rows: tuple[int, int] | None = None,
    ) -> pd.DataFrame:
        """Read some columns as a frame with its index; `columns` orders and repeats them."""
        head, schema = self.version.head, self.projection.schema
        info = FrameInfo.decode(self.version.frame)
        levels = set(info.index_fields())
        # A column named twice is read once; the columns of the index are always read.
        needed = dict.fromkeys(positions) | dict.fromkeys(
            index for index, name in enumerate(schema.names) if name in levels
        )
        options = options or ReadOptions()
        floats = numpy_floats(schema, info, dtype_backend)
        start, stop = rows or (0, self.rows)
        read, lost = self._read(list(needed), start, stop, options, floats)
        fields, described = display.described(self.projection, self.fields, needed)
        fields = display.with_nullable(fields, lost)
        arrays = read.arrays
        # Not with on_corrupt="skip": the first row may be the damaged one.
        if not len(read.numbers) and self.rows and options.on_corrupt == "raise":
            arrays = [self._empty(*column) for column in zip(needed, arrays, strict=True)]
        attributes = dict(head.attributes) | display.told(lost)
        return to_frame(
            display.table_of(self._show(list(needed), arrays), fields, len(read.numbers)),
            len(read.numbers),
            described,
            attributes,
            columns=columns,
            dtype_backend=dtype_backend,
            row_numbers=read.numbers,
        )

    def _empty(self, position: int, array: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return an empty column; a dictionary column keeps the categories of the first row."""
        if not pa.types.is_dictionary(array.type):
            return array
        return pa.chunked_array([self.array(position, range(1)).slice(0, 0)])

    def _twice(self, read: Callable[[], T]) -> Callable[[], T]:
        """Return a read that is made again, without a cache, if bytes from there are damaged."""

        def made() -> T:
            try:
                return read()
            except CorruptError:
                if not self.version.store.forget_cache():
                    raise
            return read()

        return made

    def _read(
        self,
        positions: Sequence[int],
        start: int,
        stop: int,
        options: ReadOptions,
        with_nans: Container[int] = (),
    ) -> tuple[select.Selected, list[DamagedRows]]:
        rows, progress = range(start, stop), None
        if options.progress is not None:
            progress = Progress(options.progress, stop - start, len(positions))

        with self._guarded():
            filters, projection = options.filters, self.projection
            scan = None if filters is None else Scan(projection, filters)
            reader = self.opened(projection)
            read = partial(select.read_selected, reader, positions, scan, rows, progress, with_nans)
            selected, lost = query.salvage.salvaged(
                self._twice(read),
                projection,
                self.opened,
                positions,
                scan,
                partial(select.row_spans, self.version, scan, rows),
                options.on_corrupt,
                with_nans,
            )
        if lost:
            self.check_open()
        if options.on_corrupt != "raise" and stop == self.rows:
            lost += self.unfinished
        if progress is not None:
            progress.finish(stop - start)
        display.warn_of(lost)
        return selected, lost


def _reopened(
    store: Store,
    which: tuple[int, str],
    schema: pa.Schema,
    fields: tuple[Sequence[int], ...],
    dictionaries: frozenset[int],
    hold_seconds: float | None = None,
) -> Snapshot:
    version, pinned = pin(store, which[0])
    if version.head.commit != which[1]:
        # The path leads to another table by now, which may have a version of this number.
        pinned.close()
        raise ConflictError(f"{store.name}: the table was removed or replaced; open it again")
    projection = Projection(version, schema, fields, dictionaries)
    snapshot = Snapshot(version, pinned, projection=projection)
    snapshot.keep(hold_seconds)
    return snapshot
