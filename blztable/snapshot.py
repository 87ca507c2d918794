"""A version held open, and what it is read into: Arrow tables, frames, batches.

The one room that knows both a DataFrame and a disk: the engine gives columns, `convert` makes
frames of them. Knows nothing of what users may do with a table.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from blztable.convert.descriptor import FIELD_KEY
from blztable.convert.frame import index_fields, to_frame
from blztable.convert.interop import arrow_metadata
from blztable.engine.read import read_array, read_columns, spans
from blztable.engine.versions import Version, pin
from blztable.errors import BlzError, ColumnNotFoundError
from blztable.storage.store import Lock, Store

PANDAS_KEY = b"pandas"


class Snapshot:
    """One version and the lock that keeps it, until it is closed."""

    def __init__(self, version: Version, pinned: Lock) -> None:
        self.version = version
        self._pinned = pinned
        self._is_closed = False

    def __reduce__(self) -> tuple[Any, ...]:
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

    def close(self) -> None:
        """Let go of the version."""
        self._is_closed = True
        self._pinned.close()

    def check_open(self) -> None:
        """BlzError after `close`."""
        if self._is_closed:
            raise BlzError(f"{self.name} was closed")

    def positions(self, columns: Sequence[str] | None, among: Sequence[int]) -> Sequence[int]:
        """Where the columns of these names are, those of one name all; `among` by default."""
        if columns is None:
            return among
        if isinstance(columns, str):
            raise TypeError(f"columns is a list of names; for one column give [{columns!r}]")
        by_name: dict[str, list[int]] = {}
        for index in among:
            by_name.setdefault(self.version.schema.field(index).name, []).append(index)
        positions = []
        for name in columns:
            if name not in by_name:
                raise ColumnNotFoundError(
                    f"no column {name!r} in {self.name}; there are {list(by_name)!r:.1000}"
                )
            positions += by_name[name]
        return positions

    def schema(self, positions: Sequence[int]) -> pa.Schema:
        """The schema of some columns, with pandas' metadata in place of our own."""
        schema, head = self.version.schema, self.version.head
        fields = [schema.field(index) for index in positions]
        metadata = dict(schema.metadata or {})
        if PANDAS_KEY not in metadata:
            frame, attributes = _plain(head.pandas), dict(head.attributes)
            text = arrow_metadata(frame, pa.schema(fields), head.rows, attributes)
            if text is not None:
                metadata[PANDAS_KEY] = text
        return pa.schema(map(_without_ours, fields), metadata or None)

    def read(self, positions: Sequence[int], start: int, stop: int) -> list[pa.ChunkedArray]:
        """Rows of some columns; only their pages are decoded."""
        self.check_open()
        wanted = spans(self.version.head.row_groups, start, stop)
        return read_columns(self.version, positions, wanted)

    def array(self, position: int, start: int, stop: int) -> pa.Array:
        """Rows of one column as one array."""
        self.check_open()
        wanted = spans(self.version.head.row_groups, start, stop)
        return read_array(self.version, position, wanted)

    def arrow(self, positions: Sequence[int], start: int, stop: int) -> pa.Table:
        """Rows of some columns as a table."""
        arrays = self.read(positions, start, stop)
        return _table(arrays, self.schema(positions), stop - start)

    def batches(self, positions: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """All rows of some columns, a row group decoded at a time."""
        first = 0
        for rows in self.version.head.row_groups:
            yield from self.arrow(positions, first, first + rows).to_batches()
            first += rows

    def pandas(
        self,
        positions: Sequence[int],
        start: int,
        stop: int,
        *,
        columns: list[str] | None,
        dtype_backend: Any,
    ) -> pd.DataFrame:
        """Rows of some columns as a frame with its index; `columns` orders and repeats them."""
        head, schema = self.version.head, self.version.schema
        frame = _plain(head.pandas)
        levels = set(index_fields(frame))
        # A column asked for twice is read once, one of the index beside those asked for.
        needed = dict.fromkeys(positions) | dict.fromkeys(
            index for index, name in enumerate(schema.names) if name in levels
        )
        arrays = self.read(list(needed), start, stop)
        fields = pa.schema([schema.field(index) for index in needed], schema.metadata)
        return to_frame(
            _table(arrays, fields, stop - start),
            stop - start,
            frame,
            dict(head.attributes),
            columns=columns,
            dtype_backend=dtype_backend,
            row_numbers=range(start, stop),
        )


def _reopened(store: Store, number: int) -> Snapshot:
    return Snapshot(*pin(store, number))


def _table(arrays: list[pa.ChunkedArray], schema: pa.Schema, rows: int) -> pa.Table:
    """A table of these columns; one without columns keeps its number of rows."""
    if arrays:
        return pa.Table.from_arrays(arrays, schema=schema)
    counted = pa.table({"rows": pa.nulls(rows)}).replace_schema_metadata(schema.metadata)
    return counted.select([])  # Last: without columns, a change of metadata forgets the rows.


def _without_ours(field: pa.Field) -> pa.Field:
    """The field as it was given: without what we wrote on it."""
    metadata = dict(field.metadata or {})
    if metadata.pop(FIELD_KEY, None) is None:
        return field
    return field.with_metadata(metadata or None)


def _plain(frame: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if frame is None else dict(frame)
