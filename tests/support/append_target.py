"""A table in memory, as the target of `append_source`."""

import pandas as pd
import pyarrow as pa

from blztable.arrow.casts import cast_exactly, repeated
from blztable.convert.append_source import AppendSource, TableSpec, append_source, new_source
from blztable.convert.frames.frame import to_frame
from blztable.errors import SchemaError
from support.frame_strategies import rebuilt


def spec_of(schema: pa.Schema, rows: int = 0) -> TableSpec:
    """Return the facts of an Arrow table without defaults and without categories."""
    return TableSpec(schema, None, rows, {}.get, lambda index: None)


def source_of(data, target: TableSpec, *, index=None, evolve=False) -> AppendSource:
    return append_source(data, target, index=index, evolve=evolve)


class Table:
    """A table as `append_source` sees it: its parts, their schema, frame facts and rows."""

    def __init__(self, data, **defaults) -> None:
        first = new_source(data, index=None)
        self.parts = [part for run in first.segments for part in run.parts]
        self.schema, self.frame = first.schema, first.frame(self.rows)
        self.defaults = {
            self.schema.names.index(name): pa.scalar(v) for name, v in defaults.items()
        }

    @property
    def rows(self) -> int:
        return sum(rows for _, rows in self.parts)

    def order(self, place: int) -> pa.Array | None:
        chunks = [chunk for part, _ in self.parts for chunk in part.column(place).chunks]
        return next((chunk.dictionary for chunk in chunks if len(chunk)), None)

    def is_empty(self, place: int) -> bool:
        there = [part.column(place) for part, _ in self.parts if place < part.num_columns]
        return all(column.null_count == len(column) for column in there)

    def append(self, data, **options) -> "Table":
        target = TableSpec(
            self.schema, self.frame, self.rows, self.defaults.get, self.order, self.is_empty
        )
        self.appended = source_of(data, target, **options)
        for segment in self.appended.segments:
            self.schema, self.frame = segment.schema, segment.frame
            self.arrow()
            for part, rows in segment.parts:
                assert part.schema.equals(segment.schema, check_metadata=True)
                assert rows == part.num_rows
                self.parts.append((part, rows))
        return self

    def arrow(self) -> pa.Table:
        """Return all parts in the last schema, as a reader of older parts sees them."""
        parts = [self._seen(part, rows) for part, rows in self.parts]
        return pa.concat_tables(parts) if parts else self.schema.empty_table()

    def _seen(self, part: pa.Table, rows: int) -> pa.Table:
        if part.schema.equals(self.schema, check_metadata=True):
            return part
        columns = [
            cast_exactly(part.column(field.name), field.type)
            if field.name in part.column_names
            else repeated(field.type, rows, None)
            for field in self.schema
        ]
        if None in columns:
            raise SchemaError(f"a row before does not fit {self.schema.types}")
        return pa.Table.from_arrays(columns, schema=self.schema)

    def pandas(self, **options) -> pd.DataFrame:
        whole = rebuilt(self.arrow().combine_chunks())
        return to_frame(whole, self.rows, self.frame, {}, **options)
