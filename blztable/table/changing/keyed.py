"""Keyed: the bodies of the verbs that find rows by a key.

Knows how data become rows of the table's types. Writes no file.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from blztable.arrow.casts import widened
from blztable.arrow.types import no_rows
from blztable.convert.append_source import append_source
from blztable.convert.column_type import EmptyColumns
from blztable.convert.gateway import IngestOptions
from blztable.convert.source import is_repeatable
from blztable.engine import change
from blztable.engine.write import sort_keys
from blztable.engine.write.options import Storage, check_choice
from blztable.errors import SchemaError
from blztable.table.changing.target import ChangeTarget

if TYPE_CHECKING:
    from blztable.engine.change.upsert import NewRows


def upsert(
    target: ChangeTarget,
    data: Any,
    on: str | Sequence[str],
    evolve: bool,
    index: bool | None,
    storage: Storage | None,
) -> None:
    """Update the rows whose key is in the table, and append the others."""
    change_set = target.change_set
    change_set.only_once |= not is_repeatable(data)
    with target.stored_as(storage) as options, change_set.named("upsert"):
        keys = key_columns(target, on)
        columns, new = _all_rows(target, data, keys, index, options, evolve)
        change.columns.widen(change_set, columns.schema, columns.frame)
        staged = change_set.staged
        _, appended = change.upsert.upsert(change_set, new)
    if appended:
        declared = staged.default_values()
        for number in sorted({*range(len(staged.schema))} - new.given - {*declared}):
            field = staged.schema.field(number)
            if not field.nullable:
                raise SchemaError(
                    f"column {field.name!r}: the data lack it, and {appended} of the keys are new; "
                    "it is not nullable and without a default; add it to the data, or call "
                    f"alter_column({field.name!r}, default=...)"
                )


def deduplicate(
    target: ChangeTarget,
    on: str | Sequence[str] | None,
    keep: str,
    order_by: str | Sequence[str | tuple[str, str]] | None,
) -> None:
    """Keep one row of each key."""
    staged = target.staged
    check_choice("keep", keep, ("first", "last"))
    keys = range(len(staged.schema)) if on is None else key_columns(target, on)
    order = () if order_by is None else sort_keys.parsed(order_by)
    placed = sort_keys.placed(order, staged.schema, staged.store.name)
    if keys:
        change.keyed.deduplicate(target.change_set, keys, last=keep == "last", order_by=placed)


def key_columns(target: ChangeTarget, on: str | Sequence[str]) -> list[int]:
    """Return the indices of the columns of a key."""
    names = [on] if isinstance(on, str) else list(on)
    if not names or len({*map(change.columns.checked_text, names)}) < len(names):
        raise ValueError(f"on must be a column or several different ones, not {on!r:.200}")
    return [target.staged.index_of(name) for name in names]


def _all_rows(
    target: ChangeTarget,
    data: Any,
    keys: Sequence[int],
    index: bool | None,
    options: IngestOptions,
    evolve: bool,
) -> tuple[EmptyColumns, "NewRows"]:
    """Return the columns that take the rows of the data, all rows, and the columns they have."""
    spec, schema, frame = target.spec(all_filled=True), target.staged.schema, target.staged.frame
    source = append_source(data, spec, index=index, evolve=evolve, options=options)
    parts: list[pa.Table] = []
    lacking: set[int] | None = None
    for segment in source.segments:
        schema, frame = segment.schema, segment.frame
        for table, _ in segment.parts:
            # What this item lacked: the next one is drawn after this line.
            before, lacking = lacking, set(source.filled)
            source.filled.clear()
            if before not in (None, lacking) or (parts and parts[0].num_columns < len(schema)):
                raise SchemaError(
                    f"item {len(parts)} has other columns than the items before; give all items "
                    "the same columns, because a column that the data lack keeps its values"
                )
            parts.append(table)
    given = frozenset(range(len(schema))) - (lacking or set())
    for key in keys:
        if key not in given:
            raise SchemaError(f"the data lack the key {schema.field(key).name!r}; add this column")
    # Rows before a segment with wider types.
    whole = [no_rows(schema), *(_widened(part, schema) for part in parts)]
    return EmptyColumns(schema, frame), change.upsert.NewRows(pa.concat_tables(whole), given, keys)


def _widened(part: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows of an item in the types of later ones."""
    if part.schema.equals(schema, check_metadata=True):
        return part
    columns = [
        widened(
            column,
            field.type,
            f"column {field.name!r}, an item before one of {field.type}",
            "give the column one type in all items",
        )
        for column, field in zip(part.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)
