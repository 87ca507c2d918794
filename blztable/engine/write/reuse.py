"""A part that replaces another: chunks with equal contents are copied, not compressed again.

When an update rewrites a column, most chunks keep their contents. Reading, checking, decompressing
and comparing a chunk costs a fraction of compressing it; only for numbers in lz4 it costs the same.
The old file is not trusted: a chunk is copied only if it decodes to the bytes to be written. A
damaged chunk is compressed again.

Knows nothing of rows or of what changed: bytes to be written are compared with decoded bytes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from blztable.columns.parts.batch import EncodedBatch
from blztable.engine.run.pool import scratch
from blztable.engine.version.versions import DAMAGED
from blztable.engine.write.chunks import ChunkInput, compressed
from blztable.format.chunk import (
    CODEC_SHIFT,
    LARGE_CHUNK_BYTES,
    MEMCPYED,
    WRITABLE_CODECS,
    ChunkHeader,
    decompress_into,
)
from blztable.format.records import PER_ITEM


class OldStream(Protocol):
    """A stream that is stored: its form, and the decompressed bytes of each chunk.

    Those of items that are a chunk each are not known before.
    """

    kind: int
    typesize: int

    @property
    def sizes(self) -> Sequence[int]:
        """Return the decompressed bytes of each chunk."""

    def compressed(self, number: int) -> bytes:
        """Return a chunk, compared with its digest."""


class OldPart(Protocol):
    """A part that is stored: its rows, and its streams by name."""

    rows: int

    @property
    def streams(self) -> Mapping[int, OldStream]:
        """Return the streams."""


# Returns a chunk, given its index in its part.
Make = Callable[[int, ChunkInput], bytes]
# Returns the part that a new part replaces, given the indices of the column and the row group in
# this write. It may be called from any thread.
Old = Callable[[int, int], OldPart | None]


def compressing(index: int, piece: ChunkInput) -> bytes:
    """Compress a chunk."""
    return compressed(piece)


def copying(old: OldPart, batch: EncodedBatch, cuts: Sequence[Sequence[int]]) -> Make:
    """Return a function that copies chunks of `old` with equal contents, compresses the others."""
    counterparts = dict(_counterparts(old, batch, cuts))

    def copy_or_make(index: int, piece: ChunkInput) -> bytes:
        counterpart = counterparts.get(index)
        if counterpart is not None and piece.data.nbytes:
            stream, number = counterpart
            try:
                chunk = stream.compressed(number)
                if _has_codec(chunk, piece.compression.codec) and _holds(chunk, piece):
                    return bytes(chunk)
            except DAMAGED:
                pass  # The chunk is damaged: compress its contents instead.
        return compressed(piece)

    return copy_or_make


def opened(old: Old, index: int, group: int) -> OldPart | None:
    """Return the old part; None if none exists, or if it is damaged."""
    try:
        return old(index, group)
    except DAMAGED:
        return None


def chunk_sizes(old: OldPart) -> dict[int, int]:
    """Return the bytes of each chunk but the last of the streams of several chunks, by name."""
    return {name: stream.sizes[0] for name, stream in old.streams.items() if len(stream.sizes) > 1}


def _counterparts(
    old: OldPart, batch: EncodedBatch, cuts: Sequence[Sequence[int]]
) -> Iterator[tuple[int, tuple[OldStream, int]]]:
    """Yield the new index, and the old stream and index, of chunks of one index and size.

    If an item of text grew, the chunks behind it begin at other rows, and few of them are equal.
    """
    first = 0
    for stream, of_stream in zip(batch.streams, cuts, strict=True):
        sizes = np.diff(of_stream).tolist()
        stored = old.streams.get(stream.name)
        if stored is not None and stored.kind == stream.kind == PER_ITEM:
            for number in range(min(batch.rows, old.rows)):
                yield first + number, (stored, number)
        elif stored is not None and stored.typesize == stream.typesize:
            for number, pair in enumerate(zip(sizes, stored.sizes, strict=False)):
                if pair[0] == pair[1]:
                    yield first + number, (stored, number)
        first += len(sizes)


def _has_codec(chunk: bytes, codec: str) -> bool:
    """True if the chunk has this codec; a chunk that did not shrink has none and counts too."""
    flags = ChunkHeader.decode(chunk).flags
    return bool(flags & MEMCPYED) or flags >> CODEC_SHIFT == WRITABLE_CODECS[codec]


def _holds(chunk: bytes, piece: ChunkInput) -> bool:
    """True if the chunk decodes to these bytes."""
    nbytes = piece.data.nbytes
    decoded, address = scratch(nbytes)
    decompress_into(chunk, piece.typesize, address, nbytes, LARGE_CHUNK_BYTES)
    return np.array_equal(decoded, piece.data)
