"""Differences: the rows of one version that another one does not have.

Theory of operation. Of a row group whose parts are the same files in both versions, only the rows
can differ that are deleted in one of them. These rows, and all rows of all other row groups, are
compared with each other as in a merge of pandas: a row that occurs more often in one version than
in the other is a difference. So rows that were only moved or written again are none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from blztable.arrow.errors import REFUSALS
from blztable.arrow.nested.nodes import is_nested
from blztable.engine.change.keyed import keys
from blztable.engine.query.select import take
from blztable.engine.read.columns import OpenColumns
from blztable.engine.read.selection import RowSpan
from blztable.engine.version.versions import Version
from blztable.errors import SchemaError
from blztable.format.deletions import live, unpack

# Row groups by what tells each.
RowGroups = dict[tuple[object, ...], list[int]]


def differences(old: Version, new: Version) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the rows that only the new version has, and only the old one.

    Columns are compared that both versions have.

    Raises
    ------
    SchemaError
        A column has another type, or the versions have no column in common.
    """
    columns = common_columns(old, new)
    left, right = _row_groups(old, columns[0]), _row_groups(new, columns[1])
    gone, come = _Candidates.of(old, left, new, right), _Candidates.of(new, right, old, left)
    pairs = zip(gone.read(old, columns[0]), come.read(new, columns[1]), strict=True)
    rows = gone.numbers(old), come.numbers(new)
    if not len(rows[0]) or not len(rows[1]):
        return np.sort(rows[1]), np.sort(rows[0])
    codes = keys.codes([_comparable(*pair) for pair in pairs])
    before, after = codes[: len(rows[0])], codes[len(rows[0]) :]
    return np.sort(rows[1][_more(after, before)]), np.sort(rows[0][_more(before, after)])


def common_columns(old: Version, new: Version) -> tuple[list[int], list[int]]:
    """Return the indices of the columns that both versions have, in the order of the new one.

    Of a table that was written anew in between, these are the columns of the same name.
    """
    ids: list[dict[object, int]] = [
        {version.head.columns.paths[version.nodes(index)[0]]: index for index in indices}
        for version in (old, new)
        for indices in [range(len(version.schema))]
    ]
    names: list[dict[object, int]] = [
        {name: index for index, name in enumerate(version.schema.names)} for version in (old, new)
    ]
    places = names if ids[0].keys().isdisjoint(ids[1]) else ids
    shared = [one for one in places[1] if one in places[0]]
    for one in shared:
        before, after = old.schema.field(places[0][one]), new.schema.field(places[1][one])
        if before.type != after.type:
            raise SchemaError(
                f"{new.store.name}: column {after.name!r} is {after.type} in version "
                f"{new.head.version} and {before.type} in version {old.head.version}"
            )
    if not shared:
        raise SchemaError(
            f"{new.store.name}: versions {old.head.version} and {new.head.version} have no column "
            "in common"
        )
    return [places[0][one] for one in shared], [places[1][one] for one in shared]


def _row_groups(version: Version, indices: Sequence[int]) -> RowGroups:
    """Return the row groups by what tells each: where the parts of these columns are."""
    lines = [version.line_parts(line) for index in indices for line in version.nodes(index)]
    bundles = version.head.bundles
    found: RowGroups = {}
    for group, rows in enumerate(version.head.stored_rows):
        places = ((one.key(group, bundles), one.at[group] if one.at else 0) for one in lines)
        found.setdefault((rows, *places), []).append(group)
    return found


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Rows that the other version may not have.

    Attributes
    ----------
    groups
        Row groups whose parts the other version does not have.
    singles
        Numbers of the other rows in the table: the other version has deleted them.
    """

    groups: Sequence[int]
    singles: np.ndarray

    @classmethod
    def of(cls, version: Version, groups: RowGroups, other: Version, others: RowGroups) -> Self:
        """Find these rows of a version, given the row groups of both versions."""
        first = np.cumsum([0, *version.head.row_groups])
        whole, singles = list[int](), [np.zeros(0, np.int64)]
        for parts, same in groups.items():
            twins = others.get(parts, [])
            whole += same[len(twins) :]
            for group, twin in zip(same, twins, strict=False):
                deleted = version.head.all_deleted[group]
                gone = np.setdiff1d(unpack(other.head.all_deleted[twin]), unpack(deleted))
                singles.append(live(deleted, gone) + first[group])
        return cls(sorted(whole), np.sort(np.concatenate(singles)))

    def numbers(self, version: Version) -> np.ndarray:
        """Return the numbers of the rows in the table, in the order of `read`."""
        ends = np.cumsum([0, *version.head.row_groups])
        ranges = [np.arange(ends[group], ends[group + 1]) for group in self.groups]
        return np.concatenate([*ranges, self.singles])

    def read(self, version: Version, indices: Sequence[int]) -> list[pa.ChunkedArray]:
        """Return columns of the rows."""
        whole = [RowSpan(group, 0, version.head.row_groups[group]) for group in self.groups]
        with OpenColumns.whole(version) as opened:
            columns = opened.columns(indices, whole)
            if not len(self.singles):
                return columns
            both = zip(columns, take(opened, indices, self.singles), strict=True)
        return [pa.chunked_array([*a.chunks, *b.chunks], a.type) for a, b in both]


def _comparable(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return both arrays as one; values of nested types as texts that are equal where they are."""
    both = pa.chunked_array([*one.chunks, *other.chunks], one.type)
    if not is_nested(both.type):
        try:
            keys.codes([both.slice(0, 0)])
        except REFUSALS:
            pass
        else:
            return both
    return pa.chunked_array([pa.array(map(repr, both.to_pylist()), pa.large_string())])


def _more(codes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return True for each row that occurs more often here, counted from the first one on."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    rank = np.arange(len(codes)) - np.searchsorted(ordered, ordered)
    top = max(codes.max(initial=0), others.max(initial=0)) + 1
    counts = np.bincount(others, minlength=top)
    more = np.empty(len(codes), np.bool_)
    more[order] = rank >= counts[ordered]
    return more
