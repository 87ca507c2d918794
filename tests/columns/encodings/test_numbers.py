"""Encodings of numbers: the very same bits come back, from any codes some values do."""

import base64
import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as np_st

from blztable.columns.blocks import StreamLayout
from blztable.columns.encodings.choose import encode_doubles, encode_integers
from blztable.columns.encodings.numbers import MOST_ODD
from blztable.columns.encodings.parse import StreamContext, parse

INTEGERS = ("<i2", "<i4", "<i8", "<u2", "<u4", "<u8")
PAGES = (8, 16, 64)


def layout_of(dtype):
    width = np.dtype(dtype).itemsize
    return StreamLayout("values", dtype, width, 8 * width)


@st.composite
def integers(draw):
    """Draw integers that are near one another, rising, or anything."""
    dtype = np.dtype(draw(st.sampled_from(INTEGERS)))
    limits = np.iinfo(dtype)
    rows = draw(st.integers(1, 200))
    kind = draw(st.sampled_from(["near", "rising", "any"]))
    if kind == "any":
        return draw(np_st.arrays(dtype, rows))
    start = draw(st.integers(limits.min, limits.max))
    most = draw(st.sampled_from([0, 1, 255, 256, 65_535, 65_536]))
    steps = draw(st.lists(st.integers(0, most), min_size=rows, max_size=rows))
    wide = np.array(steps, "<u8")
    if kind == "rising":
        wide = np.cumsum(wide)
    # Sums wrap, as those of a decoder do.
    unsigned = wide + np.array([start], object).astype(np.int64 if start < 0 else "<u8").view("<u8")
    return unsigned.astype(f"<u{dtype.itemsize}").view(dtype)


@st.composite
def doubles(draw):
    """Draw doubles with few decimals in one of both forms, and now and then anything else."""
    power = draw(st.integers(0, 6))
    whole = draw(st.lists(st.integers(-(2**33), 2**33), min_size=1, max_size=200))
    near = draw(st.lists(st.integers(0, 300), min_size=1, max_size=200))
    numbers = np.array(draw(st.sampled_from([whole, near])), "<f8")
    values = numbers / 10.0**power if draw(st.booleans()) else numbers * float(f"1e-{power}")
    odd = draw(st.lists(st.floats(allow_nan=True), max_size=2))
    for value in odd:
        values[draw(st.integers(0, len(values) - 1))] = value
    return values


def check_round_trip(data, values, encode):
    page_rows = data.draw(st.sampled_from(PAGES))
    mask = data.draw(st.none() | np_st.arrays(bool, len(values)))
    if mask is not None:
        values[~mask] = 0
    encoded = encode("values", values, mask, page_rows)
    if encoded is None:
        return
    made, codes = encoded
    assert codes.itemsize < values.itemsize
    # What the metadata say makes the same encoding.
    written = json.loads(json.dumps(made.to_json()))
    owner = StreamContext(layout_of(values.dtype.str), len(values), page_rows)
    read = parse(written, owner, made.stored.dtype)
    assert read.to_json() == made.to_json()
    assert read.stored == made.stored
    # By whole pages, as chunks are, in any order.
    starts = data.draw(st.permutations(range(0, len(values), page_rows)))
    out = np.empty(values.nbytes, np.uint8)
    for start in starts:
        stop = min(start + page_rows, len(values))
        part = out[start * values.itemsize : stop * values.itemsize]
        read.decode(start, codes[start:stop].view(np.uint8), part)
    bits = f"<u{values.itemsize}"
    if not read.needs_pages:
        rows = np.flatnonzero(data.draw(np_st.arrays(bool, len(values))))
        picked = np.empty(len(rows) * values.itemsize, np.uint8)
        read.pick(rows, codes[rows].view(np.uint8), picked)
        assert (picked.view(bits) == out.view(bits)[rows]).all()
    same = out.view(bits) == values.view(bits)
    assert same.all() if mask is None else same[mask].all()


@given(st.data(), integers())
def test_integers_come_back_bit_by_bit(data, values):
    check_round_trip(data, values, encode_integers)


@given(st.data(), doubles())
def test_doubles_come_back_bit_by_bit(data, values):
    check_round_trip(data, values, encode_doubles)


@pytest.mark.parametrize(
    ("values", "kind", "dtype"),
    [
        (np.arange(1000, 1200, dtype="<i8"), "narrow", "|u1"),
        (np.arange(0, 10**6, 9973, dtype="<i8"), "delta", "|u1"),
        # The step from the lowest to the highest value is -1, modulo 2**64.
        (np.array([-(2**63), 2**63 - 1] * 8), "delta", "|u1"),
        (np.array([0, 2**40, 7, 2**41]), None, None),
        (np.array([2**64 - 1, 2**64 - 256], "<u8"), "narrow", "|u1"),
        (np.array([0, 65_536, 0, 99], "<i4"), None, None),
        (np.array([5, 5, 5], "<i2"), "narrow", "|u1"),
    ],
)
def test_the_narrowest_codes_are_chosen(values, kind, dtype):
    encoded = encode_integers("values", values, None, 64)
    if kind is None:
        assert encoded is None
        return
    encoding, codes = encoded
    assert (encoding.kind, codes.dtype.str) == (kind, dtype)


def test_each_page_has_a_base_of_its_own_only_where_that_is_narrower():
    values = np.repeat(np.arange(4) * 10**12, 8) + np.tile(np.arange(8), 4)
    encoding, codes = encode_integers("values", values, np.ones(32, bool), 8)
    assert (len(encoding.bases), codes.dtype.itemsize) == (4, 1)
    encoding, codes = encode_integers("values", values % 200, np.ones(32, bool), 8)
    assert (len(encoding.bases), codes.dtype.itemsize) == (1, 1)


@pytest.mark.parametrize("form", ["/", "*"])
@pytest.mark.parametrize("power", range(7))
def test_decimals_of_both_forms_are_scaled(power, form):
    whole = np.arange(90_000, 90_250, dtype="<f8")
    values = whole / 10.0**power if form == "/" else whole * float(f"1e-{power}")
    encoding, codes = encode_doubles("values", values, None, 64)
    assert codes.dtype.itemsize == 1
    assert encoding.kind == "scaled"
    assert encoding.power <= power


OTHER_NAN = np.array(0x7FF8_0000_0000_0001, "<u8").view("<f8")[()]
ODD = [OTHER_NAN, -np.nan, -0.0, np.inf, -np.inf, 1 / 3, 2.0**60, 5e-324]


@pytest.mark.parametrize("odd", ODD)
def test_a_few_doubles_that_are_no_decimals_are_kept_beside_the_codes(odd):
    values = np.array([0.25, 0.5] * 100)
    values[[3, 7, 199]] = odd
    encoding, codes = encode_doubles("values", values, None, 8)
    assert encoding.at.tolist() == [3, 7, 199]
    out = np.empty(200)
    encoding.decode(0, codes.view("u1"), out.view("u1"))
    assert out.tobytes() == values.tobytes()
    rows = np.array([2, 3, 100, 199])
    picked = np.empty(4)
    encoding.pick(rows, codes[rows].view("u1"), picked.view("u1"))
    assert picked.tobytes() == values[rows].tobytes()
    assert encoding.values_of_codes(pa.float64(), 1 << 16) is None


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9])
@pytest.mark.parametrize("pages", [8, 64, 1024])
def test_nan_has_a_code_of_its_own(share, pages):
    rng = np.random.default_rng(pages)
    values = rng.integers(-9000, 9000, 1024 * 8) / 100
    values[rng.random(len(values)) < share] = np.nan
    encoding, codes = encode_doubles("values", values, None, pages)
    assert (encoding.nan, len(encoding.at)) == (0, 0)
    assert (codes == 0).tolist() == np.isnan(values).tolist()
    out = np.empty(len(values))
    encoding.decode(0, codes.view("u1"), out.view("u1"))
    assert out.tobytes() == values.tobytes()
    rows = np.flatnonzero(rng.random(len(values)) < 0.1)
    picked = np.empty(len(rows))
    encoding.pick(rows, codes[rows].view("u1"), picked.view("u1"))
    assert picked.tobytes() == values[rows].tobytes()


def test_doubles_of_one_base_and_nan_can_be_looked_up():
    values = np.array([0.25, 0.5, np.nan, 0.75] * 50)
    encoding, codes = encode_doubles("values", values, None, 64)
    table = encoding.values_of_codes(pa.float64(), 1 << 16).to_numpy()
    assert table[codes].tobytes() == values.tobytes()


def test_nan_beside_other_odd_values_and_nulls_comes_back():
    values = np.arange(640) / 4
    values[::5], values[7], values[9] = np.nan, -0.0, OTHER_NAN
    mask = np.arange(640) % 3 > 0
    encoding, codes = encode_doubles("values", values, mask, 64)
    assert (encoding.nan, encoding.at.tolist()) == (0, [7])
    out = np.empty(640)
    encoding.decode(0, codes.view("u1"), out.view("u1"))
    assert out[mask].tobytes() == values[mask].tobytes()


@pytest.mark.parametrize("odd", ODD)
def test_many_doubles_that_are_no_decimals_are_kept_as_they_are(odd):
    values = np.array([0.25] * 100 + [odd] * 2)
    assert encode_doubles("values", values, None, 8) is None
    values = np.full(64 * (MOST_ODD + 1), 0.25)
    values[::64] = odd
    assert encode_doubles("values", values, None, 64) is None
    values[0] = 0.25
    assert len(encode_doubles("values", values, None, 64)[0].at) == MOST_ODD


def test_a_sample_that_misses_an_odd_value_is_verified():
    values = np.full(10_000, 0.25)
    values[5_001] = 1 / 3
    assert encode_doubles("values", values, None, 64)[0].at.tolist() == [5001]


@given(st.data())
def test_any_codes_and_parameters_make_some_values(data):
    dtype = data.draw(st.sampled_from(["<i8", "<u4", "<i2"]))
    width = np.dtype(dtype).itemsize
    code = data.draw(st.sampled_from([one for one in (1, 2, 4) if one < width]))
    kind = data.draw(st.sampled_from(["narrow", "delta"]))
    words = np_st.arrays("<i8", 3)
    parameters = {
        "bases": to_json(data.draw(words)),
        "firsts": to_json(data.draw(words)),
        "least": to_json(data.draw(np_st.arrays("<i8", 1))),
    }
    codes = data.draw(np_st.arrays(f"<u{code}", 20))
    stored = {1: "|u1", 2: "<u2", 4: "<u4"}[code]
    encoding = parse({"kind": kind, **parameters}, StreamContext(layout_of(dtype), 20, 8), stored)
    around = np.full(22 * width, 0xAA, np.uint8)
    encoding.decode(0, codes.view(np.uint8), around[width:-width])
    assert (around[:width] == 0xAA).all()
    assert (around[-width:] == 0xAA).all()


def to_json(words):
    return base64.b64encode(words.tobytes()).decode()
