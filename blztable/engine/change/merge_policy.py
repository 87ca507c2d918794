"""Which row groups are to be joined: after an append, and when all is tidied.

Knows row counts and nothing else, so whoever asks again is told the same.

Many small appends would leave many small row groups. Each group has a level, the power of 8 below
its number of rows. Trailing groups are merged as soon as every row in them rises by a level, the
longest such run at once; only the last group may stay on its level, as when something large was
appended behind something small. So, merging after each append until nothing is left to merge:

- of groups below half a full one, levels descend towards the end of the table, with at most 7
  groups a level: there are at most 7 * (levels from the smallest to the largest);
- a row is written once when it is appended and at most once for each level it rises. Written again
  without rising is only what was just appended, behind what is a level below at least, so that
  level is one it will not rise: at most 1 + (levels of the table's rows above the smallest append).

To ask for a sum of at least 8 times the largest group of the run is not enough: with a large append
between small ones, again and again at all sizes, the small ones before it are never merged.
"""

from collections.abc import Sequence
from dataclasses import dataclass

FANOUT = 8
_LEVEL_BITS = FANOUT.bit_length() - 1
assert FANOUT == 1 << _LEVEL_BITS


def trailing_run(rows: Sequence[int], full: int) -> int:
    """How many of the last row groups, of so many rows each, are to be merged now; 0 for none.

    Groups of at least half of `full` rows stay as they are.
    """
    found = 0
    total = 0
    # Of all groups of the run but the last one.
    highest = -1
    for count, group in enumerate(reversed(rows), 1):
        if 2 * group >= full:
            break
        total += group
        if count > 1:
            highest = max(highest, _level(group))
            if highest < _level(total):
                found = count
    return found


def rows_per_group(rows: int, full: int) -> int:
    """The rows of each group that so many merged rows are cut into.

    All about alike and at least half of `full`, while they are fewer than a quarter of it: groups
    of `full` rows would leave a rest, to be merged all over again.
    """
    return -(-rows // -(-rows // full))


def small_runs(rows: Sequence[int], full: int) -> list[tuple[int, int]]:
    """The runs (start, stop) of row groups to be joined into one each, of at most `full` rows.

    Thereafter two neighbours have more than `full` rows together, so there are at most
    2 * ceil(total / full) + 1 groups. The small ones are joined among themselves first; a group of
    half of `full` or more is rewritten only where what is left beside it would be too small. It is
    not the least that could be rewritten, but near it (a seventh more, of all short tables).
    """
    alone = [_Run(at, at + 1, size, 2 * size < full) for at, size in enumerate(rows)]
    tidied = _join(_join(alone, full, of_small=True), full, of_small=False)
    return [(run.start, run.stop) for run in tidied if run.stop - run.start > 1]


@dataclass(frozen=True, slots=True)
class _Run:
    """Adjacent row groups that are to become one."""

    start: int
    stop: int
    rows: int
    is_small: bool  # all of them


def _join(runs: Sequence[_Run], full: int, of_small: bool) -> list[_Run]:
    """Neighbours joined, first come first served, as long as they fit."""
    joined: list[_Run] = []
    for run in runs:
        last = joined[-1] if joined else _Run(0, 0, full + 1, False)
        rows, is_small = last.rows + run.rows, last.is_small and run.is_small
        if rows <= full and is_small >= of_small:
            joined[-1] = _Run(last.start, run.stop, rows, is_small)
        else:
            joined.append(run)
    return joined


def _level(rows: int) -> int:
    return (rows.bit_length() - 1) // _LEVEL_BITS
