"""Deduplicate: keep one row of each key.

The key columns are in memory with all their rows, and so are the columns that decide which row
stays. Rows are removed as by a delete.
"""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from blztable.engine.change.change_set import ChangeSet
from blztable.engine.change.facts.predicates import any_row
from blztable.engine.change.keyed import keys
from blztable.engine.change.rows import RowMask, keep
from blztable.engine.change.sorting import Unsorted
from blztable.engine.read.columns import OpenColumns
from blztable.engine.read.selection import spans
from blztable.engine.run.limits import check_rows
from blztable.engine.write.sort_keys import Key

# Bytes of the number of its key and of its place in the order, for each row.
_ROW_BYTES = 24


def deduplicate(
    change_set: ChangeSet, on: Sequence[int], *, last: bool, order_by: Sequence[Key] = ()
) -> int:
    """Keep the first or the last row of each key, in the order of some columns.

    Return the number of removed rows.
    """
    staged = change_set.staged
    groups, rows = staged.head.row_groups, staged.head.rows
    keys.check([staged.schema.field(index) for index in on])
    check_rows(rows, "finding duplicates", _ROW_BYTES)
    stays = np.zeros(rows, np.bool_)
    if rows:
        with OpenColumns.whole(staged) as opened:
            codes = keys.codes(opened.columns(on, spans(groups, 0, rows)))
        order = Unsorted.of_version(staged).order(order_by) if order_by else None
        places = np.arange(rows) if order is None else order
        places = places[::-1] if last else places
        stays[places[np.unique(codes[places], return_index=True)[1]]] = True
    firsts = list(accumulate(groups, initial=0))

    def kept(group: int) -> RowMask:
        return RowMask.of(stays[firsts[group] : firsts[group + 1]])

    # A row that another change added may have any of the keys.
    return keep(change_set, "deduplicate", kept, any_row)
