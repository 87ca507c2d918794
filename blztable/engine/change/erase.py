"""Erase: remove rows, and write again what has their values.

Removes no version: the caller does that after the commit.
"""

from contextlib import suppress

from blztable.engine.change import categories, compact, rows
from blztable.engine.change.change_set import ChangeSet
from blztable.engine.change.changes import NoMoreRows
from blztable.engine.query import select
from blztable.engine.query.scan import Scan
from blztable.engine.read.columns import OpenColumns
from blztable.engine.version.staged import StagedVersion
from blztable.engine.version.versions import DAMAGED, Version, each, numbers, pin
from blztable.errors import BlzError, TableNotFoundError
from blztable.storage.store import KeyNotFound


def erase(change_set: ChangeSet, where: object) -> int:
    """Remove the rows for which `where` is true; return their number.

    Row groups are written again that have deleted rows, also of earlier changes, whose bundle has
    parts that no column names, or which have categories that only erased rows used.
    """
    staged = change_set.staged
    with change_set.named("delete"):
        removed = rows.delete(change_set, where)
        gone = _categories_gone(staged, change_set.staged)
        compact.rewrite_old_values(change_set, gone)
    if gone:
        # Rows that another commit appends meanwhile may have these categories.
        change_set.add_reliance(NoMoreRows(change_set.staged.head.rows))
    return removed


def _categories_gone(before: StagedVersion, after: StagedVersion) -> categories.PartValues:
    """Return the categories that no row uses, and which one of this or an older version used."""
    # A default value is no value of a row: it stays, also among ordered categories.
    unused = categories.without(categories.unused(after), categories.of_defaults(after))
    if not unused:
        return {}
    never = categories.without(unused, categories.used_with_deleted(before))
    for number in each(before.store, numbers(before.store)):
        # A damaged version, or one that was removed meanwhile, tells nothing.
        with suppress(*DAMAGED, TableNotFoundError, KeyNotFound):
            version, pinned = pin(before.store, number)
            with pinned:
                older = categories.used_with_deleted(StagedVersion.of(version))
                never = categories.without(never, older)
    return categories.without(unused, never)


def rows_left(version: Version, where: object, newest: Version) -> int | None:
    """Return the number of rows of a version that meet `where`; None if it may have others.

    It may have them if it keeps values of deleted rows, if its columns do not fit `where`, or if it
    has categories without rows that the newest version has not.
    """
    try:
        if compact.has_old_values(StagedVersion.of(version)):
            return None
        if categories.without(categories.unused(version), categories.everything(newest)):
            return None
        with OpenColumns.whole(version) as opened:
            return select.count(opened, Scan(opened.projection, where), 0, version.head.rows)
    except BlzError:
        return None
