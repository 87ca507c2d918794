"""A part: a superchunk whose front and trailer were read and checked.

`open_part` reads front and trailer, compares them with the manifest and with the type of the
column, and returns a `Part`: the tree of blocks, with the offset of every stream. Chunks are read
later (`chunks.py`). Every error that leaves this module names the file, the column and the chunk.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import sub

import pyarrow as pa

from blztable.block_terms import CODES, DICTIONARY, ENDS, VALID, VALUES, child_prefix
from blztable.closing import Closing
from blztable.columns.blocks import Encoding, StreamLayout
from blztable.columns.encodings.parse import Owner, parse
from blztable.columns.sinks import Decoding, Sink
from blztable.columns.types import layout_of
from blztable.engine.read.open_files import OpenFiles, PartReader
from blztable.engine.version.versions import DAMAGED, Version
from blztable.errors import CorruptError, LimitError
from blztable.format.checksum import Checksum
from blztable.format.chunk import CHUNK_HEADER, MAX_RATIO
from blztable.format.header import FILE_HEADER, MAX_CHUNKS, MAX_METADATA_BYTES
from blztable.format.metadata import BlockInfo, StreamInfo
from blztable.format.statistics import PAGES_LAYER, Statistics
from blztable.format.superchunk import PartFacts, Superchunk, unpack
from blztable.format.trailer import MAX_LAYER_BYTES, MAX_LAYERS

# Each is the sum of the limits of its contents.
MAX_FRONT_BYTES = FILE_HEADER.size + MAX_METADATA_BYTES + 8 * MAX_CHUNKS
MAX_TRAILER_BYTES = (MAX_LAYERS + 1) * MAX_LAYER_BYTES + 64 * MAX_CHUNKS
# A superchunk up to this size is read at once and kept until its chunks are decoded.
SMALL_PART = 64 << 10


@dataclass(frozen=True, slots=True)
class StreamPlace:
    """A stream of a part: its form, its chunks and its pages.

    Attributes
    ----------
    name
        The full name, as in ``dictionary.values``.
    layout, info
        The form of the stream by its type, and its description in the file.
    first_chunk
        The index of the stream's first chunk in the superchunk.
    bounds
        Byte offset of each page, and the end of the last one; empty if rows have a fixed size.
    nbytes
        The bytes of the values.
    encoding
        How the values come from the bytes of the file; None if these are the values.
    """

    name: str
    layout: StreamLayout
    info: StreamInfo
    first_chunk: int
    bounds: tuple[int, ...]
    nbytes: int
    encoding: Encoding | None = None

    def decoding(self, sink: Sink) -> Sink:
        """Return the sink for the bytes of the file, given the sink for the values."""
        return Decoding(self.encoding, self.layout.typesize, sink) if self.encoding else sink

    @property
    def has_chunks(self) -> bool:
        """True if the bytes are in the file; False if the encoding makes them of nothing."""
        return self.encoding is None or self.encoding.has_codes

    @property
    def decoded(self) -> int:
        """Return the bytes that are decompressed, or made of nothing."""
        return self.info.nbytes if self.has_chunks else self.nbytes

    def range_of(self, start: int, stop: int, page_rows: int) -> tuple[int, int]:
        """Return the range of bytes before decoding of these rows, which must be whole pages."""
        if self.encoding is not None:
            return self.encoding.stored.nbytes(start), self.encoding.stored.nbytes(stop)
        return self.value_range(start, stop, page_rows)

    def value_range(self, start: int, stop: int, page_rows: int) -> tuple[int, int]:
        """Return the range of bytes of the values of these rows, as if they were not encoded."""
        if self.info.pages is None:
            return self.layout.nbytes(start), self.layout.nbytes(stop)
        return self.bounds[start // page_rows], self.bounds[-(-stop // page_rows)]


@dataclass(frozen=True, slots=True)
class BlockPlace:
    """A node of a part's tree: its streams by their own names, and its children."""

    rows: int
    page_rows: int
    streams: Mapping[str, StreamPlace]
    children: Mapping[str, "BlockPlace"]

    def walk(self) -> Iterator[StreamPlace]:
        """Yield every stream of the tree, in the order of the chunks."""
        yield from self.streams.values()
        for child in self.children.values():
            yield from child.walk()


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A superchunk whose front and trailer passed all checks, or rows of a type without streams.

    Attributes
    ----------
    context
        The file and the column, for errors.
    facts
        The facts of the part in the manifest.
    type
        The type of its rows.
    nbytes
        The bytes of all streams that are decompressed, or made of nothing.
    root
        The tree of blocks.
    superchunk, reader
        The offsets of the chunks, and the reader of the file; None if the part has no bytes.
    """

    context: str
    facts: PartFacts
    type: pa.DataType
    nbytes: int
    root: BlockPlace
    superchunk: Superchunk | None = None
    reader: PartReader | None = None

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return self.facts.rows

    @property
    def cbytes(self) -> int:
        """Return the bytes of the superchunk."""
        return self.facts.cbytes

    @property
    def page_rows(self) -> int:
        """Return the rows of a page."""
        return self.root.page_rows

    @property
    def rows_of_pages(self) -> list[int]:
        """Return the rows of each page."""
        step = self.page_rows
        return [min(step, self.rows - start) for start in range(0, self.rows, step)]

    @property
    def streams(self) -> dict[str, StreamPlace]:
        """Return every stream of the tree by its full name, in the order of the chunks."""
        return {place.name: place for place in self.root.walk()}

    @property
    def offsets(self) -> list[int]:
        """Return the offset of each chunk in the superchunk, and the offset of the trailer."""
        assert self.superchunk is not None
        return self.superchunk.offsets

    @property
    def digests(self) -> bytes:
        """Return the checksums of all chunks, one after another."""
        assert self.superchunk is not None
        return self.superchunk.trailer.digests

    @property
    def checksum(self) -> Checksum:
        """Return the kind of checksum of the chunks."""
        assert self.superchunk is not None
        return self.superchunk.checksum

    @property
    def is_small(self) -> bool:
        """True if opening the part read all of it."""
        return self.cbytes <= SMALL_PART

    @property
    def nbytes_to_open(self) -> int:
        """Return the bytes that opening the part read."""
        if self.superchunk is None:
            return 0
        if self.is_small:
            return self.cbytes
        return self.facts.front_length + self.facts.trailer_length

    def zone_map(self) -> Statistics | None:
        """Return the statistics of each page; None if only the manifest has statistics."""
        if self.superchunk is None or PAGES_LAYER not in self.superchunk.trailer.layers:
            return None
        with self.error_context():
            blob = self.superchunk.trailer.layers[PAGES_LAYER].decode()
            return Statistics.decode(blob, -(-self.rows // self.page_rows))

    def values_of_codes(self, most: int) -> pa.Array | None:
        """Return the values that the codes of a column of fixed width stand for, in order.

        Return None if the values are not encoded, if a code has no one value, or if there are more
        than `most` codes.
        """
        place = self.root.streams.get(VALUES)
        if place is None or place.encoding is None or most >> (place.encoding.stored.bits or 0) < 1:
            return None
        values = place.encoding.values_of_codes()
        if values is None:
            return None
        rows = len(values) // place.layout.nbytes(1)
        return pa.Array.from_buffers(self.type, rows, [None, pa.py_buffer(values)])

    def itself(self) -> "Part":
        """Return the part, with the type of its file."""
        return self

    def dictionary(self) -> "Part":
        """Return the dictionary of a dictionary type as a part."""
        return replace(self, type=self.type.value_type, root=self.root.children[DICTIONARY])

    def as_codes(self) -> "Part":
        """Return the part with its codes as values of an unsigned type.

        The codes of a dictionary type are the indices into the dictionary. Other codes are those of
        `values_of_codes`.
        """
        name = CODES if CODES in self.root.streams else VALUES
        place = self.root.streams[name]
        encoding = place.encoding
        type_ = pa.from_numpy_dtype(f"u{place.layout.typesize}")
        if encoding is not None and (name == VALUES or encoding.is_identity):
            place = replace(place, layout=encoding.stored, nbytes=place.info.nbytes, encoding=None)
            type_ = pa.from_numpy_dtype(encoding.stored.dtype)
        streams = {VALUES if key == name else key: one for key, one in self.root.streams.items()}
        root = replace(self.root, streams={**streams, VALUES: place}, children={})
        return replace(self, type=type_, root=root)

    def read(self, start: int, stop: int) -> bytes:
        """Return bytes of the superchunk, by their offsets in it."""
        assert self.reader is not None
        return self.reader.read(start, stop - start)

    def forget(self) -> None:
        """Free the kept bytes of a small superchunk; they can be read again."""
        if self.reader is not None:
            self.reader.kept = None

    def error_context(self, stream: str = "", chunk: int | None = None) -> "ErrorContext":
        """Prefix errors with the file, the column, the stream and the chunk."""
        return ErrorContext(self.context, stream, chunk)


def open_part(
    reader: PartReader | None,
    facts: PartFacts,
    type_: pa.DataType,
    sizes: Mapping[str, int],
    context: str,
) -> Part:
    """Read the front and the trailer of a superchunk, and check them.

    Parameters
    ----------
    reader
        Reads the superchunk; None for rows of a type without streams.
    facts
        The facts of the part in the manifest.
    type_
        The type of the column.
    sizes
        The bytes of the values of each stream, by full name, from the manifest.
    context
        The file and the column, for errors.
    """
    with ErrorContext(context):
        if reader is None:
            needed = [name for name in layout_of(type_).streams if name != VALID]
            if needed:
                raise CorruptError(f"no stream {needed[0]!r} in a column of {type_}")
            root = BlockPlace(facts.rows, max(facts.page_rows, 1), {}, {})
            return Part(context, facts, type_, 0, root)
        superchunk = _unpack(reader, facts)
        _check_room(superchunk)
        root = _place(superchunk.info, type_, "", 0)
        in_file = {place.name: place.nbytes for place in root.walk() if place.nbytes}
        if in_file != {name: size for name, size in sizes.items() if size}:
            raise CorruptError(f"streams have the sizes {in_file}, the manifest says {dict(sizes)}")
        nbytes = sum(place.decoded for place in root.walk())
        return Part(context, facts, type_, nbytes, root, superchunk, reader)


class OpenParts(Closing):
    """The parts of a read, or of several reads in a row; each part is opened once.

    A context manager: its end closes the files, even if the read failed.
    """

    def __init__(self, version: Version) -> None:
        """Open nothing yet."""
        self.version = version
        self._files = OpenFiles(version.store)
        self._parts: dict[tuple[int, int], Part] = {}

    def open(self, index: int, group: int) -> Part:
        """Return the part of a column in a row group."""
        part = self._parts.get((index, group))
        if part is None:
            version, field = self.version, self.version.schema.field(index)
            parts = version.column(index)
            address = parts.address(group, version.head.bundles)
            file = version.store.name if address is None else f"{version.store.name}/{address.key}"
            part = self._parts[index, group] = open_part(
                None if address is None else PartReader(self._files, address),
                parts.facts[group],
                version.stored_type(index),
                {name: nbytes[group] for name, nbytes in parts.streams.items()},
                f"{file}, column {field.name!r}",
            )
        return part

    def items(self) -> Iterable[tuple[tuple[int, int], Part]]:
        """Return the opened parts by column and row group."""
        return self._parts.items()

    def forget_before(self, group: int) -> None:
        """Drop the parts of earlier row groups; a reader that has one may still use it."""
        # Iterate over a copy, because workers open parts at the same time.
        for key in list(self._parts):
            if key[1] < group:
                del self._parts[key]

    def close(self) -> None:
        """Close the files and drop the parts, after the last thread has finished with them."""
        self._parts.clear()
        self._files.close()


class ErrorContext:
    """Prefix the message of an error with its context.

    This is a class and not a generator with `contextmanager`: since Python 3.12 the frame of such a
    generator refers to the frame of its `__exit__`. An error that is replaced by another would then
    hold itself, and all that was read, until the garbage collector runs.
    """

    __slots__ = ("_chunk", "_context", "_stream")

    def __init__(self, context: str, stream: str = "", chunk: int | None = None) -> None:
        """Remember the context."""
        self._context = context
        self._stream = stream
        self._chunk = chunk

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if not isinstance(error, DAMAGED):
            return
        context = self._context + (f", stream {self._stream!r}" if self._stream else "")
        if self._chunk is not None:
            context += f", chunk {self._chunk}"
        raise type(error)(f"{context}: {error}") from None


def _unpack(reader: PartReader, facts: PartFacts) -> Superchunk:
    """Read front and trailer, after a check of their lengths, which decide the memory they take."""
    front, trailer, address = facts.front_length, facts.trailer_length, reader.address
    if front > MAX_FRONT_BYTES or trailer > MAX_TRAILER_BYTES:
        raise LimitError(
            f"the front has {front} bytes, the trailer {trailer}; "
            f"at most {MAX_FRONT_BYTES} and {MAX_TRAILER_BYTES} are read"
        )
    if front + trailer > address.length:
        raise CorruptError(
            f"front and trailer have {front + trailer} bytes; the superchunk has {address.length}"
        )
    # Opened once: between two calls other threads may open so many files that this one is closed.
    file = reader.open()
    if file.size < address.end or (file.size > address.end and not address.is_shared):
        raise CorruptError(f"the file has {file.size} bytes; the manifest says {address.end}")
    if address.length <= SMALL_PART:
        data = reader.kept = file.read(address.offset, address.length)
        return unpack(data[:front], data[len(data) - trailer :], facts)
    start = file.read(address.offset, front)
    return unpack(start, file.read(address.end - trailer, trailer), facts)


def _check_room(superchunk: Superchunk) -> None:
    """Check the sizes that chunks claim, before memory for them is allocated."""
    offsets, digest, head = superchunk.offsets, superchunk.checksum.size, CHUNK_HEADER.size
    claims = [size for _, stream in superchunk.info.walk() for size in stream.chunks]
    lengths = [length - digest for length in map(sub, offsets[1:], offsets)]
    if any(length > size + head for length, size in zip(lengths, claims, strict=True)):
        raise CorruptError("a chunk is longer in the file than its uncompressed contents")
    if any(size > length * MAX_RATIO for length, size in zip(lengths, claims, strict=True)):
        raise LimitError(f"a chunk claims more than {MAX_RATIO} times its bytes")


def _place(info: BlockInfo, type_: pa.DataType, prefix: str, first_chunk: int) -> BlockPlace:
    """Match a block, and its children, with the layouts of their types and encodings."""
    layout = layout_of(type_, info.encoding)
    names = [stream.name for stream in info.streams]
    if [name for name in layout.streams if name in names] != names:
        raise CorruptError(f"streams {names}; a column of {type_} has {list(layout.streams)}")
    for name in layout.streams:
        if name not in names and name != VALID:
            raise CorruptError(f"no stream {name!r} in a column of {type_}")
    if info.children.keys() != layout.children.keys():
        raise CorruptError(
            f"children {list(info.children)}; a column of {type_} has {list(layout.children)}"
        )
    streams = {}
    for stream in info.streams:
        own = stored = layout.streams[stream.name]
        encoding = None
        if stream.encoding is not None:
            pages = next((one.pages for one in info.streams if one.name == VALUES), None)
            owner = Owner(own, info.rows, info.page_rows, pages)
            encoding = parse(stream.encoding, owner, stream.dtype)
            stored = encoding.stored
        rows = info.rows if encoding is None or encoding.has_codes else 0
        _check_stream(stream, stored, rows, prefix, type_)
        if encoding and encoding.needs_pages:
            _check_whole_pages(stream, stored.nbytes(info.page_rows))
        bounds = () if stream.pages is None else tuple(accumulate(stream.pages, initial=0))
        streams[stream.name] = StreamPlace(
            prefix + stream.name,
            own,
            stream,
            first_chunk,
            bounds,
            stream.nbytes if encoding is None else own.nbytes(info.rows),
            encoding,
        )
        first_chunk += len(stream.chunks)
    children = {}
    for name, child in info.children.items():
        children[name] = _place(
            child, layout.children[name], child_prefix(prefix, name), first_chunk
        )
        first_chunk += sum(len(stream.chunks) for _, stream in child.walk())
    return BlockPlace(info.rows, info.page_rows, streams, children)


def _check_stream(
    stream: StreamInfo, layout: StreamLayout, rows: int, prefix: str, type_: pa.DataType
) -> None:
    """Raise CorruptError unless a stream has the form and the size of its layout."""
    name, bits = prefix + stream.name, layout.bits
    # A genuine Bloscpack file does not name a dtype.
    is_form = stream.dtype in (layout.dtype, "") and stream.typesize == layout.typesize
    if not is_form or (stream.pages is None) != (bits is not None):
        raise CorruptError(f"stream {name!r} does not have the form of a stream of {type_}")
    if bits is not None and stream.nbytes != layout.nbytes(rows):
        raise CorruptError(
            f"stream {name!r} has {stream.nbytes} bytes; {rows} rows take {layout.nbytes(rows)}"
        )
    width = (bits or 8) // 8
    is_cut = stream.encoding is not None or stream.name in (ENDS, CODES)
    if is_cut and any(size % width for size in stream.chunks):
        raise CorruptError(f"stream {name!r}: a chunk boundary lies within an entry")


def _check_whole_pages(stream: StreamInfo, page_bytes: int) -> None:
    """Raise CorruptError if a chunk, which is decoded by itself, ends within a page."""
    if any(size % page_bytes for size in stream.chunks[:-1]):
        raise CorruptError(f"stream {stream.name!r}: a chunk boundary lies within a page")
