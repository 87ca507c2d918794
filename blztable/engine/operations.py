"""The operations on a whole table: create or replace it, set its attributes.

Each says what it relies on: a replacement on nothing, attributes on the keys they set.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from blztable.engine import schema as schemas
from blztable.engine.commit import Draft, Transaction
from blztable.engine.grouping import Portion, row_groups
from blztable.engine.options import WriteOptions
from blztable.engine.progress import Callback, Progress
from blztable.engine.versions import Version
from blztable.engine.write import ColumnWriter, write_groups
from blztable.errors import ConflictError, TableExistsError
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
        store, is_durable=options.is_durable, may_create=True, is_replacement=replace_existing
    ) as transaction:
        _check_absent(store, transaction.base, replace_existing)
        columns = _reserve(transaction, schema)
        groups = row_groups(contents.parts, options.row_group_rows)
        told = Progress(progress, contents.rows, len(columns))
        try:
            rows = write_groups(store, columns, groups, options, told)
        finally:
            transaction.note([key for column in columns for key in column.keys])
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

        return transaction.publish("replace" if transaction.base else "create", draft)


def set_attributes(
    store: Store,
    base: Version,
    changes: Mapping[str, Json],
    removed: Iterable[str],
    *,
    is_durable: bool,
) -> tuple[Version, Lock]:
    """Commit attributes set and removed; ConflictError if another commit touched the same keys."""
    gone = set(removed)

    def draft(newest: Version | None) -> Draft:
        if newest is None:
            raise ConflictError(f"{store.name} is gone")
        there, before = newest.head.attributes, base.head.attributes
        for key in (*changes, *gone):
            if (key in there, there.get(key)) != (key in before, before.get(key)):
                raise ConflictError(
                    f"{store.name}: attribute {key!r} was changed by version "
                    f"{newest.head.version}; reopen and try again"
                )
        kept = {key: value for key, value in there.items() if key not in gone}
        head = replace(newest.head, attributes=kept | dict(changes))
        return Draft(head, newest.lines())

    with Transaction(store, is_durable=is_durable) as transaction:
        return transaction.publish("attributes", draft)


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
