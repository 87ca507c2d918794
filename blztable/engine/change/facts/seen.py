"""Seen: the columns, the row count, all row groups and default values of a version.

A change keeps these facts, not the version itself: a transaction may make thousands of changes, and
each version holds the parts of all row groups.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import pyarrow as pa

from blztable.engine.version.staged import StagedVersion
from blztable.errors import ConflictError
from blztable.format.jsontext import Json
from blztable.format.layout import Path

AGAIN = "open the table again and repeat the change"


@dataclass(frozen=True, slots=True)
class Seen:
    """The facts about a version that a change relies on.

    Attributes
    ----------
    version : int
        Number of the version.
    rows : int
        Rows of that version.
    columns : tuple
        Paths, schema and frame descriptor.
    row_groups : bytes or None
        Digest of the rows and files of all row groups; None if the change does not rely on it.
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
        columns = (head.columns.paths, staged.schema, head.pandas)
        return cls(head.version, head.rows, columns)

    @classmethod
    def rows_of(cls, staged: StagedVersion) -> Self:
        """Return the columns and all row groups of a version."""
        return replace(cls.columns_of(staged), row_groups=staged.row_groups_digest())

    def and_defaults(self, staged: StagedVersion, indices: Iterable[int]) -> Self:
        """Return these facts and the default values of some columns of the same version."""
        ids = [str(staged.root(index).path[0]) for index in indices]
        return replace(self, defaults={one: staged.defaults.get(one) for one in ids})

    def check(self, newest: StagedVersion, change: str) -> None:
        """Raise ConflictError if `newest` differs from these facts; `change` names the change."""
        facts, version, name = self._changed(newest), newest.head.version, newest.store.name
        if facts is None:
            return
        if self.version == version:
            raise ConflictError(
                f"{name}: the transaction changed its own {facts} while {change} was in progress; "
                f"change the {facts} before or after it"
            )
        raise ConflictError(
            f"{name}: {change} relies on the {facts} of version {self.version}; version {version} "
            f"has other {facts}; {AGAIN}"
        )

    def _changed(self, newest: StagedVersion) -> str | None:
        """Return the name of facts in which `newest` differs; None if it has all of these."""
        paths, schema, frame = self.columns
        head = newest.head
        if paths != head.columns.paths or not schema.equals(newest.schema) or frame != head.pandas:
            return "columns"
        if self.row_groups is not None and self.row_groups != newest.row_groups_digest():
            return "rows"
        if any(newest.defaults.get(one) != value for one, value in self.defaults.items()):
            return "default values"
        return None
