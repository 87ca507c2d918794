"""Categories: frames of one stream share them, or the stream is refused."""

import uuid

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.storage.memory import RamStore


def categories(values, labels=None, ordered=False) -> pd.DataFrame:
    return pd.DataFrame({"a": pd.Categorical(values, labels, ordered=ordered)})


# Bug: later items of a stream could bring categories of another frequency.
def test_categories_of_another_frequency_do_not_fit():
    months, days = (pd.PeriodIndex(["2020-01-01"], freq=freq) for freq in "MD")
    store = RamStore()
    with pytest.raises(blz.SchemaError, match=r"item 1, column 'a': .*period D.*period M"):
        blz.to_blz([categories(months), categories(days)], store)
    assert store.list_names("meta/manifest") == []


# Bug: later items of a stream could bring ordered categories in another order.
def test_ordered_categories_in_another_order_do_not_fit():
    first, other = (categories(["a"], list(order), ordered=True) for order in ("abc", "cba"))
    with pytest.raises(blz.SchemaError, match=r"item 1, column 'a': ordered.*'c', 'b', 'a'"):
        blz.to_blz([first, other], RamStore())
    store = RamStore()
    blz.to_blz([first, first], store)
    assert blz.read_blz(store)["a"].cat.categories.tolist() == ["a", "b", "c"]


# Guards growth: later items of a stream may bring many more categories than the first.
def test_later_frames_may_have_many_more_categories():
    labels = [str(label) for label in range(300)]
    store = RamStore()
    blz.to_blz([categories(labels[:100]), categories(labels[50:])], store)
    assert blz.read_blz(store)["a"].tolist() == labels[:100] + labels[50:]
    with blz.open(store) as table:
        assert table["a"][50:150].to_pylist() == (labels[:100] + labels[50:])[50:150]


def bins(*ends, unit=None, closed="right", **options) -> pd.DataFrame:
    """Return categories that are intervals between these ends."""
    index = pd.Index(ends) if unit is None else pd.to_timedelta(ends, "s").as_unit(unit)
    return pd.DataFrame(
        {"a": pd.Categorical(pd.IntervalIndex.from_breaks(index, closed), **options)}
    )


def arrow_copy(frame: pd.DataFrame) -> pa.Table:
    """Return the Arrow data of a table of this frame."""
    blz.to_blz(frame, store := RamStore())
    with blz.open(store) as t:
        return t.to_arrow()


ZONED = pd.date_range("2026", periods=2, tz="UTC")
# Categories of a table, other categories, and True if each of these is one of the table's dtype.
INTERVALS = [
    (bins(0, 1), bins(1.0, 2.0, 3.0), True),
    (bins(0, 1), bins(0.5, 1.5), False),
    (bins(0.0, 1.0), bins(0, 1, 2), True),
    (bins(0.0, 1.0), bins(-0.0, 1.0), True),
    (bins(0.0, 1.0), bins(2**53 + 1, 2**53 + 2), False),
    (bins(0, 1), bins(0, 1, closed="left"), False),
    (bins(0, 60, unit="us"), bins(0, 60, 70, unit="ns"), True),
    (bins(0, 60, unit="s"), bins(0, 60.5, unit="ms"), False),
    (bins(0, 60, unit="s"), bins(0, 60), False),
    (bins(*ZONED.as_unit("s")), bins(*ZONED.as_unit("ns")), True),
    (bins(*ZONED), bins(*ZONED.tz_convert("Asia/Tokyo")), True),
    (bins(*ZONED), bins(*ZONED.tz_localize(None)), False),
]


# Bug: the texts of intervals with other ends were taken for those of the table. It then could not
# be read, or had other intervals.
@pytest.mark.parametrize("evolve", [False, True])
@pytest.mark.parametrize(("held", "given", "fits"), INTERVALS)
def test_categories_of_intervals_keep_the_dtype_of_their_ends(held, given, fits, evolve):
    store = RamStore()
    expected = held["a"].tolist()
    blz.to_blz(held, store)
    with blz.open(store, "a") as t:
        for data in (given, arrow_copy(given)):
            if fits:
                t.append(data, evolve=evolve)
                expected += given["a"].tolist()
            else:
                with pytest.raises(blz.SchemaError, match=r"interval\[.* categories of interval"):
                    t.append(data, evolve=evolve)
        assert t.verify()
    found = blz.read_blz(store)["a"]
    assert found.tolist() == expected
    assert found.cat.categories.dtype == held["a"].cat.categories.dtype


@pytest.mark.parametrize(("held", "given", "fits"), INTERVALS)
def test_categories_of_intervals_keep_the_dtype_of_their_ends_in_a_stream(held, given, fits):
    store = RamStore()
    if not fits:
        with pytest.raises(blz.SchemaError, match=r"item 1, .*: interval\[.* all items"):
            blz.to_blz(iter([held, given]), store)
        return
    blz.to_blz(iter([held, given]), store)
    assert blz.read_blz(store)["a"].tolist() == held["a"].tolist() + given["a"].tolist()


# Bug: categories that no row has came with the nulls, and the table could not be read.
@pytest.mark.parametrize("categories", [["x"], pd.interval_range(0.5, 2.5), [3]])
def test_rows_without_a_value_bring_no_categories_of_another_dtype(categories):
    store = RamStore()
    blz.to_blz(bins(0, 1), store)
    blz.to_blz(pd.DataFrame({"a": pd.Categorical([None], categories)}), store, mode="a")
    assert blz.read_blz(store)["a"].tolist() == [pd.Interval(0, 1), np.nan]


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_categories_that_no_row_has_are_kept_in_a_stream_and_with_other_codes(ordered, rows):
    column = pd.Categorical([None] * rows, categories=[2.5, 0.5], ordered=ordered)
    frame = pd.DataFrame({"a": column, "b": range(rows)})
    store = blz.MemoryStore()
    blz.to_blz(iter([frame, frame]), store)
    found = blz.read_blz(store)["a"]
    assert found.dtype == column.dtype
    assert found.isna().all()
    with blz.open(store, "a") as t:
        for codes in (pa.int8(), pa.int64()):
            t.alter_column("a", dtype=pa.dictionary(codes, pa.float64(), ordered))
            t.append(frame)
            assert t.to_pandas()["a"].dtype == column.dtype


@pytest.mark.parametrize("ordered", [False, True])
def test_intervals_are_values_of_categories_of_intervals(ordered):
    given, store = bins(0.0, 1.0, 2.0, ordered=ordered), RamStore()
    first, last = given["a"]
    blz.to_blz(given, store)
    with blz.open(store, "a") as t:
        t.alter_column("a", default=pd.Interval(1, 2))
        t.add_column("k", [1, 2])
        t.append({"k": [3]})
        assert t["a"].to_pandas().tolist() == [first, last, last]
        t.update({"a": first}, where=pc.field("k") == 2)
        with pytest.raises(blz.SchemaError, match=r"left\] cannot be stored as categories"):
            t.alter_column("a", default=pd.Interval(0, 1, closed="left"))
        if ordered:
            with pytest.raises(blz.SchemaError, match="not one of the ordered categories"):
                t.update({"a": pd.Interval(7, 8)})
        else:
            t.append({"a": [pd.Interval(5, 6), None], "k": [4, 5]})
            t.update({"a": pd.Series([last, first], dtype="interval")}, where=pc.field("k") < 3)
            expected = [last, first, last, pd.Interval(5, 6), np.nan]
            assert t["a"].to_pandas().tolist() == expected
        assert t["a"].to_pandas().cat.categories.dtype == "interval[float64, right]"


@pytest.mark.parametrize("default", [pd.Categorical(["x"]), ["x"], np.array(["x"])])
def test_an_array_of_one_value_is_no_default(default):
    blz.to_blz(categories(["x"]), store := RamStore())
    with (
        blz.open(store, "a") as t,
        pytest.raises(blz.SchemaError, match="expected one value, found an array; pass its value"),
    ):
        t.alter_column("a", default=default)


IDS = [uuid.UUID(int=number) for number in range(3)]


# Bug: categories of UUIDs are of no extension type, so UUIDs were refused.
def test_uuids_are_values_of_categories_of_uuids():
    frame = pd.DataFrame({"a": pd.Categorical(IDS[:1])})
    blz.to_blz(frame, store := RamStore())
    with blz.open(store, "a") as t:
        t.append({"a": IDS[1:]})
        t.append(pd.DataFrame({"a": pd.Series(IDS[1:])}))
        t.append({"a": pa.array([IDS[1].bytes], pa.uuid())})
        t.update({"a": IDS[2]}, where=pc.field("a") == IDS[1])
        t.alter_column("a", default=IDS[1])
        t.add_column("k", 0)
        t.append({"k": [1]})
        assert t["a"].to_pandas().tolist() == [IDS[0], *[IDS[2]] * 5, IDS[1]]
        with pytest.raises(blz.SchemaError, match=r"values of arrow\.bool8"):
            t.append({"a": pa.array([1], pa.int8()).cast(pa.bool8()), "k": [1]})
