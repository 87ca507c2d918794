"""The merge policy: few row groups, and few rewrites of a row, for any sizes of appends."""

import itertools
import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from blztable.engine.change.merge_policy import FANOUT, rows_per_group, small_spans, trailing_groups

quick = settings(max_examples=60, deadline=None)
NEVER_FULL = 1 << 60


class Model:
    """Row groups as runs (rows, number of times they were written)."""

    def __init__(self, full):
        self.full = full
        self.groups = []
        self.rows_written = 0

    @property
    def rows(self):
        return [rows_of(group) for group in self.groups]

    def append(self, rows):
        """Append rows as full groups and a rest; then merge until the policy asks for no merge."""
        self._write([(rows, 0)], self.full)
        while taken := trailing_groups(reversed(self.rows), self.full):
            assert 2 <= taken <= len(self.groups)
            run, self.groups = self.groups[-taken:], self.groups[:-taken]
            assert all(2 * rows_of(group) < self.full for group in run)
            size = rows_per_group(sum(map(rows_of, run)), self.full)
            self._write(list(itertools.chain.from_iterable(run)), size)

    def _write(self, pieces, size):
        self.rows_written += rows_of(pieces)
        for group in cut(pieces, size):
            assert rows_of(group) <= self.full
            self.groups.append([(rows, times + 1) for rows, times in group])

    def most_written(self):
        return max(times for group in self.groups for _, times in group)


def rows_of(group):
    return sum(rows for rows, _ in group)


def cut(pieces, size):
    group = []
    for rows, times in pieces:
        while rows:
            taken = min(rows, size - rows_of(group))
            group.append((taken, times))
            rows -= taken
            if rows_of(group) == size:
                yield group
                group = []
    if group:
        yield group


def level(rows):
    """Return the largest power of 8 that is not larger."""
    return next(at for at in itertools.count() if FANOUT ** (at + 1) > rows)


@pytest.mark.parametrize("rows", [1, 7, 8, 100])
def test_equal_appends_leave_few_groups_and_are_written_seldom(rows):
    model = Model(NEVER_FULL)
    for n in range(1, 3000):
        model.append(rows)
        assert len(model.groups) <= 8 * math.log2(n) + 8
        assert len(model.groups) <= 7 * (2 + math.log(n, FANOUT))
        if n >= 2:
            assert model.rows_written <= 3 * n * math.log2(n) * rows
        assert model.rows_written <= n * rows * (2 + math.log(n, FANOUT))


@pytest.mark.parametrize("full", [2, 3, 10, 64, 1000])
def test_equal_appends_end_in_groups_that_are_at_least_half_full(full):
    model = Model(full)
    for n in range(1, 800):
        model.append(1)
        half_full = [group for group in model.rows if 2 * group >= full]
        assert model.rows[: len(half_full)] == half_full
        assert len(model.groups) - len(half_full) <= 7 * (1 + math.log(full, FANOUT))
        assert model.rows_written <= n * (2 + math.log(full, FANOUT))


def ruler(depth, factor):
    """Return sizes with large appends between small ones, at every scale."""
    if depth == 0:
        return [1]
    inner = ruler(depth - 1, factor)
    return [*inner, int(factor**depth) + 1, *inner]


sizes = st.integers(1, 10) | st.integers(1, 10**6) | st.integers(0, 18).map(lambda at: 1 << at)


@quick
@given(
    appends=st.lists(sizes, min_size=1, max_size=80),
    full=st.sampled_from([1, 2, 5, 64, 1000, 100_000, NEVER_FULL]) | st.integers(1, 10**6),
)
@example(appends=ruler(8, 16 / 7), full=NEVER_FULL)
@example(appends=ruler(8, 2), full=NEVER_FULL)
@example(appends=[1, 1000] * 40, full=NEVER_FULL)
@example(appends=[1] * 7 + [8, 64, 512] * 20, full=1000)
def test_appends_of_any_size_leave_few_groups_and_no_row_is_written_often(appends, full):
    # Few enough groups for a test.
    appends = [min(rows, 20 * full) for rows in appends]
    model = Model(full)
    for n, rows in enumerate(appends, 1):
        model.append(rows)
        total = sum(appends[:n])
        # The rest of an append that was cut at once.
        smallest = min(append % full or full for append in appends[:n])
        highest = min(level(total), level(full) + 1)
        assert model.most_written() <= 1 + highest - level(smallest)
        assert model.rows_written <= total * (2 + math.log(total / smallest, FANOUT))

        is_small = [2 * group < full for group in model.rows]
        trailing = list(itertools.takewhile(lambda group: 2 * group < full, model.rows[::-1]))
        levels = list(map(level, trailing))
        assert levels == sorted(levels)
        assert all(levels.count(one) < FANOUT for one in levels)
        # A group that is not small ends a run of small ones.
        walls = len(is_small) - sum(is_small)
        assert len(model.rows) <= walls + (walls + 1) * 7 * (1 + level(full) - level(smallest))


@pytest.mark.parametrize(
    ("rows", "taken"),
    [
        ([], 0),
        ([1], 0),
        ([1] * 7, 0),
        ([1] * 8, 8),
        ([8] * 7 + [1] * 7, 0),
        ([8] * 7 + [1] * 8, 15),
        ([1, 8], 2),
        ([8, 1], 0),
        # Left by writers whose merges were lost; the second would be rewritten without a higher
        # level.
        ([1, 8, 1], 0),
        ([50] * 8, 0),
        ([50, 49, 1], 0),
        ([49, 15], 2),
    ],
    ids=str,
)
def test_a_run_is_merged_when_all_of_it_rises(rows, taken):
    assert trailing_groups(reversed(rows), 100) == taken


@quick
@given(rows=st.lists(sizes, max_size=40), full=st.integers(1, 10**6))
def test_a_run_to_merge_depends_on_the_trailing_small_groups_only(rows, full):
    taken = trailing_groups(reversed(rows), full)
    assert taken == trailing_groups([*reversed(rows), full, 1], full)
    assert taken == trailing_groups([*reversed(rows), (full + 1) // 2, 1], full)
    assert trailing_groups([(full + 1) // 2, *reversed(rows)], full) == 0


@quick
@given(full=st.integers(12, 10**4), data=st.data())
def test_merged_rows_are_cut_in_groups_that_are_never_merged_again(full, data):
    rows = data.draw(st.integers(1, full * full // 4))
    size = rows_per_group(rows, full)
    assert size <= full
    rest = rows % size or size
    assert 2 * rest >= full or size == rows


def joined(rows, runs):
    """Return the row groups after these runs were joined."""
    inside = {at for start, stop in runs for at in range(start + 1, stop)}
    bounds = [at for at in range(len(rows) + 1) if at not in inside]
    return [sum(rows[start:stop]) for start, stop in itertools.pairwise(bounds)]


small_tables = st.lists(
    st.integers(1, 100) | st.integers(1, 20) | st.integers(40, 60) | st.integers(80, 130),
    max_size=40,
)


@quick
@given(rows=small_tables)
@example(rows=[50, 50, 50])
@example(rows=[1] * 1000)
def test_tidying_leaves_no_two_neighbours_that_fit_one_group(rows):
    full = 100
    runs = small_spans(rows, full)
    assert all(stop - start >= 2 for start, stop in runs)
    assert all(stop <= start for (_, stop), (start, _) in itertools.pairwise(runs))
    after = joined(rows, runs)
    assert sum(after) == sum(rows)
    assert all(size <= full for size in set(after) - set(rows))
    assert all(left + right > full for left, right in itertools.pairwise(after))
    assert len(after) <= 2 * math.ceil(sum(rows) / full) + 1
    assert small_spans(after, full) == []
    # A large group is rewritten only for a small one, or for a similar one if both fit exactly.
    for start, stop in runs:
        large = [size for size in rows[start:stop] if 2 * size >= full]
        assert len(large) < stop - start or large == [50, 50]


def test_tidying_rewrites_little_more_than_the_least_there_is():
    # All tables of 5 groups of these sizes. A single table may take three times the minimum.
    full, rewritten, least = 10, 0, 0
    for rows in itertools.product([1, 3, 4, 5, 6, 9], repeat=5):
        rewritten += sum(sum(rows[start:stop]) for start, stop in small_spans(rows, full))
        least += least_rewritten(rows, full)
    assert least <= rewritten <= 1.15 * least


def least_rewritten(rows, full):
    """Return the fewest rewritten rows over all joins of neighbours that leave no small group."""
    found = []
    for cuts in itertools.product([False, True], repeat=len(rows) - 1):
        bounds = [0, *(at for at, cut in enumerate(cuts, 1) if cut), len(rows)]
        runs = list(itertools.pairwise(bounds))
        after = [sum(rows[start:stop]) for start, stop in runs]
        if all(left + right > full for left, right in itertools.pairwise(after)):
            many = [sum(rows[start:stop]) for start, stop in runs if stop - start > 1]
            if all(size <= full for size in many):
                found.append(sum(many))
    return min(found)
