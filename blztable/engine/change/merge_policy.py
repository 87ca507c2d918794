"""Merge policy: choose the row groups to merge after an append or to join by a compaction.

Knows only row counts, so the same counts always give the same result.

Many small appends would leave many small row groups. Each row group has a level: the power of 8
below its row count. Trailing row groups are merged as soon as every row in them rises by a level;
the longest such span is merged. Only the last row group may stay on its level, for example when a
large append follows a small one. If each append merges until nothing is left to merge:

- Among row groups below half a full one, levels descend towards the end of the table, with at most
  7 row groups in a level. Their number is at most 7 * (levels from the smallest to the largest).
- A row is written once when it is appended, and at most once for each level that it rises. Only the
  rows just appended are written again without rising, behind rows at least one level below, so they
  never rise through that level. A row is written at most
  1 + (levels of the table's rows above the smallest append) times.

The rule "the sum is at least 8 times the largest row group of the span" is not enough: with large
appends between small ones at all sizes, the small row groups before them are never merged.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

FANOUT = 8
_LEVEL_BITS = FANOUT.bit_length() - 1
assert FANOUT == 1 << _LEVEL_BITS


def trailing_groups(rows: Iterable[int], full: int) -> int:
    """Number of trailing row groups to merge now (0: none), given their rows from the last one on.

    Row groups with at least half of `full` rows stay as they are.
    """
    merged = 0
    total = 0
    # The highest level in the span, without its last row group.
    highest = -1
    for count, group in enumerate(rows, 1):
        if 2 * group >= full:
            break
        total += group
        if count > 1:
            highest = max(highest, _level(group))
            if highest < _level(total):
                merged = count
    return merged


def rows_per_group(rows: int, full: int) -> int:
    """Return the rows of each row group that `rows` merged rows are cut into.

    The row groups are about equal and have at least half of `full` rows. Row groups of exactly
    `full` rows could leave a small rest, which would be merged again.
    """
    return -(-rows // -(-rows // full))


def small_spans(rows: Sequence[int], full: int) -> list[tuple[int, int]]:
    """Return the spans (start, stop) of row groups to join into one of at most `full` rows each.

    Afterwards any two neighbours have more than `full` rows together, so there are at most
    2 * ceil(total / full) + 1 row groups. Small row groups are joined with each other first. A row
    group with half of `full` rows or more is rewritten only if its neighbour would be too small.
    This rewrites slightly more than the minimum (a seventh more, over all short tables).
    """
    alone = [_GroupSpan(index, index + 1, size, 2 * size < full) for index, size in enumerate(rows)]
    tidied = _join(_join(alone, full, of_small=True), full, of_small=False)
    return [(span.start, span.stop) for span in tidied if span.stop - span.start > 1]


@dataclass(frozen=True, slots=True)
class _GroupSpan:
    """Adjacent row groups that become one."""

    start: int
    stop: int
    rows: int
    is_small: bool  # all of them


def _join(spans: Sequence[_GroupSpan], full: int, of_small: bool) -> list[_GroupSpan]:
    """Join neighbours from the start of the list, as long as they fit."""
    joined: list[_GroupSpan] = []
    for span in spans:
        last = joined[-1] if joined else _GroupSpan(0, 0, full + 1, False)
        rows, is_small = last.rows + span.rows, last.is_small and span.is_small
        if rows <= full and is_small >= of_small:
            joined[-1] = _GroupSpan(last.start, span.stop, rows, is_small)
        else:
            joined.append(span)
    return joined


def _level(rows: int) -> int:
    return (rows.bit_length() - 1) // _LEVEL_BITS
