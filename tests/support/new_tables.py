"""Rows of a new table as `creation.create` takes them."""

from dataclasses import dataclass

import pyarrow as pa


@dataclass
class Stream:
    """The rows of one Arrow table; `count` is needed if it has no columns."""

    table: pa.Table
    count: int | None = None
    # As of a stream, whose rows are not known.
    rows = None

    @property
    def schema(self):
        return self.table.schema

    @property
    def segments(self):
        rows = self.table.num_rows if self.count is None else self.count
        yield self.schema, None, iter([(self.table, rows)])

    def frame(self, rows):
        return None
