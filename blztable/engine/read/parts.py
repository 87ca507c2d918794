"""One part opened: where its chunks lie, after all that front and trailer can tell was checked.

Every error leaves here with the file, the column and the chunk in its message.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from operator import sub
from typing import Self

import pyarrow as pa

from blztable.columns.blocks import CODES, DICTIONARY, ENDS, VALID, StreamLayout
from blztable.columns.types import layouts
from blztable.engine.read.open_files import OpenFiles
from blztable.engine.version.versions import DAMAGED, Version
from blztable.errors import CorruptError, LimitError
from blztable.format import layout
from blztable.format.chunk import CHUNK_HEADER, MAX_RATIO
from blztable.format.header import FILE_HEADER, MAX_CHUNKS, MAX_METADATA_BYTES
from blztable.format.line import NO_FILE, ColumnParts
from blztable.format.metadata import BlockInfo, StreamInfo
from blztable.format.statistics import PAGES_LAYER, Statistics
from blztable.format.superchunk import Superchunk, unpack
from blztable.format.trailer import MAX_LAYER_BYTES, MAX_LAYERS
from blztable.storage.store import KeyNotFound, Reader

# What the limits of their parts add up to.
MAX_FRONT_BYTES = FILE_HEADER.size + MAX_METADATA_BYTES + 8 * MAX_CHUNKS
MAX_TRAILER_BYTES = (MAX_LAYERS + 1) * MAX_LAYER_BYTES + 64 * MAX_CHUNKS
# A file up to this size is read at once and kept until it is decoded.
SMALL_FILE = 64 << 10


@dataclass(frozen=True, slots=True)
class StreamPlace:
    """One stream of a part: its layout, what the file says of it, the number of its first chunk."""

    layout: StreamLayout
    info: StreamInfo
    first_chunk: int
    # Where each page begins, and the last one ends, where they differ from page to page.
    bounds: tuple[int, ...]

    @classmethod
    def of(cls, layout: StreamLayout, info: StreamInfo, first_chunk: int) -> Self:
        """The place of this stream."""
        bounds = () if info.pages is None else tuple(accumulate(info.pages, initial=0))
        return cls(layout, info, first_chunk, bounds)

    def range_of(self, start: int, stop: int, page_rows: int) -> tuple[int, int]:
        """The bytes of these rows, which are whole pages."""
        if self.info.pages is None:
            return self.layout.nbytes(start), self.layout.nbytes(stop)
        return self.bounds[start // page_rows], self.bounds[-(-stop // page_rows)]


class OpenedPart:
    """A superchunk of a column whose front and trailer were read and believed."""

    def __init__(
        self, version: Version, index: int, parts: ColumnParts, group: int, files: OpenFiles
    ) -> None:
        """Read front and trailer, compare them with the manifest and the column's type."""
        field = version.schema.field(index)
        facts = parts.facts[group]
        self.rows = facts.rows
        self.cbytes = facts.cbytes
        self.page_rows = max(facts.page_rows, 1)
        self.streams: dict[str, StreamPlace] = {}
        self.dictionary_rows: int | None = None
        self.superchunk: Superchunk | None = None
        self._files = files
        self._kept: _Kept | None = None
        self._key = layout.part(parts.path, parts.k[group] or 1)
        self._where = f"{version.store.name}/{self._key}, column {field.name!r}"
        # Uncompressed.
        self.nbytes = sum(sizes[group] for sizes in parts.streams.values())
        with self.error_context():
            if parts.k[group] == NO_FILE:
                _check_streams(field.type, None, {})
                return
            superchunk = self._open(facts.front_length, facts.trailer_length, parts, group)
            sizes = {name: sizes[group] for name, sizes in parts.streams.items() if sizes[group]}
            _check_streams(field.type, superchunk.info, sizes)
            self._place(superchunk, layouts(field.type))

    @property
    def rows_of_pages(self) -> list[int]:
        """The rows of each page."""
        return [
            min(self.page_rows, self.rows - start) for start in range(0, self.rows, self.page_rows)
        ]

    @property
    def nbytes_to_open(self) -> int:
        """What was read of the file to open it."""
        if self.superchunk is None:
            return 0
        if self.is_small:
            return self.cbytes
        return self.offsets[0] + self.cbytes - self.offsets[-1]

    @property
    def is_small(self) -> bool:
        """Whether opening it read all of it."""
        return self.cbytes <= SMALL_FILE

    def zone_map(self) -> Statistics | None:
        """What is known of each page; None where that is what the manifest says of the part."""
        if self.superchunk is None or PAGES_LAYER not in self.superchunk.trailer.layers:
            return None
        with self.error_context():
            blob = self.superchunk.trailer.layers[PAGES_LAYER].decode()
            return Statistics.decode(blob, -(-self.rows // self.page_rows))

    def reader(self) -> Reader:
        """The file, for reading chunks; not to be closed."""
        # Looked at once: another thread may be done with the part and forget it.
        kept = self._kept
        if kept is not None:
            return kept
        try:
            return self._files.open(self._key)
        except KeyNotFound:
            raise CorruptError("the file is missing") from None

    def forget(self) -> None:
        """Let go of the bytes of a small file; they can be read again."""
        self._kept = None

    def error_context(self, stream: str = "", chunk: int | None = None) -> "_ErrorContext":
        """Say which file, column, stream and chunk an error is about."""
        return _ErrorContext(self._where, stream, chunk)

    def _open(self, front: int, trailer: int, parts: ColumnParts, group: int) -> Superchunk:
        facts = parts.facts[group]
        if front > MAX_FRONT_BYTES or trailer > MAX_TRAILER_BYTES:
            raise LimitError(f"a front of {front} bytes, a trailer of {trailer}")
        if front + trailer > facts.cbytes:
            raise CorruptError(f"a front of {front} and a trailer of {trailer} in {facts.cbytes}")
        reader = self.reader()
        if reader.size != facts.cbytes:
            raise CorruptError(f"{reader.size} bytes; the manifest says {facts.cbytes}")
        if self.is_small:
            data = reader.read(0, facts.cbytes)
            self._kept = _Kept(data)
            return unpack(data[:front], data[len(data) - trailer :], facts)
        return unpack(reader.read(0, front), reader.read(facts.cbytes - trailer, trailer), facts)

    def _place(self, superchunk: Superchunk, expected: Mapping[str, StreamLayout]) -> None:
        self.superchunk = superchunk
        self.offsets = superchunk.offsets
        self.digests = superchunk.trailer.digests
        self.checksum = superchunk.checksum
        dictionary = superchunk.info.dictionary
        self.dictionary_rows = dictionary.rows if dictionary else None
        raw = [size for stream in superchunk.info.all_streams for size in stream.chunks]
        head = CHUNK_HEADER.size
        room = [there - self.checksum.size for there in map(sub, self.offsets[1:], self.offsets)]
        # Read together before their headers are looked at, so a lie would cost memory.
        if any(there > size + head for there, size in zip(room, raw, strict=True)):
            raise CorruptError("a chunk with more room in the file than it can fill")
        if any(size > there * MAX_RATIO for there, size in zip(room, raw, strict=True)):
            raise LimitError(f"a chunk that claims more than {MAX_RATIO} times its bytes")
        first = 0
        for name, info in named(superchunk.info):
            self.streams[name] = StreamPlace.of(expected[name], info, first)
            first += len(info.chunks)


class OpenParts:
    """The parts of a read, each opened once; of several reads that follow each other, too.

    A context manager: its end closes the files, also when the read failed.
    """

    def __init__(self, version: Version) -> None:
        """Open nothing yet."""
        self.version = version
        self._files = OpenFiles(version.store)
        self._parts: dict[tuple[int, int], OpenedPart] = {}

    def open(self, index: int, group: int) -> OpenedPart:
        """The part of the column at this position in this row group."""
        part = self._parts.get((index, group))
        if part is None:
            parts = self.version.column(index)
            part = OpenedPart(self.version, index, parts, group, self._files)
            self._parts[index, group] = part
        return part

    def items(self) -> Iterable[tuple[tuple[int, int], OpenedPart]]:
        """The parts opened, by column and row group."""
        return self._parts.items()

    def forget_before(self, group: int) -> None:
        """Let go of the parts of earlier row groups; who has one still may go on with it."""
        # A list first: workers open parts meanwhile.
        for key in list(self._parts):
            if key[1] < group:
                del self._parts[key]

    def close(self) -> None:
        """Close the files and forget the parts, after the last thread is done with them."""
        self._parts.clear()
        self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _ErrorContext:
    """Puts the place of an error in front of its message.

    Not a generator with `contextmanager`: since Python 3.12 the frame of such a generator refers to
    the frame of its `__exit__`, and so an error that is replaced by another holds itself, and all
    that was read, until the garbage collector comes.
    """

    __slots__ = ("_chunk", "_stream", "_where")

    def __init__(self, where: str, stream: str, chunk: int | None) -> None:
        self._where = where
        self._stream = stream
        self._chunk = chunk

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if not isinstance(error, DAMAGED):
            return
        where = self._where + (f", stream {self._stream!r}" if self._stream else "")
        if self._chunk is not None:
            where += f", chunk {self._chunk}"
        raise type(error)(f"{where}: {error}") from None


class _Kept:
    """The bytes of a small file, read before."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, offset: int, length: int) -> bytes:
        return self._data[offset : offset + length]

    def read_into(self, offset: int, buffer: memoryview) -> int:
        found = self._data[offset : offset + len(buffer)]
        buffer[: len(found)] = found
        return len(found)

    def close(self) -> None:
        pass

    def __enter__(self) -> "_Kept":
        return self

    def __exit__(self, *_: object) -> None:
        pass


def named(info: BlockInfo) -> Iterator[tuple[str, StreamInfo]]:
    """The streams in the order of their chunks, by the names that tell them apart."""
    for stream in info.streams:
        yield stream.name, stream
    if info.dictionary is not None:
        for stream in info.dictionary.streams:
            yield DICTIONARY + stream.name, stream


def _check_streams(type_: pa.DataType, info: BlockInfo | None, sizes: Mapping[str, int]) -> None:
    """Streams must be those of the type, in order, as large as manifest and rows say."""
    expected = layouts(type_)
    found = dict(named(info)) if info else {}
    needed = [name for name in expected if not name.endswith(VALID)]
    if info is None and not needed:
        return
    if [name for name in expected if name in found] != list(found):
        raise CorruptError(f"streams {list(found)}; a column of {type_} has {list(expected)}")
    missing = [name for name in needed if name not in found]
    if missing or info is None:
        raise CorruptError(f"no stream {missing[0]!r} in a column of {type_}")
    if pa.types.is_dictionary(type_) != (info.dictionary is not None):
        raise CorruptError(f"a dictionary that does not fit a column of {type_}")
    if {name: stream.nbytes for name, stream in found.items() if stream.nbytes} != sizes:
        raise CorruptError(f"streams of other sizes than the manifest's {dict(sizes)}")
    for name, stream in found.items():
        own = expected[name]
        block = info.dictionary if name.startswith(DICTIONARY) else info
        assert block is not None
        # A genuine Bloscpack file does not say what its bytes are.
        if (
            stream.dtype not in (own.dtype, "")
            or stream.typesize != own.typesize
            or (stream.pages is None) != (own.bits is not None)
        ):
            raise CorruptError(f"stream {name!r} is not laid out like one of {type_}")
        if own.bits is not None and stream.nbytes != own.nbytes(block.rows):
            raise CorruptError(
                f"stream {name!r} has {stream.nbytes} bytes; "
                f"{block.rows} rows take {own.nbytes(block.rows)}"
            )
        if own.name in (ENDS, CODES) and any(size % own.typesize for size in stream.chunks):
            raise CorruptError(f"stream {name!r} in chunks that cut its entries")
