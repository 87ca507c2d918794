"""Columns while they are written: the records of their parts, and data files with the next number.

Knows no encodings.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

import numpy as np
import pyarrow as pa

from blztable.arrow.nested.flatten import flatten
from blztable.arrow.nested.nodes import CODES, Node, is_nested
from blztable.arrow.types import nulls
from blztable.columns.joined import joined_flats
from blztable.columns.parts.physical import dtype_text
from blztable.columns.types import one_array
from blztable.engine.version.schema import digits_of
from blztable.engine.version.staged import StagedColumn
from blztable.errors import LimitError, SchemaError
from blztable.format import layout
from blztable.format.data_file import DataFile
from blztable.format.layout import Path
from blztable.format.records import DIGEST_BYTES, PART, Records, join
from blztable.storage.store import KeyTaken, Store


@dataclass(slots=True)
class ColumnWriter:
    """A node of a column while it is written: its parts by row group.

    A column of a flat type has one node. `name` is that of the column.
    """

    path: layout.Path
    name: str
    type: pa.DataType
    # The significant digits that floats are rounded to; None to keep all.
    digits: int | None = None
    # False for codes of nested values, whose statistics are counts alone.
    has_bounds: bool = True
    # The records of each part.
    parts: dict[int, Records] = field(default_factory=dict)
    # Numbers of the files written so far.
    file_numbers: list[int] = field(default_factory=list, init=False)

    def finish(self, groups: Iterable[int] | None = None) -> Records:
        """Return the records of the parts, by default of all row groups, in their order."""
        if groups is None and len(self.parts) == 1:
            return next(iter(self.parts.values()))
        parts = [self.parts[group] for group in groups or sorted(self.parts)]
        return join(parts) if parts else Records(1, 0, np.zeros(0, PART))


def staged_columns(writers: Iterable[ColumnWriter]) -> list[StagedColumn]:
    """Return the written columns."""
    return [StagedColumn(writer.path, writer.finish()) for writer in writers]


def writers_of(field: pa.Field, paths: Sequence[layout.Path]) -> list[ColumnWriter]:
    """Return the writer of each node of a column, in pre-order."""
    digits = digits_of(field)
    if not is_nested(field.type):
        # Most columns of a wide table, in less than half of the time.
        return [ColumnWriter(paths[0], field.name, field.type, digits)]
    nodes = Node.of(field.type).walk()
    return [
        ColumnWriter(path, field.name, node.flat, digits, node.has_bounds)
        for node, path in zip(nodes, paths, strict=True)
    ]


def flat_columns(column: pa.ChunkedArray, name: str) -> list[pa.ChunkedArray]:
    """Return the rows of a column as those of each of its nodes, in pre-order."""
    if not is_nested(column.type):
        return [column]
    node = Node.of(column.type)
    try:
        flats = [flatten(node, chunk) for chunk in column.chunks or [nulls(0, column.type)]]
        if len(flats) > 1 and any(child.rows == CODES for child in node.walk()):
            flats = [list(joined_flats(node, flats, one_array))]
    except SchemaError as error:
        raise SchemaError(f"column {name!r}: {error}") from None
    return [pa.chunked_array(of_node) for of_node in zip(*flats, strict=True)]


class Numbers(Protocol):
    """The numbers of new files, which several threads draw from."""

    def next(self) -> int:
        """Return a number that no file of the table has."""


@dataclass(frozen=True, slots=True)
class FileWriter:
    """Writes the data files of one table."""

    store: Store
    uuid: str
    numbers: Numbers

    def put(
        self,
        path: Path,
        number: int,
        columns: Sequence[ColumnWriter],
        records: Records,
        chunks: Sequence[bytes],
        crcs: Sequence[int],
    ) -> tuple[int, Records]:
        """Store the parts of some columns under the first number that is free, from `number` on.

        Return the number and the records, which name it.
        """
        nodes = tuple([column.path for column in columns])
        dtypes = tuple([dtype_text(column.type) for column in columns])
        digests = [crc.to_bytes(DIGEST_BYTES, "little") for crc in crcs]
        while number <= layout.MAX_ID:
            file = DataFile(self.uuid, number, nodes, dtypes, records)
            front, placed = file.encode(chunks)
            pieces = [front, *chain.from_iterable(zip(chunks, digests, strict=True))]
            try:
                self.store.put_new(layout.part(path, number), pieces)
            except KeyTaken:
                number = self.numbers.next()  # Another writer uses that number.
            else:
                return number, placed
        raise LimitError(f"{self.store.name}: all file numbers up to {layout.MAX_ID} are used")
