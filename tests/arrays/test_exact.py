"""Values that are given to an array come back as they were, or are refused.

What a value means is computed here in Python's numbers, which are never rounded.
"""

import datetime as dt
import io
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blztable as blz

# Attoseconds.
UNITS = {
    **{"W": 604_800 * 10**18, "D": 86_400 * 10**18, "h": 3600 * 10**18, "m": 60 * 10**18},
    **{"s": 10**18, "ms": 10**15, "us": 10**12, "ns": 10**9, "ps": 10**6, "fs": 1000, "as": 1},
}
NAT = np.iinfo("i8").min
NUMBERS = [0, 1, -1, 2, 127, 300, 2**24 + 1, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)]
FLOATS = [-0.0, 0.5, 1.7, 65504.0, 1e300, 2.0**63, 2.0**64, math.nan, math.inf, -math.inf]
TIMES = [0, 1, -1, 4, 7, 50, 292, 86_400, 10**9, 10**11, 2**62, -(2**61), NAT]
TEXTS = ["", "a", "ab", "abcd", "\u00e9", "\ud800"]
KINDS = [
    "?",
    "i1",
    "i2",
    "i4",
    "i8",
    "u1",
    "u2",
    "u4",
    "u8",
    "f2",
    "f4",
    "f8",
    "c8",
    "c16",
    "S1",
    "S3",
    "U1",
    "U3",
    "V2",
    "M8",
    "m8",
    *(f"{kind}8[{unit}]" for kind in "mM" for unit in [*UNITS, "Y", "M", "25s"]),
]


def values_of(dtype):
    """Return values of a dtype without fields: those near its bounds, and odd ones."""
    kind = dtype.kind
    if kind in "iu":
        bounds = np.iinfo(dtype)
        return np.array([n for n in NUMBERS if bounds.min <= n <= bounds.max], dtype)
    if kind in "mM":
        return np.array(TIMES).view(dtype.newbyteorder("=")).astype(dtype)
    with np.errstate(all="ignore"):
        if kind in "fc":
            parts = np.array([*map(float, NUMBERS), *FLOATS])
            if kind == "c":
                parts = parts.astype("c16")
                parts.imag[::3] = 1.7
            return parts.astype(dtype)
    if kind == "U":
        return np.array(TEXTS, dtype)
    texts = [text.encode("latin-1", "replace") for text in TEXTS]
    return np.array([False, True] if kind == "b" else texts, dtype)


@st.composite
def dtypes(draw, depth=1):
    if depth and draw(st.integers(0, 3)) == 0:
        names = draw(st.permutations(["a", "b"]))
        shapes = st.sampled_from([(), (2,)])
        return np.dtype([(name, draw(dtypes(depth - 1)), draw(shapes)) for name in names])
    kind = draw(st.sampled_from(KINDS))
    # Numpy does not swap the bytes of times without a unit.
    return np.dtype(kind).newbyteorder(
        "=" if kind in ("M8", "m8") else draw(st.sampled_from("=<>"))
    )


def drawn(draw, dtype, shape):
    """Return an array of values of a dtype."""
    if dtype.names:
        result = np.zeros(shape, dtype)
        for name in dtype.names:
            field = result[name]
            field[...] = drawn(draw, field.dtype, field.shape)
        return result
    values = values_of(dtype)
    count = math.prod(shape)
    places = draw(st.lists(st.integers(0, len(values) - 1), min_size=count, max_size=count))
    return values[places].reshape(shape)


def meanings(array):
    """Return what the items of an array mean."""
    if array.dtype.names:
        return array.shape, {name: meanings(array[name]) for name in array.dtype.names}
    kind = array.dtype.kind
    if kind not in "mM":
        return array.shape, kind in "SUV", [*map(meaning, array.reshape(-1).tolist())]
    unit, count = np.datetime_data(array.dtype)
    numbers = array.astype(array.dtype.newbyteorder("=")).view("i8").reshape(-1).tolist()
    return array.shape, kind, [time_of(n, unit, count, is_moment=kind == "M") for n in numbers]


def meaning(value):
    """Return a number, text or bytes to be compared: NaN is NaN, and ASCII is text."""
    if isinstance(value, complex):
        return (meaning(value.real), meaning(value.imag)) if value.imag else meaning(value.real)
    if isinstance(value, bytes) and value.isascii():
        return value.decode()
    return "NaN" if value != value else value


def time_of(number, unit, count, *, is_moment):
    if number == NAT:
        return "NaT"
    number *= count
    if unit not in ("Y", "M"):
        return number * UNITS.get(unit, 0), unit not in UNITS and number
    months = number * (12 if unit == "Y" else 1)
    return (days_before(months) * UNITS["D"], False) if is_moment else ("months", months)


def days_before(months):
    """Return the days from 1970 to the first of a month, in a calendar without end."""
    year, month = divmod(months, 12)
    # A year that begins in March ends with its leap day.
    year, month = (1970 + year, month - 2) if month >= 2 else (1969 + year, month + 10)
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 - 719_468


def test_the_calendar_of_this_test_is_that_of_python():
    for months in range(-360, 600):
        day = dt.date(1970 + months // 12, months % 12 + 1, 1)
        assert days_before(months) == (day - dt.date(1970, 1, 1)).days


def shown(values, form):
    """Return the values of an array in another form."""
    if form == "array":
        return values
    if form == "objects" and not values.dtype.names:
        return np.array([*values, None], object)[:-1]
    # `tolist` makes numbers of times whose unit Python lacks.
    return [*values] if values.dtype.kind in "mMV" else values.tolist()


@st.composite
def cases(draw):
    target, source = draw(dtypes()), draw(dtypes())
    if draw(st.booleans()) and target.kind not in "mMV":
        source = draw(dtypes(0))
    form = draw(st.sampled_from(["array", "objects", "list"]))
    return drawn(draw, target, (5,)), drawn(draw, source, (2,)), form


@settings(max_examples=250, deadline=None)
@given(cases())
def test_what_is_given_comes_back_or_is_refused_and_nothing_changes(case):
    before, values, form = case
    file = io.BytesIO()
    options = {"chunk_shape": (2,), "reserve": 4000}
    with blz.SuperChunk.create(file, before.dtype, **options) as array:
        array.append(before)
    with blz.SuperChunk.open(file, "a") as array:
        for change, place in (
            (lambda: array.append(shown(values, form)), slice(5, 7)),
            (lambda: array.__setitem__(slice(1, 3), shown(values, form)), slice(1, 3)),
            (lambda: array.__setitem__(4, values[1]), slice(4, 5)),
        ):
            old = file.getvalue()
            try:
                change()
            except blz.SchemaError:
                assert file.getvalue() == old
            else:
                expected = values[1:] if place.start == 4 else values
                assert meanings(array[place]) == meanings(expected)


@settings(max_examples=120, deadline=None)
@given(dtypes(), st.sampled_from(["array", "objects", "list"]), st.data())
def test_values_of_the_dtype_itself_are_taken_in_any_form(dtype, form, data):
    values = drawn(data.draw, dtype, (4,))
    with blz.SuperChunk.create(None, dtype) as array:
        array.append(shown(values, form))
        array[1:3] = shown(values[1:3], form)
        assert meanings(array[:]) == meanings(values)


STAMP = pd.Timestamp(1_577_836_800_000_000_001)
TWO = [("a", "i4"), ("b", "i4")]
RECORD = [("a", "u1"), ("b", "S2")]
SWAPPED = np.array([(1, 2)], [("b", "i8"), ("a", "i4")])


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [
        ("f8", [True, Fraction(1, 4), Decimal("0.5"), np.float32(0.5)], [1, 0.25, 0.5, 0.5]),
        ("f8", [2**70, 2**53 + 2], [2.0**70, 2.0**53 + 2]),
        ("i8", [1.0, -0.0, 2**63 - 1, np.uint64(7)], [1, 0, 2**63 - 1, 7]),
        ("u8", np.array([2.0**63]), [2**63]),
        ("c16", [1, 2.5, 1j, complex(math.nan, 1)], [1, 2.5, 1j, complex(math.nan, 1)]),
        ("f8", np.array([1 + 0j, 2]), [1, 2]),
        ("?", [1, 0.0, True], [True, False, True]),
        ("S2", ["ab", b"c"], [b"ab", b"c"]),
        ("U2", [b"ab", "\u00e9"], ["ab", "\u00e9"]),
        ("U2", pd.Series(["ab", "c"]), ["ab", "c"]),
        ("i2", range(3), [0, 1, 2]),
        ("i8", [np.array(2**63 - 1), 3.0], [2**63 - 1, 3]),
        ("f8", bytearray(b"\1\2"), [1, 2]),
        ("M8[ns]", [STAMP, dt.datetime(2020, 1, 1), dt.date(1970, 1, 2)], None),
        ("M8[D]", [dt.date(2020, 1, 1), np.datetime64("NaT", "D"), pd.NaT], ["2020-01-01", "", ""]),
        ("m8[ms]", [dt.timedelta(1), np.timedelta64(5, "s"), pd.Timedelta("2ms")], None),
        (RECORD, [(1, b"ab"), (255, "c")], [(1, b"ab"), (255, b"c")]),
        (TWO, SWAPPED, [(2, 1)]),
        (TWO, [SWAPPED[0], (5, 6)], [(2, 1), (5, 6)]),
        ([("a", "i4", (2,)), ("b", RECORD)], [([1, 2.0], (3, "x"))], [([1, 2], (3, b"x"))]),
    ],
    ids=str,
)
def test_values_of_other_kinds_are_taken_if_nothing_changes(dtype, values, expected):
    with blz.SuperChunk.create(None, dtype) as array:
        array.append(values)
        if expected is None:
            numbers = {
                "M": [STAMP.value, STAMP.value - 1, 86_400 * 10**9],
                "m": [86_400_000, 5000, 2],
            }
            expected = np.array(numbers[array.dtype.kind]).view(dtype)
        assert meanings(array[:]) == meanings(np.array(expected, dtype))


def test_lists_of_arrays_of_several_dtypes_are_not_joined_by_numpy():
    with blz.SuperChunk.create(None, "i8", (0, 2)) as array:
        array.append([np.array([2**53 + 1, 0]), np.array([3.0, 4.0])])
        array.append([[np.array(2**53 + 1), 5.0]])
        assert array[:].tolist() == [[2**53 + 1, 0], [3, 4], [2**53 + 1, 5]]


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("f8", np.array([2**53 + 1])),
        ("f8", [2**53 + 1, 1.5]),
        ("f8", np.array([2**63 - 1])),
        ("f8", np.array([2**64 - 1], "u8")),
        ("c16", np.array([2**53 + 1])),
        ("c8", [complex(math.nan, 0.1)]),
        ("f8", [1 + 1j]),
        ("f8", np.array([1 + 1j])),
        ("u8", np.array([-1])),
        ("i8", np.array([2**64 - 1], "u8")),
        ("i8", np.array([2.0**63])),
        ("i8", [math.nan]),
        ("?", [2]),
        ("f8", [None, 1.0]),
        ("f8", [pd.NA]),
        ("f8", ["1.5"]),
        ("f8", np.ma.array([1.0, 2.0], mask=[True, False])),
        ("S3", [1.5]),
        ("S3", [b"a\0"]),
        ("U3", ["a\0"]),
        ("S3", ["\u00e9"]),
        ("V3", [b"ab"]),
        ("M8[ns]", np.array(["9999-01-01"], "M8[s]")),
        ("M8[ns]", [np.datetime64("9999-01-01"), np.datetime64(1, "ns")]),
        ("M8[D]", [dt.datetime(2020, 1, 1, 1)]),
        ("M8[us]", [STAMP]),
        ("M8[s]", [dt.datetime(2020, 1, 1, tzinfo=dt.UTC)]),
        ("M8[s]", [5]),
        ("M8[D]", ["2020-01-01"]),
        ("m8[ns]", np.array([10**11], "m8[s]")),
        ("m8[D]", np.array([400], "m8[Y]")),
        ("m8[s]", np.array([5]).view("m8")),
        (RECORD, np.array([(300, b"a")], [("a", "i8"), ("b", "S4")])),
        (RECORD, np.array([(1, b"abc")], [("a", "i8"), ("b", "S4")])),
        (RECORD, [(1.7, b"ab")]),
        (RECORD, [(1, b"ab", 3)]),
        (RECORD, [1]),
        (TWO, [(1, 2), 3]),
        (TWO, np.array([3])),
        (TWO, np.array([(1, 2)], [("a", "i4"), ("c", "i4")])),
        ([("a", "i4", (2,))], [(5,)]),
    ],
    ids=str,
)
def test_values_that_would_change_are_refused_also_in_place(dtype, values):
    with blz.SuperChunk.create(None, dtype, (2,)) as array:
        before = array[:]
        for change in (lambda: array.append(values), lambda: array.__setitem__(0, values)):
            with pytest.raises(blz.SchemaError, match="do not fit"):
                change()
        assert len(array) == 2
        assert np.array_equal(array, before)
