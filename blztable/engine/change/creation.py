"""Creation: create, replace or restore a whole table. These operations rely on no version.

Knows nothing of changes and rebasing.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa

from blztable.arrow.types import Portion
from blztable.columns.digits import rounded
from blztable.columns.types import has_items
from blztable.engine.change import sorting
from blztable.engine.change.change_set import ChangeSet
from blztable.engine.change.drafts import Drafts, check_nothing_whole
from blztable.engine.change.rows import Run, append_runs
from blztable.engine.change.sorting import Unsorted
from blztable.engine.run.pool import Callback, Progress
from blztable.engine.version import schema as schemas
from blztable.engine.version import versions
from blztable.engine.version.commit import Commit, Plan
from blztable.engine.version.schema import paths_of
from blztable.engine.version.staged import (
    NewGroups,
    StagedVersion,
    claims_of,
    column_index,
)
from blztable.engine.version.versions import Version
from blztable.engine.write import sort_keys
from blztable.engine.write.bundles import BundleWriter
from blztable.engine.write.column_writer import ColumnWriter, staged_columns, writers_of
from blztable.engine.write.columns import write_groups
from blztable.engine.write.options import (
    CHECKSUM,
    Storage,
    check_columns,
    group_rows_of,
    is_packed,
    properties_of,
)
from blztable.engine.write.row_groups import row_groups
from blztable.engine.write.sort_keys import SORT_BY, Key
from blztable.errors import SchemaError, TableExistsError, TableNotFoundError
from blztable.format import manifest
from blztable.format.jsontext import Json
from blztable.format.layout import Path
from blztable.format.metalayers import FIXED, LayerKey, Layers, check
from blztable.storage.store import Lock, Store


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a new table.

    Attributes
    ----------
    parts : iterable
        The rows, in order.
    frame : callable
        Returns the frame descriptor for a number of rows, which is known only at the end.
    rows : int or None
        Number of rows if they are all in memory, in one part.
    sort_by : sequence of tuple
        Names with directions to sort the rows by; empty to keep their order.
    more : iterable
        Runs of later rows that need a wider schema, drawn after `parts`.
    """

    schema: pa.Schema
    parts: Iterable[Portion]
    frame: Callable[[int], Mapping[str, Json] | None] = lambda rows: None
    attributes: Mapping[str, Json] | None = None
    rows: int | None = None
    sort_by: Sequence[tuple[str, str]] = ()
    more: Iterable[Run] = ()

    def later_runs(self) -> Iterator[Run]:
        """Yield the runs of `more`, in which columns keep as many digits as in `schema`."""
        kept = list(map(schemas.digits_of, self.schema))
        for schema, frame, parts in self.more:
            fields = [
                schemas.with_digits(field, digits) if pa.types.is_floating(field.type) else field
                for field, digits in zip(schema, kept, strict=False)
            ]
            rest = list(schema)[len(kept) :]
            yield pa.schema([*fields, *rest], schema.metadata), frame, parts


def create(
    store: Store,
    contents: Contents,
    storage: Storage,
    *,
    replace_existing: bool,
    is_durable: bool = True,
    progress: Callback | None = None,
    commit_id: str | None = None,
) -> tuple[Version, Lock]:
    """Write a table as version 1, or as the next version that replaces an existing table.

    Raises
    ------
    SchemaError
        A type or value cannot be stored or sorted by; nothing is committed.
    ColumnNotFoundError
        A column of `sort_by` or of the options does not exist.
    TableExistsError
        A table exists and may not be replaced, or the directory holds other files.
    """
    schema = contents.schema
    schemas.check(schema)
    check_columns(storage, schema.names)
    _check_packing(schema, storage)
    storage = replace(storage, checksum=storage.checksum or CHECKSUM)
    keys = sort_keys.placed(contents.sort_by, schema, "the data")
    sorting.check(schema, keys)
    owned = {
        schemas.index_of(schema, name, "the data"): own.meta
        for name, own in (storage.columns or {}).items()
        if own.meta
    }
    plan = Plan(
        store,
        is_durable,
        may_create=True,
        is_replacement=replace_existing,
        commit_id=commit_id,
    )
    if not replace_existing:
        check_nothing_whole(store)
    with Commit(plan) as commit:
        _check_absent(store, commit.base, replace_existing)
        paths = commit.files.reserve_columns(len(schema))
        columns = [
            writers_of(field, paths_of(field.type, path))
            for path, field in zip(paths, schema, strict=True)
        ]
        writes = 2 if keys and contents.rows is None else 1
        reports = Progress(progress, contents.rows, writes * sum(map(len, columns)))
        next_bundle = commit.base.head.next_bundle if commit.base else 1
        by_owner = {str(paths[index][0]): given for index, given in owned.items()}
        layers = {
            LayerKey(owner, FIXED, name): content
            for owner, given in {"": storage.meta or {}, **by_owner}.items()
            for name, content in given.items()
        }
        check(layers)
        creation = _Creation(store, commit, contents, storage, reports, next_bundle, layers)
        staged = creation.sorted(columns, keys) if keys else creation.unsorted(columns)
        reports.finish(staged.head.rows)
        properties = properties_of(storage)
        if keys:
            properties[SORT_BY] = sort_keys.to_json(keys, staged.head.columns.paths)

        def rebased(newest: Version | None) -> StagedVersion:
            _check_absent(store, newest, replace_existing)
            # Tagged versions stay, also where the newest manifest is damaged.
            known = newest or versions.latest(store)
            return staged.with_head(
                uuid=newest.head.uuid if newest else str(uuid.uuid4()),
                next_column=_next_column(newest, staged.head.columns.paths),
                properties=_kept_properties(newest) | properties,
                commit_ids=newest.head.commit_ids if newest else (),
                next_bundle=_next_bundle(newest, staged),
                tags=known.head.tags if known else {},
            )

        published = commit.publish("replace" if commit.base else "create", rebased, staged)
    commit.emit_warnings()
    return published


# The writers of the nodes of a column.
_Nodes = Sequence[ColumnWriter]


@dataclass(slots=True)
class _Creation:
    """Writes the rows of a new table and returns them as a staged version."""

    store: Store
    commit: Commit
    contents: Contents
    storage: Storage
    progress: Progress
    # The number of the next bundle.
    next_bundle: int
    layers: Layers

    def unsorted(self, columns: Sequence[_Nodes]) -> StagedVersion:
        """Write all rows in their own order."""
        groups = row_groups(self.contents.parts, group_rows_of(self.storage))
        first = self._staged(columns, self._write(columns, groups))
        change_set = ChangeSet(self.commit, self.storage, first)
        # The progress of a sort counts each row twice.
        progress = Progress(None, None, 1) if self.contents.sort_by else self.progress
        append_runs(change_set, self.contents.later_runs(), progress, first.head.rows)
        return change_set.staged

    def sorted(self, columns: Sequence[_Nodes], keys: Sequence[Key]) -> StagedVersion:
        """Write all rows in the order of the keys, a few columns at a time.

        A stream is first written in its own order, because it may not fit in memory.
        """
        contents, group_rows = self.contents, group_rows_of(self.storage)
        if contents.rows is None:
            staged = self.unsorted(columns)
            unsorted = Unsorted.of_version(staged)
            order = unsorted.order(keys)
            if order is None:
                return staged
            change_set = ChangeSet(self.commit, self.storage, staged)
            columns = [change_set.column_writers([index]) for index in range(len(staged.schema))]
            self.next_bundle = staged.head.next_bundle
            # Later rows may have made the schema wider.
            frame = staged.head.pandas
            self.contents = replace(contents, schema=staged.schema, frame=lambda rows: frame)
        else:
            parts = list(contents.parts)
            [(table, _)] = parts
            # Rows are sorted by the values that are stored.
            unsorted = Unsorted.of_table(_rounded(table, contents.schema))
            order = unsorted.order(keys)
            if order is None:
                return self._staged(columns, self._write(columns, row_groups(parts, group_rows)))
        written = NewGroups()
        for indices in unsorted.batches():
            groups = unsorted.groups(indices, order, group_rows)
            written = self._write([columns[index] for index in indices], groups)
        return self._staged(columns, written)

    def _write(self, columns: Sequence[_Nodes], groups: Iterable[Portion]) -> NewGroups:
        """Write row groups; small ones as bundles, if these are all columns."""
        bundles = BundleWriter(self.store, self.next_bundle)
        nodes = list(chain.from_iterable(columns))
        self.commit.files.record([*nodes, bundles])
        is_whole = len(columns) == len(self.contents.schema)
        drafts = None
        is_new = self.commit.base is None
        if self.store.has_one_writer and is_new and not self.contents.sort_by:
            head = replace(
                self._head(NewGroups()),
                uuid=str(uuid.uuid4()),
                properties=properties_of(self.storage),
                next_column=_next_column(None, [node.path for node in nodes]),
            )
            drafts = Drafts(self.store, head)
        written = write_groups(
            self.store,
            nodes,
            groups,
            self.storage,
            self.progress,
            bundles=bundles if is_whole else None,
            look=None if drafts is None else drafts.look,
        )
        if drafts is not None:
            drafts.remove()
        self.next_bundle = max([self.next_bundle, *(k + 1 for k in bundles.file_numbers)])
        return written

    def _staged(self, columns: Sequence[_Nodes], written: NewGroups) -> StagedVersion:
        """Return the written columns as a staged version, which can be read."""
        schema = self.contents.schema
        nodes = chain.from_iterable(columns)
        staged = tuple(staged_columns(nodes))
        head = replace(
            self._head(written),
            columns=column_index(staged),
            claims=claims_of(staged),
        )
        return StagedVersion(self.store, head, schema, columns=staged)

    def _head(self, written: NewGroups) -> manifest.Head:
        """Return the head of a version with these row groups, without what columns tell."""
        schema, rows = self.contents.schema, written.rows
        return manifest.Head(
            row_groups=tuple(rows),
            schema=schemas.encode(schema),
            fields=schemas.readable(schema),
            attributes=dict(self.contents.attributes or {}),
            pandas=self.contents.frame(sum(rows)),
            metalayers=self.layers,
            bundles=tuple(written.bundles) if any(written.bundles) else (),
            next_bundle=self.next_bundle,
        )


def restore(old: Version, *, is_durable: bool) -> tuple[Version, Lock]:
    """Commit the contents of an old version again, whatever the newest version is.

    The commit ids of the old version are kept: later commits are undone and can be repeated.
    """
    store = old.store

    def rebased(newest: Version | None) -> StagedVersion:
        # The ids and numbers that a damaged newest version used are unknown. The next writer skips
        # each one that has a file.
        if old.head.version not in versions.numbers(store):
            # In a table in one file, another process may remove a version that this one shows.
            raise TableNotFoundError(
                f"{store.name} no longer has version {old.head.version}; it cannot be restored"
            )
        latest = newest or versions.latest(store) or old
        properties = dict(old.head.properties) | _kept_properties(latest)
        staged = StagedVersion.of(old).numbered_after(latest)
        return staged.with_head(properties=properties, tags=latest.head.tags)

    with Commit(Plan(store, is_durable, base=old, is_replacement=True)) as commit:
        published = commit.publish("restore", rebased)
    commit.emit_warnings()
    return published


def _rounded(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table with floats of as many digits as the schema says."""
    for index, field in enumerate(schema):
        digits = schemas.digits_of(field)
        if digits is not None:
            chunks = [rounded(chunk, digits) for chunk in table.column(index).chunks]
            table = table.set_column(index, field, pa.chunked_array(chunks, field.type))
    return table


def _check_packing(schema: pa.Schema, storage: Storage) -> None:
    """Raise SchemaError if a column is to have a chunk for each item, and has no items."""
    for name, own in (storage.columns or {}).items():
        if not is_packed(own):
            for index in schema.get_all_field_indices(name):
                if not has_items(type_ := schema.field(index).type):
                    raise SchemaError(
                        f"packing {own.packing!r} is for text and binary; column {name!r} has type "
                        f"{type_}"
                    )


def _check_absent(store: Store, version: Version | None, replace_existing: bool) -> None:
    if version is not None and not replace_existing:
        number = version.head.version
        raise TableExistsError(
            f"a table already exists at {store.name} (version {number}); "
            'write with mode="w" to replace it, or choose another path'
        )


def _kept_properties(newest: Version | None) -> dict[str, Json]:
    """Return the properties that a replacement keeps: the retention settings."""
    properties = newest.head.properties if newest else {}
    return {name: value for name, value in properties.items() if name.startswith("keep_")}


def _next_bundle(newest: Version | None, staged: Version) -> int:
    return max(newest.head.next_bundle if newest else 1, staged.head.next_bundle)


def _next_column(newest: Version | None, paths: Sequence[Path]) -> int:
    before = newest.head.next_column if newest else 0
    return max([before, *(max(path) + 1 for path in paths)])
