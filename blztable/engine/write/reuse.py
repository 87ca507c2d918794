"""A part that replaces another: chunks with equal contents are copied, not compressed again.

When an update rewrites a column, most chunks keep their contents. Reading, checking, decompressing
and comparing a chunk costs a fraction of compressing it; only for numbers in lz4 it costs the same.
The old file is not trusted: a chunk is copied only if it decodes to the bytes to be written. A
damaged chunk is compressed again.

Knows nothing of rows or of what changed: bytes to be written are compared with decoded bytes.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from blztable.engine.read.parts import Part, chunk_at
from blztable.engine.run.pool import scratch
from blztable.engine.version.versions import DAMAGED
from blztable.format.chunk import (
    CODEC_SHIFT,
    EMPTY_CHUNK,
    LARGE_CHUNK_BYTES,
    MEMCPYED,
    WRITABLE_CODECS,
    ChunkHeader,
    Compression,
    decompress_into,
)
from blztable.format.header import Checksum
from blztable.format.metadata import BlockInfo


class ChunkInput(NamedTuple):
    """The bytes of a chunk before compression, and how to compress them."""

    data: np.ndarray
    typesize: int
    compression: Compression


# Returns a chunk and its digest, given the chunk's index in its part.
Make = Callable[[int, ChunkInput], tuple[bytes, bytes]]
# Returns the part that a new part replaces, given the indices of the column and the row group in
# this write. It may be called from any thread.
Old = Callable[[int, int], Part | None]


def compressing(checksum: Checksum) -> Make:
    """Return a function that compresses every chunk."""

    def make(index: int, piece: ChunkInput) -> tuple[bytes, bytes]:
        chunk = EMPTY_CHUNK
        if piece.data.nbytes:
            chunk = piece.compression.compress(piece.data, piece.typesize, LARGE_CHUNK_BYTES)
        return chunk, checksum.digest(chunk)

    return make


def copying(old: Part, info: BlockInfo, checksum: Checksum) -> Make:
    """Return a function that copies chunks of `old` with equal contents, compresses the others."""
    make, superchunk, reader = compressing(checksum), old.superchunk, old.reader
    if superchunk is None or reader is None or old.checksum.id != checksum.id:
        return make
    counterparts = dict(_counterparts(old, info))

    def copy_or_make(index: int, piece: ChunkInput) -> tuple[bytes, bytes]:
        counterpart = counterparts.get(index)
        if counterpart is not None and piece.data.nbytes:
            try:
                chunk = chunk_at(superchunk, reader, counterpart)
                if _has_codec(chunk, piece.compression.codec) and _holds(chunk, piece):
                    return chunk, checksum.digest(chunk)
            except DAMAGED:
                pass  # The chunk is damaged: compress its contents instead.
        return make(index, piece)

    return copy_or_make


def opened(old: Old, index: int, group: int) -> Part | None:
    """Return the old part; None if none exists, or if it is damaged."""
    try:
        return old(index, group)
    except DAMAGED:
        return None


def _counterparts(old: Part, info: BlockInfo) -> Iterator[tuple[int, int]]:
    """Yield (new index, old index) of chunks that have the same index and size in their stream.

    If an item of text grew, the chunks behind it begin at other rows, and few of them are equal.
    """
    first, specs = 0, old.streams
    for name, stream in info.walk():
        spec = specs.get(name)
        if spec is not None and spec.info.typesize == stream.typesize:
            sizes = zip(stream.chunks, spec.info.chunks, strict=False)
            for index, (size, old_size) in enumerate(sizes):
                if size == old_size:
                    yield first + index, spec.first_chunk + index
        first += len(stream.chunks)


def _has_codec(chunk: bytes, codec: str) -> bool:
    """True if the chunk has this codec; a chunk that did not shrink has none and counts too."""
    flags = ChunkHeader.decode(chunk).flags
    return bool(flags & MEMCPYED) or flags >> CODEC_SHIFT == WRITABLE_CODECS[codec]


def _holds(chunk: bytes, piece: ChunkInput) -> bool:
    """True if the chunk decodes to these bytes."""
    nbytes = piece.data.nbytes
    decoded = np.frombuffer(scratch(nbytes), np.uint8)
    decompress_into(chunk, piece.typesize, decoded.ctypes.data, nbytes, LARGE_CHUNK_BYTES)
    return np.array_equal(decoded, piece.data)
