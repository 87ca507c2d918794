"""Page records that the rows belie are found; bounds that are wider than the values are not."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blztable.columns.statistics.soundness import false_statistics
from blztable.format.bounds import ANY, LEAST, NONE
from blztable.format.records import EXACT_BOUNDS
from support import arrow_strategies as own
from support.encoded import records_of


@pytest.mark.parametrize("type_", own.PLAIN, ids=str)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_the_writer_says_is_sound(type_, data):
    array = data.draw(own.arrays(type_))
    assert not list(false_statistics(array, records_of([array])))


SAMPLES = [
    pa.array([3, 5, None, 4], pa.int8()),
    pa.array([3, 1 << 60, None, 4], pa.uint64()),
    pa.array([1.25, float("nan"), None, -2.5]),
    pa.array([0.1234567890123456, 3e300, None]),
    pa.array([1.5, 2.5, None], pa.float16()),
    pa.array([1, None, 1 << 70], pa.decimal128(30, 0)),
    pa.array([1, None, 1 << 230], pa.decimal256(76, 0)),
    pa.array([True, None, False]),
    pa.array(["b123456789", "ba", None]),
    pa.array(["b1", "ba", None]),
    pa.array([5, 6], pa.timestamp("ns", "UTC")),
    pa.array(["b1", "ba", None]).dictionary_encode(),
]


def changed(array, exact=False, **fields):
    whole = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    records = records_of([whole])
    if not exact:
        records.parts["flags"] &= ~np.uint8(EXACT_BOUNDS)
    for name, change in fields.items():
        records.pages[name] = change(records.pages[name])
    return [message for page, message in false_statistics(array, records)]


@pytest.mark.parametrize("array", SAMPLES, ids=lambda array: str(array.type))
def test_a_bound_that_is_too_narrow_is_false(array):
    assert changed(array, min=lambda word: word - 1, max=lambda word: word + 1) == []
    (message,) = changed(array, min=lambda word: word + 1)
    assert message.startswith("the lower bound, the word ")
    (message,) = changed(array, max=lambda word: word - 1)
    assert message.startswith("the upper bound, the word ")
    assert changed(array, min=lambda _: ANY[0], max=lambda _: ANY[1]) == []


@pytest.mark.parametrize("array", SAMPLES, ids=lambda array: str(array.type))
def test_a_bound_that_is_a_value_is_one_of_the_rows(array):
    fields = {"min": lambda word: word - 1, "max": lambda word: word + 1}
    whole = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    is_exact = bool(records_of([whole]).parts["flags"][0] & EXACT_BOUNDS)
    assert len(changed(array, exact=True, **fields)) == 2 * is_exact


@pytest.mark.parametrize("array", SAMPLES, ids=lambda array: str(array.type))
def test_counts_and_pages_without_values_are_compared(array):
    nulls = array.null_count
    assert changed(array, nulls=lambda count: count + 1) == [
        f"{nulls} nulls, the statistics say {nulls + 1}"
    ]
    assert "NaNs, the statistics say" in changed(array, nans=lambda count: count + 1)[0]
    found = changed(array, min=lambda _: NONE[0], max=lambda _: NONE[1])
    assert found == ["values, the bounds say that there are none"]


def test_text_outside_of_the_prefix_is_found():
    records = records_of([pa.array(["order 1", "order 2"])])
    records.parts["flags"] = 0
    found = list(false_statistics(pa.array(["order 1", "ordinal"]), records))
    assert [page for page, _ in found] == [0]
    records.pages["min"] = LEAST
    assert len(list(false_statistics(pa.array(["order 1", "or"]), records))) == 1
