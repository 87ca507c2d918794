"""Statistics and their spelling in the files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.errors import CorruptError
from blztable.format import jsontext
from blztable.format.line import MAX_BOUND_BYTES, Statistics

BOUNDS = st.none() | st.binary(max_size=MAX_BOUND_BYTES)
RUNS = st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**62), BOUNDS, BOUNDS))


@given(RUNS)
def test_statistics_come_back(runs):
    statistics = Statistics(*(tuple(run[i] for run in runs) for i in range(4)))
    value = jsontext.loads(jsontext.dumps(statistics.to_json()), "it")
    assert Statistics.from_json(value, len(runs)) == statistics
    assert len(statistics) == len(runs)


def good():
    return {"nulls": [0, 2], "nans": [1, 0], "min": ["AA==", None], "max": ["/w==", None]}


def refused(value, runs=2):
    with pytest.raises(CorruptError):
        Statistics.from_json(value, runs)


def test_the_good_statistics_are_what_the_lies_are_made_from():
    assert Statistics.from_json(good(), 2).highest == (b"\xff", None)


@pytest.mark.parametrize("key", ["nulls", "nans", "min", "max"])
def test_each_list_is_there_with_an_entry_a_run(key):
    for found in (None, [], good()[key][:1], [*good()[key], None], {}, "ab", 2):
        refused(good() | {key: found})
    lacking = good()
    del lacking[key]
    refused(lacking)
    refused(good(), runs=1)


@pytest.mark.parametrize("found", [True, -1, 1.0, None, "1", [], {}], ids=str)
@pytest.mark.parametrize("key", ["nulls", "nans"])
def test_a_count_is_a_whole_number(key, found):
    refused(good() | {key: [found, 1]})


@pytest.mark.parametrize(
    "found", [True, 1, 1.0, "A", "AA=", "AA==\n", "A-==", "é", [], {}], ids=str
)
@pytest.mark.parametrize("key", ["min", "max"])
def test_a_bound_is_base64(key, found):
    refused(good() | {key: [found, None]})


@pytest.mark.parametrize("key", ["min", "max"])
def test_a_bound_is_short(key):
    refused(good() | {key: ["A" * 4 * (MAX_BOUND_BYTES // 3 + 1), None]})


COUNTS = st.integers(0, 2**32 - 1)
PAGES = st.lists(st.tuples(COUNTS, COUNTS, BOUNDS, BOUNDS))


@given(PAGES)
def test_a_zone_map_comes_back(runs):
    statistics = Statistics(*(tuple(run[i] for run in runs) for i in range(4)))
    assert Statistics.decode(statistics.encode(), len(runs)) == statistics


ZONE_MAP = Statistics((1, 2), (0, 3), (b"ab", None), (b"abc", b"")).encode()


def test_a_zone_map_that_was_cut_or_grew_is_refused():
    for length in range(len(ZONE_MAP)):
        with pytest.raises(CorruptError, match="zone map"):
            Statistics.decode(ZONE_MAP[:length], 2)
    with pytest.raises(CorruptError, match="zone map"):
        Statistics.decode(ZONE_MAP + b"?", 2)


@pytest.mark.parametrize("runs", [0, 1, 3, 2**20])
def test_a_zone_map_of_other_pages_is_refused(runs):
    with pytest.raises(CorruptError, match="zone map"):
        Statistics.decode(ZONE_MAP, runs)


@pytest.mark.parametrize("length", [MAX_BOUND_BYTES + 1, 254])
def test_a_zone_map_with_a_long_bound_is_refused(length):
    lengths = bytes([length, 255])
    with pytest.raises(CorruptError, match="bound"):
        Statistics.decode(bytes(8) + lengths + bytes(length), 1)
