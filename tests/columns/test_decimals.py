"""Decimals: values with more digits than their type allows are found in any surroundings."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import blztable as blz
from blztable.columns.parts.decimals import are_within
from blztable.columns.parts.encode import encode
from blztable.errors import SchemaError
from blztable.storage.memory import RamStore
from support.options import arguments

KINDS = {32: pa.decimal32, 64: pa.decimal64, 128: pa.decimal128, 256: pa.decimal256}
MOST_DIGITS = {32: 9, 64: 18, 128: 38, 256: 76}
ALL = [(bits, digits) for bits, most in MOST_DIGITS.items() for digits in range(1, most + 1)]


def encoded(bits: int, values) -> np.ndarray:
    data = b"".join(value.to_bytes(bits // 8, "little", signed=True) for value in values)
    return np.frombuffer(data, np.uint8)


def array(type_: pa.DataType, values) -> pa.Array:
    """Return an Arrow array of these values, some with more digits than the type; None is null."""
    data = encoded(type_.bit_width, [value or 0 for value in values])
    mask = np.packbits([value is not None for value in values], bitorder="little")
    return pa.Array.from_buffers(type_, len(values), [pa.py_buffer(mask), pa.py_buffer(data)])


@pytest.mark.parametrize(("bits", "digits"), ALL)
def test_the_bounds_of_a_precision_are_exact_for_every_width(bits, digits):
    type_, most = KINDS[bits](digits, 0), 10**digits - 1
    ones = encoded(bits, [1] * 5000)
    wrong = (most + 1, -most - 1, (1 << bits - 1) - 1, -(1 << bits - 1))
    wrong = [encoded(bits, [value]) for value in wrong]
    for values in ([], [0], [-1], [most], [-most], [0, -1], [most, -most, -1, 0]):
        few = encoded(bits, values)
        # Fewer values than are compared one by one, and more than are compared together.
        for data in ([few if values else ones[: bits // 8]], [few, ones], [ones, few]):
            assert are_within(type_, np.concatenate(data))
            for value in wrong:
                assert not are_within(type_, np.concatenate([*data, value]))
                assert not are_within(type_, np.concatenate([value, *data]))


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
    encode(array(type_, [99_999, None, -99_999]))
    wrong = array(type_, [1, value, 2])
    message = r"a value has more digits than decimal.*\(5, 2\); cast to a wider type"
    with pytest.raises(SchemaError, match=message):
        encode(wrong)
    # A value below a null, or outside of the slice, is not checked.
    encode(wrong[2:])
    values, null = wrong.buffers()[1], pa.py_buffer(b"\5")
    encode(pa.Array.from_buffers(type_, 3, [null, values]))
    with pytest.raises(SchemaError, match=message):
        encode(pa.DictionaryArray.from_arrays(pa.array([0, 2]), wrong))


# Bug: such decimals were stored, and a filter or a sort of them ended in an error of Arrow's.
@pytest.mark.parametrize("as_dictionary", [False, True])
@pytest.mark.parametrize(("type_", "width"), [(pa.decimal32(1, 0), 4), (pa.decimal64(3, 0), 8)])
def test_decimals_of_more_digits_than_their_type_has_are_refused_by_their_column(
    type_, width, as_dictionary
):
    """Arrow makes such arrays without a check, and refuses them only in `validate`."""
    numbers = np.array([7, 123456, -7, 1], f"<i{width}")
    array = pa.Array.from_buffers(type_, len(numbers), [None, pa.py_buffer(numbers)])
    if as_dictionary:
        array = pa.DictionaryArray.from_arrays(pa.array(range(4), pa.int8()), array)
    store = RamStore()
    message = "column 'a': a value has more digits than decimal"
    for options in ({}, {"sort_by": "a"}):
        with pytest.raises(blz.SchemaError, match=message):
            blz.to_blz(pa.table({"a": array, "n": numbers}), store, **arguments(**options))
    assert store.list_names("meta/manifest") == []
