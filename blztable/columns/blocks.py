"""The words the other files of this room share: streams on the way in, pieces and targets back.

Knows no type of Arrow.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

VALID = "valid"
ENDS = "ends"
VALUES = "values"
CODES = "codes"
# Streams of a dictionary bear its name in front: "dictionary.values".
DICTIONARY = "dictionary."


@dataclass(frozen=True, slots=True)
class StreamLayout:
    """One stream a type is stored in. `bits` a row; None where each page has its own length."""

    name: str
    dtype: str
    typesize: int
    bits: int | None

    def nbytes(self, rows: int) -> int:
        """Bytes of so many rows of a stream that has `bits`."""
        assert self.bits is not None
        return -(-rows * self.bits // 8)


VALIDITY = StreamLayout(VALID, "bitmap", 1, 1)


@dataclass(frozen=True, slots=True)
class Stream:
    """The bytes of one stream of one part."""

    layout: StreamLayout
    data: np.ndarray
    # Bytes of each page where the layout has no `bits`.
    pages: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """An array in streams, all of them cut in the same pages."""

    rows: int
    page_rows: int
    streams: tuple[Stream, ...]
    dictionary: "Block | None" = None


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive rows of one part to be decoded, and the bytes each stream has of them."""

    rows: int
    sizes: Mapping[str, int]
    # Bytes of the part's items before the first one of these rows.
    first_byte: int = 0
    # Rows of a page, and the bytes of items that each of these pages has.
    page_rows: int = 0
    pages: tuple[int, ...] = ()
    dictionary: "Piece | None" = None


@dataclass(frozen=True, slots=True)
class Target:
    """Where the bytes of one stream of one piece go.

    `check` is called with a range of bytes, once all of them are there and while they are warm in
    the cache; it may finish them (an item end becomes relative to the column) and raises
    CorruptError for what no checksum can see.
    """

    buffer: np.ndarray
    check: Callable[[int, int], None] | None = None


class Decoder(Protocol):
    """A column being decoded: asked for targets, then for the checks left, then for the result."""

    def target(self, piece: int, stream: str) -> Target:
        """Where this stream of this piece goes."""

    def checks(self) -> Iterable[Callable[[], None]]:
        """What is to be checked when every target is full; to be run in any order, in threads."""

    def finish(self) -> pa.ChunkedArray:
        """The column, when all checks have passed."""
