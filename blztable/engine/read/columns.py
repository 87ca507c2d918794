"""Read columns: spans of rows, or single rows, of the columns of a projection.

Rows are live ones, until this file asks for pages: here they become rows as they are stored, and
what was deleted among them is left out of the result.

A column of a nested type is read as its nodes (`nested.py`), another one as one node. All nodes of
a read are decoded together (`flat.py`), many small parts of one form as one matrix (`batch.py`).
Columns can also be read as codes, and as dictionaries of what the codes stand for.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import itemgetter

import numpy as np
import pyarrow as pa

from blztable import tuning
from blztable.arrow.nested.nodes import is_nested
from blztable.closing import Closing
from blztable.engine.read import selection
from blztable.engine.read.batch import read_batches
from blztable.engine.read.damage import piece_rows
from blztable.engine.read.flat import (
    CodesRead,
    DictionaryRead,
    FlatRead,
    by_group,
    ranges_of,
    read_flat,
)
from blztable.engine.read.nested import NestedRead
from blztable.engine.read.parts import OpenParts, Part
from blztable.engine.read.selection import RowIndices, RowSelection, RowSpan
from blztable.engine.run.ahead import fetched, one_by_one
from blztable.engine.run.pool import Progress, run
from blztable.engine.version.projection import Projection
from blztable.engine.version.versions import Version
from blztable.format import layout
from blztable.format.deletions import DeletedIn
from blztable.storage.store import ByteRange, Lock, Nothing


class OpenColumns(Closing):
    """The columns of a projection, read from the parts of its version: a `ColumnReader`."""

    # The values of a page are decoded straight into an array.
    picks_rows = False

    def __init__(self, projection: Projection, parts: OpenParts | None = None) -> None:
        """Open nothing yet; parts that are given are not closed with the reader."""
        self.projection, self.version = projection, projection.version
        self.parts = OpenParts(projection.version) if parts is None else parts
        self._is_owner = parts is None
        self.fetches = projection.version.store.fetches

    @classmethod
    def whole(cls, version: Version) -> "OpenColumns":
        """Return a reader of all columns of a version, as stored."""
        return cls(Projection.of(version))

    def of(self, projection: Projection) -> "OpenColumns":
        """Return a reader of another projection of the version, which this one closes."""
        return self if projection is self.projection else OpenColumns(projection, self.parts)

    def forget_before(self, group: int) -> None:
        """Drop the parts of earlier row groups, unless others read them, too."""
        if self._is_owner:
            self.parts.forget_before(group)
        elif group:
            self.parts.trim()

    def close(self) -> None:
        """Close the files, unless others read from them, too."""
        if self._is_owner:
            self.parts.close()
        else:
            self.parts.trim()

    def check(self, index: int, group: int) -> None:
        """Open the part of a column, or of its root: without it, no row can be read."""
        self.parts.open(self.projection.nodes(index)[0], group).check()

    def piece_rows(self, index: int, group: int) -> int:
        """Return how many rows of a column to read together, so that few are lost with a chunk."""
        return piece_rows(self.projection.version.records(self.projection.nodes(index), [group]))

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
        deleted = self._deleted_in(selected) if self.version.facts.deleted_rows else ()
        if deleted:
            selected = selection.stored_spans(deleted, selected)
        arrays = self._read(indices, selected, progress, with_nans)
        if deleted:
            arrays = selection.without_deleted(arrays, deleted, selected)
        return list(map(arrays.__getitem__, indices))

    def rows(
        self,
        indices: Sequence[int],
        selected: Sequence[RowIndices],
        order: np.ndarray | None = None,
    ) -> list[pa.ChunkedArray]:
        """Return single rows of the columns at these indices; raise as `columns` does.

        `order` has, for each row of the result, its index among the selected rows.
        """
        if self.version.facts.deleted_rows and (deleted := self._deleted_in(selected)):
            selected = selection.stored_rows(deleted, selected)
        arrays = self._read(indices, selected)
        if order is not None:
            arrays = {index: selection.reordered(array, order) for index, array in arrays.items()}
        return list(map(arrays.__getitem__, indices))

    def _deleted_in(self, selected: Sequence[RowSelection]) -> DeletedIn:
        return self.version.deleted_in([rows.group for rows in selected])

    def fetched(
        self, indices: Sequence[int], selected: Sequence[RowSpan], most: int | None = None
    ) -> Lock:
        """Ask for what a read of these rows takes, until the result is closed.

        Nothing is asked for if it is more than `most` bytes.
        """
        ranges, is_single = self.ranges(indices, selected)
        if most is not None and sum([stop - start for _, start, stop in ranges]) > most:
            return Nothing()
        return fetched(self.version.store, ranges, is_single)

    def ahead(
        self, groups: Iterable[int], indices: Sequence[int], rows: int | None = None
    ) -> Iterator[int]:
        """Yield row groups, of which columns are read next: a store is asked for them ahead.

        Of each row group, the first `rows` are asked for; all by default.
        """

        def wanted(group: int) -> tuple[list[ByteRange], bool]:
            stop = self.version.row_groups[group] if rows is None else rows
            return self.ranges(indices, [RowSpan(group, 0, stop)])

        return one_by_one(self.version.store, groups, wanted)

    def ranges(
        self, indices: Sequence[int], selected: Sequence[RowSpan]
    ) -> tuple[list[ByteRange], bool]:
        """Return the ranges of files that a read of rows takes, and whether of single rows."""
        deleted = self.version.deleted_in(rows.group for rows in selected)
        return ranges_of(self._reads(indices, selection.stored_spans(deleted, selected))[1])

    def pages(self, index: int, selected: Sequence[RowSpan]) -> dict[int, Sequence[RowSpan]]:
        """Return the pages of each node that a read of rows of a column decodes, by line."""
        deleted = self._deleted_in(selected)
        selected = selection.stored_spans(deleted, selected)
        if not is_nested(self.projection.schema.field(index).type):
            line = self.projection.nodes(index)[0]
            return {line: selection.of_spans(self.version.parts(line), selected)}
        pages = self._nested(index, selected).pages
        return {
            line: [rows for rows in selected if isinstance(rows, RowSpan)]
            for line, selected in pages.items()
        }

    def codes(
        self, index: int, selected: Sequence[RowSpan], rows_per_value: float
    ) -> list[tuple[pa.Array, pa.ChunkedArray]] | None:
        """Return spans of rows of a column as codes, and their values, by row group.

        The codes are unsigned integers, null where the row is null. Return None unless all parts
        have codes, and so many rows for each. Raise as `columns` does.
        """
        asked = self.fetched([index], selected) if self.fetches else None
        try:
            groups: dict[int, list[RowSpan]] = {}
            for span in selected:
                groups.setdefault(span.group, []).append(span)
            values = []
            for group, of_group in groups.items():
                rows = 0
                for span in of_group:
                    rows += span.stop - span.start
                some = self.values_of_codes(index, group, int(rows / rows_per_value))
                if some is None:
                    return None
                values.append(some)
            (line,) = self.projection.nodes(index)
            deleted = self.version.deleted_in(groups) if self.version.facts.deleted_rows else ()
            if deleted:
                for group, spans in groups.items():
                    groups[group] = list(selection.stored_spans(deleted, spans))
            reads = [CodesRead(self.parts, line, by_group(spans)) for spans in groups.values()]
            columns = read_flat(self.parts, reads)
            if deleted:
                columns = [
                    selection.without_deleted({0: column}, deleted, spans)[0]
                    for column, spans in zip(columns, groups.values(), strict=True)
                ]
            return list(zip(values, columns, strict=True))
        finally:
            if asked is not None:
                asked.close()

    def values_of_codes(self, index: int, group: int, most: int) -> pa.Array | None:
        """Return what the codes of a part stand for, in order, if they are at most `most`.

        Return None if they are more, or if a code has no one value. Raise as `columns` does.
        """
        type_ = self.projection.schema.field(index).type
        if is_nested(type_):
            return None
        part = self.parts.open(self.projection.nodes(index)[0], group)
        values = part.known_values
        if values is None:
            answers: list[pa.Array | None] = []
            run([partial(_append_values, answers, part, most)], is_alone=True)
            (values,) = answers
        elif len(values) > most:
            return None
        if values is None or not pa.types.is_dictionary(type_):
            return values if values is None else as_type(values, type_)
        codes = np.arange(len(values), dtype=np.int32)
        if not pa.types.is_dictionary(part.type):
            return pa.DictionaryArray.from_arrays(codes, as_type(values, type_.value_type))
        try:
            # A dictionary may have more values than its type has indices.
            indices = pa.array(codes).cast(part.type.index_type)
        except pa.ArrowInvalid:
            return None
        return pa.DictionaryArray.from_arrays(indices, part.dictionary, ordered=type_.ordered)

    def _read(
        self,
        indices: Sequence[int],
        selected: Sequence[RowSelection],
        progress: Progress | None = None,
        with_nans: Container[int] = (),
    ) -> dict[int, pa.ChunkedArray]:
        """Return stored rows of columns, by index."""
        columns: dict[int, pa.ChunkedArray] = {}
        is_many = len(indices) * len(selected) >= tuning.current.matrix_columns_read
        asked = self._fetched_whole(indices, selected) if is_many and self.fetches else None
        try:
            if is_many:
                columns = self._batches(indices, selected, progress, with_nans)
            rest = dict.fromkeys(indices)
            for index in columns:
                del rest[index]
            nested, reads = self._reads([*rest], selected, with_nans)
            arrays = iter(read_flat(self.parts, reads, progress))
        finally:
            if asked is not None:
                asked.close()
        for index in rest:
            if index in nested:
                read = nested[index]
                columns[index] = read.array(dict(zip(read.pages, arrays, strict=False)))
            else:
                columns[index] = next(arrays)
        return columns

    def _fetched_whole(self, indices: Sequence[int], selected: Sequence[RowSelection]) -> Lock:
        """Ask for whole parts if most of their rows are read, and if they are few bytes.

        Otherwise the columns that are read in batches come in one round, and the others in another.
        """
        sizes = tuning.current
        groups = sorted({rows.group for rows in selected})
        of_groups = self.version.group_records(np.array(groups, np.int64))
        rows = sum([rows.count for rows in selected])
        if rows * sizes.rows_per_selected < int(of_groups["stored"].sum()):
            return Nothing()
        lines = [*chain.from_iterable(map(self.projection.nodes, indices))]
        parts = self.version.records(lines, groups).parts
        if int(parts["cbytes"].sum()) > sizes.spare_bytes:
            return Nothing()
        bundles, paths, ranges = of_groups["file"].tolist(), self.version.paths, []
        fields = [parts[name].tolist() for name in ("file", "offset", "cbytes")]
        for number, (file, offset, cbytes) in enumerate(zip(*fields, strict=True)):
            line, entry = divmod(number, len(groups))
            if file:
                path = layout.SHARED if file == bundles[entry] else paths[lines[line]]
                ranges.append((layout.part(path, file), offset, offset + cbytes))
        return fetched(self.version.store, ranges, is_single=False)

    def _reads(
        self,
        indices: Sequence[int],
        selected: Sequence[RowSelection],
        with_nans: Container[int] = (),
    ) -> tuple[dict[int, NestedRead], list[FlatRead]]:
        """Return the reads of nested columns by index, and those of all nodes."""
        projection, parts = self.projection, self.parts
        nodes: dict[int, Sequence[int]] = {}
        for index in indices:
            nodes[index] = projection.nodes(index)
        chosen = by_group(selected)
        parts.describe([*chain(*nodes.values())], sorted(set(map(itemgetter(0), chosen))))
        nested: dict[int, NestedRead] = {}
        reads: list[FlatRead] = []
        is_flat = self.version.is_flat
        for index, lines in nodes.items():
            type_ = projection.schema.field(index).type
            if not is_flat and is_nested(type_):
                nested[index] = read = NestedRead(parts, type_, lines, selected)
                reads += [FlatRead(parts, line, by_group(of)) for line, of in read.pages.items()]
            elif index in projection.dictionaries:
                reads.append(DictionaryRead(parts, lines[0], chosen, type_))
            else:
                is_nan = index in with_nans
                reads.append(FlatRead(parts, lines[0], chosen, type_, with_nans=is_nan))
        return nested, reads

    def _batches(
        self,
        indices: Sequence[int],
        selected: Sequence[RowSelection],
        progress: Progress | None,
        with_nans: Container[int],
    ) -> dict[int, pa.ChunkedArray]:
        """Return the columns that many small parts are read of at once."""
        spans = [rows for rows in selected if isinstance(rows, RowSpan)]
        if not spans and selected:
            return self._picked(indices, selected, progress)
        if len(spans) < len(selected):
            return {}
        return read_batches(self.parts, self._lines(indices), spans, progress, with_nans)

    def _picked(
        self,
        indices: Sequence[int],
        selected: Sequence[RowSelection],
        progress: Progress | None,
    ) -> dict[int, pa.ChunkedArray]:
        """Return rows of columns that small parts are read of whole, and at once."""
        picked = [rows.picked() for rows in selected]
        groups = np.array([rows.group for rows in picked], np.int64)
        if (
            len(groups) * len(indices) < tuning.current.matrix_columns_read
            or (groups[1:] <= groups[:-1]).any()
        ):
            return {}
        stored = self.version.group_records(groups)["stored"].astype(np.int64)
        rows = sum([rows.count for rows in picked])
        if rows * tuning.current.rows_per_selected < int(stored.sum()):
            return {}
        spans = [
            RowSpan(group, 0, count)
            for group, count in zip(groups.tolist(), stored.tolist(), strict=True)
        ]
        arrays = read_batches(self.parts, self._lines(indices), spans, progress, ())
        starts = (stored.cumsum() - stored).tolist()
        places = [rows.rows + start for rows, start in zip(picked, starts, strict=True)]
        chosen = pa.array(np.concatenate(places))
        return {index: column.take(chosen) for index, column in arrays.items()}

    def _lines(self, indices: Sequence[int]) -> dict[int, int]:
        """Return the lines of those columns that are neither nested nor read as dictionaries."""
        of_type = self.projection.schema.field
        return {
            index: self.projection.nodes(index)[0]
            for index in indices
            if index not in self.projection.dictionaries and not is_nested(of_type(index).type)
        }

    def _nested(self, index: int, selected: Sequence[RowSelection]) -> NestedRead:
        """Return the read of a column of a nested type."""
        type_ = self.projection.schema.field(index).type
        return NestedRead(self.parts, type_, self.projection.nodes(index), selected)


def _append_values(answers: list[pa.Array | None], part: Part, most: int) -> None:
    with part.errors:
        answers.append(part.values_of_codes(most))


def as_type(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return an array in a type that has the same values."""
    return array if array.type.id == type_.id else array.cast(type_)


def read_nodes(
    parts: OpenParts, selected: Mapping[int, Sequence[RowSpan]]
) -> dict[int, pa.ChunkedArray]:
    """Return stored rows of nodes, by line, also deleted ones; raise as `OpenColumns.columns`."""
    reads = [FlatRead(parts, line, by_group(spans)) for line, spans in selected.items()]
    return dict(zip(selected, read_flat(parts, reads), strict=True))
