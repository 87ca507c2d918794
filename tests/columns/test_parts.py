"""Parts: an array of any type comes back from its streams, whole, in slices and row by row."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.arrow.types import as_stored
from blztable.columns.parts.check import check_type
from blztable.columns.parts.decode import EncodedRows
from blztable.columns.parts.encode import encode
from blztable.columns.parts.physical import (
    Form,
    dtype_text,
    physical,
    type_of_text,
    values_of,
    words_of,
)
from blztable.errors import FormatError
from blztable.format.bounds import GREATEST, LEAST
from blztable.format.records import CONSTANT, DICTIONARY, NAN_CODE, NUMBERS, PLAIN, SUM, VALUES
from blztable.tuning import tuned
from support import arrow_strategies
from support.bit_equality import same
from support.encoded import records_of_parts

FLAT = arrow_strategies.PLAIN


def read(array, page=3):
    """Return the part of an array as a reader has it."""
    with tuned(encoded_bytes=0, sampled_values=1, rows_per_exception=4, rows_per_item=2):
        part = encode(array, page)
    records = records_of_parts([part])
    records.streams["nbytes"] = [len(stream.data) for stream in part.streams]
    check_type(array.type, records)
    streams = {stream.name: stream for stream in part.streams}
    fields = (part.rows, part.page, part.flags, part.pages, part.nbytes)
    return EncodedRows(array.type, *fields, streams)


@pytest.mark.parametrize("type_", FLAT, ids=str)
@given(data=st.data())
def test_an_array_comes_back_whole_in_slices_and_by_row(type_, data):
    array = data.draw(arrow_strategies.arrays(type_))
    expected = as_stored(array)
    part = read(array)
    assert same(part.array(), expected)
    rows = len(array)
    start = data.draw(st.integers(0, rows))
    stop = data.draw(st.integers(start, rows))
    assert same(part.array(slice(start, stop)), expected.slice(start, stop - start))
    if rows:
        chosen = np.array(sorted(data.draw(st.sets(st.integers(0, rows - 1)))), np.int64)
        assert same(part.array(chosen), expected.take(pa.array(chosen)))


NUMBERS_OF = st.one_of(
    st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=50),
    st.lists(st.integers(1000, 1255), min_size=1, max_size=50),
    st.builds(
        lambda first, steps: (first + np.cumsum(steps)).tolist(),
        st.integers(-(1 << 40), 1 << 40),
        st.lists(st.integers(0, 200), min_size=9, max_size=50),
    ),
)


@given(NUMBERS_OF, st.booleans())
def test_the_bounds_of_a_page_are_its_extremes(values, with_nulls):
    array = pa.array(
        [None if with_nulls and k % 3 else v for k, v in enumerate(values)], pa.int64()
    )
    with tuned(encoded_bytes=0):
        part = encode(array, 3)
    for number in range(len(part.pages)):
        page = array.slice(8 * number, 8).drop_null().to_pylist()
        bounds = tuple(part.pages[number][["min", "max"]])
        assert bounds == ((min(page), max(page)) if page else ((1 << 63) - 1, -(1 << 63)))
        assert part.pages["nulls"][number] == array.slice(8 * number, 8).null_count


def kind(array, name=VALUES):
    streams = {stream.name: stream for stream in encode(array, 14).streams}
    return streams[name]


def test_each_encoding_is_chosen_for_what_it_is_for():
    rows = 20_000
    rng = np.random.default_rng(0)
    small = kind(pa.array(rng.integers(10**9, 10**9 + 200, rows)))
    assert (small.kind, small.width, len(small.words)) == (NUMBERS, 1, 0)
    rising = kind(pa.array(np.cumsum(rng.integers(0, 100, rows)) * 10))
    assert (rising.kind, rising.flags, rising.width) == (NUMBERS, SUM, 2)
    prices = kind(pa.array(rng.integers(0, 10_000, rows) / 100))
    assert (prices.kind, prices.power, prices.width) == (NUMBERS, 2, 2)
    rates = kind(pa.array(rng.integers(0, 10_000, rows) * 1e-2))
    assert (rates.kind, rates.power, rates.width) == (NUMBERS, 2, 2)
    same_value = kind(pa.array(np.full(rows, 7.5)))
    assert (same_value.kind, len(same_value.data)) == (CONSTANT, 0)
    assert kind(pa.array(rng.random(rows))).kind == PLAIN
    few = kind(pa.array(rng.choice(rng.random(100), rows)))
    assert (few.kind, few.width) == (DICTIONARY, 1)
    text = kind(pa.array(rng.choice(["rail", "air", "ship"], rows)), 2)
    assert (text.kind, text.width) == (DICTIONARY, 1)


@given(
    st.integers(0, 1 << 30),
    st.lists(st.tuples(st.integers(0, 99), st.floats()), min_size=1, max_size=5),
    st.integers(0, 4),
)
def test_decimals_with_exceptions_come_back_and_stay_within_their_bounds(seed, odd, power):
    values = np.random.default_rng(seed).integers(-(10**6), 10**6, 110) / 10**power
    for row, value in odd:
        values[row] = value
    array = pa.array(values)
    part = read(array)
    assert same(part.array(), array)
    assert same(part.array(slice(5, 60)), array.slice(5, 55))
    rows = np.unique([0, 99, *(row for row, _ in odd)])
    assert same(part.array(rows), array.take(pa.array(rows)))
    stream = part.streams[VALUES]
    if stream.kind == NUMBERS:
        for number, page in enumerate(part.pages):
            inside = values[8 * number : 8 * number + 8]
            with np.errstate(over="ignore"):
                scaled = inside[~np.isnan(inside)] * 10.0**stream.power
            # The least and the greatest word say that no bound is known.
            if page["min"] != LEAST:
                assert (np.ceil(scaled) >= page["min"]).all()
            if page["max"] != GREATEST:
                assert (np.floor(scaled) <= page["max"]).all()


def test_a_few_values_that_are_no_decimals_do_not_cost_the_encoding():
    values = np.random.default_rng(0).integers(0, 10_000, 20_000) / 100
    values[[5, 77, 19_999]] = [np.inf, np.nan, 1 / 3]
    stream = kind(pa.array(values))
    assert (stream.kind, stream.power, stream.exceptions) == (NUMBERS, 2, 2)
    assert stream.flags == NAN_CODE


def test_words_compare_as_the_values_of_every_type_with_an_order():
    for type_ in FLAT:
        form = physical(type_)
        if form.dtype is None or form.form is Form.BOOL:
            continue
        edges = np.iinfo(form.dtype) if form.dtype.kind != "f" else np.finfo(form.dtype)
        values = np.array([edges.min, 0, 1, edges.max], form.dtype)
        words = words_of(values, form)
        assert words[0] <= words[1] < words[2] < words[3], type_
    assert values_of(pa.array([True, False, True])[1:], physical(pa.bool_())).tolist() == [0, 1]


@pytest.mark.parametrize("type_", FLAT, ids=str)
def test_the_text_of_a_type_says_how_its_values_are_read(type_):
    text = dtype_text(type_)
    form, read_as = physical(type_), type_of_text(text) if text else pa.null()
    if form.form in (Form.BYTES, Form.NOTHING):
        assert text == ("" if form.form is Form.NOTHING else "str" if form.is_text else "bytes")
    else:
        assert physical(read_as).width == form.width
        assert np.dtype(text).itemsize == form.width


@pytest.mark.parametrize("text", ["O", "<i3", ">i4", "|V", "<M8", "<M8[D]", "lengths", "i8 ", ""])
def test_a_text_of_no_type_is_refused(text):
    with pytest.raises(FormatError):
        type_of_text(text)


@pytest.mark.parametrize("least", [0, 255, 256, 70_000])
def test_items_of_any_least_length_come_back(least):
    array = pa.array(["x" * (least + row % 50) for row in range(200)])
    part = read(array)
    assert same(part.array(), array)
    chosen = np.array([0, 9, 17, 199])
    assert same(part.array(chosen), array.take(pa.array(chosen)))


def test_sums_of_negative_numbers_go_on_from_chunk_to_chunk():
    # Bug: the first sum of a chunk was added as a number, which warns where it wraps.
    array = pa.array(np.arange(-5000, 5000, 3) + np.arange(3334) % 5)
    part = read(array, 12)
    (stream,) = part.streams.values()
    assert stream.flags & SUM

    class InChunks:
        def __getattr__(self, name):
            return getattr(stream, name)

        def runs(self, start, stop):
            for at in range(start, stop, 64):
                yield at, stream.data[at : min(at + 64, stop)]

    part.streams[VALUES] = InChunks()
    assert same(part.array(), array)
    assert same(part.array(slice(100, 3000)), array.slice(100, 2900))
