"""Bounds of a leaf hold all values below it, whatever the encodings of its parts are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.format.bounds import (
    NONE,
    Order,
    bytes_of_word,
    common_prefix,
    floats_of_words,
    summary,
    word_of_bytes,
    words_of_floats,
)
from blztable.format.leaf import GROUP, Leaf, encode
from blztable.format.records import (
    EXACT_BOUNDS,
    NUMBERS,
    PAGE,
    PART,
    PLAIN,
    STREAM,
    TIMES,
    VALUES,
    Records,
    join,
)

FINITE = st.floats(allow_nan=False)


@given(st.lists(FINITE, min_size=2))
def test_the_words_of_floats_compare_as_floats_and_come_back(values):
    words = words_of_floats(np.array(values))
    assert floats_of_words(words).tobytes() == np.array(values).tobytes()
    assert (np.array(values)[np.argsort(words, kind="stable")] == np.sort(values)).all()


def test_minus_zero_is_just_below_zero():
    below, zero = words_of_floats(np.array([-0.0, 0.0])).tolist()
    assert zero - below == 1


@given(st.binary(max_size=12), st.binary(max_size=12))
def test_the_words_of_bytes_compare_as_their_first_eight_bytes(one, other):
    left, right = one[:8].ljust(8, b"\0"), other[:8].ljust(8, b"\0")
    assert (word_of_bytes(one) < word_of_bytes(other)) == (left < right)
    assert bytes_of_word(word_of_bytes(one)) == left


def leaf_of(parts):
    """Return a leaf of one column from (pages, flags, prefix, stream) of each row group."""
    records, groups = [], np.zeros(len(parts), GROUP)
    for number, (pages, flags, prefix, stream) in enumerate(parts):
        rows = 8 * len(pages)
        part = np.zeros(1, PART)
        streams = np.zeros(int(stream is not None), STREAM)
        if stream is not None:
            streams[0] = stream
        part[0] = (1, 64, rows, 8 * rows, 99, len(streams), 3, flags, len(prefix), len(pages))
        array = np.zeros(len(pages), PAGE)
        array["min"], array["max"] = np.array(pages, "i8").T
        prefixes = np.frombuffer(prefix, np.uint8)
        records.append(Records(1, 1, part, streams, pages=array, prefixes=prefixes))
        groups[number] = (rows, rows, number, 0, 0, 0, 1, 0)
    return Leaf(encode(0, groups, np.zeros(0, "i8"), join(records)))


def bounds_of(leaf, order):
    group, records = summary(leaf, 5, [order])
    # What is made is what a leaf above accepts.
    above = Leaf(encode(1, group, np.zeros(0, "i8"), records))
    assert above.records().pages.tobytes() == records.pages.tobytes()
    assert (group["rows"][0], group["groups"][0]) == (leaf.groups["rows"].sum(), leaf.entries)
    page, part = records.pages[0], records.parts[0]
    exact = bool(part["flags"] & EXACT_BOUNDS)
    return int(page["min"]), int(page["max"]), records.prefixes.tobytes(), exact


INTEGERS = st.lists(st.integers(-(1 << 40), 1 << 40), max_size=4)


@given(st.lists(st.lists(INTEGERS, min_size=1, max_size=3), min_size=1, max_size=4))
def test_the_bounds_of_integers_are_their_extremes(parts):
    made = [
        ([(min(page), max(page)) if page else NONE for page in pages], EXACT_BOUNDS, b"", None)
        for pages in parts
    ]
    low, high, _, exact = bounds_of(leaf_of(made), Order.NUMBER)
    values = [value for pages in parts for page in pages for value in page]
    assert (low, high) == ((min(values), max(values)) if values else NONE)
    assert exact


# Floats as an encoding stores them: integers with a power of ten, or the bits.
FLOAT_PARTS = st.one_of(
    st.tuples(
        st.just(0),
        st.integers(0, 18),
        st.booleans(),
        st.lists(st.integers(-(1 << 53), 1 << 53), min_size=1, max_size=3),
    ),
    st.tuples(st.just(1), st.just(0), st.just(False), st.lists(FINITE, min_size=1, max_size=3)),
)


@given(st.lists(FLOAT_PARTS, min_size=1, max_size=4))
def test_the_bounds_of_floats_are_their_extremes_whatever_the_encoding(parts):
    made, values = [], []
    for plain, power, times, numbers in parts:
        if plain:
            stream = (8, 8, 0, VALUES, PLAIN, 0, 0, 0, 8, 0)
            words = words_of_floats(np.array(numbers)).tolist()
            values += numbers
        else:
            flags = TIMES if times and power else 0
            stream = (0, 0, 0, VALUES, NUMBERS, flags, power, 0, 8, 0)
            words = numbers
            tens = float(f"1e{-power}") if flags else float(f"1e{power}")
            values += [float(n) * tens if flags else float(n) / tens for n in numbers]
        if plain:
            # A stream of eight bytes has one chunk.
            stream = (0, 0, 0, VALUES, PLAIN, 0, 0, 0, 8, 0)
        made.append(([(min(words), max(words))], EXACT_BOUNDS, b"", stream))
    low, high, _, _ = bounds_of(leaf_of(made), Order.FLOAT)
    assert floats_of_words(np.array([low, high])).tolist() == [min(values), max(values)]


TEXTS = st.lists(
    st.builds(
        lambda start, rest: start + rest,
        st.sampled_from([b"", b"2026-11-27T", b"ORD-2026-", b"2026-12", b"\xff" * 9]),
        st.binary(max_size=11),
    ),
    max_size=4,
)


@given(st.lists(st.lists(TEXTS, min_size=1, max_size=3), min_size=1, max_size=4))
def test_the_bounds_of_bytes_hold_every_value(parts):
    made = []
    for pages in parts:
        values = [value for page in pages for value in page]
        prefix = common_prefix(min(values), max(values)) if values else b""
        words = [[word_of_bytes(value[len(prefix) :]) for value in page] for page in pages]
        longest = max((len(value) - len(prefix) for value in values), default=0)
        nul = any(value.endswith(b"\0") for value in values)
        exact = EXACT_BOUNDS if longest <= 8 and not nul else 0
        bounds = [(min(page), max(page)) if page else NONE for page in words]
        made.append((bounds, exact, prefix, None))
    low, high, prefix, exact = bounds_of(leaf_of(made), Order.TEXT)
    values = [value for pages in parts for page in pages for value in page]
    if not values:
        assert (low, high) == NONE
        return
    for value in values:
        assert value.startswith(prefix)
        assert low <= word_of_bytes(value[len(prefix) :]) <= high
    if exact:
        spelled = [(prefix + bytes_of_word(word)).rstrip(b"\0") for word in (low, high)]
        assert spelled == [min(values), max(values)]


@pytest.mark.parametrize("order", [Order.NUMBER, Order.FLOAT, Order.WIDE, Order.TEXT])
def test_a_leaf_of_nulls_has_no_bounds(order):
    assert bounds_of(leaf_of([([NONE], 0, b"", None)] * 2), order)[:2] == NONE


def test_decimals_of_64_bits_beside_wider_ones_are_bounded_by_their_upper_bits():
    stream = (0, 0, 0, VALUES, NUMBERS, 0, 0, 0, 8, 0)
    parts = [([(-5, 7)], EXACT_BOUNDS, b"", stream), ([(0, 3)], 0, b"", None)]
    assert bounds_of(leaf_of(parts), Order.WIDE) == (-1, 3, b"", False)


def test_a_leaf_of_the_null_type_counts_its_rows_as_nulls():
    parts, groups = np.zeros(2, PART), np.zeros(2, GROUP)
    parts["rows"] = groups["rows"] = groups["stored"] = (3, 4)
    parts["page"], groups["groups"] = 3, 1
    leaf = Leaf(encode(0, groups, np.zeros(0, "i8"), Records(1, 2, parts)))
    _, records = summary(leaf, 7, [Order.NUMBER])
    assert records.pages["nulls"].tolist() == [7]
    assert records.pages["min"][0] > records.pages["max"][0]
