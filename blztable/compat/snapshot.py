"""OldSnapshot: a table of another program, read as a version of our own is.

Theory of operation. The columns have no parts, but a head can be made that states their types and
sizes, so names, schemas and frames are those of any snapshot. Values are read in windows of about
64 MB of the columns that are needed, cut between the largest chunks; a filter is evaluated on the
window of its columns, and the other columns are read only if a row of the window matches. Nothing
prunes: the files have no statistics. Knows nothing of the files.
"""

from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from blztable.columns.statistics.extremes import extreme_of_all
from blztable.compat.arrays import OldFiles, StoredArray, pick_rows, read_rows, row_bytes
from blztable.compat.numpy_types import arrow_array
from blztable.compat.version import version_of
from blztable.compat.windows import Filter, Window, narrowed, numbers_of, root_of
from blztable.engine.query import expressions, windows
from blztable.engine.query.fields import FieldView
from blztable.engine.read.losses import Loss
from blztable.engine.run.limits import check_memory
from blztable.engine.run.progress import Progress
from blztable.engine.version.versions import Version
from blztable.errors import BlzError, CorruptError, FormatError, LimitError
from blztable.report import ColumnPlan, Explanation, Problem, Report, StreamStorage
from blztable.storage.store import Store
from blztable.table import shown
from blztable.table.shown import Reading
from blztable.table.snapshot import Snapshot

_DAMAGE = (CorruptError, FormatError)
_UNREADABLE = (*_DAMAGE, LimitError)


class OldSnapshot(Snapshot):
    """The only version of a table of another program."""

    def __init__(
        self,
        files: OldFiles,
        reopen: Callable[[Store], "OldSnapshot"],
        version: Version | None = None,
        is_open: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(version or version_of(files), None, is_open)
        self.files = files
        self._reopen = reopen

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self._reopen, self.files.store, self._views, self._dictionaries)

    def close(self) -> None:
        """Close the files."""
        super().close()
        self.files.close()

    def _view(self, version: Version) -> "OldSnapshot":
        def is_open() -> bool:
            return self._is_open() and not self.is_closed

        return OldSnapshot(self.files, self._reopen, version, is_open)

    def array(self, position: int, rows: range) -> pa.Array:
        """Read rows of one column as one array."""
        stored = self._values(position)
        self.check_rows(len(rows), f"column {self._name(position)!r}", row_bytes(stored))
        with self._guarded():
            if rows.step == 1:
                (values,) = read_rows([stored], rows.start, max(rows.start, rows.stop))
                array = self._arrow(position, values)
            else:
                (array,) = self._taken([position], self.numbers(rows))
        (column,) = self._show([position], self._columns([position], [[array]]))
        return shown.one_array(column)

    def take(self, positions: Sequence[int], rows: np.ndarray) -> pa.Table:
        """Read rows by number, in any order and with repetitions."""
        width = sum(row_bytes(self._values(position)) for position in positions)
        self.check_rows(len(rows), "rows by their numbers", max(width, 1))
        with self._guarded():
            arrays = [[array] for array in self._taken(positions, rows)]
        columns = self._show(positions, self._columns(positions, arrays))
        return shown.table_of(columns, self.schema(positions), len(rows))

    def windows(
        self, positions: Sequence[int], how: Reading, schema: pa.Schema
    ) -> Iterator[Callable[[], shown.ReadTable]]:
        """Check a filter; return one call for each window of a stream, which reads it."""
        condition = self._condition(how.filters)

        def read(start: int, stop: int) -> shown.ReadTable:
            lost: list[Loss] = []
            with self._guarded():
                found = self._windows_of(positions, start, stop, condition, how, lost)
            arrays = [[one.arrays[place] for one in found] for place in range(len(positions))]
            columns = self._show(positions, self._columns(positions, arrays))
            table = shown.table_of(columns, schema, sum(len(one.numbers) for one in found))
            return shown.ReadTable(table, lost)

        spans = self._spans(self._needed(positions, condition), 0, self.rows)
        return (partial(read, *span) for span in spans)

    def count(self, filters: object) -> int:
        """Count the rows that meet a condition."""
        condition = self._condition(filters)
        if condition is None:
            return self.rows
        with self._guarded():
            return sum(
                len(self._window([], *span, condition).numbers)
                for span in self._spans(condition.columns, 0, self.rows)
            )

    def null_count(self, position: int) -> int:
        """Count the nulls of a column, which no statistics tell."""
        with self._guarded():
            return sum(array.null_count for array in self._arrays(position))

    def extreme(self, position: int, *, is_least: bool) -> pa.Scalar:
        """Return the least or the greatest value of a flat column; all values are read."""
        with self._guarded():
            return extreme_of_all(self._arrays(position), is_least=is_least)

    def _arrays(self, position: int) -> Iterator[pa.Array]:
        """Yield a column in windows; an array without rows comes first."""
        yield self._arrow(position, self._nothing(position))
        for span in self._spans([position], 0, self.rows):
            yield self._window([position], *span, None).arrays[0]

    def explain(self, positions: Sequence[int], filters: object) -> Explanation:
        """Return what a read with this filter decodes: all chunks of its columns."""
        condition = self._condition(filters)
        plans = []
        for position in self._needed(positions, condition):
            chunks = -(-self.rows // self._values(position).chunk_rows)
            is_filter = condition is not None and position in condition.columns
            plans.append(
                ColumnPlan(
                    *(self._name(position), position, is_filter, position in positions),
                    *(len(self.version.head.row_groups), chunks, chunks),
                    *2
                    * (
                        self.version.cbytes(
                            root_of(self._views, position, len(self.files.columns))
                        ),
                    ),
                )
            )
        steps = () if condition is None else (expressions.text_of(condition.expression),)
        groups = len(self.version.head.row_groups)
        return Explanation(steps, self.rows, self.rows, groups, groups, tuple(plans))

    def streams(self, position: int) -> tuple[StreamStorage, ...]:
        """Return the sizes of one column, as its files state them."""
        self.check_open()
        nbytes, cbytes = self.version.nbytes(position), self.version.cbytes(position)
        return (StreamStorage("values", ("plain",), (), nbytes, nbytes, cbytes),)

    def verify(self, positions: Sequence[int], *, full: bool) -> Report:
        """Decode all chunks if `full`; there are no checksums to compare them with."""
        self.check_open()
        problems, chunks = [], 0
        for position in positions:
            found = list[tuple[BlzError, int, int]]()
            try:
                size = self._values(position).chunk_rows
            except _UNREADABLE as error:
                found.append((error, 0, self.rows))
                size = 0
            for start in range(0, self.rows, size) if full and size else ():
                chunks += 1
                stop = min(start + size, self.rows)
                try:
                    self._window([position], start, stop, None)
                except _DAMAGE as error:
                    found.append((error, start, stop))
            problems += [
                Problem(str(error), self._name(position), position, None, start, stop, "", False)
                for error, start, stop in found
            ]
        names = tuple(map(self._name, positions))
        return Report(0, self.rows, names, full, chunks, chunks, 0, tuple(problems))

    def _read(
        self,
        positions: Sequence[int],
        start: int,
        stop: int,
        how: Reading,
        with_nans: Container[int] = (),
    ) -> shown.ReadRows:
        condition = self._condition(how.filters)
        if condition is None:
            width = sum(row_bytes(self._values(position)) for position in positions)
            check_memory((stop - start) * width, self.name)
        progress, lost = None, list[Loss]()
        if how.progress is not None:
            progress = Progress(how.progress, stop - start, 1)
        results = []
        with self._guarded():
            for span in self._spans(self._needed(positions, condition), start, stop):
                results += self._windows_of(positions, *span, condition, how, lost)
                if progress is not None:
                    progress.add(span[1] - span[0])
                    progress.report()
        if progress is not None:
            progress.finish(stop - start)
        shown.warn_of(lost)
        arrays = [[one.arrays[place] for one in results] for place in range(len(positions))]
        return shown.ReadRows(self._columns(positions, arrays), numbers_of(results), lost)

    def _windows_of(
        self,
        positions: Sequence[int],
        start: int,
        stop: int,
        condition: Filter | None,
        how: Reading,
        lost: list[Loss],
    ) -> list[Window]:
        """Return a window, or what can be read of it; note the losses."""
        if how.on_corrupt == "raise":
            return [self._window(positions, start, stop, condition)]
        if how.on_corrupt == "null":
            raise ValueError(
                f'{self.name}: on_corrupt="null" is for tables of this program; '
                '"skip" leaves out the damaged rows'
            )
        return self._intact(positions, start, stop, condition, lost)

    def _intact(
        self,
        positions: Sequence[int],
        start: int,
        stop: int,
        condition: Filter | None,
        lost: list[Loss],
    ) -> list[Window]:
        """Return what can be read of a window, chunk by chunk if it is damaged; note the losses."""
        size = self._largest(self._needed(positions, condition))
        try:
            return [self._window(positions, start, stop, condition)]
        except _DAMAGE as error:
            cuts = [start, *range(start - start % size + size, stop, size), stop]
            if len(cuts) == 2:
                reason = str(error)
                if lost and (lost[-1].stop, lost[-1].reason) == (start, reason):
                    start = lost.pop().start
                lost.append(Loss(start, stop, reason))
                return []
        return [
            window
            for first, last in pairwise(cuts)
            for window in self._intact(positions, first, last, condition, lost)
        ]

    def _window(
        self, positions: Sequence[int], start: int, stop: int, condition: Filter | None
    ) -> Window:
        """Read the rows of one window that match."""
        if condition is None:
            values = read_rows([self._values(one) for one in positions], start, stop)
            return Window(list(map(self._arrow, positions, values)), range(start, stop))
        read = read_rows([self._values(one) for one in condition.columns], start, stop)
        known = dict(zip(condition.columns, map(self._arrow, condition.columns, read), strict=True))
        columns = {self._name(one): pa.chunked_array([array]) for one, array in known.items()}
        matching = expressions.mask(condition.expression, columns, stop - start)
        numbers: range | np.ndarray = start + np.flatnonzero(matching)
        others = [one for one in dict.fromkeys(positions) if one not in known]
        if not len(numbers):
            empty = [self._arrow(one, self._nothing(one)) for one in positions]
            return Window(empty, numbers)
        if len(numbers) == stop - start:
            numbers = range(start, stop)
        more = read_rows([self._values(one) for one in others], start, stop)
        mask = pa.array(matching)
        picked = {one: array.filter(mask) for one, array in known.items() if one in positions}
        for one, rows in zip(others, more, strict=True):
            picked[one] = self._arrow(one, rows[matching])
        return Window([picked[one] for one in positions], numbers)

    def _taken(self, positions: Sequence[int], rows: np.ndarray) -> list[pa.Array]:
        distinct, order = np.unique(rows, return_inverse=True)
        picked = pick_rows([self._values(one) for one in positions], distinct)
        arrays = list(map(self._arrow, positions, picked))
        in_order = len(distinct) == len(rows) and bool((np.diff(order) > 0).all())
        return arrays if in_order else [array.take(pa.array(order)) for array in arrays]

    def _columns(
        self, positions: Sequence[int], arrays: Sequence[list[pa.Array]]
    ) -> list[pa.ChunkedArray]:
        """Return arrays as columns of the stored types, or as dictionaries where they are shown."""
        columns = []
        for position, chunks in zip(positions, arrays, strict=True):
            column = pa.chunked_array(chunks, self.version.stored_type(position))
            if self.version.shows_dictionary(position):
                column = column.dictionary_encode()
            columns.append(column)
        return columns

    def _arrow(self, position: int, values: np.ndarray) -> pa.Array:
        array = arrow_array(values, f"{self.name}, column {self._name(position)!r}")
        array = array.storage if isinstance(array, pa.ExtensionArray) else array
        number, type_ = position - len(self.files.columns), self.version.stored_type(position)
        return narrowed(array, self._views, number, self.version.schema, type_)

    def _root(self, position: int) -> int:
        return root_of(self._views, position, len(self.files.columns))

    def _nothing(self, position: int) -> np.ndarray:
        stored = self._values(position)
        return np.empty((0, *stored.shape[1:]), stored.dtype)

    def _condition(self, filters: object) -> Filter | None:
        """Return a filter, checked; None without one."""
        self.check_open()
        if filters is None:
            return None
        schema = pa.schema(list(self.version.schema)[: len(self.files.columns)])
        expression = expressions.as_expression(filters, schema)
        return Filter(expression, expressions.check(expression, schema))

    def _spans(self, positions: Sequence[int], start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the first row of each window and the one after it."""
        width = sum(row_bytes(self._values(position)) for position in positions)
        size, chunk = max(windows.WINDOW_BYTES // max(width, 1), 1), self._largest(positions)
        # A chunk that is cut is read by two windows.
        size -= size % chunk if size >= chunk else 0
        while start < stop:
            end = min(start - start % size + size, stop)
            yield start, end
            start = end

    def _largest(self, positions: Sequence[int]) -> int:
        return max((self._values(position).chunk_rows for position in positions), default=1)

    def _needed(self, positions: Sequence[int], condition: Filter | None) -> list[int]:
        return list(dict.fromkeys([*(condition.columns if condition else ()), *positions]))

    def _name(self, position: int) -> str:
        return self.files.columns[self._root(position)].name

    def _values(self, position: int) -> StoredArray:
        """Return the stored array of a column; raise the error that it has instead."""
        values = self.files.columns[self._root(position)].values
        if isinstance(values, BlzError):
            others = [
                one.name for one in self.files.columns if not isinstance(one.values, BlzError)
            ]
            raise type(values)(
                f"column {self._name(position)!r}: {values}; the others can be read, "
                f"columns={others!r:.1000}"
            )
        return values


def _reopened(
    reopen: Callable[[Store], OldSnapshot],
    store: Store,
    fields: Sequence[FieldView],
    dictionaries: Sequence[int],
) -> Snapshot:
    return reopen(store).with_fields(fields).with_dictionaries(dictionaries)
