"""Runs of chunks on their way from a file to the memory of the result.

Chunks that lie one after another are read together, each is compared with its checksum and header
and decompressed to its place, and what was decoded is checked while it is warm. A chunk is
decompressed once, however many of the goals have bytes of it.

Knows nothing of columns, and of rows only what a progress is told in.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from blztable.columns.blocks import Target
from blztable.columns.sinks import Accept
from blztable.engine.read.parts import OpenedPart, StreamPlace
from blztable.engine.run.progress import Progress
from blztable.engine.run.scratch import scratch
from blztable.engine.run.tasks import Task
from blztable.errors import BlzError, CorruptError
from blztable.format.chunk import decompress_into

# Uncompressed bytes that are read together, if they lie together.
RUN_BYTES = 2 << 20
# Tasks of less than this are joined, for a task costs some 20 microseconds of Python.
TASK_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Goal:
    """Bytes of a stream that are wanted, and where they go."""

    low: int
    high: int
    # None where it is only to be seen whether the chunks hold what they claim.
    target: Target | None = None
    # Instead of a target: what takes something out of each chunk. All goals of a run have the same.
    accept: Accept | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """Chunks that lie one after another in a file, and the goals that have bytes of them."""

    part: OpenedPart
    stream: str
    place: StreamPlace
    goals: Sequence[Goal]
    # Numbers of the chunks within the stream.
    first: int
    last: int
    # Where the first of these chunks begins in the stream.
    begin: int

    @property
    def nbytes(self) -> int:
        """Uncompressed bytes of the chunks."""
        return sum(self.place.info.chunks[self.first : self.last])

    @property
    def extent(self) -> tuple[int, int]:
        """Where the chunks begin and end in the file."""
        number = self.place.first_chunk
        return self.part.offsets[number + self.first], self.part.offsets[number + self.last]

    @property
    def cells(self) -> float:
        """The share that these bytes are of the part's rows."""
        return self.part.rows * self.nbytes / max(self.part.nbytes, 1)

    def decode(self) -> None:
        """Read the chunks, check and decompress each to its place, check what they hold."""
        part, place = self.part, self.place
        number = place.first_chunk + self.first
        offsets = part.offsets[number : place.first_chunk + self.last + 1]
        raw = scratch(offsets[-1] - offsets[0])
        with part.error_context(self.stream, self.first):
            if part.reader().read_into(offsets[0], raw) != len(raw):
                raise CorruptError(f"the file ends within the chunk, at {offsets[0]}")
        size, typesize = part.checksum.size, place.info.typesize
        digest, digests = part.checksum.digest, part.digests
        addresses = [
            goal.target.buffer.ctypes.data - goal.low if goal.target else 0 for goal in self.goals
        ]
        begin, at_goal = self.begin, 0
        for index, nbytes in enumerate(place.info.chunks[self.first : self.last]):
            chunk = raw[offsets[index] - offsets[0] : offsets[index + 1] - offsets[0] - size]
            at = (number + index) * size
            while self.goals[at_goal].high <= begin:
                at_goal += 1
            goal = self.goals[at_goal]
            try:
                if digest(chunk) != digests[at : at + size]:
                    raise CorruptError(
                        f"{part.checksum.name} is {digest(chunk).hex()}, "
                        f"expected {digests[at : at + size].hex()}"
                    )
                if goal.accept is not None:
                    whole = self._decompressed(chunk, nbytes)
                    goal.accept(begin, whole)
                elif goal.target and goal.low <= begin and begin + nbytes <= goal.high:
                    decompress_into(chunk, typesize, addresses[at_goal] + begin, nbytes)
                else:
                    self._decode_some(chunk, begin, nbytes, self.goals[at_goal:])
            except BlzError:
                with part.error_context(self.stream, self.first + index):
                    raise
            begin += nbytes
        for goal in self.goals:
            if goal.target and goal.target.check is not None:
                with part.error_context(self.stream, self.first):
                    start, stop = max(self.begin, goal.low), min(begin, goal.high)
                    goal.target.check(start - goal.low, stop - goal.low)

    def _decode_some(
        self, chunk: memoryview, begin: int, nbytes: int, goals: Sequence[Goal]
    ) -> None:
        """Decompress aside, and keep the bytes that are wanted."""
        whole = self._decompressed(chunk, nbytes)
        for goal in goals:
            if goal.low >= begin + nbytes:
                return
            if goal.target is not None:
                start, stop = max(begin, goal.low), min(begin + nbytes, goal.high)
                wanted = whole[start - begin : stop - begin]
                goal.target.buffer[start - goal.low : stop - goal.low] = wanted

    def _decompressed(self, chunk: memoryview, nbytes: int) -> np.ndarray:
        """The bytes of a chunk, in memory of this thread; the next one takes their place."""
        whole = np.frombuffer(scratch(nbytes, 1), np.uint8)
        decompress_into(chunk, self.place.info.typesize, whole.ctypes.data, nbytes)
        return whole


def runs(part: OpenedPart, stream: str, goals: Sequence[Goal]) -> Iterator[Run]:
    """The chunks of a stream that hold bytes of the goals, some `RUN_BYTES` together.

    Goals are in the order of their bytes, none empty, and do not overlap.
    """
    if not goals:
        return
    place = part.streams[stream]
    # The run that is open, its first chunk, the byte it begins at, and its first goal.
    first: int | None = None
    begin = head = 0
    # The goal that the next byte is for, or the next one; and the last one that has been reached.
    goal = last = at = 0
    for index, size in enumerate(place.info.chunks):
        end = at + size
        while goals[goal].high <= at:
            goal += 1
        is_needed = goals[goal].low < end
        if first is not None and (not is_needed or at - begin >= RUN_BYTES):
            yield Run(part, stream, place, goals[head : last + 1], first, index, begin)
            first = None
        if is_needed and first is None:
            first, begin, head = index, at, goal
        while last + 1 < len(goals) and goals[last + 1].low < end:
            last += 1
        if goals[-1].high <= end:
            break
        at = end
    if first is not None:
        yield Run(part, stream, place, goals[head : last + 1], first, index + 1, begin)


def joined(runs: Iterable[Run], progress: Progress | None = None) -> Iterator[Task]:
    """Tasks of one run, or of several small ones."""
    waiting: list[Run] = []
    nbytes = 0
    for one in runs:
        waiting.append(one)
        nbytes += one.nbytes
        if nbytes >= TASK_BYTES:
            yield partial(_decode_all, waiting, progress)
            waiting, nbytes = [], 0
    if waiting:
        yield partial(_decode_all, waiting, progress)


def _decode_all(runs: list[Run], progress: Progress | None) -> None:
    for one in runs:
        one.decode()
        if progress is not None:
            progress.add(one.cells)
    for one in runs:
        one.part.forget()
