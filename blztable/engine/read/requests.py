"""Rows of a part as requests for bytes of its streams; the requests read and decoded by chunk.

`SpanRows` are whole pages, decoded in place. `PickedRows` are single rows, picked out of the chunks
of their pages; the offsets of text items are located first, in a separate phase. Both have a method
for each phase of the reader (`columns.py`): locate the items, plan the pieces of the result, fill
them with bytes, settle the picked rows.

A child of a block (a dictionary) is read whole. Opens nothing and decodes nothing itself.

Chunk decoding: requested bytes of a stream, from the file to their sinks. A reader asks for ranges
of bytes of a stream: `ByteRequest(low, high, sink)`. `runs` finds the chunks that hold requested
bytes, and joins chunks that lie one after another in the file into a `Run` of about `run_bytes`.
`joined` makes tasks of runs; small runs share a task. A pool runs the tasks in any order and in any
thread. A task reads the bytes of a run by one call into memory of its thread. For each chunk it
compares the checksum, checks the header, decompresses, and passes the bytes to the sinks. If a sink
has an address and the whole chunk is requested, the chunk is decompressed in place. Otherwise it is
decompressed into memory of the thread, and each sink copies its rows; if these are few, only the
Blosc blocks that have them are decompressed. At the end of a run each sink checks the new bytes,
while they are in the cache. Each chunk is decompressed once, however many requests it serves. A
thread holds at most one run of compressed bytes and one chunk.
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
from blztable.engine.read.parts import BlockPlace, Part, StreamPlace
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
class Run:
    """Chunks that lie one after another in a file, and the requests for bytes of them.

    Attributes
    ----------
    part, place
        The part and the stream.
    requests
        The requests that have bytes in these chunks, in the order of their bytes.
    first, last
        The range of the chunks, as indices within the stream.
    begin
        The byte offset of the first of these chunks in the stream.
    """

    part: Part
    place: StreamPlace
    requests: Sequence[ByteRequest]
    first: int
    last: int
    begin: int

    @property
    def nbytes(self) -> int:
        """Return the uncompressed bytes of the chunks."""
        return sum(self.place.info.chunks[self.first : self.last])

    @property
    def cbytes(self) -> int:
        """Return the number of bytes of the chunks in the file."""
        first = self.place.first_chunk
        return self.part.offsets[first + self.last] - self.part.offsets[first + self.first]

    @property
    def cells(self) -> float:
        """Return the part's rows times the share of its bytes in this run, for the progress."""
        return self.part.cells * self.nbytes / max(self.part.nbytes, 1)

    @property
    def _is_picked(self) -> bool:
        """True if one sink takes all bytes, so that it knows which of them are needed."""
        return self.requests[0].sink is self.requests[-1].sink

    def decode(self) -> None:
        """Read the chunks, check and decompress each, and pass the bytes to the sinks."""
        part, place, requests = self.part, self.place, self.requests
        index = place.first_chunk + self.first
        offsets = part.offsets[index : place.first_chunk + self.last + 1]
        raw = scratch(offsets[-1] - offsets[0])
        assert part.reader is not None
        with part.error_context(place.name, self.first):
            if part.reader.read_into(offsets[0], raw) != len(raw):
                raise CorruptError(f"the file ends within the chunk at offset {offsets[0]}")
        checksum, digests, typesize = part.checksum, part.digests, place.info.typesize
        size, digest = checksum.size, checksum.digest
        begin, head = self.begin, 0
        for number, nbytes in enumerate(place.info.chunks[self.first : self.last]):
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
                with part.error_context(place.name, self.first + number):
                    raise
            begin = end
        with part.error_context(place.name, self.first):
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
class MadeRun(Run):
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
        step = tuning.current.run_bytes // self.place.layout.typesize * self.place.layout.typesize
        with self.part.error_context(self.place.name):
            for request in self.requests:
                for low in range(request.low, request.high, step):
                    high = min(low + step, request.high)
                    request.sink.take(low, np.broadcast_to(np.uint8(0), high - low))
                request.sink.finish(request.low, request.high)


@dataclass(frozen=True, slots=True)
class BundledRun(Run):
    """Requested bytes of a stream that lies in one chunk of a bundle, beside other streams."""

    @property
    def slot(self) -> tuple[int, int]:
        """The chunk, and the first byte of the stream in it."""
        return self.part.slots[self.place.first_chunk]

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
        with self.part.error_context(self.place.name):
            _give(self.requests, 0, 0, contents[start : start + nbytes])
            for request in self.requests:
                request.sink.finish(0, nbytes)


@dataclass(frozen=True, slots=True)
class _BundledRuns:
    """The runs of all streams that lie in one chunk of a bundle, which is decompressed once."""

    runs: Sequence[BundledRun]

    @property
    def part(self) -> Part:
        """Return one of the parts."""
        return self.runs[0].part

    @property
    def nbytes(self) -> int:
        """Return the uncompressed bytes of the streams."""
        return sum(one.nbytes for one in self.runs)

    @property
    def cells(self) -> float:
        """Return the sum for all streams."""
        return sum(one.cells for one in self.runs)

    def decode(self) -> None:
        """Read the chunk, check and decompress it, and pass each stream to its sinks."""
        first = self.runs[0]
        assert first.part.bundle is not None
        with first.part.error_context(first.place.name, first.slot[0]):
            contents = first.part.bundle.contents(first.slot[0])
        for one in self.runs:
            one.give(contents)


def runs(part: Part, place: StreamPlace, requests: Sequence[ByteRequest]) -> Iterator[Run]:
    """Yield the chunks of a stream that hold requested bytes, about `run_bytes` together.

    Requests are in the order of their bytes, none is empty, and they do not overlap.
    """
    if not requests:
        return
    if not place.has_chunks:
        yield MadeRun(part, place, requests, 0, 0, 0)
        return
    if part.bundle is not None:
        yield BundledRun(part, place, requests, 0, 1, 0)
        return
    # The open run: its first chunk, its byte offset, and its first request.
    first: int | None = None
    begin = head = 0
    # The request that contains the next byte, or else the next one; and the last request reached.
    request = last = at = index = 0
    ends, most = list(accumulate(place.info.chunks)), tuning.current.run_bytes
    while requests[-1].high > at:
        end = ends[index]
        while requests[request].high <= at:
            request += 1
        is_needed = requests[request].low < end
        if first is not None and (not is_needed or at - begin >= most):
            yield Run(part, place, requests[head : last + 1], first, index, begin)
            first = None
        if is_needed and first is None:
            first, begin, head = index, at, request
        while last + 1 < len(requests) and requests[last + 1].low < end:
            last += 1
        # A stream may have a million chunks.
        index = index + 1 if is_needed else bisect_right(ends, requests[request].low)
        at = ends[index - 1]
    if first is not None:
        yield Run(part, place, requests[head : last + 1], first, index, begin)


def joined(runs: Iterable[Run], progress: Progress | None = None) -> Iterator[Task]:
    """Yield tasks of one run, or of several small ones; first the runs that are in no bundle."""
    waiting: list[Run | _BundledRuns] = []
    bundled: dict[tuple[int, int], list[BundledRun]] = {}
    nbytes = 0

    def alone() -> Iterator[Run | _BundledRuns]:
        for one in runs:
            if isinstance(one, BundledRun):
                bundled.setdefault((id(one.part.bundle), one.slot[0]), []).append(one)
            else:
                yield one
        yield from map(_BundledRuns, bundled.values())

    for one in alone():
        waiting.append(one)
        nbytes += one.nbytes
        if nbytes >= tuning.current.read_task_bytes:
            yield partial(_decode_all, waiting, progress)
            waiting, nbytes = [], 0
    if waiting:
        yield partial(_decode_all, waiting, progress)


def _decode_all(runs: list[Run | _BundledRuns], progress: Progress | None) -> None:
    for one in runs:
        one.decode()
        if progress is not None:
            progress.add(one.cells)
    for one in runs:
        one.part.forget()


# Takes bytes that are only checked.
_CHECKED = Sink()


class PartRows:
    """The selected rows of one part."""

    def __init__(self, part: Part) -> None:
        """Remember the part; `plan` fills the pieces."""
        self.part = part
        self.pieces: list[Piece] = []

    def locate(self) -> Iterator[Run]:
        """Yield the runs to decode before the size of the rows is known; none for whole pages."""
        return iter(())

    def plan(self) -> None:
        """Describe the rows as `pieces`."""
        raise NotImplementedError

    def fill(self, decoder: Decoder | None, first: int) -> Iterator[Run]:
        """Yield the runs to decode; `first` is the index of the first piece in the decoder.

        Without a decoder, chunks are checked and dropped.
        """
        raise NotImplementedError

    def settle(self) -> None:
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

    def fill(self, decoder: Decoder | None, first: int) -> Iterator[Run]:
        """Yield the runs of every stream, in the order of the file."""
        root = self.part.root
        for name, place in root.streams.items():
            requests = []
            for number, span in enumerate(self._spans, first):
                low, high = place.range_of(span.start, span.stop)
                if place.layout.bits == 1 and span.start % 8:
                    low = span.start // 8
                    target = decoder.target(number, name) if decoder else None
                    sink = Shifted(target, span.start, span.count) if target else _CHECKED
                    requests.append(ByteRequest(low, high, place.decoding(sink)))
                elif low < high and isinstance(place.encoding, Dictionary):
                    sink = _items(place.encoding, span, decoder, number)
                    requests.append(ByteRequest(low, high, sink))
                elif low < high:
                    target = decoder.target(number, name) if decoder else None
                    first_value, _ = place.value_range(span.start, span.stop)
                    requests.append(ByteRequest(low, high, _memory(place, target, first_value)))
            yield from runs(self.part, place, requests)
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
        self._picked: list[tuple[StreamPlace, StreamBuffer, Callable[[], np.ndarray] | None]] = []

    def locate(self) -> Iterator[Run]:
        """Yield the runs of the item ends, if the rows are items."""
        root = self.part.root
        place = root.streams.get(ENDS)
        if place is not None and isinstance(place.encoding, Dictionary):
            self._ends = PickedItems(self._rows, place.encoding)
            yield from self._runs(place, self._ends)
        elif place is not None:
            values, width = root.streams[VALUES], place.layout.typesize
            bounds = (values.bound_rows, values.bounds)
            ends = self._ends = Ends(self._rows, width, root.rows, *bounds)
            yield from self._runs(place, place.decoding(ends))

    def plan(self) -> None:
        """Describe the rows as one piece, as if the part had no other rows."""
        ends, rows, sizes = self._ends, len(self._rows), {}
        if ends is not None:
            with self.part.error_context(self.part.root.streams[ENDS].name):
                ends.check()
        for name, place in self.part.root.streams.items():
            if place.layout.bits is not None:
                sizes[name] = place.layout.nbytes(rows)
            else:
                assert ends is not None
                sizes[name] = ends.nbytes
        children = _child_pieces(self.part.root)
        nan_is_null = self.part.root.nan_is_null
        self.pieces = [
            Piece(rows, sizes, page_rows=rows, children=children, nan_is_null=nan_is_null)
        ]

    def fill(self, decoder: Decoder | None, first: int) -> Iterator[Run]:
        """Yield the runs of every stream but the item ends, which are known."""
        root = self.part.root
        yield from _fill_children(self.part, root, decoder, first)
        for name, place in root.streams.items():
            if decoder is None:
                if name != ENDS:
                    yield from self._runs(place, _CHECKED)
                continue
            target = decoder.target(first, name)
            if self._ends is not None and name == ENDS:
                self._picked.append((place, target, self._ends.encode))
                continue
            if isinstance(self._ends, PickedItems) and name == VALUES:
                self._picked.append((place, target, self._ends.items))
                continue
            if place.encoding is not None and not place.has_chunks:
                self._picked.append((place, target, None))
                place.encoding.pick(self._rows, target.buffer, target.buffer)
                continue
            aside: Bits | Codes | Sums | None = None
            if place.layout.bits == 1:
                aside = Bits(self._rows)
            elif isinstance(place.encoding, Delta):
                aside = Sums(self._rows, place.encoding)
            elif place.encoding is not None and not place.encoding.needs_pages:
                aside = Codes(self._rows, place.encoding, place.layout.nbytes(1))
            self._picked.append((place, target, aside.encode if aside else None))
            sink = aside or place.decoding(self._within(place, target))
            is_items = isinstance(self._ends, Ends) and name == VALUES
            yield from self._items_runs(place, sink) if is_items else self._runs(place, sink)

    def _within(self, place: StreamPlace, target: StreamBuffer) -> Sink:
        """Return the sink that copies the rows into the target."""
        if place.layout.bits is not None:
            return Words(self._rows, place.layout.bits // 8, target.buffer)
        assert isinstance(self._ends, Ends)
        return Bytes(self._ends.starts, self._ends.ends, target.buffer)

    def settle(self) -> None:
        """Encode the picked rows of some sinks into their target, and check each target."""
        for place, target, make in self._picked:
            if make is not None:
                target.buffer[:] = make()
            if target.check is not None and len(target.buffer):
                with self.part.error_context(place.name):
                    target.check(0, len(target.buffer))

    def _runs(self, place: StreamPlace, sink: Sink) -> Iterator[Run]:
        """Yield the runs of the pages that have the rows."""
        ranges = (place.range_of(span.start, span.stop) for span in self._pages)
        requests = [ByteRequest(low, high, sink) for low, high in ranges if low < high]
        return runs(self.part, place, requests)

    def _items_runs(self, place: StreamPlace, sink: Sink) -> Iterator[Run]:
        """Yield the runs of the chunks that have the items: the rest of a page is not read."""
        assert isinstance(self._ends, Ends)
        filled = self._ends.starts < self._ends.ends
        starts, ends = self._ends.starts[filled], self._ends.ends[filled]
        if not len(starts):
            return iter(())
        bounds = np.array(place.bounds)
        if place.bound_rows > 1:
            bounds = np.cumsum([0, *place.info.chunks])
        first = np.searchsorted(bounds, starts, "right") - 1
        last = np.searchsorted(bounds, ends)
        # Items that share a chunk, or lie in adjacent ones, become one request.
        gaps = np.flatnonzero(first[1:] > last[:-1])
        lows, highs = bounds[first[[0, *(gaps + 1)]]], bounds[last[[*gaps, -1]]]
        requests = [
            ByteRequest(low, high, sink)
            for low, high in zip(lows.tolist(), highs.tolist(), strict=True)
        ]
        return runs(self.part, place, requests)


def _items(encoding: Dictionary, span: RowSpan, decoder: Decoder | None, number: int) -> ItemsSink:
    """Return the sink that makes the items of whole pages, or checks how many bytes they have."""
    pages = range(span.start // encoding.page_rows, -(-span.stop // encoding.page_rows))
    targets = (decoder.target(number, name) if decoder else None for name in (ENDS, VALUES))
    return ItemsSink(encoding, pages, *targets)


def _memory(place: StreamPlace, target: StreamBuffer | None, low: int) -> Sink:
    if target is None:
        return _CHECKED
    if target.valid is not None and isinstance(place.encoding, Scaled):
        one, unit = place.encoding, 8 * place.encoding.stored.nbytes(1)
        if one.has_all_nans and not any(nbytes % unit for nbytes in place.info.chunks[:-1]):
            return DecodingNulls(
                one, Memory(StreamBuffer(target.buffer), low), target.valid, low // 8
            )
    if place.encoding is None or place.layout.name != ENDS:
        return place.decoding(Memory(target, low))
    # Ends that are made of lengths ascend, and fill their pages.
    return place.decoding(Memory(StreamBuffer(target.buffer), low), target.shift)


def _child_pieces(block: BlockPlace) -> dict[str, Piece]:
    """Describe the children of a block, which are read whole; all pieces of a part share them."""
    return {
        name: Piece(
            child.rows,
            {stream: place.nbytes for stream, place in child.streams.items()},
            children=_child_pieces(child),
        )
        for name, child in block.children.items()
    }


def _fill_children(
    part: Part, block: BlockPlace, decoder: Decoder | None, number: int
) -> Iterator[Run]:
    """Yield the runs of all children, which the pieces of one part share."""
    for name, child in block.children.items():
        below, index = decoder.child(number, name) if decoder else (None, 0)
        for stream, place in child.streams.items():
            if place.decoded:
                target = below.target(index, stream) if below else None
                request = ByteRequest(0, place.decoded, _memory(place, target, 0))
                yield from runs(part, place, [request])
        yield from _fill_children(part, child, below, index)


def _piece_of_pages(block: BlockPlace, span: RowSpan, children: dict[str, Piece]) -> Piece:
    """Describe whole pages of a block."""
    page_rows = block.page_rows
    sizes, first_byte, items = {}, 0, 0
    pages: tuple[int, ...] = ()
    for name, place in block.streams.items():
        low, high = place.value_range(span.start, span.stop)
        if place.layout.dtype == ROWS:
            items = high - low
        elif place.layout.bits == 1:
            sizes[name] = place.layout.nbytes(span.count)
        else:
            sizes[name] = high - low
        if place.info.pages is not None:
            first_byte = low
        if place.info.pages is not None and place.bound_rows == page_rows:
            pages = place.info.pages[span.start // page_rows : -(-span.stop // page_rows)]
    return Piece(
        span.count, sizes, first_byte, page_rows, pages, children, block.nan_is_null, items
    )
