"""The front of a file of Bloscpack: its header, and the section of its metadata.

    header 32 | header of the metadata 32 | metadata, room | digest | offsets | chunks ...

Data files of tables and arrays have this front. Version 1 has a header of 16 bytes, versions 1 and
2 have no metadata. Version 4 is that of the BLZ proposals: the metadata follow the header at once,
and the last field of the header is their size. Knows nothing of what the metadata mean.
"""

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from blztable.errors import CorruptError, FormatError
from blztable.format.checksums import CHECKSUMS, Buffer, Checksum

HEADER = struct.Struct("<4sBBBBiiqq")
FIRST_HEADER = struct.Struct("<4sB3xq")
SECTION = struct.Struct("<8sBBBBIII8x")
assert HEADER.size == SECTION.size == 32
assert FIRST_HEADER.size == 16

MAGIC = b"blpk"
# Where the byte of the version lies.
VERSION_AT = len(MAGIC)
FIRST, SECOND, BLOSCPACK, EXTENDED = 1, 2, 3, 4
# The version of an array that is being written: Bloscpack refuses it.
UNFINISHED = 255
UNKNOWN = -1

OFFSETS = 0x01
METADATA = 0x02
ITEM_ENDS = 0x04
# The option bits that each version has.
_OPTIONS = {
    SECOND: OFFSETS,
    BLOSCPACK: OFFSETS | METADATA,
    EXTENDED: OFFSETS | METADATA | ITEM_ENDS,
    UNFINISHED: OFFSETS | METADATA | ITEM_ENDS,
}

# An array has at most so many chunks: its front is read as a whole, with 8 bytes an offset.
MAX_CHUNKS = 1 << 21
MAX_METADATA_BYTES = 64 << 20

JSON_MAGIC = b"JSON\0\0\0\0"
# Codecs of metadata.
STORED, ZLIB = 0, 1

Read = Callable[[int, int], Buffer]


@dataclass(frozen=True, slots=True)
class Header:
    """The fields of the header, in the order of the file, without the magic."""

    version: int
    options: int
    checksum: int
    typesize: int
    chunk_size: int
    last_chunk: int
    nchunks: int
    # The offsets kept free (3) or the bytes of the metadata (4).
    tail: int

    def encode(self) -> bytes:
        """Return the 32 bytes of the header."""
        fields = (self.version, self.options, self.checksum, self.typesize)
        return HEADER.pack(
            MAGIC, *fields, self.chunk_size, self.last_chunk, self.nchunks, self.tail
        )

    @classmethod
    def decode(cls, data: Buffer) -> Self:
        """Read and check the header of a file that begins with `data`."""
        begin = bytes(data[:VERSION_AT])
        if begin != MAGIC:
            raise FormatError(f"the file begins with {begin!r}; expected {MAGIC!r}")
        if len(data) < FIRST_HEADER.size:
            raise CorruptError(f"the file has {len(data)} bytes; the shortest header takes 16")
        version = data[VERSION_AT]
        if version == FIRST:
            return cls._first(data)
        if version not in _OPTIONS:
            raise FormatError(f"the file has version {version}; expected 1 to 4")
        if len(data) < HEADER.size:
            raise CorruptError(f"the file has {len(data)} bytes; its header alone takes 32")
        _, *fields = HEADER.unpack_from(data)
        header = cls(*fields)
        if header.options & ~_OPTIONS[version]:
            raise FormatError(f"a file of version {version} has options {header.options:#x}")
        if header.checksum >= len(CHECKSUMS):
            raise CorruptError(f"checksum {header.checksum}; expected one below {len(CHECKSUMS)}")
        if min(header.chunk_size, header.last_chunk, header.nchunks) < UNKNOWN:
            raise CorruptError(f"the header has a negative number: {header}")
        if version == SECOND:
            return replace(header, tail=0)
        if header.tail < 0 or (version == EXTENDED and header.tail > MAX_METADATA_BYTES):
            raise CorruptError(f"the last field of the header is {header.tail}")
        return header

    @classmethod
    def _first(cls, data: Buffer) -> Self:
        _, version, nchunks = FIRST_HEADER.unpack_from(data)
        if any(data[5:8]) or nchunks < UNKNOWN:
            raise CorruptError(f"a header of version 1 with {nchunks} chunks, or with options")
        return cls(version, 0, 0, 0, UNKNOWN, UNKNOWN, nchunks, 0)

    @property
    def length(self) -> int:
        """Return the number of bytes of the header."""
        return FIRST_HEADER.size if self.version == FIRST else HEADER.size


@dataclass(frozen=True, slots=True)
class Section:
    """The header of the metadata: its fields in the order of the file, without the magic.

    `room` bytes follow, of which the first `stored` are the metadata, and the digest of these.
    """

    options: int
    checksum: int
    codec: int
    level: int
    size: int
    room: int
    stored: int

    def encode(self) -> bytes:
        """Return the 32 bytes of the header of the metadata."""
        fields = (self.options, self.checksum, self.codec, self.level)
        return SECTION.pack(JSON_MAGIC, *fields, self.size, self.room, self.stored)

    @classmethod
    def decode(cls, data: Buffer) -> Self:
        """Read and check the header of metadata."""
        if len(data) < SECTION.size:
            raise CorruptError("the file ends within its metadata")
        magic, *fields = SECTION.unpack(data)
        section = cls(*fields)
        number, codec = section.checksum, section.codec
        if magic != JSON_MAGIC or codec not in (STORED, ZLIB) or number >= len(CHECKSUMS):
            raise FormatError(f"metadata of the kind {magic!r}, codec {codec}, checksum {number}")
        if section.stored > section.room or max(section.size, section.room) > MAX_METADATA_BYTES:
            raise CorruptError(
                f"metadata of {section.stored} bytes, {section.size} inflated, with room for "
                f"{section.room}; at most {MAX_METADATA_BYTES} bytes are read"
            )
        return section

    @property
    def length(self) -> int:
        """Return the bytes of the header, the metadata with their room, and their digest."""
        return SECTION.size + self.room + CHECKSUMS[self.checksum].size


def encode_section(text: bytes, checksum: Checksum, room: int = 0, level: int = 0) -> bytes:
    """Return the section of metadata: deflated if there is a level, with room if that is larger."""
    packed = zlib.compress(text, level) if level else text
    room = max(room, len(packed))
    codec = ZLIB if level else STORED
    section = Section(0, checksum.id, codec, level, len(text), room, len(packed))
    return section.encode() + packed.ljust(room, b"\0") + checksum.digest(packed)


def section_length(room: int, checksum: Checksum) -> int:
    """Return the bytes of a section with that room."""
    return SECTION.size + room + checksum.size


def decode_section(read: Read, at: int) -> tuple[bytes, Section]:
    """Return the metadata of the section at a position, inflated, and their header."""
    section = Section.decode(read(at, SECTION.size))
    checksum = CHECKSUMS[section.checksum]
    body = bytes(read(at + SECTION.size, section.length - SECTION.size))
    packed, digest = body[: section.stored], body[section.room :]
    if len(body) < section.room + checksum.size or checksum.digest(packed) != digest:
        raise CorruptError("the metadata do not match their checksum")
    if section.codec == STORED and section.size != section.stored:
        raise CorruptError(f"metadata of {section.stored} bytes; the header says {section.size}")
    text = inflated(packed, section.size, "metadata") if section.codec == ZLIB else packed
    return text, section


def inflated(packed: bytes, size: int, what: str) -> bytes:
    """Return the content of a whole zlib stream; CorruptError unless it has `size` bytes."""
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(packed, size + 1)
    except zlib.error as error:
        raise CorruptError(f"{what}: cannot be inflated: {error}") from None
    if len(content) != size:
        raise CorruptError(f"{what}: {len(content)} bytes; expected {size}")
    if not inflater.eof or inflater.unused_data:
        raise CorruptError(f"{what}: not one whole zlib stream")
    return content
