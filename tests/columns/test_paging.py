"""A page has a power of two of rows; a chunk holds whole pages or a piece of one page."""

from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.columns.paging import (
    CHUNK_BYTES,
    LARGE_ITEM,
    MIN_PAGE_ROWS,
    USUAL_PAGE_ROWS,
    cut_even,
    cut_pages,
    cut_tail,
    page_bytes,
    page_rows_for,
)
from blztable.format import metadata as metadata_format
from blztable.format.chunk import MAX_CHUNK_BYTES

TARGETS = st.sampled_from([8, 10, 64, 100, 1000])


def ends(sizes):
    return list(accumulate(sizes))


@given(st.floats(0, 1e12))
def test_a_page_has_a_power_of_two_of_rows_and_about_the_bytes_of_a_chunk(row_bytes):
    rows = page_rows_for(row_bytes)
    assert rows & (rows - 1) == 0
    assert MIN_PAGE_ROWS <= rows <= USUAL_PAGE_ROWS
    assert rows == MIN_PAGE_ROWS or rows * row_bytes <= CHUNK_BYTES
    assert rows == USUAL_PAGE_ROWS or 2 * rows * row_bytes > CHUNK_BYTES


def test_eight_byte_values_have_pages_of_one_chunk():
    assert page_rows_for(8) == 1 << 17
    assert page_rows_for(8) * 8 == CHUNK_BYTES


def test_limits_are_those_of_the_format():
    assert MIN_PAGE_ROWS == metadata_format.MIN_PAGE_ROWS


@given(st.integers(0, 300), st.integers(1, 40), st.sampled_from([8, 16, 32]), TARGETS)
def test_even_pages_are_kept_whole_or_halved(rows, width, page_rows, target):
    nbytes, page = rows * width, page_rows * width
    chunks = cut_even(nbytes, page, width, target)
    assert sum(chunks) == nbytes
    assert all(0 < size <= target for size in chunks)
    # All chunks but the last have one size, so that a header can state it.
    assert all(size == chunks[0] for size in chunks[:-1])
    if len(chunks) > 1:
        if page <= target:
            assert chunks[0] % page == 0
            assert chunks[0] + page > target
        elif width <= target:
            assert page % chunks[0] == chunks[0] % width == 0
            assert 2 * chunks[0] > target


@given(st.lists(st.integers(0, 300), max_size=70), st.sampled_from([8, 16]), TARGETS)
def test_chunks_of_items_hold_whole_pages_whole_items_or_a_piece_of_one_item(
    lengths, page_rows, target
):
    of_items = np.cumsum(lengths, dtype="<i4")
    pages = page_bytes(of_items, page_rows)
    chunks = cut_pages(pages, target, of_items, page_rows)
    assert sum(chunks) == sum(lengths)
    assert all(0 < size <= target for size in chunks)
    cuts = {0, *ends(chunks)}
    for number, (start, stop) in enumerate(pairwise([0, *ends(pages)])):
        rows = lengths[number * page_rows : (number + 1) * page_rows]
        if stop - start > target or any(length >= target for length in rows):
            assert {start, stop} <= cuts
        else:
            assert not any(start < cut < stop for cut in cuts)
    for start, stop in pairwise([0, *ends(lengths)]):
        if stop - start >= target:
            assert {start, stop} <= cuts
        else:
            assert not any(start < cut < stop for cut in cuts)


@given(st.lists(st.integers(0, 3 * CHUNK_BYTES), max_size=20))
def test_a_large_item_is_alone_in_its_chunks(lengths):
    of_items = np.cumsum(lengths, dtype="<i8")
    cuts = {0, *ends(cut_pages(page_bytes(of_items, 8), CHUNK_BYTES, of_items, 8))}
    for start, stop in pairwise([0, *ends(lengths)]):
        assert stop - start < LARGE_ITEM or {start, stop} <= cuts


def test_small_pages_share_a_chunk():
    of_items = np.repeat([30, 60, 90, 120], 8)
    assert cut_pages([30, 30, 30, 30], 64, of_items, 8) == (60, 60)
    assert cut_pages([30, 0, 30, 0], 64, np.repeat([30, 60], 16), 8) == (60,)
    assert cut_even(120, 30, 1, 64) == (60, 60)


@pytest.mark.parametrize("row_bytes", [1, 8, 300])
def test_no_chunk_is_above_the_limit_of_the_format(row_bytes):
    for target in (CHUNK_BYTES, MAX_CHUNK_BYTES):
        huge = 7 * MAX_CHUNK_BYTES + 1200
        one = np.array([huge, huge + 3, 2 * huge + 3])
        assert max(cut_pages([huge, 3, huge], target, one, 1)) <= MAX_CHUNK_BYTES
        assert max(cut_even(2 * huge, huge, row_bytes, target)) <= MAX_CHUNK_BYTES
        # Rows of 5 MiB: one chunk cannot hold two.
        assert max(cut_even(80 << 20, 40 << 20, 5 << 20, target)) <= MAX_CHUNK_BYTES
        # A row larger than any chunk is cut.
        assert max(cut_even(8 * huge, 8 * huge, huge, target)) <= MAX_CHUNK_BYTES


@given(st.lists(st.integers(0, 9), max_size=70), st.sampled_from([8, 16, 32]))
def test_the_bytes_of_pages_are_those_of_their_items(lengths, page_rows):
    wanted = [sum(lengths[row : row + page_rows]) for row in range(0, len(lengths), page_rows)]
    for dtype in ("<i4", "<i8"):
        assert list(page_bytes(np.cumsum(lengths, dtype=dtype), page_rows)) == wanted


@given(
    st.lists(st.integers(1, 1 << 20), max_size=4).map(tuple),
    st.sampled_from([32, 64, 1 << 12, 1 << 17]),
)
def test_a_tail_is_cut_off_a_large_last_chunk_alone(chunks, unit):
    found = cut_tail(chunks, unit)
    assert sum(found) == sum(chunks)
    assert found[: len(chunks) - 1] == chunks[:-1]
    assert 0 not in found
    is_cut = len(found) == len(chunks) + 1
    assert not is_cut or (found[-2] % unit == 0 and found[-1] < unit)
    if not is_cut and chunks:
        assert chunks[-1] % unit == 0 or chunks[-1] < max(unit, 1 << 16)
