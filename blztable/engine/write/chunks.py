"""Chunks: the streams of encoded parts cut, compressed, and described by records.

All chunks of a stream but the last have one size, about the same for all. Knows neither files nor
threads.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from blztable import tuning
from blztable.columns.parts.batch import EncodedBatch
from blztable.columns.parts.stream import NO_WORDS
from blztable.format.checksums import crc32
from blztable.format.chunk import EMPTY_CHUNK, LARGE_CHUNK_BYTES, Compression
from blztable.format.records import (
    BYTE,
    CHUNK,
    DIGEST_BYTES,
    ITEM_CHUNKS,
    ITEMS_VALID,
    PAGE,
    PART,
    PER_ITEM,
    STREAM,
    WORD,
    Array,
    Records,
    sums,
)

# Of lineitem 32, 64, 128 and 256 KiB leave 147.6, 143.3, 141.0 and 139.8 MB, and 10 rows are taken
# in 0.8, 1.1, 1.7 and 3.0 ms.
CHUNK_BYTES = 128 << 10
# The same where each byte comes from afar: 10 rows of 16 columns take 6.4 MB instead of 12.2, and
# the table 0.1 % more.
FAR_CHUNK_BYTES = 64 << 10
# About so many rows at most lose a value to a damaged chunk: what a chunk of codes of a byte has.
CHUNK_ROWS = 128 << 10


# numpy takes ten times longer to make a record.
_PART, _STREAM = struct.Struct("<5Q4BI"), struct.Struct("<QII6BH")
assert _PART.size == PART.itemsize
assert _STREAM.size == STREAM.itemsize


class ChunkInput(NamedTuple):
    """The bytes of a chunk before compression, and how to compress them."""

    data: Array
    typesize: int
    compression: Compression


def chunk_size(nbytes: int, typesize: int, target: int) -> int:
    """Return the bytes of each chunk but the last of a stream; 0 if it has no bytes."""
    count = max(round(nbytes / target), 1)
    # Blosc shuffles the bits of whole units alone.
    unit = 8 * typesize
    return min(-(-nbytes // (count * unit)) * unit, nbytes)


def cuts_of(
    batch: EncodedBatch, target: int, known: Mapping[int, int] | None = None
) -> list[Sequence[int]]:
    """Return for each stream where its chunks begin, and where the last ends.

    `known` has the sizes of chunks of older streams, by name: they are kept where they are still
    about right, so that chunks may be equal.
    """
    cuts: list[Sequence[int]] = []
    for stream, data in zip(batch.streams, batch.data, strict=True):
        nbytes = data.shape[1]
        if stream.sizes is not None:
            cuts.append(sums(stream.sizes).tolist())
            continue
        most = target
        if stream.name < ITEMS_VALID and batch.rows > CHUNK_ROWS:
            most = min(target, max(nbytes * CHUNK_ROWS // batch.rows, 1))
        size = chunk_size(nbytes, stream.typesize, most)
        if known is not None:
            older = known.get(stream.name, 0)
            is_right = most <= 2 * older <= 4 * most and older % (8 * stream.typesize) == 0
            size = min(older, nbytes) if is_right else size
        cuts.append([*range(0, nbytes, size), nbytes] if size else [0])
    return cuts


def inputs_of(
    batch: EncodedBatch, cuts: Sequence[Sequence[int]], compressions: Sequence[Compression]
) -> Iterator[ChunkInput]:
    """Yield the chunks of all parts of a batch, in the order part, stream."""
    streams = list(zip(batch.streams, compressions, batch.data, cuts, strict=True))
    for part in range(len(batch.columns)):
        for stream, compression, data, of_stream in streams:
            for start, stop in pairwise(of_stream):
                yield ChunkInput(data[part, start:stop], stream.typesize, compression)


def compressed(piece: ChunkInput) -> bytes:
    """Return the compressed chunk."""
    if not piece.data.nbytes:
        return EMPTY_CHUNK
    return piece.compression.compress(piece.data, piece.typesize, LARGE_CHUNK_BYTES)


def runs_of(pieces: Sequence[ChunkInput]) -> list[tuple[int, int]]:
    """Return the runs of chunks, as (start, stop), that make a task each; at least one."""
    runs, start, nbytes = [], 0, 0
    for stop, piece in enumerate(pieces, 1):
        nbytes += piece.data.nbytes
        if nbytes >= tuning.current.write_task_bytes or stop == len(pieces):
            runs.append((start, stop))
            start, nbytes = stop, 0
    return runs or [(0, 0)]


class PartFacts(NamedTuple):
    """The records of the parts of a batch before they are compressed, as bytes."""

    parts: bytes
    streams: bytes
    pages: bytes
    words: bytes
    prefixes: bytes


def facts_of(batch: EncodedBatch, cuts: Sequence[Sequence[int]]) -> PartFacts:
    """Return what is known of parts before their chunks are compressed."""
    lines, words, count = [], list(batch.words), len(batch.columns)
    for number, (stream, data) in enumerate(zip(batch.streams, batch.data, strict=True)):
        size = 0
        if stream.kind == PER_ITEM:
            # The digest of the offsets, once they are known.
            words[number] = np.zeros((1, 1), WORD)
        elif len(cuts[number]) > 1:
            size = cuts[number][1]
        line = (data.shape[1], size, words[number].shape[1], stream.name, stream.kind)
        more = (stream.flags, stream.power, stream.width, stream.typesize, stream.exceptions)
        lines.append(_STREAM.pack(*line, *more))
    sizes = (batch.page, batch.flags, len(batch.prefix), batch.pages.shape[1])
    part = _PART.pack(0, 0, batch.rows, batch.nbytes, 0, len(batch.streams), *sizes)
    joined = words[0] if len(words) == 1 else np.concatenate(words, axis=1) if words else NO_WORDS
    return PartFacts(
        part * count, b"".join(lines) * count, batch.pages.tobytes(), joined.tobytes(), batch.prefix
    )


def records_of(facts: Sequence[PartFacts], chunks: Sequence[bytes], crcs: Sequence[int]) -> Records:
    """Return the records of parts whose chunks are compressed; without file and offset."""
    parts, streams, pages, words, prefixes = map(b"".join, zip(*facts, strict=True))
    table = np.empty((len(chunks), 2), "<u4")
    table[:, 0], table[:, 1] = list(map(len, chunks)), crcs
    lengths = table[:, 0] + np.int64(DIGEST_BYTES)
    records = Records(
        len(parts) // PART.itemsize,
        1,
        np.frombuffer(bytearray(parts), PART),
        np.frombuffer(streams, STREAM),
        table.view(CHUNK).reshape(-1),
        np.frombuffer(pages, PAGE),
        np.frombuffer(words, WORD),
        np.frombuffer(prefixes, BYTE),
    )
    if records.parts["flags"][0] & ITEM_CHUNKS:
        return _with_items(records, lengths)
    ends = sums(lengths)[records.first_chunk[records.first_stream]]
    records.parts["cbytes"] = ends[1:] - ends[:-1]
    return records


def _with_items(records: Records, lengths: Array) -> Records:
    """Return the records of a part, alone in its file, in which each item is a chunk."""
    (place,) = np.flatnonzero(records.streams["kind"] == PER_ITEM)
    first, rows = int(records.first_chunk[place]), int(records.parts["rows"][0])
    offsets = sums(lengths)[first : first + rows].astype(WORD)
    words = records.words.copy()
    words[records.first_word[place]] = crc32(offsets.data)
    records.parts["cbytes"] = lengths.sum()
    chunks = np.delete(records.chunks, slice(first, first + rows))
    return replace(records, words=words, chunks=chunks)
