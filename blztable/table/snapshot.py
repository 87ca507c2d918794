"""A version held open, and what it is read into: Arrow tables and frames.

The one room that knows both a DataFrame and a disk: the engine gives columns, `convert` makes
frames of them. Knows nothing of what users may do with a table.
"""

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from blztable.caller import stack_level
from blztable.convert.frames.descriptor import FIELD_KEY
from blztable.convert.frames.frame import index_fields, to_frame
from blztable.convert.frames.index import RowNumbers
from blztable.convert.frames.pandas_metadata import arrow_metadata
from blztable.engine.change.staged import PANDAS_KEY, StagedVersion
from blztable.engine.query.explain import explain
from blztable.engine.query.scan import Scan
from blztable.engine.query.select import (
    Selected,
    count,
    read_selected,
    select,
    take,
    take_array,
    windows,
)
from blztable.engine.read.columns import read_array
from blztable.engine.read.parts import OpenParts
from blztable.engine.read.salvage import Loss, read_intact
from blztable.engine.read.selection import RowSpan, spans
from blztable.engine.run.limits import check_rows
from blztable.engine.run.progress import Callback, Progress
from blztable.engine.version.versions import Version, pin
from blztable.engine.write.options import check_choice
from blztable.errors import BlzError, ColumnNotFoundError
from blztable.report import Explanation
from blztable.storage.store import Lock, Store

# Where a result says which rows it lacks: pairs of the first one and the one after the last.
MISSING_ROWS = "blz:missing_rows"


@dataclass(frozen=True, slots=True)
class Reading:
    """How a read goes: which rows, what it does about damage, and whom it tells how far it is."""

    filters: object = None
    on_corrupt: str = "raise"
    progress: Callback | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for a word that is not one of the choices."""
        check_choice("on_corrupt", self.on_corrupt, ("raise", "skip"))


@dataclass(frozen=True, slots=True)
class _Rows:
    """What was read: columns, the numbers of their rows in the table, and the rows that lack."""

    arrays: list[pa.ChunkedArray]
    numbers: RowNumbers
    lost: list[Loss]

    @property
    def missing(self) -> list[tuple[int, int]]:
        return [(loss.start, loss.stop) for loss in self.lost]


class Snapshot:
    """One version and the lock that keeps it, until it is closed."""

    def __init__(
        self, version: Version, pinned: Lock | None, is_open: Callable[[], bool] = lambda: True
    ) -> None:
        self.version = version
        self._pinned = pinned
        # Of a transaction, whose views end with it.
        self._is_open = is_open
        self._is_closed = False

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self.version, StagedVersion):
            raise BlzError(f"{self.name}: what a transaction shows is nowhere else")
        # A copy opens the table for itself: descriptors and locks belong to one handle.
        return _reopened, (self.version.store, self.version.head.version)

    @property
    def name(self) -> str:
        """Where the table is."""
        return self.version.store.name

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.version.head.rows

    @property
    def levels(self) -> list[str]:
        """The columns that are the index of a frame, outermost first."""
        names = self.version.schema.names
        levels = index_fields(self.version.frame)
        return [name for name in levels if names.count(name) == 1]

    @property
    def is_closed(self) -> bool:
        """True after `close`."""
        return self._is_closed

    def close(self) -> None:
        """Let go of the version."""
        self._is_closed = True
        if self._pinned is not None:
            self._pinned.close()
        self.version.store.close()

    def check_open(self) -> None:
        """BlzError after `close`."""
        if self._is_closed or not self._is_open():
            raise BlzError(f"{self.name} was closed")

    @contextmanager
    def _held(self) -> Iterator[None]:
        """While it is read: closed in the middle, what it held may be gone, and is not damaged."""
        self.check_open()
        try:
            yield
        except BlzError:
            self.check_open()
            raise

    def positions(self, columns: Sequence[str] | None, among: Sequence[int]) -> Sequence[int]:
        """Where the columns of these names are, those of one name all; `among` by default."""
        if columns is None:
            return among
        if isinstance(columns, str):
            raise TypeError(f"columns is a list of names; for one column give [{columns!r}]")
        columns = list(columns)
        names = self.version.schema.names
        wanted: dict[str, list[int]] = {name: [] for name in columns}
        # Each once, also of a view that shows it twice.
        for index in dict.fromkeys(among):
            if names[index] in wanted:
                wanted[names[index]].append(index)
        for name, found in wanted.items():
            if not found:
                there = [names[index] for index in among]
                raise ColumnNotFoundError(
                    f"no column {name!r} in {self.name}; there are {there!r:.1000}"
                )
        return [index for name in columns for index in wanted[name]]

    def schema(self, positions: Sequence[int]) -> pa.Schema:
        """The schema of some columns, with pandas' metadata in place of our own."""
        schema, head = self.version.schema, self.version.head
        fields = [schema.field(index) for index in positions]
        metadata = dict(schema.metadata or {})
        if PANDAS_KEY not in metadata:
            frame, attributes = self.version.frame, dict(head.attributes)
            text = arrow_metadata(frame, pa.schema(fields), head.rows, attributes)
            if text is not None:
                metadata[PANDAS_KEY] = text
        return pa.schema(map(_without_ours, fields), metadata or None)

    def column(self, position: int) -> pa.ChunkedArray:
        """All rows of one column."""
        return self._read([position], 0, self.rows, Reading()).arrays[0]

    def array(self, position: int, rows: range) -> pa.Array:
        """Rows of one column as one array."""
        with self._held():
            if rows.step != 1:
                return take_array(self.version, position, self.numbers(rows))
            wanted = spans(self.version.head.row_groups, rows.start, rows.stop)
            return read_array(self.version, position, wanted)

    def numbers(self, rows: range) -> np.ndarray:
        """The numbers of these rows."""
        self.check_rows(len(rows), "rows by their numbers")
        return np.arange(rows.start, rows.stop, rows.step)

    def check_rows(self, rows: int, what: str) -> None:
        """LimitError where the machine could not hold a number, or an object, for each row."""
        check_rows(rows, f"{self.name}, {what}", row_bytes=8)

    def arrow(
        self, positions: Sequence[int], start: int, stop: int, how: Reading | None = None
    ) -> pa.Table:
        """Rows of some columns as a table; only their pages are decoded."""
        rows = self._read(positions, start, stop, how or Reading())
        schema = self.schema(positions)
        if rows.lost:
            key, text = MISSING_ROWS.encode(), json.dumps(rows.missing).encode()
            schema = schema.with_metadata({**(schema.metadata or {}), key: text})
        return _table(rows.arrays, schema, len(rows.numbers))

    def scan(self, filters: object) -> Scan | None:
        """A filter over this version, its columns and types checked; None without one."""
        self.check_open()
        return None if filters is None else Scan(self.version, filters)

    def windows(self, positions: Sequence[int], scan: Scan | None) -> Iterator[list[RowSpan]]:
        """The rows to be read one after the other of a stream of these columns."""
        read = list({*positions, *(scan.positions if scan else ())})
        return windows(self.version, read, self._everything, None, scan)

    @property
    def _everything(self) -> list[RowSpan]:
        return spans(self.version.head.row_groups, 0, self.rows)

    def window(
        self,
        positions: Sequence[int],
        window: Sequence[RowSpan],
        parts: OpenParts,
        scan: Scan | None,
    ) -> pa.Table:
        """Rows of some columns out of `parts`, which keeps open what the rows after them need."""
        with self._held():
            selected = select(self.version, positions, window, parts, scan)
        return _table(selected.arrays, self.schema(positions), len(selected.numbers))

    def take(self, positions: Sequence[int], rows: np.ndarray) -> pa.Table:
        """These rows of some columns, in any order and as often as they are named."""
        with self._held():
            arrays = take(self.version, positions, rows)
        return _table(arrays, self.schema(positions), len(rows))

    def explain(self, positions: Sequence[int], filters: object) -> Explanation:
        """What reading some columns through a filter takes."""
        with self._held():
            return explain(self.version, positions, self._everything, self.scan(filters))

    def count(self, filters: object) -> int:
        """How many rows a filter leaves."""
        with self._held():
            scan = self.scan(filters)
            return self.rows if scan is None else count(scan)

    def pandas(
        self,
        positions: Sequence[int],
        *,
        columns: list[str] | None,
        dtype_backend: Any,
        how: Reading | None = None,
    ) -> pd.DataFrame:
        """Some columns as a frame with its index; `columns` orders and repeats them."""
        head, schema = self.version.head, self.version.schema
        frame = self.version.frame
        levels = set(index_fields(frame))
        # A column asked for twice is read once, one of the index beside those asked for.
        needed = dict.fromkeys(positions) | dict.fromkeys(
            index for index, name in enumerate(schema.names) if name in levels
        )
        how = how or Reading()
        rows = self._read(list(needed), 0, self.rows, how)
        fields = pa.schema([schema.field(index) for index in needed], schema.metadata)
        arrays = rows.arrays
        # Not for who takes what can be read: the first row may be what cannot.
        if not len(rows.numbers) and self.rows and how.on_corrupt == "raise":
            arrays = [self._empty(*column) for column in zip(needed, arrays, strict=True)]
        attributes = dict(head.attributes)
        if rows.lost:
            attributes[MISSING_ROWS] = [list(pair) for pair in rows.missing]
        return to_frame(
            _table(arrays, fields, len(rows.numbers)),
            len(rows.numbers),
            frame,
            attributes,
            columns=columns,
            dtype_backend=dtype_backend,
            row_numbers=rows.numbers,
        )

    def _empty(self, position: int, array: pa.ChunkedArray) -> pa.ChunkedArray:
        """A column without rows; of categories, as pandas has it, those of the first row."""
        if not pa.types.is_dictionary(array.type):
            return array
        return pa.chunked_array([self.array(position, range(1)).slice(0, 0)])

    def _read(self, positions: Sequence[int], start: int, stop: int, how: Reading) -> _Rows:
        version, scan = self.version, self.scan(how.filters)
        wanted = spans(version.head.row_groups, start, stop)
        progress, lost = None, list[Loss]()
        if how.progress is not None:
            progress = Progress(how.progress, stop - start, len(positions))

        def read(some: Sequence[RowSpan], progress: Progress | None) -> Selected:
            return read_selected(version, positions, some, scan, progress)

        with self._held():
            if how.on_corrupt == "raise":
                selected = read(wanted, progress)
            else:
                needed = [*positions, *(scan.positions if scan else ())]
                selected, lost = read_intact(read, version, needed, wanted, progress)
        if lost:
            self.check_open()
        if progress is not None:
            progress.finish(stop - start)
        for loss in lost:
            warnings.warn(
                f"rows {loss.start:,} to {loss.stop:,} are left out: {loss.reason}",
                stacklevel=stack_level(),
            )
        return _Rows(selected.arrays, selected.numbers, lost)


def _reopened(store: Store, number: int) -> Snapshot:
    return Snapshot(*pin(store, number))


def _table(arrays: list[pa.ChunkedArray], schema: pa.Schema, rows: int) -> pa.Table:
    """A table of these columns; one without columns keeps its number of rows."""
    if arrays:
        return pa.Table.from_arrays(arrays, schema=schema)
    # Not `pa.nulls`, which takes a bit a row.
    nulls = pa.Array.from_buffers(pa.null(), rows, [None])
    counted = pa.table({"rows": nulls}).replace_schema_metadata(schema.metadata)
    return counted.select([])  # Last: without columns, a change of metadata forgets the rows.


def _without_ours(field: pa.Field) -> pa.Field:
    """The field as it was given: without what we wrote on it."""
    metadata = dict(field.metadata or {})
    if metadata.pop(FIELD_KEY, None) is None:
        return field
    return field.with_metadata(metadata or None)
