"""Erase: remove rows, and write again what has their values.

Removes no version: the caller does that after the commit.
"""

from blztable.engine.change import compact, rows
from blztable.engine.change.change_set import ChangeSet
from blztable.engine.query import select
from blztable.engine.query.scan import Scan
from blztable.engine.read.columns import OpenColumns
from blztable.engine.version.staged import StagedVersion
from blztable.engine.version.versions import Version
from blztable.errors import BlzError


def erase(change_set: ChangeSet, where: object) -> int:
    """Remove the rows for which `where` is true; return their number.

    Row groups are written again that have deleted rows, also of earlier changes, or whose bundle
    has parts that no column names.
    """
    with change_set.named("delete"):
        removed = rows.delete(change_set, where)
        compact.rewrite_old_values(change_set)
    return removed


def rows_left(version: Version, where: object) -> int | None:
    """Return the number of rows of a version that meet `where`; None if it may have others.

    It may have them if it keeps values of deleted rows, or if its columns do not fit `where`.
    """
    try:
        if compact.has_old_values(StagedVersion.of(version)):
            return None
        with OpenColumns.whole(version) as opened:
            return select.count(opened, Scan(opened.projection, where))
    except BlzError:
        return None
