"""The default value of a column as bytes, and back.

The bytes are one row of the type's streams: a little-endian value, or an item of text or binary. A
dictionary type uses the bytes of its value type. Bytes that are read pass the checks of a column,
because they are not trusted. A null default has no bytes.

Knows nothing of where the bytes are kept.
"""

import numpy as np
import pyarrow as pa

from blztable.arrow_types import nulls, value_type
from blztable.block_terms import ENDS, VALUES
from blztable.columns.blocks import Piece
from blztable.columns.nested.assemble import assemble
from blztable.columns.nested.flatten import list_array, struct_array
from blztable.columns.nested.nodes import CODES, ITEMS, RUNS, SIZE, Node, is_nested
from blztable.columns.types import decoder, encode, layout_of, take
from blztable.errors import CorruptError, LimitError

MAX_DEFAULT_BYTES = 1 << 16


def encode_default(scalar: pa.Scalar) -> bytes:
    """Return the bytes of a value that is not null."""
    value = scalar.value if pa.types.is_dictionary(scalar.type) else scalar
    assert value.is_valid, scalar.type
    streams = {stream.layout.name: stream.data for stream in encode(pa.repeat(value, 1)).streams}
    data: bytes = streams[VALUES].tobytes() if VALUES in streams else b""
    _check_size(data)
    return data


def decode_default(data: bytes, type_: pa.DataType) -> pa.Scalar:
    """Decode the default value of a column of this type, or raise CorruptError."""
    _check_size(data)
    return _decode(data, type_)[0]


def zero_of(type_: pa.DataType) -> pa.Scalar:
    """Return the value that replaces a null: 0, False, an empty item or list, fields of these."""
    if is_nested(type_):
        return _zeros(Node.of(type_), 1)[0]
    if pa.types.is_null(type_):
        return pa.scalar(None, type_)
    return _decode(bytes(_width(value_type(type_)) or 0), type_)[0]


def _zeros(node: Node, rows: int) -> pa.Array:
    """Return rows of a nested type without a null."""
    if not node.rows:
        if pa.types.is_null(node.type):
            return nulls(rows, node.type)
        one = _decode(bytes(_width(value_type(node.type)) or 0), node.type)
        found = take(one, np.zeros(rows, np.int64))
        return found if found.type.id == node.type.id else found.cast(node.type)
    below = rows
    if node.rows == CODES:
        flat, below = pa.array(np.zeros(rows)).cast(node.flat), min(rows, 1)
    elif node.rows in (ITEMS, RUNS):
        below = rows if node.rows == RUNS else 0
        flat = list_array(node.flat, np.full(rows, int(node.rows == RUNS)), None)
    elif pa.types.is_union(node.type):
        flat = pa.array([node.type.type_codes[0]] * rows, node.flat)
    else:
        flat = struct_array(rows, None)
        below = rows * node.type.list_size if node.rows == SIZE else rows
    return assemble(node, flat, [_zeros(child, below) for child in node.children])


def _decode(data: bytes, type_: pa.DataType) -> pa.Array:
    """Return the value as an array of one row."""
    if is_nested(type_):
        raise CorruptError(f"a column of type {type_} has a default; expected none")
    plain = value_type(type_)
    width = _width(plain)
    if pa.types.is_null(plain):
        raise CorruptError("a column of type null has a default; expected none")
    if width is not None and len(data) != width:
        raise CorruptError(f"a default has {len(data)} bytes; a value of {plain} has {width}")
    array = _one_row(data, plain)
    if pa.types.is_dictionary(type_):
        codes = pa.array([0], type_.index_type)
        array = pa.DictionaryArray.from_arrays(codes, array, ordered=type_.ordered)
    return array


def _one_row(data: bytes, type_: pa.DataType) -> pa.Array:
    """Decode an array of one row with the decoder that reads files."""
    streams = {}
    for name, layout in layout_of(type_).streams.items():
        if name == VALUES:
            streams[name] = np.frombuffer(data, np.uint8)
        elif name == ENDS:
            streams[name] = np.array([len(data)], layout.dtype).view(np.uint8)
    column = decoder(type_, [Piece(1, {name: len(part) for name, part in streams.items()})])
    for name, part in streams.items():
        target = column.target(0, name)
        target.buffer[:] = part
        if target.check is not None and len(part):
            target.check(0, len(part))
    for check in column.checks():
        check()
    return column.finish().chunk(0)


def _width(type_: pa.DataType) -> int | None:
    """Return the bytes of a value; None if each value has its own length."""
    streams = layout_of(type_).streams
    if VALUES not in streams:
        return 0
    return streams[VALUES].nbytes(1) if streams[VALUES].bits is not None else None


def _check_size(data: bytes) -> None:
    if len(data) > MAX_DEFAULT_BYTES:
        raise LimitError(f"a default has {len(data)} bytes; at most {MAX_DEFAULT_BYTES} are kept")
