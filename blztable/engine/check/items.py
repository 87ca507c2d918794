"""Items that are a chunk each: which of them are damaged.

Knows nothing of types: a chunk that decompresses may have bytes that are no text.
"""

from collections.abc import Iterator

import numpy as np

from blztable.block_terms import VALUES
from blztable.engine.read.parts import Part
from blztable.engine.read.superchunks import chunk_at
from blztable.engine.run.scratch import scratch
from blztable.errors import BlzError
from blztable.format.chunk import LARGE_CHUNK_BYTES, decompress_into


def damaged_items(part: Part, rows: range) -> Iterator[tuple[int, str]]:
    """Yield each of these rows of a part whose chunk is damaged, and what is wrong with it."""
    place = part.streams[VALUES]
    assert part.superchunk is not None
    assert part.reader is not None
    for row in rows:
        size = place.info.chunks[row]
        try:
            with part.error_context(place.name, row):
                chunk = chunk_at(part.superchunk, part.reader, place.first_chunk + row)
                if size:
                    out = np.frombuffer(scratch(size), np.uint8).ctypes.data
                    decompress_into(chunk, place.info.typesize, out, size, LARGE_CHUNK_BYTES)
        except BlzError as error:
            yield row, str(error)
