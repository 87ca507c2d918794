"""alter_column: a column of another dtype of pandas holds the same values, or is refused."""

import datetime
import decimal
import ipaddress
import uuid

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.storage.memory import RamStore
from support.options import arguments

MONTHS = pd.period_range("2020-01", periods=2, freq="M")
INTERVALS = pd.interval_range(0, 2)
ADDRESSES = [ipaddress.ip_address("10.0.0.1"), ipaddress.ip_address("10.0.0.2")]


def table(values, **options) -> blz.CTable:
    store = RamStore()
    pd.DataFrame({"v": values}).to_blz(store, **arguments(**options))
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
    with pytest.raises(blz.SchemaError, match=r"would not mean the same; .* t.add_column\("):
        t.alter_column("v", dtype=bytes if type_ == "bytes" else type_, safe=safe)
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
    t.alter_column("v", dtype=type_)
    expected = pd.DataFrame({"v": pd.Series(values).astype(type_)})
    pd.testing.assert_frame_equal(t.to_pandas(), expected)


CATEGORIES = {
    "periods": (MONTHS, "period[M]"),
    "UUIDs": ([uuid.UUID(int=1), uuid.UUID(int=2)], pa.uuid()),
    "addresses": (ADDRESSES, "string"),
    "dates": ([datetime.date(2020, 1, 1), None], pa.date32()),
    "decimals": ([decimal.Decimal("1.5"), None], pa.decimal128(2, 1)),
    "Int64": (pd.array([1, None], "Int64"), "Int64"),
    "Arrow": (pd.array([1, 2], "int64[pyarrow]"), "int64[pyarrow]"),
    "string": (pd.array(["a", "b"], "string"), "string"),
    "text": (["a", "b"], "str"),
    "zoned": (pd.date_range("2020", periods=2, tz="+05:00"), pd.DatetimeTZDtype("us", "+05:00")),
}


@pytest.mark.parametrize("case", CATEGORIES)
def test_a_category_has_the_values_of_the_column(case):
    # Bug: periods became integers, UUIDs bytes and addresses text.
    values, first = CATEGORIES[case]
    frame = pd.DataFrame({"v": values})
    t = table(values)
    t.alter_column("v", dtype="category")
    pd.testing.assert_frame_equal(t.to_pandas(), frame.astype("category"))
    t.append(frame)
    t.append(frame.astype("category"))
    whole = pd.concat([frame] * 3, ignore_index=True)
    pd.testing.assert_frame_equal(t.to_pandas(), whole.astype("category"))
    t.alter_column("v", dtype=first)
    pd.testing.assert_frame_equal(t.to_pandas(), whole)
    t.append(frame)


@pytest.mark.parametrize("values", [[1, 2], ["a", "b"], [True, None], [1.5, None]], ids=str)
def test_objects_become_the_categories_that_pandas_makes(values):
    frame = pd.DataFrame({"v": pd.Series(values, dtype=object)})
    t = table(frame["v"])
    t.alter_column("v", dtype="category")
    pd.testing.assert_frame_equal(t.to_pandas(), frame.astype("category"))


def test_a_sparse_column_becomes_categories():
    frame = pd.DataFrame({"v": pd.arrays.SparseArray([0, 1])})
    t = table(frame["v"])
    t.alter_column("v", dtype="category")
    pd.testing.assert_frame_equal(t.to_pandas(), frame.astype("category"))


@pytest.mark.parametrize(
    "values",
    [
        INTERVALS,
        [1j, 2j],
        [{1}, {2}],
        [frozenset({1})],
        [(1, "a"), (2, "b")],
        [{"a": 1}, {"b": 2}],
        [[1], [2]],
    ],
    ids=str,
)
def test_values_that_a_dictionary_cannot_hold_are_no_category(values):
    # Bug: tuples, intervals and complex numbers became dicts, and sets arrays.
    t = table(values)
    before = t.to_pandas()
    with pytest.raises(blz.SchemaError, match=r"would not mean the same; .* t.add_column\("):
        t.alter_column("v", dtype="category")
    pd.testing.assert_frame_equal(t.to_pandas(), before)


ENDS = {
    "floats": (INTERVALS, pd.interval_range(0.5, 1.5)),
    "one float": (INTERVALS, pd.arrays.IntervalArray.from_tuples([(0.5, 2.0), None])),
    "unsigned": (
        pd.arrays.IntervalArray.from_arrays(*np.array([[1], [2]], "u1")),
        pd.arrays.IntervalArray.from_tuples([(-1, 300)]),
    ),
    "seconds": (
        pd.interval_range(pd.Timestamp("2020").as_unit("s"), periods=2),
        pd.interval_range(pd.Timestamp("2020-01-01 00:00:00.5"), periods=2),
    ),
    "complex": (np.array([1j], "c8"), np.array([0.1 + 2j])),
}


@pytest.mark.parametrize("case", ENDS)
def test_parts_of_values_are_widened(case):
    # Bug: the error advised evolve=True, which did not help.
    first, more = ENDS[case]
    t, frame = table(first), pd.DataFrame({"v": more})
    with pytest.raises(blz.SchemaError, match="pass evolve=True"):
        t.append(frame)
    t.append(frame, evolve=True)
    pd.testing.assert_series_equal(
        t.to_pandas()["v"].astype(object),
        pd.concat([pd.Series(one).astype(object) for one in (first, more)], ignore_index=True),
        check_names=False,
    )
    assert t.verify().is_intact


@pytest.mark.parametrize("evolve", [False, True])
@pytest.mark.parametrize(
    "more", [INTERVALS.set_closed("left"), pd.interval_range(0.5, 1.5, closed="left")]
)
def test_intervals_of_another_side_are_not_taken(more, evolve):
    t = table(INTERVALS)
    with pytest.raises(blz.SchemaError, match="convert the data first"):
        t.append(pd.DataFrame({"v": more}), evolve=evolve)
    assert t.to_pandas()["v"].tolist() == INTERVALS.tolist()


def twice(values) -> tuple[blz.CTable, pd.DataFrame]:
    """Return a table of two columns of one dtype, and its frame."""
    first = pd.Series(values)
    frame = pd.DataFrame({"v": first, "w": first[::-1].reset_index(drop=True)})
    store = RamStore()
    frame.to_blz(store, storage=blz.Storage(row_group_rows=1))
    return blz.open(store, "a"), frame


SAME = {
    "periods": MONTHS,
    "intervals": INTERVALS,
    "categories of periods": pd.Categorical(MONTHS),
    "categories of intervals": pd.Categorical(INTERVALS),
    "ordered": pd.Categorical(["a", "b"], ordered=True),
    "complex": [1j, 2j],
    "sets": [{1}, {2}],
    "UUIDs": [uuid.UUID(int=1), uuid.UUID(int=2)],
    "tuples": [(1, "a"), (2, "b")],
    "Int64": pd.array([1, None], "Int64"),
}


@pytest.mark.parametrize("case", SAME)
def test_an_expression_that_is_a_column_has_its_dtype(case):
    # Bug: the values were refused as plain ones, and a new column was plain.
    t, frame = twice(SAME[case])
    t.add_column("x", pc.field("w"))
    pd.testing.assert_series_equal(t.to_pandas()["x"], frame["w"], check_names=False)
    t.update({"v": pc.field("w")}, where=pc.field("w").is_valid())
    t.update({"v": pc.field("w")})
    pd.testing.assert_series_equal(t.to_pandas()["v"], frame["w"], check_names=False)
    assert t.verify().is_intact


def test_a_column_of_another_dtype_or_order_is_refused():
    frame = pd.DataFrame(
        {
            "v": MONTHS,
            "w": MONTHS.asfreq("D"),
            "a": pd.Categorical(["x", "y"], ["x", "y"], ordered=True),
            "b": pd.Categorical(["x", "y"], ["y", "x"], ordered=True),
        }
    )
    store = RamStore()
    frame.to_blz(store)
    with blz.open(store, "a") as t:
        with pytest.raises(blz.SchemaError, match="dtype period D cannot be stored as"):
            t.update({"v": pc.field("w")})
        with pytest.raises(blz.SchemaError, match="set the same categories in the same order"):
            t.update({"a": pc.field("b")})
        pd.testing.assert_frame_equal(t.to_pandas(), frame)
