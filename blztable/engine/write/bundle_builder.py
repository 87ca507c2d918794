"""Bundle builder: the entries, encodings and chunks of a bundle.

A stream group has the streams of one form, one behind the other in chunks. A batch of parts is
added at once, as arrays. Neither encodes nor compresses.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import pyarrow as pa

from blztable.block_terms import VALUES
from blztable.columns.blocks import Block, Encoding, Stream, StreamLayout
from blztable.columns.encodings.batch import StreamBatch
from blztable.columns.types import layout_of
from blztable.engine.write.options import CompressionOptions
from blztable.engine.write.reuse import ChunkInput
from blztable.engine.write.trial import LZ4, LZ4HC, compression_of
from blztable.format import jsontext
from blztable.format.bundle import ALIGNMENT, ENCODINGS, ENTRIES, ENTRY
from blztable.format.chunk import MAX_CHUNK_BYTES, Compression
from blztable.format.metadata import StreamInfo

# A chunk is decompressed for one column, so it is smaller than in a file.
BUNDLE_CHUNK_BYTES = 256 << 10
# Names, numbers and punctuation of an encoding.
MOST_NAMES_BYTES = 512

# Takes the first entry of each part, from 1, and its share of the bytes in the file.
OnStored = Callable[[Sequence[int], Sequence[int]], None]


@dataclass(frozen=True, slots=True)
class BundledPart:
    """A part that goes to a bundle."""

    type: pa.DataType
    block: Block
    asked: CompressionOptions
    on_stored: OnStored


@dataclass(frozen=True, slots=True)
class PartBatch:
    """Parts of numbers without nulls that go to a bundle, encoded together."""

    type: pa.DataType
    rows: int
    page_rows: int
    streams: StreamBatch
    asked: CompressionOptions
    on_stored: OnStored


def directory_bytes(part: BundledPart | PartBatch) -> int | None:
    """Return the most bytes that this adds to `entries` and `encodings`.

    Return None for a part that no bundle takes: without bytes, or with more than a page or a chunk.
    """
    if isinstance(part, PartBatch):
        # Their columns have one page, and fewer bytes than a chunk may have.
        streams = part.streams
        count, encodings = len(streams.columns), [streams.encoding, *streams.odd.values()]
    elif part.block.rows and part.block.streams and _fits(part.block):
        count, encodings = 1, [stream.encoding for _, stream in part.block.walk()]
    else:
        return None
    parameters = [encoding.shared()[0] for encoding in encodings if encoding]
    texts = (one for some in parameters for one in some.values())
    nbytes = sum(len(one) for one in texts if isinstance(one, str))
    # A dictionary type has five streams, and the names and numbers of an encoding are short.
    return nbytes + 5 * ENTRY.itemsize * count + MOST_NAMES_BYTES * len(parameters)


def _fits(block: Block) -> bool:
    return (
        block.rows <= block.page_rows
        and all(stream.data.nbytes <= MAX_CHUNK_BYTES for stream in block.streams)
        and all(map(_fits, block.children.values()))
    )


class BundleBuilder:
    """The parts of a bundle: their entries, their encodings, and the groups of their streams."""

    def __init__(self, parts: Sequence[BundledPart | PartBatch]) -> None:
        # Entries, and the index of the group of each; each group counts its chunks by itself.
        self._entries: list[np.ndarray] = []
        self._groups_of: list[np.ndarray] = []
        self._encodings: dict[tuple[tuple[str, object], ...], int] = {}
        self._groups: dict[tuple[object, ...], _StreamGroup] = {}
        # Each callback, and the first entry of each of its parts.
        self._on_stored: list[tuple[OnStored, np.ndarray]] = []
        self._table = np.empty(0, ENTRY)
        self.streams: tuple[StreamInfo, ...] = ()
        self._add_blocks([part for part in parts if isinstance(part, BundledPart)])
        for part in parts:
            if isinstance(part, PartBatch):
                self._add_batch(part)

    def _add_blocks(self, parts: Iterable[BundledPart]) -> None:
        """Add parts, each with its entries in pre-order."""
        entries: list[tuple[int, ...]] = []
        groups_of: list[int] = []

        for part in parts:
            self._on_stored.append((part.on_stored, np.array([len(entries)])))
            self._add_block(part.type, part.block, part.asked, entries, groups_of)
        self._entries.append(np.array(entries, ENTRY))
        self._groups_of.append(np.array(groups_of, np.intp))

    def _add_block(
        self,
        type_: pa.DataType,
        block: Block,
        asked: CompressionOptions,
        entries: list[tuple[int, ...]],
        groups_of: list[int],
    ) -> None:
        """Add a block and those below it."""
        own, form = {one.layout.name: one for one in block.streams}, layout_of(type_)
        for name in form.streams:
            stream = own.get(name)
            group, chunk, start, nbytes, number, base = 0, 0, 0, 0, 0, 0
            if stream is not None:
                number, base = self._encoded(stream)
                nbytes = stream.data.nbytes
            if stream is not None and nbytes:
                found = self._group(stream.layout, stream.encoding, asked)
                group, (chunk, start) = found.index, found.add(stream.data)
            groups_of.append(group)
            entries.append((chunk, start, nbytes, number, block.rows, block.page_rows, base))
        if not form.streams:
            # The rows of a null type.
            groups_of.append(0)
            entries.append((0, 0, 0, 0, block.rows, block.page_rows, 0))
        for name, child in form.children.items():
            self._add_block(child, block.children[name], asked, entries, groups_of)

    def _add_batch(self, part: PartBatch) -> None:
        """Add a batch of parts; their other streams have no bytes."""
        streams, names = part.streams, list(layout_of(part.type).streams)
        entries = np.zeros((len(streams.columns), len(names)), ENTRY)
        groups_of = np.zeros(entries.shape, np.intp)
        entries["rows"], entries["page_rows"] = part.rows, part.page_rows
        own = names.index(VALUES)
        values = entries[:, own]
        values["nbytes"], values["base"] = streams.data.shape[1], streams.bases
        # There is no line of an encoding that no entry has.
        if streams.encoding is not None and len(streams.odd) < len(entries):
            values["encoding"] = self._number_of(
                streams.layout, streams.encoding.kind, streams.encoding.shared()[0]
            )
        for place, encoding in streams.odd.items():
            values["encoding"][place] = self._number_of(
                streams.layout, encoding.kind, encoding.shared()[0]
            )
        group = self._group(streams.layout, streams.encoding, part.asked)
        groups_of[:, own] = group.index
        values["chunk"], values["start"] = group.add_all(streams.data)
        first = sum(map(len, self._entries))
        self._on_stored.append((part.on_stored, first + len(names) * np.arange(len(entries))))
        self._entries.append(entries.reshape(-1))
        self._groups_of.append(groups_of.reshape(-1))

    def _encoded(self, stream: Stream) -> tuple[int, int]:
        """Return the number of a stream's encoding, and its base."""
        if stream.encoding is None:
            return 0, 0
        parameters, base = stream.encoding.shared()
        if stream.pages is not None:
            base = sum(stream.pages)
        return self._number_of(stream.layout, stream.encoding.kind, parameters), base

    def _number_of(self, form: StreamLayout, kind: str, parameters: Mapping[str, object]) -> int:
        """Return the number of an encoding of streams of this form, whatever its base is."""
        known = {"kind": kind, "dtype": form.dtype, "typesize": form.typesize}
        # Parameters are texts and numbers.
        line = tuple({**known, **parameters}.items())
        return self._encodings.setdefault(line, len(self._encodings) + 1)

    def _group(
        self, form: StreamLayout, encoding: Encoding | None, asked: CompressionOptions
    ) -> "_StreamGroup":
        """Return the group of streams of this form."""
        key = (form.typesize, form.bits, form.shuffle, encoding is not None, asked)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _StreamGroup(len(self._groups), form, asked, encoding)
        return group

    def pieces(self) -> list[ChunkInput]:
        """Return the chunks to compress; none if no part has entries."""
        entries = np.concatenate(self._entries)
        if not len(entries):
            return []
        groups = [group.chunks() for group in self._groups.values()]
        lines = b"".join(jsontext.dumps(dict(line)) + b"\n" for line in self._encodings)
        firsts = [
            _cut(entries.view(np.uint8), ENTRY.itemsize, LZ4),
            _cut(np.frombuffer(lines, np.uint8), 1, LZ4HC),
        ]
        # Chunks are counted from the first one of the bundle.
        counts = list(accumulate(map(len, (*firsts, *groups))))
        held, groups_of = entries["nbytes"] > 0, np.concatenate(self._groups_of)
        entries["chunk"][held] += np.array(counts, "<u4")[1:][groups_of][held]
        self._table = entries
        names = (ENTRIES, ENCODINGS, *map(str, range(len(groups))))
        forms = [("|V32", ENTRY.itemsize), ("|u1", 1)]
        forms += [("|u1", group.layout.typesize) for group in self._groups.values()]
        self.streams = tuple(
            StreamInfo(name, *form, tuple(piece.data.nbytes for piece in pieces))
            for name, form, pieces in zip(names, forms, (*firsts, *groups), strict=True)
        )
        return [piece for pieces in (*firsts, *groups) for piece in pieces]

    def report_stored(self, lengths: Sequence[int], cbytes: int) -> None:
        """Tell each part its first entry and its share of the bundle of `cbytes` bytes.

        `lengths` are the bytes of the chunks. The first part gets what no part has alone.
        """
        table = self._table
        chunks, nbytes = table["chunk"].astype(np.intp), table["nbytes"].astype(np.float64)
        whole = np.bincount(chunks, nbytes, len(lengths))
        shares = nbytes * np.array(lengths)[chunks] / np.maximum(whole[chunks], 1)
        firsts = np.concatenate([firsts for _, firsts in self._on_stored])
        of_parts = np.add.reduceat(shares, firsts).astype(np.int64)
        of_parts[0] += cbytes - of_parts.sum()
        begin = 0
        for on_stored, of_some in self._on_stored:
            end = begin + len(of_some)
            on_stored((of_some + 1).tolist(), of_parts[begin:end].tolist())
            begin = end


@dataclass(slots=True)
class _StreamGroup:
    """Streams of one form that are compressed together, and their chunks."""

    index: int
    layout: StreamLayout
    asked: CompressionOptions
    # The encoding of one of the streams.
    encoding: Encoding | None
    # The streams of each chunk as rows of matrices, and the bytes of the chunk.
    streams: list[list[np.ndarray]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def add(self, data: np.ndarray) -> tuple[int, int]:
        """Add a stream; return its chunk, counted in this group, and its first byte in the
        chunk.
        """
        nbytes = _rounded(data.nbytes, ALIGNMENT)
        chunk, start = self._room_for(nbytes)
        self.streams[chunk].append(data[None])
        self.sizes[chunk] += nbytes
        return chunk, start

    def add_all(self, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Add streams, the rows of a matrix, as `add` does; return their chunks and first bytes."""
        nbytes = _rounded(data.shape[1], ALIGNMENT)
        chunks, starts, first = [], [], 0
        while first < len(data):
            chunk, start = self._room_for(nbytes)
            some = data[first : first + max((BUNDLE_CHUNK_BYTES - start) // nbytes, 1)]
            self.streams[chunk].append(some)
            self.sizes[chunk] += nbytes * len(some)
            chunks.append(np.full(len(some), chunk))
            starts.append(np.arange(start, self.sizes[chunk], nbytes))
            first += len(some)
        return np.concatenate(chunks), np.concatenate(starts)

    def _room_for(self, nbytes: int) -> tuple[int, int]:
        """Return the chunk that the next bytes go to, and where they begin in it."""
        if not self.sizes or self.sizes[-1] + nbytes > BUNDLE_CHUNK_BYTES:
            self.sizes.append(0)
            self.streams.append([])
        return len(self.sizes) - 1, self.sizes[-1]

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
        rows, nbytes = data.shape
        begin, each = end, _rounded(nbytes, ALIGNMENT)
        end += rows * each
        chunk[begin:end].reshape(rows, each)[:, :nbytes] = data
    streams.clear()
    return chunk


def _rounded(nbytes: int, unit: int) -> int:
    return -(-nbytes // unit) * unit


def _cut(data: np.ndarray, typesize: int, compression: Compression) -> list[ChunkInput]:
    """Return chunks of a stream of whole items."""
    size = MAX_CHUNK_BYTES // typesize * typesize
    cuts = range(size, data.nbytes, size)
    parts = np.split(data, cuts) if data.nbytes else []
    return [ChunkInput(part, typesize, compression) for part in parts]
