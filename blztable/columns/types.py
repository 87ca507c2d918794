"""The types that can be stored, and the codec of each type and encoding.

The table is a closed list. Another type is refused before anything is written; another encoding is
refused when a file is read. Knows nothing of files.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from blztable.arrow.nested import assemble
from blztable.arrow.nested.nodes import (
    LARGE_LIST,
    LIST,
    STRUCT,
    Node,
    is_nested,
    is_nested_storable,
)
from blztable.arrow.types import as_stored, mask_of, nulls, stored_type
from blztable.block_terms import PLAIN, VALID, child_prefix
from blztable.columns import dictionaries, joined
from blztable.columns.blocks import (
    VALIDITY,
    Block,
    BlockLayout,
    Codec,
    Decoder,
    Piece,
    StreamBuffer,
    StreamLayout,
)
from blztable.columns.codecs import boolean, dictionary, fixed, lists, null, structs, text, validity
from blztable.columns.codecs.text import MAX_NARROW
from blztable.errors import FormatError, SchemaError

# Codes of at most this many bits may be too small for the values of several arrays.
NARROW_CODES = 16
# Codecs by (id of the stored type, encoding).
CODECS: dict[tuple[int, str], Codec] = {
    (type_id, PLAIN): family.CODEC
    for family in (fixed, boolean, text, null, dictionary, lists, structs)
    for type_id in family.TYPE_IDS
}


def is_storable(type_: pa.DataType) -> bool:
    """True if the type is in the closed list, and so are the types below it."""
    if is_nested(type_):
        return is_nested_storable(type_, is_storable)
    if pa.types.is_dictionary(type_):
        values = type_.value_type
        return not (pa.types.is_dictionary(values) or is_nested(values)) and is_storable(values)
    if pa.types.is_fixed_size_binary(type_) and type_.byte_width > fixed.MAX_WIDTH:
        return False
    if isinstance(type_, pa.BaseExtensionType):
        return False
    return (stored_type(type_).id, PLAIN) in CODECS


def has_items(type_: pa.DataType) -> bool:
    """True if the type, or a type below it, is text or binary that is no dictionary's."""
    return any(stored_type(node.flat).id in text.TYPE_IDS for node in Node.of(type_).walk())


@lru_cache(maxsize=256)
def layout_of(type_: pa.DataType, encoding: str = PLAIN) -> BlockLayout:
    """Return the form of a block; raise FormatError for an unknown encoding."""
    stored = stored_type(type_)
    codec = _codec(stored, encoding)
    streams = {} if pa.types.is_null(stored) else {VALID: VALIDITY}
    streams |= {stream.name: stream for stream in codec.layout(stored)}
    return BlockLayout(streams, codec.child_types(stored))


def stream_layouts(type_: pa.DataType, prefix: str = "") -> dict[str, StreamLayout]:
    """Return the streams of a plain part of this type by full name, in the order of the file."""
    layout = layout_of(type_)
    if not prefix and not layout.children:
        return dict(layout.streams)
    streams = {prefix + name: stream for name, stream in layout.streams.items()}
    for name, child in layout.children.items():
        streams |= stream_layouts(child, child_prefix(prefix, name))
    return streams


def encode(array: pa.Array, page_rows: int | None = None) -> Block:
    """Return an array as a tree of blocks.

    Streams begin at the array's offset, null slots are empty, and views are stored as large types.
    Nulls among floats that have no NaN are stored as NaN.

    Raises
    ------
    SchemaError
        A value is invalid: text is not UTF-8, an index is outside its dictionary.
    """
    array = as_stored(array)
    filled = fixed.nan_for_null(array)
    if filled is not None:
        page_rows, streams = fixed.encode(filled, None, page_rows)
        return Block(len(array), page_rows, streams, nan_is_null=True)
    return _encode(array, page_rows)


def _encode(array: pa.Array, page_rows: int | None = None) -> Block:
    """Return a stored array as blocks with streams of validity."""
    codec = _codec(array.type, PLAIN)
    mask = mask_of(array)
    page_rows, streams = codec.encode(array, mask, page_rows)
    children = codec.child_arrays(array).items()
    # The line of a column says nothing of the children of a part.
    blocks = {name: _encode(as_stored(child)) for name, child in children}
    return Block(len(array), page_rows, validity.encode(mask) + streams, blocks)


def decoder(type_: pa.DataType, pieces: Sequence[Piece]) -> Decoder:
    """Return the decoder of a column of this type.

    The decoder has a target for each stream of the plain encoding, also if a part has another one.
    """
    stored = stored_type(type_)
    if stored.id != type_.id:
        # The offsets of a view have 32 bits.
        return _StoredCast(text.TextDecoder(stored, pieces, MAX_NARROW), type_)
    return _codec(stored, PLAIN).decoder(stored, pieces, decoder)


def child_arrays(array: pa.Array) -> Mapping[str, pa.Array]:
    """Return the arrays of the children that a plain block of this array has, by name."""
    return _codec(stored_type(array.type), PLAIN).child_arrays(array)


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; raise SchemaError if one array cannot hold it."""
    if column.num_chunks == 0:
        return nulls(0, column.type)
    if column.num_chunks == 1:
        return column.chunk(0)
    if is_nested(column.type) and column.type not in (STRUCT, LIST, LARGE_LIST):
        return joined.joined(column.chunks, one_array)
    if pa.types.is_dictionary(column.type):
        whole = dictionaries.join(column.chunks)
    else:
        # Empty chunks are left out: Arrow reads the bytes before an imported empty slice.
        chunks = [chunk for chunk in column.chunks if len(chunk)]
        whole = _combined(pa.chunked_array(chunks, column.type))
    if not isinstance(whole, pa.Array):
        raise SchemaError(f"{len(column)} rows do not fit into one array of {column.type}")
    return whole


def changes(column: pa.ChunkedArray) -> list[int]:
    """Return the rows where a new array must begin because codes have no room for more values."""
    if not pa.types.is_dictionary(column.type):
        return _changes_within(column) if column.num_chunks > 1 else []
    if is_nested(column.type):
        return joined.changes(column, one_array)
    return dictionaries.changes(column)


def _changes_within(column: pa.ChunkedArray) -> list[int]:
    """Return the same for a column whose dictionaries, if it has any, are those of its nodes."""
    if not any(map(_is_narrow, Node.of(column.type).walk())) or _fit(column.chunks):
        return []
    rows, row, first = [], 0, 0
    for number, chunk in enumerate(column.chunks):
        if number > first and not _fit(column.chunks[first : number + 1]):
            rows.append(row)
            first = number
        row += len(chunk)
    return rows


def _is_narrow(node: Node) -> bool:
    """True for a dictionary whose codes may have no room for the values of several arrays."""
    is_dictionary = pa.types.is_dictionary(node.type)
    return bool(is_dictionary and node.type.index_type.bit_width <= NARROW_CODES)


def _fit(chunks: Sequence[pa.Array]) -> bool:
    """True if arrays can be joined."""
    try:
        one_array(pa.chunked_array(chunks))
    except SchemaError:
        return False
    return True


def take(array: pa.Array, rows: np.ndarray) -> pa.Array:
    """Return rows of an array by index, in the type that it is stored as."""
    if is_nested(array.type):
        return assemble.taken(array, rows)
    return as_stored(array).take(pa.array(rows))


def _combined(column: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray | None:
    """Concatenate chunks into as few arrays as can hold them; return None if Arrow refuses."""
    try:
        return column.combine_chunks()
    except pa.ArrowInvalid:
        return None


def _codec(stored: pa.DataType, encoding: str) -> Codec:
    codec = CODECS.get((stored.id, encoding))
    if codec is None:
        raise FormatError(
            f"encoding {encoding!r} of type {stored} is unknown; upgrade blztable to read it"
        )
    return codec


class _StoredCast(Decoder):
    """A decoder that casts its column from the stored type to the type of the column."""

    def __init__(self, decoder: Decoder, type_: pa.DataType) -> None:
        self._decoder = decoder
        self._type = type_

    def target(self, piece: int, stream: str) -> StreamBuffer:
        return self._decoder.target(piece, stream)

    def checks(self) -> Iterable[Callable[[], None]]:
        return self._decoder.checks()

    def finish(self) -> pa.ChunkedArray:
        # Each chunk is cast on its own, because a cast of the whole column drops empty chunks.
        chunks = [chunk.cast(self._type) for chunk in self._decoder.finish().chunks]
        return pa.chunked_array(chunks, self._type)
