"""Blocks of rows: cut at pages, joined to spans, picked, and returned by row group."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.engine.query.blocks import Blocks, cut, morsels
from blztable.engine.read.selection import RowSpan


def rows_in(spans):
    return [(span.group, row) for span in spans for row in range(span.start, span.stop)]


def blocks_of(*ranges, steps=1):
    groups, starts, stops = np.array(ranges, np.int64).reshape(-1, 3).T
    return Blocks(groups, starts, stops, np.ones((steps, len(groups)), np.bool_))


@st.composite
def wanted(draw):
    """Draw rows of some row groups, in one or two spans of each, and the page size of each."""
    spans, page_rows = [], []
    for group in range(draw(st.integers(1, 5))):
        size = draw(st.none() | st.sampled_from([8, 16]))
        ends = sorted(draw(st.sets(st.integers(0, 60), max_size=4)))
        for start, stop in zip(ends[::2], ends[1::2], strict=False):
            spans.append(RowSpan(group, start, stop))
            page_rows.append(size)
    return spans, page_rows


@given(wanted())
def test_spans_are_cut_where_pages_begin_and_nowhere_else(given_):
    spans, page_rows = given_
    is_open = np.arange(2 * 5).reshape(2, 5) % 3 == 0
    found, are_pages = cut(spans, page_rows, is_open)
    assert are_pages.tolist() == [
        size is not None
        for span, size in zip(spans, page_rows, strict=True)
        for _ in ({row // size for row in range(span.start, span.stop)} if size else [0])
    ]
    assert (found.rows > 0).all()
    pieces = list(
        zip(found.groups.tolist(), found.starts.tolist(), found.stops.tolist(), strict=True)
    )
    assert rows_in(RowSpan(*piece) for piece in pieces) == rows_in(spans)
    sizes = {span.group: size for span, size in zip(spans, page_rows, strict=True)}
    for (group, start, stop), is_page in zip(pieces, are_pages, strict=True):
        assert not is_page or start // sizes[group] == (stop - 1) // sizes[group]
    assert np.array_equal(found.open, is_open[:, found.groups])


@given(wanted(), st.data())
def test_the_rows_of_some_blocks_are_as_few_spans_as_can_be(given_, data):
    found, _ = cut(*given_, np.ones((1, 5), np.bool_))
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=len(found), max_size=len(found))))
    some = found[chosen.astype(np.bool_)]
    spans = some.spans()
    pieces = zip(some.groups.tolist(), some.starts.tolist(), some.stops.tolist(), strict=True)
    assert rows_in(spans) == rows_in(RowSpan(*piece) for piece in pieces)
    for one, other in pairwise(spans):
        assert (one.group, one.stop) != (other.group, other.start)


@given(wanted(), st.data())
def test_rows_that_are_alive_are_picked_by_row_group(given_, data):
    found, _ = cut(*given_, np.ones((1, 5), np.bool_))
    rows = rows_in(given_[0])
    alive = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    picked = found.picked(np.flatnonzero(alive))
    there = [(one.group, row) for one in picked for row in one.rows.tolist()]
    assert there == [row for row, is_alive in zip(rows, alive, strict=True) if is_alive]
    groups = [one.group for one in picked]
    assert groups == sorted(set(groups))
    assert all(one.count for one in picked)


@pytest.mark.parametrize(
    ("rows", "cuts"),
    [
        (100, [[0, 0, 1, 2, 2]]),
        (20, [[0, 0], [1, 2, 2]]),
        (30, [[0, 0, 1], [2, 2]]),
        (1, [[0, 0], [1], [2, 2]]),
    ],
)
def test_a_row_group_is_looked_at_by_one_thread(tuned, rows, cuts):
    tuned(morsel_rows=rows)
    found = blocks_of((0, 0, 10), (0, 16, 26), (1, 0, 10), (2, 0, 10), (2, 30, 40))
    assert [one.groups.tolist() for one in morsels(found)] == cuts


def test_of_no_blocks_there_is_nothing():
    none = blocks_of()
    assert none.spans() == none.picked(np.zeros(0, np.int64)) == list(morsels(none)) == []
    assert len(cut([], [], np.ones((1, 0), np.bool_))[0]) == 0
