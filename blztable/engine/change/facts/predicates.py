"""Predicates: whether some row of some row groups is one that a change is about.

Statistics answer first; only row groups that may have such a row are read.
"""

from collections.abc import Callable, Sequence

from blztable.engine.query import expressions
from blztable.engine.query.scan import Scan
from blztable.engine.read.columns import OpenColumns
from blztable.engine.read.selection import RowSpan
from blztable.engine.version.staged import StagedVersion

# True if a row of the row groups with these indices is one of the rows meant.
Predicate = Callable[[StagedVersion, Sequence[int]], bool]


def any_row(version: StagedVersion, groups: Sequence[int]) -> bool:
    """Return True if there are row groups: a change of all rows means any."""
    return bool(groups)


def where(staged: StagedVersion, filters: object) -> Predicate:
    """Return the predicate of the rows for which a filter over a version is true."""
    expression = expressions.as_expression(filters, staged.schema)

    def matches(version: StagedVersion, groups: Sequence[int]) -> bool:
        spans = [RowSpan(group, 0, version.head.row_groups[group]) for group in groups]
        with OpenColumns.whole(version) as opened:
            scan = Scan(opened.projection, expression)
            for span in scan.within(spans):
                opened.forget_before(span.group)
                if scan.filter([span], opened).count:
                    return True
        return False

    return matches
