"""The operations on a whole table, which rely on nothing: create, replace, restore."""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from blztable.engine import schema as schemas
from blztable.engine import versions
from blztable.engine.commit import Draft, Transaction, flush_whole
from blztable.engine.grouping import Portion, row_groups
from blztable.engine.options import WriteOptions
from blztable.engine.progress import Callback, Progress
from blztable.engine.versions import Version
from blztable.engine.write import ColumnWriter, keys_of, write_groups
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
    rows: int | None = None


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
        A type or value that cannot be stored; nothing was committed.
    TableExistsError
        A table is there and is not to be replaced, or the directory is not ours.
    """
    schema = contents.schema
    schemas.check(schema)
    options.check_names(schema.names)
    with Transaction(
        store,
        is_durable=options.is_durable,
        may_create=True,
        is_replacement=replace_existing,
        commit_id=commit_id,
    ) as transaction:
        _check_absent(store, transaction.base, replace_existing)
        columns = _reserve(transaction, schema)
        groups = row_groups(contents.parts, options.row_group_rows)
        told = Progress(progress, contents.rows, len(columns))
        transaction.note(partial(keys_of, columns))
        rows = write_groups(store, columns, groups, options, told)
        parts = [column.finish() for column in columns]
        index = manifest.ColumnIndex(
            paths=tuple(column.path for column in columns),
            next_k=tuple(column.next_k for column in columns),
            nbytes=tuple(part.nbytes for part in parts),
            cbytes=tuple(part.cbytes for part in parts),
        )
        lines = [part.encode() for part in parts]
        encoded = schemas.encode(schema)
        frame = contents.frame(sum(rows))

        def draft(newest: Version | None) -> Draft:
            _check_absent(store, newest, replace_existing)
            head = manifest.Head(
                version=0,
                uuid=newest.head.uuid if newest else str(uuid.uuid4()),
                parent=0,
                commit="",
                writer="",
                time="",
                operation="",
                row_groups=tuple(rows),
                schema=encoded,
                fields=schemas.readable(schema),
                next_column=_next_column(newest, index.paths),
                durable=False,
                properties=_kept_properties(newest) | options.to_json(),
                attributes=dict(contents.attributes or {}),
                pandas=frame,
                commit_ids=newest.head.commit_ids if newest else (),
                columns=index,
            )
            return Draft(head, lines)

        published = transaction.publish("replace" if transaction.base else "create", draft)
    transaction.complain()
    return published


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

    with Transaction(store, is_durable=is_durable, base=old, is_replacement=True) as transaction:
        if is_durable and not old.head.durable:
            flush_whole(old)
        published = transaction.publish("restore", draft)
    transaction.complain()
    return published


def _check_absent(store: Store, version: Version | None, replace_existing: bool) -> None:
    if version is not None and not replace_existing:
        number = version.head.version
        raise TableExistsError(f"a table is at {store.name} already (version {number})")


def _reserve(transaction: Transaction, schema: pa.Schema) -> list[ColumnWriter]:
    """A new id for every column."""
    columns = []
    lowest = transaction.base.head.next_column if transaction.base else 0
    for field in schema:
        number = transaction.reserve_column(lowest)
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
