"""RowRange: neighbouring rows of a version, as a fragment of a dataset reads them.

Knows nothing of datasets: it has the methods of a reader that a scan calls.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from blztable.table.indices import row_numbers
from blztable.table.snapshot import Reading, Snapshot

# Rows of a fragment: a few row groups, so that all processors decode one.
FRAGMENT_ROWS = 1 << 20


@dataclass(frozen=True)
class RowRange:
    """The rows from `start` to `stop` of some columns."""

    snapshot: Snapshot
    positions: Sequence[int]
    start: int
    stop: int

    @classmethod
    def all(cls, snapshot: Snapshot, positions: Sequence[int]) -> "list[RowRange]":
        """Return ranges that have all rows; one without rows if there are none."""
        starts = range(0, max(snapshot.rows, 1), FRAGMENT_ROWS)
        stops = [*starts[1:], snapshot.rows]
        return [cls(snapshot, positions, *ends) for ends in zip(starts, stops, strict=True)]

    @property
    def schema(self) -> pa.Schema:
        """The schema of the columns."""
        return self.snapshot.schema(self.positions)

    def __getitem__(self, key: list[str]) -> "RowRange":
        snapshot, positions = self.snapshot.showing(key, self.positions)
        return replace(self, snapshot=snapshot, positions=positions)

    def to_arrow(self, *, filters: Any = None) -> pa.Table:
        """Read the rows that meet a condition into a table."""
        how = Reading(filters)
        return self.snapshot.arrow(self.positions, self.start, self.stop, how)

    def to_batches(
        self, *, filters: Any = None, batch_rows: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read the rows that meet a condition as batches; all are in memory at a time."""
        return iter(self.to_arrow(filters=filters).to_batches(batch_rows))

    def take(self, indices: Any) -> pa.Table:
        """Read rows by number, counted from the first one of the range."""
        numbers = row_numbers(indices, self.stop - self.start)
        return self.snapshot.take(self.positions, numbers + self.start)

    def count(self, *, filters: Any = None) -> int:
        """Count the rows that meet a condition."""
        if filters is None:
            return self.stop - self.start
        return int(replace(self, positions=()).to_arrow(filters=filters).num_rows)

    def fragments(self) -> "list[RowRange]":
        """Return the range itself."""
        return [self]
