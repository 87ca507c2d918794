"""Keyed: rows that have equal values in some columns, their key.

Keys are equal as in a merge of pandas: null equals null, NaN equals NaN, and 0.0 equals -0.0.

`deduplicate` keeps one row of each key. The key columns are in memory with all their rows, and so
are the columns that decide which row stays. Rows are removed as by a delete.

`differences` are the rows of one version that another one does not have. Of a row group whose parts
are the same files in both versions, only the rows can differ that are deleted in one of them. These
rows, and all rows of all other row groups, are compared with each other by all of their columns: a
row that occurs more often in one version than in the other is a difference. So rows that were only
moved or written again are none.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from operator import and_
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.nested.nodes import is_nested
from blztable.arrow.types import REFUSALS
from blztable.columns.types import one_array
from blztable.engine.change.change_set import ChangeSet
from blztable.engine.change.changes import NoRewrite
from blztable.engine.change.reliance import WriteSet, any_row
from blztable.engine.change.rows import RowMask, keep
from blztable.engine.change.sorting import Unsorted
from blztable.engine.query.expressions import comparable
from blztable.engine.query.select import take
from blztable.engine.read.columns import OpenColumns
from blztable.engine.read.selection import RowSpan, spans
from blztable.engine.run.limits import check_rows
from blztable.engine.version.versions import Version
from blztable.engine.write.sort_keys import Key
from blztable.errors import SchemaError
from blztable.format.deletions import live, unpack

# Bytes of the number of its key and of its place in the order, for each row.
_ROW_BYTES = 24
# Row groups by what tells each.
RowGroups = dict[tuple[int, ...], list[int]]


def check_key(fields: Sequence[pa.Field]) -> None:
    """Raise SchemaError unless rows can be found by columns of these types."""
    for field in fields:
        if is_nested(field.type):
            raise SchemaError(
                f"column {field.name!r}: rows cannot be found by {field.type}; a key has plain "
                "values"
            )


def key_codes(columns: Sequence[pa.ChunkedArray]) -> np.ndarray:
    """Return a number for each row, shape (rows,): the same where all columns are equal."""
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        encoded = one_array(_normal(column)).dictionary_encode(null_encoding="encode")
        codes = codes * (len(encoded.dictionary) or 1) + encoded.indices.to_numpy()
        if len(columns) > 1:
            # Numbers below the number of rows, so that the next product is one of 64 bits.
            codes = np.unique(codes, return_inverse=True)[1]
    return codes


def repeated(codes: np.ndarray) -> int | None:
    """Return the first row whose key an earlier row has; None if there is none."""
    first = np.unique(codes, return_index=True)[1]
    if len(first) == len(codes):
        return None
    is_first = np.zeros(len(codes), np.bool_)
    is_first[first] = True
    return int(np.argmin(is_first))


def key_condition(names: Sequence[str], columns: Sequence[pa.ChunkedArray]) -> pc.Expression:
    """Return a filter that is true for all rows with one of these keys.

    It is true for other rows, too, if the key has several columns.
    """
    pairs = zip(names, columns, strict=True)
    return reduce(and_, (pc.field(name).isin(pc.unique(_normal(column))) for name, column in pairs))


def _normal(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column in which equal values have equal bytes."""
    column = comparable(column)
    if not pa.types.is_floating(column.type):
        return column
    zero, nan = pa.scalar(0, column.type), pa.scalar(math.nan, column.type)
    return pc.if_else(pc.is_nan(column), nan, pc.add(column, zero))


def deduplicate(
    change_set: ChangeSet, on: Sequence[int], *, last: bool, order_by: Sequence[Key] = ()
) -> int:
    """Keep the first or the last row of each key, in the order of some columns.

    Return the number of removed rows.
    """
    staged = change_set.staged
    groups, rows = staged.row_groups, staged.head.rows
    check_key([staged.schema.field(index) for index in on])
    check_rows(rows, "finding duplicates", _ROW_BYTES)
    stays, firsts = np.zeros(rows, np.bool_), list(accumulate(groups, initial=0))
    if rows:
        with OpenColumns.whole(staged) as opened:
            codes = key_codes(opened.columns(on, spans(groups, 0, rows)))
        order = Unsorted.of_version(staged).order(order_by) if order_by else None
        new_order = np.arange(rows) if order is None else order
        new_order = new_order[::-1] if last else new_order
        _, at, counts = np.unique(codes[new_order], return_index=True, return_counts=True)
        stays[new_order[at]] = True
        # Others go because these stay: a commit that removes one of these is a conflict.
        copied = np.searchsorted(firsts, new_order[at[counts > 1]], "right") - 1
        relied = np.unique(copied).tolist()
        change_set.add_reliance(NoRewrite(WriteSet.of(staged, relied, any_row)))

    def kept(group: int) -> RowMask:
        return RowMask.of(stays[firsts[group] : firsts[group + 1]])

    # A row that another change added may have any of the keys.
    kept_rows = ((group, kept(group)) for group in range(len(groups)))
    return keep(change_set, "deduplicate", kept_rows, any_row)


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
    codes = key_codes([_comparable(*pair) for pair in pairs])
    before, after = codes[: len(rows[0])], codes[len(rows[0]) :]
    return np.sort(rows[1][_more(after, before)]), np.sort(rows[0][_more(before, after)])


def common_columns(old: Version, new: Version) -> tuple[list[int], list[int]]:
    """Return the indices of the columns that both versions have, in the order of the new one.

    Of a table that was written anew in between, these are the columns of the same name.
    """
    ids: list[dict[object, int]] = [
        {version.paths[version.nodes(index)[0]]: index for index in indices}
        for version in (old, new)
        for indices in [range(len(version.schema))]
    ]
    names: list[dict[object, int]] = [
        {name: index for index, name in enumerate(version.schema.names)} for version in (old, new)
    ]
    keys = names if ids[0].keys().isdisjoint(ids[1]) else ids
    shared = [column for column in keys[1] if column in keys[0]]
    for column in shared:
        before, after = old.schema.field(keys[0][column]), new.schema.field(keys[1][column])
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
    return [keys[0][column] for column in shared], [keys[1][column] for column in shared]


def _row_groups(version: Version, indices: Sequence[int]) -> RowGroups:
    """Return the row groups by what tells each: its rows, and the files of these columns."""
    lines = [line for index in indices for line in version.nodes(index)]
    groups: RowGroups = {}
    for group, identity in enumerate(version.identities(lines).tolist()):
        groups.setdefault(tuple(identity), []).append(group)
    return groups


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
        first = np.cumsum([0, *version.row_groups])
        whole, singles = list[int](), [np.zeros(0, np.int64)]
        for parts, same in groups.items():
            twins = others.get(parts, [])
            whole += same[len(twins) :]
            for group, twin in zip(same, twins, strict=False):
                deleted = version.all_deleted[group]
                gone = np.setdiff1d(unpack(other.all_deleted[twin]), unpack(deleted))
                singles.append(live(deleted, gone) + first[group])
        return cls(sorted(whole), np.sort(np.concatenate(singles)))

    def numbers(self, version: Version) -> np.ndarray:
        """Return the numbers of the rows in the table, in the order of `read`."""
        ends = np.cumsum([0, *version.row_groups])
        ranges = [np.arange(ends[group], ends[group + 1]) for group in self.groups]
        return np.concatenate([*ranges, self.singles])

    def read(self, version: Version, indices: Sequence[int]) -> list[pa.ChunkedArray]:
        """Return columns of the rows."""
        whole = [RowSpan(group, 0, version.row_groups[group]) for group in self.groups]
        with OpenColumns.whole(version) as opened:
            columns = opened.columns(indices, whole)
            if not len(self.singles):
                return columns
            both = zip(columns, take(opened, indices, self.singles), strict=True)
        return [pa.chunked_array([*a.chunks, *b.chunks], a.type) for a, b in both]


def _comparable(left: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return both arrays as one; values of nested types as texts that are equal where they are."""
    both = pa.chunked_array([*left.chunks, *other.chunks], left.type)
    if not is_nested(both.type):
        try:
            key_codes([both.slice(0, 0)])
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
