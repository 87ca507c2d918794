"""A dictionary of fixed-width values: the very same bits come back, and no code leads out of it."""

import base64
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.columns.blocks import StreamLayout
from blztable.columns.encodings.parse import StreamContext, parse
from blztable.columns.encodings.values import MAX_BYTES, encode_few_values
from blztable.errors import CorruptError

DTYPES = ("<i2", "<u2", "<i4", "<u4", "<f4", "<i8", "<u8", "<f8", "<f2", "|V3", "|V16", "|V255")


def layout_of(dtype):
    width = np.dtype(dtype).itemsize
    return StreamLayout("values", dtype, width, 8 * width)


def encode(values, mask=None, most=None):
    layout = layout_of(values.dtype.str)
    return encode_few_values(layout, values.view("u1"), mask, most or values.itemsize)


def parsed(encoding, dtype, rows, code):
    return parse(json.loads(json.dumps(encoding)), StreamContext(layout_of(dtype), rows, 8), code)


def decoded(one, codes, dtype):
    out = np.empty(len(codes) * np.dtype(dtype).itemsize, "u1")
    one.decode(0, codes.view("u1"), out)
    picked = np.empty_like(out)
    one.pick(np.arange(len(codes)), codes.view("u1"), picked)
    assert out.tobytes() == picked.tobytes()
    return out.tobytes()


@given(st.data(), st.sampled_from(DTYPES))
def test_few_values_come_back_bit_for_bit(data, dtype):
    width = np.dtype(dtype).itemsize
    items = data.draw(st.lists(st.binary(min_size=width, max_size=width), min_size=1, max_size=9))
    rows = data.draw(st.integers(80, 300))
    numbers = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, len(items), rows)
    values = np.frombuffer(b"".join(items), dtype)[numbers]
    mask = None
    if data.draw(st.booleans()):
        mask = np.arange(rows) % 11 != data.draw(st.integers(0, 12))
    one, codes = encode(values, mask)
    assert codes.dtype == "u1"
    read = parsed(one.to_json(), dtype, rows, "|u1")
    assert read.to_json() == one.to_json()
    raw, found = values.tobytes(), decoded(read, codes, dtype)
    for row in np.flatnonzero(np.ones(rows, bool) if mask is None else mask).tolist():
        assert found[row * width : (row + 1) * width] == raw[row * width : (row + 1) * width]


@pytest.mark.parametrize("dtype", ["<i8", "<u8", "<f8", "<f4", "<i2"])
def test_codes_are_in_the_order_of_the_values(dtype):
    items = np.array([-3, 0, 7, 200, -1], "i8").astype(dtype)
    values = items[np.arange(200) % 5]
    one, codes = encode(values)
    assert (np.diff(one.items.view(dtype)) > 0).all()
    assert (one.items.view(dtype)[codes] == values).all()


@pytest.mark.parametrize(("count", "dtype"), [(256, "u1"), (257, "<u2"), (3000, "<u2")])
def test_codes_have_one_byte_or_two(count, dtype):
    items = np.random.default_rng(0).normal(size=count)
    values = items[np.arange(count * 9) % count]
    one, codes = encode(values)
    assert codes.dtype == dtype
    assert decoded(one, codes, "<f8") == values.tobytes()
    assert (encode(values, most=2) is None) == (count > 256)
    assert encode(values, most=1) is None


@pytest.mark.parametrize(
    "values",
    [
        np.zeros(0),
        np.arange(8.0),
        np.arange(5000.0),
        # Few in the sample, many in all.
        np.append(np.zeros(60_000), np.arange(9000)),
        np.append(np.arange(9000), np.zeros(60_000)),
        np.arange(MAX_BYTES // 8 + 1.0).repeat(8),
        np.zeros(80, "|V256"),
        np.zeros(80, "u1"),
    ],
)
def test_other_values_have_no_dictionary(values):
    assert encode(values) is None


def test_rows_that_all_are_null_have_no_dictionary():
    assert encode(np.zeros(80), np.zeros(80, bool)) is None


@pytest.mark.parametrize("code", ["|u1", "<u2"])
def test_a_code_outside_of_the_dictionary_is_corrupt(code):
    one = parsed({"kind": "dictionary", "items": base64_of(bytes(24))}, "<f8", 8, code)
    assert decoded(one, np.array([0, 1, 2], code), "<f8") == bytes(24)
    for wrong in (3, 255):
        with pytest.raises(CorruptError, match="outside of a dictionary of 3 items"):
            decoded(one, np.array([0, wrong, 2], code), "<f8")


def base64_of(data):
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    "items", [None, 7, "?", "", base64_of(bytes(9)), base64_of(bytes(MAX_BYTES + 8))]
)
def test_the_items_are_whole_values_and_not_too_many(items):
    parsed({"kind": "dictionary", "items": base64_of(bytes(MAX_BYTES))}, "<i8", 8, "|u1")
    with pytest.raises(CorruptError, match="the items of a dictionary"):
        parsed({"kind": "dictionary", "items": items}, "<i8", 8, "|u1")


@pytest.mark.parametrize(
    ("dtype", "code"),
    [("<i8", "<u8"), ("<i8", "<i4"), ("<i2", "<u2"), ("|u1", "|u1"), ("|V256", "|u1")],
)
def test_codes_are_narrower_than_values_of_up_to_255_bytes(dtype, code):
    width = np.dtype(dtype).itemsize
    with pytest.raises(CorruptError, match="encoding 'dictionary' of stream 'values'"):
        parsed({"kind": "dictionary", "items": base64_of(bytes(width))}, dtype, 8, code)


def test_the_values_of_codes_are_the_items():
    one, _ = encode(np.array([2.5, -0.0, np.nan, 1.0] * 20))
    assert one.values_of_codes(pa.float64(), 3) is None
    found = one.values_of_codes(pa.float64(), 4)
    assert found.buffers()[1].to_pybytes() == one.items.tobytes()


def test_the_example_of_the_format_page():
    page = (Path(__file__).parents[3] / "docs/format.md").read_text(encoding="utf-8")
    encoding = {"kind": "dictionary", "items": "AAAAAAAAAIAzMzMzMzPTPw=="}
    assert json.dumps(encoding, separators=(",", ":")) in page
    one = parsed(encoding, "<f8", 3, "|u1")
    expected = np.array([-0.0, 0.3, 0.3]).tobytes()
    assert decoded(one, np.array([0, 1, 1], "u1"), "<f8") == expected
