"""A part that takes the place of another: chunks that hold the same are copied, not compressed.

Knows nothing of rows or of what changed: bytes to be written are compared with bytes decoded.

Of a column that an update writes anew most chunks hold what they held. To read, check, decompress
and compare one costs a fraction of what compressing it costs, but for numbers in lz4, where it
costs the same. The old file is trusted in nothing: what is copied was seen to decode to what is to
be written, and what is damaged is made anew, for nothing in it is needed.
"""

from collections.abc import Callable, Iterator

import numpy as np

from blztable.engine.read.parts import OpenedPart, named
from blztable.engine.run.scratch import scratch
from blztable.engine.version.versions import DAMAGED
from blztable.errors import CorruptError
from blztable.format.checksum import Checksum
from blztable.format.chunk import (
    CODEC_SHIFT,
    MEMCPYED,
    WRITABLE_CODECS,
    ChunkHeader,
    Compression,
    decompress_into,
)
from blztable.format.metadata import BlockInfo

# A chunk and its digest, of the chunk's number in its part, its bytes and their typesize.
Make = Callable[[int, np.ndarray, int], tuple[bytes, bytes]]
# The part whose place the new one takes, by the position of its column and the number of its row
# group in this write; called by a worker.
Old = Callable[[int, int], OpenedPart | None]


def compressing(compression: Compression, checksum: Checksum) -> Make:
    """Compress every chunk."""

    def make(number: int, piece: np.ndarray, typesize: int) -> tuple[bytes, bytes]:
        chunk = compression.compress(piece, typesize)
        return chunk, checksum.digest(chunk)

    return make


def copying(old: OpenedPart, info: BlockInfo, compression: Compression, checksum: Checksum) -> Make:
    """Copy the chunks of `old` that hold the same, compress the others."""
    make = compressing(compression, checksum)
    if old.superchunk is None or old.checksum.id != checksum.id:
        return make
    counterparts = dict(_counterparts(old, info))
    codec = WRITABLE_CODECS[compression.codec]

    def copy_or_make(number: int, piece: np.ndarray, typesize: int) -> tuple[bytes, bytes]:
        there = counterparts.get(number)
        if there is not None:
            try:
                chunk, digest = _chunk(old, there)
                if _has_codec(chunk, codec) and _holds(chunk, piece, typesize):
                    return chunk, digest
            except DAMAGED:
                pass  # What it should hold is at hand.
        return make(number, piece, typesize)

    return copy_or_make


def opened(old: Old, position: int, group: int) -> OpenedPart | None:
    """The old part; None where there is none, or none that can be believed."""
    try:
        return old(position, group)
    except DAMAGED:
        return None


def _counterparts(old: OpenedPart, info: BlockInfo) -> Iterator[tuple[int, int]]:
    """The number of each new chunk, and of the old one in the same place of the same stream.

    Where an item of text grew, the chunks behind it begin elsewhere and may hold the same still.
    """
    first = 0
    for name, stream in named(info):
        place = old.streams.get(name)
        if place is not None and place.info.typesize == stream.typesize:
            for at, (size, before) in enumerate(
                zip(stream.chunks, place.info.chunks, strict=False)
            ):
                if size == before:
                    yield first + at, place.first_chunk + at
        first += len(stream.chunks)


def _chunk(old: OpenedPart, number: int) -> tuple[bytes, bytes]:
    """A chunk as it lies in the file, with its digest; CorruptError where they do not match."""
    size = old.checksum.size
    start, stop = old.offsets[number], old.offsets[number + 1] - size
    chunk = old.reader().read(start, stop - start)
    digest = old.digests[number * size : (number + 1) * size]
    if old.checksum.digest(chunk) != digest:
        raise CorruptError(f"{old.checksum.name} of chunk {number}")
    return chunk, digest


def _has_codec(chunk: bytes, codec: int) -> bool:
    """Whether it is compressed as this write compresses; what did not shrink has no codec."""
    flags = ChunkHeader.decode(chunk).flags
    return bool(flags & MEMCPYED) or flags >> CODEC_SHIFT == codec


def _holds(chunk: bytes, piece: np.ndarray, typesize: int) -> bool:
    """Whether these bytes are what the chunk decodes to."""
    found = np.frombuffer(scratch(piece.nbytes), np.uint8)
    decompress_into(chunk, typesize, found.ctypes.data, piece.nbytes)
    return np.array_equal(found, piece)
