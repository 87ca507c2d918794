"""StagedVersion: a version that is not published yet, made of another one by changes.

It is read as any version is, so that a transaction sees its own changes. A column is a line of
the version it came from, untouched and unread, or parts that were put together since.
"""

import hashlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pyarrow as pa

from blztable.engine.version import schema as schemas
from blztable.engine.version.versions import Version
from blztable.format import layout, manifest
from blztable.format.jsontext import Json
from blztable.format.line import ColumnParts

# What an Arrow schema says there is true of the rows and columns it came with, no others.
PANDAS_KEY = b"pandas"
# The property with the values that new rows have where nothing is said: by id, in base64.
DEFAULTS = "defaults"


@dataclass(frozen=True, slots=True)
class Source:
    """A column's line as it stands in a version that was published."""

    version: Version
    index: int


@dataclass(frozen=True, slots=True)
class StagedColumn:
    """One column of a staged version."""

    path: layout.Path
    next_k: int
    nbytes: int
    cbytes: int
    origin: Source | ColumnParts

    @classmethod
    def of(cls, version: Version, index: int) -> Self:
        """A column of a version as it is."""
        known = version.head.columns
        return cls(
            known.paths[index],
            known.next_k[index],
            known.nbytes[index],
            known.cbytes[index],
            Source(version, index),
        )

    @classmethod
    def made(cls, parts: ColumnParts, next_k: int) -> Self:
        """A column of these parts."""
        return cls(parts.path, next_k, parts.nbytes, parts.cbytes, parts)

    def files_digest(self) -> bytes:
        """Bytes that differ where the column has other files."""
        if isinstance(self.origin, Source):
            digest = self.origin.version.head.columns.digest(self.origin.index)
            return b"line" + digest
        return b"parts" + hashlib.sha256(array("q", self.origin.k).tobytes()).digest()


@dataclass(frozen=True, slots=True)
class StagedVersion(Version):
    """A version in the making; the number in its head is that of the version below it."""

    columns: tuple[StagedColumn, ...] = field(default=(), kw_only=True)
    # Computed once, when a change first relies on it.
    _digest: list[bytes] = field(default_factory=list, repr=False, kw_only=True)

    @classmethod
    def of(cls, version: Version) -> Self:
        """The version, nothing changed."""
        indices = range(len(version.head.columns.paths))
        columns = tuple(StagedColumn.of(version, index) for index in indices)
        return cls(version.store, version.head, version.schema, columns=columns)

    def column(self, index: int) -> ColumnParts:
        """The parts of the column at this position."""
        origin = self.columns[index].origin
        if isinstance(origin, Source):
            return origin.version.column(origin.index)
        return origin

    def lines(self) -> list[bytes]:
        """The lines of all columns, those not touched as they are."""
        published: dict[int, list[bytes]] = {}
        lines = []
        for column in self.columns:
            origin = column.origin
            if isinstance(origin, ColumnParts):
                lines.append(origin.encode())
                continue
            if id(origin.version) not in published:
                published[id(origin.version)] = origin.version.lines()
            lines.append(published[id(origin.version)][origin.index])
        return lines

    def share_parsed_columns(self, version: Version) -> None:
        """Give the version that this one was published as the parts that are known here."""
        for index, column in enumerate(self.columns):
            if isinstance(column.origin, ColumnParts):
                version.cache_column(index, column.origin)

    def files(self) -> set[str]:
        """The files of the columns that were put together since, some of them older."""
        return {
            file
            for column in self.columns
            if isinstance(column.origin, ColumnParts)
            for file in column.origin.files
        }

    def row_group_files(self, start: int = 0, stop: int | None = None) -> list[tuple[int, ...]]:
        """What tells row groups apart: the rows of each, and its file in every column."""
        lines = [self.column(index).k[start:stop] for index in range(len(self.columns))]
        return list(zip(self.head.row_groups[start:stop], *lines, strict=True))

    def row_groups_digest(self) -> bytes:
        """A digest of the rows and files of all row groups, 32 bytes.

        A line that was published is known by its own digest, so it is not read for this.
        """
        if not self._digest:
            digest = hashlib.sha256(array("q", self.head.row_groups).tobytes())
            for column in self.columns:
                digest.update(column.files_digest())
            self._digest.append(digest.digest())
        return self._digest[0]

    def with_columns(
        self,
        columns: Sequence[StagedColumn],
        *,
        schema: pa.Schema | None = None,
        row_groups: Sequence[int] | None = None,
        **others: Any,
    ) -> "StagedVersion":
        """The staged version with these columns instead; `others` are fields of the head."""
        schema = self.schema if schema is None else schema
        if PANDAS_KEY in (schema.metadata or {}):
            others_left = {key: text for key, text in schema.metadata.items() if key != PANDAS_KEY}
            schema = schema.with_metadata(others_left or None)
        if not schema.equals(self.schema, check_metadata=True):
            others |= {"schema": schemas.encode(schema), "fields": schemas.readable(schema)}
        index = manifest.ColumnIndex(
            tuple(column.path for column in columns),
            tuple(column.next_k for column in columns),
            tuple(column.nbytes for column in columns),
            tuple(column.cbytes for column in columns),
        )
        groups = self.head.row_groups if row_groups is None else tuple(row_groups)
        head = replace(self.head, row_groups=groups, columns=index, **others)
        return StagedVersion(self.store, head, schema, columns=tuple(columns))

    def with_row_groups(
        self, order: Sequence[int], rows: Sequence[int], written: Sequence["Written"]
    ) -> "StagedVersion":
        """The row groups at these places of a list of those there are and then those written."""
        both = (*self.head.row_groups, *rows)
        assert len(written) == len(self.columns)
        columns = [self._arranged(index, mine, order) for index, mine in enumerate(written)]
        return self.with_columns(columns, row_groups=[both[place] for place in order])

    def with_parts(self, written: Mapping[int, "Written"], order: Sequence[int]) -> "StagedVersion":
        """Some columns with other parts: of those there are and then those written."""
        columns = list(self.columns)
        for index, mine in written.items():
            columns[index] = self._arranged(index, mine, order)
        return self.with_columns(columns)

    def with_head(self, **fields: Any) -> "StagedVersion":
        """Other fields in the head: attributes, properties."""
        return StagedVersion(
            self.store, replace(self.head, **fields), self.schema, columns=self.columns
        )

    def position(self, name: str) -> int:
        """Where the column of this name is."""
        return schemas.position(self.schema, name, self.store.name)

    @property
    def defaults(self) -> Mapping[str, Json]:
        """The values of new rows, as kept: by column id."""
        kept = self.head.properties.get(DEFAULTS)
        return kept if isinstance(kept, dict) else {}

    def _arranged(self, index: int, written: "Written", order: Sequence[int]) -> StagedColumn:
        parts = self.column(index).arranged(written.parts, order)
        return StagedColumn.made(parts, max(self.columns[index].next_k, written.next_k))


@dataclass(frozen=True, slots=True)
class Written:
    """Parts of a column that were written, and the number after those they have taken."""

    parts: ColumnParts
    next_k: int
