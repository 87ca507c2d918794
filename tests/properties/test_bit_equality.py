"""The equality by which tests compare columns: never true where one bit of a row differs."""

import pyarrow as pa
import pytest

from support.bit_equality import same

PAIRS = {
    "zeros of either sign": (pa.array([0.0]), pa.array([-0.0])),
    "numbers": (pa.array([1, 2]), pa.array([1, 3])),
    "a null and empty text": (pa.array(["a", None]), pa.array(["a", ""])),
    "text cut elsewhere": (pa.array(["ab", "c"]), pa.array(["a", "bc"])),
    "booleans": (pa.array([True, False]), pa.array([True, True])),
    "structs": (pa.array([{"x": 1}]), pa.array([{"x": 2}])),
    "a struct that is null": (
        pa.array([{"x": None}]),
        pa.array([None], pa.struct({"x": pa.null()})),
    ),
    "lists in structs": (pa.array([{"x": [1]}]), pa.array([{"x": [2]}])),
    "slices of one array": (pa.array(range(9))[1:4], pa.array(range(9))[2:5]),
    "slices of bits": (pa.array([True, False] * 9)[1:4], pa.array([True, False] * 9)[2:5]),
}


@pytest.mark.parametrize("name", PAIRS)
def test_columns_that_differ_are_never_the_same_and_equal_ones_are(name):
    one, other = PAIRS[name]
    assert not same(one, other)
    assert same(one, pa.concat_arrays([one[:1], one[1:]]))
    both = pa.chunked_array([one, other])
    assert not same(both, pa.chunked_array([other, one]))
    assert same(both, pa.chunked_array([pa.concat_arrays([one, other])]))
