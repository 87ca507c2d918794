"""Columns of a version decoded straight into the memory of the result, in threads.

The walk: find the pages that hold the rows, open the parts (fronts and trailers), make room for
all of their pages, then decode chunks to their places (`chunks.py`). Text that is more than ASCII
is looked at again when its item ends are known to be sound. No chunk becomes an array of its own,
nothing is concatenated.

Room is made for what the machine can hold, and not on the word of a few bytes: files that claim a
great deal more than they have are decoded aside first, to see that they mean it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import groupby

import pyarrow as pa

from blztable.columns.blocks import DICTIONARY, VALID, VALUES, Decoder, Piece, Target
from blztable.columns.types import decoder, one_array
from blztable.engine.read import selection
from blztable.engine.read.chunks import Goal, Run, joined, runs
from blztable.engine.read.parts import OpenedPart, OpenParts
from blztable.engine.read.selection import RowSpan
from blztable.engine.run.limits import check_memory
from blztable.engine.run.pool import run
from blztable.engine.run.progress import Progress
from blztable.engine.run.tasks import Task, batches
from blztable.engine.version.versions import Version
from blztable.errors import CorruptError

# A file is doubted that claims more than so many times its bytes. Only zstd gives as much, of data
# that hardly differ; such a file is decoded twice, if those of a read claim so much together.
DOUBTED_RATIO = 1 << 10
DOUBTED_BYTES = 64 << 20


def read_columns(
    version: Version,
    indices: Sequence[int],
    wanted: Sequence[RowSpan],
    progress: Progress | None = None,
    parts: OpenParts | None = None,
) -> list[pa.ChunkedArray]:
    """The columns at these positions, of the rows wanted; `parts` has what was opened before.

    One that is named twice is read once.

    Raises
    ------
    CorruptError
        A file is missing or damaged; the message names it, the column and the chunk.
    LimitError
        The machine has not the memory that the result takes.
    """
    if parts is None:
        with OpenParts(version) as parts:
            return read_columns(version, indices, wanted, progress, parts)
    columns = {
        index: _Column(parts, index, selection.of_spans(version.column(index), wanted))
        for index in indices
    }
    found = dict(zip(columns, _decoded(version, list(columns.values()), progress), strict=True))
    return [selection.cut_spans(found[index], columns[index].wanted, wanted) for index in indices]


def read_array(version: Version, index: int, wanted: Sequence[RowSpan]) -> pa.Array:
    """The rows wanted of one column, as one array; SchemaError where they have no room in one."""
    return one_array(read_columns(version, [index], wanted)[0])


def nbytes_of_pages(parts: OpenParts, index: int, wanted: Sequence[RowSpan]) -> int:
    """The bytes of the files that are read for these pages, beside what opens them."""
    column = _Column(parts, index, wanted)
    run(batches(column.opening()))
    extents = (one.extent for one in column.untargeted() if not one.part.is_small)
    return sum(end - start for start, end in extents)


def _decoded(
    version: Version, columns: Sequence["_Column"], progress: Progress | None
) -> list[pa.ChunkedArray]:
    """Each column's pages."""
    run(batches(call for column in columns for call in column.opening()))
    for column in columns:
        column.plan()
    check_memory(sum(column.nbytes for column in columns), version.store.name)
    run(doubts(one for column in columns for one in column.doubted()))
    for column in columns:
        column.make_room()
    change_set = (one for column in columns for one in column.runs())
    run(joined(change_set, progress), progress.tell if progress else None)
    run(task for column in columns for task in column.result.checks())
    return [column.result.finish() for column in columns]


def doubts(doubted: Iterable[Run]) -> list[Task]:
    """A look at files that claim a great deal, to be had before there is room for it."""
    change_set = list(doubted)
    return list(joined(change_set)) if sum(one.nbytes for one in change_set) > DOUBTED_BYTES else []


class _Column:
    """Pages of one column on their way from its parts to the result."""

    def __init__(
        self,
        parts: OpenParts,
        index: int,
        wanted: Sequence[RowSpan],
    ) -> None:
        self._parts = parts
        self._index = index
        # Whole pages.
        self.wanted = wanted
        self._opened: list[OpenedPart] = [None] * len(wanted)  # type: ignore[list-item]

    def opening(self) -> Iterator[Callable[[], None]]:
        """Open each part."""
        for at in range(len(self.wanted)):
            yield partial(self._open, at)

    def _open(self, at: int) -> None:
        self._opened[at] = self._parts.open(self._index, self.wanted[at].group)

    def plan(self) -> None:
        """See what the pages take."""
        self._pieces: list[Piece] = []
        for numbers in self._by_part():
            part = self._opened[numbers[0]]
            dictionary = dictionary_of(part)
            self._pieces += (_piece(part, self.wanted[at], dictionary) for at in numbers)

    def _by_part(self) -> Iterator[list[int]]:
        """The spans of each part, by their numbers."""
        for _, numbers in groupby(range(len(self.wanted)), lambda at: self.wanted[at].group):
            yield list(numbers)

    @property
    def nbytes(self) -> int:
        """What the planned pages decode to, the bitmap for every row if there is one."""
        has_nulls = any(VALID in piece.sizes for piece in self._pieces)
        rows = sum(piece.rows for piece in self._pieces) if has_nulls else 0
        return rows // 8 + sum(map(nbytes_of, self._pieces))

    def doubted(self) -> Iterator[Run]:
        """What there is to decode in files that claim a great deal, without a place to go."""
        for numbers in self._by_part():
            part = self._opened[numbers[0]]
            if sum(nbytes_of(self._pieces[at]) for at in numbers) > DOUBTED_RATIO * part.cbytes:
                yield from self._runs(numbers, lambda at, name: None)

    def untargeted(self) -> Iterator[Run]:
        """What there is to decode, without a place to go."""
        for numbers in self._by_part():
            yield from self._runs(numbers, lambda at, name: None)

    def make_room(self) -> None:
        """Allocate what the pages decode to.

        Called by one thread for all columns: memory that several threads allocate is given back
        late and found again seldom, which costs a large read some percent.
        """
        field = self._parts.version.schema.field(self._index)
        self.result = Result(field, self._pieces, next(iter(self._opened), None))

    def runs(self) -> Iterator[Run]:
        """What there is to decode, in the order it lies in the files."""
        for numbers in self._by_part():
            yield from self._runs(numbers, self.result.target)

    def _runs(
        self, numbers: Sequence[int], target: Callable[[int, str], Target | None]
    ) -> Iterator[Run]:
        """The chunks of one part that hold bytes of these spans, stream by stream."""
        part = self._opened[numbers[0]]
        for name in part.streams:
            goals = []
            for at in numbers[:1] if name.startswith(DICTIONARY) else numbers:
                low, high = byte_range(part, name, self.wanted[at])
                if low < high:
                    goals.append(Goal(low, high, target(at, name)))
            yield from runs(part, name, goals)


class Result:
    """A column in the making: room for its rows, and what is left to do when they are there."""

    def __init__(self, field: pa.Field, pieces: Sequence[Piece], first: OpenedPart | None) -> None:
        """Allocate what the pieces decode to; errors name the first part, for they are of all."""
        self._nullable: bool = field.nullable
        self._error_context = first.error_context if first else nullcontext
        with self._error_context():
            self._decoder: Decoder = decoder(field.type, pieces)
        self.target = self._decoder.target

    def checks(self) -> Iterator[Task]:
        """What is left to check when all is decoded."""
        with self._error_context():
            for check in self._decoder.checks():
                yield partial(self._run, check)

    def finish(self) -> pa.ChunkedArray:
        """The rows."""
        with self._error_context():
            column = self._decoder.finish()
            if not self._nullable and column.null_count:
                raise CorruptError("nulls, where the schema says that there are none")
        return column

    def _run(self, check: Callable[[], None]) -> None:
        with self._error_context():
            check()


def byte_range(part: OpenedPart, name: str, span: RowSpan) -> tuple[int, int]:
    """The bytes that a stream has of these pages; of a dictionary all."""
    place = part.streams[name]
    if name.startswith(DICTIONARY):
        return 0, place.info.nbytes
    return place.range_of(span.start, span.stop, part.page_rows)


def dictionary_of(part: OpenedPart) -> Piece | None:
    """The dictionary of a part, which all its pages share."""
    if part.dictionary_rows is None:
        return None
    sizes = {
        name.removeprefix(DICTIONARY): place.info.nbytes
        for name, place in part.streams.items()
        if name.startswith(DICTIONARY)
    }
    return Piece(part.dictionary_rows, sizes)


def _piece(part: OpenedPart, span: RowSpan, dictionary: Piece | None) -> Piece:
    """The bytes that each stream of a part has for these pages."""
    sizes, first_byte = {}, 0
    pages: tuple[int, ...] = ()
    for name, place in part.streams.items():
        if name.startswith(DICTIONARY):
            continue
        low, high = byte_range(part, name, span)
        sizes[name] = high - low
        if name == VALUES and place.info.pages is not None:
            first_byte = low
            pages = place.info.pages[span.start // part.page_rows : -(-span.stop // part.page_rows)]
    return Piece(span.count, sizes, first_byte, part.page_rows, pages, dictionary)


def nbytes_of(piece: Piece) -> int:
    """The bytes of a piece, without its bitmap of nulls."""
    nbytes = sum(piece.sizes.values()) - piece.sizes.get(VALID, 0)
    return nbytes + (sum(piece.dictionary.sizes.values()) if piece.dictionary else 0)
