"""The 32-byte header at the start of a superchunk.

Version 3 is Bloscpack's header with offsets and without metadata. Version 4 is the header of the
BLZ proposals: its last eight bytes are the size of the metadata and a reserved word.
Knows nothing of what follows the header.
"""

import struct
from dataclasses import dataclass
from operator import attrgetter
from typing import Self

from blztable.errors import CorruptError, FormatError
from blztable.format.checksum import CHECKSUMS, Buffer

FILE_HEADER = struct.Struct("<4sBBBBiiqII")
assert FILE_HEADER.size == 32

MAGIC = b"blpk"
BLOSCPACK = 3
EXTENDED = 4

OFFSETS = 0x01
METADATA = 0x02
ITEM_ENDS = 0x04

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
