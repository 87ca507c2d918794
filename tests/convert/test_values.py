"""Values for one column: a scalar or an array that fits the column, or an error."""

import datetime
import decimal
import math
import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from blztable.arrow.extensions import plain_values
from blztable.convert.coerce_column import coerce_values
from blztable.convert.gateway import ingest
from blztable.convert.values import values_of
from blztable.errors import SchemaError
from support.frame_strategies import columns


@pytest.mark.parametrize(
    ("value", "type_", "expected"),
    [
        (None, pa.null(), None),
        (pd.NA, pa.null(), None),
        (pd.NaT, pa.null(), None),
        (True, pa.bool_(), True),
        (7, pa.int64(), 7),
        (1.5, pa.float64(), 1.5),
        ("x", pa.string(), "x"),
        (b"x", pa.binary(), b"x"),
        (bytearray(b"x"), pa.binary(), b"x"),
        (decimal.Decimal("1.25"), pa.decimal128(3, 2), decimal.Decimal("1.25")),
        (datetime.date(2020, 1, 2), pa.date32(), datetime.date(2020, 1, 2)),
        (datetime.datetime(2020, 1, 2), pa.timestamp("us"), datetime.datetime(2020, 1, 2)),
        (datetime.timedelta(1), pa.duration("us"), datetime.timedelta(1)),
        (pa.MonthDayNano([1, 2, 3]), pa.month_day_nano_interval(), pa.MonthDayNano([1, 2, 3])),
        (np.bool_(True), pa.bool_(), True),
        (np.int8(-7), pa.int8(), -7),
        (np.uint64(2**63), pa.uint64(), 2**63),
        (np.float32(1.5), pa.float32(), 1.5),
        (np.str_("x"), pa.string(), "x"),
        (np.datetime64("2020-01-02", "s"), pa.timestamp("s"), datetime.datetime(2020, 1, 2)),
        (np.datetime64("NaT", "s"), pa.timestamp("s"), None),
        (np.array(7, "i2"), pa.int16(), 7),
        (pd.Timestamp("2020-01-02"), pa.timestamp("us"), datetime.datetime(2020, 1, 2)),
        (pd.Timedelta(days=1), pa.duration("us"), datetime.timedelta(1)),
        (pa.scalar(7, pa.int8()), pa.int8(), 7),
        (pa.scalar(None, pa.int8()), pa.int8(), None),
        (pa.scalar([1, 2]), pa.list_(pa.int64()), [1, 2]),
        ({"a": 1}, pa.struct({"a": pa.int64()}), {"a": 1}),
    ],
    ids=repr,
)
def test_one_value_is_a_scalar(value, type_, expected):
    found, descriptor, _ = values_of(value, "here")
    assert isinstance(found, pa.Scalar)
    assert (found.type, found.as_py(), descriptor) == (type_, expected, None)


def test_a_scalar_of_pandas_has_what_a_column_of_it_has():
    for value in (pd.Period("2020", "M"), pd.Timestamp("2020-01-02", tz="dateutil/Europe/Berlin")):
        expected = ingest(pd.DataFrame({"a": [value]})).table
        found, descriptor, _ = values_of(value, "here")
        assert found.equals(expected["a"][0])
        assert descriptor is not None
    found, descriptor, _ = values_of(math.nan, "here")
    assert math.isnan(found.as_py())


@pytest.mark.parametrize(
    "values",
    [
        [1, None],
        (1, None),
        np.array([1, 2]),
        range(2),
        pd.Series([1, 2], index=[7, 0]),
        pd.Index([1, 2]),
        pd.array([1, None]),
        pa.array([1, None]),
        pa.chunked_array([[1], [None]]),
        pl.Series([1, None]),
        [],
    ],
    ids=lambda values: type(values).__name__,
)
def test_many_values_are_an_array(values):
    found, *_ = values_of(values, "here")
    assert isinstance(found, pa.Array | pa.ChunkedArray)
    expected = [None if pd.isna(value) else value for value in values]
    assert [None if v is None else v for v in found.to_pylist()] == [
        value.as_py() if isinstance(value, pa.Scalar) else value for value in expected
    ]


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(columns(3))
def test_a_series_is_what_a_column_of_a_frame_is(values):
    series = pd.Series(values, index=[2, 0, 1], dtype=values.dtype)
    stored = ingest(series.to_frame("a"), index=False)
    given = values_of(series, "here")
    field = stored.table.schema.field("a")
    found = coerce_values(given, field, stored.frame, "here")
    # UUIDs are their storage in a table.
    array, _ = plain_values(given.values, "here")
    whole = pa.chunked_array([array]) if isinstance(array, pa.Array) else array
    # Compared as text, because NaN is not equal to itself.
    assert (found.type, str(found)) == (whole.type, str(whole))
    assert (given.descriptor is None) == (field.metadata is None)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pd.DataFrame({"a": [1]}), "expected one column, found a DataFrame"),
        (pa.table({"a": [1]}), "expected one column, found a Table"),
        ({1, 2}, "the values of a set have no order"),
        ((i for i in range(3)), ""),
        (object(), ""),
        ("\ud800", "has a lone surrogate"),
        ([1, "x"], ""),
        (2**64, ""),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_column_is_told(values, message):
    with pytest.raises(SchemaError, match="^here(, row 1)?: .*" + re.escape(message)):
        values_of(values, "here")


# Values coerced to a column


FRAME = ingest(pd.DataFrame({"a": [1]})).frame


def fit(values, type_, frame=None, **options):
    given = values_of(values, "here")
    return coerce_values(given, pa.field("a", type_, **options), frame, "here")


def test_values_that_fit_take_the_type_of_the_column():
    assert fit(7, pa.int8()).equals(pa.chunked_array([pa.array([7], pa.int8())]))
    assert fit([1, None], pa.float32()).type == pa.float32()
    assert fit(None, pa.string()).to_pylist() == [None]
    assert fit("x", pa.large_string()).to_pylist() == ["x"]
    assert fit(2**64 - 1, pa.uint64()).to_pylist() == [2**64 - 1]
    assert fit([2**63, None, 0], pa.uint64()).to_pylist() == [2**63, None, 0]
    assert fit(b"abc", pa.binary(3)).to_pylist() == [b"abc"]


def test_nan_for_all_rows_is_none_where_there_are_no_floats():
    assert fit(math.nan, pa.string()).to_pylist() == [None]
    assert fit(np.float32("nan"), pa.timestamp("us")).to_pylist() == [None]
    assert math.isnan(fit(math.nan, pa.float32()).to_pylist()[0])
    assert fit(math.nan, pa.int64(), FRAME).to_pylist() == [None]
    with pytest.raises(
        SchemaError, match=r"here: type double cannot be stored as int64 without loss: row 0 is 1\."
    ):
        fit(1.5, pa.int64(), FRAME)


def test_one_value_fits_where_it_does_not_change():
    assert fit(1.5, pa.float32()).equals(pa.chunked_array([pa.array([1.5], pa.float32())]))
    with pytest.raises(
        SchemaError, match="here: type double cannot be stored as float without loss"
    ):
        fit(np.float64(0.1), pa.float32())
    with pytest.raises(
        SchemaError, match="here: type double cannot be stored as float without loss"
    ):
        fit(np.array([1.5, 0.1]), pa.float32())
    assert fit([1.5, 0.1], pa.float32())[1].equals(pa.scalar(0.1, pa.float32()))
    assert fit(0.1, pa.float32())[0].equals(pa.scalar(0.1, pa.float32()))
    assert fit([1.5], pa.float32()).to_pylist() == [1.5]
    assert fit(3.0, pa.int8()).to_pylist() == [3]


@pytest.mark.parametrize("inner", [pa.string(), pa.large_string()], ids=str)
def test_one_value_is_a_category(inner):
    type_ = pa.dictionary(pa.int8(), inner)
    assert fit("x", type_).to_pylist() == ["x"]
    assert fit("x", type_).type == type_
    assert fit(None, type_).to_pylist() == [None]
    with pytest.raises(SchemaError, match="here: type int64 cannot be stored as dictionary"):
        fit(7, type_)


@pytest.mark.parametrize(
    ("values", "type_", "message"),
    [
        ([300], pa.int8(), "type int64 cannot be stored as int8 without loss: row 0 is 300"),
        (
            "1",
            pa.int64(),
            "type string cannot be stored as int64 without loss: row 0 is '1'; cast the data to",
        ),
        (2**63, pa.int64(), "type uint64 cannot be stored as int64 without loss"),
        (2**64, pa.uint64(), f"{2**64} of type int cannot be stored: Python int too large"),
        (
            pd.Period("2020", "M"),
            pa.int64(),
            "dtype period M cannot be stored as dtype plain without change",
        ),
    ],
    ids=repr,
)
def test_values_that_do_not_fit_are_told(values, type_, message):
    with pytest.raises(SchemaError, match=f"^here: {re.escape(message)}"):
        fit(values, type_, FRAME)


def test_a_column_that_cannot_be_null_takes_no_nulls():
    with pytest.raises(SchemaError, match=r"here: missing values cannot be stored .* not nullable"):
        fit([None], pa.string(), nullable=False)
