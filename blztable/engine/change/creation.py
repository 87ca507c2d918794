"""The operations on a whole table, which rely on nothing: create, replace, restore."""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from blztable.engine.change import sorting
from blztable.engine.change.sorting import Unsorted
from blztable.engine.run.progress import Callback, Progress
from blztable.engine.version import schema as schemas
from blztable.engine.version import versions
from blztable.engine.version.commit import Commit, Draft
from blztable.engine.version.versions import Version
from blztable.engine.write import sort_keys
from blztable.engine.write.columns import ColumnWriter, keys_of, write_groups
from blztable.engine.write.options import WriteOptions
from blztable.engine.write.row_groups import Portion, row_groups
from blztable.engine.write.sort_keys import SORT_BY, Key
from blztable.errors import TableExistsError
from blztable.format import manifest
from blztable.format.jsontext import Json
from blztable.format.layout import Path
from blztable.storage.store import Lock, Store


@dataclass(frozen=True, slots=True)
class Contents:
    """What a table is to hold, its rows in parts as they come."""

    schema: pa.Schema
    parts: Iterable[Portion]
    # The frame descriptor of so many rows, for they are known at the end only.
    frame: Callable[[int], Mapping[str, Json] | None] = lambda rows: None
    attributes: Mapping[str, Json] | None = None
    # Where it is known, all of them are in memory, in one part.
    rows: int | None = None
    # The order the rows are to have: names, each with its way. Without any, as they come.
    sort_by: Sequence[tuple[str, str]] = ()


def create(
    store: Store,
    contents: Contents,
    options: WriteOptions,
    *,
    replace_existing: bool,
    progress: Callback | None = None,
    commit_id: str | None = None,
) -> tuple[Version, Lock]:
    """Write a table as version 1, or as the next version in place of the one that is there.

    Raises
    ------
    SchemaError
        A type or value that cannot be stored or sorted by; nothing was committed.
    ColumnNotFoundError
        A column to sort by, or of the options, that is not there.
    TableExistsError
        A table is there and is not to be replaced, or the directory is not ours.
    """
    schema = contents.schema
    schemas.check(schema)
    options.check_names(schema.names)
    keys = sort_keys.placed(contents.sort_by, schema, "the data")
    sorting.check(schema, keys)
    with Commit(
        store,
        is_durable=options.is_durable,
        may_create=True,
        is_replacement=replace_existing,
        commit_id=commit_id,
    ) as commit:
        _check_absent(store, commit.base, replace_existing)
        columns = _reserve(commit, schema)
        writes = 2 if keys and contents.rows is None else 1
        told = Progress(progress, contents.rows, writes * len(columns))
        creation = _Creation(store, commit, contents, options, told)
        made = creation.in_order(columns, keys) if keys else creation.as_they_come(columns)
        told.finish(made.head.rows)
        parts = [made.column(index) for index in range(len(columns))]
        lines = [part.encode() for part in parts]
        # A stream that is sorted was written twice.
        files = {file for part in parts for file in part.files}
        properties = options.to_json()
        if keys:
            properties[SORT_BY] = sort_keys.to_json(keys, made.head.columns.paths)

        def draft(newest: Version | None) -> Draft:
            _check_absent(store, newest, replace_existing)
            head = replace(
                made.head,
                uuid=newest.head.uuid if newest else str(uuid.uuid4()),
                next_column=_next_column(newest, made.head.columns.paths),
                properties=_kept_properties(newest) | properties,
                commit_ids=newest.head.commit_ids if newest else (),
            )
            return Draft(head, lines, lambda: files)

        operation = "replace" if commit.base else "create"
        published = commit.publish(operation, draft, lambda: files)
    commit.emit_warnings()
    return published


@dataclass(frozen=True, slots=True)
class _Creation:
    """Writes the rows of a new table; what it makes is a version that is nowhere yet."""

    store: Store
    commit: Commit
    contents: Contents
    options: WriteOptions
    progress: Progress

    def as_they_come(self, columns: Sequence[ColumnWriter]) -> Version:
        """Write all rows."""
        groups = row_groups(self.contents.parts, self.options.row_group_rows)
        return self._made(columns, self._write(columns, groups))

    def in_order(self, columns: Sequence[ColumnWriter], keys: Sequence[Key]) -> Version:
        """Write all rows in the order of the keys, a few columns at a time.

        A stream is written as it comes before: its end has to be known, and it may not fit memory.
        """
        contents, wanted = self.contents, self.options.row_group_rows
        if contents.rows is None:
            made = self.as_they_come(columns)
            unsorted = Unsorted.of_version(made)
            order = unsorted.order(keys)
            if order is None:
                return made
            columns = [replace(one, first_k=one.next_k, parts={}) for one in columns]
        else:
            parts = list(contents.parts)
            [(table, _)] = parts
            unsorted = Unsorted.of_table(table)
            order = unsorted.order(keys)
            if order is None:
                return self._made(columns, self._write(columns, row_groups(parts, wanted)))
        rows: list[int] = []
        for some in unsorted.together():
            rows = self._write(
                [columns[index] for index in some], unsorted.groups(some, order, wanted)
            )
        return self._made(columns, rows)

    def _write(self, columns: Sequence[ColumnWriter], groups: Iterable[Portion]) -> list[int]:
        self.commit.files.note(partial(keys_of, columns))
        return write_groups(self.store, columns, groups, self.options, self.progress)

    def _made(self, columns: Sequence[ColumnWriter], rows: Sequence[int]) -> Version:
        """What was written as a version: its parts are known, so that it can be read."""
        schema, parts = self.contents.schema, [column.finish() for column in columns]
        head = manifest.Head(
            version=0,
            uuid="",
            parent=0,
            commit="",
            writer="",
            time="",
            operation="",
            row_groups=tuple(rows),
            schema=schemas.encode(schema),
            fields=schemas.readable(schema),
            next_column=0,
            durable=False,
            properties={},
            attributes=dict(self.contents.attributes or {}),
            pandas=self.contents.frame(sum(rows)),
            columns=manifest.ColumnIndex(
                paths=tuple(column.path for column in columns),
                next_k=tuple(column.next_k for column in columns),
                nbytes=tuple(part.nbytes for part in parts),
                cbytes=tuple(part.cbytes for part in parts),
            ),
        )
        made = Version(self.store, head, schema)
        for index, part in enumerate(parts):
            made.cache_column(index, part)
        return made


def restore(old: Version, *, is_durable: bool) -> tuple[Version, Lock]:
    """Commit what a version held that is there still, whatever the newest one is.

    The ids of commits are those of the old version: what was committed since is undone.
    """
    store = old.store

    def draft(newest: Version | None) -> Draft:
        # Of a damaged newest version it is not known which ids and numbers it gave out; those
        # that name something are taken, as whoever writes next finds.
        latest = newest or versions.latest(store) or old
        mine, theirs = old.head.columns, latest.head.columns
        used = dict(zip(theirs.paths, theirs.next_k, strict=True))
        next_k = (
            max(k, used.get(path, 0)) for path, k in zip(mine.paths, mine.next_k, strict=True)
        )
        head = replace(
            old.head,
            columns=replace(mine, next_k=tuple(next_k)),
            next_column=max(old.head.next_column, latest.head.next_column),
            properties=dict(old.head.properties) | _kept_properties(latest),
        )
        return Draft(head, old.lines())

    with Commit(store, is_durable=is_durable, base=old, is_replacement=True) as commit:
        published = commit.publish("restore", draft)
    commit.emit_warnings()
    return published


def _check_absent(store: Store, version: Version | None, replace_existing: bool) -> None:
    if version is not None and not replace_existing:
        number = version.head.version
        raise TableExistsError(f"a table is at {store.name} already (version {number})")


def _reserve(commit: Commit, schema: pa.Schema) -> list[ColumnWriter]:
    """A new id for every column."""
    columns = []
    lowest = commit.base.head.next_column if commit.base else 0
    for field in schema:
        number = commit.files.reserve_column(lowest)
        columns.append(ColumnWriter((number,), field.name, field.type, field.nullable))
        lowest = number + 1
    return columns


def _kept_properties(newest: Version | None) -> dict[str, Json]:
    """Properties of the table rather than of the data in it: how long versions are kept."""
    properties = newest.head.properties if newest else {}
    return {name: value for name, value in properties.items() if name.startswith("keep_")}


def _next_column(newest: Version | None, paths: Sequence[Path]) -> int:
    before = newest.head.next_column if newest else 0
    return max([before, *(path[0] + 1 for path in paths)])
