"""Bundles: one superchunk for all parts of a small row group.

A part of its own costs about as much time as 100 KB of data: a file, a front, a trailer, and for
each stream a chunk. So the streams of a small row group lie one behind the other, and are
compressed together. A merge makes ordinary parts of them when they are large enough. Knows nothing
of how an array is encoded.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate

import numpy as np
import pyarrow as pa

from blztable.columns.blocks import Block, Encoding, Stream, StreamLayout
from blztable.columns.paging import CHUNK_BYTES
from blztable.columns.types import layout_of
from blztable.engine.run.budget import MemoryBudget
from blztable.engine.run.tasks import Task, batches
from blztable.engine.write.options import CompressionOptions
from blztable.engine.write.reuse import ChunkInput, compressing
from blztable.engine.write.trial import LZ4, LZ4HC, compression_of
from blztable.errors import LimitError
from blztable.format import bundle, jsontext, layout
from blztable.format.bundle import (
    ALIGNMENT,
    BUNDLE,
    ENCODINGS,
    ENTRIES,
    ENTRY,
    MAX_DIRECTORY_BYTES,
    BundleFacts,
)
from blztable.format.checksum import Checksum
from blztable.format.chunk import MAX_CHUNK_BYTES, Compression
from blztable.format.layout import Path
from blztable.format.metadata import BlockInfo, StreamInfo
from blztable.format.superchunk import pack
from blztable.storage.store import KeyTaken, Store

# A row group is bundled if its columns have at most this many bytes each, as a mean. 0 makes no
# bundles.
BUNDLED_BYTES = 64 << 10
# Columns with more bytes have files of their own.
MOST_COLUMN_BYTES = 1 << 20
# A bundle is in memory until its last part is ready.
MOST_BYTES = 512 << 20
# The next row group waits until half of a bundle of more bytes is compressed. Smaller bundles take
# little memory, and several of them are made at once.
LARGE_BYTES = 16 << 20
# A chunk is decompressed for one column, so it is smaller than in a file.
BUNDLE_CHUNK_BYTES = 256 << 10
# Names, numbers and punctuation of an encoding.
MOST_NAMES_BYTES = 512

# Takes the first entry of a part, from 1, and its share of the bytes in the file.
Placed = Callable[[int, int], None]


def is_small(nbytes: Collection[int]) -> bool:
    """True if a row group with these bytes in each column is bundled."""
    return len(nbytes) > 1 and 0 < sum(nbytes) <= min(MOST_BYTES, BUNDLED_BYTES * len(nbytes))


def fits(block: Block) -> bool:
    """True if a part can be in a bundle: each block has one page, and no stream is too large."""
    return (
        block.rows <= block.page_rows
        and all(stream.data.nbytes <= MAX_CHUNK_BYTES for stream in block.streams)
        and all(map(fits, block.children.values()))
    )


def _directory_bytes(block: Block) -> int:
    """Return the most bytes that a part adds to `entries` and `encodings`."""
    encodings = [stream.encoding.shared()[0] for _, stream in block.walk() if stream.encoding]
    texts = (one for parameters in encodings for one in parameters.values())
    nbytes = sum(len(one) for one in texts if isinstance(one, str))
    # A dictionary type has five streams, and the names and numbers of an encoding are short.
    return nbytes + 5 * ENTRY.itemsize + MOST_NAMES_BYTES * len(encodings)


@dataclass(slots=True)
class BundleWriter:
    """The bundles of a write: their numbers, and those written so far."""

    store: Store
    # The first number to use; above 1 if the table has bundles already.
    first_k: int
    file_numbers: list[int] = field(default_factory=list)

    @property
    def path(self) -> Path:
        """The path of the bundles."""
        return layout.SHARED

    def put(self, pieces: Sequence[bytes]) -> int:
        """Store a bundle under the first number that is free; return the number."""
        k = max([self.first_k, *(number + 1 for number in self.file_numbers)])
        while k <= layout.MAX_ID:
            try:
                self.store.put_new(layout.part(self.path, k), pieces)
            except KeyTaken:
                k += 1  # Another writer uses that number.
            else:
                self.file_numbers.append(k)
                return k
        raise LimitError(f"{self.store.name}: all bundle numbers up to {layout.MAX_ID} are used")


@dataclass(slots=True)
class _Pile:
    """Streams of one form that are compressed together, and their chunks."""

    index: int
    layout: StreamLayout
    asked: CompressionOptions
    # The encoding of one of the streams.
    encoding: Encoding | None
    # The streams of each chunk, and their bytes.
    streams: list[list[np.ndarray]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def add(self, data: np.ndarray) -> tuple[int, int]:
        """Add a stream; return its chunk, counted in this pile, and its first byte in the chunk."""
        nbytes = _rounded(data.nbytes, ALIGNMENT)
        if not self.sizes or self.sizes[-1] + nbytes > BUNDLE_CHUNK_BYTES:
            self.sizes.append(0)
            self.streams.append([])
        self.streams[-1].append(data)
        start = self.sizes[-1]
        self.sizes[-1] += nbytes
        return len(self.sizes) - 1, start

    def chunks(self) -> list[ChunkInput]:
        """Return the chunks to compress."""
        # Blosc shuffles the bits of whole units alone, so each chunk is filled up.
        sizes = [_rounded(size, 8 * self.layout.typesize) for size in self.sizes]
        chunks = [_joined(*one) for one in zip(self.streams, sizes, strict=True)]
        # The trial looks at the bytes at a quarter and at three quarters.
        few = chunks if len(chunks) < 3 else [chunks[len(chunks) * n // 4] for n in (1, 3)]
        tried = Stream(self.layout, np.concatenate(few), encoding=self.encoding)
        compression = compression_of(tried, self.asked)
        return [ChunkInput(data, self.layout.typesize, compression) for data in chunks]


def _joined(streams: list[np.ndarray], size: int) -> np.ndarray:
    """Return a chunk of so many bytes, and forget its streams."""
    chunk, end = np.zeros(size, np.uint8), 0
    for data in streams:
        chunk[end : end + len(data)] = data
        end += _rounded(len(data), ALIGNMENT)
    streams.clear()
    return chunk


def _rounded(nbytes: int, unit: int) -> int:
    return -(-nbytes // unit) * unit


@dataclass(frozen=True, slots=True)
class BundledPart:
    """A part that goes to a bundle."""

    type: pa.DataType
    block: Block
    asked: CompressionOptions
    placed: Placed


class Bundle:
    """The bundle of one row group, while its parts are made."""

    def __init__(
        self,
        columns: Mapping[int, int],
        rows: int,
        writer: BundleWriter,
        checksum: Checksum,
        budget: MemoryBudget,
    ) -> None:
        """Wait for the parts of columns, given their bytes by index, in the order of the file."""
        self.columns = columns.keys()
        self._budget = budget
        nbytes = sum(columns.values())
        # The bytes that the bundle releases, because it has the parts until they are compressed.
        self._held = nbytes if nbytes > LARGE_BYTES else 0
        self._rows = rows
        self._writer = writer
        self._checksum = checksum
        self._lock = threading.Lock()
        self._unfinished = len(columns)
        self._parts: dict[int, BundledPart | None] = dict.fromkeys(columns)
        # The stored bundle; None if no part is in it.
        self.facts: BundleFacts | None = None
        # The bytes that `entries` and `encodings` may still get.
        self._room = MAX_DIRECTORY_BYTES

    def takes(self, block: Block) -> bool:
        """True if a part fits into the bundle, which then keeps room for it."""
        if not (block.rows and block.streams and fits(block)):
            return False
        with self._lock:
            self._room -= _directory_bytes(block)
            return self._room >= 0

    @property
    def is_large(self) -> bool:
        """True if the bundle releases the memory of its columns, and not the parts."""
        return self._held > 0

    def add(self, index: int, part: "BundledPart | None") -> list[Task]:
        """Add the part of a column, None if it has a file; the last one returns tasks to run."""
        self._parts[index] = part
        with self._lock:
            self._unfinished -= 1
            is_last = self._unfinished == 0
        return self._finish() if is_last else []

    def _finish(self) -> list[Task]:
        """Return the tasks that compress the chunks; the last of them stores the file."""
        contents = _Contents(filter(None, self._parts.values()))
        self._parts.clear()
        # A piece is released as soon as it is compressed.
        pieces = dict(enumerate(contents.pieces()))
        chunks: list[bytes] = [b""] * len(pieces)
        digests = chunks.copy()
        make = compressing(self._checksum)
        count = self._unfinished = len(pieces)
        if not count:
            self._budget.release(self._held)

        def compress(number: int) -> None:
            chunks[number], digests[number] = make(number, pieces.pop(number))
            # The shares add up to all bytes.
            shares = (self._held * (number + 1) // count, self._held * number // count)
            self._budget.release(shares[0] - shares[1])
            with self._lock:
                self._unfinished -= 1
                is_last = self._unfinished == 0
            if is_last:
                self._put(contents, chunks, digests)

        calls = (partial(compress, number) for number in range(count))
        return list(batches(calls, CHUNK_BYTES // BUNDLE_CHUNK_BYTES))

    def _put(
        self, contents: "_Contents", chunks: Sequence[bytes], digests: Sequence[bytes]
    ) -> None:
        page_rows = bundle.page_rows_of(self._rows)
        info = BlockInfo(self._rows, page_rows, contents.streams, encoding=BUNDLE)
        packed, facts = pack(info, chunks, digests, self._checksum, {})
        k = self._writer.put(packed)
        self.facts = BundleFacts(
            k, facts.cbytes, facts.front_length, facts.trailer_length, facts.crc
        )
        lengths = [len(chunk) + self._checksum.size for chunk in chunks]
        contents.place(lengths, facts.cbytes)


class _Contents:
    """The parts of a bundle: their entries, their encodings, and the piles of their streams."""

    def __init__(self, parts: Iterable[BundledPart]) -> None:
        # Entries; each pile counts its chunks by itself.
        self._entries: list[tuple[int, ...]] = []
        # The index of the pile of each entry.
        self._piles_of: list[int] = []
        self._encodings: dict[tuple[tuple[str, object], ...], int] = {}
        self._piles: dict[tuple[object, ...], _Pile] = {}
        # Each part's callback, and its first entry.
        self._placed: list[tuple[Placed, int]] = []
        self._table = np.empty(0, ENTRY)
        self.streams: tuple[StreamInfo, ...] = ()
        for part in parts:
            self._placed.append((part.placed, len(self._entries)))
            self._add_block(part.type, part.block, part.asked)

    def _add_block(self, type_: pa.DataType, block: Block, asked: CompressionOptions) -> None:
        own, form = {one.layout.name: one for one in block.streams}, layout_of(type_)
        for name in form.streams:
            stream = own.get(name)
            pile, place, number, base = 0, (0, 0, 0), 0, 0
            if stream is not None:
                number, base = self._encoded(stream)
                pile, place = self._place(stream, asked)
            self._piles_of.append(pile)
            self._entries.append((*place, number, block.rows, block.page_rows, base))
        if not form.streams:
            # The rows of a null type.
            self._piles_of.append(0)
            self._entries.append((0, 0, 0, 0, block.rows, block.page_rows, 0))
        for name, child in form.children.items():
            self._add_block(child, block.children[name], asked)

    def _encoded(self, stream: Stream) -> tuple[int, int]:
        """Return the number of a stream's encoding, and its base."""
        if stream.encoding is None:
            return 0, 0
        parameters, base = stream.encoding.shared()
        if stream.pages is not None:
            base = sum(stream.pages)
        form = {"dtype": stream.layout.dtype, "typesize": stream.layout.typesize}
        # Parameters are texts and numbers.
        line = tuple({"kind": stream.encoding.kind, **form, **parameters}.items())
        return self._encodings.setdefault(line, len(self._encodings) + 1), base

    def _place(self, stream: Stream, asked: CompressionOptions) -> tuple[int, tuple[int, int, int]]:
        """Return the index of a pile; the chunk in it, the first byte and the number of bytes."""
        if not stream.data.nbytes:
            return 0, (0, 0, 0)
        form, is_encoded = stream.layout, stream.encoding is not None
        key = (form.typesize, form.bits, form.shuffle, is_encoded, asked)
        pile = self._piles.get(key)
        if pile is None:
            pile = self._piles[key] = _Pile(len(self._piles), form, asked, stream.encoding)
        return pile.index, (*pile.add(stream.data), stream.data.nbytes)

    def pieces(self) -> list[ChunkInput]:
        """Return the chunks to compress; none if no part has entries."""
        if not self._entries:
            return []
        piles = [pile.chunks() for pile in self._piles.values()]
        lines = b"".join(jsontext.dumps(dict(line)) + b"\n" for line in self._encodings)
        entries = np.array(self._entries, ENTRY)
        firsts = [
            _cut(entries.view(np.uint8), ENTRY.itemsize, LZ4),
            _cut(np.frombuffer(lines, np.uint8), 1, LZ4HC),
        ]
        # Chunks are counted from the first one of the bundle.
        counts = list(accumulate(map(len, (*firsts, *piles))))
        held = entries["nbytes"] > 0
        entries["chunk"][held] += np.array(counts, "<u4")[1:][self._piles_of][held]
        self._table = entries
        names = (ENTRIES, ENCODINGS, *map(str, range(len(piles))))
        forms = [("|V32", ENTRY.itemsize), ("|u1", 1)]
        forms += [("|u1", pile.layout.typesize) for pile in self._piles.values()]
        self.streams = tuple(
            StreamInfo(name, *form, tuple(piece.data.nbytes for piece in pieces))
            for name, form, pieces in zip(names, forms, (*firsts, *piles), strict=True)
        )
        return [piece for pieces in (*firsts, *piles) for piece in pieces]

    def place(self, lengths: Sequence[int], cbytes: int) -> None:
        """Tell each part its first entry and its share of the bundle of `cbytes` bytes.

        `lengths` are the bytes of the chunks. The first part gets what no part has alone.
        """
        table = self._table
        chunks, nbytes = table["chunk"].astype(np.intp), table["nbytes"].astype(np.float64)
        whole = np.bincount(chunks, nbytes, len(lengths))
        shares = nbytes * np.array(lengths)[chunks] / np.maximum(whole[chunks], 1)
        firsts = [first for _, first in self._placed]
        of_parts = np.add.reduceat(shares, firsts).astype(np.int64) if len(shares) else shares
        of_parts[0] += cbytes - of_parts.sum()
        for (placed, first), share in zip(self._placed, of_parts.tolist(), strict=True):
            placed(first + 1, share)


def _cut(data: np.ndarray, typesize: int, compression: Compression) -> list[ChunkInput]:
    """Return chunks of a stream of whole items."""
    size = MAX_CHUNK_BYTES // typesize * typesize
    cuts = range(size, data.nbytes, size)
    parts = np.split(data, cuts) if data.nbytes else []
    return [ChunkInput(part, typesize, compression) for part in parts]
