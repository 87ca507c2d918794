"""Packing: make leaves and tails of runs of entries, from level 0 to the highest.

In a version, the rows of a higher level come before those of the levels below. So entries that lie
before those of a higher level are sealed; if they are few, together with a leaf beside them. The
others are the tail of their level; it is sealed when it is full. Other leaves that no change
touched are entries of a higher level, and are not read: a commit costs the same beside 10^2 and
10^6 row groups.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby

import numpy as np

from blztable import tuning
from blztable.engine.version.facts import Run, joined
from blztable.errors import CorruptError
from blztable.format.bounds import Order, summary
from blztable.format.leaf import MAX_LEVEL, Leaf
from blztable.format.records import WORD

# Writes the bytes of a leaf; returns its number.
Put = Callable[[Leaf], int]
# Reads the leaf that an entry of a run names.
Below = Callable[[Run, int], Run]
# A leaf that a change touched has at least one entry for so many that it could have.
LEAST_SHARE = 4


def packed(runs: Sequence[Run], orders: Sequence[Order], put: Put, below: Below) -> list[Run]:
    """Return the tail of each level, from level 0 on."""
    tails: list[Run] = []
    for level in range(MAX_LEVEL):
        cut = max((count for count, run in enumerate(runs, 1) if run.level > level), default=0)
        above: list[Run] = []
        filled = _filled(runs[:cut], level, len(orders), below)
        for of_level, some in groupby(filled, lambda run: run.level):
            if of_level == level:
                above += sealed(_pieces(joined(list(some), level, len(orders))), orders, put)
            else:
                above += some
        tail = joined(runs[cut:], level, len(orders))
        if level + 1 < MAX_LEVEL:
            size, full = _most(tail), 0
            while len(tail) - full >= size:
                full += size
            above += sealed(_cut(tail.cut(0, full), size), orders, put)
            tail = tail.cut(full, len(tail))
        tails.append(tail)
        runs = above
        if not runs:
            break
    return tails


def _filled(runs: Sequence[Run], level: int, columns: int, below: Below) -> list[Run]:
    """Return runs in which few entries of a level have those of a leaf beside them, too.

    Otherwise leaves that lose their entries would stay, and readers would read them all.
    """
    filled: list[Run] = []
    for of_level, some in groupby(runs, lambda run: run.level):
        if of_level != level:
            filled += some
            continue
        run = joined(list(some), level, columns)
        beside = filled[-1] if filled and filled[-1].level == level + 1 else None
        # A leaf that is damaged stays as it is.
        with suppress(CorruptError):
            if beside is not None and len(run) * LEAST_SHARE < _most(run):
                leaf = below(beside, len(beside) - 1)
                run = joined([leaf, run], level, columns)
                filled[-1:] = [beside.cut(0, len(beside) - 1)] if len(beside) > 1 else []
        filled.append(run)
    return filled


def sealed(pieces: Iterator[Run], orders: Sequence[Order], put: Put) -> list[Run]:
    """Write leaves; return their entries in the level above."""
    entries = []
    for piece in pieces:
        leaf = Leaf(piece.encoded())
        groups, records = summary(leaf, put(leaf), orders)
        entries.append(Run(piece.level + 1, groups, np.zeros(0, WORD), records))
    return [joined(entries, entries[0].level, len(orders))] if entries else []


def _most(run: Run) -> int:
    """Return the entries of a full leaf: so many, or so many bytes and a few entries."""
    sizes = tuning.current
    each = max(run.nbytes // max(len(run), 1), 1)
    return min(sizes.leaf_entries, max(sizes.leaf_few, sizes.leaf_bytes // each))


def _pieces(run: Run) -> Iterator[Run]:
    """Yield pieces of about equal size, none larger than a full leaf."""
    count = -(-len(run) // _most(run))
    return _cut(run, -(-len(run) // count))


def _cut(run: Run, size: int) -> Iterator[Run]:
    return (run.cut(at, min(at + size, len(run))) for at in range(0, len(run), size))
