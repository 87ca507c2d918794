"""A table of another program, read as a version of our own is.

`OldVersion` has its names, types and sizes, but no parts. `OldSnapshot` tells of the chunks of
stored arrays what a snapshot of ours tells of parts. `OldColumns` reads the columns, as a
`ColumnReader`. The values of a column are one stored array, cut into chunks. A read of a span goes
through it in windows of about 64 MB of the arrays that are needed, cut between the largest chunks;
each window becomes arrays of Arrow before the next one is decoded. A field of structs is cut out of
the whole column. There are neither codes nor zone maps.
"""

import json
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable import tuning
from blztable.arrow.extensions import plain_schema
from blztable.arrow.nested.nodes import Node
from blztable.closing import Closing
from blztable.compat import bcolz, bloscpack
from blztable.compat.arrays import OldColumn, OldFiles, StoredArray, pick_rows, read_rows, row_bytes
from blztable.compat.numpy_types import arrow_array, arrow_type
from blztable.convert.objects.tagged import checked_attrs
from blztable.engine.query.expressions import text_of
from blztable.engine.read import selection
from blztable.engine.read.damage import is_damage
from blztable.engine.read.selection import RowIndices, RowSpan
from blztable.engine.run.limits import check_memory, check_rows
from blztable.engine.run.pool import Progress
from blztable.engine.version import schema as schemas
from blztable.engine.version.facts import Facts, Leaves, Run
from blztable.engine.version.node_parts import NodeParts
from blztable.engine.version.projection import Projection
from blztable.engine.version.schema import paths_of
from blztable.engine.version.versions import Version
from blztable.errors import BlzError, FormatError, LimitError, SchemaError
from blztable.format.layout import Path
from blztable.format.leaf import GROUP
from blztable.format.manifest import Head
from blztable.format.records import PART, WORD, Records
from blztable.format.version_file import Tail
from blztable.report import ColumnPlan, Explanation, Problem, Report, StreamStorage
from blztable.storage.store import Lock, Nothing, Store
from blztable.table.snapshot import Snapshot

# The key of a column's attributes in the metadata of its field, as JSON.
COLUMN_ATTRS = b"attrs"


@dataclass(frozen=True, slots=True)
class OldVersion(Version):
    """The only version of a table of another program; its number is 0, and it has no leaves.

    All rows are one row group, whose pages are the chunks of each column, without statistics.
    """

    files: OldFiles = field(kw_only=True)

    def parts(self, line: int) -> "OldParts":
        """Return what is known of a node; raise the error of a column that cannot be read."""
        values = self.values(self.field_of(line))
        return OldParts(self.paths[line], self.records([line]), values.chunk_rows)

    def values(self, index: int) -> StoredArray:
        """Return the stored array of a column; raise the error that it has instead."""
        columns = self.files.columns
        values = columns[index].values
        if isinstance(values, BlzError):
            others = [column.name for column in columns if not isinstance(column.values, BlzError)]
            raise type(values)(
                f"column {columns[index].name!r}: {values}; the others can be read, "
                f"columns={others!r:.1000}"
            )
        return values


class OldParts(NodeParts):
    """The one part of a node, or none of a table without rows."""

    def __init__(self, path: Path, records: Records, chunk_rows: int) -> None:
        super().__init__(path, records, records.parts["file"])
        self._chunk_rows = chunk_rows

    @property
    def page_rows(self) -> list[int]:
        """The rows of a chunk, which may be any number."""
        return [self._chunk_rows] * len(self.rows)

    def takes_memory(self, group: int) -> bool:
        """Return True: all values are in files."""
        return True


def old_version(store: Store) -> OldVersion:
    """Read what another program stored, without values.

    Raises
    ------
    CorruptError
        It is damaged.
    FormatError
        It cannot be read, or Arrow has no type for a column, or an attribute cannot be kept.
    """
    read = bloscpack.read_file if bloscpack.is_file(store) else bcolz.read_directory
    files = read(store)
    try:
        schema = plain_schema(pa.schema([_field(column, files.kind) for column in files.columns]))
        attributes = checked_attrs(files.attrs)
    except SchemaError as error:
        raise FormatError(f"{files.store.name}: {error}") from None
    paths, nbytes, cbytes = list[Path](), list[int](), list[int]()
    for column, of_column in zip(files.columns, schema, strict=True):
        nodes = paths_of(of_column.type, (len(paths),))
        paths += nodes
        values = None if isinstance(column.values, BlzError) else column.values
        nbytes += _shares(values.shape[0] * row_bytes(values) if values else 0, len(nodes))
        cbytes += _shares(values.cbytes if values else 0, len(nodes))
    head = Head(rows=files.rows, paths=tuple(paths), attributes=attributes)
    parts = np.zeros(len(paths) if files.rows else 0, PART)
    if len(parts):
        parts["rows"], parts["nbytes"], parts["cbytes"] = files.rows, nbytes, cbytes
    groups = np.zeros(1 if files.rows else 0, GROUP)
    groups["rows"] = groups["stored"] = files.rows
    groups["groups"] = 1
    tail = Tail(groups, np.zeros(0, WORD), Records(len(paths), len(groups), parts))
    facts = Facts(Leaves(store), [Run.of_tail(tail)], len(paths))
    schema = schemas.decode(schemas.encode(schema))
    return OldVersion(files.store, head, schema, facts, files=files)


def _shares(nbytes: int, nodes: int) -> list[int]:
    """Return the bytes of each node of a column, whose values are stored together."""
    share = nbytes // nodes
    return [nbytes - share * (nodes - 1), *[share] * (nodes - 1)]


def _field(column: OldColumn, kind: str) -> pa.Field:
    """Return the field of a column; one that cannot be read has the null type."""
    values = column.values
    metadata = {COLUMN_ATTRS: json.dumps(column.attrs).encode()} if column.attrs else None
    type_ = pa.null()
    if not isinstance(values, BlzError):
        type_ = arrow_type(values.dtype, values.shape[1:], f"column {column.name!r} of a {kind}")
    return pa.field(column.name, type_, metadata=metadata)


class OldColumns(Closing):
    """Reads columns of a projection of an old version, whose files the snapshot keeps open."""

    # Rows are chosen in numpy, and only these become arrays of Arrow.
    picks_rows = True
    fetches = False

    def __init__(self, version: OldVersion, projection: Projection) -> None:
        self._version = version
        self.projection = projection

    def of(self, projection: Projection) -> "OldColumns":
        """Return a reader of another projection of the version."""
        return OldColumns(self._version, projection)

    def fetched(
        self, indices: Sequence[int], selected: Sequence[RowSpan], most: int | None = None
    ) -> Lock:
        """Ask for nothing."""
        return Nothing()

    def check(self, index: int, group: int) -> None:
        """Raise the error of a column that cannot be read."""
        self._version.values(self.projection.column_of(index))

    def piece_rows(self, index: int, group: int) -> int:
        """Return the rows of a chunk."""
        return self._version.values(self.projection.column_of(index)).chunk_rows

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
        numbers = np.concatenate([np.empty(0, np.int64), *(span.rows for span in selected)])
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
            columns[index] = _coded(column).cast(type_) if is_coded else column
        return [columns[index] for index in indices]


def _coded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return text or binary as dictionaries whose values are in order, as those of a table are."""
    values = pc.unique(column).drop_null()
    values = values.take(pc.sort_indices(values))
    codes = pc.index_in(column, values).chunks
    arrays = [pa.DictionaryArray.from_arrays(indices, values) for indices in codes]
    return pa.chunked_array(arrays, pa.dictionary(pa.int32(), values.type))


def _windows(stored: Iterable[StoredArray], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the first row of each window and the one after it."""
    arrays = list(stored)
    width = sum(map(row_bytes, arrays))
    chunk = max((array.chunk_rows for array in arrays), default=1)
    size = max(tuning.current.window_bytes // max(width, 1), 1)
    # A chunk that is cut is read by two select.
    size -= size % chunk if size >= chunk else 0
    while start < stop:
        end = min(start - start % size + size, stop)
        yield start, end
        start = end


def _ways(node: Node, line: int) -> Iterator[int]:
    """Yield the numbers of the children that lead to a node, given its place in pre-order."""
    while line:
        line -= 1
        for number, child in enumerate(node.children):
            if line < child.count:
                yield number
                node = child
                break
            line -= child.count


class OldSnapshot(Snapshot):
    """The only version of a table of another program, and the columns of it that are read."""

    version: OldVersion

    def __reduce__(self) -> tuple[Any, ...]:
        columns = self.projection
        how = (columns.schema, columns.fields, columns.dictionaries)
        return _reopened, (self.version.store, *how)

    def close(self) -> None:
        """Close the files."""
        super().close()
        self.version.files.close()

    def opened(self, projection: Projection) -> OldColumns:
        """Return a reader of a projection of the version."""
        return OldColumns(self.version, projection)

    def explain(self, positions: Sequence[int], filters: object) -> Explanation:
        """Return what a read with this filter decodes: all chunks of its columns."""
        scan = self.scan(filters)
        steps = tuple(text_of(step.expression) for step in scan.steps) if scan else ()
        column_of = (scan or self).projection.column_of
        filtered = {column_of(index) for index in scan.columns} if scan else set[int]()
        returned = {column_of(index) for index in positions}
        plans, groups = [], self.version.group_count
        for index in dict.fromkeys([*filtered, *returned]):
            chunks = -(-self.rows // self.version.values(index).chunk_rows)
            cbytes = sum(self.version.cbytes(node) for node in self.version.nodes(index))
            plans.append(
                ColumnPlan(
                    self._name(index),
                    index,
                    index in filtered,
                    index in returned,
                    groups,
                    chunks,
                    chunks,
                    cbytes,
                    cbytes,
                )
            )
        return Explanation(steps, self.rows, self.rows, groups, groups, tuple(plans), groups)

    def streams(self, position: int) -> tuple[StreamStorage, ...]:
        """Return the sizes of one column, as its files state them."""
        self.check_open()
        nbytes, cbytes = self.projection.nbytes(position), self.projection.cbytes(position)
        return (StreamStorage("values", ("plain",), (), nbytes, nbytes, cbytes),)

    def verify(self, positions: Sequence[int], *, full: bool) -> Report:
        """Decode all chunks if `full`; there are no checksums to compare them with."""
        self.check_open()
        problems, chunks, reader = [], 0, self.reader()
        for position in positions:
            faults = list[tuple[BlzError, int, int]]()
            try:
                size = self.version.values(self.projection.column_of(position)).chunk_rows
            except BlzError as error:
                if not (is_damage(error) or isinstance(error, LimitError)):
                    raise
                faults.append((error, 0, self.rows))
                size = 0
            for start in range(0, self.rows, size) if full and size else ():
                chunks += 1
                stop = min(start + size, self.rows)
                try:
                    reader.columns([position], [RowSpan(0, start, stop)])
                except BlzError as error:
                    if not is_damage(error):
                        raise
                    faults.append((error, start, stop))
            problems += [
                Problem(str(error), self._name(position), position, None, start, stop, "", False)
                for error, start, stop in faults
            ]
        names = tuple(map(self._name, positions))
        return Report(0, self.rows, names, full, chunks, chunks, 0, tuple(problems))

    def _name(self, position: int) -> str:
        return self.version.files.columns[self.projection.column_of(position)].name


def old_snapshot(store: Store) -> OldSnapshot:
    """Open what another program stored; raises as `old_version` does."""
    return OldSnapshot(old_version(store), None)


def _reopened(
    store: Store,
    schema: pa.Schema,
    fields: tuple[Sequence[int], ...],
    dictionaries: frozenset[int],
) -> OldSnapshot:
    version = old_version(store)
    return OldSnapshot(version, None, projection=Projection(version, schema, fields, dictionaries))
