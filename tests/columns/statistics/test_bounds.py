"""Bounds of pages, row groups and leaves are words, and hold all values as Arrow compares them."""

import decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blztable.arrow.types import as_stored, compared_type
from blztable.columns.parts.physical import physical
from blztable.columns.statistics.bounds import (
    above_prefix,
    extreme,
    extreme_of,
    null_count,
    zones_of_groups,
    zones_of_pages,
)
from blztable.format.bounds import ANY, summary
from blztable.format.leaf import GROUP, Leaf, encode
from support import arrow_strategies as own
from support.encoded import records_of

NUMBERS = [pa.bool_(), *own.INTEGERS, *own.FLOATS, *own.DECIMALS, *own.TIMES]
ORDERED = [*NUMBERS, *own.TEXTS]
NEGATIVE = pa.decimal128(5, -2)
PATIENT = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


def as_comparable(array):
    """Return decimals of a negative scale, which Arrow compares not, as others."""
    if pa.types.is_decimal(array.type) and array.type.scale < 0:
        return array.view(pa.decimal128(array.type.precision, 0))
    return array


def values_of(array):
    """Return the values of an array as they are compared, without nulls and NaNs, in order."""
    values = as_stored(array).cast(compared_type(array.type), safe=False).drop_null()
    values = as_comparable(values)
    if pa.types.is_floating(values.type):
        values = values.filter(pc.invert(pc.is_nan(values)))
    return values.take(pc.sort_indices(values))


def check(zones, number, array):
    """Compare a zone with its rows."""
    values = values_of(array)
    is_nan = (
        pc.is_nan(array.cast(pa.float64())).fill_null(False)
        if pa.types.is_floating(array.type)
        else None
    )
    nans = 0 if is_nan is None else pc.sum(is_nan).as_py() or 0
    counts = (zones.rows[number], zones.nulls[number], zones.nans[number])
    assert counts == (len(array), array.null_count, nans)
    assert zones.values[number] == bool(len(values))
    low, high = as_comparable(zones.lowest)[number], as_comparable(zones.highest)[number]
    if not len(values):
        assert not low.is_valid
        assert not high.is_valid
        return
    if low.is_valid:
        assert pc.less_equal(low, values[0]).as_py()
    if high.is_valid:
        assert pc.greater_equal(high, values[-1]).as_py()
    if zones.exact[number]:
        # Zeros of both signs are equal.
        assert pc.equal(low, values[0]).as_py()
        assert pc.equal(high, values[-1]).as_py()


@pytest.mark.parametrize("type_", ORDERED, ids=str)
@PATIENT
@given(data=st.data())
def test_bounds_hold_the_values_of_each_page_and_row_group(type_, data):
    arrays = data.draw(st.lists(own.arrays(type_), min_size=1, max_size=4))
    records = records_of(arrays)
    groups = zones_of_groups(type_, records)
    assert groups.lowest.type == groups.highest.type == compared_type(type_)
    for number, array in enumerate(arrays):
        check(groups, number, array)
    pages = zones_of_pages(type_, records)
    cut = [array[start : start + 8] for array in arrays for start in range(0, len(array), 8)]
    assert len(pages) == len(cut)
    for number, array in enumerate(cut):
        check(pages, number, array)


@pytest.mark.parametrize("type_", ORDERED, ids=str)
@PATIENT
@given(data=st.data())
def test_bounds_of_a_leaf_hold_the_values_of_its_row_groups(type_, data):
    arrays = [one for one in data.draw(st.lists(own.arrays(type_), min_size=1)) if len(one)]
    if not arrays:
        return
    groups = np.zeros(len(arrays), GROUP)
    groups["rows"] = groups["stored"] = list(map(len, arrays))
    groups["groups"] = 1
    leaf = Leaf(encode(0, groups, np.zeros(0, "<i8"), records_of(arrays)))
    _, records = summary(leaf, 1, [physical(type_).order])
    check(zones_of_groups(type_, records), 0, pa.chunked_array(arrays, type_).combine_chunks())


INTEGERS_AND_TIMES = [*own.INTEGERS, *own.TIMES, pa.decimal32(9, 2), pa.decimal64(18, 4)]


@pytest.mark.parametrize("type_", INTEGERS_AND_TIMES, ids=str)
@PATIENT
@given(data=st.data())
def test_bounds_of_integers_and_times_are_values(type_, data):
    array = data.draw(own.arrays(type_, rows=data.draw(st.integers(1, 20))))
    zones = zones_of_groups(type_, records_of([array]))
    assert zones.exact.tolist() == [array.null_count < len(array)]


# Decimals of many digits, whose product with a power of ten is rounded, and what is none.
DECIMALS = st.builds(
    lambda digits, power: digits / 10.0**power, st.integers(-(10**17), 10**17), st.integers(0, 12)
)


@PATIENT
@given(
    st.lists(DECIMALS, min_size=20, max_size=60),
    st.lists(st.floats(allow_nan=False) | DECIMALS, max_size=3),
    st.sampled_from([pa.float64(), pa.float32()]),
)
def test_bounds_of_floats_that_are_stored_as_decimals_hold_the_others_too(values, others, type_):
    for place, value in enumerate(others):
        values.insert(7 * place, value)
    with np.errstate(over="ignore"):
        array = pa.array(np.array(values).astype(type_.to_pandas_dtype()))
    check(zones_of_groups(type_, records_of([array])), 0, array)
    check(zones_of_pages(type_, records_of([array])), 0, array[:8])


@pytest.mark.parametrize("digits", [1, 2, 3])
def test_bounds_of_decimals_hold_an_exception_of_more_digits(digits):
    # Times a power of ten it has more bits than a float, so that one more is nothing.
    for other in (4306712898371898.5, 16073305.949343005, -736070.55555, -1e16 - 2):
        values = np.arange(1000) / 10.0**digits
        values[500] = other
        records = records_of([pa.array(values)], 14)
        assert records.streams["exceptions"].tolist() == [1]
        zones = zones_of_groups(pa.float64(), records)
        assert zones.lowest.fill_null(-np.inf)[0].as_py() <= values.min()
        assert zones.highest.fill_null(np.inf)[0].as_py() >= values.max()


@pytest.mark.parametrize("type_", [pa.decimal128(38, 3), pa.decimal256(60, 3)], ids=str)
def test_bounds_of_wide_decimals_are_within_their_digits(type_):
    least, greatest = -(10**type_.precision) + 1, 10**type_.precision - 1
    numbers = [least, greatest, 0, -1, 1 << 80, -(1 << 80)]
    array = pa.array([decimal.Decimal(f"{number}e-3") for number in numbers], type_)
    zones = zones_of_groups(type_, records_of([array, array[2:3], array[4:5], array[3:6:2]]))
    assert zones.lowest[0] == array[0]
    assert zones.highest[0] == array[1]
    assert not zones.exact[0]
    for number, one in enumerate([array, array[2:3], array[4:5]]):
        check(zones, number, one)
    # Arrow casts them to more digits, as it does values.
    assert zones.highest.cast(pa.decimal256(76, 3)).null_count == 0


@pytest.mark.parametrize(
    ("items", "low", "high", "exact"),
    [
        ([b"b", "ä".encode()], b"b", "ä".encode(), True),
        ([b"", b"abc"], b"", b"abc", True),
        ([b"ORD-2026-1", b"ORD-2026-9"], b"ORD-2026-1", b"ORD-2026-9", True),
        ([b"a" * 20], b"a" * 20, b"a" * 20, True),
        ([b"123456789", b"2"], b"12345678", b"2\0\0\0\0\0\0\1", False),
        ([b"1", b"223456789"], b"1", b"22345679", False),
        # Text between the beginning of a letter and the bytes behind it.
        ([b"1", "12345678é".encode()], b"1", b"12345678\xc4", False),
    ],
)
def test_bounds_of_text_are_the_bytes_behind_the_prefix(items, low, high, exact):
    type_ = pa.large_string()
    zones = zones_of_groups(type_, records_of([pa.array(items, pa.binary()).cast(type_)]))
    # Arrow does not look at the letters here.
    found = [one.cast(pa.large_binary())[0].as_py() for one in (zones.lowest, zones.highest)]
    assert found == [low, high]
    assert zones.exact.tolist() == [exact]


def test_bytes_without_a_successor_have_no_upper_bound():
    last = b"\xff" * 8
    for items, known in (([b"a", last], True), ([b"a", last + b"\xff"], False)):
        zones = zones_of_groups(pa.binary(), records_of([pa.array(items, pa.binary())]))
        assert zones.lowest[0].as_py() == b"a"
        assert zones.highest[0].as_py() == (last if known else None)


def test_a_dictionary_has_the_bounds_of_its_values():
    records = records_of([pa.array([1.5, None, float("nan")], pa.float16())])
    zones = zones_of_groups(pa.dictionary(pa.int8(), pa.float16()), records)
    assert zones.lowest.equals(pa.array([1.5], pa.float32()))
    assert (zones.nulls[0], zones.nans[0]) == (1, 1)


RUNS = pa.struct([("a", pa.run_end_encoded(pa.int32(), pa.int8()))])


@pytest.mark.parametrize("type_", [pa.binary(3), pa.month_day_nano_interval(), RUNS], ids=str)
def test_what_has_no_order_has_no_bounds(type_):
    array = pa.nulls(3, type_ if type_ is not RUNS else pa.struct([]))
    zones = zones_of_groups(type_, records_of([array]))
    assert zones.lowest.equals(pa.nulls(1))
    assert zones.nulls.tolist() == [3]
    assert not zones.values.any()


def test_rows_of_the_null_type_are_null():
    zones = zones_of_groups(pa.null(), records_of([pa.nulls(5), pa.nulls(0)]))
    assert zones.nulls.tolist() == [5, 0]
    assert not zones.values.any()


def test_of_a_part_without_pages_nothing_is_known():
    records = records_of([pa.array([1, 2]), pa.array([3, 4])])
    records.parts["pages"][0] = 0
    known = zones_of_groups(pa.int64(), type(records)(1, 2, records.parts, pages=records.pages[1:]))
    assert known.is_counted.tolist() == [False, True]
    assert known.values.tolist() == [True, True]
    assert known.lowest.to_pylist() == [-(1 << 63), 3]


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (pa.array([1], pa.int8()), (-129, 128)),
        (pa.array([1], pa.uint16()), (-1, 1 << 16)),
        (pa.array([True]), (-1, 2)),
        (pa.array([1.1]), ANY),
        (pa.array([0.12345678901234567]), ANY),
    ],
)
def test_a_word_that_is_no_value_is_no_bound(array, words):
    records = records_of([array])
    records.pages["min"], records.pages["max"] = words
    zones = zones_of_groups(array.type, records)
    assert zones.values.tolist() == [True]
    assert (zones.lowest.null_count, zones.highest.null_count) == (1, 1)


def test_bounds_of_single_precision_are_rounded_to_the_outside():
    records = records_of([pa.array([1.5], pa.float32())])
    narrow = np.float32(0.1)
    for value in (0.1, -0.1, 1e300, -1e300):
        array = pa.array([value])
        wide = records_of([array])
        records.pages[:] = wide.pages
        records.streams[:] = wide.streams
        zones = zones_of_groups(pa.float32(), records)
        assert zones.lowest[0].as_py() <= value <= zones.highest[0].as_py()
    assert float(narrow) != 0.1


def zones_of(*arrays):
    return zones_of_groups(arrays[0].type, records_of(list(arrays)))


def test_an_extreme_that_is_a_bound_is_not_read():
    zones = zones_of(pa.array([3, 4]), pa.array([1, None]), pa.array([9, 2]))
    read = pytest.fail
    assert extreme(zones, read, is_least=True).as_py() == 1
    assert extreme(zones, read, is_least=False).as_py() == 9


def test_an_extreme_that_is_no_bound_is_read_from_few_zones():
    arrays = [pa.array([f"{first}{last}3456789 0" for last in "ab"]) for first in "312"]
    read = []

    def values(number):
        read.append(number)
        return arrays[number]

    zones = zones_of(*arrays)
    assert extreme(zones, values, is_least=True).as_py() == "1a3456789 0"
    assert read == [1]
    assert extreme(zones, values, is_least=False).as_py() == "3b3456789 0"
    assert read == [1, 0]


@pytest.mark.parametrize("type_", [one for one in ORDERED if one != NEGATIVE], ids=str)
@PATIENT
@given(data=st.data())
def test_extremes_are_those_of_all_values(type_, data):
    arrays = data.draw(st.lists(own.arrays(type_), min_size=1, max_size=4))
    values = values_of(pa.chunked_array(arrays, type_).combine_chunks())
    zones = zones_of(*arrays)
    for is_least, place in ((True, 0), (False, -1)):
        found = extreme(zones, lambda number: arrays[number], is_least=is_least)
        assert found.type == compared_type(type_)
        assert found.is_valid == bool(len(values))
        assert not len(values) or pc.equal(found, values[place]).as_py()


@pytest.mark.parametrize("type_", own.TEXTS, ids=str)
def test_extremes_of_a_dictionary_are_those_of_its_values(type_):
    values = pa.array([b"c", b"a", b"z"]).cast(type_)
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), values)
    found = [extreme_of(array, is_least=is_least) for is_least in (True, False)]
    assert found == [one.cast(compared_type(type_))[0] for one in (values[1:2], values[:1])]


def test_zones_are_taken_in_any_order():
    taken = zones_of(pa.array([1, None]), pa.nulls(3, pa.int64())).take(np.array([1, 1, 0]))
    assert taken.rows.tolist() == [3, 3, 2]
    assert taken.nulls.tolist() == [3, 3, 1]
    assert taken.values.tolist() == taken.exact.tolist() == [False, False, True]
    assert taken.lowest.to_pylist() == taken.highest.to_pylist() == [None, None, 1]


def test_nulls_of_a_dictionary_are_counted_too():
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 1]), pa.array(["a", None]))
    assert null_count(array) == 3
    assert null_count(array.dictionary) == 1


def test_the_bytes_above_a_prefix():
    found = [above_prefix(one) for one in (b"a", b"a\xff", b"\xff\xff", b"")]
    assert found == [b"b", b"b", None, None]
