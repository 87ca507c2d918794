"""A part that replaces another: chunks with equal contents are copied, not compressed again.

When an update rewrites a column, most chunks keep their contents. To read, check, decompress and
compare a chunk costs a fraction of compressing it; only for numbers in lz4 it costs the same. The
old file is not trusted: a chunk is copied only if it decodes to the bytes to be written, and a
damaged chunk is compressed anew.

Knows nothing of rows or of what changed: bytes to be written are compared with decoded bytes.
"""

from collections.abc import Callable, Iterator

import numpy as np

from blztable.engine.read.parts import Part
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

# Makes a chunk and its digest, from the chunk's index in its part, its bytes and their typesize.
Make = Callable[[int, np.ndarray, int], tuple[bytes, bytes]]
# Returns the part that a new part replaces, given the indices of its column and of its row group in
# this write; called in any thread.
Old = Callable[[int, int], Part | None]


def compressing(compression: Compression, checksum: Checksum) -> Make:
    """Compress every chunk."""

    def make(number: int, piece: np.ndarray, typesize: int) -> tuple[bytes, bytes]:
        chunk = compression.compress(piece, typesize)
        return chunk, checksum.digest(chunk)

    return make


def copying(old: Part, info: BlockInfo, compression: Compression, checksum: Checksum) -> Make:
    """Copy the chunks of `old` with equal contents, compress the others."""
    make = compressing(compression, checksum)
    if old.superchunk is None or old.checksum.id != checksum.id:
        return make
    counterparts = dict(_counterparts(old, info))
    codec = WRITABLE_CODECS[compression.codec]

    def copy_or_make(number: int, piece: np.ndarray, typesize: int) -> tuple[bytes, bytes]:
        counterpart = counterparts.get(number)
        if counterpart is not None:
            try:
                chunk, digest = _chunk(old, counterpart)
                if _has_codec(chunk, codec) and _holds(chunk, piece, typesize):
                    return chunk, digest
            except DAMAGED:
                pass  # Its contents are at hand.
        return make(number, piece, typesize)

    return copy_or_make


def opened(old: Old, position: int, group: int) -> Part | None:
    """Return the old part; None if there is none, or if it is damaged."""
    try:
        return old(position, group)
    except DAMAGED:
        return None


def _counterparts(old: Part, info: BlockInfo) -> Iterator[tuple[int, int]]:
    """Yield the index of each new chunk, and of the old chunk with the same index in its stream.

    Where an item of text grew, the chunks behind it begin elsewhere; some may still be equal.
    """
    first, places = 0, old.streams
    for name, stream in info.walk():
        place = places.get(name)
        if place is not None and place.info.typesize == stream.typesize:
            for at, (size, before) in enumerate(
                zip(stream.chunks, place.info.chunks, strict=False)
            ):
                if size == before:
                    yield first + at, place.first_chunk + at
        first += len(stream.chunks)


def _chunk(old: Part, number: int) -> tuple[bytes, bytes]:
    """Return a chunk as it lies in the file, and its digest; raise CorruptError if they differ."""
    size = old.checksum.size
    start, stop = old.offsets[number], old.offsets[number + 1] - size
    chunk = old.read(start, stop)
    digest = old.digests[number * size : (number + 1) * size]
    if old.checksum.digest(chunk) != digest:
        raise CorruptError(f"{old.checksum.name} of chunk {number}")
    return chunk, digest


def _has_codec(chunk: bytes, codec: int) -> bool:
    """True if the chunk has this codec; a chunk that did not shrink has none and counts too."""
    flags = ChunkHeader.decode(chunk).flags
    return bool(flags & MEMCPYED) or flags >> CODEC_SHIFT == codec


def _holds(chunk: bytes, piece: np.ndarray, typesize: int) -> bool:
    """True if the chunk decodes to these bytes."""
    found = np.frombuffer(scratch(piece.nbytes), np.uint8)
    decompress_into(chunk, typesize, found.ctypes.data, piece.nbytes)
    return np.array_equal(found, piece)
