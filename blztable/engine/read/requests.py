"""Rows of a part as requests for bytes of its streams; the requests read and decoded by chunk.

`SpanRows` are whole pages, decoded in place. `PickedRows` are single rows, picked out of the chunks
of their pages; the offsets of text items are located first, in a separate phase. Both have a method
for each phase of the reader (`phases.py`): locate the items, plan the pieces of the result, fill
them with bytes, copy the picked rows out.

A child of a block (a dictionary) is read whole. Opens nothing and decodes nothing itself.

Chunk decoding: requested bytes of a stream, from the file to their sinks. A reader asks for ranges
of bytes of a stream: `ByteRequest(low, high, sink)`. `chunk_spans` finds the chunks that hold
requested bytes, and joins chunks that lie one after another in the file into a `ChunkSpan` of about
`span_bytes`. `joined` makes tasks of spans; small spans share a task. A pool runs the tasks in any
order and in any thread. A task reads the bytes of a span by one call into memory of its thread. For
each chunk it compares the checksum, checks the header, decompresses, and passes the bytes to the
sinks. If a sink has an address and the whole chunk is requested, the chunk is decompressed in
place. Otherwise it is decompressed into memory of the thread, and each sink copies its rows; if
these are few, only the Blosc blocks that have them are decompressed. At the end of a span each sink
checks the new bytes, while they are in the cache. Each chunk is decompressed once, however many
requests it serves. A thread holds at most one span of compressed bytes and one chunk.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import numpy as np

from blztable import tuning
from blztable.block_terms import ENDS, VALUES
from blztable.columns.blocks import Decoder, Piece, StreamBuffer
from blztable.columns.codecs.lists import ROWS
from blztable.columns.encodings.dictionary import Dictionary
from blztable.columns.encodings.numbers import Delta, Scaled
from blztable.columns.sinks import (
    Bits,
    Bytes,
    Codes,
    DecodingNulls,
    Ends,
    ItemsSink,
    Memory,
    PickedItems,
    Shifted,
    Sink,
    Sums,
    Words,
)
from blztable.engine.read.parts import BlockSpec, Part, StreamSpec
from blztable.engine.read.selection import RowSpan
from blztable.engine.run.pool import Progress, Task, scratch
from blztable.errors import BlzError, CorruptError
from blztable.format.chunk import (
    LARGE_CHUNK_BYTES,
    decompress_blocks,
    decompress_into,
)

# If a sink needs more ranges of a chunk, it is not worth while to look which blocks have them.
FEW_RANGES = 1 << 10


@dataclass(frozen=True, slots=True)
class ByteRequest:
    """The bytes of a stream from `low` to `high`, and the sink that takes them."""

    low: int
    high: int
    sink: Sink


@dataclass(frozen=True, slots=True)
class ChunkSpan:
    """Chunks that lie one after another in a file, and the requests for bytes of them.

    Attributes
    ----------
    part, spec
        The part and the stream.
    requests
        The requests that have bytes in these chunks, in the order of their bytes.
    first, last
        The range of the chunks, as indices within the stream.
    begin
        The byte offset of the first of these chunks in the stream.
    """

    part: Part
    spec: StreamSpec
    requests: Sequence[ByteRequest]
    first: int
    last: int
    begin: int

    @property
    def nbytes(self) -> int:
        """Return the uncompressed bytes of the chunks."""
        return sum(self.spec.info.chunks[self.first : self.last])

    @property
    def cbytes(self) -> int:
        """Return the number of bytes of the chunks in the file."""
        first = self.spec.first_chunk
        return self.part.offsets[first + self.last] - self.part.offsets[first + self.first]

    @property
    def cells(self) -> float:
        """Return the part's rows times the share of its bytes in this span, for the progress."""
        return self.part.cells * self.nbytes / max(self.part.nbytes, 1)

    @property
    def _is_picked(self) -> bool:
        """True if one sink takes all bytes, so that it knows which of them are needed."""
        return self.requests[0].sink is self.requests[-1].sink

    def decode(self) -> None:
        """Read the chunks, check and decompress each, and pass the bytes to the sinks."""
        part, spec, requests = self.part, self.spec, self.requests
        index = spec.first_chunk + self.first
        offsets = part.offsets[index : spec.first_chunk + self.last + 1]
        raw = scratch(offsets[-1] - offsets[0])
        assert part.reader is not None
        with part.error_context(spec.name, self.first):
            if part.reader.read_into(offsets[0], raw) != len(raw):
                raise CorruptError(f"the file ends within the chunk at offset {offsets[0]}")
        checksum, digests, typesize = part.checksum, part.digests, spec.info.typesize
        size, digest = checksum.size, checksum.digest
        begin, head = self.begin, 0
        for number, nbytes in enumerate(spec.info.chunks[self.first : self.last]):
            chunk = raw[offsets[number] - offsets[0] : offsets[number + 1] - offsets[0] - size]
            if not nbytes:
                continue  # An empty item: its chunk says nothing.
            at, end = (index + number) * size, begin + nbytes
            while requests[head].high <= begin:
                head += 1
            request = requests[head]
            address = request.sink.address
            try:
                if digest(chunk) != digests[at : at + size]:
                    raise CorruptError(
                        f"{checksum.name} is {digest(chunk).hex()}, "
                        f"expected {digests[at : at + size].hex()}"
                    )
                if address is not None and request.low <= begin and end <= request.high:
                    decompress_into(chunk, typesize, address + begin, nbytes, LARGE_CHUNK_BYTES)
                else:
                    whole = np.frombuffer(scratch(nbytes, 1), np.uint8)
                    needed = request.sink.needed(begin, end) if self._is_picked else None
                    if needed is None or len(needed[0]) > FEW_RANGES:
                        decompress_into(
                            chunk, typesize, whole.ctypes.data, nbytes, LARGE_CHUNK_BYTES
                        )
                    else:
                        decompress_blocks(chunk, typesize, whole, *needed, LARGE_CHUNK_BYTES)
                    _give(requests, head, begin, whole)
            except BlzError:
                with part.error_context(spec.name, self.first + number):
                    raise
            begin = end
        with part.error_context(spec.name, self.first):
            for request in requests:
                request.sink.finish(self.begin, begin)


def _give(requests: Sequence[ByteRequest], head: int, begin: int, whole: np.ndarray) -> None:
    """Pass a chunk once to each sink whose requests, from `head` on, have bytes of it."""
    end, before = begin + len(whole), None
    for request in requests[head:] if head else requests:
        if request.low >= end:
            return
        if request.sink is not before:
            before = request.sink
            before.take(begin, whole)


@dataclass(frozen=True, slots=True)
class MadeSpan(ChunkSpan):
    """Requested bytes of a stream without chunks, whose encoding makes them of nothing."""

    @property
    def nbytes(self) -> int:
        """Return the requested bytes."""
        return sum(request.high - request.low for request in self.requests)

    @property
    def cbytes(self) -> int:
        """Return 0."""
        return 0

    def decode(self) -> None:
        """Pass zeros to the sinks, which decode them."""
        step = tuning.current.span_bytes // self.spec.layout.typesize * self.spec.layout.typesize
        with self.part.error_context(self.spec.name):
            for request in self.requests:
                for low in range(request.low, request.high, step):
                    high = min(low + step, request.high)
                    request.sink.take(low, np.broadcast_to(np.uint8(0), high - low))
                request.sink.finish(request.low, request.high)


@dataclass(frozen=True, slots=True)
class BundledSpan(ChunkSpan):
    """Requested bytes of a stream that lies in one chunk of a bundle, beside other streams."""

    @property
    def slot(self) -> tuple[int, int]:
        """The chunk, and the first byte of the stream in it."""
        return self.part.slots[self.spec.first_chunk]

    @property
    def cbytes(self) -> int:
        """Return the share of the chunk's bytes in the file that the stream has."""
        assert self.part.bundle is not None
        chunk, _ = self.slot
        offsets, size = self.part.bundle.superchunk.offsets, self.part.bundle.sizes[chunk]
        return (offsets[chunk + 1] - offsets[chunk]) * self.nbytes // size

    def give(self, contents: np.ndarray) -> None:
        """Pass the stream's bytes of a chunk to the sinks."""
        start, nbytes = self.slot[1], self.nbytes
        with self.part.error_context(self.spec.name):
            _give(self.requests, 0, 0, contents[start : start + nbytes])
            for request in self.requests:
                request.sink.finish(0, nbytes)


@dataclass(frozen=True, slots=True)
class _BundledSpans:
    """The spans of all streams that lie in one chunk of a bundle, which is decompressed once."""

    spans: Sequence[BundledSpan]

    @property
    def part(self) -> Part:
        """Return one of the parts."""
        return self.spans[0].part

    @property
    def nbytes(self) -> int:
        """Return the uncompressed bytes of the streams."""
        return sum(one.nbytes for one in self.spans)

    @property
    def cells(self) -> float:
        """Return the sum for all streams."""
        return sum(one.cells for one in self.spans)

    def decode(self) -> None:
        """Read the chunk, check and decompress it, and pass each stream to its sinks."""
        first = self.spans[0]
        assert first.part.bundle is not None
        with first.part.error_context(first.spec.name, first.slot[0]):
            contents = first.part.bundle.contents(first.slot[0])
        for one in self.spans:
            one.give(contents)


def chunk_spans(
    part: Part, spec: StreamSpec, requests: Sequence[ByteRequest]
) -> Iterator[ChunkSpan]:
    """Yield the chunks of a stream that hold requested bytes, about `span_bytes` together.

    Requests are in the order of their bytes, none is empty, and they do not overlap.
    """
    if not requests:
        return
    if not spec.has_chunks:
        yield MadeSpan(part, spec, requests, 0, 0, 0)
        return
    if part.bundle is not None:
        yield BundledSpan(part, spec, requests, 0, 1, 0)
        return
    # The open span: its first chunk, its byte offset, and its first request.
    first: int | None = None
    begin = head = 0
    # The request that contains the next byte, or else the next one; and the last request reached.
    request = last = at = index = 0
    ends, most = list(accumulate(spec.info.chunks)), tuning.current.span_bytes
    while requests[-1].high > at:
        end = ends[index]
        while requests[request].high <= at:
            request += 1
        is_needed = requests[request].low < end
        if first is not None and (not is_needed or at - begin >= most):
            yield ChunkSpan(part, spec, requests[head : last + 1], first, index, begin)
            first = None
        if is_needed and first is None:
            first, begin, head = index, at, request
        while last + 1 < len(requests) and requests[last + 1].low < end:
            last += 1
        # A stream may have a million chunks.
        index = index + 1 if is_needed else bisect_right(ends, requests[request].low)
        at = ends[index - 1]
    if first is not None:
        yield ChunkSpan(part, spec, requests[head : last + 1], first, index, begin)


def joined(spans: Iterable[ChunkSpan], progress: Progress | None = None) -> Iterator[Task]:
    """Yield tasks of one span, or of several small ones; first the spans that are in no bundle."""
    waiting: list[ChunkSpan | _BundledSpans] = []
    bundled: dict[tuple[int, int], list[BundledSpan]] = {}
    nbytes = 0

    def alone() -> Iterator[ChunkSpan | _BundledSpans]:
        for one in spans:
            if isinstance(one, BundledSpan):
                bundled.setdefault((id(one.part.bundle), one.slot[0]), []).append(one)
            else:
                yield one
        yield from map(_BundledSpans, bundled.values())

    for one in alone():
        waiting.append(one)
        nbytes += one.nbytes
        if nbytes >= tuning.current.read_task_bytes:
            yield partial(_decode_all, waiting, progress)
            waiting, nbytes = [], 0
    if waiting:
        yield partial(_decode_all, waiting, progress)


def _decode_all(spans: list[ChunkSpan | _BundledSpans], progress: Progress | None) -> None:
    for one in spans:
        one.decode()
        if progress is not None:
            progress.add(one.cells)
    for one in spans:
        one.part.forget()


# Takes bytes that are only checked.
_CHECKED = Sink()


class PartRows:
    """The selected rows of one part."""

    def __init__(self, part: Part) -> None:
        """Remember the part; `plan` fills the pieces."""
        self.part = part
        self.pieces: list[Piece] = []

    def locate(self) -> Iterator[ChunkSpan]:
        """Yield the spans to decode before the size of the rows is known; none for whole pages."""
        return iter(())

    def plan(self) -> None:
        """Describe the rows as `pieces`."""
        raise NotImplementedError

    def fill(self, decoder: Decoder | None, first: int) -> Iterator[ChunkSpan]:
        """Yield the spans to decode; `first` is the index of the first piece in the decoder.

        Without a decoder, chunks are checked and dropped.
        """
        raise NotImplementedError

    def copy_out(self) -> None:
        """Copy the picked rows into the targets, and check them; pages are there already."""


class SpanRows(PartRows):
    """Whole pages of a part."""

    def __init__(self, part: Part, spans: Sequence[RowSpan]) -> None:
        """Remember the rows."""
        super().__init__(part)
        self._spans = spans

    @property
    def is_whole(self) -> bool:
        """True if these are all rows of the part."""
        return len(self._spans) == 1 and self._spans[0].count == self.part.rows

    def plan(self) -> None:
        """Describe each span as a piece."""
        root, children = self.part.root, _child_pieces(self.part.root)
        self.pieces = [_piece_of_pages(root, span, children) for span in self._spans]

    def fill(self, decoder: Decoder | None, first: int) -> Iterator[ChunkSpan]:
        """Yield the spans of every stream, in the order of the file."""
        root = self.part.root
        for name, spec in root.streams.items():
            requests = []
            for number, span in enumerate(self._spans, first):
                low, high = spec.range_of(span.start, span.stop)
                if spec.layout.bits == 1 and span.start % 8:
                    low = span.start // 8
                    target = decoder.target(number, name) if decoder else None
                    sink = Shifted(target, span.start, span.count) if target else _CHECKED
                    requests.append(ByteRequest(low, high, spec.decoding(sink)))
                elif low < high and isinstance(spec.encoding, Dictionary):
                    sink = _items(spec.encoding, span, decoder, number)
                    requests.append(ByteRequest(low, high, sink))
                elif low < high:
                    target = decoder.target(number, name) if decoder else None
                    first_value, _ = spec.value_range(span.start, span.stop)
                    requests.append(ByteRequest(low, high, _memory(spec, target, first_value)))
            yield from chunk_spans(self.part, spec, requests)
        yield from _fill_children(self.part, root, decoder, first)


class PickedRows(PartRows):
    """Single rows of a part, in ascending order."""

    def __init__(self, part: Part, rows: np.ndarray, pages: Sequence[RowSpan]) -> None:
        """Remember the rows and the pages that have them."""
        super().__init__(part)
        self._rows = rows
        self._pages = pages
        self._ends: Ends | PickedItems | None = None
        # Each target, and the function that makes its bytes if they are not there already.
        self._picked: list[tuple[StreamSpec, StreamBuffer, Callable[[], np.ndarray] | None]] = []

    def locate(self) -> Iterator[ChunkSpan]:
        """Yield the spans of the item ends, if the rows are items."""
        root = self.part.root
        spec = root.streams.get(ENDS)
        if spec is not None and isinstance(spec.encoding, Dictionary):
            self._ends = PickedItems(self._rows, spec.encoding)
            yield from self._spans(spec, self._ends)
        elif spec is not None:
            values, width = root.streams[VALUES], spec.layout.typesize
            bounds = (values.bound_rows, values.bounds)
            ends = self._ends = Ends(self._rows, width, root.rows, *bounds)
            yield from self._spans(spec, spec.decoding(ends))

    def plan(self) -> None:
        """Describe the rows as one piece, as if the part had no other rows."""
        ends, rows, sizes = self._ends, len(self._rows), {}
        if ends is not None:
            with self.part.error_context(self.part.root.streams[ENDS].name):
                ends.check()
        for name, spec in self.part.root.streams.items():
            if spec.layout.bits is not None:
                sizes[name] = spec.layout.nbytes(rows)
            else:
                assert ends is not None
                sizes[name] = ends.nbytes
        children = _child_pieces(self.part.root)
        nan_is_null = self.part.root.nan_is_null
        self.pieces = [
            Piece(rows, sizes, page_rows=rows, children=children, nan_is_null=nan_is_null)
        ]

    def fill(self, decoder: Decoder | None, first: int) -> Iterator[ChunkSpan]:
        """Yield the spans of every stream but the item ends, which are known."""
        root = self.part.root
        yield from _fill_children(self.part, root, decoder, first)
        for name, spec in root.streams.items():
            if decoder is None:
                if name != ENDS:
                    yield from self._spans(spec, _CHECKED)
                continue
            target = decoder.target(first, name)
            if self._ends is not None and name == ENDS:
                self._picked.append((spec, target, self._ends.encode))
                continue
            if isinstance(self._ends, PickedItems) and name == VALUES:
                self._picked.append((spec, target, self._ends.items))
                continue
            if spec.encoding is not None and not spec.has_chunks:
                self._picked.append((spec, target, None))
                spec.encoding.pick(self._rows, target.buffer, target.buffer)
                continue
            aside: Bits | Codes | Sums | None = None
            if spec.layout.bits == 1:
                aside = Bits(self._rows)
            elif isinstance(spec.encoding, Delta):
                aside = Sums(self._rows, spec.encoding)
            elif spec.encoding is not None and not spec.encoding.needs_pages:
                aside = Codes(self._rows, spec.encoding, spec.layout.nbytes(1))
            self._picked.append((spec, target, aside.encode if aside else None))
            sink = aside or spec.decoding(self._within(spec, target))
            is_items = isinstance(self._ends, Ends) and name == VALUES
            yield from self._items_spans(spec, sink) if is_items else self._spans(spec, sink)

    def _within(self, spec: StreamSpec, target: StreamBuffer) -> Sink:
        """Return the sink that copies the rows into the target."""
        if spec.layout.bits is not None:
            return Words(self._rows, spec.layout.bits // 8, target.buffer)
        assert isinstance(self._ends, Ends)
        return Bytes(self._ends.starts, self._ends.ends, target.buffer)

    def copy_out(self) -> None:
        """Encode the picked rows of some sinks into their target, and check each target."""
        for spec, target, make in self._picked:
            if make is not None:
                target.buffer[:] = make()
            if target.check is not None and len(target.buffer):
                with self.part.error_context(spec.name):
                    target.check(0, len(target.buffer))

    def _spans(self, spec: StreamSpec, sink: Sink) -> Iterator[ChunkSpan]:
        """Yield the spans of the pages that have the rows."""
        ranges = (spec.range_of(span.start, span.stop) for span in self._pages)
        requests = [ByteRequest(low, high, sink) for low, high in ranges if low < high]
        return chunk_spans(self.part, spec, requests)

    def _items_spans(self, spec: StreamSpec, sink: Sink) -> Iterator[ChunkSpan]:
        """Yield the spans of the chunks that have the items: the rest of a page is not read."""
        assert isinstance(self._ends, Ends)
        filled = self._ends.starts < self._ends.ends
        starts, ends = self._ends.starts[filled], self._ends.ends[filled]
        if not len(starts):
            return iter(())
        bounds = np.array(spec.bounds)
        if spec.bound_rows > 1:
            bounds = np.cumsum([0, *spec.info.chunks])
        first = np.searchsorted(bounds, starts, "right") - 1
        last = np.searchsorted(bounds, ends)
        # Items that share a chunk, or lie in adjacent ones, become one request.
        gaps = np.flatnonzero(first[1:] > last[:-1])
        lows, highs = bounds[first[[0, *(gaps + 1)]]], bounds[last[[*gaps, -1]]]
        requests = [
            ByteRequest(low, high, sink)
            for low, high in zip(lows.tolist(), highs.tolist(), strict=True)
        ]
        return chunk_spans(self.part, spec, requests)


def _items(encoding: Dictionary, span: RowSpan, decoder: Decoder | None, number: int) -> ItemsSink:
    """Return the sink that makes the items of whole pages, or checks how many bytes they have."""
    pages = range(span.start // encoding.page_rows, -(-span.stop // encoding.page_rows))
    targets = (decoder.target(number, name) if decoder else None for name in (ENDS, VALUES))
    return ItemsSink(encoding, pages, *targets)


def _memory(spec: StreamSpec, target: StreamBuffer | None, low: int) -> Sink:
    if target is None:
        return _CHECKED
    if target.valid is not None and isinstance(spec.encoding, Scaled):
        one, unit = spec.encoding, 8 * spec.encoding.stored.nbytes(1)
        if one.has_all_nans and not any(nbytes % unit for nbytes in spec.info.chunks[:-1]):
            return DecodingNulls(
                one, Memory(StreamBuffer(target.buffer), low), target.valid, low // 8
            )
    if spec.encoding is None or spec.layout.name != ENDS:
        return spec.decoding(Memory(target, low))
    # Ends that are made of lengths ascend, and fill their pages.
    return spec.decoding(Memory(StreamBuffer(target.buffer), low), target.shift)


def _child_pieces(block: BlockSpec) -> dict[str, Piece]:
    """Describe the children of a block, which are read whole; all pieces of a part share them."""
    return {
        name: Piece(
            child.rows,
            {stream: spec.nbytes for stream, spec in child.streams.items()},
            children=_child_pieces(child),
        )
        for name, child in block.children.items()
    }


def _fill_children(
    part: Part, block: BlockSpec, decoder: Decoder | None, number: int
) -> Iterator[ChunkSpan]:
    """Yield the spans of all children, which the pieces of one part share."""
    for name, child in block.children.items():
        below, index = decoder.child(number, name) if decoder else (None, 0)
        for stream, spec in child.streams.items():
            if spec.decoded:
                target = below.target(index, stream) if below else None
                request = ByteRequest(0, spec.decoded, _memory(spec, target, 0))
                yield from chunk_spans(part, spec, [request])
        yield from _fill_children(part, child, below, index)


def _piece_of_pages(block: BlockSpec, span: RowSpan, children: dict[str, Piece]) -> Piece:
    """Describe whole pages of a block."""
    page_rows = block.page_rows
    sizes, first_byte, items = {}, 0, 0
    pages: tuple[int, ...] = ()
    for name, spec in block.streams.items():
        low, high = spec.value_range(span.start, span.stop)
        if spec.layout.dtype == ROWS:
            items = high - low
        elif spec.layout.bits == 1:
            sizes[name] = spec.layout.nbytes(span.count)
        else:
            sizes[name] = high - low
        if spec.info.pages is not None:
            first_byte = low
        if spec.info.pages is not None and spec.bound_rows == page_rows:
            pages = spec.info.pages[span.start // page_rows : -(-span.stop // page_rows)]
    return Piece(
        span.count, sizes, first_byte, page_rows, pages, children, block.nan_is_null, items
    )
