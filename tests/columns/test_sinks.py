"""Sinks: rows picked out of chunks have their bytes of the whole stream, however it is cut."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.columns.sinks import Bits, Bytes, Ends, Words
from blztable.errors import CorruptError

ROWS = 60
rows_of_it = st.sets(st.integers(0, ROWS - 1), min_size=1).map(
    lambda rows: np.array(sorted(rows), np.int64)
)


def give(data, stream, sink, unit=1):
    """Pass a stream to the sink in chunks, in any order, each in memory that is reused.

    Bytes that the sink does not need are wrong.
    """
    count = len(stream) // unit
    cuts = data.draw(st.sets(st.integers(1, count - 1), max_size=8)) if count > 1 else set()
    ends = [0, *(unit * cut for cut in sorted(cuts)), len(stream)]
    for begin, end in data.draw(st.permutations(list(pairwise(ends)))):
        chunk = np.full(end - begin, 0xAA, np.uint8)
        for start, stop in zip(*sink.needed(begin, end), strict=True):
            chunk[start:stop] = stream[begin + start : begin + stop]
        sink.take(begin, chunk)
        chunk[:] = 0xAA


@given(rows_of_it, st.data())
def test_bits_are_those_of_their_rows(rows, data):
    flags = np.random.default_rng(len(rows)).integers(0, 2, ROWS, np.uint8)
    bits = Bits(rows)
    give(data, np.packbits(flags, bitorder="little"), bits)
    assert bits.encode().tolist() == np.packbits(flags[rows], bitorder="little").tolist()


@given(rows_of_it, st.sampled_from([1, 2, 3, 4, 8, 16, 300]), st.data())
def test_values_of_any_width_are_those_of_their_rows(rows, width, data):
    values = np.random.default_rng(width).integers(0, 256, (ROWS, width), np.uint8)
    out = np.zeros(len(rows) * width, np.uint8)
    # Chunks may cut a value.
    give(data, values.reshape(-1), Words(rows, width, out))
    assert np.array_equal(out.reshape(-1, width), values[rows])


@st.composite
def items(draw):
    """Return item lengths, many of them 0, where each item ends, and where each page begins."""
    lengths = draw(st.lists(st.sampled_from([0, 0, 1, 3, 40]), min_size=ROWS, max_size=ROWS))
    ends = np.cumsum(lengths)
    page_rows = draw(st.sampled_from([8, 16, 64]))
    last = [ends[min(stop, ROWS) - 1] for stop in range(page_rows, ROWS + page_rows, page_rows)]
    return ends, page_rows, [0, *map(int, last)]


@given(rows_of_it, items(), st.sampled_from([4, 8]), st.data())
def test_items_are_found_and_their_bytes_taken(rows, given_, width, data):
    ends, page_rows, pages = given_
    found = Ends(rows, width, ROWS, page_rows, pages)
    give(data, ends.astype(f"<i{width}").view(np.uint8), found, unit=width)
    found.check()
    starts = np.append(0, ends)[rows]
    assert found.starts.tolist() == starts.tolist()
    assert found.ends.tolist() == ends[rows].tolist()
    assert found.nbytes == (ends[rows] - starts).sum()
    lengths = np.cumsum(ends[rows] - starts)
    assert found.encode().view(f"<i{width}").tolist() == lengths.tolist()
    whole = (np.arange(ends[-1]) % 251).astype(np.uint8)
    out = np.zeros(found.nbytes, np.uint8)
    give(data, whole, Bytes(found.starts, found.ends, out))
    wanted = [whole[start:end] for start, end in zip(starts, ends[rows], strict=True)]
    assert out.tolist() == np.concatenate(wanted).tolist()


@pytest.mark.parametrize(
    ("rows", "ends"),
    [
        ([1], [2, 1, 3, 4]),
        ([0], [-1, 1, 3, 4]),
        ([3], [1, 2, 3, 5]),
        ([0], [9, 9, 9, 9]),
        ([0, 3], [3, 3, 2, 4]),
        ([2], [1, -(2**31), 3, 4]),
    ],
)
def test_ends_that_leave_their_page_or_descend_are_damage(rows, ends):
    found = Ends(np.array(rows), 4, 4, 4, [0, 4])
    found.take(0, np.array(ends, "<i4").view(np.uint8))
    with pytest.raises(CorruptError, match="the item ends do not ascend within their page"):
        found.check()


def test_a_chunk_that_cuts_an_end_is_damage():
    found = Ends(np.array([0]), 4, 8, 8, [0, 8])
    for begin, size in ((0, 6), (2, 4)):
        with pytest.raises(CorruptError, match="cuts an item end of 4 bytes"):
            found.take(begin, np.zeros(size, np.uint8))
