"""Blocks: the classes by which arrays become streams, and streams become arrays.

Theory of operation. An Arrow array is stored as a tree of blocks. A block has rows, streams of
bytes, and children; the codec of its type and encoding (`types.py`) says which. Writing is one
call: `encode(array)` returns the whole tree. Reading is a dialogue, because a reader decompresses
chunks of all columns in threads and straight into the memory of the result:

1. The reader describes the rows of the result as a sequence of `Piece`, in their order.
   A piece states the number of bytes of each stream.
2. `decoder(type, pieces)` allocates the memory of the whole column.
3. `Decoder.target(piece, stream)` returns the buffer for a stream of a piece, and
   `Decoder.child(piece, name)` the decoder of a child. The reader fills the buffers in any order
   and from any thread, and calls `StreamBuffer.check` on each range of bytes once it is filled.
4. `Decoder.checks()` returns the checks that need whole streams, to be run in any thread.
5. `Decoder.finish()` returns the column.

No byte of a buffer is trusted before step 5. Knows nothing of files.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pyarrow as pa

from blztable.block_terms import PACKED, PLAIN, VALID, VALUES, child_prefix


@dataclass(frozen=True, slots=True)
class StreamLayout:
    """The form of a stream.

    Attributes
    ----------
    name
        The name of the stream within its block.
    dtype, typesize
        The type of an item, and its bytes.
    bits
        Bits of a row; None if each page has a length of its own.
    """

    name: str
    dtype: str
    typesize: int
    bits: int | None
    shuffle: str | None = None

    def nbytes(self, rows: int) -> int:
        """Return the number of bytes of `rows` rows; the stream must have `bits`."""
        assert self.bits is not None
        return -(-rows * self.bits // 8)


VALIDITY = StreamLayout(VALID, "bitmap", 1, 1)


class Encoding:
    """How the values of a stream come from codes.

    Attributes
    ----------
    kind
        The name of the encoding in the metadata.
    needs_pages
        True if rows can be decoded only together with all rows before them in their page.
    has_codes
        False if the values come from the parameters alone, so the file has no bytes of the stream.
    stored
        The form of the stream of codes. Without codes it is that of the values.
    page_rows
        Rows of a page, if the encoding needs pages.
    """

    kind: ClassVar[str]
    needs_pages: ClassVar[bool] = False
    has_codes: ClassVar[bool] = True
    stored: StreamLayout
    page_rows: int

    def parameters(self) -> Mapping[str, object]:
        """Return the parameters as JSON values."""
        raise NotImplementedError

    def decode(self, row: int, codes: np.ndarray, out: np.ndarray) -> None:
        """Make the values of the codes of the rows from `row` on.

        Parameters
        ----------
        row
            The first row, as an index within the part.
        codes
            Bytes of codes.
        out
            Room for the bytes of as many values.
        """
        raise NotImplementedError

    def pick(self, rows: np.ndarray, codes: np.ndarray, out: np.ndarray) -> None:
        """Make the values of single rows; an encoding that needs whole pages cannot.

        Parameters
        ----------
        rows
            The rows as indices within the part.
        codes
            Bytes of the codes of these rows.
        out
            Room for the bytes of as many values.
        """
        raise NotImplementedError

    @property
    def is_identity(self) -> bool:
        """True if each code is the value that it stands for."""
        return False

    def values_of_codes(self, type_: pa.DataType, most: int) -> pa.Array | None:
        """Return the values of all codes, in order, in the type of the column.

        Return None if there are more than `most` codes, if codes have more than two bytes, or if
        they have other values on other pages.
        """
        return None

    def shifted(self, by: int) -> "Encoding":
        """Return an encoding of item ends that adds a number to them."""
        raise NotImplementedError

    def shared(self) -> tuple[Mapping[str, object], int]:
        """Return the parameters that many streams may have in common, and the base of this one.

        The base is 0 if the encoding has none. There is one for all rows.
        """
        return self.parameters(), 0

    def rebased(self, base: int) -> "Encoding":
        """Return the encoding with this base in place of its own, if it has one."""
        return self

    def to_json(self) -> dict[str, object]:
        """Return the encoding as the metadata has it."""
        return {"kind": self.kind, **self.parameters()}


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """The form of a block: its streams, in the order of their chunks, and its children.

    Only the validity stream may be absent from a block.
    """

    streams: Mapping[str, StreamLayout]
    children: Mapping[str, pa.DataType]


@dataclass(frozen=True, slots=True)
class Stream:
    """The bytes of a stream of a part."""

    layout: StreamLayout
    data: np.ndarray
    # Number of bytes of each page; None if the layout has `bits`.
    pages: tuple[int, ...] | None = None
    # How the values come from these bytes; None if these are the values.
    encoding: Encoding | None = None
    # Number of bytes of the values; None if they are not encoded.
    values_nbytes: int | None = None
    # Where each item ends, if there are `pages`.
    ends: np.ndarray | None = None

    @property
    def nbytes(self) -> int:
        """Return the number of bytes of the values."""
        return self.data.nbytes if self.values_nbytes is None else self.values_nbytes


@dataclass(frozen=True, slots=True)
class Block:
    """An array as streams that are divided into the same pages, and child blocks with own pages."""

    rows: int
    page_rows: int
    streams: tuple[Stream, ...]
    children: Mapping[str, "Block"] = field(default_factory=dict)
    encoding: str = PLAIN
    # True if the rows are null where the value is NaN; then no stream says it.
    nan_is_null: bool = False
    # `PER_ITEM` if each item is to be a chunk.
    packing: str = PACKED

    def walk(self, prefix: str = "") -> Iterator[tuple[str, Stream]]:
        """Yield every stream of the tree with its full name, in the order of the chunks."""
        for stream in self.streams:
            yield prefix + stream.layout.name, stream
        for name, child in self.children.items():
            yield from child.walk(child_prefix(prefix, name))


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one part to decode.

    Attributes
    ----------
    rows
        Number of rows.
    sizes
        Number of bytes of these rows in each stream of the block.
    first_byte
        Number of bytes of the part's items before the first of these rows.
    page_rows, pages
        Number of rows of a page, and number of bytes of the items of each page.
    children
        The rows of each child that these rows need. Pieces may share the piece of a child.
    nan_is_null
        True if the rows are null where the value is NaN.
    items
        Number of rows of a child node that the items of these rows are; 0 if the items are bytes.
        Then `first_byte` and `pages` count such rows, too.
    """

    rows: int
    sizes: Mapping[str, int]
    first_byte: int = 0
    page_rows: int = 0
    pages: tuple[int, ...] = ()
    children: Mapping[str, "Piece"] = field(default_factory=dict)
    nan_is_null: bool = False
    items: int = 0

    @property
    def end_of_items(self) -> int:
        """Return how far the item ends count: the bytes of the items, or their rows."""
        return self.items or self.sizes.get(VALUES, 0)

    @property
    def has_nulls(self) -> bool:
        """True if rows may be null."""
        return self.nan_is_null or VALID in self.sizes

    @property
    def nbytes(self) -> int:
        """Return the bytes of all streams, with those of children, without the validity bitmap."""
        own = sum(self.sizes.values()) - self.sizes.get(VALID, 0)
        return own + sum(child.nbytes for child in self.children.values())


@dataclass(frozen=True, slots=True)
class StreamBuffer:
    """The buffer for a stream of a piece.

    `check(start, stop)` is called once the bytes from `start` to `stop` are in the buffer, while
    they are in the cache. It may change them (an item end becomes relative to the column). It
    raises CorruptError if the values are invalid, which no checksum can detect. An encoding that
    makes item ends adds `shift` to them instead, and they need no check. Where NaN is null, `valid`
    is the bitmap that the check makes of the values; an encoding that has a code for NaN may make
    it instead.
    """

    buffer: np.ndarray
    check: Callable[[int, int], None] | None = None
    shift: int = 0
    valid: np.ndarray | None = None


class Decoder:
    """A column being decoded; see the theory of operation above."""

    def target(self, piece: int, stream: str) -> StreamBuffer:
        """Return the buffer for this stream of this piece."""
        raise NotImplementedError

    def child(self, piece: int, name: str) -> tuple["Decoder", int]:
        """Return the decoder of a child, and the index of this piece's child in that decoder."""
        raise AssertionError(f"piece {piece} has no child {name!r}")

    def checks(self) -> Iterable[Callable[[], None]]:
        """Return the checks to run after every buffer was filled."""
        return ()

    def finish(self) -> pa.ChunkedArray:
        """Return the column; called after all checks passed."""
        raise NotImplementedError


# Returns the decoder of a column, given its type and its pieces.
MakeDecoder = Callable[[pa.DataType, Sequence[Piece]], Decoder]


@dataclass(frozen=True, slots=True)
class Codec:
    """The functions that encode and decode a family of types under one encoding.

    Attributes
    ----------
    layout
        Return the streams of a type without validity, in the order of their chunks.
    encode
        Return the number of rows of a page, and the streams of an array. The arguments are the
        array, the mask of its values (None: no row is null) and the requested number of rows of a
        page (None: choose). The slots of nulls are empty. Raise SchemaError for invalid values.
    decoder
        Return a decoder for pieces. The third argument makes the decoders of children.
    child_types, child_arrays
        Return the types, or the arrays, of the children, by name.
    """

    layout: Callable[[pa.DataType], tuple[StreamLayout, ...]]
    encode: Callable[[pa.Array, np.ndarray | None, int | None], tuple[int, tuple[Stream, ...]]]
    decoder: Callable[[pa.DataType, Sequence[Piece], MakeDecoder], Decoder]
    child_types: Callable[[pa.DataType], Mapping[str, pa.DataType]] = lambda type_: {}
    child_arrays: Callable[[pa.Array], Mapping[str, pa.Array]] = lambda array: {}


def leaf(decoder: MakeDecoder) -> Callable[[pa.DataType, Sequence[Piece], MakeDecoder], Decoder]:
    """Return the `Codec.decoder` of a family whose blocks have no children."""
    return lambda type_, pieces, make: decoder(type_, pieces)
