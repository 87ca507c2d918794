"""The header at the start of a file: 32 bytes, of a part of a table or of an array.

Version 3 is Bloscpack's header, version 4 that of the BLZ proposals. They differ in the last eight
bytes: the offsets kept free, or the size of the metadata. A table takes two forms (`FileHeader`):
version 3 with offsets and without metadata, and version 4, where a reserved word follows the size.
An array may have any form of Bloscpack 1, 2 and 3 too (`ArrayHeader`); version 1 has 16 bytes, and
version 2 reserves the last 8. Knows nothing of what follows the header.
"""

import struct
from dataclasses import astuple, dataclass, replace
from operator import attrgetter
from typing import Self

from blztable.errors import CorruptError, FormatError
from blztable.format.checksum import CHECKSUMS, Buffer

FILE_HEADER = struct.Struct("<4sBBBBiiqII")
ARRAY_HEADER = struct.Struct("<4sBBBBiiqq")
FIRST_HEADER = struct.Struct("<4sB3xq")
assert FILE_HEADER.size == ARRAY_HEADER.size == 32
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
# The option bits that each version of an array has.
_OPTIONS = {
    SECOND: OFFSETS,
    BLOSCPACK: OFFSETS | METADATA,
    EXTENDED: OFFSETS | METADATA | ITEM_ENDS,
    UNFINISHED: OFFSETS | METADATA | ITEM_ENDS,
}

# A front is read as a whole, with 8 bytes per offset. No real part comes near this limit.
MAX_CHUNKS = 1 << 21
MAX_METADATA_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class FileHeader:
    """The fields of the header, in the order of the file, without magic and reserved word."""

    version: int
    options: int
    checksum: int
    typesize: int
    chunk_size: int
    last_chunk: int
    nchunks: int
    meta_size: int

    def encode(self) -> bytes:
        """Return the 32 bytes of the header."""
        return FILE_HEADER.pack(MAGIC, *_FIELDS(self), 0)

    @classmethod
    def decode(cls, data: Buffer) -> Self:
        """Read and check the header of a superchunk of a table."""
        if len(data) < FILE_HEADER.size:
            raise CorruptError(f"a superchunk has {len(data)} bytes; its header alone takes 32")
        magic, *fields, reserved = FILE_HEADER.unpack_from(data)
        header = cls(*fields)
        if magic != MAGIC:
            raise CorruptError(f"a superchunk begins with {magic!r}; expected {MAGIC!r}")
        if header.version not in (BLOSCPACK, EXTENDED):
            raise FormatError(f"a superchunk of version {header.version}; expected 3 or 4")
        expected = OFFSETS if header.version == BLOSCPACK else OFFSETS | METADATA
        if header.options & ~ITEM_ENDS != expected or (
            header.options & ITEM_ENDS and header.version == BLOSCPACK
        ):
            raise FormatError(
                f"a superchunk of version {header.version} has options {header.options:#x}; "
                f"expected {expected:#x}"
            )
        if reserved or bool(header.meta_size) != (header.version == EXTENDED):
            raise CorruptError(
                f"metadata of {header.meta_size} bytes and the reserved word {reserved}; "
                "only version 4 has metadata, and the word is 0"
            )
        if header.meta_size > MAX_METADATA_BYTES:
            raise CorruptError(
                f"metadata of {header.meta_size} bytes; at most {MAX_METADATA_BYTES} are read"
            )
        if header.checksum >= len(CHECKSUMS) or header.typesize < 1:
            raise CorruptError(
                f"checksum {header.checksum} and typesize {header.typesize}; "
                f"expected a checksum below {len(CHECKSUMS)} and a typesize from 1"
            )
        if not 0 <= header.nchunks <= MAX_CHUNKS:
            raise CorruptError(
                f"a superchunk has {header.nchunks} chunks; expected 0 to {MAX_CHUNKS}"
            )
        return header

    @property
    def front_length(self) -> int:
        """Number of bytes before the first chunk: header, metadata and offsets."""
        return FILE_HEADER.size + self.meta_size + 8 * self.nchunks


_FIELDS = attrgetter(*FileHeader.__slots__)


@dataclass(frozen=True, slots=True)
class ArrayHeader:
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
        return ARRAY_HEADER.pack(MAGIC, *astuple(self))

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
        if len(data) < ARRAY_HEADER.size:
            raise CorruptError(f"the file has {len(data)} bytes; its header alone takes 32")
        _, *fields = ARRAY_HEADER.unpack_from(data)
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
        return FIRST_HEADER.size if self.version == FIRST else ARRAY_HEADER.size
