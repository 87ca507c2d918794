"""alter_column: a column of another dtype of pandas holds the same values, or is refused."""

import ipaddress

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import blztable as blz
from blztable.storage.memory import MemoryStore

MONTHS = pd.period_range("2020-01", periods=2, freq="M")
INTERVALS = pd.interval_range(0, 2)
ADDRESSES = [ipaddress.ip_address("10.0.0.1"), ipaddress.ip_address("10.0.0.2")]


def table(values, **options) -> blz.CTable:
    store = MemoryStore()
    pd.DataFrame({"v": values}).to_blz(store, **options)
    return blz.open(store, "a")


@pytest.mark.parametrize("safe", [True, False])
@pytest.mark.parametrize(
    ("values", "type_"),
    [
        (MONTHS, "period[D]"),
        (pd.Categorical(MONTHS), "period[D]"),
        (MONTHS, "datetime64[us]"),
        (MONTHS, "string"),
        (MONTHS, "int32"),
        (INTERVALS, "interval[int64, left]"),
        (INTERVALS, pa.struct({"a": pa.int64(), "b": pa.int64()})),
        ([1, 2], "period[D]"),
        (pd.to_datetime(["2020-01-01", "2020-02-01"]), "period[D]"),
        ([1j, 2j], "interval[float64, right]"),
        ([{1}, {2}], pa.list_(pa.string())),
        (ADDRESSES, "bytes"),
    ],
    ids=str,
)
def test_stored_values_get_no_other_meaning(values, type_, safe):
    # Bug: the ordinals of months became those of days.
    t = table(values)
    before = t.to_pandas()
    with pytest.raises(blz.SchemaError, match=r"another meaning; .* t.add_column\("):
        t.alter_column("v", type=bytes if type_ == "bytes" else type_, safe=safe)
    pd.testing.assert_frame_equal(t.to_pandas(), before)


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        (INTERVALS, "interval[float64, right]"),
        (pd.Categorical(MONTHS), "period[M]"),
        (MONTHS, "period[M]"),
        (np.array([1j, 2], "c8"), "complex128"),
        (pd.Series([None, None], dtype=object), "period[D]"),
        (pd.Series([np.nan, np.nan]), "period[D]"),
    ],
    ids=str,
)
def test_a_dtype_of_the_same_meaning_is_taken(values, type_):
    t = table(values)
    t.alter_column("v", type=type_)
    expected = pd.DataFrame({"v": pd.Series(values).astype(type_)})
    pd.testing.assert_frame_equal(t.to_pandas(), expected)
