"""Chunk decoding: requested bytes of a stream, from the file to their sinks.

Theory of operation. A reader asks for ranges of bytes of a stream: `ByteRequest(low, high, sink)`.
`runs` finds the chunks that hold requested bytes, and joins chunks that lie one after another in
the file into a `Run` of about `RUN_BYTES`. `joined` makes tasks of runs; small runs share a task.
A pool runs the tasks in any order and in any thread. A task reads the bytes of a run by one call
into memory of its thread. For each chunk it compares the checksum, checks the header, decompresses,
and passes the bytes to the sinks. If a sink has an address and the whole chunk is requested, the
chunk is decompressed in place. Otherwise it is decompressed into memory of the thread, and each
sink copies its rows; if these are few, only the Blosc blocks that have them are decompressed. At
the end of a run each sink checks the new bytes, while they are in the cache. Each chunk is
decompressed once, however many requests it serves.

A thread holds at most one run of compressed bytes and one chunk. Knows nothing of columns, and rows
only as a count for the progress.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import numpy as np

from blztable.columns.sinks import Sink
from blztable.engine.read.parts import Part, StreamPlace
from blztable.engine.run.pool import Task, scratch
from blztable.engine.run.progress import Progress
from blztable.errors import BlzError, CorruptError
from blztable.format.chunk import (
    LARGE_CHUNK_BYTES,
    decompress_blocks,
    decompress_into,
)

# Uncompressed bytes that are read by one call, if they lie together.
RUN_BYTES = 2 << 20
# Smaller runs share a task, because a task costs some 20 microseconds of Python.
TASK_BYTES = 1 << 18
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
        step = RUN_BYTES // self.place.layout.typesize * self.place.layout.typesize
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
    """Yield the chunks of a stream that hold requested bytes, about `RUN_BYTES` together.

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
    ends = list(accumulate(place.info.chunks))
    while requests[-1].high > at:
        end = ends[index]
        while requests[request].high <= at:
            request += 1
        is_needed = requests[request].low < end
        if first is not None and (not is_needed or at - begin >= RUN_BYTES):
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
        if nbytes >= TASK_BYTES:
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
