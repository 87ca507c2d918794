"""An encoded stream: its codes or values as bytes, and the words that say what they mean."""

from dataclasses import dataclass, field

import numpy as np

from blztable.errors import CorruptError
from blztable.format.records import PLAIN, WORD, Array

NO_WORDS = np.zeros(0, WORD)
NO_BYTES = np.zeros(0, np.uint8)
CODE_WIDTHS = (0, 1, 2, 4, 8)
# Blosc shuffles the bits of four bytes at a time twice as fast as those of one, to the same size.
CODE_TYPESIZE = 4


@dataclass(frozen=True)
class Stream:
    """A stream of a part: the fields of its record, its words, and its decompressed bytes.

    A reader that decompresses only some chunks leaves the other bytes as they are. `is_text` says
    that the bytes are those of text or binary, which is compressed in another way than numbers.
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

    def codes(self, rows: int) -> Array:
        """Return the codes of all rows, as unsigned numbers; there are none of width 0."""
        if self.width == 0:
            return np.zeros(rows, np.uint8)
        need(len(self.data) == padded(rows) * self.width, "bytes of codes")
        return self.data.view(f"<u{self.width}")[:rows]


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


def pages_of(rows: Array | slice, total: int, page: int) -> Array:
    """Return the page of each row: of an array of rows, or of a slice."""
    numbers = np.arange(total)[rows] if isinstance(rows, slice) else rows
    return numbers >> page
