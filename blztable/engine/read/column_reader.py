"""ColumnReader: what a query needs of stored columns, whoever stored them.

A reader has the rows of the columns of one projection, and keeps open what the next read may need.
Knows nothing of files.
"""

from collections.abc import Container, Sequence
from typing import Protocol, Self

import numpy as np
import pyarrow as pa

from blztable.engine.read.selection import RowIndices, RowSpan
from blztable.engine.run.pool import Progress
from blztable.engine.version.projection import Projection
from blztable.storage.store import Lock


class ColumnReader(Protocol):
    """Reads columns of a projection; a context manager, which closes the files.

    Rows are those that are not deleted, numbered within their row group. Every method raises
    CorruptError if a file is missing or damaged, and LimitError if a result exceeds the memory.
    """

    @property
    def projection(self) -> Projection:
        """The columns."""

    @property
    def picks_rows(self) -> bool:
        """True if single rows never take longer than all rows of their pages."""

    @property
    def fetches(self) -> bool:
        """True if the bytes of several reads should be asked for at once: see `fetched`."""

    def fetched(
        self, indices: Sequence[int], selected: Sequence[RowSpan], most: int | None = None
    ) -> Lock:
        """Ask for what a read of these rows takes, until the result is closed.

        Nothing is asked for if it is more than `most` bytes.
        """

    def of(self, projection: Projection) -> Self:
        """Return a reader of another projection of the same version; they are closed together."""

    def check(self, index: int, group: int) -> None:
        """Raise if no row of a column in a row group can be read."""

    def piece_rows(self, index: int, group: int) -> int:
        """Return how many rows of a column to read together, so that few are lost with a chunk."""

    def columns(
        self,
        indices: Sequence[int],
        selected: Sequence[RowSpan],
        progress: Progress | None = None,
        with_nans: Container[int] = (),
    ) -> list[pa.ChunkedArray]:
        """Return spans of rows of the columns at these indices.

        In the columns `with_nans`, nulls that are stored as NaN may be NaN.
        """

    def rows(
        self,
        indices: Sequence[int],
        selected: Sequence[RowIndices],
        order: np.ndarray | None = None,
    ) -> list[pa.ChunkedArray]:
        """Return single rows of the columns at these indices.

        `order` has, for each row of the result, its index among the selected rows.
        """

    def values_of_codes(self, index: int, group: int, most: int) -> pa.Array | None:
        """Return what the codes of a column stand for in a row group, in order.

        Return None if they are more than `most`, or if the column has no codes.
        """

    def codes(
        self, index: int, selected: Sequence[RowSpan], rows_per_value: float
    ) -> list[tuple[pa.Array, pa.ChunkedArray]] | None:
        """Return spans of rows as codes: for each row group the values, and the code of each row.

        Codes are unsigned integers, null where the row is null. Return None if a row group has not
        `rows_per_value` rows for each value, or no codes.
        """

    def forget_before(self, group: int) -> None:
        """Close what belongs to earlier row groups."""

    def close(self) -> None:
        """Close the files."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...
