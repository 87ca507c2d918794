"""One Blosc chunk: its 16-byte header, and every check that comes before decompression.

`blosc.decompress_ptr` is told no size: it writes as many bytes as the chunk's own header says.
So `decompress_into` compares the header with what the caller has room for, exactly, first.

Knows nothing of files: a chunk is bytes, a destination is an address with a length.
"""

import struct
from dataclasses import dataclass
from typing import Self

import blosc
import numpy as np

from blztable.errors import BlzError, CorruptError, FormatError
from blztable.format.checksum import Buffer

CHUNK_HEADER = struct.Struct("<BBBBIII")
assert CHUNK_HEADER.size == 16

# Below this, a compressed chunk is too short to overflow C-Blosc's match length (C-Blosc #405).
MAX_CHUNK_BYTES = 8 << 20
# What a chunk can give of its bytes. zstd gives most: its largest block, of 128 KiB, takes 4 bytes
# at least. 8 MiB of zeros are 472 bytes as Blosc makes them, 297 where its block is as large.
MAX_RATIO = 1 << 15

VERSION = 2
VERSION_LZ = 1
BYTE_SHUFFLE = 0x01
MEMCPYED = 0x02
BIT_SHUFFLE = 0x04
RESERVED = 0x08
CODEC_SHIFT = 5

# By the number in the header's flags. Snappy (2) is not in python-blosc.
CODEC_NAMES = {0: "blosclz", 1: "lz4", 3: "zlib", 4: "zstd"}
# What may be written; lz4hc has the format of lz4. blosclz is read, never written.
WRITABLE_CODECS = {"lz4": 1, "lz4hc": 1, "zlib": 3, "zstd": 4}
SHUFFLES = {"none": blosc.NOSHUFFLE, "byte": blosc.SHUFFLE, "bit": blosc.BITSHUFFLE}


@dataclass(frozen=True, slots=True)
class ChunkHeader:
    """The fields of a chunk header, in their order."""

    version: int
    version_lz: int
    flags: int
    typesize: int
    nbytes: int
    blocksize: int
    ctbytes: int

    def encode(self) -> bytes:
        """The 16 bytes of the header."""
        return CHUNK_HEADER.pack(
            self.version,
            self.version_lz,
            self.flags,
            self.typesize,
            self.nbytes,
            self.blocksize,
            self.ctbytes,
        )

    @classmethod
    def decode(cls, data: Buffer) -> Self:
        """Read the header; CorruptError where `data` is shorter than one."""
        if len(data) < CHUNK_HEADER.size:
            raise CorruptError(f"a chunk of {len(data)} bytes; its header alone has 16")
        return cls(*CHUNK_HEADER.unpack_from(data))

    @property
    def codec(self) -> str:
        """The codec's name, or its number where it has none here."""
        return CODEC_NAMES.get(self.flags >> CODEC_SHIFT, str(self.flags >> CODEC_SHIFT))


@dataclass(frozen=True, slots=True)
class Compression:
    """How chunks are compressed: what Blosc is asked for."""

    codec: str = "lz4"
    clevel: int = 5
    shuffle: str | None = None

    def compress(self, raw: np.ndarray, typesize: int) -> bytes:
        """One chunk of the bytes of `raw`, its header compared with what was asked for."""
        assert 0 < raw.nbytes <= MAX_CHUNK_BYTES, raw.nbytes
        shuffle = self.shuffle or ("byte" if typesize > 1 else "none")
        data: bytes = blosc.compress(raw, typesize, self.clevel, SHUFFLES[shuffle], self.codec)
        header = ChunkHeader.decode(data)
        found = (header.nbytes, header.typesize, header.ctbytes, header.flags >> CODEC_SHIFT)
        asked = (raw.nbytes, typesize, len(data), WRITABLE_CODECS[self.codec])
        # Other users of blosc share its settings with us, the environment can override them.
        # A chunk that did not shrink is stored and bears no codec.
        if found != asked and not (header.flags & MEMCPYED and found[:3] == asked[:3]):
            raise BlzError(f"blosc made a chunk {found}, asked for {asked}")
        return data


def decompress_into(chunk: Buffer, typesize: int, address: int, nbytes: int) -> None:
    """Decompress `chunk` to the `nbytes` bytes at `address`, after checking every word of it.

    Raises
    ------
    CorruptError
        The header contradicts itself, the length of `chunk`, or what is expected of it.
    FormatError
        A codec that is not supported.
    """
    assert 0 < nbytes <= MAX_CHUNK_BYTES, nbytes
    length = len(chunk)
    if length < CHUNK_HEADER.size:
        raise CorruptError(f"a chunk of {length} bytes; its header alone has 16")
    version, version_lz, flags, found_typesize, found_nbytes, blocksize, ctbytes = (
        CHUNK_HEADER.unpack_from(chunk)
    )
    if (
        version != VERSION
        or version_lz != VERSION_LZ
        or flags & RESERVED
        or found_typesize != typesize
        or found_nbytes != nbytes
        or ctbytes != length
        or not CHUNK_HEADER.size < ctbytes <= nbytes + CHUNK_HEADER.size
        or not 1 <= blocksize <= nbytes
        or (flags & BYTE_SHUFFLE and flags & BIT_SHUFFLE)
    ):
        header = ChunkHeader.decode(chunk)
        raise CorruptError(
            f"a chunk header that does not fit: {header}; "
            f"expected typesize {typesize}, nbytes {nbytes}, ctbytes {length}"
        )
    if flags & MEMCPYED:
        if ctbytes != nbytes + CHUNK_HEADER.size:
            raise CorruptError(f"a stored chunk of {ctbytes} bytes; expected {nbytes + 16}")
    else:
        if flags >> CODEC_SHIFT not in CODEC_NAMES:
            raise FormatError(f"a chunk compressed with codec {flags >> CODEC_SHIFT}")
        nblocks = -(-nbytes // blocksize)
        if CHUNK_HEADER.size + 4 * nblocks > ctbytes:
            raise CorruptError(f"a chunk of {ctbytes} bytes cannot hold {nblocks} blocks")
    try:
        # Not by the function of the same name above it: that one turns whatever a signal handler
        # raises while it looks at its arguments into a TypeError.
        written = blosc.blosc_extension.decompress_ptr(chunk, address)
    except (blosc.blosc_extension.error, ValueError, SystemError) as error:
        raise CorruptError(f"a chunk that does not decompress: {error}") from None
    if written != nbytes:
        raise CorruptError(f"a chunk gave {written} bytes; expected {nbytes}")
