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
from dataclasses import dataclass

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
from blztable.engine.read.selection import RowSelection, RowSpan
from blztable.engine.run.limits import check_rows
from blztable.engine.version.versions import Version
from blztable.errors import SchemaError
from blztable.format.records import ITEM_CHUNKS

# Bytes of a row of which most chunks have no wanted one if single rows are read.
LARGE_ROW = 1 << 13
# Answers of `_page_of` that are kept with a version.
_KEPT_PAGES = 256


@dataclass(frozen=True, slots=True)
class Step:
    """One conjunct of a filter, and the columns (index, name) that it refers to."""

    expression: pc.Expression
    columns: tuple[int, ...]
    names: tuple[str, ...]
    pruner: Pruner
    # The terms of its own conjuncts; empty if the expression has no tree.
    terms: tuple[Term, ...]

    def mask(self, columns: Mapping[int, pa.ChunkedArray], rows: int) -> np.ndarray:
        """Return for each row whether the conjunct is true."""
        arrays = [columns[index] for index in self.columns]
        return expressions.mask(self.expression, dict(zip(self.names, arrays, strict=True)), rows)


@dataclass(frozen=True, slots=True)
class FilteredRows:
    """The rows that pass a filter, in table order, and columns of these rows by index."""

    selection: Sequence[RowSelection]
    columns: Mapping[int, pa.ChunkedArray]

    @property
    def count(self) -> int:
        """Number of rows."""
        return sum(one.count for one in self.selection)


@dataclass(frozen=True, slots=True)
class _MorselColumn:
    """The values of a column in the rows of a morsel whose flag in `rows` is set."""

    rows: np.ndarray
    values: pa.ChunkedArray | CodedColumn

    def of(self, rows: np.ndarray, indices: np.ndarray | None) -> pa.ChunkedArray:
        """Return the values of these rows, all of which the column covers."""
        is_coded = isinstance(self.values, CodedColumn)
        count = np.count_nonzero(rows) if indices is None else len(indices)
        if count == len(self.values):
            return self.values.decoded() if is_coded else self.values
        if len(self.values) < len(rows):
            rows, indices = rows[self.rows], None
        if indices is None:
            (indices,) = rows.nonzero()
        if is_coded:
            return self.values.chosen(rows, indices)
        return selection.chosen(self.values, rows, indices)


@dataclass(frozen=True, slots=True)
class _RowsToRead:
    """Rows of a morsel to decode.

    Attributes
    ----------
    rows
        A flag for each row of the morsel.
    selection
        The same rows by row group: spans, or indices if single rows are picked.
    indices
        The indices of the flags if single rows are picked.
    """

    rows: np.ndarray
    selection: Sequence[RowSelection]
    indices: np.ndarray | None = None

    @property
    def count(self) -> int:
        """Number of rows."""
        return sum([one.count for one in self.selection])

    @property
    def spans(self) -> list[RowSpan]:
        """The spans among the selection: all of it, or nothing."""
        return [one for one in self.selection if isinstance(one, RowSpan)]


class Morsel:
    """Blocks of rows, and the rows among them that pass the steps applied so far."""

    def __init__(self, blocks: Blocks, reader: ColumnReader, uncoded: set[int]) -> None:
        """All rows pass until a step is applied; columns without codes are put into `uncoded`."""
        self._blocks = blocks
        self._reader = reader
        self._uncoded = uncoded
        # A flag for each row; None until a step evaluates rows, because they may be too many.
        self._passing: np.ndarray | None = None
        self._columns: dict[int, _MorselColumn] = {}

    def apply(self, number: int, step: Step) -> None:
        """Keep the rows for which the step is true; only blocks where it is open are evaluated."""
        blocks, passing = self._blocks, self._passing
        is_open = blocks.open[number]
        if not is_open.any():
            return
        check_rows(int(blocks.rows.sum()), "the rows of a filter")
        rows = is_open.repeat(blocks.rows)
        if passing is None:
            read = _RowsToRead(rows, blocks[is_open].spans())
        else:
            rows &= passing
            read = self._pages(rows, step.columns) or self._picked(rows)
        if not read.count:
            return
        true = self._mask_of_codes(step, read)
        if true is None:
            true = step.mask(self._values(step.columns, read.rows, read), read.count)
        if len(true) == len(read.rows):
            self._passing = true if passing is None else passing & true
        else:
            self._passing = np.ones_like(rows) if passing is None else passing
            self._passing[read.rows if read.indices is None else read.indices] &= true

    def _pages(self, rows: np.ndarray, columns: Iterable[int]) -> _RowsToRead | None:
        """Return the pages that have one of these rows; None to read single rows."""
        if self._reader.picks_rows:
            return None
        blocks, projection = self._blocks, self._reader.projection
        indices = list(dict.fromkeys(columns))
        lines = [line for index in indices for line in projection.nodes(index)]
        nbytes = max(map(projection.nbytes, indices), default=0)
        if not lines or nbytes > LARGE_ROW * projection.version.head.rows:
            # Most chunks may have none of these rows.
            return None
        page = _page_of(projection.version, lines, blocks.groups)
        if page is None:
            return None
        pages, _ = blocks.pages(1 << page)
        has_row = np.logical_or.reduceat(rows, pages.rows.cumsum() - pages.rows)
        if np.count_nonzero(rows) * tuning.current.rows_per_selected <= pages.rows[has_row].sum():
            return None
        return _RowsToRead(has_row.repeat(pages.rows), pages[has_row].spans())

    def _picked(self, rows: np.ndarray) -> _RowsToRead:
        """Return these rows, one by one."""
        (indices,) = rows.nonzero()
        return _RowsToRead(rows, self._blocks.picked(indices), indices)

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
                self._columns[index] = _MorselColumn(read.rows, coded)
        column = self._columns.get(index)
        if column is None or not isinstance(column.values, CodedColumn):
            return None
        if read.count != len(column.values):
            return None
        try:
            return column.values.mask(lambda values: step.mask({index: values}, len(values)))
        except SchemaError:
            # Arrow cannot evaluate the condition on a value that no row may have.
            return None

    def result(self, columns: Iterable[int]) -> FilteredRows:
        """Return the rows that pass all steps, and these columns of them."""
        if self._passing is None:
            spans = self._blocks.spans()
            return FilteredRows(spans, self._read(columns, spans))
        columns, picked = list(columns), self._picked(self._passing)
        read = self._pages(self._passing, columns) or picked
        if read is not picked:
            self._read_codes(columns, read)
        values = self._values(columns, self._passing, read, picked.indices)
        return FilteredRows(picked.selection, values)

    def _read_codes(self, columns: Iterable[int], read: _RowsToRead) -> None:
        """Read text as codes where possible: then only the text of passing rows is written."""
        schema = self._reader.projection.schema
        for index in dict.fromkeys(columns):
            type_ = schema.field(index).type
            if index not in self._columns and (is_text(type_) or is_binary(type_)):
                coded = codes.read(self._reader, index, read.spans)
                if coded is not None:
                    self._columns[index] = _MorselColumn(read.rows, coded)

    def _values(
        self,
        columns: Iterable[int],
        rows: np.ndarray,
        read: _RowsToRead,
        indices: np.ndarray | None = None,
    ) -> dict[int, pa.ChunkedArray]:
        """Return columns of these rows; those that do not cover them yet are read.

        `places` are the indices of the flags set in `rows`, if they are known.
        """
        missing = unread(columns, rows, {index: one.rows for index, one in self._columns.items()})
        for index, values in self._read(missing, read.selection).items():
            self._columns[index] = _MorselColumn(read.rows, values)
        return {index: self._columns[index].of(rows, indices) for index in columns}

    def _read(
        self, columns: Iterable[int], selection: Sequence[RowSelection]
    ) -> dict[int, pa.ChunkedArray]:
        """Decode columns: whole pages for spans, single rows for indices."""
        indices = list(dict.fromkeys(columns))
        if not indices:
            return {}
        spans = [one for one in selection if isinstance(one, RowSpan)]
        if len(spans) == len(selection):
            arrays = self._reader.columns(indices, spans)
        else:
            arrays = self._reader.rows(indices, [one.picked() for one in selection])
        return dict(zip(indices, arrays, strict=True))


def _page_of(version: Version, lines: Sequence[int], groups: np.ndarray) -> int | None:
    """Return the power of two of the smallest page of some parts; None if items are chunks."""
    known: dict[tuple[tuple[int, ...], bytes], int | None] = version.made("pages", dict)
    key = tuple(lines), groups.tobytes()
    if key not in known:
        if len(known) >= _KEPT_PAGES:
            known.clear()
        parts = version.records(lines, np.unique(groups)).parts
        has_items = (parts["flags"] & ITEM_CHUNKS).any()
        known[key] = None if has_items else int(parts["page"].min())
    return known[key]


def unread(columns: Iterable[int], rows: np.ndarray, read: Mapping[int, np.ndarray]) -> list[int]:
    """Return the columns that were not read yet in all of these rows (or blocks)."""
    return [
        index
        for index in dict.fromkeys(columns)
        if index not in read or (not read[index].all() and bool((rows > read[index]).any()))
    ]
