"""`t.describe()` and the extremes of a column: few row groups are read, and the answer is exact."""

import datetime as dt
import decimal
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import blztable as blz
from blztable.engine.read.columns import OpenColumns


def test_it_has_a_row_of_facts_for_each_column():
    store = blz.MemoryStore()
    columns = {"n": [3, None, 1], "x": [math.nan, 2.5, -1.0], "s": ["b", "a", None], "l": [[1]] * 3}
    blz.to_blz(pa.table(columns), store)
    with blz.open(store) as t:
        found = t.describe()
        assert found.index.tolist() == ["n", "x", "s", "l"]
        assert found.columns.tolist() == ["type", "count", "nulls", "min", "max"]
        assert found.loc["n"].tolist() == ["int64", 2, 1, 1, 3]
        assert found.loc["x"].tolist() == ["double", 3, 0, -1.0, 2.5]
        assert found.loc["s"].tolist() == ["string", 2, 1, "a", "b"]
        assert found.loc["l", "min"] is None
        assert isinstance(found.loc["n", "min"], int)
        assert t.describe(["s"]).index.tolist() == ["s"]
        assert t.describe([]).shape == (0, 5)
        with pytest.raises(blz.ColumnNotFoundError):
            t.describe(["z"])
    with pytest.raises(blz.ClosedError):
        t.describe()


def test_no_row_group_is_read_where_the_facts_have_the_extremes(monkeypatch):
    store, read = blz.MemoryStore(), []
    blz.to_blz({"n": np.arange(1000)}, store, storage=blz.Storage(row_group_rows=10))
    plain = OpenColumns.columns
    monkeypatch.setattr(OpenColumns, "columns", lambda *args: read.append(args) or plain(*args))
    with blz.open(store) as t:
        assert (t["n"].min(), t["n"].max(), t["n"].null_count()) == (0, 999, 0)
    assert not read


def test_a_bound_that_is_no_value_is_not_believed():
    """Bounds of long texts are cut, and rounded."""
    texts = ["b" * 40 + "z", "b" * 40 + "a", "b" * 41, "a" * 50 + "z", "a" * 50]
    store = blz.MemoryStore()
    blz.to_blz({"s": texts}, store, storage=blz.Storage(row_group_rows=1))
    with blz.open(store) as t:
        assert (t["s"].min(), t["s"].max()) == (min(texts), max(texts))


def test_a_column_whose_values_have_no_order_has_no_extremes():
    store = blz.MemoryStore()
    points = pa.array([{"x": 1}, {"x": 2}])
    coded = pa.DictionaryArray.from_arrays(pa.array([0, None, 1], pa.int8()), points)
    runs = pa.RunEndEncodedArray.from_arrays([3], [7])
    blz.to_blz(pa.table({"coded": coded, "runs": runs, "n": [1, 2, 3]}), store)
    with blz.open(store) as t:
        assert t.describe()["min"].tolist() == [None, None, 1]
        assert t["coded"].null_count() == 1


def test_a_time_that_python_does_not_have_is_an_arrow_scalar():
    store = blz.MemoryStore()
    blz.to_blz(pa.table({"at": pa.array([1 << 60, 5], pa.timestamp("s"))}), store)
    with blz.open(store) as t:
        assert t["at"].max() == pa.scalar(1 << 60, pa.timestamp("s"))
        assert t.describe().loc["at", "min"] == dt.datetime(1970, 1, 1, 0, 0, 5)


def test_fields_and_categories_have_extremes():
    store = blz.MemoryStore()
    frame = pd.DataFrame({"c": pd.Categorical(["b", "a", None], ["z", "b", "a"])})
    frame["s"] = [{"x": 1}, {"x": 5}, None]
    blz.to_blz(frame, store)
    with blz.open(store) as t:
        assert (t["c"].min(), t["c"].max(), t["c"].null_count()) == ("a", "b", 1)
        assert (t["s", "x"].min(), t["s", "x"].max(), t["s", "x"].null_count()) == (1, 5, 1)


@pytest.mark.parametrize("type_", [pa.decimal32(5, -2), pa.decimal128(5, -2), pa.decimal256(5, -2)])
def test_decimals_of_negative_scale_which_arrow_does_not_compare_have_extremes(type_):
    store = blz.MemoryStore()
    values = [None, *(decimal.Decimal(number).scaleb(2) for number in (5, -300, 7, 7))]
    blz.to_blz(
        pa.table({"d": pa.array(values, type_)}), store, storage=blz.Storage(row_group_rows=2)
    )
    with blz.open(store) as t:
        assert t.describe().loc["d"].tolist() == [str(type_), 4, 1, values[2], values[3]]


KINDS = {
    "int": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "uint": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "float": (pa.float64(), st.floats()),
    "half": (pa.float16(), st.floats(width=16)),
    "text": (pa.string_view(), st.text(max_size=40)),
    "bytes": (pa.binary(), st.binary(max_size=40)),
    "bool": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates()),
    "time": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(dt.UTC))),
    "span": (pa.duration("us"), st.timedeltas()),
    "decimal": (pa.decimal128(5, 2), st.decimals(-999, 999, places=2)),
    "hundreds": (
        pa.decimal64(5, -2),
        st.integers(-99_999, 99_999).map(lambda number: decimal.Decimal(number).scaleb(2)),
    ),
    "code": (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "b", "c"])),
}


@given(st.data(), st.sampled_from(list(KINDS)), st.integers(1, 4))
def test_extremes_are_those_of_the_values(data, kind, row_group_rows):
    type_, values = KINDS[kind]
    drawn = data.draw(st.lists(st.none() | values, max_size=12))
    array = pa.array(drawn, type_)
    store = blz.MemoryStore()
    blz.to_blz(pa.table({"a": array}), store, storage=blz.Storage(row_group_rows=row_group_rows))
    known = [one for one in array.to_pylist() if one is not None and one == one]
    with blz.open(store) as t:
        assert t["a"].min() == (min(known) if known else None)
        assert t["a"].max() == (max(known) if known else None)
        assert t["a"].null_count() == array.null_count
