"""Sinks: rows picked out of chunks have their bytes of the whole stream, however it is cut."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.block_terms import ENDS, VALUES
from blztable.columns.blocks import StreamBuffer
from blztable.columns.encodings.items import Lengths
from blztable.columns.encodings.numbers import Delta, Narrow, Scaled, codes_layout
from blztable.columns.sinks import Bits, Bytes, Decoding, DecodingNulls, Ends, Memory, Sums, Words
from blztable.errors import CorruptError

ROWS = 60
rows_of_it = st.sets(st.integers(0, ROWS - 1), min_size=1).map(
    lambda rows: np.array(sorted(rows), np.int64)
)


def give(data, stream, sink, unit=1):
    """Pass a stream to the sink in chunks, in any order, each in memory that is reused.

    Bytes that the sink does not need are wrong. Chunks without a byte that it needs are left out.
    """
    count = len(stream) // unit
    cuts = data.draw(st.sets(st.integers(1, count - 1), max_size=8)) if count > 1 else set()
    ends = [0, *(unit * cut for cut in sorted(cuts)), len(stream)]
    for begin, end in data.draw(st.permutations(list(pairwise(ends)))):
        chunk = np.full(end - begin, 0xAA, np.uint8)
        needed = sink.needed(begin, end)
        ranges = [(0, end - begin)] if needed is None else list(zip(*needed, strict=True))
        for start, stop in ranges:
            chunk[start:stop] = stream[begin + start : begin + stop]
        if any(start < stop for start, stop in ranges):
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


@st.composite
def distances(draw):
    """Return numbers, an encoding of them as distances from row to row, and the codes."""
    page_rows = draw(st.sampled_from([8, 16, 64]))
    codes = np.random.default_rng(page_rows).integers(0, 256, ROWS, np.uint8)
    steps, firsts = codes.astype("<i8") + 5, np.arange(-(-ROWS // page_rows)) * 1000
    steps[::page_rows] = firsts
    pages = [np.cumsum(steps[start : start + page_rows]) for start in range(0, ROWS, page_rows)]
    stored = codes_layout(VALUES, 1)
    return np.concatenate(pages), Delta(stored, 8, firsts, np.array([5]), page_rows), codes


@given(rows_of_it, distances(), st.data())
def test_rows_that_need_their_page_are_picked_from_codes_of_their_pages(rows, given_, data):
    values, encoding, codes = given_
    out = np.zeros(len(rows), "<i8")
    sink = Decoding(encoding, 8, Words(rows, 8, out.view(np.uint8)))
    give(data, codes, sink, unit=encoding.page_rows)
    assert out.tolist() == values[rows].tolist()


@given(rows_of_it, distances(), st.sampled_from([1, 2, 4, 8]), st.integers(0, 1 << 64), st.data())
def test_rows_of_sums_need_the_codes_before_them_alone(rows, given_, width, far, data):
    values, encoding, codes = given_
    # Sums wrap in values of any width.
    by = np.array([far & (1 << 64) - 1], "<u8").view("<i8")
    encoding = replace(encoding, width=width, firsts=encoding.firsts + by)
    sink = Sums(rows, encoding)
    give(data, codes, sink, unit=encoding.page_rows)
    expected = (values + by).astype(f"<u{width}")[rows]
    assert sink.encode().view(f"<u{width}").tolist() == expected.tolist()
    page, last = encoding.page_rows, rows[-1] % encoding.page_rows
    starts, stops = sink.needed(rows[-1] - last, min(rows[-1] - last + page, ROWS))
    assert (starts.tolist(), stops.tolist()) == ([0], [last + 1])


@given(rows_of_it, items(), st.sampled_from([4, 8]), st.data())
def test_items_are_found_by_the_lengths_in_their_pages(rows, given_, width, data):
    ends, page_rows, pages = given_
    encoding = Lengths(codes_layout(ENDS, 1), width, np.array(pages), page_rows)
    found = Ends(rows, width, ROWS, page_rows, pages)
    codes = np.diff(ends, prepend=0).astype(np.uint8)
    give(data, codes, Decoding(encoding, width, found), unit=page_rows)
    found.check()
    assert found.starts.tolist() == np.append(0, ends)[rows].tolist()
    assert found.ends.tolist() == ends[rows].tolist()


@given(
    distances(),
    st.integers(0, ROWS),
    st.integers(0, ROWS),
    st.sampled_from(["plain", "delta", "narrow"]),
    st.data(),
)
def test_a_range_of_rows_needs_no_other_bytes(given_, one, other, kind, data):
    values, encoding, codes = given_
    low, high = sorted((one, other))
    out = np.zeros(high - low, "<i8")
    memory = Memory(StreamBuffer(out.view(np.uint8)), 8 * low)
    if kind == "delta":
        give(data, codes, Decoding(encoding, 8, memory), unit=encoding.page_rows)
    elif kind == "narrow":
        bases = encoding.firsts
        narrow = Narrow(encoding.stored, 8, bases, encoding.page_rows)
        values = codes + bases[np.arange(ROWS) // encoding.page_rows]
        give(data, codes, Decoding(narrow, 8, memory))
    else:
        give(data, values.view(np.uint8), memory)
    assert out.tolist() == values[low:high].tolist()


def test_pages_without_a_needed_row_are_neither_decompressed_nor_decoded():
    decoded = []

    class Watched(Delta):
        def decode(self, row, codes, out):
            decoded.append((row, len(codes)))
            super().decode(row, codes, out)

    encoding = Watched(codes_layout(VALUES, 1), 8, np.zeros(8, "<i8"), np.array([1]), 8)
    sink = Decoding(encoding, 8, Words(np.array([9, 12, 40, 63]), 8, np.zeros(32, np.uint8)))
    starts, stops = sink.needed(0, 64)
    assert (starts.tolist(), stops.tolist()) == ([8, 40, 56], [16, 48, 64])
    sink.take(0, np.zeros(64, np.uint8))
    assert decoded == [(8, 8), (40, 8), (56, 8)]


def test_a_chunk_is_decoded_only_from_the_first_to_the_last_needed_row():
    decoded = []

    class Watched(Narrow):
        def decode(self, row, codes, out):
            decoded.append((row, len(codes)))
            super().decode(row, codes, out)

    encoding = Watched(codes_layout(VALUES, 1), 8, np.zeros(1, "<i8"), 64)
    out = np.zeros(80, np.uint8)
    sink = Decoding(encoding, 8, Memory(StreamBuffer(out), 8 * 40))
    starts, stops = sink.needed(32, 64)
    assert (starts.tolist(), stops.tolist()) == ([8], [18])
    sink.take(32, np.arange(32, 64, dtype=np.uint8))
    assert decoded == [(40, 10)]
    assert out.view("<i8").tolist() == list(range(40, 50))


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


@given(st.data(), st.integers(0, 7), st.integers(1, 60), st.sets(st.integers(0, 119)))
def test_the_bitmap_of_codes_is_that_of_their_values(data, first, rows, odd):
    # Rows 8 * first to 8 * first + rows of a part are wanted.
    codes = np.random.default_rng(rows).integers(0, 3, 120).astype("<u2")
    # Odd values have any code, also the one of NaN.
    at, infinite = np.array(sorted(odd), "<i8"), np.full(len(odd), np.inf).view("<i8")
    encoding = Scaled(codes_layout(VALUES, 2), 1, "/", np.array([-5, 70]), 64, at, infinite, 2)
    values, found = np.empty(120), np.full(rows, 7.5)
    encoding.decode(0, codes.view(np.uint8), values.view(np.uint8))
    valid = np.full(-(-rows // 8), 0x55, np.uint8)
    memory = Memory(StreamBuffer(found.view(np.uint8)), first * 64)
    sink, stream = DecodingNulls(encoding, memory, valid, 8 * first), codes.view(np.uint8)
    cuts = [0, *sorted(data.draw(st.sets(st.integers(1, 14), max_size=8))), 15]
    for low, high in pairwise(cuts):
        # A reader passes the chunks that have wanted rows.
        if low * 8 < 8 * first + rows and first < high:
            sink.take(16 * low, stream[16 * low : 16 * high])
    wanted = values[8 * first : 8 * first + rows]
    seen = np.unpackbits(valid, bitorder="little", count=rows).view(np.bool_)
    assert np.array_equal(seen, ~np.isnan(wanted))
    assert np.array_equal(found[seen], wanted[seen])


def test_an_odd_nan_has_no_code():
    encoding = Scaled(codes_layout(VALUES, 1), 1, "/", np.array([0]), 64, nan=2)
    rows, signed = np.array([3]), np.array([-0.0])
    assert encoding.has_all_nans
    assert replace(encoding, at=rows, odd=signed.view("<i8")).has_all_nans
    assert not replace(encoding, at=rows, odd=np.array([np.nan]).view("<i8")).has_all_nans
    assert not replace(encoding, nan=None).has_all_nans
