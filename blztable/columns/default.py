"""The default value of a column as bytes, and back.

The bytes are one row of the type's streams: a little-endian value, or an item of text or binary. A
dictionary type uses the bytes of its value type. A nested type has the streams of each node; the
rows of a node follow from those of the node above. Bytes that are read pass the checks of a column,
because they are not trusted. A null default has no bytes.

Knows nothing of where the bytes are kept.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from blztable.arrow.nested.assemble import assemble, rows_of_children, without_unused
from blztable.arrow.nested.flatten import flatten, list_array, struct_array
from blztable.arrow.nested.nodes import CODES, ITEMS, RUNS, SIZE, Node, is_nested
from blztable.arrow.types import as_stored, bitmap, nulls, recoded, value_type
from blztable.block_terms import ENDS, VALID, VALUES
from blztable.columns.blocks import Piece
from blztable.columns.codecs import lists
from blztable.columns.codecs.dictionary import room
from blztable.columns.types import decoder, encode, layout_of, one_array, take
from blztable.errors import CorruptError, LimitError

MAX_DEFAULT_BYTES = 1 << 16
# Rows of all nodes. Those that take no bytes, such as nulls, may be more than the bytes.
MAX_ROWS = 1 << 24
# The bytes of each stream of a node.
Streams = Mapping[str, bytes]


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


def encode_nested(scalar: pa.Scalar) -> list[Streams]:
    """Return the streams of each node of a value of a nested type, in pre-order."""
    return encode_nodes(Node.of(scalar.type), pa.repeat(scalar, 1))


def encode_nodes(node: Node, array: pa.Array) -> list[Streams]:
    """Return the streams of each node of an array, in pre-order."""
    flats = list(without_unused(node, iter(flatten(node, array))))
    _check_rows(sum(map(len, flats)))
    nodes = [_streams(flat) for flat in flats]
    _check_size(b"".join(data for streams in nodes for data in streams.values()))
    return nodes


def decode_nested(nodes: Sequence[Streams], type_: pa.DataType) -> pa.Scalar:
    """Decode the default value of a column of a nested type, or raise CorruptError."""
    root = Node.of(type_)
    if len(nodes) != root.count:
        raise CorruptError(f"a default has {len(nodes)} nodes; {type_} has {root.count}")
    _check_size(b"".join(data for streams in nodes for data in streams.values()))
    return _assembled(root, iter(nodes), 1, [0])[0]


def from_json(value: object, type_: pa.DataType) -> pa.Scalar:
    """Decode a default value with its bytes in base64, or raise CorruptError.

    That of a nested type is a list of its nodes.
    """
    if not is_nested(type_):
        return decode_default(_bytes(value), type_)
    return decode_nested([_node(node) for node in _list(value)], type_)


def _streams(flat: pa.Array) -> Streams:
    """Return the bytes of the streams of a flat array; of a dictionary array, of its values."""
    if pa.types.is_dictionary(flat.type):
        flat = as_stored(flat.dictionary).take(flat.indices)
    block = encode(flat)
    streams = {
        stream.layout.name: stream.data.tobytes()
        for stream in block.streams
        if stream.layout.dtype != lists.ROWS
    }
    if block.nan_is_null:
        streams = {VALID: bitmap(np.asarray(flat.is_valid())).to_pybytes(), **streams}
    return streams


def _assembled(node: Node, nodes: Iterator[Streams], rows: int, all_rows: list[int]) -> pa.Array:
    """Return the rows of a node, whose streams and those of its children follow in pre-order.

    `all_rows` is the number of rows of the nodes before it.
    """
    all_rows[0] += rows
    _check_rows(all_rows[0])
    plain = value_type(node.flat)
    flat = _decoded(next(nodes), rows, plain)
    if pa.types.is_dictionary(node.flat):
        flat = nulls(rows, node.flat) if pa.types.is_null(plain) else _encoded(flat, node.flat)
    below = rows_of_children(node, flat)
    children = [_assembled(child, nodes, below, all_rows) for child in node.children]
    return assemble(node, flat, children)


def _encoded(array: pa.Array, type_: pa.DictionaryType) -> pa.DictionaryArray:
    """Return values as a dictionary type; CorruptError if it has no code for each."""
    found = as_stored(array).dictionary_encode()
    if len(found.dictionary) > room(type_):
        raise CorruptError(f"a default has {len(found.dictionary)} values of {type_}")
    return recoded(found, type_)


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
        raise CorruptError(f"the default of a column of type {type_} is not one of its nodes")
    plain = value_type(type_)
    width = _width(plain)
    if pa.types.is_null(plain):
        raise CorruptError("a column of type null has a default; expected none")
    if width is not None and len(data) != width:
        raise CorruptError(f"a default has {len(data)} bytes; a value of {plain} has {width}")
    streams = {VALUES: data} if VALUES in layout_of(plain).streams else {}
    if ENDS in layout_of(plain).streams:
        streams[ENDS] = np.array([len(data)], layout_of(plain).streams[ENDS].dtype).tobytes()
    array = _decoded(streams, 1, plain)
    if pa.types.is_dictionary(type_):
        codes = pa.array([0], type_.index_type)
        array = pa.DictionaryArray.from_arrays(codes, array, ordered=type_.ordered)
    return array


def _decoded(streams: Streams, rows: int, type_: pa.DataType) -> pa.Array:
    """Decode rows of a flat type with the decoder that reads files."""
    layouts = layout_of(type_).streams
    needed = {name for name, layout in layouts.items() if layout.dtype != lists.ROWS} - {VALID}
    if not needed <= streams.keys() <= needed | (layouts.keys() & {VALID}):
        raise CorruptError(f"a default has the streams {sorted(streams)}; {type_} has {needed}")
    for name, data in streams.items():
        bits = layouts[name].bits
        if bits is not None and len(data) != layouts[name].nbytes(rows):
            raise CorruptError(f"a default has {len(data)} bytes of {name!r}, for {rows} rows")
    items = 0
    if needed < layouts.keys() - {VALID} and rows:
        items = int(np.frombuffer(streams[ENDS], layouts[ENDS].dtype)[-1])
    piece = Piece(rows, {name: len(data) for name, data in streams.items()}, items=max(items, 0))
    column = decoder(type_, [piece])
    for name, data in streams.items():
        target = column.target(0, name)
        target.buffer[:] = np.frombuffer(data, np.uint8)
        if target.check is not None and data:
            target.check(0, len(data))
    for check in column.checks():
        check()
    return one_array(column.finish())


def _width(type_: pa.DataType) -> int | None:
    """Return the bytes of a value; None if each value has its own length."""
    streams = layout_of(type_).streams
    if VALUES not in streams:
        return 0
    return streams[VALUES].nbytes(1) if streams[VALUES].bits is not None else None


def _check_size(data: bytes) -> None:
    if len(data) > MAX_DEFAULT_BYTES:
        raise LimitError(f"a default has {len(data)} bytes; at most {MAX_DEFAULT_BYTES} are kept")


def _check_rows(rows: int) -> None:
    if rows > MAX_ROWS:
        raise LimitError(f"a default has {rows} items; at most {MAX_ROWS} are kept")


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise CorruptError("the default value is not a list of nodes")
    return value


def _node(node: object) -> Streams:
    if not isinstance(node, dict):
        raise CorruptError("a node of the default value is not an object of streams")
    return {name: _bytes(text) for name, text in node.items()}


def _bytes(text: object) -> bytes:
    try:
        return base64.b64decode(text, validate=True)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise CorruptError("the default value is not base64") from None
