"""Usage: what takes the space of a table, how columns are stored, and whether parts are sound.

Reads manifests and the sizes of files; of parts the fronts, the trailers and the headers of chunks.
Decodes nothing.

Check a column's line of the manifest and its parts: files, chunks, values and statistics. Knows one
column at a time. A failed check becomes a `Problem` and stops no other check. If a part cannot be
read, its halves are read, then their halves, to find the readable rows.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from blztable.arrow.nested.nodes import Node
from blztable.block_terms import VALUES
from blztable.columns.blocks import Block
from blztable.columns.statistics.compute import statistics
from blztable.columns.statistics.soundness import false_statistics
from blztable.columns.types import child_arrays, encode, one_array
from blztable.engine.read.columns import read_nodes
from blztable.engine.read.losses import find_losses, is_damage
from blztable.engine.read.parts import (
    HAS_ROWS,
    BlockSpec,
    OpenParts,
    Part,
    StreamSpec,
    check_digest_behind,
    check_empty,
)
from blztable.engine.read.selection import RowSpan
from blztable.engine.run.limits import check_pages
from blztable.engine.version import versions
from blztable.engine.version.projection import Projection
from blztable.engine.version.retention import CountedVersions
from blztable.engine.version.versions import DAMAGED, Version
from blztable.errors import BlzError, CorruptError, StorageError
from blztable.format.chunk import (
    BIT,
    BIT_SHUFFLE,
    BYTE,
    BYTE_SHUFFLE,
    CHUNK_HEADER,
    CODEC_NAMES,
    CODEC_SHIFT,
    MEMCPYED,
    ChunkHeader,
)
from blztable.format.line import NO_FILE, PAGES_LAYER, ColumnParts, Statistics
from blztable.report import DiskUsage, Problem, StreamStorage
from blztable.storage.store import KeyNotFound, Store

# A part with much damage is read in at most this many pieces.
PIECES = 64


class ColumnCheck:
    """The check of a column: compare its line of the manifest with the head."""

    def __init__(
        self, version: Version, line: int, position: int, *, has_rows_of_table: bool
    ) -> None:
        """Check a node of the column at `position`."""
        self.has_rows_of_table = has_rows_of_table
        self.version = version
        self.index = line
        self.position = position
        node = version.node(line)
        self.name: str = node.name
        self.type: pa.DataType = node.type
        self.problems: list[Problem] = []
        self.parts: ColumnParts | None = None
        self.statistics: Statistics | None = None
        try:
            self.parts = version.parts(line)
        except BlzError as error:
            self._note(error, is_readable=False)
            return
        for message in _false_meta(version, line, self.parts):
            self._note(message, is_readable=True)
        try:
            self.statistics = self.parts.statistics
        except CorruptError as error:
            self._note(error, is_readable=True)

    def _note(self, cause: str | BlzError, is_readable: bool) -> None:
        if isinstance(cause, BlzError):
            check_reading(cause)
        key = self.version.key
        message = str(cause).removeprefix(f"{self.version.store.name}/{key}: ")
        rows = self.version.head.rows
        self.problems.append(
            Problem(message, self.name, self.position, None, 0, rows, key, is_readable)
        )


class PartCheck:
    """The check of a part, step by step: open, read, compare."""

    def __init__(self, column: ColumnCheck, parts: ColumnParts, group: int, first: int) -> None:
        self.column = column
        self.group = group
        self.meta = parts.meta[group]
        self._unit_rows = parts.unit_rows(group)
        self.problems: list[Problem] = []
        self.opened: Part | None = None
        self.array: pa.Array | None = None
        # The index in the table of the part's first row.
        self.first = first
        self.key = parts.key(group, column.version.bundles)
        self._pages: Statistics | None = None
        self.chunks = 0

    def open(self, full: bool, parts: OpenParts) -> None:
        """Check front, trailer and layers, and if `full` the checksums behind the chunks."""
        try:
            part = parts.open(self.column.index, self.group)
        except BlzError as error:
            self.note(error)
            return
        self.opened = part
        if part.superchunk is None:
            return
        self.chunks = len(part.superchunk.offsets) - 1
        for name, layer in part.superchunk.trailer.layers.items():
            try:
                blob = layer.decode()
                if name == PAGES_LAYER:
                    self._pages = Statistics.decode(blob, -(-part.rows // part.page_rows))
            except CorruptError as error:
                self.note(f"layer {name!r}: {error}", is_readable=True)
        if full:
            self._compare_digests(part)
        else:
            part.forget()

    def _compare_digests(self, part: Part) -> None:
        """Check the checksums behind the chunks, which only Bloscpack reads."""
        assert part.superchunk is not None
        assert part.reader is not None
        for name, spec in part.streams.items():
            is_item = name == VALUES and part.is_per_item
            for chunk, size in enumerate(spec.info.chunks):
                file = (part.superchunk, part.reader, spec.first_chunk + chunk)
                try:
                    with part.error_context(name, chunk):
                        check_digest_behind(*file)
                        if not size:
                            check_empty(*file)
                except BlzError as error:
                    rows = (chunk, chunk + 1) if is_item else (0, None)
                    self.note(error, *rows, is_readable=True)

    def read_alone(self, parts: OpenParts) -> None:
        """Decode this part alone; if that fails, find its readable rows."""
        line, rows = self.column.index, self.meta.rows

        def attempt(start: int, stop: int) -> str | None:
            span = RowSpan(self.group, start, stop)
            try:
                array = one_array(read_nodes(parts, {line: [span]})[line])
            except BlzError as error:
                check_reading(error)
                return str(error)
            if span.count == rows:
                self.array = array
            return None

        for start, stop, reason in find_losses(attempt, 0, rows, self._unit_rows, PIECES):
            self.note(reason, start, stop)

    def compare(self) -> None:
        """Compare the decoded rows with the statistics and page sizes of manifest and trailer."""
        array, part = self.array, self.opened
        if array is None or part is None:
            return
        try:
            block = encode(array, part.page_rows)
            check_pages(self.column.type, block.rows, block.page_rows)
            pages, whole = statistics(array, block.page_rows)
            self._compare_pages(part.root, block, array)
        except BlzError as error:
            self.note(error)
            return
        if self._pages is not None:
            for page, message in false_statistics(array, part.page_rows, self._pages, pages):
                start = page * part.page_rows
                stop = min(start + part.page_rows, part.rows)
                self.note(f"layer {PAGES_LAYER!r}: {message}", start, stop, is_readable=True)
        if self.column.statistics is not None:
            stated = self.column.statistics.of_zone(self.group)
            for _, message in false_statistics(array, part.rows, stated, whole):
                self.note(message, is_readable=True, key=self.column.version.key)

    def _compare_pages(self, spec: BlockSpec, block: Block, array: pa.Array) -> None:
        """Compare the sizes of pages with their items, for the whole tree."""
        for stream in block.streams:
            stated = spec.streams.get(stream.layout.name)
            if stated is not None and stream.pages != stated.info.pages:
                self.note(f"stream {stated.name!r}: the page sizes do not match the items")
        arrays = child_arrays(array)
        for name, child in spec.children.items():
            self._compare_pages(child, encode(arrays[name], child.page_rows), arrays[name])

    def note(
        self,
        cause: str | BlzError,
        start: int = 0,
        stop: int | None = None,
        *,
        is_readable: bool = False,
        key: str | None = None,
    ) -> None:
        """Record a problem with these rows of the part; by default with all rows."""
        if isinstance(cause, BlzError):
            check_reading(cause)
        column, key = self.column, self.key if key is None else key
        context = f"{column.version.store.name}/{self.key}, column {column.name!r}"
        message = str(cause).removeprefix(context).removeprefix(", ").removeprefix(": ")
        # The problem itself has the rows.
        stop_of_part = self.first + column.version.row_groups[self.group]
        message = message.removesuffix(HAS_ROWS.format(self.first, stop_of_part))
        stop = self.meta.rows if stop is None else stop
        if not column.has_rows_of_table:
            start, stop = 0, column.version.row_groups[self.group]
        rows = self.first + start, self.first + stop
        self.problems.append(
            Problem(message, column.name, column.position, self.group, *rows, key, is_readable)
        )


def check_reading(error: BlzError) -> None:
    """Raise an error that says nothing about the bytes: the file could not be read."""
    if isinstance(error, StorageError) and not is_damage(error):
        raise error


def _false_meta(version: Version, index: int, parts: ColumnParts) -> Iterator[str]:
    """Yield a message for each fact in which head and line differ."""
    head, columns = version.head, version.head.columns
    numbers = [k for k in parts.k if k != NO_FILE]
    for group in range(len(parts.k)):
        nbytes = sum(sizes[group] for sizes in parts.streams.values())
        if nbytes and not parts.has_bytes(group):
            yield f"streams of {nbytes} bytes in row group {group}, where the part is not stored"
    if parts.nbytes != columns.nbytes[index]:
        yield f"streams of {parts.nbytes} bytes; the head says {columns.nbytes[index]}"
    if parts.cbytes != columns.cbytes[index]:
        yield f"files of {parts.cbytes} bytes; the head says {columns.cbytes[index]}"
    if max(numbers, default=0) >= columns.next_k[index]:
        yield f"file {max(numbers)}; the head says that the next one is {columns.next_k[index]}"
    if max(parts.path) >= head.next_column:
        yield f"id {max(parts.path)}; the head says that the next one is {head.next_column}"


def disk_usage(store: Store) -> DiskUsage:
    """Return the bytes of the newest version, of older ones, and of everything else.

    Raises
    ------
    CorruptError
        The newest manifest is damaged.
    """
    newest, pinned = versions.pin(store)
    with pinned:
        counted = CountedVersions()
        own = counted.add(newest)
        names = set(newest.head.tags.values())
        tagged = _bytes(counted, store, names, newest)
        others = set(versions.numbers(store)) - names - {newest.head.version}
        older = _bytes(counted, store, others, newest)
        total = store.nbytes
    # Another process may have removed files since they were counted.
    return DiskUsage(own, tagged, older, max(total - own - tagged - older, 0))


def _bytes(counted: CountedVersions, store: Store, numbers: Iterable[int], newest: Version) -> int:
    """Return the bytes that these versions take beside those counted."""
    nbytes = 0
    for number in sorted(numbers, reverse=True):
        # The files of a damaged version are unknown: no version names them.
        with suppress(*DAMAGED, KeyNotFound):
            nbytes += counted.add(versions.read(store, number), newest)
    return nbytes


@dataclass(slots=True)
class _StreamUsage:
    """What the parts of a column say about one stream; dicts keep the order of the parts."""

    encodings: dict[str, None] = field(default_factory=dict)
    codecs: dict[str, None] = field(default_factory=dict)
    nbytes: int = 0
    nbytes_encoded: int = 0
    cbytes: int = 0


def streams_of(projection: Projection, index: int) -> tuple[StreamStorage, ...]:
    """Return how the streams of a column are stored, node by node, in the order of the files."""
    found: dict[str, _StreamUsage] = {}
    nodes = Node.of(projection.schema.field(index).type).names("")
    for node, line in zip(nodes, projection.nodes(index), strict=True):
        # A stream of a child is named after it: "item.values".
        prefix = f"{node}.".removeprefix(".")
        for group in range(len(projection.version.row_groups)):
            with OpenParts(projection.version) as parts:
                part = parts.open(line, group)
                for name, spec in part.streams.items():
                    _add(found.setdefault(prefix + name, _StreamUsage()), part, spec)
    return tuple(
        StreamStorage(
            name,
            tuple(one.encodings),
            tuple(one.codecs),
            one.nbytes,
            one.nbytes_encoded,
            one.cbytes,
        )
        for name, one in found.items()
    )


def _add(usage: _StreamUsage, part: Part, spec: StreamSpec) -> None:
    usage.encodings[spec.kind] = None
    usage.nbytes += spec.nbytes
    usage.nbytes_encoded += spec.info.nbytes
    if not spec.info.chunks:
        return
    superchunk, reader, first = part.superchunk, part.reader, spec.first_chunk
    last, share = first + len(spec.info.chunks), 1.0
    # An empty item has no codec.
    shown = next((chunk for chunk, size in enumerate(spec.info.chunks) if size), 0)
    if part.bundle is not None:
        superchunk, reader = part.bundle.superchunk, part.bundle.reader
        first, _ = part.slots[first]
        last, share = first + 1, spec.info.nbytes / part.bundle.sizes[first]
    assert superchunk is not None
    assert reader is not None
    offsets = superchunk.offsets
    usage.cbytes += int((offsets[last] - offsets[first]) * share)
    with part.error_context():
        usage.codecs[_codec(reader.read(offsets[first + shown], CHUNK_HEADER.size))] = None


def _codec(header: bytes) -> str:
    """Return codec and shuffle of a chunk; its header is not checked beyond its length."""
    flags = ChunkHeader.decode(header).flags
    if flags & MEMCPYED:
        return "stored"
    codec = CODEC_NAMES.get(flags >> CODEC_SHIFT, f"codec {flags >> CODEC_SHIFT}")
    shuffle = BYTE if flags & BYTE_SHUFFLE else BIT if flags & BIT_SHUFFLE else ""
    return f"{codec}, {shuffle}" if shuffle else codec
