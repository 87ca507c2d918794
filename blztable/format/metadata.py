"""The metadata of a version-4 superchunk: which streams it holds and how they are cut in chunks.

A block is a number of rows and the streams that hold them; a dictionary is a block of its own
inside the block of its codes. Knows nothing of the types a stream may carry.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from blztable.errors import CorruptError, FormatError, LimitError
from blztable.format import jsontext
from blztable.format.chunk import MAX_CHUNK_BYTES
from blztable.format.header import MAX_CHUNKS, MAX_METADATA_BYTES
from blztable.format.jsontext import Json

PACKED = "packed"
MIN_PAGE_ROWS = 8
MAX_PAGE_ROWS = 1 << 30


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """One stream: its chunks, by their uncompressed sizes.

    `pages` holds the bytes of each page where they differ from page to page, else it is None.
    """

    name: str
    dtype: str
    typesize: int
    chunks: tuple[int, ...]
    pages: tuple[int, ...] | None = None

    @property
    def nbytes(self) -> int:
        """Uncompressed bytes of the stream."""
        return sum(self.chunks)

    def to_json(self) -> dict[str, object]:
        """The stream as the metadata spells it."""
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
        return result

    @classmethod
    def from_json(cls, value: Json, most_chunks: int = MAX_CHUNKS) -> Self:
        """Read a stream, its sizes checked against each other and the limits."""
        entry = _object(value, {"name", "dtype", "typesize", "nbytes"}, "a stream")
        name = jsontext.text(entry["name"], "a stream's name")
        nbytes = jsontext.number(entry["nbytes"], "a stream's size")
        if ("chunk_size" in entry) == ("chunks" in entry):
            raise CorruptError(f"stream {name!r}: chunk_size or chunks is expected, one of the two")
        if "chunk_size" in entry:
            size = jsontext.number(entry["chunk_size"], "chunk_size")
            chunks = split_evenly(nbytes, size, most_chunks)
        else:
            chunks = jsontext.numbers(entry["chunks"], "a stream's chunks")
        if sum(chunks) != nbytes or any(not 0 < size <= MAX_CHUNK_BYTES for size in chunks):
            raise CorruptError(f"a stream of {nbytes} bytes in chunks that do not add up to it")
        pages = jsontext.numbers(entry["pages"], "pages") if "pages" in entry else None
        if pages is not None and sum(pages) != nbytes:
            raise CorruptError(f"a stream of {nbytes} bytes in pages that do not add up to it")
        typesize = jsontext.number(entry["typesize"], "typesize")
        if not 1 <= typesize <= 255:
            raise CorruptError(f"a stream with typesize {typesize}")
        return cls(name, jsontext.text(entry["dtype"], "dtype"), typesize, chunks, pages)


@dataclass(frozen=True, slots=True)
class BlockInfo:
    """Rows, the page they are counted in, and the streams that hold them."""

    rows: int
    page_rows: int
    streams: tuple[StreamInfo, ...]
    dictionary: "BlockInfo | None" = None

    def encode(self) -> bytes:
        """The metadata section; LimitError where it would be larger than is read."""
        data = jsontext.dumps(self.to_json())
        if len(data) > MAX_METADATA_BYTES:
            raise LimitError(
                f"metadata of {len(data)} bytes for {self.rows} rows in pages of "
                f"{self.page_rows}; at most {MAX_METADATA_BYTES} are kept: take larger pages"
            )
        return data

    @classmethod
    def decode(cls, data: bytes, most_chunks: int = MAX_CHUNKS) -> Self:
        """Read the metadata section of a superchunk with so many chunks."""
        value = jsontext.loads(data, "the metadata of a superchunk")
        return cls.from_json(value, most_chunks)

    def to_json(self) -> dict[str, object]:
        """The block as the metadata spells it."""
        result: dict[str, object] = {
            "rows": self.rows,
            "page_rows": self.page_rows,
            "packing": PACKED,
            "streams": [stream.to_json() for stream in self.streams],
        }
        if self.dictionary is not None:
            result["dictionary"] = self.dictionary.to_json()
        return result

    @classmethod
    def from_json(cls, value: Json, most_chunks: int = MAX_CHUNKS, *, nested: bool = False) -> Self:
        """Read a block; a dictionary has none of its own."""
        entry = _object(value, {"rows", "page_rows", "packing", "streams"}, "a block")
        if entry["packing"] != PACKED:
            raise FormatError(f"packing {entry['packing']!r}; only {PACKED!r} is read")
        page_rows = jsontext.number(entry["page_rows"], "page_rows")
        check_page_rows(page_rows)
        if not isinstance(entry["streams"], list):
            raise CorruptError("streams that are no list")
        streams = []
        for listed in entry["streams"]:
            stream = StreamInfo.from_json(listed, most_chunks)
            # A stream says in two numbers that it has millions of chunks, and there may be many.
            most_chunks -= len(stream.chunks)
            streams.append(stream)
        if len({stream.name for stream in streams}) != len(streams):
            raise CorruptError("two streams of one name")
        dictionary = None
        if "dictionary" in entry:
            if nested:
                raise CorruptError("a dictionary inside a dictionary")
            dictionary = cls.from_json(entry["dictionary"], most_chunks, nested=True)
        rows = jsontext.number(entry["rows"], "rows")
        npages = -(-rows // page_rows)
        if any(stream.pages is not None and len(stream.pages) != npages for stream in streams):
            raise CorruptError(f"a stream whose pages are not the {npages} of its block")
        return cls(rows, page_rows, tuple(streams), dictionary)

    @property
    def all_streams(self) -> tuple[StreamInfo, ...]:
        """The streams in the order of their chunks in the file, the dictionary's last."""
        return self.streams + (self.dictionary.streams if self.dictionary else ())


def check_page_rows(rows: int) -> None:
    """CorruptError unless `rows` is a power of two a page may have."""
    if not MIN_PAGE_ROWS <= rows <= MAX_PAGE_ROWS or rows & (rows - 1):
        raise CorruptError(f"pages of {rows} rows; a power of two from 8 is expected")


def split_evenly(nbytes: int, size: int, most: int = MAX_CHUNKS) -> tuple[int, ...]:
    """Chunks of `size` bytes, the last one smaller where `nbytes` is no multiple."""
    if nbytes == 0:
        return ()
    if not 0 < size <= MAX_CHUNK_BYTES or nbytes > most * size:
        raise CorruptError(f"{nbytes} bytes in chunks of {size}")
    full, rest = divmod(nbytes, size)
    return (size,) * full + ((rest,) if rest else ())


def uniform_size(chunks: Sequence[int]) -> int | None:
    """The size of all chunks but a smaller last one; None where they differ or are none."""
    if not chunks:
        return None
    first = chunks[0]
    if chunks[-1] <= first and all(size == first for size in chunks[:-1]):
        return first
    return None


def _object(value: Json, keys: set[str], what: str) -> dict[str, Json]:
    if not isinstance(value, dict) or not keys <= value.keys():
        raise CorruptError(f"{what} without {', '.join(sorted(keys))}")
    return value
