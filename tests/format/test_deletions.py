"""Deleted rows: words that name runs of them, and the two numbers of a live row."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.errors import CorruptError, LimitError
from blztable.format import deletions
from blztable.format.records import WORD

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
    for rows, gone in cut(groups):
        words = deletions.pack(gone)
        assert deletions.unpack(words).tolist() == gone.tolist()
        assert deletions.count(words) == len(gone)
        checked([words], [rows + len(gone)], [len(gone)])


def test_a_row_that_no_word_can_name_is_not_deleted():
    last = np.array([deletions.MAX_STORED_ROWS - 1])
    assert deletions.unpack(deletions.pack(last)).tolist() == last.tolist()
    with pytest.raises(LimitError, match="cannot be deleted; those up to 549755813887 can"):
        deletions.pack(last + 1)


def test_neighbours_are_one_run():
    assert len(deletions.pack(np.array([3, 4, 5, 7, 9, 10]))) == 3 * WORD.itemsize


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


def checked(words, stored, gone):
    """Check the deleted rows of row groups."""
    found = np.frombuffer(b"".join(words), WORD)
    counts = np.array([len(one) // WORD.itemsize for one in words])
    deletions.check(found, counts, np.array(stored), np.array(gone))


def runs(*pairs):
    return np.array([first << 24 | rows for first, rows in pairs], WORD).tobytes()


def test_the_good_ones_are_what_the_lies_are_made_from():
    checked([runs((1, 1), (4, 2)), b"", runs((0, 1))], [6, 5, 2], [3, 0, 1])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([runs((1, 1), (4, 3)), b"", runs((0, 1))], "a deleted row that is not stored"),
        ([runs((-1, 1), (4, 2)), b"", runs((0, 1))], "a deleted row that is not stored"),
        ([runs((1, 1), (4, 0)), b"", runs((0, 1))], "a deleted row that is not stored"),
        ([runs((1, 2), (2, 1)), b"", runs((0, 1))], "a row that is deleted twice"),
        ([runs((4, 2), (1, 1)), b"", runs((0, 1))], "a row that is deleted twice"),
        ([runs((1, 1), (4, 1)), b"", runs((0, 1))], "deleted rows of a row group"),
        ([runs((1, 1)), runs((0, 2)), runs((0, 1))], "deleted rows of a row group"),
        ([b"", b"", b""], "deleted rows of a row group"),
    ],
)
def test_words_that_do_not_name_the_rows_that_are_gone_are_refused(words, message):
    with pytest.raises(CorruptError, match=message):
        checked(words, [6, 5, 2], [3, 0, 1])


def test_no_memory_is_made_for_more_rows_than_a_row_group_may_have_deleted():
    with pytest.raises(LimitError, match="2097152 deleted rows of a row group"):
        checked([runs((0, 1 << 21))], [1 << 30], [1 << 21])
