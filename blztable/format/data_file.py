"""A data file of a table: a file of Bloscpack 3 whose metadata are the records of its parts.

    header 32 | metadata header 32 | metadata | crc32 | offsets | chunk digest chunk digest ...

The metadata say each field of the records as one array over all parts of the file, by the one
encoder for facts and files. Places, sizes and digests of chunks are not said: they follow from the
file itself. Knows nothing of types and of where the file lies.
"""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from blztable.errors import CorruptError, FormatError
from blztable.format import jsontext
from blztable.format.chunk import CHUNK_HEADER, ChunkHeader
from blztable.format.header import Buffer, crc32
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

HEADER = struct.Struct("<4sBBBBiiqq")
SECTION = struct.Struct("<8sBBBBIII8s")
assert HEADER.size == SECTION.size == 32
MAGIC, JSON_MAGIC = b"blpk", b"JSON\0\0\0\0"
VERSION = 3
OFFSETS, METADATA = 1, 2
CRC32, STORED, ZLIB = 2, 0, 1
# The metadata are deflated above this size: a bundle of thousands of columns repeats itself.
PLAIN_BYTES = 4096
MAX_METADATA_BYTES = 64 << 20
UNKNOWN = -1
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

    `nodes` has the path of each part's node: its ids from the root of its column down.
    """

    uuid: str
    number: int
    nodes: tuple[tuple[int, ...], ...]
    records: Records

    def encode(self, chunks: Sequence[bytes]) -> tuple[bytes, Records]:
        """Return the bytes before the first chunk, and the records with file and offset.

        `chunks` are the compressed chunks of all parts in their order, without digests.
        """
        records = self.records
        metadata = jsontext.dumps(self._metadata())
        packed = zlib.compress(metadata, 1) if len(metadata) > PLAIN_BYTES else metadata
        codec = STORED if packed is metadata else ZLIB
        decoded = [int.from_bytes(chunk[4:8], "little") for chunk in chunks]
        head = _header(records, decoded)
        section = _section(len(metadata), len(packed), codec)
        front = head + section + packed + crc32(packed).to_bytes(DIGEST_BYTES, "little")
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
        metadata, count, at = _decode_front(view)
        uuid = jsontext.text(metadata.get("uuid"), "a data file: uuid")
        number = jsontext.number(metadata.get("number"), "a data file: number")
        paths = metadata.get("nodes")
        if not isinstance(paths, list):
            raise CorruptError("a data file: nodes are a list")
        nodes = tuple(jsontext.numbers(path, "a data file: a node") for path in paths)
        arrays = [_array(metadata.get(name), name, *said) for name, said in SAID.items()]
        parts, streams, pages = arrays
        need(len(parts) == len(nodes), "parts of a data file")
        words = _integers(metadata.get("words"), WORD, "words")
        prefixes = _integers(metadata.get("prefixes"), BYTE, "prefixes")
        chunks, offsets = _chunks(view, count, at)
        bare = Records(len(parts), 1, parts, streams, np.zeros(0, CHUNK), pages, words, prefixes)
        need(bare.first_stream[-1] == len(streams), "streams of a data file")
        items = np.repeat(parts["rows"], parts["streams"]).astype(np.int64)
        counts = np.where(streams["kind"] == PER_ITEM, items, bare.stream_chunks)
        need((counts >= 0) & (counts <= count), "chunks of a data file")
        need(counts.sum() == count, "chunks of a data file")
        first = sums(counts)[bare.first_stream]
        ends = np.append(offsets, len(view))
        parts["file"], parts["offset"] = number, ends[first[:-1]]
        parts["cbytes"] = ends[first[1:]] - ends[first[:-1]]
        listed = np.repeat(streams["kind"] != PER_ITEM, counts)
        records = replace(bare, parts=parts, chunks=chunks[listed]).check()
        decoded = [int.from_bytes(view[at + 4 : at + 8], "little") for at in offsets.tolist()]
        if _header(records, decoded) != view[: HEADER.size]:
            raise CorruptError("the header of a data file does not belong to its chunks")
        return cls(uuid, number, nodes, records)


def _header(records: Records, decoded: list[int]) -> bytes:
    """Return the header of a file whose chunks have so many decompressed bytes."""
    return HEADER.pack(
        MAGIC,
        VERSION,
        METADATA | (OFFSETS if decoded else 0),
        CRC32,
        int(records.streams["typesize"][0]) if len(records.streams) else 1,
        max(decoded, default=UNKNOWN),
        decoded[-1] if decoded else UNKNOWN,
        len(decoded),
        0,
    )


def _section(size: int, stored: int, codec: int) -> bytes:
    """Return the header of metadata: the level is that of zlib, and nothing is reserved."""
    return SECTION.pack(JSON_MAGIC, 0, CRC32, codec, codec, size, stored, stored, b"")


def _decode_front(view: memoryview) -> tuple[dict[str, Json], int, int]:
    """Return the metadata, the number of chunks, and where their offsets begin."""
    if len(view) < HEADER.size + SECTION.size:
        raise CorruptError(f"a data file has {len(view)} bytes; its headers take 64")
    magic, version, options, checksum, _, _, _, count, _ = HEADER.unpack_from(view)
    if magic != MAGIC or version != VERSION:
        raise FormatError(f"a data file begins with {magic!r}, version {version}; expected 3")
    if options & METADATA == 0 or checksum != CRC32:
        raise FormatError("a file of Bloscpack without the records of a table")
    kind, _, digest, codec, _, size, room, stored, _ = SECTION.unpack_from(view, HEADER.size)
    if kind != JSON_MAGIC or digest != CRC32 or codec not in (STORED, ZLIB):
        raise FormatError(f"metadata of the kind {kind!r}, codec {codec}, checksum {digest}")
    start = HEADER.size + SECTION.size
    if view[HEADER.size : start] != _section(size, stored, codec):
        raise FormatError("the header of the metadata has values that no table has")
    end = start + room + DIGEST_BYTES
    if not stored == room <= MAX_METADATA_BYTES or size > MAX_METADATA_BYTES or end > len(view):
        raise CorruptError(f"metadata of {stored} bytes, {size} inflated, with room for {room}")
    packed = bytes(view[start : start + stored])
    if crc32(packed) != int.from_bytes(view[end - DIGEST_BYTES : end], "little"):
        raise CorruptError("the metadata of a data file do not match their checksum")
    text = packed
    if codec == ZLIB:
        inflater = zlib.decompressobj()
        try:
            text = inflater.decompress(packed, size)
        except zlib.error as error:
            raise CorruptError(f"the metadata of a data file: {error}") from None
        if not inflater.eof or inflater.unused_data:
            raise CorruptError("the metadata of a data file are no whole zlib stream")
    if len(text) != size:
        raise CorruptError(f"the metadata of a data file have {len(text)} bytes, not {size}")
    metadata = jsontext.loads(text, "the metadata of a data file")
    if not isinstance(metadata, dict):
        raise CorruptError("the metadata of a data file are an object")
    if not 0 <= count * OFFSET.itemsize <= len(view) - end:
        raise CorruptError(f"a data file of {len(view)} bytes claims {count} chunks")
    return metadata, count, end


def _chunks(view: memoryview, count: int, at: int) -> tuple[Array, Array]:
    """Return the record and the offset of each chunk, compared with its digest."""
    offsets = np.frombuffer(view, OFFSET, count, at)
    chunks = np.zeros(count, CHUNK)
    begin = at + count * OFFSET.itemsize
    for number, offset in enumerate(offsets.tolist()):
        if offset != begin:
            raise CorruptError(f"chunk {number} begins at {offset}; expected {begin}")
        size = ChunkHeader.decode(view[offset:]).ctbytes
        begin = offset + size + DIGEST_BYTES
        if size < CHUNK_HEADER.size or begin > len(view):
            raise CorruptError(f"chunk {number} of {size} bytes at {offset} is cut")
        crc = crc32(view[offset : offset + size])
        if crc != int.from_bytes(view[offset + size : begin], "little"):
            raise CorruptError(f"chunk {number} does not match its digest")
        chunks[number] = (size, crc)
    if begin != len(view):
        raise CorruptError(f"a data file ends at {len(view)}; its last chunk at {begin}")
    return chunks, offsets


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
