"""Bounds are decoded to the values they were encoded from; other bytes are refused."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blztable.arrow.types import compared_type
from blztable.columns.statistics import bounds
from blztable.columns.statistics.compute import statistics
from blztable.errors import CorruptError
from blztable.format.line import Statistics
from support import arrow_strategies as own

NUMBERS = [pa.bool_(), *own.INTEGERS, *own.FLOATS, *own.DECIMALS, *own.TIMES]
WIDE = [(pa.int32(), 4), (pa.float64(), 8), (pa.decimal128(9, 2), 16), (pa.bool_(), 1)]


def stated(array):
    pages, _ = statistics(array, 8)
    rows = [len(array[start : start + 8]) for start in range(0, len(array), 8)]
    return bounds.zones(array.type, rows, pages)


@pytest.mark.parametrize("type_", NUMBERS, ids=str)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_bounds_of_numbers_are_the_extremes_as_they_are_compared(type_, data):
    array = data.draw(own.arrays(type_, rows=data.draw(st.integers(1, 20))))
    runs = stated(array)
    assert runs.lowest.type == runs.highest.type == compared_type(type_)
    for run in range(len(runs)):
        values = array[8 * run : 8 * run + 8].cast(compared_type(type_)).drop_null()
        if pa.types.is_floating(values.type):
            values = values.filter(pc.invert(pc.is_nan(values)))
        ordered = values.take(pc.sort_indices(values))
        assert runs.lowest[run : run + 1].drop_null().equals(ordered[:1])
        assert runs.highest[run : run + 1].drop_null().equals(ordered[-1:])


@pytest.mark.parametrize("type_", own.TEXTS, ids=str)
def test_bounds_of_items_are_items(type_):
    runs = stated(pa.array([b"b", "ä".encode(), None]).cast(type_))
    assert runs.lowest.equals(pa.array([b"b"]).cast(compared_type(type_)))
    assert runs.highest.equals(pa.array(["ä".encode()]).cast(compared_type(type_)))
    assert runs.nulls.tolist() == [1]


def test_bounds_of_a_dictionary_are_those_of_its_values():
    found = bounds.decode(pa.dictionary(pa.int8(), pa.float16()), [np.float16(1.5).tobytes(), None])
    assert found.equals(pa.array([1.5, None], pa.float32()))


RUNS = pa.struct([("a", pa.run_end_encoded(pa.int32(), pa.int8()))])


@pytest.mark.parametrize(
    "type_", [pa.null(), pa.binary(3), pa.month_day_nano_interval(), RUNS], ids=str
)
def test_what_has_no_bounds_has_none(type_):
    assert bounds.decode(type_, [None, None]).equals(pa.nulls(2))
    with pytest.raises(CorruptError, match="whose values have no order"):
        bounds.decode(type_, [None, b"abc"])


@pytest.mark.parametrize(("type_", "width"), WIDE, ids=str)
def test_a_bound_has_the_bytes_of_a_value(type_, width):
    assert len(bounds.decode(type_, [None, bytes(width)])) == 2
    for wrong in (b"", bytes(width - 1), bytes(width + 1)):
        message = f"a bound of type {type_} has {len(wrong)} bytes, expected {width}"
        with pytest.raises(CorruptError, match=re.escape(message)):
            bounds.decode(type_, [None, bytes(width), wrong])


@pytest.mark.parametrize(
    ("type_", "bound", "message"),
    [
        (pa.string(), b"a\xff", "is not UTF-8"),
        (pa.string_view(), b"\xed\xa0\x80", "is not UTF-8"),
        (pa.bool_(), b"\2", "a byte other than 0 and 1"),
        (pa.float16(), np.float16("nan").tobytes(), "is NaN"),
        (pa.float64(), np.float64("nan").tobytes(), "is NaN"),
    ],
    ids=str,
)
def test_what_no_value_could_be_is_no_bound(type_, bound, message):
    with pytest.raises(CorruptError, match=message):
        bounds.decode(type_, [None, bound])
    assert len(bounds.decode(pa.binary(), [b"a\xff"])) == 1


def test_runs_are_taken_and_joined():
    first = bounds.zones(
        pa.string(), [4, 3], Statistics((1, 2), (0, 0), (b"a", None), (b"b", b"d"))
    )
    both = bounds.Zones.joined([first, first.take(np.array([1, 1, 0]))])
    assert both.rows.tolist() == [4, 3, 3, 3, 4]
    assert both.nulls.tolist() == [1, 2, 2, 2, 1]
    assert both.nans.tolist() == [0] * 5
    assert both.lowest.to_pylist() == ["a", None, None, None, "a"]
    assert both.highest.to_pylist() == ["b", "d", "d", "d", "b"]


def test_counts_of_more_rows_than_there_are_are_damage():
    counts = Statistics((1, 1), (2, 3), (None, None), (None, None))
    assert len(bounds.zones(pa.float32(), [3, 4], counts)) == 2
    with pytest.raises(CorruptError, match="1 nulls and 3 NaNs in 3 rows"):
        bounds.zones(pa.float32(), [3, 3], counts)
