"""Check bundles: their first bytes, and that no two parts share bytes.

Neither changes a row that is read. Knows nothing of what a part holds.
"""

from collections.abc import Iterator, Sequence

from blztable.engine.check.examine import ColumnCheck
from blztable.engine.version.versions import Version
from blztable.errors import BlzError
from blztable.format import layout
from blztable.format.superchunk import BUNDLE_MAGIC
from blztable.report import Problem
from blztable.storage.store import KeyNotFound


def bundle_problems(
    version: Version, columns: Sequence[ColumnCheck], groups: Sequence[int], first: int
) -> Iterator[Problem]:
    """Yield the problems of the bundles of these row groups; `first` is the index of a row."""
    bundles = version.head.bundles
    for group in groups if bundles else ():
        number, stop = bundles[group], first + version.head.row_groups[group]
        if number:
            key = layout.part(layout.SHARED, number)
            for message in (*_head(version, key), *_overlaps(columns, group)):
                yield Problem(message, None, None, group, first, stop, key, True)
        first = stop


def _head(version: Version, key: str) -> Iterator[str]:
    """Yield a message if the bundle does not begin as it must; its parts say if it is missing."""
    try:
        found = version.store.get(key, 0, len(BUNDLE_MAGIC))
    except (BlzError, KeyNotFound):
        return
    if found != BUNDLE_MAGIC:
        yield f"the bundle begins with {found!r}; expected {BUNDLE_MAGIC!r}"


def _overlaps(columns: Sequence[ColumnCheck], group: int) -> Iterator[str]:
    """Yield a message for each part that begins within another one."""
    places = sorted(
        (one.parts.at[group], one.parts.facts.cbytes[group], one.name)
        for one in columns
        if one.parts and one.parts.at and one.parts.at[group]
    )
    end, before = len(BUNDLE_MAGIC), "the first bytes of the bundle"
    for at, length, name in places:
        if at < end:
            yield f"column {name!r} overlaps {before}"
        if at + length > end:
            end, before = at + length, f"column {name!r}"
