"""The metadata of a version-4 superchunk: the tree of its blocks, and the chunks of each stream.

A block is a number of rows and the streams that hold them. A block may have child blocks, as the
codes of a dictionary column have the dictionary. Knows nothing of Arrow types or of encodings.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from blztable.block_terms import (
    DICTIONARY,
    MIN_PAGE_ROWS,
    PACKED,
    PACKINGS,
    PER_ITEM,
    PLAIN,
    VALUES,
    child_prefix,
    split_evenly,
)
from blztable.errors import CorruptError, FormatError, LimitError
from blztable.format import jsontext
from blztable.format.chunk import LARGE_CHUNK_BYTES, MAX_CHUNK_BYTES
from blztable.format.header import MAX_CHUNKS, MAX_METADATA_BYTES
from blztable.format.jsontext import Json

MAX_PAGE_ROWS = 1 << 30
# An item that is a chunk may be larger than other chunks.
MAX_ITEM_BYTES = LARGE_CHUNK_BYTES
# The names of children that this version of the format has, in the order of their chunks.
CHILDREN = (DICTIONARY,)
# Levels of a tree of blocks: a limit for untrusted files.
MAX_DEPTH = 8


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """One stream of a block.

    Attributes
    ----------
    name
        The name of the stream within its block.
    dtype, typesize
        The type of an item, and its bytes.
    chunks
        The uncompressed bytes of each chunk.
    pages
        The bytes of each page; None if a row of the stream has a fixed number of bits.
    encoding
        How values come from these bytes, as JSON; None if these are the values. This file does not
        know the encodings.
    """

    name: str
    dtype: str
    typesize: int
    chunks: tuple[int, ...]
    pages: tuple[int, ...] | None = None
    encoding: Mapping[str, object] | None = None

    @property
    def nbytes(self) -> int:
        """Return the uncompressed bytes of the stream."""
        return sum(self.chunks)

    def to_json(self) -> dict[str, object]:
        """Return the stream as JSON."""
        result: dict[str, object] = {
            "name": self.name,
            "dtype": self.dtype,
            "typesize": self.typesize,
            "nbytes": self.nbytes,
        }
        size = uniform_size(self.chunks)
        if size is None:
            result["chunks"] = list(self.chunks)
        else:
            result["chunk_size"] = size
        if self.pages is not None:
            result["pages"] = list(self.pages)
        if self.encoding is not None:
            result["encoding"] = self.encoding
        return result

    @classmethod
    def from_json(cls, value: Json, most_chunks: int = MAX_CHUNKS, packing: str = PACKED) -> Self:
        """Read a stream and check its sizes against each other and against the limits."""
        entry = _object(value, {"name", "dtype", "typesize", "nbytes"}, "a stream")
        name = jsontext.text(entry["name"], "a stream's name")
        nbytes = jsontext.number(entry["nbytes"], "a stream's size")
        if ("chunk_size" in entry) == ("chunks" in entry):
            raise CorruptError(f"stream {name!r}: expected either chunk_size or chunks")
        is_items = packing == PER_ITEM and name == VALUES
        least, most = (0, MAX_ITEM_BYTES) if is_items else (1, MAX_CHUNK_BYTES)
        if "chunk_size" in entry:
            size = jsontext.number(entry["chunk_size"], "chunk_size")
            chunks = even_chunks(nbytes, size, most_chunks, most)
        else:
            chunks = jsontext.numbers(entry["chunks"], "a stream's chunks")
        extremes = (min(chunks, default=least), max(chunks, default=least))
        if sum(chunks) != nbytes or not least <= extremes[0] <= extremes[1] <= most:
            raise CorruptError(f"stream {name!r}: the chunks do not add up to {nbytes} bytes")
        pages = jsontext.numbers(entry["pages"], "pages") if "pages" in entry else None
        encoding = entry.get("encoding")
        if encoding is not None and not isinstance(encoding, dict):
            raise CorruptError(f"stream {name!r}: 'encoding' is not an object")
        # The pages of an encoded stream have the bytes of its values.
        if pages is not None and encoding is None and sum(pages) != nbytes:
            raise CorruptError(f"stream {name!r}: the pages do not add up to {nbytes} bytes")
        typesize = jsontext.number(entry["typesize"], "typesize")
        if not 1 <= typesize <= 255:
            raise CorruptError(f"stream {name!r}: typesize {typesize}; expected 1 to 255")
        dtype = jsontext.text(entry["dtype"], "dtype")
        return cls(name, dtype, typesize, chunks, pages, encoding)


@dataclass(frozen=True, slots=True)
class BlockInfo:
    """A node of a part's tree: rows, the streams that hold them, and the blocks below.

    Attributes
    ----------
    rows
        Number of rows. A child has its own number of rows.
    page_rows
        Number of rows of a page, a power of two.
    streams
        The block's own streams, in the order of their chunks in the file.
    children
        The blocks below this one, by name, in the order of their chunks in the file.
    encoding
        The name of the rule that turned values into streams. This file does not know the rules.
    packing
        `PER_ITEM` if each chunk of `values` is the item of one row, otherwise `PACKED`.
    """

    rows: int
    page_rows: int
    streams: tuple[StreamInfo, ...]
    children: Mapping[str, "BlockInfo"] = field(default_factory=dict)
    encoding: str = PLAIN
    packing: str = PACKED

    def encode(self) -> bytes:
        """Return the metadata section; raise LimitError if it exceeds the size a reader accepts."""
        data = jsontext.dumps(self.to_json())
        if len(data) > MAX_METADATA_BYTES:
            raise LimitError(
                f"metadata of {len(data)} bytes for {self.rows} rows in pages of "
                f"{self.page_rows}; at most {MAX_METADATA_BYTES} are kept; pass a larger page_rows"
            )
        return data

    @classmethod
    def decode(cls, data: bytes, most_chunks: int = MAX_CHUNKS) -> Self:
        """Read the metadata section of a superchunk that has `most_chunks` chunks."""
        value = jsontext.loads(data, "the metadata of a superchunk")
        return cls._from_json(value, _Budget(most_chunks), MAX_DEPTH)

    def walk(self, prefix: str = "") -> Iterator[tuple[str, StreamInfo]]:
        """Yield every stream of the tree with its full name, in the order of the chunks."""
        for stream in self.streams:
            yield prefix + stream.name, stream
        for name, child in self.children.items():
            yield from child.walk(child_prefix(prefix, name))

    def to_json(self) -> dict[str, object]:
        """Return the block as JSON."""
        result: dict[str, object] = {
            "rows": self.rows,
            "page_rows": self.page_rows,
            "packing": self.packing,
            "streams": [stream.to_json() for stream in self.streams],
        }
        if self.encoding != PLAIN:
            result["encoding"] = self.encoding
        return result | {name: child.to_json() for name, child in self.children.items()}

    @classmethod
    def _from_json(cls, value: Json, budget: "_Budget", depth: int) -> Self:
        entry = _object(value, {"rows", "page_rows", "packing", "streams"}, "a block")
        packing = entry["packing"]
        if packing not in PACKINGS:
            raise FormatError(f"a block has packing {packing!r:.100}; expected one of {PACKINGS}")
        page_rows = jsontext.number(entry["page_rows"], "page_rows")
        check_page_rows(page_rows)
        if not isinstance(entry["streams"], list):
            raise CorruptError("'streams' of a block is not an array")
        streams = tuple(
            budget.spend(StreamInfo.from_json(item, budget.chunks, packing))
            for item in entry["streams"]
        )
        if len({stream.name for stream in streams}) != len(streams):
            raise CorruptError("two streams of a block have the same name")
        present = [name for name in CHILDREN if name in entry]
        if present and depth == 1:
            raise CorruptError(f"blocks are nested more than {MAX_DEPTH} levels deep")
        children = {name: cls._from_json(entry[name], budget, depth - 1) for name in present}
        rows = jsontext.number(entry["rows"], "rows")
        npages = -(-rows // page_rows)
        if any(stream.pages is not None and len(stream.pages) != npages for stream in streams):
            raise CorruptError(f"a stream does not have the {npages} pages of its block")
        encoding = jsontext.text(entry.get("encoding", PLAIN), "encoding")
        counts = [len(stream.chunks) for stream in streams if stream.name == VALUES]
        if packing == PER_ITEM and counts != [rows]:
            raise CorruptError(f"items in {counts} chunks; expected one for each of {rows} rows")
        return cls(rows, page_rows, streams, children, encoding, packing)


@dataclass(slots=True)
class _Budget:
    """The number of chunks that the streams not read yet may have.

    A stream can claim millions of chunks with two numbers, and a file may have many streams.
    """

    chunks: int

    def spend(self, stream: StreamInfo) -> StreamInfo:
        self.chunks -= len(stream.chunks)
        return stream


def check_page_rows(rows: int) -> None:
    """Raise CorruptError unless `rows` is a number of rows that a page may have."""
    if not MIN_PAGE_ROWS <= rows <= MAX_PAGE_ROWS or rows & (rows - 1):
        raise CorruptError(
            f"pages of {rows} rows; expected a power of two from {MIN_PAGE_ROWS} to {MAX_PAGE_ROWS}"
        )


def even_chunks(
    nbytes: int, size: int, most: int = MAX_CHUNKS, largest: int = MAX_CHUNK_BYTES
) -> tuple[int, ...]:
    """Return chunks of `size` bytes; raise CorruptError for too large or too many chunks."""
    if nbytes == 0:
        return ()
    if not 0 < size <= largest or nbytes > most * size:
        raise CorruptError(f"{nbytes} bytes in chunks of {size} bytes; expected at most {most}")
    return split_evenly(nbytes, size)


def uniform_size(chunks: Sequence[int]) -> int | None:
    """Return the size of all chunks, where the last may be smaller; None without such a size."""
    if not chunks or not chunks[-1]:
        return None
    first = chunks[0]
    return first if chunks[-1] <= first and {first}.issuperset(chunks[:-1]) else None


def _object(value: Json, keys: set[str], context: str) -> dict[str, Json]:
    if not isinstance(value, dict) or not keys <= value.keys():
        raise CorruptError(f"{context}: expected an object with {', '.join(sorted(keys))}")
    return value
