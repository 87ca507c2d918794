"""Deleted rows: their spelling in the head, and the two numbers of a live row."""

import base64
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.errors import CorruptError, LimitError
from blztable.format import deletions, jsontext

# For each row group, its live rows and its deleted ones.
GROUPS = st.lists(st.tuples(st.integers(1, 20), st.sets(st.integers(0, 30))), max_size=6)


def cut(groups):
    """Return row groups whose deleted rows are stored rows: numbers too large are left out."""
    found = []
    for rows, gone in groups:
        kept = sorted(gone)
        while kept and kept[-1] >= rows + len(kept):
            kept.pop()
        found.append((rows, np.array(kept, np.int64)))
    return found


@given(GROUPS)
def test_deleted_rows_come_back(groups):
    groups = cut(groups)
    deleted = deletions.compacted(deletions.pack(gone) for _, gone in groups)
    # The head leaves the key out where there are none.
    value = jsontext.loads(jsontext.dumps(deletions.to_json(deleted) if deleted else {}), "it")
    assert deletions.from_json(value, [rows for rows, _ in groups]) == deleted
    assert [deletions.count(one) for one in deleted] == [len(g) for _, g in groups][: len(deleted)]


@given(GROUPS)
def test_a_live_row_is_found_among_the_stored_ones_and_back(groups):
    for rows, gone in cut(groups):
        deleted = deletions.pack(gone)
        places = np.setdiff1d(np.arange(rows + len(gone)), gone)
        numbers = np.arange(rows)
        assert deletions.stored(deleted, numbers).tolist() == places.tolist()
        assert deletions.live(deleted, places).tolist() == numbers.tolist()
        before = [int((places < place).sum()) for place in range(rows + len(gone) + 1)]
        assert deletions.live(deleted, np.arange(len(before))).tolist() == before


def spelled(rows, gaps):
    data = np.array(gaps, "<u4").tobytes()
    return {"rows": rows, "gaps": base64.b64encode(zlib.compress(data)).decode()}


def test_the_good_ones_are_what_the_lies_are_made_from():
    found = deletions.from_json(spelled([2, 0, 1], [1, 3, 0]), [3, 5, 1])
    assert [deletions.unpack(one).tolist() for one in found] == [[1, 4], [], [0]]


@pytest.mark.parametrize(
    ("rows", "gaps"),
    [
        ([2, 0, 1], [1, 4, 0]),
        ([2, 0, 1], [1, 0, 0]),
        ([2, 0, 1], [1, 3, 2]),
        ([2, 0, 1], [1, 3]),
        ([2, 0, 1], [1, 3, 0, 0]),
        ([2, 0], [1, 3]),
        ([2, 0, 1, 0], [1, 3, 0]),
        ([2, 0, -1], [1]),
        ([2, 0, 1.0], [1, 3, 0]),
        ("abc", [1, 3, 0]),
        ([2, 0, 1], [1, (1 << 32) - 1, 0]),
    ],
)
def test_rows_that_are_not_stored_or_deleted_twice_are_refused(rows, gaps):
    with pytest.raises(CorruptError):
        deletions.from_json(spelled(rows, gaps), [3, 5, 1])


@pytest.mark.parametrize("gaps", [None, 7, "", "?", "AAAA", base64.b64encode(b"x" * 9).decode()])
def test_gaps_that_are_no_base64_of_zlib_are_refused(gaps):
    with pytest.raises(CorruptError, match="gaps"):
        deletions.from_json({"rows": [1], "gaps": gaps}, [3])


def test_a_bomb_is_not_inflated():
    packed = base64.b64encode(zlib.compress(bytes(1 << 26), 9)).decode()
    with pytest.raises(CorruptError, match="4 bytes"):
        deletions.from_json({"rows": [1], "gaps": packed}, [3])
    with pytest.raises(LimitError, match="at most"):
        deletions.from_json({"rows": [1 << 21], "gaps": packed}, [1 << 30])


def test_trailing_bytes_are_refused():
    packed = base64.b64encode(zlib.compress(bytes(4)) + b"x").decode()
    with pytest.raises(CorruptError, match="gaps"):
        deletions.from_json({"rows": [1], "gaps": packed}, [3])


@pytest.mark.parametrize("value", [[], 7, "x", [1]])
def test_what_is_no_object_is_refused(value):
    if value:
        with pytest.raises(CorruptError):
            deletions.from_json(value, [3])
    else:
        assert deletions.from_json(value, [3]) == ()
