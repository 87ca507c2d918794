"""Check one part, or one data file: what the records say of it, what it says itself, its values.

A failed check becomes a `Problem` and stops no other check. If a part cannot be read, its halves
are read, then their halves, to find the readable rows.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.nested.nodes import Node
from blztable.arrow.types import without_views
from blztable.columns.parts.check import check_type
from blztable.columns.parts.physical import dtype_text
from blztable.columns.statistics.soundness import false_statistics
from blztable.columns.types import one_array
from blztable.engine.read.columns import read_nodes
from blztable.engine.read.damage import find_damage, is_damage, piece_rows
from blztable.engine.read.parts import ItemStream, OpenParts
from blztable.engine.read.selection import RowSpan
from blztable.engine.version.named_files import NamedFile
from blztable.engine.version.versions import Version
from blztable.errors import BlzError, CorruptError, StorageError
from blztable.format import layout
from blztable.format.chunk import CHUNK_HEADER
from blztable.format.data_file import DataFile
from blztable.format.records import DIGEST_BYTES, ITEM_CHUNKS, VALUES, Records
from blztable.report import Problem
from blztable.storage.store import ByteRange, KeyNotFound, Reader

# A part with much damage is read in at most this many pieces.
PIECES = 64
_ROWS = re.compile(r"; it has rows [\d,]+ to [\d,]+$")


class CheckedNode(NamedTuple):
    """A node of a column that is checked."""

    line: int
    position: int
    path: layout.Path
    name: str
    type: pa.DataType
    # Whether its rows are those of the table.
    shares_rows: bool


def checked_nodes(version: Version, position: int) -> list[CheckedNode]:
    """Return the nodes of a column, in pre-order."""
    shares = Node.of(version.schema.field(position).type).share_rows()
    return [
        CheckedNode(
            line,
            position,
            version.paths[line],
            version.node(line).name,
            version.node(line).type,
            shares_rows,
        )
        for line, shares_rows in zip(version.nodes(position), shares, strict=True)
    ]


def fits(type_: pa.DataType, records: Records) -> bool:
    """Return True if all parts may be parts of a node of this type."""
    try:
        check_type(type_, records)
    except CorruptError:
        return False
    return True


@dataclass
class PartCheck:
    """A part that is checked: its node, its row group, and the table's stored rows before it.

    `rows` are the stored rows of the row group; `records` have one entry.
    """

    version: Version
    node: CheckedNode
    group: int
    first: int
    rows: int
    records: Records
    key: str
    # True if the records of all row groups of the leaf fit the type of the node.
    all_fit: bool
    array: pa.Array | None = None
    is_readable: bool = True
    problems: list[Problem] = field(default_factory=list)

    def compare_type(self) -> None:
        """Compare the records with the type of the node."""
        try:
            if not self.all_fit:
                check_type(self.node.type, self.records)
            has = int(self.records.parts["rows"][0])
            if self.node.shares_rows and has != self.rows:
                raise CorruptError(f"a part of {has} rows in a row group of {self.rows}")
        except BlzError as error:
            self.is_readable = False
            self.note(error)

    def read(self, opened: OpenParts) -> None:
        """Decode all rows, and compare them with the page records; find those that are lost."""
        line, rows = self.node.line, int(self.records.parts["rows"][0])

        def attempt(start: int, stop: int) -> str | None:
            span = RowSpan(self.group, start, stop)
            try:
                array = one_array(read_nodes(opened, {line: [span]})[line])
            except BlzError as error:
                check_reading(error)
                return str(error)
            if span.count == rows:
                self.array = array
            return None

        for start, stop, reason in find_damage(attempt, 0, rows, piece_rows(self.records), PIECES):
            self.note(reason, start, stop)
        if self.array is None:
            return
        page_rows = 1 << int(self.records.parts["page"][0])
        for page, message in false_statistics(self.array, self.records):
            start, stop = page * page_rows, min((page + 1) * page_rows, rows)
            self.note(message, start, stop, is_readable=True)
        if self.records.parts["flags"][0] & ITEM_CHUNKS:
            self._check_empty_items(opened)

    def _check_empty_items(self, opened: OpenParts) -> None:
        """Compare the chunks of empty items, which no reader reads, with their digests."""
        assert self.array is not None
        stream = opened.open(self.node.line, self.group).streams[VALUES]
        assert isinstance(stream, ItemStream)
        lengths = pc.binary_length(without_views(self.array)).fill_null(0).to_numpy()
        for row in np.flatnonzero(lengths == 0).tolist():
            try:
                stream.compressed(row)
            except BlzError as error:
                self.note(error, row, row + 1, is_readable=True)

    def note(
        self,
        cause: str | BlzError,
        start: int = 0,
        stop: int | None = None,
        *,
        is_readable: bool = False,
    ) -> None:
        """Record a problem with these rows of the part; by default with all rows."""
        if isinstance(cause, BlzError):
            check_reading(cause)
        node = self.node
        context = f"{self.version.store.name}/{self.key}, column {node.name!r}"
        message = str(cause).removeprefix(context).removeprefix(", ").removeprefix(": ")
        # The problem itself has the rows.
        message = _ROWS.sub("", message)
        if stop is None or not node.shares_rows:
            start, stop = 0, self.rows
        rows = self.first + start, self.first + stop
        self.problems.append(
            Problem(message, node.name, node.position, self.group, *rows, self.key, is_readable)
        )


@dataclass
class FileCheck:
    """A data file that is checked: what it says of its parts must be what their records say.

    `named` has the bytes that the version says it has; None if nobody knows.
    """

    version: Version
    key: str
    parts: Sequence[PartCheck]
    named: NamedFile | None = None
    nbytes: int = 0
    chunks: int = 0
    is_readable: bool = True
    problems: list[Problem] = field(default_factory=list)

    def compare(self) -> None:
        """Read the file without its chunks, and compare it with the records of its parts."""
        try:
            with self.version.store.open(self.key, self.named and self.named.size) as reader:
                file, offsets = DataFile.read(partial(_read_all, reader), reader.size)
                if reader.read(reader.size, 1):
                    raise CorruptError(f"a data file goes on behind its end at {reader.size}")
                self.nbytes = int(offsets[0]) if len(offsets) else reader.size
                self.chunks = len(offsets)
        except KeyNotFound:
            self.is_readable = False
            self._note("the file is missing")
            return
        except BlzError as error:
            check_reading(error)
            # A part may be read though the file says of it what it is not.
            self.is_readable = not isinstance(error, StorageError)
            self._note(str(error))
            return
        for message in self._differences(file):
            self._note(message)

    def ranges(self, full: bool) -> Iterator[ByteRange]:
        """Yield the ranges that `compare` reads, and those of all chunks if `full`."""
        if self.named is None:
            return
        size = self.named.size
        records = self.parts[0].records
        # Of a bundle, other columns are read as well.
        is_bundle = self.key.startswith(layout.BUNDLES)
        if full or is_bundle or records.parts["flags"][0] & ITEM_CHUNKS:
            yield self.key, 0, size + 1
            return
        begins = records.chunk_offset.tolist()
        yield self.key, 0, int(records.parts["offset"][0])
        for begin, nbytes in zip(begins, records.chunks["size"].tolist(), strict=True):
            yield self.key, begin, begin + CHUNK_HEADER.size
            yield self.key, begin + nbytes, begin + nbytes + DIGEST_BYTES
        yield self.key, size, size + 1

    def _differences(self, file: DataFile) -> list[str]:
        """Return what the file says that its records do not."""
        head, problems = self.version.head, []
        if file.uuid != head.uuid:
            problems.append(f"the file says that it is of the table {file.uuid}, not {head.uuid}")
        number = int(self.parts[0].records.parts["file"][0])
        if file.number != number:
            problems.append(f"the file says that its number is {file.number}, not {number}")
        nodes = tuple(part.node.path for part in self.parts)
        # Not all columns may be checked.
        if not set(nodes) <= set(file.nodes):
            return [*problems, f"the file says that its columns are {file.nodes}, not {nodes}"]
        for part in self.parts:
            place = file.nodes.index(part.node.path)
            dtype = dtype_text(part.node.type)
            # Text may have become binary since, with the same bytes.
            if file.dtypes[place] != dtype and (file.dtypes[place], dtype) != ("str", "bytes"):
                problems.append(
                    f"the file says that column {part.node.name!r} has values of "
                    f"{file.dtypes[place]!r}, not {dtype!r}"
                )
            differing = _differing(file.records.of([place], [0]), part.records)
            if differing:
                problems.append(
                    f"the file says other records of column {part.node.name!r} than the leaf: "
                    + ", ".join(differing)
                )
        return problems

    def _note(self, message: str) -> None:
        first = self.parts[0]
        # Of a bundle, no column is meant.
        node = first.node if len({part.node.position for part in self.parts}) == 1 else None
        self.problems.append(
            Problem(
                message.removeprefix(f"{self.version.store.name}/{self.key}: "),
                node and node.name,
                node and node.position,
                first.group,
                first.first,
                first.first + first.rows,
                self.key,
                self.is_readable,
            )
        )


def _read_all(reader: Reader, offset: int, length: int) -> bytes:
    """Return the bytes of a range; CorruptError if the file ends before."""
    data = reader.read(offset, length)
    if len(data) != length:
        raise CorruptError(f"a data file ends at {offset + len(data)}, before {offset + length}")
    return data


def _differing(said: Records, records: Records) -> list[str]:
    """Return the kinds of records in which two differ."""
    names = ("part", "streams", "chunks", "pages", "words", "prefix")
    pairs = zip(names, said.arrays, records.arrays, strict=True)
    return [name for name, array, other in pairs if array.tobytes() != other.tobytes()]


def check_reading(error: BlzError) -> None:
    """Raise an error that says nothing about the bytes: the file could not be read."""
    if isinstance(error, StorageError) and not is_damage(error):
        raise error
