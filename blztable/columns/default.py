"""The default value of a column as bytes, and back.

The bytes are one row of the type's streams, plain: a little-endian value, or an item of text or
binary. A dictionary type uses the bytes of its value type. A nested type has the streams of each
node: `valid` (a bit a row), `values`, `lengths` (8 bytes each); the rows of a node follow from
those of the node above. Bytes that are read are checked, because they are not trusted. A null
default has no bytes.

Knows nothing of where the bytes are kept.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from blztable.arrow.nested.assemble import assemble, rows_of_children, without_unused
from blztable.arrow.nested.flatten import flatten, list_array, struct_array
from blztable.arrow.nested.nodes import CODES, ITEMS, RUNS, SIZE, Node, is_nested
from blztable.arrow.types import (
    as_stored,
    bitmap,
    nulls,
    offsets_of,
    recoded,
    stored_type,
    value_type,
)
from blztable.columns.dictionaries import room
from blztable.columns.parts.physical import Form, Physical, physical, validity_of, values_of
from blztable.columns.types import take
from blztable.errors import CorruptError, LimitError

MAX_DEFAULT_BYTES = 1 << 16
# Rows of all nodes. Those that take no bytes, such as nulls, may be more than the bytes.
MAX_ROWS = 1 << 24
LENGTH, MAX_LENGTH = np.dtype("<i8"), (1 << 31) - 1
VALID, VALUES, LENGTHS = "valid", "values", "lengths"
# The bytes of each stream of a node.
Streams = Mapping[str, bytes]


def encode_default(scalar: pa.Scalar) -> bytes:
    """Return the bytes of a value that is not null."""
    value = scalar.value if pa.types.is_dictionary(scalar.type) else scalar
    assert value.is_valid, scalar.type
    data = _streams(pa.repeat(value, 1)).get(VALUES, b"")
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


def to_json(value: pa.Scalar) -> str | list[Any]:
    """Return a value that is not null with its bytes in base64."""
    if is_nested(value.type):
        return nodes_to_json(encode_nested(value))
    return _text(encode_default(value))


def nodes_to_json(nodes: Sequence[Streams]) -> list[Any]:
    """Return the streams of some nodes with their bytes in base64."""
    return [{name: _text(data) for name, data in streams.items()} for streams in nodes]


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _streams(flat: pa.Array) -> Streams:
    """Return the bytes of the streams of a flat array; of a dictionary array, of its values."""
    if pa.types.is_dictionary(flat.type):
        flat = as_stored(flat.dictionary).take(flat.indices)
    flat = as_stored(flat)
    form, valid = physical(flat.type), validity_of(flat)
    streams = {} if valid is None else {VALID: bitmap(valid).to_pybytes()}
    if form.form in (Form.BYTES, Form.ITEMS):
        offsets = offsets_of(flat, f"<i{form.width}").astype(LENGTH)
        lengths = np.diff(offsets) if valid is None else np.where(valid, np.diff(offsets), 0)
        streams[LENGTHS] = lengths.tobytes()
        if form.form is Form.BYTES:
            items = flat.cast(pa.large_string() if form.is_text else pa.large_binary())
            items = items.cast(pa.large_binary()).to_pylist()
            streams[VALUES] = b"".join(item or b"" for item in items)
    elif form.form is not Form.NOTHING:
        values = values_of(flat, form)
        if valid is not None:
            values = values.copy()
            values[~valid] = 0
        streams[VALUES] = np.ascontiguousarray(values).tobytes()
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
    encoded = as_stored(array).dictionary_encode()
    if len(encoded.dictionary) > room(type_):
        raise CorruptError(f"a default has {len(encoded.dictionary)} values of {type_}")
    return recoded(encoded, type_)


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
        zero = _decode(bytes(_width(value_type(node.type)) or 0), node.type)
        zeros = take(zero, np.zeros(rows, np.int64))
        return zeros if zeros.type.id == node.type.id else zeros.cast(node.type)
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
    streams = {VALUES: data}
    if width is None:
        streams[LENGTHS] = np.array([len(data)], LENGTH).tobytes()
    array = _decoded(streams, 1, plain)
    if pa.types.is_dictionary(type_):
        codes = pa.array([0], type_.index_type)
        array = pa.DictionaryArray.from_arrays(codes, array, ordered=type_.ordered)
    return array


def _decoded(streams: Streams, rows: int, type_: pa.DataType) -> pa.Array:
    """Return rows of a flat type, of a list their lengths; CorruptError if they are not valid."""
    stored = stored_type(type_)
    form = physical(stored)
    needed = {
        Form.NOTHING: set[str](),
        Form.ITEMS: {LENGTHS},
        Form.BYTES: {LENGTHS, VALUES},
    }.get(form.form, {VALUES})
    optional = set() if pa.types.is_null(stored) else {VALID}
    if not needed <= streams.keys() <= needed | optional:
        raise CorruptError(f"a default has the streams {sorted(streams)}; {type_} has {needed}")
    sizes = {VALID: -(-rows // 8), LENGTHS: LENGTH.itemsize * rows, VALUES: form.width * rows}
    for name, data in streams.items():
        has_size = name != VALUES or form.form is not Form.BYTES
        if has_size and len(data) != sizes[name]:
            raise CorruptError(f"a default has {len(data)} bytes of {name!r}, for {rows} rows")
    if pa.types.is_null(stored):
        return nulls(rows, type_)
    valid = pa.py_buffer(streams[VALID]) if VALID in streams else None
    buffers, children = [valid], None
    if LENGTHS in needed:
        ends, total = _ends(streams[LENGTHS])
        if form.form is Form.BYTES and total != len(streams[VALUES]):
            raise CorruptError(f"a default has {len(streams[VALUES])} bytes of items, not {total}")
        buffers.append(pa.py_buffer(ends.astype(f"<i{form.width}")))
    if form.form is Form.ITEMS:
        children = [pa.Array.from_buffers(pa.null(), total, [None])]
    elif VALUES in needed:
        buffers.append(pa.py_buffer(_values(streams[VALUES], form)))
    array = pa.Array.from_buffers(stored, rows, buffers, children=children)
    # Times that no clock shows are values, as in a column.
    if form.is_text or pa.types.is_decimal(stored):
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as error:
            raise CorruptError(f"a default of {type_}: {error}") from None
    return array if stored.equals(type_) else array.cast(type_)


def _ends(data: bytes) -> tuple[np.ndarray, int]:
    """Return where items end, from 0 on, and the last of these."""
    lengths = np.frombuffer(data, LENGTH)
    ends = np.zeros(len(lengths) + 1, LENGTH)
    np.cumsum(lengths, out=ends[1:])
    if (lengths < 0).any() or (lengths > MAX_LENGTH).any() or ends[-1] > MAX_LENGTH:
        raise CorruptError("a default has items of an impossible length")
    return ends, int(ends[-1])


def _values(data: bytes, form: Physical) -> bytes:
    """Return values as Arrow has them: booleans are bits there."""
    if form.form is not Form.BOOL:
        return data
    flags = np.frombuffer(data, np.uint8)
    if flags.max(initial=0) > 1:
        raise CorruptError("a default has a boolean that is neither 0 nor 1")
    return bitmap(flags.view(np.bool_)).to_pybytes()


def _width(type_: pa.DataType) -> int | None:
    """Return the bytes of a value; None if each value has its own length."""
    form = physical(type_)
    return None if form.form in (Form.BYTES, Form.ITEMS) else form.width


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
