"""An encoded stream: its codes or values as bytes, and the words that say what they mean.

The rows that represent a part, by which an encoding is chosen, are drawn here too.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from blztable import tuning
from blztable.errors import CorruptError
from blztable.format.records import PLAIN, WORD, Array

NO_WORDS = np.zeros(0, WORD)
NO_BYTES = np.zeros(0, np.uint8)
# Blosc shuffles the bits of four bytes at a time twice as fast as those of one, to the same size.
CODE_TYPESIZE = 4


class EncodedStream(Protocol):
    """What a decoder needs of a stream: the fields of its record, its words, and its bytes.

    Arrays of bytes are valid until the next ones are asked for.
    """

    @property
    def kind(self) -> int:
        """Kind of its encoding."""

    @property
    def flags(self) -> int:
        """Flags of its record."""

    @property
    def power(self) -> int:
        """Power of ten of its integers."""

    @property
    def width(self) -> int:
        """Bytes of a code."""

    @property
    def exceptions(self) -> int:
        """Number of values beside the codes."""

    @property
    def words(self) -> Array:
        """Its words."""

    @property
    def nbytes(self) -> int:
        """Number of its bytes."""

    def runs(self, start: int, stop: int) -> Iterator[tuple[int, Array]]:
        """Yield the bytes from `start` to `stop`, chunk by chunk, and where each begins."""

    def read_into(self, start: int, stop: int, out: Array) -> None:
        """Put the bytes from `start` to `stop` into a result."""

    def pieces_into(self, start: int, stop: int, out: Array) -> Iterator[Array]:
        """Put the bytes from `start` to `stop` into a result; yield each piece that is there."""

    def pick(self, starts: Array, stops: Array) -> Iterator[tuple[int, int, int, Array]]:
        """Yield bytes that have those of ascending ranges: some chunks together.

        Yields where they begin, the first of the ranges that have bytes in them, the one behind the
        last, and the bytes; those outside of the ranges may be anything.
        """

    def read_items(self, rows: Array, lengths: Array, out: Array) -> None:
        """Put the items of these lengths into a result, if each item is a chunk."""


@dataclass(frozen=True)
class Stream:
    """A stream of a part: the fields of its record, its words, and its decompressed bytes.

    `is_text` says that the bytes are those of text or binary, which is compressed in another way
    than numbers.
    `sizes` has the bytes of each item, if each is to be a chunk.
    """

    name: int
    kind: int = PLAIN
    data: Array = field(default_factory=lambda: NO_BYTES)
    typesize: int = 1
    words: Array = field(default_factory=lambda: NO_WORDS)
    flags: int = 0
    power: int = 0
    width: int = 0
    exceptions: int = 0
    is_text: bool = False
    sizes: Array | None = None

    @property
    def nbytes(self) -> int:
        """Return the number of bytes."""
        return len(self.data)

    def runs(self, start: int, stop: int) -> Iterator[tuple[int, Array]]:
        """Yield the bytes from `start` to `stop`, and where they begin."""
        if start < stop:
            yield start, self.data[start:stop]

    def read_into(self, start: int, stop: int, out: Array) -> None:
        """Put the bytes from `start` to `stop` into a result."""
        out[:] = self.data[start:stop]

    def pieces_into(self, start: int, stop: int, out: Array) -> Iterator[Array]:
        """Put the bytes from `start` to `stop` into a result; yield them."""
        self.read_into(start, stop, out)
        yield out

    def pick(self, starts: Array, stops: Array) -> Iterator[tuple[int, int, int, Array]]:
        """Yield all bytes, and all ranges."""
        if len(starts):
            yield 0, 0, len(starts), self.data

    def read_items(self, rows: Array, lengths: Array, out: Array) -> None:
        """Refuse: the items in memory are not apart."""
        raise NotImplementedError


def need(condition: object, what: str) -> None:
    """Raise CorruptError if the condition does not hold."""
    if not condition:
        raise CorruptError(f"a stream has the wrong {what}")


def padded(rows: int) -> int:
    """Return the number of codes that are stored: a multiple of 8, so that Blosc shuffles all."""
    return rows + -rows % 8


def bytes_of_codes(codes: Array, width: int) -> Array:
    """Return codes as bytes of one width, padded with zeros."""
    if width == 0:
        return NO_BYTES
    if codes.itemsize == width and len(codes) % 8 == 0:
        return np.ascontiguousarray(codes).view(np.uint8)
    stored = room_for(len(codes), width)
    np.copyto(stored[: len(codes)], codes, casting="unsafe")
    return stored.view(np.uint8)


def room_for(rows: int, width: int) -> Array:
    """Return room for the codes of rows, of which only the padding is zero."""
    stored = np.empty(padded(rows), f"<u{width}")
    stored[rows:] = 0
    return stored


def typesize_of_codes(nbytes: int, width: int) -> int:
    """Return the typesize of so many bytes of codes of one width."""
    return CODE_TYPESIZE if nbytes % (8 * CODE_TYPESIZE) == 0 else max(width, 1)


def width_of(span: int) -> int:
    """Return the bytes of a code that reaches from 0 to a span."""
    if span < 1 << 16:
        return 2 if span >= 1 << 8 else int(span > 0)
    return 4 if span < 1 << 32 else 8


def cuts(rows: int, page: int) -> Array:
    """Return the first row of each page."""
    return np.arange(0, rows, 1 << page)


# A sample has this many runs of this many rows.
RUNS, RUN_ROWS = 8, 512
SAMPLED_ROWS = RUNS * RUN_ROWS


def sample(rows: int) -> Iterator[slice]:
    """Yield runs of rows; one run of all rows if these are few."""
    if rows <= SAMPLED_ROWS:
        yield slice(0, rows)
        return
    for number in range(RUNS):
        start = (rows - RUN_ROWS) * number // (RUNS - 1)
        yield slice(start, start + RUN_ROWS)


def sampled(values: Array, valid: Array | None) -> Array:
    """Return a sample of the values, nulls aside; none only if all rows are null."""
    runs = list(sample(len(values)))
    if valid is None:
        return values if len(runs) == 1 else np.concatenate([values[rows] for rows in runs])
    some = np.concatenate([values[rows][valid[rows]] for rows in runs])
    if len(some) >= tuning.current.sampled_values or len(runs) == 1:
        return some
    return sampled(values[valid], None)
