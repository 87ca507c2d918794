"""The records that describe parts: arrays of fixed little-endian structs, checked as whole arrays.

No record names a place beside the others: where the streams, chunks, pages and words of a part lie
follows from the counts before them. So records of several columns or leaves are joined by sorting.
Knows nothing of types, files or leaves.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from blztable.cached import cached_property
from blztable.errors import CorruptError
from blztable.format.chunk import MAX_CHUNK_BYTES, MAX_RATIO

PART = np.dtype(
    [
        ("file", "<u8"),
        ("offset", "<u8"),
        ("rows", "<u8"),
        ("nbytes", "<u8"),
        ("cbytes", "<u8"),
        ("streams", "u1"),
        ("page", "u1"),
        ("flags", "u1"),
        ("prefix", "u1"),
        ("pages", "<u4"),
    ]
)
STREAM = np.dtype(
    [
        ("nbytes", "<u8"),
        ("chunk", "<u4"),
        ("words", "<u4"),
        ("name", "u1"),
        ("kind", "u1"),
        ("flags", "u1"),
        ("power", "u1"),
        ("width", "u1"),
        ("typesize", "u1"),
        ("exceptions", "<u2"),
    ]
)
CHUNK = np.dtype([("size", "<u4"), ("crc", "<u4")])
PAGE = np.dtype([("min", "<i8"), ("max", "<i8"), ("nulls", "<u4"), ("nans", "<u4")])
WORD = np.dtype("<i8")
BYTE = np.dtype("u1")
# In the order of a slice.
KINDS: tuple[np.dtype[Any], ...] = (PART, STREAM, CHUNK, PAGE, WORD, BYTE)
assert [kind.itemsize for kind in KINDS] == [48, 24, 8, 24, 8, 1]

# Flags of a part.
NAN_IS_NULL, EXACT_BOUNDS, ITEM_CHUNKS = 1, 2, 4
# Names of streams. Those of a part ascend.
VALID, VALUES, LENGTHS, ITEMS_VALID, ITEMS_LENGTHS, ITEMS_VALUES = range(6)
STREAM_NAMES = ("valid", "values", "lengths", "items.valid", "items.lengths", "items.values")
# Kinds of encoding.
PLAIN, NUMBERS, DICTIONARY, CONSTANT, PER_ITEM = range(5)
KIND_NAMES = ("plain", "numbers", "dictionary", "constant", "per_item")
# Flags of a stream.
SUM, TIMES, NAN_CODE, UNSORTED = 1, 2, 4, 8
# Widths of codes, by number: `np.isin` takes five times longer.
WIDTHS = np.zeros(256, bool)
WIDTHS[[0, 1, 2, 4, 8]] = True

MIN_PAGE, MAX_PAGE = 3, 30
MAX_POWER = 18
MAX_STREAM_BYTES = 1 << 44
MAX_OFFSET = 1 << 48
MAX_ROWS = 1 << 40
# The number of a file has 18 digits.
MAX_FILE = 10**18 - 1
# A count of nulls above level 0 that does not fit.
MANY = (1 << 32) - 1
CHUNK_HEADER_BYTES = 16
DIGEST_BYTES = 4

Array = NDArray[Any]

_all = np.logical_and.reduce


def need(condition: Any, what: str) -> None:
    """Raise CorruptError if the condition, of an array or a value, does not hold everywhere."""
    # `np.all` makes four calls of Python for each, and the method two.
    if not (condition if isinstance(condition, bool) else _all(condition, axis=None)):
        raise CorruptError(f"records of parts: {what}")


def encoding_of(stream: Any) -> str:
    """Return the encoding of the record of a stream, in words."""
    name = KIND_NAMES[stream["kind"]]
    if stream["kind"] != NUMBERS:
        return name
    sum_, power = stream["flags"] & SUM, stream["power"]
    return f"{name}, sum" if sum_ else f"{name}, power" if power else name


def sums(counts: Array) -> Array:
    """Return how much lies before each count, and all of it: one entry more than counts."""
    before = np.zeros(len(counts) + 1, np.int64)
    counts.cumsum(out=before[1:])
    return before


@dataclass(frozen=True)
class Records:
    """The records of `columns` nodes in `entries` entries, in the order node, entry.

    An entry is a row group, or a leaf of the level below.
    """

    columns: int
    entries: int
    parts: Array
    streams: Array = field(default_factory=lambda: np.zeros(0, STREAM))
    chunks: Array = field(default_factory=lambda: np.zeros(0, CHUNK))
    pages: Array = field(default_factory=lambda: np.zeros(0, PAGE))
    words: Array = field(default_factory=lambda: np.zeros(0, WORD))
    prefixes: Array = field(default_factory=lambda: np.zeros(0, BYTE))

    @property
    def arrays(self) -> tuple[Array, ...]:
        """Return the arrays in the order of KINDS."""
        return self.parts, self.streams, self.chunks, self.pages, self.words, self.prefixes

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum([array.nbytes for array in self.arrays])

    @cached_property
    def stream_chunks(self) -> Array:
        """Return the number of chunk records of each stream."""
        nbytes, size = self.streams["nbytes"].astype(np.int64), self.streams["chunk"]
        listed = (self.streams["kind"] != PER_ITEM) & (size > 0)
        return np.where(listed, -(-nbytes // np.maximum(size, 1)), 0)

    @cached_property
    def first_stream(self) -> Array:
        """Return the number of stream records before each part."""
        return sums(self.parts["streams"])

    @cached_property
    def first_chunk(self) -> Array:
        """Return the number of chunk records before each stream."""
        return sums(self.stream_chunks)

    @cached_property
    def first_page(self) -> Array:
        """Return the number of page records before each part."""
        return sums(self.parts["pages"])

    @cached_property
    def first_word(self) -> Array:
        """Return the number of words before each stream."""
        return sums(self.streams["words"])

    @cached_property
    def first_prefix(self) -> Array:
        """Return the number of bytes of prefixes before each part."""
        return sums(self.parts["prefix"])

    @cached_property
    def chunk_offset(self) -> Array:
        """Return where each chunk begins in the file of its part."""
        ends = (self.chunks["size"].astype(np.int64) + DIGEST_BYTES).cumsum()
        starts = ends - self.chunks["size"] - DIGEST_BYTES
        first = self.first_chunk[self.first_stream]
        # A part without chunks has no offset to shift.
        before = np.append(starts, 0)[first[:-1]]
        return starts + np.repeat(self.parts["offset"].astype(np.int64) - before, np.diff(first))

    @cached_property
    def firsts(self) -> tuple[Array, ...]:
        """Return for each array, in the order of KINDS, how many records lie before each part."""
        first = self.first_stream
        return (
            np.arange(len(self.parts) + 1),
            first,
            self.first_chunk[first],
            self.first_page,
            self.first_word[first],
            self.first_prefix,
        )

    def of(self, columns: Sequence[int] | Array, entries: Sequence[int] | Array) -> "Records":
        """Return the records of some columns and some entries, in any order."""
        chosen, among = np.asarray(columns, np.int64), np.asarray(entries, np.int64)
        parts = (chosen[:, None] * self.entries + among).ravel()
        taken = take([self], parts, len(chosen))
        return replace(taken, entries=len(among))

    def owners(self) -> tuple[Array, ...]:
        """Return for each array, in the order of KINDS, the part of each record."""
        parts = np.arange(len(self.parts))
        streams = np.repeat(parts, self.parts["streams"])
        return (
            parts,
            streams,
            np.repeat(streams, self.stream_chunks),
            np.repeat(parts, self.parts["pages"]),
            np.repeat(streams, self.streams["words"]),
            np.repeat(parts, self.parts["prefix"]),
        )

    def check(self, level: int = 0) -> Self:
        """Check all that can be said of the records without a file or a type."""
        parts, streams = self.parts, self.streams
        need(len(parts) == self.columns * self.entries, "number of parts")
        need(self.first_stream[-1] == len(streams), "number of streams")
        need(self.first_page[-1] == len(self.pages), "number of pages")
        need(self.first_prefix[-1] == len(self.prefixes), "bytes of prefixes")
        need((parts["page"] >= MIN_PAGE) & (parts["page"] <= MAX_PAGE), "rows of a page")
        need((parts["rows"] < MAX_ROWS) & (parts["nbytes"] < MAX_STREAM_BYTES), "size of a part")
        need(parts["cbytes"] < MAX_STREAM_BYTES, "size of a part")
        need((parts["offset"] < MAX_OFFSET) & (parts["file"] <= MAX_FILE), "place of a part")
        need(parts["flags"] < 8, "flags of a part")
        if level:
            need(parts["pages"] == 1, "pages of a leaf")
            need(len(streams) == 0, "streams of a leaf")
        else:
            self._check_pages()
        self._check_streams()
        stored = np.diff(self.first_chunk[self.first_stream]) > 0
        need((parts["file"] > 0) | ~(stored | (parts["flags"] & ITEM_CHUNKS > 0)), "file of a part")
        return self

    def _check_pages(self) -> None:
        log2 = self.parts["page"].astype(np.int64)
        rows = self.parts["rows"].astype(np.int64)
        whole = (rows + (1 << log2) - 1) >> log2
        need((self.parts["pages"] == whole) | (self.parts["pages"] == 0), "pages of a part")
        counts = self.pages["nulls"].astype(np.int64) + self.pages["nans"]
        if not counts.any():
            return
        of = np.arange(len(rows)).repeat(self.parts["pages"])
        begin = (np.arange(len(of)) - self.first_page[of]) << log2[of]
        need(counts <= np.minimum(rows[of] - begin, 1 << log2[of]), "nulls of a page")

    def _check_streams(self) -> None:
        streams, chunks = self.streams, self.chunks
        need(streams["nbytes"] < MAX_STREAM_BYTES, "bytes of a stream")
        need(streams["chunk"] <= MAX_CHUNK_BYTES, "bytes of a chunk")
        need((streams["name"] <= ITEMS_VALUES) & (streams["kind"] <= PER_ITEM), "stream")
        need((streams["flags"] < 16) & (streams["power"] <= MAX_POWER), "encoding of a stream")
        need(WIDTHS[streams["width"]], "width of codes")
        need(streams["typesize"] > 0, "typesize")
        stored = (streams["nbytes"] > 0) & (streams["kind"] != PER_ITEM)
        need((streams["chunk"] > 0) == stored, "bytes of a chunk of a stream")
        need((streams["kind"] != CONSTANT) | (streams["nbytes"] == 0), "bytes of a constant")
        need(self.stream_chunks <= len(chunks), "number of chunks")
        need(self.first_chunk[-1] == len(chunks), "number of chunks")
        need(self.first_word[-1] == len(self.words), "number of words")
        owner = np.arange(len(self.parts)).repeat(self.parts["streams"])
        following = (owner[1:] == owner[:-1]).nonzero()[0]
        names = streams["name"].astype(np.int64)
        need(names[following] < names[following + 1], "order of streams")
        need(chunks["size"] > CHUNK_HEADER_BYTES, "bytes of a compressed chunk")
        decoded = self.chunk_nbytes
        need(chunks["size"] <= decoded + CHUNK_HEADER_BYTES, "bytes of a compressed chunk")
        need(decoded <= chunks["size"].astype(np.int64) * MAX_RATIO, "ratio of a chunk")

    @cached_property
    def chunk_nbytes(self) -> Array:
        """Return the decompressed bytes of each chunk."""
        of = np.arange(len(self.streams)).repeat(self.stream_chunks)
        size = self.streams["chunk"].astype(np.int64)[of]
        begin = (np.arange(len(of)) - self.first_chunk[of]) * size
        return np.minimum(self.streams["nbytes"].astype(np.int64)[of] - begin, size)

    def counts(self) -> Array:
        """Return the number of records of each column, a row for each of KINDS."""
        of_column = np.arange(self.columns + 1) * self.entries
        return np.diff(np.stack([first[of_column] for first in self.firsts]), axis=1)


def take(pool: Sequence[Records], parts: Array, columns: int) -> Records:
    """Return some parts as the records of so many columns, in the order node, entry.

    Parts are counted over all of the pool, one of its records after the other.
    """
    entries = len(parts) // columns if columns else 0
    whole = pool[0]
    if len(pool) > 1:
        arrays = behind_each_other(pool)
        whole = Records(1, len(arrays[0]), *arrays)
    firsts = whole.firsts
    if not len(parts) or (parts[1:] - parts[:-1] == 1).all():
        start, stop = (int(parts[0]), int(parts[-1]) + 1) if len(parts) else (0, 0)
        if stop - start == len(whole.parts):
            return Records(columns, entries, *whole.arrays)
        pairs = zip(whole.arrays, firsts, strict=True)
        return Records(columns, entries, *[array[at[start] : at[stop]] for array, at in pairs])
    taken = [whole.parts[parts]]
    for array, at in zip(whole.arrays[1:], firsts[1:], strict=True):
        if not len(array):
            taken.append(array)
            continue
        begin = at[parts]
        count = at[parts + 1] - begin
        ends = count.cumsum()
        taken.append(array[(begin - (ends - count)).repeat(count) + np.arange(ends[-1])])
    return Records(columns, entries, *taken)


def join(records: Sequence[Records]) -> Records:
    """Return the records of the same columns with the entries of all, in their order."""
    if len(records) == 1:
        return records[0]
    columns = records[0].columns
    if any(piece.columns != columns for piece in records):
        raise ValueError("records of different columns cannot be joined")
    if columns == 1:
        return Records(1, sum(piece.entries for piece in records), *behind_each_other(records))
    first, parts = 0, []
    for piece in records:
        count = columns * piece.entries
        parts.append(np.arange(first, first + count).reshape(columns, piece.entries))
        first += count
    taken = take(records, np.concatenate(parts, axis=1).ravel(), columns)
    return replace(taken, entries=sum(piece.entries for piece in records))


def stack(records: Iterable[Records], count: int | None = None) -> Records:
    """Return the records of all columns, one after the other, of the same entries.

    `count` is their number, which no columns do not say.
    """
    parts = list(records)
    entries = {part.entries for part in parts}
    if not parts and count is not None:
        return Records(0, count, np.zeros(0, PART))
    if len(entries) != 1:
        raise ValueError("records of different entries cannot be stacked")
    columns = sum([part.columns for part in parts])
    return Records(columns, entries.pop(), *behind_each_other(parts))


def behind_each_other(records: Sequence[Records]) -> list[Array]:
    """Return the arrays of all records, in the order of KINDS."""
    # `np.concatenate` takes a thousand times longer for thousands of arrays of structs.
    arrays = zip(*[piece.arrays for piece in records], strict=True)
    return [np.frombuffer(b"".join(some), kind) for kind, some in zip(KINDS, arrays, strict=True)]
