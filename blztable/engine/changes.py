"""Changes: what an operation makes of a version, and what of it must not have changed meanwhile.

A transaction makes its changes on the version it began with. If others have committed since, they
are made again on the newest version, where that still has what each relies on; else it is a
ConflictError, and nothing is committed. Files are written before; a change only names them.

| change | relies on |
| --- | --- |
| Append | the columns; the number of rows, where an index counts on from them |
| Join (of row groups: merge, compaction) | the columns, and its row groups, side by side |
| Rows (delete, truncate, resize), Update, AddColumns, Retype | the columns and all row groups |
| Select (drop, reorder), Rename | the columns |
| Keys (attributes, properties) | the keys that it sets |
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from blztable.engine.edition import DEFAULTS, Edition, EditionColumn, Written
from blztable.engine.options import BY_COLUMN
from blztable.engine.sort_keys import SORT_BY, kept
from blztable.errors import ConflictError
from blztable.format.jsontext import Json, dumps

AGAIN = "open the table again and repeat it"
NAMES = {"attributes": "attribute", "properties": "property"}


class Change(Protocol):
    """One change, that can be made again on another version."""

    def onto(self, newest: Edition) -> Edition:
        """The version with this change; ConflictError where it is not what it relies on."""


@dataclass(frozen=True, slots=True)
class Append:
    """Row groups at the end."""

    seen: Edition
    rows: Sequence[int]
    written: Sequence[Written]
    # Whether these rows go on from exactly the rows that were there: their index, or a resize.
    counts_on: Callable[[], bool] = lambda: False

    def onto(self, newest: Edition) -> Edition:
        """More rows."""
        _check_columns(self.seen, newest, "an append")
        if newest.head.rows != self.seen.head.rows and self.counts_on():
            raise ConflictError(
                f"{newest.store.name}: what is appended goes on from row {self.seen.head.rows}; "
                f"version {newest.head.version} has {newest.head.rows} rows: {AGAIN}"
            )
        order = range(len(newest.head.row_groups) + len(self.rows))
        return newest.with_row_groups(order, self.rows, self.written)


@dataclass(frozen=True, slots=True)
class Join:
    """The same rows in other row groups: those from `start` to `stop` become the ones written."""

    seen: Edition
    start: int
    stop: int
    rows: Sequence[int]
    written: Sequence[Written]

    def onto(self, newest: Edition) -> Edition:
        """The same rows, wherever they lie by now."""
        _check_columns(self.seen, newest, "joining row groups")
        start = self._place(newest)
        stop, there = start + self.stop - self.start, len(newest.head.row_groups)
        order = [*range(start), *range(there, there + len(self.rows)), *range(stop, there)]
        return newest.with_row_groups(order, self.rows, self.written)

    def _place(self, newest: Edition) -> int:
        if newest is self.seen:
            return self.start
        wanted = _files(self.seen, self.start, self.stop)
        # Where they were, most often.
        if _files(newest, self.start, self.stop) == wanted:
            return self.start
        there = _files(newest)
        for start in range(len(there) - len(wanted) + 1):
            if there[start : start + len(wanted)] == wanted:
                return start
        raise ConflictError(
            f"{newest.store.name}: row groups to be joined were changed meanwhile: {AGAIN}"
        )


@dataclass(frozen=True, slots=True)
class Rows:
    """Fewer or more rows: row groups left out, or replaced by those written, or these added."""

    seen: Edition
    # Places in a list of the row groups that are there and then of those written.
    order: Sequence[int]
    rows: Sequence[int]
    written: Sequence[Written]

    def onto(self, newest: Edition) -> Edition:
        """The rows that are to be there."""
        _check_row_groups(self.seen, newest, "removing or adding rows")
        return newest.with_row_groups(self.order, self.rows, self.written)


@dataclass(frozen=True, slots=True)
class Update:
    """Other values: parts of some columns replaced by those written."""

    seen: Edition
    order: Sequence[int]
    # By the position of the column.
    written: Mapping[int, Written]

    def onto(self, newest: Edition) -> Edition:
        """The new values."""
        _check_row_groups(self.seen, newest, "an update")
        return newest.with_parts(self.written, self.order)


@dataclass(frozen=True, slots=True)
class AddColumns:
    """Columns behind those there are."""

    seen: Edition
    fields: Sequence[pa.Field]
    written: Sequence[Written]
    # Default values by column id.
    defaults: Mapping[str, Json]
    frame: Mapping[str, Json] | None

    def onto(self, newest: Edition) -> Edition:
        """More columns."""
        _check_row_groups(self.seen, newest, "adding a column")
        schema = pa.schema([*newest.schema, *self.fields], newest.schema.metadata)
        columns = [EditionColumn.made(one.parts, one.next_k) for one in self.written]
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

    seen: Edition
    fields: Mapping[int, pa.Field]
    written: Mapping[int, Written]
    # Default values of these columns as ones of the new types, by column id.
    defaults: Mapping[str, Json]
    frame: Mapping[str, Json] | None

    def onto(self, newest: Edition) -> Edition:
        """The wider columns."""
        _check_row_groups(self.seen, newest, "widening a column")
        columns, fields = list(newest.columns), list(newest.schema)
        for index, written in self.written.items():
            next_k = max(columns[index].next_k, written.next_k)
            columns[index] = EditionColumn.made(written.parts, next_k)
            fields[index] = self.fields[index]
        schema = pa.schema(fields, newest.schema.metadata)
        properties = _with_defaults(newest, self.defaults)
        return newest.with_columns(columns, schema=schema, properties=properties, pandas=self.frame)


@dataclass(frozen=True, slots=True)
class Select:
    """Some of the columns, in any order."""

    seen: Edition
    indices: Sequence[int]
    frame: Mapping[str, Json] | None

    def onto(self, newest: Edition) -> Edition:
        """These columns."""
        _check_columns(self.seen, newest, "dropping or ordering columns")
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

    seen: Edition
    names: Mapping[str, str]
    frame: Mapping[str, Json] | None

    def onto(self, newest: Edition) -> Edition:
        """The same columns by these names."""
        _check_columns(self.seen, newest, "renaming columns")
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

    seen: Edition
    mapping: str
    changes: Mapping[str, Json]
    removed: frozenset[str] = frozenset()

    def onto(self, newest: Edition) -> Edition:
        """The mapping with these keys."""
        there = getattr(newest.head, self.mapping)
        before = getattr(self.seen.head, self.mapping)
        for key in (*self.changes, *self.removed):
            if _text(there, key) != _text(before, key):
                raise ConflictError(
                    f"{newest.store.name}: {NAMES[self.mapping]} {key!r} was changed by version "
                    f"{newest.head.version} or one before it: {AGAIN}"
                )
        kept = {key: value for key, value in there.items() if key not in self.removed}
        return newest.with_head(**{self.mapping: kept | dict(self.changes)})


def _check_columns(seen: Edition, newest: Edition, doing: str) -> None:
    if newest is seen:
        return
    if (
        seen.head.columns.paths != newest.head.columns.paths
        or not seen.schema.equals(newest.schema)
        or seen.head.pandas != newest.head.pandas
    ):
        raise ConflictError(
            f"{newest.store.name}: {doing} relies on the columns of version "
            f"{seen.head.version}; those of version {newest.head.version} are others: {AGAIN}"
        )


def _check_row_groups(seen: Edition, newest: Edition, doing: str) -> None:
    _check_columns(seen, newest, doing)
    if newest is not seen and _files(seen) != _files(newest):
        raise ConflictError(
            f"{newest.store.name}: {doing} relies on the rows of version {seen.head.version}; "
            f"those of version {newest.head.version} are others: {AGAIN}"
        )


def _text(mapping: Mapping[str, Json], key: str) -> bytes | None:
    """A value as JSON, in which 1 and true are two; None where there is none."""
    return dumps(mapping[key]) if key in mapping else None


def _files(edition: Edition, start: int = 0, stop: int | None = None) -> list[tuple[int, ...]]:
    """What tells row groups apart: their rows and the files of all columns."""
    lines = [edition.column(index).k[start:stop] for index in range(len(edition.columns))]
    return list(zip(edition.head.row_groups[start:stop], *lines, strict=True))


def _with_defaults(newest: Edition, defaults: Mapping[str, Json]) -> dict[str, Json]:
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
