"""Read columns: spans of rows, or single rows, of the columns of a projection.

Rows are live ones, until this file asks for pages: here they become rows as they are stored, and
what was deleted among them is left out of the result.

A column of a nested type is read as its nodes (`nested.py`), another one as one node. All nodes of
a read are decoded together (`phases.py`). Columns can also be read as codes, and as dictionaries of
what the codes stand for.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import groupby

import numpy as np
import pyarrow as pa

from blztable.arrow.nested.nodes import is_nested
from blztable.block_terms import DICTIONARY
from blztable.closing import Closing
from blztable.columns.statistics import bounds
from blztable.columns.statistics.bounds import Zones
from blztable.columns.types import one_array
from blztable.engine.read import selection
from blztable.engine.read.column_batch import read_batches
from blztable.engine.read.nested import NestedRead
from blztable.engine.read.parts import OpenParts, Part
from blztable.engine.read.phases import ColumnRead, DictionaryRead, read_phases
from blztable.engine.read.selection import RowIndices, RowSelection, RowSpan
from blztable.engine.run.pool import Progress, batches, run
from blztable.engine.version.projection import Projection
from blztable.engine.version.versions import Version

Pages = dict[int, Sequence[RowSelection]]


class OpenColumns(Closing):
    """The columns of a projection, read from the parts of its version: a `ColumnReader`."""

    # The values of a page are decoded straight into an array.
    picks_rows = False

    def __init__(self, projection: Projection, parts: OpenParts | None = None) -> None:
        """Open nothing yet."""
        self.projection = projection
        self.parts = OpenParts(projection.version) if parts is None else parts

    @classmethod
    def whole(cls, version: Version) -> "OpenColumns":
        """Return a reader of all columns of a version, as stored."""
        return cls(Projection.of(version))

    @property
    def version(self) -> Version:
        """The version."""
        return self.projection.version

    def of(self, projection: Projection) -> "OpenColumns":
        """Return a reader of another projection of the version; they are closed together."""
        return self if projection is self.projection else OpenColumns(projection, self.parts)

    def forget_before(self, group: int) -> None:
        """Drop the parts of earlier row groups."""
        self.parts.forget_before(group)

    def close(self) -> None:
        """Close the files."""
        self.parts.close()

    def check(self, index: int, group: int) -> None:
        """Open the part of a column, or of its root: without it, no row can be read."""
        self.parts.open(self.projection.nodes(index)[0], group)

    def columns(
        self,
        indices: Sequence[int],
        selected: Sequence[RowSpan],
        progress: Progress | None = None,
        with_nans: Container[int] = (),
    ) -> list[pa.ChunkedArray]:
        """Return spans of rows of the columns at these indices; a column named twice is read once.

        In the columns `with_nans`, nulls that are stored as NaN are NaN, which takes no bitmap.

        Raises
        ------
        CorruptError
            A file is missing or damaged; the message names the file, the column and the chunk.
        LimitError
            The result does not fit into the machine's memory.
        """
        deleted = self.version.deleted
        selected = selection.stored_spans(deleted, selected)
        nested = self._nested(indices, selected)
        flat = self._flat(indices, nested)
        nans = {line for index, line in flat.items() if index in with_nans}
        coded = {index: flat.pop(index) for index in self.projection.dictionaries if index in flat}
        together = read_batches(self.parts, [*flat.values()], selected, progress, nans)
        found = {index: together[line] for index, line in flat.items() if line in together}
        flat = {index: line for index, line in flat.items() if line not in together}
        spans = self._spans([*flat.values(), *coded.values()], selected)
        plain = _pages(nested, {line: spans[line] for line in flat.values()})
        coded_spans = {index: spans[line] for index, line in coded.items()}
        columns, dictionaries = self._read(plain, coded_spans, progress, nans)
        found |= {index: one.array(columns) for index, one in nested.items()}
        wholes = {index: columns[line] for index, line in flat.items()} | dictionaries
        for index, line in (flat | coded).items():
            found[index] = selection.cut_spans(wholes[index], spans[line], selected)
        found = selection.without_deleted(found, deleted, selected)
        return [found[index] for index in indices]

    def rows(
        self,
        indices: Sequence[int],
        selected: Sequence[RowIndices],
        order: np.ndarray | None = None,
    ) -> list[pa.ChunkedArray]:
        """Return single rows of the columns at these indices; raise as `columns` does.

        `order` has, for each row of the result, its index among the selected rows.
        """
        selected = selection.stored_rows(self.version.deleted, selected)
        nested = self._nested(indices, selected)
        flat = self._flat(indices, nested)
        found = {}
        if nested:
            # Apart, because a line may be in both, with other rows.
            columns, _ = self._read(_pages(nested, {}), {})
            found = {index: one.array(columns) for index, one in nested.items()}
        coded = [index for index in self.projection.dictionaries if index in flat]
        plain = {line: selected for index, line in flat.items() if index not in coded}
        columns, dictionaries = self._read(plain, dict.fromkeys(coded, selected))
        found |= {index: columns[line] for index, line in flat.items() if index not in coded}
        found |= dictionaries
        if order is not None:
            found = {index: selection.reordered(one, order) for index, one in found.items()}
        return [found[index] for index in indices]

    def pages(self, index: int, selected: Sequence[RowSpan]) -> dict[int, Sequence[RowSpan]]:
        """Return the pages of each node that a read of rows of a column decodes, by line."""
        selected = selection.stored_spans(self.version.deleted, selected)
        nested = self._nested([index], selected)
        pages = _pages(nested, self._spans(self._flat([index], nested).values(), selected))
        return {line: [one for one in of if isinstance(one, RowSpan)] for line, of in pages.items()}

    def codes(
        self, index: int, selected: Sequence[RowSpan], rows_per_value: float
    ) -> list[tuple[pa.Array, pa.ChunkedArray]] | None:
        """Return spans of rows of a column as codes, and their values, by row group.

        The codes are unsigned integers, null where the row is null. Return None unless all parts
        have codes, and so many rows for each. Raise as `columns` does.
        """
        groups = {
            group: list(of_group) for group, of_group in groupby(selected, lambda one: one.group)
        }
        values = []
        for group, of_group in groups.items():
            rows = sum(span.count for span in of_group)
            found = self.values_of_codes(index, group, int(rows / rows_per_value))
            if found is None:
                return None
            values.append(found)
        (line,), deleted = self.projection.nodes(index), self.version.deleted
        stored = [selection.stored_spans(deleted, spans) for spans in groups.values()]
        line_parts = self.version.parts(line)
        pages = [selection.of_spans(line_parts, spans) for spans in stored]
        codes = read_phases(
            self.parts, [ColumnRead(self.parts, line, rows, Part.as_codes) for rows in pages]
        )
        columns = [
            selection.without_deleted({0: selection.cut_spans(*of_group)}, deleted, of_group[2])[0]
            for of_group in zip(codes, pages, stored, strict=True)
        ]
        return list(zip(values, columns, strict=True))

    def values_of_codes(self, index: int, group: int, most: int) -> pa.Array | None:
        """Return what the codes of a part stand for, in order, if they are at most `most`.

        Return None if they are more, or if a code has no one value. Raise as `columns` does.
        """
        nodes, type_ = self.projection.nodes(index), self.projection.schema.field(index).type
        if is_nested(type_):
            return None
        part = self.parts.open(nodes[0], group)
        if not pa.types.is_dictionary(part.type):
            values = part.values_of_codes(most)
            if values is None or not pa.types.is_dictionary(type_):
                return values
            codes = np.arange(len(values), dtype=np.int32)
            return pa.DictionaryArray.from_arrays(codes, values.cast(type_.value_type))
        dictionary = part.root.children.get(DICTIONARY)
        if dictionary is None or not 0 < dictionary.rows <= most:
            return None
        try:
            # A dictionary may have more values than its type has indices.
            indices = pa.array(np.arange(dictionary.rows)).cast(part.type.index_type)
        except pa.ArrowInvalid:
            return None
        rows = [RowSpan(group, 0, dictionary.rows)]
        column = ColumnRead(self.parts, nodes[0], rows, Part.dictionary)
        values = one_array(read_phases(self.parts, [column])[0])
        return pa.DictionaryArray.from_arrays(indices, values, ordered=part.type.ordered)

    def zone_map(self, index: int, group: int) -> Zones | None:
        """Return the statistics of each page of a column, as its part has them."""
        part = self.parts.open(self.projection.nodes(index)[0], group)
        statistics = part.zone_map()
        if statistics is None:
            return None
        with part.error_context():
            type_ = self.projection.schema.field(index).type
            return bounds.zones(type_, part.rows_of_pages, statistics)

    def _nested(
        self, indices: Sequence[int], selected: Sequence[RowSelection]
    ) -> dict[int, NestedRead]:
        """Return the reads of the columns among these whose type is nested."""
        if self.version.is_flat:
            return {}
        types = {index: self.projection.schema.field(index).type for index in indices}
        return {
            index: NestedRead(self.parts, type_, self.projection.nodes(index), selected)
            for index, type_ in types.items()
            if is_nested(type_)
        }

    def _flat(self, indices: Sequence[int], nested: Container[int]) -> dict[int, int]:
        """Return the line of each of the other columns."""
        if self.version.is_flat:
            return dict(zip(indices, indices, strict=True))
        nodes = self.projection.nodes
        return {index: nodes(index)[0] for index in indices if index not in nested}

    def _spans(
        self, lines: Iterable[int], selected: Sequence[RowSpan]
    ) -> dict[int, Sequence[RowSpan]]:
        """Return the pages of these rows of each flat column, by line."""
        line_parts = self.version.parts
        return {line: selection.of_spans(line_parts(line), selected) for line in lines}

    def _read(
        self,
        selected: Mapping[int, Sequence[RowSelection]],
        coded: Mapping[int, Sequence[RowSelection]],
        progress: Progress | None = None,
        with_nans: Container[int] = (),
    ) -> tuple[dict[int, pa.ChunkedArray], dict[int, pa.ChunkedArray]]:
        """Return rows of nodes, by line, and of columns as dictionaries, by index."""
        plain = _readers(self.parts, selected, with_nans)
        dictionaries = {
            index: self._dictionary_readers(index, rows) for index, rows in coded.items()
        }
        readers = [*plain, *(one for of_column in dictionaries.values() for one in of_column)]
        arrays = iter(read_phases(self.parts, readers, progress))
        nodes = dict(zip(selected, arrays, strict=False))
        columns = {
            index: pa.chunked_array(
                [chunk for _ in of_column for chunk in next(arrays).chunks],
                self.projection.schema.field(index).type,
            )
            for index, of_column in dictionaries.items()
        }
        return nodes, columns

    def _dictionary_readers(
        self, index: int, selected: Sequence[RowSelection]
    ) -> list[DictionaryRead]:
        """Return the reads of a column as dictionaries: one for each part."""
        (line,), type_ = self.projection.nodes(index), self.projection.schema.field(index).type
        rows = self.version.row_groups
        groups: dict[int, list[RowSelection]] = {}
        for one in selected:
            groups.setdefault(one.group, []).append(one)
        return [
            DictionaryRead(
                self.parts, line, of_group, type_, self.values_of_codes(index, group, rows[group])
            )
            for group, of_group in groups.items()
        ]


def _pages(nested: Mapping[int, NestedRead], flat: Mapping[int, Sequence[RowSpan]]) -> Pages:
    """Return the pages to decode of each node, by line."""
    pages: Pages = {**flat}
    for one in nested.values():
        pages |= one.pages
    return pages


def read_nodes(
    parts: OpenParts, selected: Mapping[int, Sequence[RowSpan]]
) -> dict[int, pa.ChunkedArray]:
    """Return stored rows of nodes, by line, also deleted ones; raise as `OpenColumns.columns`."""
    pages = {
        line: selection.of_spans(parts.version.parts(line), spans)
        for line, spans in selected.items()
    }
    arrays = read_phases(parts, _readers(parts, pages))
    return {
        line: selection.cut_spans(array, pages[line], selected[line])
        for line, array in zip(selected, arrays, strict=True)
    }


def _readers(
    parts: OpenParts,
    selected: Mapping[int, Sequence[RowSelection]],
    with_nans: Container[int] = (),
) -> list[ColumnRead]:
    """Return the reads of nodes."""
    return [
        ColumnRead(parts, line, rows, Part.with_nans if line in with_nans and rows else None)
        for line, rows in selected.items()
    ]


def file_bytes(parts: OpenParts, line: int, pages: Sequence[RowSpan]) -> int:
    """Return the number of bytes that a read of these pages takes from files not yet read."""
    column = ColumnRead(parts, line, pages)
    run(batches(column.opening()))
    return sum(one.cbytes for one in column.fill(None) if not one.part.is_small)
