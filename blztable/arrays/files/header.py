"""The 32 bytes at the start of an array's file: Bloscpack 1, 2 and 3, and the proposals' 4.

Version 1 has 16 bytes. Versions 2 and 3 differ in the last 8 bytes: reserved, or the number of
offsets kept free. In version 4 they are the size of the metadata. Knows nothing of what follows.
"""

import struct
from dataclasses import astuple, dataclass, replace
from typing import Self

from blztable.errors import CorruptError, FormatError
from blztable.format.checksum import CHECKSUMS, Buffer
from blztable.format.header import ITEM_ENDS, MAGIC, MAX_METADATA_BYTES, METADATA, OFFSETS

ARRAY_HEADER = struct.Struct("<4sBBBBiiqq")
FIRST_HEADER = struct.Struct("<4sB3xq")
assert ARRAY_HEADER.size == 32
assert FIRST_HEADER.size == 16

# Where the byte of the version lies.
VERSION_AT = len(MAGIC)
FIRST, SECOND, BLOSCPACK, EXTENDED = 1, 2, 3, 4
# The version of a file that is being written: Bloscpack refuses it.
UNFINISHED = 255
UNKNOWN = -1
# The option bits that each version has.
_OPTIONS = {
    SECOND: OFFSETS,
    BLOSCPACK: OFFSETS | METADATA,
    EXTENDED: OFFSETS | METADATA | ITEM_ENDS,
    UNFINISHED: OFFSETS | METADATA | ITEM_ENDS,
}


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
