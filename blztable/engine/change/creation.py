"""Creation: create, replace or restore a whole table. These operations rely on no version.

A new table is a staged version without rows, to which its rows are appended. Rows in memory are
sorted before that. A stream, which may not fit in memory, is appended in its own order, and sorted
then. Knows nothing of changes and rebasing.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from typing import Protocol

import pyarrow as pa

from blztable.columns.digits import rounded
from blztable.columns.types import has_items
from blztable.engine.change import compact, sorting
from blztable.engine.change.change_set import ChangeSet, did
from blztable.engine.change.changes import Append
from blztable.engine.change.drafts import Drafts, check_nothing_whole
from blztable.engine.change.reliance import ReadSet
from blztable.engine.change.rows import AppendSegment, append
from blztable.engine.change.sorting import Unsorted
from blztable.engine.run.pool import Callback, Progress
from blztable.engine.version import leases, versions
from blztable.engine.version import schema as schemas
from blztable.engine.version.commit import Commit, CommitPlan
from blztable.engine.version.schema import paths_of
from blztable.engine.version.staged import StagedVersion
from blztable.engine.version.versions import Version
from blztable.engine.write import sort_keys
from blztable.engine.write.options import (
    Storage,
    check_columns,
    is_packed,
    properties_of,
    schema_with_digits,
    sort_order,
)
from blztable.engine.write.sort_keys import SORT_BY, Key
from blztable.errors import (
    ConflictError,
    SchemaError,
    TableExistsError,
    TableNotFoundError,
)
from blztable.format.jsontext import Json
from blztable.format.manifest import LOCKS, NO_LOCKS, Head
from blztable.format.metalayers import FIXED, LayerKey, check
from blztable.format.version_file import Tail
from blztable.report import Changed
from blztable.storage.store import Lock, Store


class NewTable(Protocol):
    """The columns and rows of a new table."""

    @property
    def schema(self) -> pa.Schema:
        """The columns before a segment that widens them."""

    @property
    def rows(self) -> int | None:
        """Number of rows if they are all in memory, in one part of one run; None for a stream."""

    @property
    def segments(self) -> Iterable[AppendSegment]:
        """The rows, in order."""

    def frame(self, rows: int, /) -> Mapping[str, Json] | None:
        """Return the frame descriptor for this number of rows, once they are drawn."""


def create(
    store: Store,
    new: NewTable,
    storage: Storage,
    *,
    attributes: Mapping[str, Json] | None = None,
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
        A column of the options does not exist.
    TableExistsError
        A table exists and may not be replaced, or the directory holds other files.
    """
    keys = checked(new, storage)
    if storage.locks is not None:
        _rely_on_no_lock(store)
    plan = CommitPlan(
        store,
        is_durable,
        may_create=True,
        is_replacement=replace_existing,
        commit_id=commit_id,
    )
    if not replace_existing:
        check_nothing_whole(store)
    with Commit(plan) as commit:
        staged = empty(
            commit, new, storage, keys, attributes or {}, replace_existing=replace_existing
        )
        change_set = ChangeSet(commit, storage, staged)
        _write(change_set, new, keys, progress)
        published = publish(commit, change_set.staged, new.frame, replace_existing=replace_existing)
    commit.emit_warnings()
    return published


def checked(new: NewTable, storage: Storage) -> Sequence[Key]:
    """Check the columns and options of a new table; return the keys of its order."""
    schema = schema_with_digits(new.schema, storage)
    schemas.check(schema)
    check_columns(storage, schema.names)
    _check_packing(schema, storage)
    keys = sort_keys.placed(sort_order(storage), schema, "the data")
    sorting.check(schema, keys)
    return keys


def empty(
    commit: Commit,
    new: NewTable,
    storage: Storage,
    keys: Sequence[Key],
    attributes: Mapping[str, Json],
    *,
    replace_existing: bool,
) -> StagedVersion:
    """Return a new table without rows, whose columns have ids of their own."""
    schema = schema_with_digits(new.schema, storage)
    _check_absent(commit.plan.store, commit.base, replace_existing)
    head = _head(commit, schema, storage, keys)
    head = replace(head, attributes=dict(attributes), pandas=new.frame(0))
    return StagedVersion.of_tail(commit.plan.store, head, schema, Tail.empty(len(head.paths)))


def publish(
    commit: Commit,
    staged: StagedVersion,
    frame: Callable[[int], Mapping[str, Json] | None],
    *,
    replace_existing: bool,
) -> tuple[Version, Lock]:
    """Publish a new table; `frame` returns the frame descriptor for its number of rows."""
    store = commit.plan.store

    def rebased(newest: Version | None) -> StagedVersion:
        _check_absent(store, newest, replace_existing)
        # Tagged versions stay, also where the newest manifest is damaged.
        known = newest
        if newest is None and not commit.is_first:
            known = versions.latest(store)
        head, old = staged.head, newest.head if newest else None
        rows = Changed(head.rows, rows_deleted=old.rows if old else 0)
        return staged.with_head(
            next_column=max(head.next_column, old.next_column if old else 0),
            properties=_kept_properties(newest) | dict(head.properties),
            commit_ids=old.commit_ids if old else (),
            tags=known.head.tags if known else {},
            pandas=frame(head.rows),
            did=did(rows),
        )

    try:
        return commit.publish("replace" if commit.base else "create", rebased, staged)
    except ConflictError as error:
        if replace_existing:
            raise
        raise TableExistsError(f"a table was created there meanwhile: {error}") from None


def _head(commit: Commit, schema: pa.Schema, storage: Storage, keys: Sequence[Key]) -> Head:
    """Return the head of a new table without rows, whose columns have ids of their own."""
    roots = commit.files.reserve_columns(len(schema))
    paths = [*chain.from_iterable(map(paths_of, schema.types, roots))]
    layers = {LayerKey("", FIXED, name): content for name, content in (storage.meta or {}).items()}
    for name, own in (storage.columns or {}).items():
        # Options of a name are those of all columns that have it; metalayers belong to one.
        if own.meta:
            owner = str(roots[schemas.index_of(schema, name, "the data")][0])
            layers |= {LayerKey(owner, FIXED, key): content for key, content in own.meta.items()}
    check(layers)
    properties = properties_of(storage)
    is_later = commit.base is None and not commit.is_first
    if storage.locks is not None or (is_later and versions.is_unlocked(commit.plan.store)):
        properties[LOCKS] = NO_LOCKS
    if keys:
        properties[SORT_BY] = sort_keys.to_json(keys, paths)
    return Head(
        # Its files bear the name of the table, so it is that of the table which is replaced.
        uuid=_uuid(commit),
        paths=tuple(paths),
        next_column=1 + max(chain.from_iterable(paths), default=-1),
        properties=properties,
        metalayers=layers,
    )


def _uuid(commit: Commit) -> str:
    """Return the id of the table that is replaced, also if it is damaged, or a new one."""
    store = commit.plan.store
    replaced = commit.base or (None if commit.is_first else versions.latest(store))
    return str(uuid.uuid4()) if replaced is None else replaced.head.uuid


def _write(
    change_set: ChangeSet, new: NewTable, keys: Sequence[Key], callback: Callback | None
) -> None:
    """Append the rows of a new table in the order of the keys, or in their own order."""
    empty, segments, order = change_set.staged, new.segments, None
    is_sorted_later = bool(keys) and new.rows is None
    columns = len(empty.paths)
    progress = Progress(callback, new.rows, columns, writes=2 if is_sorted_later else 1)
    if keys and new.rows:
        [(schema, frame, parts)] = ((*segment[:2], list(segment[2])) for segment in segments)
        # Rows are sorted by the values that are stored.
        unsorted = Unsorted.of_table(_rounded(parts[0][0], empty.schema))
        order, segments = unsorted.order(keys), [(schema, frame, parts)]
    if order is not None:
        groups, written = compact.write_ordered(change_set, unsorted, order, progress)
        change_set.add("sort", Append(ReadSet.columns_of(empty), groups, written))
    else:
        store, drafts = empty.store, None
        if store.has_one_writer and change_set.commit.base is None and not keys:
            drafts = Drafts(store, empty.head, empty.schema)
        append(change_set, segments, progress, on_progress=drafts.on_progress if drafts else None)
        if drafts:
            drafts.remove()
    if is_sorted_later:
        unsorted = Unsorted.of_version(change_set.staged)
        order = unsorted.order(keys)
        if order is not None:
            compact.rewrite(change_set, unsorted, order, progress)
    progress.finish(change_set.staged.head.rows)


def restore(old: Version, *, is_durable: bool) -> tuple[Version, Lock]:
    """Commit the contents of an old version again, whatever the newest version is.

    The commit ids of the old version are kept: later commits are undone and can be repeated.
    """
    store = old.store
    lease: leases.Timed | None = None

    def rebased(newest: Version | None) -> StagedVersion:
        # The ids and numbers that a damaged newest version used are unknown. The next writer skips
        # each one that has a file.
        if store.locks and old.head.version not in versions.numbers(store):
            # In a table in one file, another process may remove a version that this one shows.
            raise TableNotFoundError(
                f"{store.name} no longer has version {old.head.version}; it cannot be restored"
            )
        if lease is not None:
            lease.check()
        latest = newest or versions.latest(store) or old
        properties = dict(old.head.properties) | _kept_properties(latest)
        rows = old.head.rows - latest.head.rows
        return StagedVersion.of(old).with_head(
            properties=properties,
            tags=latest.head.tags,
            next_column=max(old.head.next_column, latest.head.next_column),
            next_file=max(old.head.next_file, latest.head.next_file),
            did=did(Changed(max(rows, 0), rows_deleted=max(-rows, 0))),
        )

    plan = CommitPlan(store, is_durable, base=old, is_replacement=True)
    with ExitStack() as held:
        if not store.locks:
            lease = held.enter_context(leases.lease(store, old.head.version))
        commit = held.enter_context(Commit(plan))
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
    """Return the properties that a replacement keeps: the retention settings, and the locks."""
    properties = newest.head.properties if newest else {}
    return {
        name: value
        for name, value in properties.items()
        if name.startswith("keep_") or name == LOCKS
    }


def _rely_on_no_lock(store: Store) -> None:
    """Rely on no lock for a new table.

    ValueError if that cannot be; TableExistsError if there is a table whose writers rely on locks.
    """
    versions.settle(store)
    if not store.locks:
        return
    if versions.can_hold_table(store) and versions.checked_newest(store) is not None:
        raise TableExistsError(
            f"the table at {store.name} relies on locks; drop it and remove its directory, or "
            "choose another path"
        )
    store.rely_on_no_lock()
    if store.locks:
        raise ValueError(f"{store.name}: only a table in a directory may do without locks")
