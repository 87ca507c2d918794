"""Attributes of a DataFrame come back as they were, and no document can do harm."""

import datetime
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blztable.convert.frames.frame import to_frame
from blztable.convert.frames.pandas_metadata import arrow_metadata
from blztable.convert.gateway import ingest
from blztable.convert.objects.tagged import DEPTH_MAX, TAG, checked_attrs, plain_attrs
from blztable.errors import FormatError, SchemaError
from blztable.format import jsontext
from support.frame_strategies import NAMES, NAT, NUMPY, TEXT, rebuilt

UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as")
DTYPES = [*NUMPY, *(f"{kind}8[{unit}]" for kind in "Mm" for unit in UNITS)]


def returned(attrs):
    """Return the attributes after a round trip through the manifest."""
    return plain_attrs(jsontext.loads(jsontext.dumps(checked_attrs(attrs)), "attributes"))


def same(one, other) -> bool:
    """True if type and value agree to the bit; only the payload of a single NaN may differ."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if isinstance(one, np.generic) and one.dtype != other.dtype:
        return False
    return repr(one) == repr(other)


@st.composite
def arrays(draw) -> np.ndarray:
    dtype = np.dtype(draw(st.sampled_from([*DTYPES, "U"])))
    if dtype.kind == "U":
        return np.array(draw(st.lists(TEXT, max_size=3)), f"U{draw(st.integers(4, 9))}")
    if dtype.kind == "b":
        return np.array(draw(st.lists(st.booleans(), max_size=9)), bool)
    count = draw(st.integers(0, 4))
    size = count * dtype.itemsize
    return np.frombuffer(draw(st.binary(min_size=size, max_size=size)), dtype)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | TEXT
    | NAMES.filter(lambda label: not isinstance(label, tuple))
    | arrays()
    | arrays().filter(len).map(lambda array: array[0])
    | st.just(np.datetime64(NAT, "us")),
    lambda values: (
        st.lists(values, max_size=3) | st.dictionaries(TEXT | st.just(TAG), values, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(TEXT | st.just(TAG), VALUES, max_size=4))
def test_any_attributes_come_back_as_they_were(attrs):
    assert same(returned(attrs), attrs)


@pytest.mark.parametrize("kind", ["scalar", "array"])
@pytest.mark.parametrize("dtype", [*DTYPES, "U3"])
def test_every_dtype_comes_back(dtype, kind):
    array = np.array([0, 1], "u1").astype(dtype)
    value = array[1] if kind == "scalar" else array
    assert same(returned({"a": value}), {"a": value})


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (np.int16(7), ["numpy", "int16", 7]),
        (np.float32(1.5), ["numpy", "float32", "0x1.8000000000000p+0"]),
        (np.datetime64("2020-01-01", "D"), ["numpy", "M8[D]", 18262]),
        (np.str_("x"), ["numpy", "str", "x"]),
        (np.array([1, 256], "u2"), ["array", "uint16", 2, "AQAAAQ=="]),
        (np.array([1, 256], ">u2"), ["array", "uint16", 2, "AQAAAQ=="]),
        (np.array([1, 0, 256, 0], "u2")[::2], ["array", "uint16", 2, "AQAAAQ=="]),
        (np.array(["x", ""], "U4"), ["array", "str", 4, ["x", ""]]),
        (float("-inf"), ["float", "-inf"]),
        (float("nan"), ["float", "nan"]),
        ({TAG: 1, "b": 2}, ["object", {TAG: 1, "b": 2}]),
        (datetime.date(2020, 1, 2), ["date", "2020-01-02"]),
    ],
    ids=repr,
)
def test_the_tag_of_a_value(value, form):
    assert checked_attrs({"a": value}) == {"a": {TAG: form}}


@pytest.mark.parametrize(
    "texts", [np.zeros(16, "U64"), np.array(["x" * 400, *[""] * 15])], ids=lambda texts: texts.dtype
)
def test_some_texts_may_be_far_shorter_than_others(texts):
    assert same(returned({"a": texts}), {"a": texts})


def test_what_json_has_is_not_tagged():
    attrs = {"a": [1, 2.5, None, True, "x", {"b": {}}], TAG: 7}
    assert checked_attrs(attrs) == attrs
    assert plain_attrs(attrs) == attrs
    assert plain_attrs(attrs)["a"] is not attrs["a"]


def test_an_array_that_was_read_may_be_written_to():
    found = returned({"a": np.arange(3), "b": np.array([True])})
    found["a"][0] = 7
    found["b"][0] = False
    assert found["a"].tolist() == [7, 1, 2]


@pytest.mark.parametrize(
    "value",
    [
        np.zeros((2, 2)),
        np.array(1),
        np.array([b"x"]),
        np.array([1j]),
        np.array([1], "M8[3D]"),
        # Without a unit: giving a value is deprecated, filling with zeros is not.
        np.zeros(1, "m8"),
        np.ma.array([1], mask=[True]),
        np.complex64(1),
        np.zeros(1, "m8")[0],
        np.longdouble(1),
        np.array(["\ud800"]),
        datetime.time(1, tzinfo=datetime.UTC),
        pd.Series([1]),
        np.zeros(16, "U65"),
    ],
    ids=repr,
)
def test_what_would_not_come_back_is_told_by_its_key(value):
    with pytest.raises(SchemaError, match=r"^attrs\['a'\]\[0\]: "):
        checked_attrs({"a": [value]})


def test_objects_with_the_key_of_the_tag_count_as_deep_as_they_become():
    value = 7
    for _ in range(DEPTH_MAX // 3 - 1):
        value = {TAG: value}
    assert same(returned({"a": value}), {"a": value})
    for _ in range(2):
        value = {TAG: value}
    with pytest.raises(SchemaError, match="nested deeper"):
        checked_attrs({"a": value})


@pytest.mark.parametrize(
    "form",
    [
        None,
        7,
        "x",
        {},
        [],
        ["what"],
        [["object", {}]],
        ["object"],
        ["object", 1],
        ["object", {}, {}],
        ["numpy", "O", 1],
        ["numpy", "int8", 300],
        ["numpy", "int8", True],
        ["numpy", "V8", 1],
        ["array"],
        ["array", "O", 1, "AAAAAAAAAAA="],
        ["array", "int64,int64", 1, "AAAAAAAAAAA="],
        ["array", ["int64"], 1, "AAAAAAAAAAA="],
        ["array", "int64", 2, "AAAAAAAAAAA="],
        ["array", "int64", -1, ""],
        ["array", "int64", 1 << 80, ""],
        ["array", "int64", 1.0, "AAAAAAAAAAA="],
        ["array", "int64", 1, "AAAAAAAAAAA"],
        ["array", "int64", 1, "AAAAAAAAAA\u00e9="],
        ["array", "int64", 1, "AAAA AAAAAAA="],
        ["array", "bool", 1, "Ag=="],
        ["array", "str", 1, ["xy"]],
        ["array", "str", -1, []],
        ["array", "str", 1 << 40, ["x"]],
        ["array", "str", 65, [""] * 16],
        ["array", "str", 1025, []],
        ["array", "str", 400, ["x" * 399, *[""] * 16]],
        ["array", "str", 1, [1]],
        ["array", "str", 1.0, ["x"]],
        ["array", "str", 1, "x"],
        ["float", "0x"],
        ["timestamp", "us", 1 << 70, None],
    ],
    ids=repr,
)
def test_a_tag_that_is_none_is_refused(form):
    for attrs in ({"a": {TAG: form}}, {"a": [{"b": {TAG: form}}]}):
        with pytest.raises(FormatError, match=r"attrs\['a'\]: "):
            plain_attrs(attrs)
    with pytest.raises(FormatError):
        plain_attrs({"a": {TAG: ["float", "nan"], "b": 1}})


def test_a_frame_keeps_them_also_by_way_of_pandas_metadata():
    frame = pd.DataFrame({"x": [1]})
    frame.attrs = {"seen": np.int64(7), "tag": {TAG: [np.float32(1.5)]}, "nan": float("nan")}
    stored = ingest(frame)
    json.dumps(stored.attrs, allow_nan=False)
    found = to_frame(rebuilt(stored.table), 1, stored.frame, stored.attrs)
    assert same(found.attrs, frame.attrs)
    text = arrow_metadata(stored.frame, stored.table.schema, 1, stored.attrs)
    table = pa.Table.from_arrays(
        stored.table.columns, schema=stored.table.schema.with_metadata({b"pandas": text})
    )
    again = ingest(table)
    found = to_frame(rebuilt(again.table), 1, again.frame, again.attrs)
    assert same(found.attrs, frame.attrs)
