"""The goal: what cannot come back exactly does not go in, and the error says where it is."""

import datetime
import decimal
import enum

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from blztable.convert.gateway import ingest
from blztable.errors import SchemaError
from convert.frames.test_frame import assert_same, returned


def objects(*values):
    return pd.DataFrame({"x": pd.Series(values, dtype=object)})


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("values", "row", "shown"),
    [
        (["a", None, 1], 2, "1 of type int"),
        (["a", 1.5], 1, "1.5 of type float"),
        ([1, 2], 0, "1 of type int"),
        ([{"a": 1}], 0, "of type dict"),
        ([[1]], 0, "of type list"),
        ([None, {1}], 1, "of type set"),
        ([b"a", "a"], 1, "'a' of type str"),
        ([datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1)], 1, "of type datetime"),
        ([decimal.Decimal("1"), decimal.Decimal("nan")], 1, "NaN"),
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
        pd.arrays.IntervalArray.from_breaks([1, 2]),
        pd.arrays.SparseArray([1]),
        np.array([1j]),
        np.array([1], dtype=np.longdouble),
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


def test_nan_is_a_value_and_keeps_its_payload():
    bits = np.array([0x7FF8000000000001, 0xFFF0000000000123, 0x3FF0000000000000], dtype="u8")
    stored = ingest(pd.DataFrame({"x": bits.view("f8")}))
    assert stored.table["x"].null_count == 0
    assert returned(pd.DataFrame({"x": bits.view("f8")}))["x"].to_numpy().view("u8").tolist() == (
        bits.tolist()
    )


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
        ({1: 2}, "1"),
        ({"a": {2: 3}}, "a"),
        ({"a": [1, {"b": {1}}]}, r"attrs\['a'\]\[1\]\['b'\]"),
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
    assert found == {"a": {"b": [1]}, "t": [1, 2]}
    found["a"]["b"].append(2)
    assert frame.attrs["a"]["b"] == [1]


def test_arrow_columns_keep_their_type():
    array = pa.array([{"a": [1]}, None])
    frame = pd.DataFrame({"x": pd.arrays.ArrowExtensionArray(array)})
    assert ingest(frame).table["x"].type == array.type
    assert_same(returned(frame), frame)
