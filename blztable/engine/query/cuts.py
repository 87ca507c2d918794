"""Cuts: the rows of a version as runs of about equal bytes, which are read one by one.

A run has whole row groups that follow one another, or some pages of a larger one. Only records are
read: sizes are those of the records that a version names itself, so that the leaves below them tell
no more than how many rows each row group has. Knows nothing of who reads a run, and where.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from blztable.engine.query.scan import Scan
from blztable.engine.version.projection import Projection


class RowRun(NamedTuple):
    """Rows that are read together, and the decoded bytes of their columns, about."""

    start: int
    stop: int
    nbytes: int


def runs(
    projection: Projection, columns: Sequence[int], scan: Scan | None, nbytes: int
) -> list[RowRun]:
    """Return runs of about `nbytes` bytes in these columns, in the order of the rows.

    Together they have all rows, or those of all row groups in which a row may pass the filter.
    """
    version, columns = projection.version, list(dict.fromkeys(columns))
    if scan is None:
        rows = np.array(version.row_groups, np.int64)
        groups, firsts = np.arange(len(rows)), rows.cumsum() - rows
    else:
        groups, firsts, rows = scan.plan.groups, scan.plan.firsts, scan.plan.rows
    lines = [line for index in columns for line in projection.nodes(index)]
    before, bytes_before = version.facts.sizes(lines)
    sizes = np.diff(np.interp([firsts, firsts + rows], before, bytes_before), axis=0)[0]
    pages = _page_rows(projection, columns, groups[sizes > nbytes])
    found: list[RowRun] = []
    start = stop = 0
    size = 0.0
    for group, first, count, more in zip(
        groups.tolist(), firsts.tolist(), rows.tolist(), sizes.tolist(), strict=True
    ):
        if start < stop and (first != stop or size + more > nbytes):
            found.append(RowRun(start, stop, int(size)))
            start = stop
        if start == stop:
            start, size = first, 0.0
        stop, size = first + count, size + more
        if more > nbytes:
            step = -(-count // int(-(-more // nbytes)))
            step = -(-step // pages[group]) * pages[group]
            for at in range(first, stop, step):
                end = min(at + step, stop)
                found.append(RowRun(at, end, int(more * (end - at) / count)))
            start = stop
    if start < stop:
        found.append(RowRun(start, stop, int(size)))
    return found


def _page_rows(
    projection: Projection, columns: Sequence[int], groups: np.ndarray
) -> dict[int, int]:
    """Return the rows of the largest page of these columns in some row groups."""
    if not len(groups):
        return {}
    roots = [projection.nodes(index)[0] for index in columns]
    parts = projection.version.records(roots, groups).parts.reshape(len(roots), len(groups))
    most = np.left_shift(1, parts["page"].max(0, initial=0), dtype=np.int64)
    return dict(zip(groups.tolist(), most.tolist(), strict=True))
