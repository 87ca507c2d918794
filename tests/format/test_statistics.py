"""Statistics as the files spell them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.errors import CorruptError
from blztable.format import jsontext
from blztable.format.statistics import MAX_BOUND_BYTES, Statistics

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
