"""OldColumns: the columns of a table of another program, as a `ColumnReader`.

Theory of operation. The values of a column are one stored array, cut into chunks. A read of a span
goes through it in windows of about 64 MB of the arrays that are needed, cut between the largest
chunks; each window becomes arrays of Arrow before the next one is decoded. A field of structs is
cut out of the whole column. There are neither codes nor zone maps. Knows nothing of the files.
"""

from collections.abc import Container, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from blztable.arrow.nested.nodes import Node
from blztable.closing import Closing
from blztable.columns.statistics.bounds import Runs
from blztable.compat.arrays import StoredArray, pick_rows, read_rows, row_bytes
from blztable.compat.numpy_types import arrow_array
from blztable.compat.version import OldVersion
from blztable.engine.query import windows
from blztable.engine.read import selection
from blztable.engine.read.selection import RowIndices, RowSpan
from blztable.engine.run.limits import check_memory, check_rows
from blztable.engine.run.progress import Progress
from blztable.engine.version.projection import Projection


class OldColumns(Closing):
    """Reads columns of a projection of an old version, whose files the snapshot keeps open."""

    # Rows are chosen in numpy, and only these become arrays of Arrow.
    picks_rows = True

    def __init__(self, version: OldVersion, projection: Projection) -> None:
        self._version = version
        self.projection = projection

    def of(self, projection: Projection) -> "OldColumns":
        """Return a reader of another projection of the version."""
        return OldColumns(self._version, projection)

    def check(self, index: int, group: int) -> None:
        """Raise the error of a column that cannot be read."""
        self._version.values(self.projection.column_of(index))

    def columns(
        self,
        indices: Sequence[int],
        selected: Sequence[RowSpan],
        progress: Progress | None = None,
        with_nans: Container[int] = (),
    ) -> list[pa.ChunkedArray]:
        """Return spans of rows of the columns at these indices; NaN is no null in any of them."""
        stored = self._stored(indices)
        width = sum(map(row_bytes, stored.values()))
        check_memory(sum(span.count for span in selected) * width, self._version.store.name)
        chunks: dict[int, list[pa.Array]] = {index: [] for index in indices}
        for span in selected:
            for start, stop in _windows(stored.values(), span.start, span.stop):
                self._add(chunks, stored, read_rows(list(stored.values()), start, stop))
                if progress is not None:
                    progress.add((stop - start) * len(indices))
                    progress.report()
        return self._chunked(indices, chunks)

    def rows(
        self,
        indices: Sequence[int],
        selected: Sequence[RowIndices],
        order: np.ndarray | None = None,
    ) -> list[pa.ChunkedArray]:
        """Return single rows of the columns at these indices; their chunks are decoded once."""
        stored = self._stored(indices)
        numbers = np.concatenate([np.empty(0, np.int64), *(one.rows for one in selected)])
        width = sum(map(row_bytes, stored.values()))
        check_rows(len(numbers), f"{self._version.store.name}, rows by their numbers", width)
        chunks: dict[int, list[pa.Array]] = {index: [] for index in indices}
        first, stop = (int(numbers[0]), int(numbers[-1]) + 1) if len(numbers) else (0, 0)
        for window in _windows(stored.values(), first, stop):
            low, high = np.searchsorted(numbers, window)
            if low < high:
                self._add(chunks, stored, pick_rows(list(stored.values()), numbers[low:high]))
        return self._chunked(indices, chunks, order)

    def values_of_codes(self, index: int, group: int, most: int) -> pa.Array | None:
        """Return None: there are no codes."""
        return None

    def codes(
        self, index: int, selected: Sequence[RowSpan], rows_per_value: float
    ) -> list[tuple[pa.Array, pa.ChunkedArray]] | None:
        """Return None: there are no codes."""
        return None

    def zone_map(self, index: int, group: int) -> Runs | None:
        """Return None: there are no statistics."""
        return None

    def forget_before(self, group: int) -> None:
        """Do nothing: all rows are one row group."""

    def close(self) -> None:
        """Do nothing: the snapshot closes the files."""

    def _stored(self, indices: Sequence[int]) -> dict[int, StoredArray]:
        """Return the arrays that have these columns or fields, by the index of the column."""
        roots = dict.fromkeys(map(self.projection.column_of, indices))
        return {root: self._version.values(root) for root in roots}

    def _add(
        self,
        chunks: dict[int, list[pa.Array]],
        stored: dict[int, StoredArray],
        values: Sequence[np.ndarray],
    ) -> None:
        """Add rows to the columns, given those of the stored arrays."""
        whole = {}
        for root, of_root in zip(stored, values, strict=True):
            name = self._version.schema.field(root).name
            array = arrow_array(of_root, f"{self._version.store.name}, column {name!r}")
            whole[root] = array.storage if isinstance(array, pa.ExtensionArray) else array
        for index, of_index in chunks.items():
            array = whole[self.projection.column_of(index)]
            of_index.append(self._field(index, array) if self.projection.is_field(index) else array)

    def _field(self, index: int, array: pa.Array) -> pa.Array:
        """Return a field of structs, or structs with some fields, given the whole column."""
        column, (root, *rest) = self.projection.column_of(index), self.projection.nodes(index)
        node = Node.of(self._version.schema.field(column).type)
        for number in _ways(node, root - self._version.nodes(column)[0]):
            array = array.field(number)
        return array.cast(self.projection.schema.field(index).type) if rest else array

    def _chunked(
        self,
        indices: Sequence[int],
        chunks: dict[int, list[pa.Array]],
        order: np.ndarray | None = None,
    ) -> list[pa.ChunkedArray]:
        """Return arrays as columns, in some order, as dictionaries where they are read as such."""
        columns = {}
        for index, arrays in chunks.items():
            type_ = self.projection.schema.field(index).type
            is_coded = index in self.projection.dictionaries
            column = pa.chunked_array(arrays, type_.value_type if is_coded else type_)
            if order is not None:
                column = selection.reordered(column, order)
            columns[index] = column.dictionary_encode().cast(type_) if is_coded else column
        return [columns[index] for index in indices]


def _windows(stored: Iterable[StoredArray], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the first row of each window and the one after it."""
    arrays = list(stored)
    width, chunk = sum(map(row_bytes, arrays)), max((one.chunk_rows for one in arrays), default=1)
    size = max(windows.WINDOW_BYTES // max(width, 1), 1)
    # A chunk that is cut is read by two windows.
    size -= size % chunk if size >= chunk else 0
    while start < stop:
        end = min(start - start % size + size, stop)
        yield start, end
        start = end


def _ways(node: Node, place: int) -> Iterator[int]:
    """Yield the numbers of the children that lead to a node, given its place in pre-order."""
    while place:
        place -= 1
        for number, child in enumerate(node.children):
            if place < child.count:
                yield number
                node = child
                break
            place -= child.count
