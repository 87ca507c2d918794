"""Data files of tables, made from arrays without a table."""

from itertools import pairwise

import numpy as np
import pyarrow as pa

from blztable.arrow.types import as_stored
from blztable.columns.parts.encode import EncodingOptions, encode
from blztable.columns.parts.physical import dtype_text
from blztable.format.checksums import crc32
from blztable.format.chunk import EMPTY_CHUNK, Compression
from blztable.format.data_file import DataFile
from blztable.format.records import (
    BYTE,
    CHUNK,
    DIGEST_BYTES,
    ITEM_CHUNKS,
    PART,
    PER_ITEM,
    STREAM,
    WORD,
    Records,
    stack,
)

UUID = "00112233-4455-6677-8899-aabbccddeeff"
SMALL_CHUNK = 1 << 12


def part_of(array: pa.Array, page: int, chunk: int, **options: object) -> tuple[Records, list]:
    """Return the records of an array, without places, and its compressed chunks."""
    part = encode(as_stored(array), page, EncodingOptions(**options))
    streams, listed, all_chunks, words = [], [], [], []
    flags = part.flags
    for stream in part.streams:
        kind, size = stream.kind, chunk
        if stream.sizes is not None:
            kind, size, flags = PER_ITEM, 0, flags | ITEM_CHUNKS
            cuts = np.cumsum([0, *stream.sizes.tolist()])
        else:
            cuts = [*range(0, len(stream.data), size), len(stream.data)] if len(stream.data) else []
        made = [
            Compression().compress(stream.data[start:stop], stream.typesize)
            if stop > start
            else EMPTY_CHUNK
            for start, stop in pairwise(cuts)
        ]
        all_chunks += made
        own = stream.words
        if kind == PER_ITEM:
            # Counted from the first chunk of the part.
            before = sum(len(one) + DIGEST_BYTES for one in all_chunks[: -len(made)])
            lengths = [before, *(len(one) + DIGEST_BYTES for one in made)]
            own = np.array([crc32(np.cumsum(lengths)[:-1].astype("<i8").tobytes())], WORD)
        else:
            listed += made
        words.append(own)
        streams.append(
            (
                len(stream.data),
                size if len(stream.data) and kind != PER_ITEM else 0,
                len(own),
                stream.name,
                kind,
                stream.flags,
                stream.power,
                stream.width,
                stream.typesize,
                stream.exceptions,
            )
        )
    record = np.zeros(1, PART)
    cbytes = sum(len(one) + DIGEST_BYTES for one in all_chunks)
    fields = (part.rows, part.nbytes, cbytes, len(streams), page, flags, len(part.prefix))
    record[0] = (0, 0, *fields, len(part.pages))
    return Records(
        1,
        1,
        record,
        np.array(streams, STREAM),
        np.array([(len(one), crc32(one)) for one in listed], CHUNK),
        part.pages,
        np.concatenate([np.zeros(0, WORD), *words]).astype(WORD),
        np.frombuffer(part.prefix, BYTE),
    ), all_chunks


def file_of(*arrays: pa.Array, page: int = 4, chunk: int = SMALL_CHUNK, **options: object) -> bytes:
    """Return the data file of some columns."""
    parts = [part_of(array, page, chunk, **options) for array in arrays]
    chunks = [one for _, made in parts for one in made]
    nodes = tuple((number,) for number in range(len(arrays)))
    dtypes = tuple(dtype_text(array.type) for array in arrays)
    file = DataFile(UUID, 7, nodes, dtypes, stack([records for records, _ in parts]))
    front, _ = file.encode(chunks)
    return front + b"".join(one + crc32(one).to_bytes(DIGEST_BYTES, "little") for one in chunks)
