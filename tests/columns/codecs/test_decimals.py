"""Decimals: values with more digits than their type are found, whatever lies around them."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.columns import types
from blztable.columns.codecs.decimals import are_within
from blztable.errors import SchemaError

KINDS = {32: pa.decimal32, 64: pa.decimal64, 128: pa.decimal128, 256: pa.decimal256}
MOST_DIGITS = {32: 9, 64: 18, 128: 38, 256: 76}
ALL = [(bits, digits) for bits, most in MOST_DIGITS.items() for digits in range(1, most + 1)]


def encoded(bits: int, values) -> np.ndarray:
    data = b"".join(value.to_bytes(bits // 8, "little", signed=True) for value in values)
    return np.frombuffer(data, np.uint8)


def array(type_: pa.DataType, values) -> pa.Array:
    """Values as Arrow has them, more digits than the type says among them; None is null."""
    data = encoded(type_.bit_width, [value or 0 for value in values])
    mask = np.packbits([value is not None for value in values], bitorder="little")
    return pa.Array.from_buffers(type_, len(values), [pa.py_buffer(mask), pa.py_buffer(data)])


@pytest.mark.parametrize(("bits", "digits"), ALL)
def test_the_bounds_of_a_precision_are_exact_for_every_width(bits, digits):
    type_, most = KINDS[bits](digits, 0), 10**digits - 1
    for few in ([], [0], [-1], [most], [-most], [0, -1], [most, -most, -1, 0]):
        # As few as are compared aside, and more than lie side by side.
        for values in (few or [1], few + [1] * 5000, [1] * 3000 + few):
            assert are_within(type_, encoded(bits, values))
            for wrong in (most + 1, -most - 1, (1 << bits - 1) - 1, -(1 << bits - 1)):
                assert not are_within(type_, encoded(bits, [*values, wrong]))
                assert not are_within(type_, encoded(bits, [wrong, *values]))


def test_no_values_are_within_any_precision():
    for bits, digits in ALL:
        assert are_within(KINDS[bits](digits, 0), encoded(bits, []))


@given(st.data())
def test_values_are_within_where_each_of_them_is(data):
    bits, digits = data.draw(st.sampled_from(ALL))
    most = 10**digits - 1
    limit = (1 << bits - 1) - 1
    edges = [0, -1, most, -most, most + 1, -most - 1, limit, -limit - 1]
    edges += [1 << 63, -(1 << 63), 1 << 64, (1 << 64) - 1, -(1 << 64), -(1 << 64) - 1]
    value = st.one_of(
        st.sampled_from([edge for edge in edges if -limit <= edge <= limit]),
        st.integers(-most, most),
        st.integers(-limit - 1, limit),
    )
    values = data.draw(st.lists(value, min_size=1, max_size=300))
    expected = all(-most <= one <= most for one in values)
    assert are_within(KINDS[bits](digits, 0), encoded(bits, values)) == expected


@pytest.mark.parametrize("bits", KINDS)
@pytest.mark.parametrize("value", [10**5, -(10**5)])
def test_an_array_with_more_digits_than_its_type_is_not_encoded(bits, value):
    type_ = KINDS[bits](5, 2)
    types.encode(array(type_, [99_999, None, -99_999]))
    wrong = array(type_, [1, value, 2])
    message = r"a value with more digits than decimal.*\(5, 2\) has; cast to a wider type"
    with pytest.raises(SchemaError, match=message):
        types.encode(wrong)
    # Where it is not among the rows it is not looked at, nor where the row is null.
    types.encode(wrong[2:])
    values, null = wrong.buffers()[1], pa.py_buffer(b"\5")
    types.encode(pa.Array.from_buffers(type_, 3, [null, values]))
    with pytest.raises(SchemaError, match=message):
        types.encode(pa.DictionaryArray.from_arrays(pa.array([0, 2]), wrong))
