"""Changes: what an operation makes of a version, and what of it must not have changed meanwhile.

A transaction makes its changes on the version it began with. If others have committed since, they
are made again on the newest version, where that still has what each relies on; else it is a
ConflictError, and nothing is committed. Files are written before; a change only names them.

A change keeps what it relies on (`Seen`) and not the version that it saw: a transaction may make
thousands of changes, and each version knows the parts of all row groups.

| change | relies on |
| --- | --- |
| Append | the columns; the number of rows, where an index counts on from them |
| Join (of row groups: merge, compaction) | the columns, and its row groups, side by side |
| Rows (delete, truncate, resize), Update, AddColumns, Retype | the columns and all row groups |
| NoRows (a delete, update, truncate or resize that found nothing to do) | the same |
| Select (drop, reorder), Rename | the columns |
| Keys (attributes, properties) | the keys that it sets |
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

import pyarrow as pa

from blztable.engine.change.staged import DEFAULTS, StagedColumn, StagedVersion, Written
from blztable.engine.write.options import BY_COLUMN
from blztable.engine.write.sort_keys import SORT_BY, kept
from blztable.errors import ConflictError
from blztable.format.jsontext import Json, dumps
from blztable.format.layout import Path

AGAIN = "open the table again and repeat it"
NAMES = {"attributes": "attribute", "properties": "property"}


class Change(Protocol):
    """One change, that can be made again on another version."""

    def rebase(self, newest: StagedVersion) -> StagedVersion:
        """The version with this change; ConflictError where it is not what it relies on."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a change saw of the version that it was made on, as far as it relies on it.

    Attributes
    ----------
    version : int
        The number of the version below the change.
    rows : int
        Rows of that version.
    columns : tuple
        Ids, schema and frame descriptor, to be compared.
    row_groups : bytes or None
        Digest of the rows and files of all row groups; None if the change does not rely on them.
    """

    version: int
    rows: int
    columns: tuple[tuple[Path, ...], pa.Schema, Mapping[str, Json] | None]
    row_groups: bytes | None = None

    @classmethod
    def columns_of(cls, staged: StagedVersion) -> Self:
        """The columns, and how many rows there are."""
        head = staged.head
        columns = (head.columns.paths, staged.schema, head.pandas)
        return cls(head.version, head.rows, columns)

    @classmethod
    def rows_of(cls, staged: StagedVersion) -> Self:
        """The columns and all row groups."""
        return replace(cls.columns_of(staged), row_groups=staged.row_groups_digest())

    def check(self, newest: StagedVersion, doing: str) -> None:
        """ConflictError if `newest` differs in what was seen."""
        paths, schema, frame = self.columns
        head, name = newest.head, newest.store.name
        if paths != head.columns.paths or not schema.equals(newest.schema) or frame != head.pandas:
            if self.version == head.version:
                raise ConflictError(
                    f"{name}: the transaction changed its own columns while {doing} was under "
                    "way; change the columns before it or after it"
                )
            raise ConflictError(
                f"{name}: {doing} relies on the columns of version {self.version}; "
                f"those of version {head.version} are others: {AGAIN}"
            )
        if self.row_groups is not None and self.row_groups != newest.row_groups_digest():
            raise ConflictError(
                f"{name}: {doing} relies on the rows of version {self.version}; "
                f"those of version {head.version} are others: {AGAIN}"
            )


@dataclass(frozen=True, slots=True)
class Append:
    """Row groups at the end."""

    seen: Seen
    rows: Sequence[int]
    written: Sequence[Written]
    # Whether these rows go on from exactly the rows that were there: their index, or a resize.
    continues_index: Callable[[], bool] = lambda: False

    def rebase(self, newest: StagedVersion) -> StagedVersion:
        """More rows."""
        self.seen.check(newest, "an append")
        if newest.head.rows != self.seen.rows and self.continues_index():
            raise ConflictError(
                f"{newest.store.name}: what is appended goes on from row {self.seen.rows}; "
                f"version {newest.head.version} has {newest.head.rows} rows: {AGAIN}"
            )
        order = range(len(newest.head.row_groups) + len(self.rows))
        return newest.with_row_groups(order, self.rows, self.written)


@dataclass(frozen=True, slots=True)
class Join:
    """The same rows in other row groups: those joined become the ones written."""

    seen: Seen
    # Where the first of them was, and the rows and files of each.
    start: int
    joined: Sequence[tuple[int, ...]]
    rows: Sequence[int]
    written: Sequence[Written]

    @classmethod
    def of(
        cls,
        staged: StagedVersion,
        start: int,
        stop: int,
        rows: Sequence[int],
        written: Sequence[Written],
    ) -> Self:
        """The row groups of a staged version from `start` to `stop`, joined."""
        joined = staged.row_group_files(start, stop)
        return cls(Seen.columns_of(staged), start, joined, rows, written)

    def rebase(self, newest: StagedVersion) -> StagedVersion:
        """The same rows, wherever they lie by now."""
        self.seen.check(newest, "joining row groups")
        start = self._place(newest)
        stop, there = start + len(self.joined), len(newest.head.row_groups)
        order = [*range(start), *range(there, there + len(self.rows)), *range(stop, there)]
        return newest.with_row_groups(order, self.rows, self.written)

    def _place(self, newest: StagedVersion) -> int:
        # Where they were, most often.
        count = len(self.joined)
        if newest.row_group_files(self.start, self.start + count) == self.joined:
            return self.start
        there = newest.row_group_files()
        for start in range(len(there) - count + 1):
            if there[start : start + count] == self.joined:
                return start
        raise ConflictError(
            f"{newest.store.name}: row groups to be joined were changed meanwhile: {AGAIN}"
        )


@dataclass(frozen=True, slots=True)
class Rows:
    """Fewer or more rows: row groups left out, or replaced by those written, or these added."""

    seen: Seen
    # Places in a list of the row groups that are there and then of those written.
    order: Sequence[int]
    rows: Sequence[int]
    written: Sequence[Written]

    def rebase(self, newest: StagedVersion) -> StagedVersion:
        """The rows that are to be there."""
        self.seen.check(newest, "removing or adding rows")
        return newest.with_row_groups(self.order, self.rows, self.written)


@dataclass(frozen=True, slots=True)
class NoRows:
    """Nothing: a delete, update, truncate or resize that found no row to change.

    Rows that it would have found may have come since, so it relies on what it looked at.
    """

    seen: Seen

    def rebase(self, newest: StagedVersion) -> StagedVersion:
        """The version as it is."""
        self.seen.check(newest, "a change that found no row")
        return newest


@dataclass(frozen=True, slots=True)
class Update:
    """Other values: parts of some columns replaced by those written."""

    seen: Seen
    order: Sequence[int]
    # By the position of the column.
    written: Mapping[int, Written]

    def rebase(self, newest: StagedVersion) -> StagedVersion:
        """The new values."""
        self.seen.check(newest, "an update")
        return newest.with_parts(self.written, self.order)


@dataclass(frozen=True, slots=True)
class AddColumns:
    """Columns behind those there are."""

    seen: Seen
    fields: Sequence[pa.Field]
    written: Sequence[Written]
    # Default values by column id.
    defaults: Mapping[str, Json]
    frame: Mapping[str, Json] | None

    def rebase(self, newest: StagedVersion) -> StagedVersion:
        """More columns."""
        self.seen.check(newest, "adding a column")
        schema = pa.schema([*newest.schema, *self.fields], newest.schema.metadata)
        columns = [StagedColumn.made(one.parts, one.next_k) for one in self.written]
        top = max((column.path[0] + 1 for column in columns), default=0)
        return newest.with_columns(
            [*newest.columns, *columns],
            schema=schema,
            next_column=max(newest.head.next_column, top),
            properties=_with_defaults(newest, self.defaults),
            pandas=self.frame,
        )


@dataclass(frozen=True, slots=True)
class Retype:
    """Columns of other types, by position, all their parts written anew."""

    seen: Seen
    fields: Mapping[int, pa.Field]
    written: Mapping[int, Written]
    # Default values of these columns as ones of the new types, by column id.
    defaults: Mapping[str, Json]
    frame: Mapping[str, Json] | None

    def rebase(self, newest: StagedVersion) -> StagedVersion:
        """The wider columns."""
        self.seen.check(newest, "widening a column")
        columns, fields = list(newest.columns), list(newest.schema)
        for index, written in self.written.items():
            next_k = max(columns[index].next_k, written.next_k)
            columns[index] = StagedColumn.made(written.parts, next_k)
            fields[index] = self.fields[index]
        schema = pa.schema(fields, newest.schema.metadata)
        properties = _with_defaults(newest, self.defaults)
        return newest.with_columns(columns, schema=schema, properties=properties, pandas=self.frame)


@dataclass(frozen=True, slots=True)
class Select:
    """Some of the columns, in any order."""

    seen: Seen
    indices: Sequence[int]
    frame: Mapping[str, Json] | None

    def rebase(self, newest: StagedVersion) -> StagedVersion:
        """These columns."""
        self.seen.check(newest, "dropping or ordering columns")
        columns = [newest.columns[index] for index in self.indices]
        fields = [newest.schema.field(index) for index in self.indices]
        names = {field.name for field in fields}
        ids = {str(column.path[0]) for column in columns}
        properties = _named(newest.head.properties, lambda name: name if name in names else None)
        if not kept(properties, [column.path for column in columns]):
            properties.pop(SORT_BY, None)
        if newest.defaults:
            properties[DEFAULTS] = {
                key: newest.defaults[key] for key in newest.defaults if key in ids
            }
        schema = pa.schema(fields, newest.schema.metadata)
        return newest.with_columns(columns, schema=schema, properties=properties, pandas=self.frame)


@dataclass(frozen=True, slots=True)
class Rename:
    """Other names of columns."""

    seen: Seen
    names: Mapping[str, str]
    frame: Mapping[str, Json] | None

    def rebase(self, newest: StagedVersion) -> StagedVersion:
        """The same columns by these names."""
        self.seen.check(newest, "renaming columns")
        new = {name: self.names.get(name, name) for name in newest.schema.names}
        fields = [field.with_name(new[field.name]) for field in newest.schema]
        schema = pa.schema(fields, newest.schema.metadata)
        properties = _named(newest.head.properties, new.get)
        return newest.with_columns(
            newest.columns, schema=schema, properties=properties, pandas=self.frame
        )


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys of a mapping in the head set or removed: of `attributes` or `properties`."""

    mapping: str
    # The values before, as JSON, in which 1 and true are two; None where there was none.
    before: Mapping[str, bytes | None]
    changes: Mapping[str, Json]
    removed: frozenset[str]

    @classmethod
    def of(
        cls,
        staged: StagedVersion,
        mapping: str,
        changes: Mapping[str, Json],
        removed: Iterable[str] = (),
    ) -> Self:
        """Keys of this mapping of a staged version, set or removed."""
        there, gone = getattr(staged.head, mapping), frozenset(removed)
        before = {key: _text(there, key) for key in (*changes, *gone)}
        return cls(mapping, before, changes, gone)

    def rebase(self, newest: StagedVersion) -> StagedVersion:
        """The mapping with these keys."""
        there = getattr(newest.head, self.mapping)
        for key, before in self.before.items():
            if _text(there, key) != before:
                raise ConflictError(
                    f"{newest.store.name}: {NAMES[self.mapping]} {key!r} was changed by version "
                    f"{newest.head.version} or one before it: {AGAIN}"
                )
        kept = {key: value for key, value in there.items() if key not in self.removed}
        return newest.with_head(**{self.mapping: kept | dict(self.changes)})


def _text(mapping: Mapping[str, Json], key: str) -> bytes | None:
    """A value as JSON, in which 1 and true are two; None where there is none."""
    return dumps(mapping[key]) if key in mapping else None


def _with_defaults(newest: StagedVersion, defaults: Mapping[str, Json]) -> dict[str, Json]:
    """The properties, with these default values among the others."""
    properties = dict(newest.head.properties)
    if defaults:
        properties[DEFAULTS] = {**newest.defaults, **defaults}
    return properties


def _named(properties: Mapping[str, Json], rename: Callable[[str], str | None]) -> dict[str, Json]:
    """The properties, in those that differ by column each column by its new name or not at all."""
    result = dict(properties)
    for option in BY_COLUMN:
        value = result.get(option)
        if isinstance(value, dict):
            pairs = ((rename(name), choice) for name, choice in value.items())
            result[option] = {name: choice for name, choice in pairs if name is not None}
    return result
