"""The header of a superchunk of the old format of tables: goes with the rooms that read it."""

import struct
from dataclasses import dataclass
from operator import attrgetter
from typing import Self

from blztable.arrays.files.trailer import *  # noqa: F403
from blztable.arrays.files.trailer import Layer, Trailer  # noqa: F401
from blztable.errors import CorruptError, FormatError
from blztable.format.bloscpack import (  # noqa: F401
    BLOSCPACK,
    EXTENDED,
    ITEM_ENDS,
    MAGIC,
    MAX_CHUNKS,
    MAX_METADATA_BYTES,
    METADATA,
    OFFSETS,
    UNKNOWN,
)
from blztable.format.checksums import (  # noqa: F401
    BY_NAME,
    CHECKSUMS,
    Buffer,
    Checksum,
    crc32,
)
from blztable.format.metalayers import MAX_LAYERS, MAX_NAME_BYTES  # noqa: F401

FILE_HEADER = struct.Struct("<4sBBBBiiqII")


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
