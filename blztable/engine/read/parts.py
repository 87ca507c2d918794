"""A part: the streams of a column in one row group, in a superchunk or in a bundle.

From the bytes up to the column:

1. A superchunk: front and trailer are read and checked, and the bytes of a chunk. It knows neither
   types nor columns.
2. `block_spec` matches the blocks of a superchunk with the type of the column. It checks that they
   fit together: where the chunks of each stream are, and how values come from them.
3. A bundle is opened once for all of its columns. `block_spec` takes the streams of a part in it.
4. `OpenParts` opens the file, compares it with the manifest and with the type of the column, and
   returns a `Part`: the tree of blocks, with the spec of every stream.

Chunks are read later (`requests.py`). Errors have no context up to item 3; every error that leaves
this file names the file, the column and the chunk.

The files of a read: opened once, shared by its threads, and only a bounded number at a time. All
reads of the process share one bound. Each read keeps an equal share of open files, but always a
few, so very many reads exceed the bound. If the process cannot open another file, all reads drop
their files, and the file is opened again. A file that a thread reads from at that moment stays open
until the thread has finished, so there may be a few such rounds. There is no lock: a lock that is
held when another thread forks stays locked in the child.
"""

import errno
import sys
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate, chain
from operator import sub
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable import tuning
from blztable.arrow.types import bytes_of, is_text
from blztable.block_terms import (
    CODES,
    DICTIONARY,
    ENDS,
    PACKED,
    PER_ITEM,
    PLAIN,
    VALID,
    VALUES,
    child_prefix,
)
from blztable.closing import Closing
from blztable.columns.blocks import Encoding, StreamLayout
from blztable.columns.codecs.lists import ROWS, Below
from blztable.columns.encodings.dictionary import Dictionary, Spelled
from blztable.columns.encodings.items import ByChunks
from blztable.columns.encodings.numbers import words_to_json
from blztable.columns.encodings.parse import StreamContext, parse
from blztable.columns.parts import decimals
from blztable.columns.sinks import Decoding, Sink
from blztable.columns.types import layout_of
from blztable.engine.version.versions import DAMAGED, Version
from blztable.errors import CorruptError, LimitError, StorageError
from blztable.format import bundle, jsontext, layout
from blztable.format.bundle import BundleMeta, Directory
from blztable.format.chunk import CHUNK_HEADER, EMPTY_CHUNK, MAX_RATIO, decompress_into
from blztable.format.header import (
    FILE_HEADER,
    MAX_CHUNKS,
    MAX_LAYER_BYTES,
    MAX_LAYERS,
    MAX_METADATA_BYTES,
    Checksum,
)
from blztable.format.line import NAN_IS_NULL, PAGES_LAYER, Statistics
from blztable.format.metadata import BlockInfo, StreamInfo
from blztable.format.superchunk import PartMeta, Superchunk, unpack
from blztable.storage.store import KeyNotFound, Reader, Store

if sys.platform != "win32":
    import resource

# Open files of all reads together; well below the limit of a process, which has other files too.
MOST_OPEN = 128
# A read keeps this many files however many reads there are, because it returns to them.
LEAST_OPEN = 8
# Seconds before each new attempt to open a file; about one second in total.
PAUSES = (0.0, 0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4)
_NO_MORE = {errno.EMFILE, errno.ENFILE}


class FileGoneError(CorruptError):
    """A file that the manifest names is not there: a shard that was taken away, for example."""


class OpenFiles(Closing):
    """Readers by key; the one opened first is dropped when there are too many.

    A dropped reader is not closed here: a thread that still reads from it may finish. The owner
    closes the others when its read ends. Otherwise an exception that is kept would keep the frames
    of the read, and with them its open files.
    """

    def __init__(self, store: Store) -> None:
        """Open nothing yet."""
        self._store = store
        self._readers: OrderedDict[str, Reader] = OrderedDict()
        _reads[id(self)] = self

    def open(self, key: str) -> Reader:
        """Return the reader of `key`; raise CorruptError if there is no file."""
        reader = self._readers.get(key)
        if reader is None:
            try:
                opened = self._opened(key)
            except KeyNotFound:
                raise FileGoneError("the file is missing") from None
            # `setdefault` is atomic: of two threads that open one file, the second drops its own.
            reader = self._readers.setdefault(key, opened)
            self._drop(down_to=_share())
        return reader

    def close(self) -> None:
        """Close all readers, once no thread reads from them; `open` opens them again."""
        # Another read that runs out of descriptors may drop some at the same time.
        with suppress(KeyError):
            while self._readers:
                self._readers.popitem()[1].close()

    def _opened(self, key: str) -> Reader:
        for pause in PAUSES:
            try:
                return self._store.open(key)
            except StorageError as error:
                if error.errno not in _NO_MORE:
                    raise
            for files in _all_reads():
                files._drop(down_to=0)
            time.sleep(pause)
        return self._store.open(key)

    def _drop(self, *, down_to: int) -> None:
        while len(self._readers) > down_to:
            try:
                self._readers.popitem(last=False)
            except KeyError:
                return  # Another thread was faster.


class PartReader:
    """A reader of the file of a superchunk.

    A small superchunk is read once: `kept` has its bytes until its chunks are decoded.
    """

    __slots__ = ("_files", "kept", "key")

    def __init__(self, files: OpenFiles, key: str) -> None:
        """Open nothing yet."""
        self._files = files
        self.key = key
        self.kept: bytes | None = None

    def open(self) -> Reader:
        """Return the reader of the file, which other threads may close at the next `open`."""
        return self._files.open(self.key)

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset`, fewer at the end of the file."""
        # Read the attribute once: another thread may set it to None meanwhile.
        kept = self.kept
        return self.open().read(offset, length) if kept is None else kept[offset : offset + length]

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill the buffer from `offset`; return the number of bytes read."""
        kept = self.kept
        if kept is None:
            return self.open().read_into(offset, buffer)
        data = kept[offset : offset + len(buffer)]
        buffer[: len(data)] = data
        return len(data)


_reads: WeakValueDictionary[int, OpenFiles] = WeakValueDictionary()


def _all_reads() -> list[OpenFiles]:
    # `valuerefs` copies in one step; reads that begin or end would disturb a loop over the values.
    return [files for reference in _reads.valuerefs() if (files := reference()) is not None]


def _share() -> int:
    """Return the number of files that one read keeps open: its share of the bound."""
    return max(LEAST_OPEN, min(MOST_OPEN, _limit() // 4) // max(len(_reads), 1))


def _limit() -> int:
    """Return the number of descriptors that the process may have."""
    if sys.platform == "win32":
        return 4 * MOST_OPEN
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 4 * MOST_OPEN if soft == resource.RLIM_INFINITY else soft


# Each is the sum of the limits of its contents.
MAX_FRONT_BYTES = FILE_HEADER.size + MAX_METADATA_BYTES + 8 * MAX_CHUNKS
MAX_TRAILER_BYTES = (MAX_LAYERS + 1) * MAX_LAYER_BYTES + 64 * MAX_CHUNKS
# Kinds whose base is in the entry.
_BASED = ("narrow", "scaled")
_ZERO = words_to_json(np.zeros(1, "<i8"))

# An entry as Python numbers: chunk, start, nbytes, encoding, rows, page_rows, base.
_Entry = tuple[int, int, int, int, int, int, int]
# The chunk of a stream, and its first byte in the chunk.
ChunkExtent = tuple[int, int]
# What the error of a missing file says of it; all other rows can be read.
HAS_ROWS = "; it has rows {:,} to {:,}"


def open_superchunk(reader: PartReader, meta: PartMeta, small: int) -> Superchunk:
    """Read front and trailer, after a check of their lengths, which decide the memory they take.

    A superchunk of at most `small` bytes is read at once, and the reader keeps the bytes.
    """
    front, trailer, length = meta.front_length, meta.trailer_length, meta.cbytes
    if front > MAX_FRONT_BYTES or trailer > MAX_TRAILER_BYTES:
        raise LimitError(
            f"the front has {front} bytes, the trailer {trailer}; "
            f"at most {MAX_FRONT_BYTES} and {MAX_TRAILER_BYTES} are read"
        )
    if front + trailer > length:
        raise CorruptError(
            f"front and trailer have {front + trailer} bytes; the superchunk has {length}"
        )
    # Opened once: between two calls other threads may open so many files that this one is closed.
    file = reader.open()
    if file.size != length:
        raise CorruptError(f"the file has {file.size} bytes; the manifest says {length}")
    if length <= small:
        data = reader.kept = file.read(0, length)
        superchunk = unpack(data[:front], data[len(data) - trailer :], meta)
    else:
        start = file.read(0, front)
        superchunk = unpack(start, file.read(length - trailer, trailer), meta)
    _check_room(superchunk)
    return superchunk


def chunk_at(superchunk: Superchunk, reader: PartReader, index: int) -> bytes:
    """Return the bytes of a chunk; CorruptError if they do not have their checksum."""
    checksum, (start, stop) = superchunk.checksum, superchunk.offsets[index : index + 2]
    chunk, expected = reader.read(start, stop - checksum.size - start), _digest(superchunk, index)
    found = checksum.digest(chunk)
    if found != expected:
        raise CorruptError(f"{checksum.name} is {found.hex()}, expected {expected.hex()}")
    return chunk


def check_digest_behind(superchunk: Superchunk, reader: PartReader, index: int) -> None:
    """Check the checksum behind a chunk, which only Bloscpack reads; CorruptError if it differs."""
    checksum, stop = superchunk.checksum, superchunk.offsets[index + 1]
    found, expected = reader.read(stop - checksum.size, checksum.size), _digest(superchunk, index)
    if found != expected:
        raise CorruptError(
            f"{checksum.name} behind the chunk is {found.hex()}, in the trailer {expected.hex()}"
        )


def check_empty(superchunk: Superchunk, reader: PartReader, index: int) -> None:
    """Check the chunk of an empty item, which no reader looks at; CorruptError if it differs."""
    if chunk_at(superchunk, reader, index) != EMPTY_CHUNK:
        raise CorruptError("the chunk of an empty item is another one")


def _digest(superchunk: Superchunk, index: int) -> bytes:
    """Return the checksum of a chunk as the trailer has it."""
    size = superchunk.checksum.size
    return superchunk.trailer.digests[index * size : (index + 1) * size]


def _check_room(superchunk: Superchunk) -> None:
    """Check the sizes that chunks claim, before memory for them is allocated."""
    offsets, digest = superchunk.offsets, superchunk.checksum.size
    flags = list(chain.from_iterable(one.chunks for _, one in superchunk.info.walk()))
    # There may be a million chunks: without a line of Python for each.
    rooms = list(map(sub, offsets[1:], offsets))
    if max(map(sub, rooms, flags), default=0) > CHUNK_HEADER.size + digest:
        raise CorruptError("a chunk is longer in the file than its uncompressed contents")
    if max(flags, default=0) > (min(rooms, default=0) - digest) * MAX_RATIO and any(
        size > (room - digest) * MAX_RATIO for size, room in zip(flags, rooms, strict=True)
    ):
        raise LimitError(f"a chunk claims more than {MAX_RATIO} times its bytes")


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """A stream of a part: its form, its chunks and its pages.

    Attributes
    ----------
    name
        The full name, as in ``dictionary.values``.
    layout, info
        The form of the stream by its type, and its description in the file.
    first_chunk
        The index of the stream's first chunk in the superchunk.
    bounds, bound_rows
        Byte offset of each page, and the end of the last one; empty if rows have a fixed size. If
        each item is a chunk, the same of each row. Rows from one offset to the next.
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
    bound_rows: int
    nbytes: int
    encoding: Encoding | None = None

    def decoding(self, sink: Sink, shift: int = 0) -> Sink:
        """Return the sink for the bytes of the file, given the sink for the values.

        `shift` is added to item ends that an encoding makes.
        """
        if self.encoding is None:
            return sink
        encoding = self.encoding.shifted(shift) if shift else self.encoding
        return Decoding(encoding, self.layout.typesize, sink)

    @property
    def kind(self) -> str:
        """Return the kind of the encoding, "plain" if there is none."""
        return self.encoding.kind if self.encoding else PLAIN

    @property
    def has_chunks(self) -> bool:
        """True if the bytes are in the file; False if the encoding makes them of nothing."""
        return self.encoding is None or self.encoding.has_codes

    @property
    def decoded(self) -> int:
        """Return the bytes that are decompressed, or made of nothing."""
        return self.info.nbytes if self.has_chunks else self.nbytes

    def range_of(self, start: int, stop: int) -> tuple[int, int]:
        """Return the range of bytes before decoding of these rows, from bound to bound."""
        if self.encoding is not None:
            return self.encoding.stored.nbytes(start), self.encoding.stored.nbytes(stop)
        return self.value_range(start, stop)

    def value_range(self, start: int, stop: int) -> tuple[int, int]:
        """Return the range of bytes of the values of these rows, as if they were not encoded."""
        if self.info.pages is None:
            return self.layout.nbytes(start), self.layout.nbytes(stop)
        return self.bounds[start // self.bound_rows], self.bounds[-(-stop // self.bound_rows)]


@dataclass(frozen=True, slots=True)
class BlockSpec:
    """A node of a part's tree: its streams by their own names, and its children."""

    rows: int
    page_rows: int
    streams: Mapping[str, StreamSpec]
    children: Mapping[str, "BlockSpec"]
    # True if the rows are null where the value is NaN, as the line of the column says.
    nan_is_null: bool = False

    def walk(self) -> Iterator[StreamSpec]:
        """Yield every stream of the tree, in the order of the chunks."""
        yield from self.streams.values()
        for child in self.children.values():
            yield from child.walk()


def block_spec(info: BlockInfo, type_: pa.DataType, prefix: str, first_chunk: int) -> BlockSpec:
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
            items = next((one for one in info.streams if one.name == VALUES), None)
            pages = items.pages if items else None
            chunks = items.chunks if items and info.packing == PER_ITEM else None
            meta = (info.rows, info.page_rows, pages)
            context = StreamContext(own, *meta, is_text(type_), bool(prefix), chunks)
            encoding = parse(stream.encoding, context, stream.dtype)
            stored = encoding.stored
        if own.dtype == ROWS and not isinstance(encoding, Below):
            raise CorruptError("the items of a list are not rows of another part")
        rows = info.rows if encoding is None or encoding.has_codes else 0
        if (stream.pages is None) != (own.bits is not None):
            raise CorruptError(
                f"stream {prefix + stream.name!r}: pages where the bits of a row vary"
            )
        _check_stream(stream, stored, rows, prefix, type_)
        if encoding and encoding.needs_pages:
            _check_whole_pages(stream, stored.nbytes(info.page_rows))
        is_items = info.packing == PER_ITEM and stream.name == VALUES
        sizes = stream.chunks if is_items else stream.pages or ()
        bounds = () if stream.pages is None else tuple(accumulate(sizes, initial=0))
        bound_rows = 1 if is_items else info.page_rows
        nbytes = own.nbytes(info.rows) if own.bits is not None else bounds[-1]
        if own.dtype == ROWS:
            # The pages count rows, whose bytes are in another part.
            nbytes = 0
        streams[stream.name] = StreamSpec(
            prefix + stream.name,
            own,
            stream,
            first_chunk,
            bounds,
            bound_rows,
            nbytes,
            encoding,
        )
        first_chunk += len(stream.chunks)
    _check_dictionary(streams)
    _check_packed(info, streams)
    children = {}
    for name, child in info.children.items():
        children[name] = block_spec(
            child, layout.children[name], child_prefix(prefix, name), first_chunk
        )
        first_chunk += sum(len(stream.chunks) for _, stream in child.walk())
    return BlockSpec(info.rows, info.page_rows, streams, children)


def _check_stream(
    stream: StreamInfo, layout: StreamLayout, rows: int, prefix: str, type_: pa.DataType
) -> None:
    """Raise CorruptError unless a stream has the form and the size of its layout."""
    name, bits = prefix + stream.name, layout.bits
    # A genuine Bloscpack file does not name a dtype.
    if stream.dtype not in (layout.dtype, "") or stream.typesize != layout.typesize:
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


def _check_packed(info: BlockInfo, streams: Mapping[str, StreamSpec]) -> None:
    """Raise CorruptError unless ends follow from chunks if, and only if, each item is one."""
    ends, values = streams.get(ENDS), streams.get(VALUES)
    is_by_chunks = ends is not None and isinstance(ends.encoding, ByChunks)
    if is_by_chunks != (info.packing == PER_ITEM) or (is_by_chunks and values and values.encoding):
        raise CorruptError(f"packing {info.packing!r} of streams that are not encoded so")


def _check_dictionary(streams: Mapping[str, StreamSpec]) -> None:
    """Raise CorruptError if only one of the two streams of items is in a dictionary."""
    ends, values = streams.get(ENDS), streams.get(VALUES)
    is_spelled = values is not None and isinstance(values.encoding, Spelled)
    if is_spelled != (ends is not None and isinstance(ends.encoding, Dictionary)):
        raise CorruptError("encoding 'dictionary' of only one of 'ends' and 'values'")


@dataclass(frozen=True, slots=True, eq=False)
class OpenBundle:
    """A bundle whose front, trailer and directory passed all checks.

    Attributes
    ----------
    meta
        The metadata of the bundle in the head.
    superchunk, reader
        The offsets of the chunks, and the reader of the file.
    directory
        The entries and the encodings.
    sizes, typesizes
        The uncompressed bytes and the typesize of each chunk.
    """

    meta: BundleMeta
    superchunk: Superchunk
    reader: PartReader
    directory: Directory
    sizes: list[int]
    typesizes: list[int]
    # Checked trees, which parts share that differ only in the slots and bases of their streams.
    _trees: dict[object, BlockSpec] = field(default_factory=dict)

    @property
    def nbytes_to_open(self) -> int:
        """Return the bytes of front and trailer."""
        return self.meta.front_length + self.meta.trailer_length

    def tree(self, at: int, type_: pa.DataType) -> tuple[BlockSpec, list[ChunkExtent]]:
        """Return the tree of the part whose first entry is `at`, from 1.

        The streams that have bytes have one chunk each, whose number is the index of its slot.
        """
        stop = at - 1 + count_of_entries(type_)
        if not 0 < at <= stop <= len(self.directory.entries):
            raise CorruptError(f"the bundle has no entries {at} to {stop}")
        entries: list[_Entry] = self.directory.entries[at - 1 : stop].tolist()
        slots = [entry[:2] for entry in entries if entry[2]]
        # Many parts of numbers differ in their bases alone.
        is_number, base = list(layout_of(type_).streams) == [VALID, VALUES], 0
        if is_number:
            base = entries[1][-1]
            entries[1] = (*entries[1][:-1], 0)
        key = (type_, *(entry[2:] for entry in entries))
        root = self._trees.get(key)
        if root is None:
            root = self._trees[key] = block_spec(self._block(type_, iter(entries)), type_, "", 0)
        return _rebased(root, base) if base else root, slots

    def encoding(self, number: int, context: StreamContext) -> Encoding | None:
        """Return an encoding of numbers by its number, with base 0; None for 0."""
        if not number:
            return None
        described = self._described(number, 0)
        encoding = parse(described, context, _dtype_of(described))
        if described.get("typesize") != encoding.stored.typesize:
            raise CorruptError(f"encoding {number} of a bundle has another typesize")
        return encoding

    def contents(self, chunk: int) -> np.ndarray:
        """Read and decompress a chunk."""
        return _contents(self.superchunk, self.reader, chunk, self.sizes, self.typesizes)

    def _described(self, number: int, base: int) -> dict[str, jsontext.Json]:
        """Return an encoding as the metadata of a file of its own would describe it."""
        described = self.directory.encoding(number)
        if described.get("kind") in _BASED:
            described["bases"] = words_to_json(np.array([base])) if base else _ZERO
        return described

    def _block(self, type_: pa.DataType, entries: Iterator[_Entry]) -> BlockInfo:
        """Return a block as a file of its own would describe it."""
        layout = layout_of(type_)
        streams, sizes = [], set()
        for name, own in layout.streams.items():
            _, _, nbytes, number, rows, page_rows, base = next(entries)
            sizes.add((rows, page_rows))
            if name == VALID and not nbytes and not number:
                continue  # No row is null.
            encoding, dtype, typesize = None, own.dtype, own.typesize
            if number:
                encoding = self._described(number, base)
                dtype = _dtype_of(encoding)
                typesize = jsontext.number(encoding.get("typesize"), "typesize")
            pages = None
            if own.bits is None:
                pages = (base if number else nbytes,) if rows else ()
            chunks = (nbytes,) if nbytes else ()
            streams.append(StreamInfo(name, dtype, typesize, chunks, pages, encoding))
        if not layout.streams:
            # The rows of a null type.
            sizes.add(next(entries)[4:6])
        if len(sizes) != 1:
            raise CorruptError(f"the streams of a block have (rows, page_rows) {sorted(sizes)}")
        children = {name: self._block(child, entries) for name, child in layout.children.items()}
        return BlockInfo(*sizes.pop(), tuple(streams), children)


def open_bundle(reader: PartReader, meta: BundleMeta, rows: int) -> OpenBundle:
    """Read and check front, trailer and directory of the bundle of a row group."""
    whole = PartMeta(
        rows,
        bundle.page_rows_of(rows),
        meta.cbytes,
        meta.front_length,
        meta.trailer_length,
        meta.crc,
    )
    superchunk = open_superchunk(reader, whole, tuning.current.small_bundle_bytes)
    sizes = bundle.chunk_sizes(superchunk.info)
    typesizes = [one.typesize for one in superchunk.info.streams for _ in one.chunks]
    first, streams = 0, []
    for stream in superchunk.info.streams[:2]:
        chunks = range(first, first + len(stream.chunks))
        parts = (_contents(superchunk, reader, one, sizes, typesizes).tobytes() for one in chunks)
        streams.append(b"".join(parts))
        first = chunks.stop
    entries, encodings = streams
    directory = Directory.decode(entries, encodings, superchunk.info)
    return OpenBundle(meta, superchunk, reader, directory, sizes, typesizes)


def _contents(
    superchunk: Superchunk, reader: PartReader, chunk: int, sizes: list[int], typesizes: list[int]
) -> np.ndarray:
    out = np.empty(sizes[chunk], np.uint8)
    data = chunk_at(superchunk, reader, chunk)
    decompress_into(data, typesizes[chunk], out.ctypes.data, len(out))
    return out


def _dtype_of(described: Mapping[str, jsontext.Json]) -> str:
    return jsontext.text(described.get("dtype"), "dtype")


def _rebased(root: BlockSpec, base: int) -> BlockSpec:
    """Return the tree of a part of numbers with another base."""
    values = root.streams.get(VALUES)
    if values is None or values.encoding is None:
        return root
    # `replace` takes three times longer, for each column of a wide table.
    own = (values.name, values.layout, values.info, values.first_chunk, values.bounds)
    values = StreamSpec(*own, values.bound_rows, values.nbytes, values.encoding.rebased(base))
    return BlockSpec(root.rows, root.page_rows, {**root.streams, VALUES: values}, root.children)


@lru_cache(maxsize=256)
def count_of_entries(type_: pa.DataType) -> int:
    """Return the number of entries of a part of this type."""
    layout = layout_of(type_)
    return max(len(layout.streams), 1) + sum(map(count_of_entries, layout.children.values()))


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A part whose file passed all checks of front and trailer, or rows of a type without streams.

    Attributes
    ----------
    context
        The file and the column, for errors.
    meta
        The metadata of the part in the manifest.
    type
        The type of its rows.
    nbytes
        The bytes of all streams that are decompressed, or made of nothing.
    root
        The tree of blocks.
    superchunk, reader
        The offsets of the chunks, and the reader of the file; None if the part has none of its own.
    bundle
        The bundle that has the part; None if it is in none.
    slots
        The chunk of the bundle, and the first byte in it, of each stream that has bytes. These
        streams have one chunk each, by whose number the slot is found.
    share
        The rows of the table that count as read with the part, for the progress; None for its own.
    """

    context: str
    meta: PartMeta
    type: pa.DataType
    nbytes: int
    root: BlockSpec
    superchunk: Superchunk | None = None
    reader: PartReader | None = None
    bundle: OpenBundle | None = None
    slots: Sequence[ChunkExtent] = ()
    share: float | None = None

    @property
    def cells(self) -> float:
        """Return the rows of the table that count as read with the part."""
        return self.rows if self.share is None else self.share

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return self.meta.rows

    @property
    def cbytes(self) -> int:
        """Return the bytes of the superchunk."""
        return self.meta.cbytes

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
    def streams(self) -> dict[str, StreamSpec]:
        """Return every stream of the tree by its full name, in the order of the chunks."""
        return {block_spec.name: block_spec for block_spec in self.root.walk()}

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
    def is_per_item(self) -> bool:
        """True if each chunk of `values` is the item of one row."""
        return self.superchunk is not None and self.superchunk.info.packing == PER_ITEM

    @property
    def is_small(self) -> bool:
        """True if opening the part read all of it."""
        return self.cbytes <= tuning.current.small_part_bytes

    @property
    def nbytes_to_open(self) -> int:
        """Return the bytes that opening the part read."""
        if self.is_small:
            return self.cbytes
        return self.meta.front_length + self.meta.trailer_length

    def zone_map(self) -> Statistics | None:
        """Return the statistics of each page; None if only the manifest has statistics."""
        if self.superchunk is None or PAGES_LAYER not in self.superchunk.trailer.layers:
            return None
        with self.error_context():
            blob = self.superchunk.trailer.layers[PAGES_LAYER].decode()
            return Statistics.decode(blob, -(-self.rows // self.page_rows))

    def values_of_codes(self, most: int) -> pa.Array | None:
        """Return the values that the codes of a column stand for, in order.

        Return None if the values are not encoded, if a code has no one value, or if there are more
        than `most` codes. A dictionary type has none: its dictionary has to be read.
        """
        encoding = self.root.streams[self._coded].encoding if self._coded else None
        values = encoding.values_of_codes(self.type, most) if encoding else None
        if values is not None and self.root.nan_is_null:
            return pc.if_else(pc.is_nan(values), None, values)
        if values is not None and pa.types.is_decimal(self.type):
            # A code that no row has may stand for a value that has too many digits.
            return values if decimals.are_within(self.type, bytes_of(values.buffers()[1])) else None
        return values

    def with_nans(self) -> "Part":
        """Return the part with NaN as a value, also where it stands for null."""
        return replace(self, root=replace(self.root, nan_is_null=False))

    def dictionary(self) -> "Part":
        """Return the dictionary of a dictionary type as a part."""
        return replace(self, type=self.type.value_type, root=self.root.children[DICTIONARY])

    def as_codes(self) -> "Part":
        """Return the part with its codes as values of an unsigned type.

        The codes of a dictionary type are the indices into the dictionary. Other codes are those of
        `values_of_codes`.
        """
        name = self._coded
        block_spec = self.root.streams[name]
        encoding = block_spec.encoding
        if encoding is not None and (name != CODES or encoding.is_identity):
            block_spec = replace(
                block_spec, layout=encoding.stored, nbytes=block_spec.info.nbytes, encoding=None
            )
            type_ = pa.from_numpy_dtype(encoding.stored.dtype)
        else:
            type_ = pa.from_numpy_dtype(f"u{block_spec.layout.typesize}")
        # Beside the codes there is the validity, or nothing.
        streams = {key: one for key, one in self.root.streams.items() if key == VALID}
        streams = {**streams, VALUES: block_spec}
        root = replace(self.root, streams=streams, children={}, nan_is_null=False)
        return replace(self, type=type_, root=root)

    @property
    def _coded(self) -> str:
        """The name of the stream that may have codes: the first one but the validity."""
        return next((name for name in self.root.streams if name != VALID), "")

    def forget(self) -> None:
        """Free the kept bytes of a small superchunk; they can be read again."""
        if self.reader is not None:
            self.reader.kept = None

    def error_context(self, stream: str = "", chunk: int | None = None) -> "ErrorContext":
        """Prefix errors with the file, the column, the stream and the chunk."""
        return ErrorContext(self.context, stream, chunk)


def open_part(
    reader: PartReader | None,
    meta: PartMeta,
    type_: pa.DataType,
    sizes: Mapping[str, int],
    context: str,
    flags: Set[str] = frozenset(),
) -> Part:
    """Read the front and the trailer of a superchunk, and check them.

    Parameters
    ----------
    reader
        Reads the superchunk; None for rows of a type without streams.
    meta
        The metadata of the part in the manifest.
    type_
        The type of the column.
    sizes
        The bytes of the values of each stream, by full name, from the manifest.
    context
        The file and the column, for errors.
    flags
        The flags of the part in the line of the column.
    """
    with ErrorContext(context):
        nan_is_null = _nan_is_null(type_, flags)
        if reader is None:
            _check_packing(flags, PACKED)
            needed = [name for name in layout_of(type_).streams if name != VALID]
            if needed and meta.rows:
                raise CorruptError(f"no stream {needed[0]!r} in a column of {type_}")
            root = BlockSpec(meta.rows, max(meta.page_rows, 1), {}, {})
            return Part(context, meta, type_, 0, root)
        superchunk = open_superchunk(reader, meta, tuning.current.small_part_bytes)
        _check_packing(flags, superchunk.info.packing)
        root = block_spec(superchunk.info, type_, "", 0)
        nbytes, root = _decoded(root, sizes), _of_line(root, nan_is_null)
        return Part(context, meta, type_, nbytes, root, superchunk, reader)


def _decoded(root: BlockSpec, sizes: Mapping[str, int]) -> int:
    """Return the decoded bytes of a tree; CorruptError unless its values have these sizes."""
    places = list(root.walk())
    in_file = {one.name: one.nbytes for one in places if one.nbytes}
    if in_file != {name: size for name, size in sizes.items() if size}:
        raise CorruptError(f"streams have the sizes {in_file}, the manifest says {dict(sizes)}")
    return sum(one.decoded for one in places)


def _nan_is_null(type_: pa.DataType, flags: Set[str]) -> bool:
    """True if the line says that NaN is null; raise CorruptError unless the type has NaN."""
    if NAN_IS_NULL in flags and not pa.types.is_floating(type_):
        raise CorruptError(f"'nan_is_null' in a column of {type_}, which has no NaN")
    return NAN_IS_NULL in flags


def _check_packing(flags: Set[str], packing: str) -> None:
    expected = PER_ITEM if PER_ITEM in flags else PACKED
    if packing != expected:
        raise CorruptError(f"packing {packing!r}; the line of the column says {expected!r}")


def _of_line(root: BlockSpec, nan_is_null: bool) -> BlockSpec:
    """Return the tree, with what the line of the column says of its nulls."""
    if nan_is_null and VALID in root.streams:
        raise CorruptError(f"'nan_is_null' and a stream {VALID!r}; expected one of them")
    return replace(root, nan_is_null=True) if nan_is_null else root


class OpenParts(Closing):
    """The parts of a read, or of several reads in a row; each part is opened once.

    A context manager: its end closes the files, even if the read failed.
    """

    def __init__(self, version: Version) -> None:
        """Open nothing yet."""
        self.version = version
        self._files = OpenFiles(version.store)
        self._parts: dict[tuple[int, int], Part] = {}
        self._bundles: dict[int, OpenBundle] = {}
        # The bytes of bundles that are kept.
        self._kept = 0

    def open(self, line: int, group: int) -> Part:
        """Return the part of a node in a row group; nodes count as lines of the manifest."""
        part = self._parts.get((line, group))
        if part is None:
            try:
                part = self._open(line, group)
            except FileGoneError as error:
                groups = self.version.row_groups
                start = sum(groups[:group])
                has = HAS_ROWS.format(start, start + groups[group])
                raise CorruptError(f"{error}{has}") from None
            version = self.version
            if not version.is_flat or version.deleted:
                # All nodes of a column together count as one column.
                nodes = version.nodes(version.field_of(line))
                part = replace(part, share=version.row_groups[group] / len(nodes))
            self._parts[line, group] = part
        return part

    def _open(self, line: int, group: int) -> Part:
        version, node = self.version, self.version.node(line)
        parts, type_ = version.parts(line), node.type
        key = parts.key(group, version.bundles)
        file = f"{version.store.name}/{key}" if key else version.store.name
        context = f"{file}, column {node.name!r}"
        meta = parts.meta[group]
        sizes = {name: nbytes[group] for name, nbytes in parts.streams.items()}
        flags = parts.flags_of(group)
        if not parts.is_bundled(group):
            reader = PartReader(self._files, key) if key else None
            return open_part(reader, meta, type_, sizes, context, flags)
        with ErrorContext(context):
            nan_is_null = _nan_is_null(type_, flags)
            _check_packing(flags, PACKED)
            bundle = self.bundle(group)
            root, slots = bundle.tree(parts.at[group], type_)
            if (root.rows, root.page_rows) != (meta.rows, meta.page_rows):
                raise CorruptError(
                    f"{root.rows} rows in pages of {root.page_rows}; "
                    f"the manifest says {meta.rows} in pages of {meta.page_rows}"
                )
            nbytes, root = _decoded(root, sizes), _of_line(root, nan_is_null)
        return Part(context, meta, type_, nbytes, root, bundle=bundle, slots=slots)

    def bundle(self, group: int) -> OpenBundle:
        """Return the bundle of a row group, which must have one."""
        bundle = self._bundles.get(group)
        if bundle is None:
            meta = self.version.bundles[group]
            assert meta is not None
            reader = PartReader(self._files, layout.part(layout.SHARED, meta.k))
            opened = open_bundle(reader, meta, self.version.stored_rows[group])
            self._kept += len(reader.kept or b"")
            if self._kept > tuning.current.kept_bundle_bytes:
                self._kept -= len(reader.kept or b"")
                reader.kept = None
            # `setdefault` is atomic: of two threads that open one bundle, the second drops its own.
            bundle = self._bundles.setdefault(group, opened)
        return bundle

    def items(self) -> Iterable[tuple[tuple[int, int], Part]]:
        """Return the opened parts by column and row group."""
        return self._parts.items()

    def forget_before(self, group: int) -> None:
        """Drop the parts of earlier row groups; a reader that has one may still use it."""
        # Iterate over a copy, because workers open parts at the same time.
        for key in list(self._parts):
            if key[1] < group:
                del self._parts[key]
        for number in list(self._bundles):
            if number < group:
                self._kept -= len(self._bundles.pop(number).reader.kept or b"")

    def close(self) -> None:
        """Close the files and drop the parts, after the last thread has finished with them."""
        self._parts.clear()
        self._bundles.clear()
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
