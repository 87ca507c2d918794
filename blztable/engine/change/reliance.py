"""Reliance: what a change relies on, and whether another version still has it.

A change keeps the read set it relies on (`ReadSet`), not the version itself: a transaction may make
thousands of changes, and each version holds the parts of all row groups.

A change of rows keeps the row groups that it rewrites or removes, and the predicate of the rows
that it looked for (`WriteSet`). It is right on another version if both hold there:

1. Its row groups are still there. A commit that rewrote or removed one of them conflicts, and so
   does one that deleted rows in it.
2. No commit has added a row for which the predicate is true. Blind appends are an exception: they
   read no row, so they may as well come after the change, and their rows are kept.

A row group is known by a digest of its rows, its deleted rows, and the numbers of its files. Each
row group says when rows last came by another commit than a blind append (`changed`), so no version
between the two is needed. Row groups that came since are searched: statistics answer first, and
only those that may have such a row are read. That holds for a change that found no row, too:
another change may have added one since.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import pyarrow as pa

from blztable.engine.query import expressions
from blztable.engine.query.scan import Scan
from blztable.engine.read.columns import OpenColumns
from blztable.engine.read.selection import RowSpan
from blztable.engine.version.staged import StagedVersion
from blztable.engine.version.versions import Version
from blztable.errors import ConflictError
from blztable.format.jsontext import Json
from blztable.format.layout import Path

AGAIN = "open the table again and repeat the change"
# True if a row of the row groups with these indices is one of the rows looked for.
Predicate = Callable[[StagedVersion, Sequence[int]], bool]


def digests(version: Version, groups: Sequence[int]) -> list[bytes]:
    """Return what identifies each of these row groups: a digest of rows, deleted rows and files."""
    if not len(groups):
        return []
    identities = version.identities(range(len(version.paths)), groups)
    deleted = version.all_deleted
    return [
        hashlib.blake2b(identity.tobytes() + deleted[group], digest_size=16).digest()
        for identity, group in zip(identities, groups, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class ReadSet:
    """What a change has read of a version and relies on.

    Attributes
    ----------
    version : int
        Number of the version.
    rows : int
        Rows of that version.
    columns : tuple
        Paths, schema and frame descriptor.
    row_groups : bytes or None
        A digest of all row groups; None if the change does not rely on them.
    defaults : mapping
        The default values that the change relies on, by column id; None for no default.
    """

    version: int
    rows: int
    columns: tuple[tuple[Path, ...], pa.Schema, Mapping[str, Json] | None]
    row_groups: bytes | None = None
    defaults: Mapping[str, Json] = field(default_factory=dict)

    @classmethod
    def columns_of(cls, staged: StagedVersion) -> Self:
        """Return the columns and the row count of a version."""
        head = staged.head
        columns = (staged.paths, staged.schema, head.pandas)
        return cls(head.version, head.rows, columns)

    @classmethod
    def rows_of(cls, staged: StagedVersion) -> Self:
        """Return the columns and all row groups of a version."""
        return replace(cls.columns_of(staged), row_groups=_of_all(staged))

    def and_defaults(self, staged: StagedVersion, indices: Iterable[int]) -> Self:
        """Return this read set with the default values of some columns of the same version."""
        ids = [str(staged.root(index).path[0]) for index in indices]
        return replace(self, defaults={column: staged.defaults.get(column) for column in ids})

    def check(self, newest: StagedVersion, change: str) -> None:
        """Raise ConflictError if `newest` differs from this read set; `change` names the change."""
        what, version, name = self._changed(newest), newest.head.version, newest.store.name
        if what is None:
            return
        if self.version == version:
            raise ConflictError(
                f"{name}: the transaction changed its own {what} while {change} was in progress; "
                f"change the {what} before or after it"
            )
        raise ConflictError(
            f"{name}: {change} relies on the {what} of version {self.version}; version {version} "
            f"has other {what}; {AGAIN}"
        )

    def _changed(self, newest: StagedVersion) -> str | None:
        """Return what differs in `newest`; None if nothing does."""
        paths, schema, frame = self.columns
        head = newest.head
        if paths != newest.paths or not schema.equals(newest.schema) or frame != head.pandas:
            return "columns"
        if self.row_groups is not None and self.row_groups != _of_all(newest):
            return "rows"
        if any(newest.defaults.get(column) != value for column, value in self.defaults.items()):
            return "default values"
        return None


def any_row(version: StagedVersion, groups: Sequence[int]) -> bool:
    """Return True if there are row groups: the predicate of all rows is true for any."""
    return bool(groups)


def any_where(staged: StagedVersion, filters: object) -> Predicate:
    """Return the predicate of the rows for which a filter over a version is true."""
    expression = expressions.as_expression(filters, staged.schema)

    def matches(version: StagedVersion, groups: Sequence[int]) -> bool:
        spans = [RowSpan(group, 0, version.row_groups[group]) for group in groups]
        with OpenColumns.whole(version) as opened:
            scan = Scan(opened.projection, expression)
            for span in scan.within(spans):
                opened.forget_before(span.group)
                if scan.filter(scan.morsels([span]), opened).count:
                    return True
        return False

    return matches


@dataclass(frozen=True, slots=True)
class WriteSet:
    """Row groups of a version, and the predicate of the rows looked for in all of them.

    Attributes
    ----------
    groups : sequence of int
        Indices of the row groups that are rewritten or removed; empty if no row was found.
    digests : sequence of bytes
        What identifies each.
    """

    read_set: ReadSet
    matches: Predicate
    groups: Sequence[int]
    digests: Sequence[bytes]

    @classmethod
    def of(cls, staged: StagedVersion, groups: Sequence[int], matches: Predicate) -> Self:
        """Return these row groups of a staged version."""
        return cls(ReadSet.columns_of(staged), matches, groups, digests(staged, groups))

    def find(self, newest: StagedVersion, change: str) -> list[int]:
        """Return the indices of the row groups in `newest`; `change` names the change.

        Raises
        ------
        ConflictError
            Another commit changed the columns, changed these row groups, or added a row for which
            the predicate is true.
        """
        self.read_set.check(newest, change)
        name, version = newest.store.name, self.read_set.version
        groups = self._found(newest)
        if groups is None:
            raise ConflictError(
                f"{name}: {change} relies on the rows of version {version}; another commit has "
                f"changed rows in the same row groups; {AGAIN}"
            )
        newer = {*newest.changed_after(version)}
        if self.matches(newest, sorted(newer - {*groups})):
            raise ConflictError(
                f"{name}: {change} relies on the rows of version {version} that it looked for; "
                f"another commit, which was no plain append, has added such rows; {AGAIN}"
            )
        return groups

    def _found(self, newest: StagedVersion) -> list[int] | None:
        """Return the present indices of the row groups; None if one of them is gone."""
        count = newest.group_count
        if max(self.groups, default=-1) < count and (digests(newest, self.groups) == self.digests):
            return list(self.groups)
        present = {digest: group for group, digest in enumerate(digests(newest, range(count)))}
        groups = [present.get(digest, -1) for digest in self.digests]
        # Row groups without a file may be equal; nothing tells which is which.
        return None if -1 in groups or len({*groups}) < len(groups) else groups


def _of_all(version: StagedVersion) -> bytes:
    """Return a digest of all row groups, in their order."""
    whole = b"".join(digests(version, range(version.group_count)))
    return hashlib.blake2b(whole, digest_size=16).digest()
