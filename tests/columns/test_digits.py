"""Floats rounded to some significant decimal digits."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from blztable.columns.digits import MAX_DIGITS, rounded

DTYPES = ["f2", "f4", "f8"]
DIGITS = st.integers(1, MAX_DIGITS)


def near_a_power(dtype):
    """Draw a number close to a power of ten or two, where digits or steps change."""
    info = np.finfo(dtype)
    decades = range(int(np.floor(np.log10(float(info.tiny)))), int(np.log10(float(info.max))) + 1)
    tens = st.sampled_from(decades).map(lambda power: float(f"1e{power}"))
    twos = st.integers(info.minexp, info.maxexp - 1).map(lambda power: 2.0**power)
    word = dtype.replace("f", "u")
    return st.tuples(
        st.one_of(tens, twos).map(lambda number: int(np.array(number, dtype).view(word))),
        st.integers(-3, 3),
    ).map(sum)


@st.composite
def floats(draw):
    """Draw an array of floats of any bits."""
    dtype = draw(st.sampled_from(DTYPES))
    word = dtype.replace("f", "u")
    words = st.integers(0, int(np.iinfo(word).max))
    drawn = draw(st.lists(st.one_of(words, near_a_power(dtype)), max_size=20))
    return np.array(drawn, word).view(dtype)


def kept(values, digits):
    """Return the values rounded to so many digits."""
    result = rounded(pa.array(values), digits)
    return np.frombuffer(result.buffers()[1], values.dtype)[result.offset :][: len(result)]


def unit(value, digits):
    """Return one unit of a digit of a number; 1 is the first digit."""
    decade = 0
    while Fraction(10) ** (decade + 1) <= abs(value):
        decade += 1
    while Fraction(10) ** decade > abs(value):
        decade -= 1
    return Fraction(10) ** (decade - digits + 1)


@given(floats(), DIGITS)
@example(np.array([9.995, 9.994, 0.9995, 99950.0, 65519.0]), 3)
def test_a_number_changes_by_at_most_half_of_a_unit_of_its_last_digit(values, digits):
    for value, result in zip(values, kept(values, digits), strict=True):
        if np.isfinite(value) and abs(value) >= np.finfo(values.dtype).tiny:
            was, is_ = Fraction(float(value)), Fraction(float(result))
            assert abs(is_ - was) <= unit(was, digits) / 2


@given(floats(), DIGITS)
def test_numbers_that_have_no_digits_to_spare_keep_their_bits(values, digits):
    tiny = np.finfo(values.dtype).tiny
    with np.errstate(invalid="ignore"):
        special = ~np.isfinite(values) | (abs(values) < tiny)
    result = kept(values, digits)
    assert values[special].tobytes() == result[special].tobytes()
    assert np.isfinite(result[np.isfinite(values)]).all()


@given(floats(), DIGITS)
def test_rounding_again_changes_nothing(values, digits):
    once = kept(values, digits)
    assert kept(once, digits).tobytes() == once.tobytes()


@given(floats(), DIGITS)
def test_rounding_keeps_the_order_and_the_sign(values, digits):
    numbers = np.sort(values[~np.isnan(values)])
    result = kept(numbers, digits)
    assert (result[:-1] <= result[1:]).all()
    assert (np.signbit(result) == np.signbit(numbers)).all()
    assert kept(-numbers, digits).tobytes() == (-result).tobytes()


@given(floats(), DIGITS)
def test_the_lowest_bits_are_zero(values, digits):
    """At most four bits a digit are kept, and one."""
    mantissa = np.finfo(values.dtype).nmant
    dropped = max(mantissa - 4 * digits - 1, 0)
    result = kept(values, digits)
    info = np.finfo(values.dtype)
    normal = np.isfinite(values) & (abs(values) >= info.tiny) & (abs(values) < info.max / 2)
    words = result[normal].view(values.dtype.str.replace("f", "u"))
    assert not (words & ((1 << dropped) - 1)).any()


@given(floats(), DIGITS, st.data())
def test_slices_and_nulls_stay_what_they_are(values, digits, data):
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values))))
    array = pa.array(values, mask=mask.astype(bool)) if len(values) else pa.array(values)
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(values))] * 2)))
    part = rounded(array.slice(start, stop - start), digits)
    part.validate(full=True)
    expected = pa.array(kept(values, digits), mask=mask.astype(bool)) if len(values) else array
    assert repr(part.to_pylist()) == repr(expected.slice(start, stop - start).to_pylist())
    assert part.null_count == array.slice(start, stop - start).null_count


@pytest.mark.parametrize("start", [0, 3, 8, 13, 64])
def test_nulls_of_a_slice_stay_in_their_rows(start):
    values, mask = np.arange(100) + 0.125, np.arange(100) % 7 < 3
    part = rounded(pa.array(values, mask=mask).slice(start, 30), 3)
    part.validate(full=True)
    assert part.is_null().to_pylist() == mask[start : start + 30].tolist()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_number_that_would_become_infinite_is_kept(dtype):
    most = np.finfo(dtype).max
    values = np.array([most, -most, np.inf], dtype)
    assert kept(values, 1).tolist() == values.tolist()


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_array_of_more_than_one_block_is_rounded_whole(dtype):
    values = np.linspace(1, 1000, 100_001).astype(dtype)
    result = kept(values, 2)
    assert len(result) == len(values)
    parts = [kept(part, 2) for part in np.array_split(values, 11)]
    assert result.tobytes() == np.concatenate(parts).tobytes()
    assert len(np.unique(result)) < len(values) / 100


def test_the_array_of_the_caller_is_not_changed():
    values = np.array([1.23456, 123.456])
    kept(values, 3)
    assert values.tolist() == [1.23456, 123.456]


@pytest.mark.parametrize(
    ("value", "digits", "expected"),
    [
        (150.75, 3, 151.0),
        (123.456, 3, 123.4375),
        (1234.56, 3, 1232.0),
        (0.1, 3, 0.0999755859375),
        (3.14159, 1, 3.0),
        (1.5, 1, 2.0),
        (2.5, 1, 2.0),
        (3.5, 1, 4.0),
        (1e300, 17, 1e300),
        (np.pi, 17, np.pi),
    ],
)
def test_a_number_becomes_a_multiple_of_a_power_of_two(value, digits, expected):
    assert kept(np.array([value]), digits).tolist() == [expected]
