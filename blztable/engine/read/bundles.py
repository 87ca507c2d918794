"""Open bundles: the streams of a part that lies in a bundle.

A bundle is opened once for all of its columns. Knows no columns; its errors have no context.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from blztable.block_terms import VALID
from blztable.columns.encodings.words import words_to_json
from blztable.columns.types import layout_of
from blztable.engine.read.open_files import PartReader
from blztable.engine.read.superchunks import chunk_at, open_superchunk
from blztable.errors import CorruptError
from blztable.format import bundle, jsontext
from blztable.format.bundle import BundleFacts, Directory
from blztable.format.chunk import decompress_into
from blztable.format.metadata import BlockInfo, StreamInfo
from blztable.format.superchunk import PartFacts, Superchunk

# A bundle up to this size is read at once. For one column of it this costs some 30 microseconds.
SMALL_BUNDLE = 256 << 10
# Kinds whose base is in the entry.
_BASED = ("narrow", "scaled")

# An entry as Python numbers.
_Entry = tuple[int, int, int, int, int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class OpenBundle:
    """A bundle whose front, trailer and directory passed all checks.

    Attributes
    ----------
    facts
        The facts of the bundle in the head.
    superchunk, reader
        The offsets of the chunks, and the reader of the file.
    directory
        The entries and the encodings.
    sizes, typesizes
        The uncompressed bytes and the typesize of each chunk.
    """

    facts: BundleFacts
    superchunk: Superchunk
    reader: PartReader
    directory: Directory
    sizes: list[int]
    typesizes: list[int]

    def block(self, at: int, type_: pa.DataType) -> tuple[BlockInfo, list[tuple[int, int]]]:
        """Return the tree of the part whose first entry is `at`, from 1, as a file would have it.

        Also return the chunk, and the first byte in it, of each stream that has bytes.
        """
        stop = at - 1 + _count(type_)
        if not 0 < at <= stop <= len(self.directory.entries):
            raise CorruptError(f"the bundle has no entries {at} to {stop}")
        slots: list[tuple[int, int]] = []
        entries = iter(self.directory.entries[at - 1 : stop].tolist())
        return self._block(type_, entries, slots), slots

    def contents(self, chunk: int) -> np.ndarray:
        """Read and decompress a chunk."""
        return _contents(self.superchunk, self.reader, chunk, self.sizes, self.typesizes)

    @property
    def nbytes_to_open(self) -> int:
        """Return the bytes of front and trailer."""
        return self.facts.front_length + self.facts.trailer_length

    def _block(
        self, type_: pa.DataType, entries: Iterator[_Entry], slots: list[tuple[int, int]]
    ) -> BlockInfo:
        layout = layout_of(type_)
        streams, sizes = [], set()
        for name, own in layout.streams.items():
            chunk, start, nbytes, number, rows, page_rows, base = next(entries)
            sizes.add((rows, page_rows))
            if name == VALID and not nbytes and not number:
                continue  # No row is null.
            encoding, dtype, typesize = None, own.dtype, own.typesize
            if number:
                encoding = self.directory.encoding(number)
                dtype = jsontext.text(encoding.get("dtype"), "dtype")
                typesize = jsontext.number(encoding.get("typesize"), "typesize")
                if encoding.get("kind") in _BASED and "bases" not in encoding:
                    encoding["bases"] = words_to_json(np.array([base]))
            pages = None
            if own.bits is None:
                pages = (base if number else nbytes,) if rows else ()
            if nbytes:
                slots.append((chunk, start))
            chunks = (nbytes,) if nbytes else ()
            streams.append(StreamInfo(name, dtype, typesize, chunks, pages, encoding))
        if len(sizes) != 1:
            raise CorruptError(f"the streams of a block have (rows, page_rows) {sorted(sizes)}")
        children = {
            name: self._block(child, entries, slots) for name, child in layout.children.items()
        }
        return BlockInfo(*sizes.pop(), tuple(streams), children)


def open_bundle(reader: PartReader, facts: BundleFacts, rows: int) -> OpenBundle:
    """Read and check front, trailer and directory of the bundle of a row group."""
    whole = PartFacts(
        *(rows, bundle.page_rows_of(rows)),
        *(facts.cbytes, facts.front_length, facts.trailer_length, facts.crc),
    )
    superchunk = open_superchunk(reader, whole, SMALL_BUNDLE)
    sizes = bundle.chunk_sizes(superchunk.info)
    typesizes = [one.typesize for one in superchunk.info.streams for _ in one.chunks]
    first, streams = 0, []
    for stream in superchunk.info.streams[:2]:
        chunks = range(first, first + len(stream.chunks))
        streams.append(
            b"".join(
                _contents(superchunk, reader, chunk, sizes, typesizes).tobytes() for chunk in chunks
            )
        )
        first = chunks.stop
    entries, encodings = streams
    directory = Directory.decode(entries, encodings, superchunk.info)
    return OpenBundle(facts, superchunk, reader, directory, sizes, typesizes)


def _contents(
    superchunk: Superchunk, reader: PartReader, chunk: int, sizes: list[int], typesizes: list[int]
) -> np.ndarray:
    out = np.empty(sizes[chunk], np.uint8)
    data = chunk_at(superchunk, reader, chunk)
    decompress_into(data, typesizes[chunk], out.ctypes.data, len(out))
    return out


@lru_cache(maxsize=256)
def _count(type_: pa.DataType) -> int:
    """Return the number of entries of a part of this type."""
    layout = layout_of(type_)
    return len(layout.streams) + sum(map(_count, layout.children.values()))
