"""Open bundles: the streams of a part that lies in a bundle.

A bundle is opened once for all of its columns. Knows no columns; its errors have no context.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pyarrow as pa

from blztable.block_terms import VALID, VALUES
from blztable.columns.blocks import Encoding
from blztable.columns.encodings.parse import Owner, parse
from blztable.columns.encodings.words import words_to_json
from blztable.columns.types import layout_of
from blztable.engine.read.open_files import PartReader
from blztable.engine.read.places import BlockPlace, StreamPlace, place
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

_ZERO = words_to_json(np.zeros(1, "<i8"))

# An entry as Python numbers: chunk, start, nbytes, encoding, rows, page_rows, base.
_Entry = tuple[int, int, int, int, int, int, int]
# The chunk of a stream, and its first byte in the chunk.
Slot = tuple[int, int]


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
    # Checked trees, which parts share that differ only in the slots and bases of their streams.
    _trees: dict[object, BlockPlace] = field(default_factory=dict)

    @property
    def nbytes_to_open(self) -> int:
        """Return the bytes of front and trailer."""
        return self.facts.front_length + self.facts.trailer_length

    def tree(self, at: int, type_: pa.DataType) -> tuple[BlockPlace, list[Slot]]:
        """Return the tree of the part whose first entry is `at`, from 1.

        The streams that have bytes have one chunk each, whose number is the index of its slot.
        """
        stop = at - 1 + count_of_entries(type_)
        if not 0 < at <= stop <= len(self.directory.entries):
            raise CorruptError(f"the bundle has no entries {at} to {stop}")
        entries: list[_Entry] = self.directory.entries[at - 1 : stop].tolist()
        slots = [entry[:2] for entry in entries if entry[2]]
        # Many parts of numbers differ in their bases alone.
        is_number, base = list(layout_of(type_).streams) == [VALID, VALUES], 0
        if is_number:
            base = entries[1][-1]
            entries[1] = (*entries[1][:-1], 0)
        key = (type_, *(entry[2:] for entry in entries))
        root = self._trees.get(key)
        if root is None:
            root = self._trees[key] = place(self._block(type_, iter(entries)), type_, "", 0)
        return _rebased(root, base) if base else root, slots

    def encoding(self, number: int, owner: Owner) -> Encoding | None:
        """Return an encoding of numbers by its number, with base 0; None for 0."""
        if not number:
            return None
        described = self._described(number, 0)
        encoding = parse(described, owner, _dtype_of(described))
        if described.get("typesize") != encoding.stored.typesize:
            raise CorruptError(f"encoding {number} of a bundle has another typesize")
        return encoding

    def contents(self, chunk: int) -> np.ndarray:
        """Read and decompress a chunk."""
        return _contents(self.superchunk, self.reader, chunk, self.sizes, self.typesizes)

    def _described(self, number: int, base: int) -> dict[str, jsontext.Json]:
        """Return an encoding as the metadata of a file of its own would describe it."""
        described = self.directory.encoding(number)
        if described.get("kind") in _BASED:
            described["bases"] = words_to_json(np.array([base])) if base else _ZERO
        return described

    def _block(self, type_: pa.DataType, entries: Iterator[_Entry]) -> BlockInfo:
        """Return a block as a file of its own would describe it."""
        layout = layout_of(type_)
        streams, sizes = [], set()
        for name, own in layout.streams.items():
            _, _, nbytes, number, rows, page_rows, base = next(entries)
            sizes.add((rows, page_rows))
            if name == VALID and not nbytes and not number:
                continue  # No row is null.
            encoding, dtype, typesize = None, own.dtype, own.typesize
            if number:
                encoding = self._described(number, base)
                dtype = _dtype_of(encoding)
                typesize = jsontext.number(encoding.get("typesize"), "typesize")
            pages = None
            if own.bits is None:
                pages = (base if number else nbytes,) if rows else ()
            chunks = (nbytes,) if nbytes else ()
            streams.append(StreamInfo(name, dtype, typesize, chunks, pages, encoding))
        if not layout.streams:
            # The rows of a null type.
            sizes.add(next(entries)[4:6])
        if len(sizes) != 1:
            raise CorruptError(f"the streams of a block have (rows, page_rows) {sorted(sizes)}")
        children = {name: self._block(child, entries) for name, child in layout.children.items()}
        return BlockInfo(*sizes.pop(), tuple(streams), children)


def open_bundle(reader: PartReader, facts: BundleFacts, rows: int) -> OpenBundle:
    """Read and check front, trailer and directory of the bundle of a row group."""
    whole = PartFacts(
        rows,
        bundle.page_rows_of(rows),
        facts.cbytes,
        facts.front_length,
        facts.trailer_length,
        facts.crc,
    )
    superchunk = open_superchunk(reader, whole, SMALL_BUNDLE)
    sizes = bundle.chunk_sizes(superchunk.info)
    typesizes = [one.typesize for one in superchunk.info.streams for _ in one.chunks]
    first, streams = 0, []
    for stream in superchunk.info.streams[:2]:
        chunks = range(first, first + len(stream.chunks))
        parts = (_contents(superchunk, reader, one, sizes, typesizes).tobytes() for one in chunks)
        streams.append(b"".join(parts))
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


def _dtype_of(described: Mapping[str, jsontext.Json]) -> str:
    return jsontext.text(described.get("dtype"), "dtype")


def _rebased(root: BlockPlace, base: int) -> BlockPlace:
    """Return the tree of a part of numbers with another base."""
    values = root.streams.get(VALUES)
    if values is None or values.encoding is None:
        return root
    # `replace` takes three times longer, for each column of a wide table.
    own = (values.name, values.layout, values.info, values.first_chunk, values.bounds)
    values = StreamPlace(*own, values.bound_rows, values.nbytes, values.encoding.rebased(base))
    return BlockPlace(root.rows, root.page_rows, {**root.streams, VALUES: values}, root.children)


@lru_cache(maxsize=256)
def count_of_entries(type_: pa.DataType) -> int:
    """Return the number of entries of a part of this type."""
    layout = layout_of(type_)
    return max(len(layout.streams), 1) + sum(map(count_of_entries, layout.children.values()))
