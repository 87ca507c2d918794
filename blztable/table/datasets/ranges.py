"""Ranges: row groups and runs of rows of a version, as fragments of a dataset.

Knows nothing of datasets: a range has the methods of a reader that a scan calls.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from blztable import tuning
from blztable.engine import query
from blztable.engine.version.projection import Projection
from blztable.report import RowGroup
from blztable.table.display import ReadOptions
from blztable.table.names import row_numbers
from blztable.table.snapshot import Snapshot


def row_groups(projection: Projection, positions: Sequence[int]) -> list[RowGroup]:
    """Return the row groups of a version, with the sizes of some columns."""
    groups = projection.version.row_groups
    nbytes, cbytes = np.zeros(len(groups), np.int64), np.zeros(len(groups), np.int64)
    for parts in chain.from_iterable(map(projection.parts, positions)):
        nbytes += parts.records.parts["nbytes"].astype(np.int64)
        cbytes += parts.records.parts["cbytes"].astype(np.int64)
    ends, sizes = pairwise(accumulate(groups, initial=0)), (nbytes.tolist(), cbytes.tolist())
    return [RowGroup(*rows, *both) for rows, *both in zip(ends, *sizes, strict=True)]


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
        runs = query.cuts.runs(snapshot.projection, positions, None, tuning.current.part_bytes)
        ends = [(run.start, run.stop) for run in runs] or [(0, 0)]
        return [cls(snapshot, positions, *each) for each in ends]

    @property
    def schema(self) -> pa.Schema:
        """The schema of the columns."""
        return self.snapshot.schema(self.positions)

    def __getitem__(self, key: list[str]) -> "RowRange":
        snapshot, positions = self.snapshot.showing(key, self.positions)
        return replace(self, snapshot=snapshot, positions=positions)

    def to_arrow(self, *, filters: Any = None) -> pa.Table:
        """Read the rows that meet a condition into a table."""
        options = ReadOptions(filters)
        return self.snapshot.arrow(self.positions, self.start, self.stop, options)

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
        return self.snapshot.count(filters, (self.start, self.stop))

    def _fragments(self) -> "list[RowRange]":
        """Return the range itself."""
        return [self]
