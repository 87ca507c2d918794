"""Morsel: about 500,000 rows to which one thread applies the steps of a filter, one after another.

Knows nothing of statistics, nor of other morsels.

Theory of operation. `scan` cuts the table into morsels of whole row groups and runs each as one
task of the pool. A morsel has one flag for each of its rows: the row passed all steps so far. A
step looks only at blocks in which statistics left it open. A read of columns for some rows, for a
step or for the result, decodes the pages that have such a row; where at most one in some rows of
these pages is one of them, or rows are very large, it reads single rows. A condition on one column
is evaluated on its codes (`codes`) if possible. Columns stay in the morsel: a later step, or the
result, reads again only what they do not cover. Reads inside a morsel use the pool too, so a single
morsel still uses all threads. Memory is bounded by the columns of the filter and of the result in
the morsels of one window (`select`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable import tuning
from blztable.arrow.types import is_binary, is_text
from blztable.engine.query import codes, expressions
from blztable.engine.query.blocks import Blocks
from blztable.engine.query.codes import CodedColumn
from blztable.engine.query.expression_tree import Term
from blztable.engine.query.pruning import Pruner
from blztable.engine.read import selection
from blztable.engine.read.column_reader import ColumnReader
from blztable.engine.read.selection import RowIndices, RowSelection, RowSpan
from blztable.engine.run.limits import check_rows
from blztable.engine.version.projection import Projection
from blztable.errors import SchemaError
from blztable.format.records import ITEM_CHUNKS

# Bytes of a row of which most chunks have no wanted one if single rows are read.
LARGE_ROW = 1 << 13
# Flags of fewer rows are made without a look at the memory of the machine.
UNCHECKED_ROWS = 1 << 24


@dataclass(frozen=True, slots=True)
class Step:
    """One conjunct of a filter, and the columns (index, name) that it refers to."""

    expression: pc.Expression
    columns: tuple[int, ...]
    names: tuple[str, ...]
    pruner: Pruner
    # The terms of its own conjuncts; empty if the expression has no tree.
    terms: tuple[Term, ...]
    # By row group: for each code of the one column, whether the conjunct is true of its value.
    passing: dict[int, np.ndarray] = field(default_factory=dict)

    def mask(self, columns: Mapping[int, pa.ChunkedArray], rows: int) -> np.ndarray:
        """Return for each row whether the conjunct is true."""
        named = {}
        for index, name in zip(self.columns, self.names, strict=True):
            named[name] = columns[index]
        return expressions.mask(self.expression, named, rows)


@dataclass(frozen=True, slots=True)
class FilteredRows:
    """The rows that pass a filter, in table order, and columns of these rows by index."""

    selection: Sequence[RowSelection]
    columns: Mapping[int, pa.ChunkedArray]

    @property
    def count(self) -> int:
        """Number of rows."""
        return sum(rows.count for rows in self.selection)


@dataclass(frozen=True, slots=True)
class _RowsToRead:
    """Rows of a morsel.

    Attributes
    ----------
    rows
        A flag for each row of the morsel.
    count
        Number of flags that are set.
    spans
        The same rows by row group, if they are whole pages.
    indices, picked
        The indices of the flags, and the rows by row group, if single rows are picked.
    """

    rows: np.ndarray
    count: int
    spans: Sequence[RowSpan] = ()
    indices: np.ndarray | None = None
    picked: Sequence[RowIndices] = ()


class Morsel:
    """Blocks of rows, and the rows among them that pass the steps applied so far."""

    def __init__(self, blocks: Blocks, reader: ColumnReader, uncoded: set[int]) -> None:
        """All rows pass until a step is applied; columns without codes are put into `uncoded`."""
        self._blocks = blocks
        self._reader = reader
        self._uncoded = uncoded
        # A flag for each row; None until a step evaluates rows, because they may be too many.
        self._passing: np.ndarray | None = None
        # Columns that were read, and a flag for each row: they have its value.
        self._columns: dict[int, tuple[np.ndarray, pa.ChunkedArray | CodedColumn]] = {}

    def apply(self, number: int, step: Step) -> None:
        """Keep the rows for which the step is true; only blocks where it is open are evaluated."""
        blocks, passing = self._blocks, self._passing
        some = blocks.opened(number)
        if not len(some.groups):
            return
        if blocks.count > UNCHECKED_ROWS:
            check_rows(blocks.count, "the rows of a filter")
        rows = blocks.open[number].repeat(blocks.rows)
        if passing is None:
            read = _RowsToRead(rows, some.count, some.spans)
        else:
            rows &= passing
            read = self._pages(rows, step.columns) or self._picked(rows)
        if not read.count:
            return
        true = self._mask_of_codes(step, read)
        if true is None:
            true = step.mask(self._values(step.columns, read, read), read.count)
        if len(true) == len(rows):
            self._passing = true if passing is None else passing & true
        else:
            self._passing = ~np.zeros(len(rows), np.bool_) if passing is None else passing
            self._passing[read.rows if read.indices is None else read.indices] &= true

    def _pages(self, rows: np.ndarray, columns: Sequence[int]) -> _RowsToRead | None:
        """Return the pages that have one of these rows; None to read single rows."""
        if self._reader.picks_rows:
            return None
        blocks, key = self._blocks, tuple(columns)
        if key not in blocks.page_of:
            groups = np.unique(blocks.groups)
            blocks.page_of[key] = _page_of(self._reader.projection, columns, groups)
        page = blocks.page_of[key]
        if page is None:
            return None
        pages = blocks.divided(page)
        counts = pages.rows
        has_row = np.logical_or.reduceat(rows, counts.cumsum() - counts)
        count = int(counts[has_row].sum())
        if np.count_nonzero(rows) * tuning.current.rows_per_selected <= count:
            return None
        return _RowsToRead(has_row.repeat(counts), count, pages[has_row].spans)

    def _picked(self, rows: np.ndarray) -> _RowsToRead:
        """Return these rows, one by one."""
        (indices,) = rows.nonzero()
        return _RowsToRead(rows, len(indices), (), indices, self._blocks.picked(indices))

    def _mask_of_codes(self, step: Step, read: _RowsToRead) -> np.ndarray | None:
        """Evaluate a step on the codes of its one column; None if that is not possible."""
        # Without a tree, the result may depend on more than the value.
        if len(step.columns) != 1 or not step.terms or read.indices is not None:
            return None
        (index,) = step.columns
        if index not in self._columns and index not in self._uncoded:
            coded = codes.read(self._reader, index, read.spans)
            if coded is None:
                self._uncoded.add(index)
            else:
                self._columns[index] = read.rows, coded
        _, coded = self._columns.get(index, (None, None))
        if not isinstance(coded, CodedColumn) or read.count != len(coded):
            return None
        try:
            return coded.mask(lambda values: step.mask({index: values}, len(values)), step.passing)
        except SchemaError:
            # Arrow cannot evaluate the condition on a value that no row may have.
            return None

    def result(self, columns: Iterable[int]) -> FilteredRows:
        """Return the rows that pass all steps, and these columns of them."""
        columns = list(dict.fromkeys(columns))
        if self._passing is None:
            spans = self._blocks.spans
            arrays = self._reader.columns(columns, spans) if columns else ()
            return FilteredRows(spans, dict(zip(columns, arrays, strict=True)))
        picked = self._picked(self._passing)
        read = self._pages(self._passing, columns) or picked
        if read is not picked:
            self._read_codes(columns, read)
        return FilteredRows(picked.picked, self._values(columns, picked, read))

    def _read_codes(self, columns: Iterable[int], read: _RowsToRead) -> None:
        """Read text as codes where possible: then only the text of passing rows is written."""
        schema = self._reader.projection.schema
        for index in columns:
            type_ = schema.field(index).type
            if index not in self._columns and (is_text(type_) or is_binary(type_)):
                coded = codes.read(self._reader, index, read.spans)
                if coded is not None:
                    self._columns[index] = read.rows, coded

    def _values(
        self, columns: Iterable[int], rows: _RowsToRead, read: _RowsToRead
    ) -> dict[int, pa.ChunkedArray]:
        """Return columns of these rows; of those that do not cover them yet, `read` is read."""
        known = self._columns
        missing = [
            index
            for index in dict.fromkeys(columns)
            if index not in known or is_unread(rows.rows, known[index][0])
        ]
        if missing:
            if read.indices is None:
                arrays = self._reader.columns(missing, read.spans)
            else:
                arrays = self._reader.rows(missing, read.picked)
            for index, values in zip(missing, arrays, strict=True):
                known[index] = read.rows, values
        columns_of_rows = {}
        for index in columns:
            columns_of_rows[index] = _of(rows, *known[index])
        return columns_of_rows


def _of(
    wanted: _RowsToRead, covered: np.ndarray, values: pa.ChunkedArray | CodedColumn
) -> pa.ChunkedArray:
    """Return the values of rows, given those of more rows, whose flags are set in `covered`."""
    is_coded, rows, indices = isinstance(values, CodedColumn), wanted.rows, wanted.indices
    if wanted.count == len(values):
        return values.decoded() if is_coded else values
    if len(values) < len(rows):
        rows, indices = rows[covered], None
    if indices is None:
        (indices,) = rows.nonzero()
    return values.chosen(rows, indices) if is_coded else selection.chosen(values, rows, indices)


def _page_of(projection: Projection, columns: Sequence[int], groups: np.ndarray) -> int | None:
    """Return the power of two of the smallest page of columns; None to read single rows.

    Items that are chunks are read so, and very large rows: most chunks have none that is wanted.
    """
    nbytes = max(map(projection.nbytes, columns), default=0)
    if not columns or nbytes > LARGE_ROW * projection.version.head.rows:
        return None
    lines = [line for index in columns for line in projection.nodes(index)]
    parts = projection.version.records(lines, groups).parts
    return None if (parts["flags"] & ITEM_CHUNKS).any() else int(parts["page"].min())


def is_unread(rows: np.ndarray, read: np.ndarray) -> bool:
    """True if some of these rows (or blocks) were not read yet, given those that were."""
    return not read.all() and bool((rows > read).any())
