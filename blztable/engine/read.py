"""Columns of a version decoded straight into the memory of the result, in threads.

The walk: open the parts (fronts and trailers), make room for the whole result, then read runs of
chunks, check each against its checksum and header, decompress it to its place, and check what was
decoded while it is warm. Text that is more than ASCII is looked at again when its item ends are
known to be sound. No chunk becomes an array of its own, nothing is concatenated.

Room is made for what the machine can hold, and not on the word of a few bytes: files that claim a
great deal more than they have are decoded aside first, to see that they mean it.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from blztable.columns.stream import DICTIONARY, VALID, VALUES, Decoder, Piece, Target
from blztable.columns.types import decoder, one_array
from blztable.engine.parts import OpenedPart, OpenParts, StreamPlace
from blztable.engine.progress import Progress
from blztable.engine.threads import Task, run, scratch
from blztable.engine.versions import Version
from blztable.errors import BlzError, CorruptError, LimitError
from blztable.format.chunk import decompress_into

# Uncompressed bytes that are read together, if they lie together.
RUN_BYTES = 2 << 20
# Tasks of less than this are joined, for a task costs some 20 microseconds of Python.
TASK_BYTES = 1 << 18
OPENED_AT_ONCE = 16
# A file is doubted that claims more than so many times its bytes. Only zstd gives as much, of data
# that hardly differ; such a file is decoded twice, if those of a read claim so much together.
DOUBTED_RATIO = 1 << 10
DOUBTED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Span:
    """Rows of one row group that are asked for."""

    group: int
    start: int
    stop: int


def spans(row_groups: Sequence[int], start: int, stop: int) -> list[Span]:
    """The rows from `start` to `stop` of the table, by row group."""
    result, first = [], 0
    for group, rows in enumerate(row_groups):
        low, high = max(start - first, 0), min(stop - first, rows)
        if low < high:
            result.append(Span(group, low, high))
        first += rows
    return result


def read_columns(
    version: Version,
    indices: Sequence[int],
    wanted: Sequence[Span],
    progress: Progress | None = None,
    parts: OpenParts | None = None,
) -> list[pa.ChunkedArray]:
    """The columns at these positions, of the rows wanted; `parts` has what was opened before.

    Raises
    ------
    CorruptError
        A file is missing or damaged; the message names it, the column and the chunk.
    LimitError
        The machine has not the memory that the result takes.
    """
    parts = parts or OpenParts(version)
    columns = [_Column(parts, index, wanted) for index in indices]
    run(task for column in columns for task in column.opening())
    for column in columns:
        column.plan()
    _check_memory(sum(column.nbytes for column in columns), version.store.name)
    doubted = [one for column in columns for one in column.doubted()]
    if sum(one.nbytes for one in doubted) > DOUBTED_BYTES:
        run(_joined(doubted))
    for column in columns:
        column.make_room()
    runs = (one for column in columns for one in column.runs())
    run(_joined(runs, progress), progress.tell if progress else None)
    run(task for column in columns for task in column.checks())
    return [column.finish() for column in columns]


def read_array(version: Version, index: int, wanted: Sequence[Span]) -> pa.Array:
    """The rows wanted of one column, as one array; SchemaError where they have no room in one."""
    return one_array(read_columns(version, [index], wanted)[0])


@dataclass(frozen=True, slots=True)
class _Run:
    """Chunks that lie one after another in a file, and the bytes of the stream they hold."""

    part: OpenedPart
    stream: str
    place: StreamPlace
    # None where it is only to be seen whether the chunks hold what they claim.
    target: Target | None
    # Numbers of the chunks within the stream.
    first: int
    last: int
    # Where the first of these chunks begins in the stream.
    begin: int
    # The bytes of the stream that are wanted.
    low: int
    high: int

    @property
    def nbytes(self) -> int:
        return sum(self.place.info.chunks[self.first : self.last])

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
        with part.blame(self.stream, self.first):
            if part.reader().read_into(offsets[0], raw) != len(raw):
                raise CorruptError(f"the file ends within the chunk, at {offsets[0]}")
        size, typesize = part.checksum.size, place.info.typesize
        digest, digests = part.checksum.digest, part.digests
        target = self.target
        address = target.buffer.ctypes.data - self.low if target else 0
        begin = self.begin
        for index, nbytes in enumerate(place.info.chunks[self.first : self.last]):
            chunk = raw[offsets[index] - offsets[0] : offsets[index + 1] - offsets[0] - size]
            at = (number + index) * size
            try:
                if digest(chunk) != digests[at : at + size]:
                    raise CorruptError(
                        f"{part.checksum.name} is {digest(chunk).hex()}, "
                        f"expected {digests[at : at + size].hex()}"
                    )
                if target and self.low <= begin and begin + nbytes <= self.high:
                    decompress_into(chunk, typesize, address + begin, nbytes)
                else:
                    self._decode_some(chunk, begin, nbytes)
            except BlzError:
                with part.blame(self.stream, self.first + index):
                    raise
            begin += nbytes
        if target and target.check is not None:
            with part.blame(self.stream, self.first):
                start, stop = max(self.begin, self.low), min(begin, self.high)
                target.check(start - self.low, stop - self.low)

    def _decode_some(self, chunk: memoryview, begin: int, nbytes: int) -> None:
        """Decompress aside, and keep the bytes that are wanted."""
        whole = np.empty(nbytes, np.uint8)
        decompress_into(chunk, self.place.info.typesize, whole.ctypes.data, nbytes)
        if self.target is None:
            return
        start, stop = max(begin, self.low), min(begin + nbytes, self.high)
        wanted = whole[start - begin : stop - begin]
        self.target.buffer[start - self.low : stop - self.low] = wanted


class _Column:
    """One column on its way from its parts to the result."""

    def __init__(self, parts: OpenParts, index: int, wanted: Sequence[Span]) -> None:
        self._parts = parts
        self._index = index
        field = parts.version.schema.field(index)
        self._type: pa.DataType = field.type
        self._nullable: bool = field.nullable
        self._wanted = wanted
        self._opened: list[OpenedPart] = [None] * len(wanted)  # type: ignore[list-item]

    def opening(self) -> Iterator[Task]:
        """Open the parts, some at a time."""
        self._parts.version.column(self._index)  # Its line, before the threads want it.
        for first in range(0, len(self._wanted), OPENED_AT_ONCE):
            yield partial(self._open, first)

    def _open(self, first: int) -> None:
        for at, span in enumerate(self._wanted[first : first + OPENED_AT_ONCE], first):
            self._opened[at] = self._parts.open(self._index, span.group)

    def plan(self) -> None:
        """Decide on the pages."""
        self._pieces: list[Piece] = []
        self._ranges: list[tuple[int, int]] = []
        for part, span in zip(self._opened, self._wanted, strict=True):
            start = span.start // part.page_rows * part.page_rows
            stop = min(-(-span.stop // part.page_rows) * part.page_rows, part.rows)
            self._ranges.append((start, stop))
            self._pieces.append(_piece(part, start, stop))

    @property
    def nbytes(self) -> int:
        """What the planned pages decode to, the bitmap for every row if there is one."""
        has_nulls = any(VALID in piece.sizes for piece in self._pieces)
        rows = sum(piece.rows for piece in self._pieces) if has_nulls else 0
        return rows // 8 + sum(map(_nbytes, self._pieces))

    def doubted(self) -> Iterator[_Run]:
        """What there is to decode in files that claim a great deal, without a place to go."""
        for index, (part, piece) in enumerate(zip(self._opened, self._pieces, strict=True)):
            if _nbytes(piece) > DOUBTED_RATIO * part.cbytes:
                for name, place, low, high in self._streams(index):
                    yield from _runs(part, name, place, None, low, high)

    def make_room(self) -> None:
        """Allocate what the pages decode to.

        Called by one thread for all columns: memory that several threads allocate is given back
        late and found again seldom, which costs a large read some percent.
        """
        with self._blame():
            self._decoder: Decoder = decoder(self._type, self._pieces)

    def runs(self) -> Iterator[_Run]:
        """What there is to decode, in the order it lies in the files."""
        for index, part in enumerate(self._opened):
            for name, place, low, high in self._streams(index):
                target = self._decoder.target(index, name)
                assert len(target.buffer) == high - low
                yield from _runs(part, name, place, target, low, high)

    def _streams(self, index: int) -> Iterator[tuple[str, StreamPlace, int, int]]:
        """The streams of a part, and the bytes that are wanted of each."""
        part, (start, stop) = self._opened[index], self._ranges[index]
        for name, place in part.streams.items():
            low, high = (
                (0, place.info.nbytes)
                if name.startswith(DICTIONARY)
                else place.range_of(start, stop, part.page_rows)
            )
            if low < high:
                yield name, place, low, high

    def checks(self) -> Iterator[Task]:
        """What is left to check when all is decoded."""
        with self._blame():
            for check in self._decoder.checks():
                yield partial(self._run, check)

    def finish(self) -> pa.ChunkedArray:
        """The rows asked for, out of the pages decoded."""
        with self._blame():
            column = self._decoder.finish()
            if not self._nullable and column.null_count:
                raise CorruptError("nulls, where the schema says that there are none")
        if not self._ranges:
            return column
        # Only the first span can begin, and the last can end, inside a page.
        skipped = self._wanted[0].start - self._ranges[0][0]
        rows = sum(span.stop - span.start for span in self._wanted)
        return column if len(column) == rows else column.slice(skipped, rows)

    def _run(self, check: Callable[[], None]) -> None:
        with self._blame():
            check()

    def _blame(self) -> AbstractContextManager[None]:
        return self._opened[0].blame() if self._opened else nullcontext()


def _piece(part: OpenedPart, start: int, stop: int) -> Piece:
    """The bytes that each stream of a part has for these pages."""
    sizes, first_byte = {}, 0
    pages: tuple[int, ...] = ()
    dictionary: dict[str, int] = {}
    for name, place in part.streams.items():
        if name.startswith(DICTIONARY):
            dictionary[name.removeprefix(DICTIONARY)] = place.info.nbytes
            continue
        low, high = place.range_of(start, stop, part.page_rows)
        sizes[name] = high - low
        if name == VALUES and place.info.pages is not None:
            first_byte = low
            pages = place.info.pages[start // part.page_rows : -(-stop // part.page_rows)]
    child = None
    if part.dictionary_rows is not None:
        child = Piece(part.dictionary_rows, dictionary)
    return Piece(stop - start, sizes, first_byte, part.page_rows, pages, child)


def _nbytes(piece: Piece) -> int:
    """The bytes of a piece, without its bitmap of nulls."""
    nbytes = sum(piece.sizes.values()) - piece.sizes.get(VALID, 0)
    return nbytes + (sum(piece.dictionary.sizes.values()) if piece.dictionary else 0)


def _check_memory(nbytes: int, table: str) -> None:
    """LimitError where the machine could not hold so many bytes, whatever else it does."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if nbytes > memory:
        raise LimitError(
            f"{table}: to be read at once it takes {nbytes} bytes of memory, of which there are "
            f"{memory}; read fewer columns or rows, or use to_batches"
        )


def _runs(
    part: OpenedPart, name: str, place: StreamPlace, target: Target | None, low: int, high: int
) -> Iterator[_Run]:
    """The chunks that hold bytes `low` to `high` of a stream, some `RUN_BYTES` together."""
    first = begin = at = 0
    for last, size in enumerate(place.info.chunks, 1):
        at += size
        if at <= low:
            first, begin = last, at
        elif at - begin >= RUN_BYTES or at >= high:
            yield _Run(part, name, place, target, first, last, begin, low, high)
            first, begin = last, at
            if at >= high:
                return


def _joined(runs: Iterable[_Run], progress: Progress | None = None) -> Iterator[Task]:
    """Tasks of one run, or of several small ones."""
    waiting: list[_Run] = []
    nbytes = 0
    for one in runs:
        waiting.append(one)
        nbytes += one.nbytes
        if nbytes >= TASK_BYTES:
            yield partial(_decode_all, waiting, progress)
            waiting, nbytes = [], 0
    if waiting:
        yield partial(_decode_all, waiting, progress)


def _decode_all(runs: list[_Run], progress: Progress | None) -> None:
    for one in runs:
        one.decode()
        if progress is not None:
            progress.add(one.cells)
    for one in runs:
        one.part.forget()
