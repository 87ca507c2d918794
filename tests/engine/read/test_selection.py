"""Selections: the pages that hold some rows, and the index of the rows within those pages."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.engine.read import selection
from blztable.engine.read.selection import RowIndices, RowSpan
from blztable.engine.version.node_parts import NodeParts
from blztable.errors import SchemaError
from blztable.format.records import ITEM_CHUNKS, PART, Records
from support.bit_equality import same


def parts(rows, page_rows, item_chunks=None):
    """Return the parts of a node: rows and page rows of each row group, which have item chunks."""
    records = Records(1, len(rows), np.zeros(len(rows), PART))
    records.parts["rows"], records.parts["page"] = rows, np.log2(page_rows)
    records.parts["flags"] = ITEM_CHUNKS * np.array(item_chunks or [0] * len(rows))
    return NodeParts((0,), records, np.zeros(len(rows), np.int64))


def picked(group, *rows):
    return RowIndices(group, np.array(rows, np.int64))


@given(st.lists(st.integers(1, 9), max_size=6), st.data())
def test_rows_of_the_table_are_those_of_its_row_groups(row_groups, data):
    total = sum(row_groups)
    start = data.draw(st.integers(0, total))
    stop = data.draw(st.integers(start, total))
    table = [(group, row) for group, rows in enumerate(row_groups) for row in range(rows)]
    found = selection.spans(row_groups, start, stop)
    assert all(span.count > 0 for span in found)
    assert [(s.group, row) for s in found for row in range(s.start, s.stop)] == table[start:stop]


def test_pages_of_neighbours_are_joined_and_the_last_ends_with_its_part():
    column = parts([30, 20], [8, 16])
    wanted = [RowSpan(0, 1, 3), RowSpan(0, 9, 10), RowSpan(0, 29, 30), RowSpan(1, 15, 17)]
    assert selection.of_spans(column, wanted) == [
        RowSpan(0, 0, 16),
        RowSpan(0, 24, 30),
        RowSpan(1, 0, 20),
    ]
    rows = [picked(0, 1, 2, 9, 29), picked(1, 15, 16)]
    assert selection.of_rows(column, rows) == selection.of_spans(column, wanted)


def test_rows_that_meet_in_a_page_share_it():
    column = parts([40], [16])
    assert selection.of_rows(column, [picked(0, 3, 9, 33)]) == [
        RowSpan(0, 0, 16),
        RowSpan(0, 32, 40),
    ]
    assert selection.of_rows(column, [picked(0, 3, 16)]) == [RowSpan(0, 0, 32)]
    assert selection.of_spans(column, [RowSpan(0, 3, 4), RowSpan(0, 9, 10)]) == [RowSpan(0, 0, 16)]


def test_items_that_are_a_chunk_each_have_no_pages():
    column = parts([30, 30], [8, 8], item_chunks=(1, 0))
    wanted = [RowSpan(0, 1, 3), RowSpan(0, 3, 5), RowSpan(0, 7, 8), RowSpan(1, 7, 9)]
    assert selection.of_spans(column, wanted) == [
        RowSpan(0, 1, 5),
        RowSpan(0, 7, 8),
        RowSpan(1, 0, 16),
    ]


@st.composite
def chosen(draw):
    """Draw row groups with pages, and some rows of some of them, in order."""
    groups = draw(st.lists(st.integers(1, 40), min_size=1, max_size=4))
    page_rows = draw(st.lists(st.sampled_from([8, 16]), min_size=len(groups), max_size=len(groups)))
    wanted = []
    for group, rows in enumerate(groups):
        some = sorted(draw(st.sets(st.integers(0, rows - 1), max_size=12)))
        wanted += [picked(group, *some)] if some else []
    return groups, page_rows, wanted


@given(chosen())
def test_rows_are_found_in_their_pages_which_are_as_few_as_can_be(given_):
    groups, page_rows, wanted = given_
    found = selection.of_rows(parts(groups, page_rows), wanted)
    there = [(span.group, row) for span in found for row in range(span.start, span.stop)]
    asked = [(one.group, row) for one in wanted for row in one.rows.tolist()]
    touched = {(group, row // page_rows[group]) for group, row in asked}
    assert there == sorted(set(there))
    assert {(group, row // page_rows[group]) for group, row in there} == touched


def test_rows_named_often_that_have_no_room_in_one_array_come_in_halves(monkeypatch):
    array = pa.array(["x", "yy"])
    real = selection._taken_as_fits

    class Narrow:
        """A text array with room for five rows."""

        type = pa.string()

        def take(self, order):
            if len(order) > 5:
                raise pa.ArrowInvalid("offset overflow")
            return array.take(order)

    taken = list(real(Narrow(), np.array([0, 1] * 8)))
    assert [len(one) for one in taken] == [4, 4, 4, 4]
    assert pa.chunked_array(taken).to_pylist() == ["x", "yy"] * 8


def test_rows_of_chunks_that_do_not_join_come_in_their_order():
    # Together 200 values, too many for codes of 8 bits.
    codes = pa.array(range(100), pa.int8())
    chunks = [
        pa.DictionaryArray.from_arrays(codes, [f"{name}{row}" for row in range(100)])
        for name in "ab"
    ]
    column = pa.chunked_array(chunks)
    order = np.array([150, 3, 3, 199, 100, 0])
    taken = selection.reordered(column, order)
    assert taken.to_pylist() == ["b50", "a3", "a3", "b99", "b0", "a0"]
    assert same(selection.reordered(column, np.arange(200)), column)


def test_one_item_without_room_is_told():
    class Full:
        type = pa.string()

        def take(self, order):
            raise pa.ArrowInvalid("offset overflow")

    with pytest.raises((pa.ArrowInvalid, SchemaError)):
        list(selection._taken_as_fits(Full(), np.array([0])))
