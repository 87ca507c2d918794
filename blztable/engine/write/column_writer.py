"""A column while it is written: the numbers of its files, and the metadata of its parts.

Writes nothing itself.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

import pyarrow as pa

from blztable.arrow.nested.flatten import flatten
from blztable.arrow.nested.nodes import CODES, Node, is_nested
from blztable.arrow.types import nulls
from blztable.columns.joined import joined_flats
from blztable.columns.types import one_array, stream_layouts
from blztable.engine.version.schema import digits_of
from blztable.engine.version.staged import StagedColumn
from blztable.errors import SchemaError
from blztable.format import layout
from blztable.format.line import FLAGS, ColumnParts, LineTemplate, PartMetaArrays, Statistics
from blztable.format.superchunk import PartMeta


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """The metadata of a written part for the manifest."""

    k: int
    meta: PartMeta
    sizes: dict[str, int]
    statistics: Statistics
    # The first entry of the part in its bundle, from 1; 0 if it is in none.
    at: int = 0
    # The flags of the part in the line.
    flags: frozenset[str] = frozenset()


@dataclass(slots=True)
class ColumnWriter:
    """A node of a column while it is written: its file numbers, and its parts by row group.

    A column of a flat type has one node. `name` is that of the column.
    """

    path: layout.Path
    name: str
    type: pa.DataType
    # The first file number to use; above 1 if the column has files already.
    first_k: int = 1
    # The significant digits that floats are rounded to; None to keep all.
    digits: int | None = None
    # False for codes of nested values, whose statistics are counts alone.
    has_bounds: bool = True
    parts: dict[int, WrittenPart] = field(default_factory=dict)
    numbers: Iterator[int] = field(init=False)
    # Numbers of the files written so far.
    file_numbers: list[int] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        """Begin to count file numbers."""
        self.numbers = count(self.first_k)

    @property
    def next_k(self) -> int:
        """The file number after the largest one used; no number is used twice."""
        return max([self.first_k, *(part.k + 1 for part in self.parts.values())])

    @property
    def is_child(self) -> bool:
        """True if this is a node below the root of a column."""
        return len(self.path) > 1

    def finish(self, groups: Iterable[int] | None = None) -> ColumnParts:
        """Return the parts as a line of the manifest, by default of all row groups."""
        parts = [self.parts[group] for group in groups or sorted(self.parts)]
        present = {name for part in parts for name in part.sizes}
        flagged = {name for part in parts for name in part.flags}
        at = tuple(part.at for part in parts)
        return ColumnParts(
            self.path,
            tuple(part.k for part in parts),
            PartMetaArrays.of([part.meta for part in parts]),
            {
                name: tuple(part.sizes.get(name, 0) for part in parts)
                for name in stream_layouts(self.type)
                if name in present
            },
            Statistics.joined([part.statistics for part in parts]).to_json(),
            at if any(at) else (),
            {
                name: tuple(int(name in part.flags) for part in parts)
                for name in FLAGS
                if name in flagged
            },
        )


def staged_columns(writers: Iterable[ColumnWriter], *, as_lines: bool) -> Iterator[StagedColumn]:
    """Yield the written columns.

    With `as_lines`, for rows that come first in their table, columns of one batch are lines with a
    template.
    """
    # By what the columns of a batch have in common: the first of them, and a template for the
    # others.
    known: dict[object, ColumnParts | LineTemplate] = {}
    for writer in writers:
        part = writer.parts[0] if len(writer.parts) == 1 else None
        if part is None or not (part.at and as_lines) or writer.is_child:
            yield StagedColumn.of(writer.finish(), writer.next_k)
            continue
        key = part.meta.rows, part.meta.page_rows, tuple(part.sizes.items()), part.flags
        like = known.get(key)
        if like is None:
            known[key] = parts = writer.finish()
            yield StagedColumn.of(parts, writer.next_k)
            continue
        if isinstance(like, ColumnParts):
            like = known[key] = LineTemplate(like.encode())
        nbytes, cbytes = sum(part.sizes.values()), part.meta.cbytes
        line = like.line(writer.path, part.at, cbytes, part.statistics)
        yield StagedColumn(writer.path, writer.next_k, nbytes, cbytes, line, part.flags)


def writers_of(
    field: pa.Field, paths: Sequence[layout.Path], numbers: Sequence[int] = ()
) -> list[ColumnWriter]:
    """Return the writer of each node of a column, in pre-order.

    `numbers` are the first file numbers to use, by default 1.
    """
    digits = digits_of(field)
    if not is_nested(field.type):
        # Most columns of a wide table, in less than half of the time.
        first = numbers[0] if numbers else 1
        return [ColumnWriter(paths[0], field.name, field.type, first, digits)]
    nodes = list(Node.of(field.type).walk())
    firsts = numbers or [1] * len(nodes)
    return [
        ColumnWriter(path, field.name, node.flat, first, digits, node.has_bounds)
        for node, path, first in zip(nodes, paths, firsts, strict=True)
    ]


def flat_columns(column: pa.ChunkedArray, name: str) -> list[pa.ChunkedArray]:
    """Return the rows of a column as those of each of its nodes, in pre-order."""
    if not is_nested(column.type):
        return [column]
    node = Node.of(column.type)
    try:
        flats = [flatten(node, chunk) for chunk in column.chunks or [nulls(0, column.type)]]
        if len(flats) > 1 and any(one.rows == CODES for one in node.walk()):
            flats = [list(joined_flats(node, flats, one_array))]
    except SchemaError as error:
        raise SchemaError(f"column {name!r}: {error}") from None
    return [pa.chunked_array(of_node) for of_node in zip(*flats, strict=True)]
