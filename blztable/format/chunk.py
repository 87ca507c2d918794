"""One Blosc chunk: its 16-byte header, and every check before decompression.

`blosc.decompress_ptr` takes no size: it writes as many bytes as the header of the chunk says.
So `decompress_into` first compares the header with the size of the destination.

Knows nothing of files: a chunk is bytes, a destination is an address with a length.
"""

import struct
from dataclasses import astuple, dataclass
from itertools import pairwise
from typing import Self

import blosc
import numpy as np
from isal.isal_zlib import crc32

from blztable.errors import BlzError, CorruptError, FormatError
from blztable.format.checksums import Buffer

decompress_ptr = blosc.blosc_extension.decompress_ptr
CHUNK_HEADER = struct.Struct("<BBBBIII")
# The header of a chunk of one block, with the offset of this block.
ONE_BLOCK = struct.Struct("<BBBBIIIi")
assert CHUNK_HEADER.size == 16

# A compressed chunk of this size is too short to overflow C-Blosc's match length (C-Blosc #405).
MAX_CHUNK_BYTES = 8 << 20
# Items, arrays and files of other programs may have larger chunks. Only blosclz can overflow.
LARGE_CHUNK_BYTES = 256 << 20
BLOSCLZ = 0
SNAPPY = 2
# Largest compression ratio. zstd has the largest: a block of 128 KiB takes at least 4 bytes.
# 8 MiB of zeros take 472 bytes as Blosc writes them, 297 bytes with a Blosc block of that size.
MAX_RATIO = 1 << 15

VERSION = 2
VERSION_LZ = 1
BYTE_SHUFFLE = 0x01
MEMCPYED = 0x02
BIT_SHUFFLE = 0x04
RESERVED = 0x08
UNSPLIT = 0x10
CODEC_SHIFT = 5

# The whole chunk is decompressed if more than this share of its blocks is needed.
MANY_BLOCKS = 0.6

# By their number in the flags of the header. python-blosc has no Snappy (2).
CODEC_NAMES = {0: "blosclz", 1: "lz4", 3: "zlib", 4: "zstd"}
# Codecs for writing. lz4hc has the format of lz4; blosclz is read but never written.
WRITABLE_CODECS = {"lz4": 1, "lz4hc": 1, "zlib": 3, "zstd": 4}
UNSHUFFLED, BYTE, BIT = "none", "byte", "bit"
SHUFFLES = {UNSHUFFLED: blosc.NOSHUFFLE, BYTE: blosc.SHUFFLE, BIT: blosc.BITSHUFFLE}


@dataclass(frozen=True, slots=True)
class ChunkHeader:
    """The fields of a chunk header, in the order of the file."""

    version: int
    version_lz: int
    flags: int
    typesize: int
    nbytes: int
    blocksize: int
    ctbytes: int

    def encode(self) -> bytes:
        """Return the 16 bytes of the header."""
        return CHUNK_HEADER.pack(*astuple(self))

    @classmethod
    def decode(cls, data: Buffer) -> Self:
        """Read the header; CorruptError if `data` is too short."""
        if len(data) < CHUNK_HEADER.size:
            raise CorruptError(f"a chunk has {len(data)} bytes; its header alone takes 16")
        return cls(*CHUNK_HEADER.unpack_from(data))


# The chunk of no bytes, as Blosc writes it. Only an item has one, and nobody decompresses it.
EMPTY_CHUNK = ChunkHeader(VERSION, VERSION_LZ, 0x13, 1, 0, 1, CHUNK_HEADER.size).encode()


@dataclass(frozen=True, slots=True)
class Compression:
    """The parameters that Blosc compresses chunks with."""

    codec: str = "lz4"
    clevel: int = 5
    shuffle: str | None = None

    def compress(self, raw: np.ndarray, typesize: int, most: int = MAX_CHUNK_BYTES) -> bytes:
        """Compress `raw` to one chunk, and check that its header has the requested parameters."""
        assert 0 < raw.nbytes <= most, raw.nbytes
        shuffle = self.shuffle or BYTE
        # Blosc does not shuffle the bits of a block whose number of items is no multiple of 8, and
        # a chunk is often one block.
        if shuffle == BIT and raw.nbytes % (8 * typesize):
            shuffle = BYTE
        if shuffle == BYTE and typesize == 1:
            shuffle = UNSHUFFLED
        # `blosc.compress` parses the version of the library at each call.
        data: bytes = blosc.blosc_extension.compress(
            raw, typesize, self.clevel, SHUFFLES[shuffle], self.codec
        )
        _, _, flags, *actual = CHUNK_HEADER.unpack_from(data)
        # Other users of blosc share its settings, and environment variables can override them.
        # A chunk that did not shrink is stored uncompressed and has no codec.
        has_codec = flags & MEMCPYED or flags >> CODEC_SHIFT == WRITABLE_CODECS[self.codec]
        if not has_codec or actual[:2] != [typesize, raw.nbytes] or actual[3] != len(data):
            raise BlzError(
                f"blosc made a chunk with {ChunkHeader.decode(data)}; asked for {self}, "
                f"{raw.nbytes} bytes, typesize {typesize}"
            )
        return data


def decompress_into(
    chunk: Buffer,
    typesize: int,
    address: int,
    nbytes: int,
    most: int = MAX_CHUNK_BYTES,
    crc: int | None = None,
    ranges: tuple[np.ndarray, np.ndarray, int] | None = None,
) -> None:
    """Decompress `chunk` to the `nbytes` bytes at `address`, after checking its whole header.

    This is one function, and not one for each check, because a read calls it for every chunk.

    Parameters
    ----------
    chunk
        The chunk.
    typesize, nbytes
        The expected typesize and decompressed bytes.
    address
        Where there is room for `nbytes` bytes.
    most
        The limit of `nbytes`.
    crc
        The expected crc32 of the chunk; None if it was compared before.
    ranges
        Where the ranges of bytes that are needed begin and end, and where the decompressed chunk
        begins; None if all bytes are needed. Each range has bytes in the chunk. Other bytes are
        left as they are, or overwritten: a Blosc block that has no needed byte is not decompressed.

    Raises
    ------
    CorruptError
        The header contradicts itself, the length of `chunk`, or the expected sizes; the offsets of
        the blocks are invalid, or the crc32 is another one.
    FormatError
        The codec is not supported.
    """
    assert 0 < nbytes <= most, nbytes
    if crc is not None and crc32(chunk) != crc:
        raise CorruptError(f"crc32 is {crc32(chunk):08x}, expected {crc:08x}")
    length = len(chunk)
    if length < CHUNK_HEADER.size:
        raise CorruptError(f"a chunk has {length} bytes; its header alone takes 16")
    version, version_lz, flags, stored_typesize, stored_nbytes, blocksize, ctbytes = (
        CHUNK_HEADER.unpack_from(chunk)
    )
    if (
        version != VERSION
        or version_lz != VERSION_LZ
        or flags & RESERVED
        or not 0 < stored_typesize == typesize
        or stored_nbytes != nbytes
        or ctbytes != length
        or not CHUNK_HEADER.size < ctbytes <= nbytes + CHUNK_HEADER.size
        or not 1 <= blocksize <= nbytes
        or (flags & BYTE_SHUFFLE and flags & BIT_SHUFFLE)
    ):
        header = ChunkHeader.decode(chunk)
        raise CorruptError(
            f"a chunk header does not match: {header}; "
            f"expected typesize {typesize}, nbytes {nbytes}, ctbytes {length}"
        )
    blocks = [(chunk, 0, nbytes)]
    if flags & MEMCPYED:
        if ctbytes != nbytes + CHUNK_HEADER.size:
            raise CorruptError(
                f"an uncompressed chunk has {ctbytes} bytes; expected {nbytes + CHUNK_HEADER.size}"
            )
    else:
        if flags >> CODEC_SHIFT not in CODEC_NAMES:
            codec = flags >> CODEC_SHIFT
            name = " (Snappy, which python-blosc lacks)" if codec == SNAPPY else ""
            raise FormatError(
                f"a chunk is compressed with codec {codec}{name}; "
                f"supported are {sorted(CODEC_NAMES)}"
            )
        if flags >> CODEC_SHIFT == BLOSCLZ and length > MAX_CHUNK_BYTES + CHUNK_HEADER.size:
            raise FormatError(
                f"a chunk of {length} bytes is compressed with blosclz, which is not safe for more "
                f"than {MAX_CHUNK_BYTES}"
            )
        nblocks = -(-nbytes // blocksize)
        if CHUNK_HEADER.size + 4 * nblocks > ctbytes:
            raise CorruptError(f"a chunk of {ctbytes} bytes cannot hold {nblocks} blocks")
        if ranges is not None and nblocks > 1:
            blocks = _blocks_of(*ranges, chunk, flags, typesize, nbytes, blocksize) or blocks
    for block, place, room in blocks:
        try:
            # blosc.decompress_ptr would turn an exception of a signal handler into a TypeError.
            written = decompress_ptr(block, address + place)
        except (blosc.blosc_extension.error, ValueError, SystemError) as error:
            raise CorruptError(f"a chunk does not decompress: {error}") from None
        if written != room:
            raise CorruptError(f"a chunk decompressed to {written} bytes; expected {room}")


def _blocks_of(
    starts: np.ndarray,
    stops: np.ndarray,
    low: int,
    chunk: Buffer,
    flags: int,
    typesize: int,
    nbytes: int,
    size: int,
) -> list[tuple[Buffer, int, int]]:
    """Return the Blosc blocks that have bytes of some ranges, each as a chunk with one block.

    With each, where it is decompressed to and its bytes. Return none of them if the whole chunk is
    to be decompressed, because most of its blocks are needed.
    """
    count = -(-nbytes // size)
    if len(starts) == 1:
        first, last = max(int(starts[0]) - low, 0), min(int(stops[0]) - low, nbytes)
        needed = list(range(first // size, (last - 1) // size + 1))
    else:
        # Methods of arrays: functions of numpy make calls of Python.
        firsts, lasts = (starts - low) // size, (stops - low - 1) // size
        if len(firsts) and (firsts[0] < 0 or lasts[-1] >= count):
            # Other chunks have bytes of the same ranges.
            firsts, lasts = np.maximum(firsts, 0), np.minimum(lasts, count - 1)
        is_needed = np.zeros(count + 1, np.bool_)
        is_needed[firsts[firsts == lasts]] = True
        for wide in (firsts < lasts).nonzero()[0].tolist():
            is_needed[firsts[wide] : lasts[wide] + 1] = True
        needed = is_needed.nonzero()[0].tolist()
    # A last block that Blosc does not shuffle as the others is left to Blosc.
    is_odd = bool(nbytes % (8 * typesize)) and count - 1 in needed
    if len(needed) > MANY_BLOCKS * count or is_odd:
        return []
    # Python's lists: a chunk has few blocks.
    offsets = np.frombuffer(chunk, "<i4", count, CHUNK_HEADER.size).tolist()
    # Blocks lie one after another, in any order: threads may have written them.
    ordered = [*sorted(offsets), len(chunk)]
    if ordered[0] < CHUNK_HEADER.size + 4 * count or ordered[-1] <= ordered[-2]:
        raise CorruptError(f"a block lies outside of its chunk of {len(chunk)} bytes")
    ends = dict(pairwise(ordered))
    data = memoryview(chunk)
    found: list[tuple[Buffer, int, int]] = []
    for block in needed:
        start = offsets[block]
        stop = ends[start]
        room = min(size, nbytes - block * size)
        # Blosc never splits a shorter last block into streams; elsewhere a flag says so.
        form = flags | (UNSPLIT if room < size else 0)
        length = ONE_BLOCK.size + stop - start
        head = ONE_BLOCK.pack(
            VERSION, VERSION_LZ, form, typesize, room, room, length, ONE_BLOCK.size
        )
        found.append((head + data[start:stop], block * size, room))
    return found


def address_of(array: np.ndarray) -> int:
    """Return where the bytes of an array begin; `ctypes` would make three calls of Python."""
    return array.__array_interface__["data"][0]


HEADERS = np.dtype(
    [
        ("version", "u1"),
        ("version_lz", "u1"),
        ("flags", "u1"),
        ("typesize", "u1"),
        ("nbytes", "<u4"),
        ("blocksize", "<u4"),
        ("ctbytes", "<u4"),
    ]
)
assert HEADERS.itemsize == CHUNK_HEADER.size
_KNOWN_CODECS = np.isin(np.arange(8), list(CODEC_NAMES))


def are_sound(
    data: Buffer, starts: np.ndarray, sizes: np.ndarray, nbytes: int, typesize: int | None
) -> np.ndarray:
    """Return for each of many chunks within `data` whether `decompress_into` takes its header.

    All have the same decompressed bytes and, unless it is None, the same typesize.
    """
    raw = np.frombuffer(data, np.uint8)
    places = starts[:, np.newaxis] + np.arange(CHUNK_HEADER.size)
    header = raw[places].view(HEADERS)[:, 0]
    flags, blocksize = header["flags"], header["blocksize"].astype(np.int64)
    sound = (header["version"] == VERSION) & (header["version_lz"] == VERSION_LZ)
    sound &= (flags & RESERVED == 0) & (header["typesize"] > 0)
    if typesize is not None:
        sound &= header["typesize"] == typesize
    sound &= (header["nbytes"] == nbytes) & (header["ctbytes"] == sizes)
    sound &= (sizes > CHUNK_HEADER.size) & (sizes <= nbytes + CHUNK_HEADER.size)
    sound &= (blocksize >= 1) & (blocksize <= nbytes)
    both = BYTE_SHUFFLE | BIT_SHUFFLE
    sound &= flags & both != both
    blocks = -(-nbytes // np.maximum(blocksize, 1))
    packed = _KNOWN_CODECS[flags >> CODEC_SHIFT] & (CHUNK_HEADER.size + 4 * blocks <= sizes)
    is_stored = flags & MEMCPYED != 0
    return sound & np.where(is_stored, sizes == nbytes + CHUNK_HEADER.size, packed)
