"""The face of this room: which types can be stored, in which streams, and there and back.

What is not in the closed list is refused before anything is written, and not believed when read.
"""

from collections.abc import Mapping, Sequence
from types import ModuleType

import pyarrow as pa

from blztable.columns.blocks import DICTIONARY, VALID, VALIDITY, Block, Decoder, Piece, StreamLayout
from blztable.columns.codecs import dictionary, text, validity
from blztable.columns.codecs.families import as_stored, family_of, is_plain, stored_type
from blztable.columns.codecs.fixed import MAX_WIDTH
from blztable.errors import SchemaError


def is_storable(type_: pa.DataType) -> bool:
    """Whether the type is in the closed list."""
    if pa.types.is_dictionary(type_):
        return is_storable(type_.value_type) and not pa.types.is_dictionary(type_.value_type)
    if pa.types.is_fixed_size_binary(type_) and type_.byte_width > MAX_WIDTH:
        return False
    return is_plain(type_)


def layouts(type_: pa.DataType) -> Mapping[str, StreamLayout]:
    """Every stream a part of this type may have, in the order of its chunks in the file."""
    stored = stored_type(type_)
    own = {} if pa.types.is_null(stored) else {VALID: VALIDITY}
    own |= {stream.name: stream for stream in _family(stored).layout(stored)}
    if pa.types.is_dictionary(type_):
        child = layouts(type_.value_type)
        own |= {DICTIONARY + name: stream for name, stream in child.items()}
    return own


def encode(array: pa.Array, page_rows: int | None = None) -> Block:
    """An array in streams: slice offsets gone, null slots empty, views as large types.

    Raises
    ------
    SchemaError
        Values the type does not allow: text that is not UTF-8, indices outside a dictionary.
    """
    array = as_stored(array)
    stored = array.type
    mask = validity.mask_of(array)
    page_rows, streams = _family(stored).encode(array, mask, page_rows)
    child = None
    if pa.types.is_dictionary(stored):
        child = encode(array.dictionary)
    return Block(len(array), page_rows, validity.encode(mask) + streams, child)


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array; SchemaError where it has no room in one."""
    if column.num_chunks == 0:
        return pa.nulls(0, column.type)
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_dictionary(column.type):
        joined = dictionary.join(column.chunks)
    else:
        # Not the empty ones: of a slice that was imported, Arrow looks for the bytes before it.
        chunks = [chunk for chunk in column.chunks if len(chunk)]
        joined = _combined(pa.chunked_array(chunks, column.type))
    if not isinstance(joined, pa.Array):
        raise SchemaError(f"{len(column)} rows have no room in one array of {column.type}")
    return joined


def _combined(column: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray | None:
    """The chunks put together as far as they have room; None where Arrow does not even try."""
    try:
        return column.combine_chunks()
    except pa.ArrowInvalid:
        return None


class _Cast:
    """A decoder whose result is cast to the type it was stored for."""

    def __init__(self, decoder: Decoder, type_: pa.DataType) -> None:
        self.target = decoder.target
        self.checks = decoder.checks
        self._finish = decoder.finish
        self._type = type_

    def finish(self) -> pa.ChunkedArray:
        return self._finish().cast(self._type)


def decoder(type_: pa.DataType, pieces: Sequence[Piece]) -> Decoder:
    """What decodes these pieces into one column of the type."""
    stored = stored_type(type_)
    if stored.id != type_.id:
        # A view counts with 32 bits where its item lies.
        return _Cast(text.TextDecoder(stored, pieces, text.MAX_NARROW_BYTES), type_)
    result: Decoder = _family(stored).decoder(stored, pieces)
    return result


def _family(stored: pa.DataType) -> ModuleType:
    return dictionary if pa.types.is_dictionary(stored) else family_of(stored)
