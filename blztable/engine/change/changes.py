"""Changes: each operation as a value that can be made again on another version.

A transaction makes its changes on its base version. If another writer has committed since, the
changes are made again on the newest version. A change whose reliance does not hold there raises
ConflictError, and nothing is committed. A change only names files; they are written before.

A change keeps the read set it relies on (`reliance.py`), not the version itself.

| change | relies on |
| --- | --- |
| Append | the columns, the default values it used; the row count, if an index continues from it |
| Join (merge, compaction, sort) | the columns, and its row groups, still adjacent |
| NoJoin (a sort that found the rows in order) | the same as Join |
| Rewrite (delete), Update | the columns, its row groups, and no added row of its predicate |
| NoRewrite (a delete or update that found no rows) | the same as Rewrite |
| Rows (resize), AddColumns, Retype | the columns and all row groups |
| Rows that a resize added | all default values as well |
| Retype that changes a type | the default value of the column as well |
| Retype that keeps files and allows nulls | the columns |
| NoRows (a resize that found no rows) | the same as Rows |
| Select (drop, reorder), Rename, Reshape (fields that go or get other names) | the columns |
| Reshape (a new field) | the columns and all row groups |
| Keys (attributes, properties, metalayers, tags) | the keys that it changes; their columns |
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa

from blztable.engine.change.reliance import AGAIN, ReadSet, WriteSet, digests
from blztable.engine.version.named_files import named
from blztable.engine.version.staged import (
    APPENDED,
    DEFAULTS,
    NewGroups,
    StagedColumn,
    StagedVersion,
)
from blztable.engine.write.options import BY_COLUMN, joined, split
from blztable.engine.write.sort_keys import SORT_BY, kept
from blztable.errors import ConflictError
from blztable.format import layout
from blztable.format.jsontext import Json, dumps
from blztable.format.manifest import TAGS
from blztable.format.metalayers import FIXED, LayerKey, Layers, check

LAYERS = "metalayers"
NAMES = {
    "attributes": "attribute",
    "properties": "property",
    LAYERS: "metalayer",
    TAGS: "tag",
}
# A key of a mapping in the head, and a value there.
Key = str | LayerKey
Value = Json | bytes


class Change(Protocol):
    """A change that can be made again on another version."""

    def rebase(self, newest: StagedVersion) -> StagedVersion:
        """Return the version with this change; ConflictError if a fact it relies on has changed."""


@dataclass(frozen=True, slots=True)
class Append:
    """Add row groups at the end."""

    read_set: ReadSet
    groups: NewGroups
    written: Sequence[StagedColumn]
    # True if the index of these rows continues from the row count of the version before. A value,
    # not a function: a function would keep the data, and the version before, until the commit.
    continues_index: bool = False
    # The files of the rows, if they were written by others, who may add them as well.
    files: frozenset[str] = frozenset()

    def rebase(self, newest: StagedVersion) -> StagedVersion:
        """Add the row groups to `newest`."""
        self.read_set.check(newest, "an append")
        if newest.head.rows != self.read_set.rows and self.continues_index:
            raise ConflictError(
                f"{newest.store.name}: the index of the appended rows continues from row "
                f"{self.read_set.rows}; version {newest.head.version} has {newest.head.rows} rows; "
                f"{AGAIN}"
            )
        self._check_new(newest)
        changed = [APPENDED] * len(self.groups.rows)
        return newest.with_row_groups(None, self.groups, self.written, changed)

    def _check_new(self, newest: StagedVersion) -> None:
        """Raise ConflictError if the rows of others are in the table."""
        if self.files:
            least = min(layout.number_of(key) for key in self.files)
            if not self.files.isdisjoint(named(newest, least=least)):
                raise ConflictError(
                    f"{newest.store.name}: rows of this fragment are in version "
                    f"{newest.head.version} already; each fragment is committed once"
                )


@dataclass(frozen=True, slots=True)
class Join:
    """Replace adjacent row groups with others that hold the same rows.

    Attributes
    ----------
    start : int
        Index of the first row group that is replaced.
    joined : sequence of bytes
        The digest of each row group that is replaced.
    """

    read_set: ReadSet
    start: int
    joined: Sequence[bytes]
    groups: NewGroups
    written: Sequence[StagedColumn]

    @classmethod
    def of(
        cls,
        staged: StagedVersion,
        start: int,
        stop: int,
        groups: NewGroups,
        written: Sequence[StagedColumn],
    ) -> Self:
        """Return the change that replaces row groups `start` to `stop` of a staged version."""
        joined = digests(staged, range(start, stop))
        return cls(ReadSet.columns_of(staged), start, joined, groups, written)

    def rebase(self, newest: StagedVersion) -> StagedVersion:
        """Replace the row groups at their present indices in `newest`."""
        start = self.find(newest)
        stop, count = start + len(self.joined), newest.group_count
        made = count + len(self.groups.rows)
        order = np.r_[0:start, count:made, stop:count]
        # A joined row group has rows of all.
        changed = [max(_changed(newest, range(start, stop)), default=0)] * (made - count)
        return newest.with_row_groups(order, self.groups, self.written, changed)

    def find(self, newest: StagedVersion) -> int:
        """Return the index of the first joined row group in `newest`."""
        self.read_set.check(newest, "joining row groups")
        count = len(self.joined)
        stop = self.start + count
        if stop <= newest.group_count and (digests(newest, range(self.start, stop)) == self.joined):
            return self.start
        present = digests(newest, range(newest.group_count))
        for start in range(len(present) - count + 1):
            if present[start : start + count] == self.joined:
                return start
        raise ConflictError(
            f"{newest.store.name}: the row groups to join were changed by another commit; {AGAIN}"
        )


@dataclass(frozen=True, slots=True)
class NoJoin:
    """Change nothing, for a sort that found the rows in order.

    The order of these rows is recorded, so they must still be there.
    """

    join: Join

    @classmethod
    def of(cls, staged: StagedVersion) -> Self:
        """Return the change that relies on all row groups of a staged version."""
        return cls(Join.of(staged, 0, staged.group_count, NewGroups(), []))

    def rebase(self, newest: StagedVersion) -> StagedVersion:
        """Return `newest` unchanged."""
        self.join.find(newest)
        return newest


@dataclass(frozen=True, slots=True)
class Rows:
    """Remove, replace or add row groups, by their places in the table.

    Attributes
    ----------
    order : sequence of int or None
        Indices into the present row groups followed by the written ones; None for all of them.
    """

    read_set: ReadSet
    order: Sequence[int] | None
    groups: NewGroups
    written: Sequence[StagedColumn]

    def rebase(self, newest: StagedVersion) -> StagedVersion:
        """Arrange the row groups."""
        self.read_set.check(newest, "removing or adding rows")
        return newest.with_row_groups(self.order, self.groups, self.written)


@dataclass(frozen=True, slots=True)
class NoRows:
    """Change nothing, for a resize that found no rows.

    Another commit may have added rows since, so the change relies on all rows.
    """

    read_set: ReadSet

    def rebase(self, newest: StagedVersion) -> StagedVersion:
        """Return `newest` unchanged."""
        self.read_set.check(newest, "a change that found no row")
        return newest


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Remove rows of some row groups: name them as deleted, or replace the row group.

    Attributes
    ----------
    deleted : sequence of bytes or None
        For each row group, all its deleted rows; None if another one, or none, takes its place.
    left : sequence of bool
        For each other row group, True if a written one takes its place.
    """

    write_set: WriteSet
    deleted: Sequence[bytes | None]
    left: Sequence[bool]
    groups: NewGroups
    written: Sequence[StagedColumn]

    def rebase(self, newest: StagedVersion) -> StagedVersion:
        """Change the row groups at their present indices in `newest`."""
        groups, count = self.write_set.find(newest, "removing rows"), newest.group_count
        both = list(zip(groups, self.deleted, strict=True))
        newest = newest.with_deleted({group: rows for group, rows in both if rows is not None})
        groups = [group for group, rows in both if rows is None]
        if not groups:
            # The records of the columns stay as they are.
            return newest
        left = [group for group, is_left in zip(groups, self.left, strict=True) if is_left]
        order = np.arange(count)
        order[left] = count + np.arange(len(left))
        gone = [group for group, is_left in zip(groups, self.left, strict=True) if not is_left]
        changed = _changed(newest, left)
        return newest.with_row_groups(np.delete(order, gone), self.groups, self.written, changed)


@dataclass(frozen=True, slots=True)
class NoRewrite:
    """Change nothing, for a change that found none of the rows that it looked for."""

    write_set: WriteSet

    def rebase(self, newest: StagedVersion) -> StagedVersion:
        """Return `newest` unchanged."""
        self.write_set.find(newest, "a change that found no row")
        return newest


@dataclass(frozen=True, slots=True)
class NoMoreRows:
    """Change nothing, for an erase that looked for the categories of all rows."""

    rows: int

    def rebase(self, newest: StagedVersion) -> StagedVersion:
        """Return `newest` unchanged."""
        if newest.head.rows != self.rows:
            raise ConflictError(
                f"{newest.store.name}: version {newest.head.version} has other rows than those "
                f"whose categories were erased; {AGAIN}"
            )
        return newest


@dataclass(frozen=True, slots=True)
class Update:
    """Replace parts of some columns. The keys of `written` are lines: nodes of columns.

    The new parts have values for deleted rows, too.
    """

    write_set: WriteSet
    written: Mapping[int, StagedColumn]

    def rebase(self, newest: StagedVersion) -> StagedVersion:
        """Replace the parts of the row groups at their present indices in `newest`."""
        groups = self.write_set.find(newest, "an update")
        return newest.with_parts(self.written, groups)


@dataclass(frozen=True, slots=True)
class AddColumns:
    """Add columns at the end.

    `defaults` holds default values by column id, `meta` the fixed metalayers of the first column.
    """

    read_set: ReadSet
    fields: Sequence[pa.Field]
    written: Sequence[StagedColumn]
    defaults: Mapping[str, Json]
    frame: Mapping[str, Json] | None
    meta: Mapping[str, bytes] = field(default_factory=dict)

    def rebase(self, newest: StagedVersion) -> StagedVersion:
        """Add the columns to `newest`."""
        self.read_set.check(newest, "adding a column")
        schema = pa.schema([*newest.schema, *self.fields], newest.schema.metadata)
        top = max((max(column.path) + 1 for column in self.written), default=0)
        layers = dict(newest.head.metalayers)
        for name, content in self.meta.items():
            layers[LayerKey(str(self.written[0].path[0]), FIXED, name)] = content
        check(layers)
        return newest.with_columns(
            [*newest.columns, *self.written],
            schema=schema,
            next_column=max(newest.head.next_column, top),
            properties=with_defaults(newest, self.defaults),
            pandas=self.frame,
            metalayers=layers,
        )


@dataclass(frozen=True, slots=True)
class Retype:
    """Change the fields of columns, by index. The columns in `written` are written again.

    `defaults` holds their new default values by column id, None for no default.
    """

    read_set: ReadSet
    fields: Mapping[int, pa.Field]
    written: Mapping[int, Sequence[StagedColumn]]
    defaults: Mapping[str, Json]
    frame: Mapping[str, Json] | None

    def rebase(self, newest: StagedVersion) -> StagedVersion:
        """Replace the columns."""
        self.read_set.check(newest, "changing the type of a column")
        columns: list[StagedColumn] = []
        before = newest.columns
        fields = [self.fields.get(index, field) for index, field in enumerate(newest.schema)]
        for index in range(len(fields)):
            present = [before[line] for line in newest.nodes(index)]
            columns += self.written.get(index, present)
        written = [node for nodes in self.written.values() for node in nodes]
        top = max((max(node.path) + 1 for node in written), default=0)
        return newest.with_columns(
            columns,
            schema=pa.schema(fields, newest.schema.metadata),
            is_changed=bool(written),
            next_column=max(newest.head.next_column, top),
            properties=with_defaults(newest, self.defaults),
            pandas=self.frame,
        )


@dataclass(frozen=True, slots=True)
class Select:
    """Keep the columns at these indices, in this order."""

    read_set: ReadSet
    indices: Sequence[int]
    frame: Mapping[str, Json] | None

    def rebase(self, newest: StagedVersion) -> StagedVersion:
        """Select the columns of `newest`."""
        self.read_set.check(newest, "dropping or ordering columns")
        lines, before = (
            [line for index in self.indices for line in newest.nodes(index)],
            newest.columns,
        )
        columns = [before[line] for line in lines]
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
    """Rename columns. `names` maps present names to new ones."""

    read_set: ReadSet
    names: Mapping[str, str]
    frame: Mapping[str, Json] | None

    def rebase(self, newest: StagedVersion) -> StagedVersion:
        """Rename the columns of `newest`."""
        self.read_set.check(newest, "renaming columns")
        new = {name: self.names.get(name, name) for name in newest.schema.names}
        fields = [field.with_name(new[field.name]) for field in newest.schema]
        schema = pa.schema(fields, newest.schema.metadata)
        properties = _named(newest.head.properties, new.get)
        return newest.with_columns(
            newest.columns, schema=schema, properties=properties, pandas=self.frame
        )


@dataclass(frozen=True, slots=True)
class Keys:
    """Set or remove keys of a mapping in the head: attributes, properties, metalayers or tags.

    Attributes
    ----------
    before : mapping
        The values before, as JSON text, in which 1 and true differ; None for a missing key.
    """

    mapping: str
    before: Mapping[Key, bytes | None]
    changes: Mapping[Key, Value]
    removed: frozenset[Key]

    @classmethod
    def of(
        cls,
        staged: StagedVersion,
        mapping: str,
        changes: Mapping[Any, Value],
        removed: Iterable[Key] = (),
    ) -> Self:
        """Return the change that sets or removes keys of a mapping of a staged version."""
        values, removed = getattr(staged.head, mapping), frozenset(removed)
        before = {key: _text(values, key) for key in (*changes, *removed)}
        return cls(mapping, before, changes, removed)

    def rebase(self, newest: StagedVersion) -> StagedVersion:
        """Set and remove the keys in `newest`."""
        values = getattr(newest.head, self.mapping)
        for key, before in self.before.items():
            if _text(values, key) != before:
                name = key.name if isinstance(key, LayerKey) else key
                raise ConflictError(
                    f"{newest.store.name}: {NAMES[self.mapping]} {name!r} was changed by version "
                    f"{newest.head.version} or an earlier one; {AGAIN}"
                )
        kept = {key: value for key, value in values.items() if key not in self.removed}
        changed = kept | dict(self.changes)
        if self.mapping == LAYERS:
            _check_layers(newest, changed)
        return newest.with_head(**{self.mapping: changed})


def _changed(newest: StagedVersion, groups: Sequence[int]) -> list[int]:
    """Return which version last put rows into each of these row groups."""
    changed = newest.group_records(np.array(groups, np.int64))["changed"]
    return np.maximum(changed, newest.head.changed).tolist()


def is_blind(changes: Iterable[Change]) -> bool:
    """Return True if these changes look at no rows: appends, and keys of the head."""
    return all(
        isinstance(change, Keys) or (isinstance(change, Append) and not change.continues_index)
        for change in changes
    )


def _check_layers(newest: StagedVersion, layers: Layers) -> None:
    """Raise ConflictError if a column is gone, LimitError if there are too many metalayers."""
    ids = {"", *(str(path[0]) for path in newest.paths)}
    if any(key.owner not in ids for key in layers):
        raise ConflictError(
            f"{newest.store.name}: a column whose metalayer was changed is gone from version "
            f"{newest.head.version}; {AGAIN}"
        )
    check(layers)


def _text(mapping: Mapping[Any, Value], key: Key) -> bytes | None:
    """Return a value as JSON text, or the bytes that it is; None for a missing key."""
    if key not in mapping:
        return None
    value = mapping[key]
    return value if isinstance(value, bytes) else dumps(value)


def with_defaults(newest: StagedVersion, defaults: Mapping[str, Json]) -> dict[str, Json]:
    """Return the properties of `newest` with these default values set, or removed if None."""
    properties = dict(newest.head.properties)
    if defaults:
        both = {**newest.defaults, **defaults}
        properties[DEFAULTS] = {key: text for key, text in both.items() if text is not None}
    return properties


def _named(properties: Mapping[str, Json], rename: Callable[[str], str | None]) -> dict[str, Json]:
    """Return the properties with renamed columns; a column renamed to None is left out."""
    result = dict(properties)
    for option in BY_COLUMN:
        whole, own = split(result.get(option))
        if own:
            pairs = ((rename(name), choice) for name, choice in own.items())
            kept = {name: choice for name, choice in pairs if name is not None}
            result[option] = joined(whole, kept)
    return result
