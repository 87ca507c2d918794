"""A data file of a table: a file of Bloscpack 3 whose metadata are the records of its parts.

    header 32 | metadata header 32 | metadata | crc32 | offsets | chunk digest chunk digest ...

The metadata say each field of the records as one array over all parts of the file, by the one
encoder for facts and files. Places, sizes and digests of chunks are not said: they follow from the
file itself. Knows nothing of types and of where the file lies.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

import numpy as np

from blztable.errors import CorruptError, FormatError, LimitError
from blztable.format import jsontext
from blztable.format.bloscpack import (
    BLOSCPACK,
    HEADER,
    MAX_METADATA_BYTES,
    METADATA,
    OFFSETS,
    SECTION,
    UNKNOWN,
    Header,
    Read,
    decode_section,
    encode_section,
)
from blztable.format.checksums import CRC32, Buffer, crc32
from blztable.format.chunk import CHUNK_HEADER, LARGE_CHUNK_BYTES, MAX_RATIO, ChunkHeader
from blztable.format.jsontext import Json
from blztable.format.records import (
    BYTE,
    CHUNK,
    DIGEST_BYTES,
    PAGE,
    PART,
    PER_ITEM,
    STREAM,
    WORD,
    Array,
    Records,
    need,
    sums,
)

# The metadata are deflated above this size: those of a bundle repeat themselves. Those of one part
# are mostly below, and can be read as they are.
PLAIN_BYTES = 600
# A number of the metadata takes some 40 bytes of memory while they are parsed.
MAX_NUMBERS = 1 << 23
OFFSET = np.dtype("<i8")

# What the metadata say of each kind of record.
SAID = {
    "parts": (PART, ["rows", "nbytes", "streams", "page", "flags", "prefix", "pages"]),
    "streams": (STREAM, list(STREAM.names or ())),
    "pages": (PAGE, list(PAGE.names or ())),
}


@dataclass(frozen=True)
class DataFile:
    """What a data file says of itself: its table, its number, its nodes and their records.

    Attributes
    ----------
    uuid, number
        Those of the table, and of the file in it.
    nodes
        The path of each part's node: its ids from the root of its column down.
    dtypes
        What the values of each part are: the text of a numpy dtype, `str` or `bytes`, `lengths`
        of items in a child, or nothing.
    records
        One entry of each node.
    """

    uuid: str
    number: int
    nodes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    records: Records

    def encode(self, chunks: Sequence[bytes]) -> tuple[bytes, Records]:
        """Return the bytes before the first chunk, and the records with file and offset.

        `chunks` are the compressed chunks of all parts in their order, without digests.
        """
        records = self.records
        text = jsontext.dumps(self._metadata())
        if text.count(b",") > MAX_NUMBERS or len(text) > MAX_METADATA_BYTES:
            raise LimitError(
                f"{len(records.parts)} parts with {len(records.pages)} pages have more metadata "
                "than a file keeps; pass a larger page_rows"
            )
        section = encode_section(text, CRC32, level=int(len(text) > PLAIN_BYTES))
        decoded = [int.from_bytes(chunk[4:8], "little") for chunk in chunks]
        front = _header(records, decoded).encode() + section
        start = len(front) + OFFSET.itemsize * len(chunks)
        offsets = start + sums(np.array([len(chunk) + DIGEST_BYTES for chunk in chunks], np.int64))
        parts = records.parts.copy()
        cbytes = parts["cbytes"].astype(np.int64)
        parts["file"], parts["offset"] = self.number, start + np.cumsum(cbytes) - cbytes
        return front + offsets[:-1].astype(OFFSET).tobytes(), replace(records, parts=parts)

    def _metadata(self) -> dict[str, object]:
        records = self.records
        arrays = {"parts": records.parts, "streams": records.streams, "pages": records.pages}
        said: dict[str, object] = {
            "uuid": self.uuid,
            "number": self.number,
            "nodes": [list(path) for path in self.nodes],
            "dtypes": list(self.dtypes),
        }
        for name, (_, fields) in SAID.items():
            said[name] = {field: arrays[name][field].tolist() for field in fields}
        said["words"] = records.words.tolist()
        said["prefixes"] = records.prefixes.tolist()
        return said

    @classmethod
    def decode(cls, data: Buffer) -> Self:
        """Read a whole data file, and compare each chunk with its digest."""
        view = memoryview(data)
        file, offsets = cls.read(lambda at, length: view[at : at + length], len(view))
        for start, end in pairwise([*offsets.tolist(), len(view)]):
            stored = int.from_bytes(view[end - DIGEST_BYTES : end], "little")
            if crc32(view[start : end - DIGEST_BYTES]) != stored:
                raise CorruptError(f"the chunk at {start} does not match its digest")
        return file

    @classmethod
    def read(cls, read: Read, size: int) -> tuple[Self, Array]:
        """Read a data file of `size` bytes without its chunks; return it and where these begin.

        The records have the digests that the file says; they were not compared with the chunks.
        """
        file, header, at = cls.front(read)
        if not 0 <= header.nchunks * OFFSET.itemsize <= size - at:
            raise CorruptError(f"a data file of {size} bytes claims {header.nchunks} chunks")
        chunks, decoded, offsets = _chunks(read, header.nchunks, at, size)
        ends = np.append(offsets, size)
        records = _placed(file.records, file.number, chunks, decoded, ends)
        if _header(records, decoded) != header:
            raise CorruptError("the header of a data file does not belong to its chunks")
        return replace(file, records=records), offsets

    @classmethod
    def front(cls, read: Read) -> tuple[Self, Header, int]:
        """Read what a data file says of itself, with records without chunks and places.

        Return the header as well, and where the offsets begin.
        """
        header = Header.decode(read(0, HEADER.size))
        if header.version != BLOSCPACK or not header.options & METADATA:
            raise FormatError("a file of Bloscpack without the records of a table")
        text, section = decode_section(read, HEADER.size)
        said = section.options, section.checksum, section.level, section.room
        if said != (0, CRC32.id, section.codec, section.stored):
            raise FormatError("the header of the metadata has values that no table has")
        if read(HEADER.size, SECTION.size) != section.encode():
            raise CorruptError("the header of the metadata has a reserved byte")
        at = HEADER.size + section.length
        return cls(*_said(text)), header, at


def _header(records: Records, decoded: list[int]) -> Header:
    """Return the header of a file whose chunks have so many decompressed bytes."""
    return Header(
        BLOSCPACK,
        METADATA | (OFFSETS if decoded else 0),
        CRC32.id,
        int(records.streams["typesize"][0]) if len(records.streams) else 1,
        max(decoded, default=UNKNOWN),
        decoded[-1] if decoded else UNKNOWN,
        len(decoded),
        0,
    )


def is_data_file(metadata: Json) -> bool:
    """True if these are the metadata of a data file of a table."""
    return isinstance(metadata, dict) and {"uuid", "number", "nodes"} <= metadata.keys()


def _said(
    text: bytes,
) -> tuple[str, int, tuple[tuple[int, ...], ...], tuple[str, ...], Records]:
    """Return what the metadata say: the fields of a file, with records that lack the chunks."""
    if text.count(b",") > MAX_NUMBERS:
        raise LimitError(f"the metadata of a data file have more than {MAX_NUMBERS} numbers")
    metadata = jsontext.loads(text, "the metadata of a data file")
    if not isinstance(metadata, dict):
        raise CorruptError("the metadata of a data file are an object")
    uuid = jsontext.text(metadata.get("uuid"), "a data file: uuid")
    number = jsontext.number(metadata.get("number"), "a data file: number")
    paths, dtypes = metadata.get("nodes"), metadata.get("dtypes")
    if not isinstance(paths, list) or not isinstance(dtypes, list):
        raise CorruptError("a data file: nodes and dtypes are lists")
    nodes = tuple(jsontext.numbers(path, "a data file: a node") for path in paths)
    texts = tuple(jsontext.text(dtype, "a data file: a dtype") for dtype in dtypes)
    parts, streams, pages = (_array(metadata.get(name), name, *said) for name, said in SAID.items())
    need(len(parts) == len(nodes) == len(texts), "parts of a data file")
    words = _integers(metadata.get("words"), WORD, "words")
    prefixes = _integers(metadata.get("prefixes"), BYTE, "prefixes")
    bare = Records(len(parts), 1, parts, streams, np.zeros(0, CHUNK), pages, words, prefixes)
    need(bare.first_stream[-1] == len(streams), "streams of a data file")
    return uuid, number, nodes, texts, bare


def _placed(bare: Records, number: int, chunks: Array, decoded: list[int], ends: Array) -> Records:
    """Return the records of a file with the chunks, which begin and end at some bytes."""
    parts, streams, count = bare.parts, bare.streams, len(chunks)
    items = np.repeat(parts["rows"], parts["streams"]).astype(np.int64)
    counts = np.where(streams["kind"] == PER_ITEM, items, bare.stream_chunks)
    need((counts >= 0) & (counts <= count), "chunks of a data file")
    need(counts.sum() == count, "chunks of a data file")
    first = sums(counts)[bare.first_stream]
    parts["file"], parts["offset"] = number, ends[first[:-1]]
    parts["cbytes"] = ends[first[1:]] - ends[first[:-1]]
    listed = np.repeat(streams["kind"] != PER_ITEM, counts)
    records = replace(bare, parts=parts, chunks=chunks[listed]).check()
    need(np.array(decoded, np.int64)[listed] == records.chunk_nbytes, "bytes of a chunk")
    return records


def _chunks(read: Read, count: int, at: int, size: int) -> tuple[Array, list[int], Array]:
    """Return the record, the decompressed bytes and the offset of each chunk."""
    offsets = np.frombuffer(read(at, OFFSET.itemsize * count), OFFSET)
    chunks, decoded = np.zeros(count, CHUNK), []
    begin = at + offsets.nbytes
    for number, offset in enumerate(offsets.tolist()):
        if offset != begin:
            raise CorruptError(f"chunk {number} begins at {offset}; expected {begin}")
        header = ChunkHeader.decode(read(offset, CHUNK_HEADER.size))
        begin = offset + header.ctbytes + DIGEST_BYTES
        if header.ctbytes < CHUNK_HEADER.size or begin > size:
            raise CorruptError(f"chunk {number} of {header.ctbytes} bytes at {offset} is cut")
        if header.nbytes > min(header.ctbytes * MAX_RATIO, LARGE_CHUNK_BYTES):
            raise CorruptError(f"chunk {number} claims {header.nbytes} bytes")
        digest = read(begin - DIGEST_BYTES, DIGEST_BYTES)
        chunks[number] = (header.ctbytes, int.from_bytes(digest, "little"))
        decoded.append(header.nbytes)
    if begin != size:
        raise CorruptError(f"a data file ends at {size}; its last chunk at {begin}")
    return chunks, decoded, offsets


def _array(value: Json, name: str, kind: np.dtype, fields: list[str]) -> Array:
    """Return the records that an object of arrays says."""
    if not isinstance(value, dict):
        raise CorruptError(f"a data file: {name} are an object")
    columns = {field: _integers(value.get(field), kind[field], name) for field in fields}
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1:
        raise CorruptError(f"a data file: the arrays of {name} differ in length")
    records = np.zeros(lengths.pop(), kind)
    for field, column in columns.items():
        records[field] = column
    return records


def _integers(value: Json, kind: np.dtype, name: str) -> Array:
    """Return a list of whole numbers as an array of a type that holds each of them."""
    if not isinstance(value, list) or (value and set(map(type, value)) != {int}):
        raise CorruptError(f"a data file: {name} are lists of whole numbers")
    try:
        return np.array(value, kind)
    except OverflowError:
        raise CorruptError(f"a data file: {name} have a number that does not fit") from None
