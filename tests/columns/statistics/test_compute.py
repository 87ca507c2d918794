"""Statistics hold for every value of a page, by the order of Python's values."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from blztable.arrow.types import as_stored
from blztable.columns.statistics.bounds import decode
from blztable.columns.statistics.compute import PREFIX_BYTES, statistics
from blztable.format.line import MAX_BOUND_BYTES, Statistics
from support import arrow_strategies as own
from support.bit_equality import bits

PAGE = 8
quick = settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
UNSIGNED = [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.bool_()]
WHOLE = [*UNSIGNED, *own.INTEGERS[:4], *own.DECIMALS, *own.TIMES]
UNBOUNDED = [pa.null(), pa.month_day_nano_interval(), *own.FIXED_BINARIES]
HIGHEST = chr(0x10FFFF)


def of(array):
    """Return the statistics of each page and of the column, and the bytes of each page's rows."""
    rows = bits(array)
    pages, whole = statistics(array, PAGE)
    groups = [rows[start : start + PAGE] for start in range(0, len(rows), PAGE)]
    if pa.types.is_null(array.type):
        # A column of nulls has no file; its rows are one page.
        groups = [rows] if rows else []
    for run, count in ((pages, len(groups)), (whole, 1)):
        assert [len(field) for field in (run.nulls, run.nans, run.lowest, run.highest)] == [
            count
        ] * 4
    return pages, whole, groups, rows


def values_of(rows, convert):
    return [convert(row) for row in rows if row is not None]


@pytest.mark.parametrize("type_", [*own.PLAIN, pa.dictionary(pa.int8(), pa.string())], ids=str)
@quick
@given(data=st.data())
def test_nulls_are_counted(type_, data):
    pages, whole, groups, rows = of(data.draw(own.arrays(type_)))
    if not pa.types.is_dictionary(type_):
        assert pages.nulls == tuple(group.count(None) for group in groups)
        assert whole.nulls == (rows.count(None),)
    assert whole.nulls == (sum(pages.nulls),)


@pytest.mark.parametrize("type_", WHOLE, ids=str)
@quick
@given(data=st.data())
def test_bounds_of_numbers_and_times_are_the_extremes(type_, data):
    def number(row):
        return int.from_bytes(row, "little", signed=type_ not in UNSIGNED)

    pages, whole, groups, rows = of(data.draw(own.arrays(type_)))
    for index, group in enumerate(groups):
        values = values_of(group, number)
        found = pages.lowest[index], pages.highest[index]
        if values:
            assert (number(found[0]), number(found[1])) == (min(values), max(values))
        else:
            assert found == (None, None)
    values = values_of(rows, number)
    if values:
        assert number(whole.lowest[0]) == min(values)
        assert number(whole.highest[0]) == max(values)
    else:
        assert (whole.lowest, whole.highest) == ((None,), (None,))


@pytest.mark.parametrize("type_", own.FLOATS, ids=str)
@quick
@given(data=st.data())
def test_bounds_of_floats_leave_nans_out_and_count_them(type_, data):
    dtype = {16: "<f2", 32: "<f4", 64: "<f8"}[type_.bit_width]

    def number(row):
        return float(np.frombuffer(row, dtype)[0])

    pages, whole, groups, rows = of(data.draw(own.arrays(type_)))
    runs = [*zip(groups, pages.nans, pages.lowest, pages.highest, strict=True)]
    runs.append((rows, whole.nans[0], whole.lowest[0], whole.highest[0]))
    for group, nans, low, high in runs:
        values = values_of(group, number)
        numbers = [value for value in values if not math.isnan(value)]
        assert nans == len(values) - len(numbers)
        if numbers:
            assert (number(low), number(high)) == (min(numbers), max(numbers))
        else:
            assert (low, high) == (None, None)


@pytest.mark.parametrize(("dtype", "nan"), [("<f4", 0x7F800001), ("<f8", (0x7FF << 52) + 1)])
@pytest.mark.parametrize("values", [[1, 0, 5, 5], [5, 0, 1, 1], [0, 1, 5, 5]])
def test_a_signalling_nan_hides_no_value_before_it(dtype, nan, values):
    floats = np.array(values, dtype)
    floats.view(dtype.replace("f", "u"))[values.index(0)] = nan
    pages, whole, *_ = of(pa.array(floats))
    for run in (pages, whole):
        assert run.nans == (1,)
        assert run.lowest == (floats.dtype.type(1).tobytes(),)
        assert run.highest == (floats.dtype.type(5).tobytes(),)


def check_items(pages, whole, groups, rows, is_text):
    runs = [*zip(groups, pages.lowest, pages.highest, strict=True)]
    runs.append((rows, whole.lowest[0], whole.highest[0]))
    for group, low, high in runs:
        items = values_of(group, bytes)
        if not items:
            assert (low, high) == (None, None)
            continue
        assert low <= min(items)
        assert len(low) <= MAX_BOUND_BYTES
        # Where no text was truncated, bounds are the items themselves.
        if max(map(len, items)) <= PREFIX_BYTES:
            assert (low, high) == (min(items), max(items))
        if high is not None:
            assert high >= max(items)
            assert len(high) <= MAX_BOUND_BYTES
        if is_text:
            low.decode()
            (high or b"").decode()


@pytest.mark.parametrize("type_", own.TEXTS, ids=str)
@quick
@given(data=st.data())
def test_bounds_of_items_hold_and_of_text_are_text(type_, data):
    check_items(*of(data.draw(own.arrays(type_))), "string" in str(type_))


# Items that differ late, at their ends, or by zeros only.
STEM = st.sampled_from([b"", b"a" * 7, b"a" * 8, b"a" * 31, b"a" * 32, b"\xff" * 31, b"\0" * 8])
TAIL = st.lists(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]), max_size=10).map(bytes)


@settings(quick, max_examples=50)
@given(st.lists(st.none() | st.builds(bytes.__add__, STEM, TAIL), max_size=20))
@example([b"a\0", b"a"])
@example([b"a", b"a\0" * 20])
@example([b"\xff" * 40, b"\xff" * 41])
def test_bounds_of_items_that_tie_hold(items):
    check_items(*of(pa.array(items, pa.binary())), is_text=False)


LONG = st.builds(
    lambda stem, count, tail: stem * count + tail,
    st.sampled_from(["a", "é", "\ud7ff", "\uffff", "😀", HIGHEST, "a" + HIGHEST, "abc" + HIGHEST]),
    st.integers(0, 40),
    st.text(own.LETTERS, max_size=5),
)


@settings(quick, max_examples=50)
@given(st.lists(LONG, min_size=1, max_size=12))
def test_bounds_of_long_text_hold_and_are_text(words):
    check_items(*of(pa.array(words)), is_text=True)


@pytest.mark.parametrize(
    ("word", "low", "high"),
    [
        ("a" * 33, "a" * 32, "a" * 31 + "b"),
        ("a" * 32, "a" * 32, "a" * 32),
        ("a" * 31 + "é", "a" * 31, "a" * 30 + "b"),
        ("\ud7ff" * 11, "\ud7ff" * 10, "\ud7ff" * 9 + "\ue000"),
        (HIGHEST * 9, HIGHEST * 8, None),
        ("a" + HIGHEST * 9, "a" + HIGHEST * 7, "b"),
        ("\x7f" * 40, "\x7f" * 32, "\x7f" * 31 + "\x80"),
    ],
)
def test_long_text_is_cut_between_characters_and_raised_by_one(word, low, high):
    pages, *_ = of(pa.array([word]))
    assert pages.lowest == (low.encode(),)
    assert pages.highest == (None if high is None else high.encode(),)


@pytest.mark.parametrize(
    ("item", "high"),
    [
        (b"\xff" * 33, None),
        (b"a" + b"\xff" * 40, b"b"),
        (b"\0" * 40, b"\0" * 31 + b"\1"),
        (b"\xff" * 32, b"\xff" * 32),
    ],
)
def test_long_bytes_are_raised_by_one(item, high):
    assert of(pa.array([item]))[0].highest == (high,)


def test_a_page_without_an_upper_bound_leaves_the_whole_without_one():
    items = [b"a"] * PAGE + [b"\xff" * 40] + [b"b"] * (PAGE - 1)
    pages, whole, *_ = of(pa.array(items))
    assert pages.highest == (b"a", None)
    assert whole.highest == (None,)
    assert whole.lowest == (b"a",)


@pytest.mark.parametrize("type_", UNBOUNDED, ids=str)
@quick
@given(data=st.data())
def test_values_without_an_order_have_no_bounds(type_, data):
    pages, whole, *_ = of(data.draw(own.arrays(type_)))
    assert set(pages.lowest + pages.highest + whole.lowest + whole.highest) <= {None}


@pytest.mark.parametrize("type_", own.PLAIN, ids=str)
def test_pages_of_nulls_alone_have_no_bounds(type_):
    pages, whole, *_ = of(pa.array([None] * 19, type_))
    assert pages.nulls == ((19,) if type_ == pa.null() else (8, 8, 3))
    assert whole.nulls == (19,)
    assert set(pages.lowest + pages.highest + whole.lowest + whole.highest) == {None}


@pytest.mark.parametrize("type_", own.PLAIN, ids=str)
def test_no_rows_have_no_pages(type_):
    pages, whole, *_ = of(pa.array([], type_))
    assert pages.nulls == pages.lowest == ()
    assert (whole.nulls, whole.lowest, whole.highest) == ((0,), (None,), (None,))


DICTIONARY_VALUES = {
    pa.int16(): st.integers(-100, 100),
    pa.float64(): st.sampled_from([-2.5, -0.0, 0.0, 1.5, float("inf"), float("nan")]),
    pa.string(): st.text("ab\0é\U0010ffff", max_size=40),
    pa.string_view(): st.text("abé", max_size=40),
    pa.binary(): st.binary(max_size=40),
    pa.bool_(): st.booleans(),
}


@pytest.mark.parametrize("type_", DICTIONARY_VALUES, ids=str)
@quick
@given(data=st.data())
def test_a_dictionary_column_is_bounded_by_the_values_its_rows_stand_for(type_, data):
    values = data.draw(st.lists(st.none() | DICTIONARY_VALUES[type_], max_size=6))
    codes = st.none() | st.integers(0, len(values) - 1) if values else st.none()
    rows = data.draw(st.lists(codes, min_size=1, max_size=30))
    array = pa.DictionaryArray.from_arrays(pa.array(rows, pa.int8()), pa.array(values, type_))
    pages, whole = statistics(array, 8)
    groups = [rows[start : start + 8] for start in range(0, len(rows), 8)]
    runs = [*zip(groups, pages.nulls, pages.nans, pages.lowest, pages.highest, strict=True)]
    runs.append((rows, whole.nulls[0], whole.nans[0], whole.lowest[0], whole.highest[0]))
    for group, nulls, nans, low, high in runs:
        found = [None if code is None else values[code] for code in group]
        assert nulls == found.count(None)
        known = [value for value in found if value is not None]
        assert nans == sum(value != value for value in known)
        known = [value for value in known if value == value]
        if not known:
            assert (low, high) == (None, None)
            continue
        if isinstance(known[0], bytes | str):
            items = [value.encode() if isinstance(value, str) else value for value in known]
            assert low <= min(items)
            assert high is None or high >= max(items)
            if max(map(len, items)) <= PREFIX_BYTES:
                assert (low, high) == (min(items), max(items))
        else:
            dtype = {"int16": "<i2", "double": "<f8", "bool": "<u1"}[str(type_)]
            assert np.frombuffer(low, dtype)[0] == min(known)
            assert np.frombuffer(high, dtype)[0] == max(known)


@pytest.mark.parametrize("type_", own.FLOATS, ids=str)
def test_nans_of_a_dictionary_are_counted_and_bound_nothing(type_):
    values = pa.array([2.0, math.nan, 1.0]).cast(type_)
    codes = pa.array([1, 0, 1, None], pa.int8())
    rows = pa.DictionaryArray.from_arrays(codes, values)
    pages, _ = statistics(rows, PAGE)
    assert (pages.nulls, pages.nans) == ((1,), (2,))
    two = values[:1].to_numpy().tobytes()
    assert (pages.lowest, pages.highest) == ((two,), (two,))


@pytest.mark.parametrize("type_", own.PLAIN, ids=str)
@quick
@given(data=st.data())
def test_a_dictionary_column_has_the_statistics_of_its_values(type_, data):
    if pa.types.is_null(type_):
        return
    values = data.draw(own.arrays(type_, rows=data.draw(st.integers(1, 9))))
    codes = data.draw(st.lists(st.none() | st.integers(0, len(values) - 1), max_size=30))
    index = data.draw(st.sampled_from(own.INTEGERS))
    start = data.draw(st.integers(0, len(codes)))
    encoded = pa.DictionaryArray.from_arrays(pa.array(codes, index), values)[start:]
    plain = as_stored(values).take(pa.array(codes, pa.int64()))[start:]
    page_rows = data.draw(st.sampled_from([1, 2, 8, 64]))
    for one, other in zip(
        statistics(encoded, page_rows), statistics(plain, page_rows), strict=True
    ):
        assert (one.nulls, one.nans) == (other.nulls, other.nans)
        for bounds, others in ((one.lowest, other.lowest), (one.highest, other.highest)):
            if pa.types.is_floating(type_):
                # Either zero is a bound of both.
                bounds, others = decode(type_, bounds), decode(type_, others)
            assert bounds == others


@pytest.mark.parametrize("type_", own.PLAIN, ids=str)
@quick
@given(data=st.data())
def test_a_page_has_the_statistics_of_its_rows_alone(type_, data):
    array = data.draw(own.arrays(type_))
    page_rows = data.draw(st.sampled_from([1, 8, 16]))
    if pa.types.is_null(type_) or len(array) == 0:
        return
    pages, _ = statistics(array, page_rows)
    alone = [
        statistics(array[start : start + page_rows], page_rows)[1]
        for start in range(0, len(array), page_rows)
    ]
    assert pages == Statistics.joined(alone)


def test_a_page_of_a_large_dictionary_is_not_counted_value_by_value():
    values = pa.array(np.arange(10_000.0))
    codes = pa.array([9_999, 17, None, 17], pa.int16())
    pages, _ = statistics(pa.DictionaryArray.from_arrays(codes, values), PAGE)
    assert (pages.nulls, pages.nans) == ((1,), (0,))
    assert pages.lowest == (np.float64(17).tobytes(),)
    assert pages.highest == (np.float64(9_999).tobytes(),)
