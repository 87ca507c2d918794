"""A constant stream: the very same bytes for every row, and none of them in the file."""

import base64
import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.columns.blocks import VALIDITY, StreamLayout
from blztable.columns.encodings.choose import encoded
from blztable.columns.encodings.items import MAX_MADE_BYTES
from blztable.columns.encodings.parse import StreamContext, parse
from blztable.columns.types import encode
from blztable.errors import CorruptError
from support import arrow_strategies as types

I64 = StreamLayout("values", "<i8", 8, 64)


def to_json(data: bytes) -> str:
    return base64.b64encode(data).decode()


@given(st.sampled_from([1, 2, 3, 4, 8, 12, 16, 32, 255]), st.data())
def test_a_value_fills_every_row(width, data):
    value = data.draw(st.binary(min_size=width, max_size=width))
    layout = StreamLayout("values", f"|V{width}", width, 8 * width)
    written = {"kind": "constant", "value": to_json(value)}
    read = parse(written, StreamContext(layout, 9, 8), layout.dtype)
    assert json.loads(json.dumps(read.to_json())) == written
    out = np.zeros((9 + 2) * width, "u1")
    read.decode(3, out[:0], out[width:-width])
    assert out.tobytes() == bytes(width) + 9 * value + bytes(width)


def rows_of_one_value(type_):
    """Return 20 rows of one value that is not zero."""
    width = 1 if pa.types.is_boolean(type_) else type_.bit_width // 8
    if pa.types.is_boolean(type_):
        return pa.array([True] * 20)
    data = np.tile(np.arange(1, width + 1, dtype="u1"), 20)
    if pa.types.is_decimal(type_):
        data = np.tile(np.array([1] + [0] * (width - 1), "u1"), 20)
    return pa.Array.from_buffers(type_, 20, [None, pa.py_buffer(data)])


@pytest.mark.parametrize(
    "type_",
    [*types.INTEGERS, *types.FLOATS, *types.DECIMALS, *types.TIMES, pa.bool_()],
    ids=str,
)
def test_equal_values_of_any_fixed_width_are_constant(type_):
    (stream,) = encoded(encode(rows_of_one_value(type_))).streams
    assert (stream.encoding.kind, stream.data.nbytes) == ("constant", 0)
    assert stream.nbytes == encode(rows_of_one_value(type_)).streams[0].data.nbytes


@pytest.mark.parametrize(
    ("values", "is_constant"),
    [
        (np.full(9, np.nan), True),
        (np.array([np.nan] * 8 + [-np.nan]), False),
        (np.array([0.0] * 8 + [-0.0]), False),
        (np.full(9, -0.0), True),
        (np.array([5] * 10_000 + [6] + [5] * 10_000), False),
        (np.array([7]), True),
    ],
)
def test_values_are_equal_if_their_bits_are(values, is_constant):
    (stream,) = encoded(encode(pa.array(values, from_pandas=False))).streams
    kind = stream.encoding.kind if stream.encoding else None
    assert (kind == "constant") == is_constant


def test_nulls_do_not_count():
    array = pa.array([None, 7, None, 7, 7])
    valid, values = encoded(encode(array)).streams
    assert valid.encoding.kind == "runs"
    assert values.encoding.value == (7).to_bytes(8, "little")
    valid, values = encoded(encode(pa.nulls(9, pa.int64()))).streams
    assert (valid.encoding.value, values.encoding.value) == (b"\0", bytes(8))
    assert valid.nbytes == 2


def test_more_bytes_than_a_file_may_claim_are_not_constant():
    rows = MAX_MADE_BYTES // 8 + 1
    (stream,) = encoded(encode(pa.array(np.zeros(rows, "i8")))).streams
    assert stream.encoding.kind == "narrow"


@pytest.mark.parametrize(
    ("layout", "value", "rows"),
    [
        (I64, None, 8),
        (I64, 7, 8),
        (I64, "", 8),
        (I64, "?", 8),
        (I64, to_json(bytes(7)), 8),
        (I64, to_json(bytes(9)), 8),
        (VALIDITY, to_json(bytes(2)), 8),
        (I64, to_json(bytes(8)), MAX_MADE_BYTES // 8 + 1),
        (StreamLayout("ends", "<i8", 8, 64), to_json(bytes(8)), 8),
        (StreamLayout("values", "|u1", 1, None), to_json(b"a"), 8),
        (StreamLayout("values", "|V256", 1, 2048), to_json(bytes(256)), 8),
    ],
)
def test_a_constant_that_does_not_suit_its_stream_is_corrupt(layout, value, rows):
    with pytest.raises(CorruptError, match=r"encoding 'constant'|made of nothing"):
        parse({"kind": "constant", "value": value}, StreamContext(layout, rows, 8), layout.dtype)


def test_the_example_of_the_format_page():
    read = parse({"kind": "constant", "value": "BwAAAAAAAAA="}, StreamContext(I64, 3, 8), "<i8")
    out = np.empty(3, "<i8")
    read.decode(0, out.view("u1"), out.view("u1"))
    assert out.tolist() == [7, 7, 7]


WIDE = StreamLayout("values", "|V16", 16, 128)


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=60)
    | st.lists(st.integers(-5, 300), min_size=1, max_size=60),
    st.sampled_from([8, 16]),
    st.data(),
)
def test_decimals_of_64_bits_are_narrow_and_come_back(numbers, page_rows, data):
    array = pa.array(numbers, pa.decimal128(38, 0))
    nulls = data.draw(st.none() | st.lists(st.booleans(), min_size=len(array), max_size=len(array)))
    if nulls is not None:
        pairs = zip(nulls, numbers, strict=True)
        array = pa.array([None if null else one for null, one in pairs], array.type)
    plain = encode(array, page_rows)
    stream, before = encoded(plain).streams[-1], plain.streams[-1]
    if stream.encoding is None or stream.encoding.kind == "constant":
        return
    read = parse(
        stream.encoding.to_json(), StreamContext(WIDE, len(array), page_rows), stream.layout.dtype
    )
    assert read.to_json() == stream.encoding.to_json()
    out = np.empty(before.data.nbytes, "u1")
    code = stream.layout.nbytes(1)
    for start in range(0, len(array), page_rows):
        stop = min(start + page_rows, len(array))
        read.decode(start, stream.data[start * code : stop * code], out[start * 16 : stop * 16])
    present = np.asarray(array.is_valid())
    assert (out.reshape(-1, 16)[present] == before.data.reshape(-1, 16)[present]).all()
    rows = np.arange(0, len(array), 3)
    picked = np.empty(len(rows) * 16, "u1")
    codes = np.ascontiguousarray(stream.data.reshape(-1, code)[rows]).reshape(-1)
    read.pick(rows, codes, picked)
    assert (picked.reshape(-1, 16) == out.reshape(-1, 16)[rows]).all()


@pytest.mark.parametrize("odd", [2**64, -(2**64), 2**63, -(2**63) - 1, 10**37])
def test_one_number_beyond_64_bits_keeps_decimals_as_they_are(odd):
    numbers = [*range(5000), odd, *range(5000)]
    array = pa.array(numbers, pa.decimal128(38, 0))
    (stream,) = encoded(encode(array)).streams
    assert stream.encoding is None


def test_only_128_bits_are_narrow():
    assert encoded(encode(pa.array(range(99), pa.decimal256(38, 0)))).streams[0].encoding is None
    for width in (8, 32):
        layout = StreamLayout("values", f"|V{width}", width, 8 * width)
        with pytest.raises(CorruptError, match="encoding 'narrow' of stream"):
            parse(
                {"kind": "narrow", "bases": to_json(bytes(8))}, StreamContext(layout, 8, 8), "|u1"
            )
    scaled = {"kind": "scaled", "power": 1, "form": "/", "bases": to_json(bytes(8))}
    with pytest.raises(CorruptError, match="encoding 'scaled' of stream"):
        parse(scaled, StreamContext(WIDE, 8, 8), "|u1")
