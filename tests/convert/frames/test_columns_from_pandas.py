"""From pandas: data that cannot come back exactly are refused, and the error names the place."""

import datetime
import decimal
import enum

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from blztable.convert.gateway import IngestOptions, Nan, ingest
from blztable.errors import SchemaError
from support.bit_equality import assert_same
from support.frame_strategies import returned


def objects(*values):
    return pd.DataFrame({"x": pd.Series(values, dtype=object)})


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("values", "row", "shown"),
    [
        (["a", None, 1], 2, "1 of type int"),
        (["a", 1.5], 1, "1.5 of type float"),
        ([1, 2.5], 1, "2.5 of type float"),
        ([1, 1 << 64], 1, "of type int"),
        ([{"a": 1}, {"a": "x"}], 1, "'x' of type str"),
        ([[1], [2, None, "x"]], 1, "'x' of type str"),
        ([None, {1}, {"x"}], 2, "'x' of type str"),
        ([[1], (1,)], 1, "(1,) of type tuple"),
        ([np.zeros(1), np.zeros((1, 1))], 1, "its shape is (1, 1)"),
        ([pd.Timestamp("2020"), pd.Timestamp("2020", tz="UTC")], 1, "timestamp[us, tz=UTC]"),
        ([b"a", "a"], 1, "'a' of type str"),
        ([datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1)], 1, "of type datetime"),
        ([decimal.Decimal("1"), decimal.Decimal("inf")], 1, "Infinity"),
        ([datetime.time(1, tzinfo=datetime.UTC)], 0, "of type time"),
        ([True, 1], 1, "1 of type int"),
        ([Colour.RED], 0, "of type Colour"),
        ([bytearray(b"a")], 0, "of type bytearray"),
        (["a", "b\ud800"], 1, "surrogate"),
        ([None, "x" * 10_000, 3], 2, "3 of type int"),
    ],
)
def test_an_object_column_with_a_strange_value_names_the_row(values, row, shown):
    with pytest.raises(SchemaError, match=f"column 'x', row {row}") as caught:
        ingest(objects(*values))
    assert shown in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "values",
    [
        np.array([1], dtype=np.longdouble),
        np.array([1], dtype=np.clongdouble),
    ],
    ids=lambda values: str(values.dtype),
)
def test_a_dtype_that_is_not_kept_is_refused_by_name(values):
    with pytest.raises(SchemaError, match="column 'x'") as caught:
        ingest(pd.DataFrame({"x": values}))
    assert str(values.dtype) in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        ["a", None],
        ["a", np.nan],
        ["a", pd.NA],
        [None, None],
        [np.nan],
        [],
        [b"a", None],
        [b"a", pd.NaT],
        [datetime.date(1, 1, 1), pd.NaT],
        [datetime.time(23, 59, 59, 999999)],
        [decimal.Decimal("-1.50"), None],
        [decimal.Decimal("1E+3"), np.nan],
        [True, False],
        [True, None],
        [True, pd.NA],
    ],
    ids=repr,
)
def test_objects_and_their_missing_values_come_back(values):
    frame = objects(*values)
    assert_same(returned(frame), frame)


def test_mixed_missing_values_become_none():
    assert returned(objects("a", np.nan, pd.NA))["x"].tolist() == ["a", None, None]


NAN_BITS = np.array([0x7FF8000000000001, 0xFFF0000000000123, 0x3FF0000000000000], dtype="u8")


def test_nan_is_null_and_comes_back():
    frame = pd.DataFrame({"x": NAN_BITS.view("f8")})
    assert ingest(frame).table["x"].to_pylist() == [None, None, 1.0]
    assert_same(returned(frame), frame)


def test_nan_that_is_a_value_keeps_its_payload():
    table = ingest(pd.DataFrame({"x": NAN_BITS.view("f8")}), options=IngestOptions(Nan.VALUE)).table
    assert table["x"].null_count == 0
    assert table["x"].to_numpy().view("u8").tolist() == NAN_BITS.tolist()


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("nan", Nan)
def test_what_nan_is_depends_on_the_kind_of_data(dtype, nan):
    values = np.array([1.5, np.nan], dtype)
    data = {
        "series": pd.Series(values),
        "index": pd.Index(values.astype("f8")),
        "numpy": values,
        "list": values.tolist(),
        "arrow": pa.array(values),
        "polars": pl.Series(values.astype("f8")),
        "masked": pd.arrays.FloatingArray(values.astype("f8"), np.array([False, False])),
        "ints": np.array([1, 2]),
    }
    nulls = {"series", "index"} if nan is not Nan.VALUE else set()
    nulls |= {"numpy", "list"} if nan is Nan.NULL else set()
    found = ingest(data, options=IngestOptions(nan)).table
    assert {name for name in data if found[name].null_count} == nulls
    for name in set(data) - nulls - {"ints"}:
        assert found[name].to_pylist()[1] != found[name].to_pylist()[1], name


def test_a_number_without_nan_is_not_copied():
    values = np.arange(9.0)
    array = ingest(pd.DataFrame({"x": values})).table["x"].chunk(0)
    assert array.buffers()[0] is None
    values[2] = np.nan
    array = ingest(pd.DataFrame({"x": values}, copy=False)).table["x"].chunk(0)
    assert array.buffers()[1].address == values.ctypes.data


@pytest.mark.parametrize(
    "values",
    [
        pd.arrays.FloatingArray(np.array([1.5, np.nan, 2.5]), np.array([False, False, True])),
        pd.arrays.ArrowExtensionArray(pa.chunked_array([[1.5, float("nan"), None]])),
    ],
    ids=["masked", "arrow"],
)
def test_nullable_dtypes_keep_nan_beside_na_as_pyarrow_does(values):
    frame = pd.DataFrame({"x": values})
    assert_same(returned(frame), frame)
    found, wanted = ingest(frame).table["x"], pa.Table.from_pandas(frame)["x"]
    assert str(found.to_pylist()) == str(wanted.to_pylist()) == "[1.5, nan, None]"


def test_numbers_and_text_go_in_without_a_copy():
    values = np.arange(5.0)
    text = pd.array(["a", "b"] * 2 + ["c"], dtype="str")
    stored = ingest(pd.DataFrame({"x": values, "y": text}, copy=False)).table
    buffers = [stored[name].chunk(0).buffers()[-1].address for name in "xy"]
    assert buffers == [
        values.__array_interface__["data"][0],
        text._pa_array.chunk(0).buffers()[-1].address,
    ]


def test_a_block_of_columns_that_are_strided_comes_back():
    block = np.arange(12.0).reshape(4, 3)
    frame = pd.DataFrame(block, columns=list("abc"), copy=False)
    assert_same(returned(frame), frame)
    assert_same(returned(frame[::-2]), frame[::-2])
    assert_same(returned(frame.T), frame.T)


def test_foreign_byte_order_becomes_native():
    frame = pd.DataFrame({"x": np.arange(3, dtype=">i4")})
    assert returned(frame)["x"].tolist() == [0, 1, 2]
    assert returned(frame)["x"].dtype == np.dtype("i4")


def test_zones_of_dateutil_come_back_as_such():
    times = pd.date_range("2020", periods=3, tz="dateutil/Europe/Berlin")
    frame = pd.DataFrame({"x": times}, index=times)
    assert_same(returned(frame), frame)


def test_the_local_zone_has_no_name_and_is_refused():
    frame = pd.DataFrame({"x": pd.array([pd.Timestamp("2020", tz="tzlocal()")])})
    with pytest.raises(SchemaError, match=r"column 'x'.*time zone"):
        ingest(frame)


def test_text_without_utf8_is_refused_wherever_it_is():
    for frame in (
        pd.DataFrame([[1]], columns=pd.Index(["x\ud800"], dtype=object)),
        pd.DataFrame({"x": pd.array(["\ud800"], dtype=pd.StringDtype("python"))}),
        pd.DataFrame({"x": [1]}, index=pd.Index(["\ud800"], dtype=object)),
    ):
        with pytest.raises(SchemaError, match="surrogate"):
            ingest(frame)


@pytest.mark.parametrize(
    ("attrs", "key"),
    [
        ({1: object()}, r"attrs\[1\]"),
        ({np.complex64(1): 2}, "attrs"),
        ({"a": [1, {"b": {object()}}]}, r"attrs\['a'\]\[1\]\['b'\]"),
        ({"a": pd.Series([1])}, "a"),
        ({"a": {1: object()}}, "a"),
        ({"a": np.complex64(1)}, "a"),
        ({"a": np.zeros((2, 2))}, "a"),
        ({"a": "\ud800"}, "a"),
    ],
)
def test_attrs_that_are_no_json_are_refused_by_their_key(attrs, key):
    frame = pd.DataFrame({"x": [1]})
    frame.attrs = attrs
    with pytest.raises(SchemaError, match=key):
        ingest(frame)


def test_attrs_are_a_copy_of_their_own():
    frame = pd.DataFrame({"x": [1]})
    frame.attrs = {"a": {"b": [1]}, "t": (1, 2)}
    found = ingest(frame).attrs
    assert found == {"a": {"b": [1]}, "t": {"blz:value": ["tuple", [1, 2]]}}
    found["a"]["b"].append(2)
    assert frame.attrs["a"]["b"] == [1]


def test_arrow_columns_keep_their_type():
    array = pa.array([{"a": [1]}, None])
    frame = pd.DataFrame({"x": pd.arrays.ArrowExtensionArray(array)})
    assert ingest(frame).table["x"].type == array.type
    assert_same(returned(frame), frame)
