"""Blocks of rows: cut at pages, joined to spans, picked, and returned by row group."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.engine.query.blocks import Blocks, morsels
from blztable.engine.read.selection import RowSpan


def rows_in(spans):
    return [(span.group, row) for span in spans for row in range(span.start, span.stop)]


def blocks_of(*ranges, steps=1):
    groups, starts, stops = np.array(ranges, np.int64).reshape(-1, 3).T
    return Blocks(groups, starts, stops, np.ones((steps, len(groups)), np.bool_))


@st.composite
def wanted(draw, groups=5):
    """Draw blocks of some row groups, one or two of each, which two steps leave open or not."""
    ranges = []
    for group in range(draw(st.integers(1, groups))):
        ends = sorted(draw(st.sets(st.integers(0, 60), max_size=4)))
        ranges += [(group, *pair) for pair in zip(ends[::2], ends[1::2], strict=False)]
    found = blocks_of(*ranges, steps=2)
    found.open[:] = np.array(draw(flags(2 * len(found))), np.bool_).reshape(2, -1)
    return found


def flags(count):
    return st.lists(st.booleans(), min_size=count, max_size=count)


def ranges_of(blocks):
    return list(
        zip(blocks.groups.tolist(), blocks.starts.tolist(), blocks.stops.tolist(), strict=True)
    )


def rows_of(blocks):
    return rows_in(RowSpan(*one) for one in ranges_of(blocks))


@given(wanted(), st.sampled_from([8, 16]))
def test_blocks_are_cut_where_pages_begin_and_nowhere_else(whole, size):
    found, which = whole.pages(size)
    assert (found.rows > 0).all()
    assert rows_of(found) == rows_of(whole)
    first = {(group, start) for group, start, _ in ranges_of(whole)}
    for group, start, stop in ranges_of(found):
        assert start // size == (stop - 1) // size
        assert start % size == 0 or (group, start) in first
    assert np.array_equal(found.open, whole.open[:, which])


@given(wanted(), st.sampled_from([8, 16]))
def test_pages_that_the_same_steps_leave_open_are_one_block_again(whole, size):
    joined = whole.merged()
    found = whole.pages(size)[0].merged()
    assert ranges_of(found) == ranges_of(joined)
    assert np.array_equal(found.open, joined.open)
    for (one, two), (mine, others) in zip(
        pairwise(ranges_of(found)), pairwise(found.open.T.tolist()), strict=True
    ):
        assert (one[0], one[2]) != (two[0], two[1]) or mine != others


@given(wanted(), wanted())
def test_of_blocks_there_is_what_spans_have(blocks, spans):
    found = blocks.within(spans.merged().spans)
    assert rows_of(found) == [row for row in rows_of(blocks) if row in set(rows_of(spans))]
    assert (found.rows > 0).all()


@given(wanted(), st.data())
def test_the_rows_of_some_blocks_are_as_few_spans_as_can_be(found, data):
    some = found[np.array(data.draw(flags(len(found))), np.bool_)]
    spans = some.spans
    assert rows_in(spans) == rows_of(some)
    for one, other in pairwise(spans):
        assert (one.group, one.stop) != (other.group, other.start)


@given(wanted(), st.data())
def test_rows_that_are_alive_are_picked_by_row_group(found, data):
    rows = rows_of(found)
    alive = data.draw(flags(len(rows)))
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
    assert none.spans == none.picked(np.zeros(0, np.int64)) == list(morsels(none)) == []
    assert len(none.pages(8)[0]) == len(none.merged()) == len(none.within([])) == 0
    assert len(none.within([RowSpan(0, 0, 8)])) == 0
