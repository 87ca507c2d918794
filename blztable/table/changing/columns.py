"""Columns: the bodies of the verbs that change columns.

Knows how the arguments of users become fields, values and frame descriptors. Writes no file.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pandas.api.extensions import no_default

from blztable.arrow.casts import cast_anyhow, cast_exactly
from blztable.arrow.extensions import plain_values
from blztable.arrow.nested.paths import Names, column_of
from blztable.convert.categories import order_of
from blztable.convert.column_type import with_type
from blztable.convert.frames.frame import described, dropped, renamed
from blztable.convert.values import values_of
from blztable.engine import change
from blztable.engine.query import expressions
from blztable.engine.version.schema import with_digits
from blztable.engine.write.options import BY_COLUMN, OF_COLUMNS, Storage, check_taken, given_storage
from blztable.table.changing.target import ChangeTarget
from blztable.table.names import checked_integer

if TYPE_CHECKING:
    from blztable.engine.change.change_set import ChangeSet
    from blztable.engine.change.fields import MakeRetyped


def add(
    target: ChangeTarget,
    name: Names,
    data: Any,
    *,
    default: Any,
    storage: Storage | None,
) -> None:
    """Add a column or a field of a struct."""
    change_set, staged, descriptor = target.change_set, target.staged, None
    storage = given_storage(storage)
    check_taken(storage, (*OF_COLUMNS, "nan_as_null", "objects"), "add_column")
    layers = storage.meta or {}
    own = {option: storage.given()[option] for option in BY_COLUMN if option in storage.given()}
    struct, own_name = change.fields.parent_of(staged, name) or (None, name)
    own_name, values = change.columns.checked_new(own_name), None
    rows_of: Callable[[int], Any]
    if isinstance(data, pc.Expression):
        data = expressions.decided(data, staged.schema)
        field = target.field_of(data).with_name(own_name)
        rows_of = partial(change.update.computed, staged, data)
    else:
        given = values_of(data, f"column {name!r}", target.options(storage))
        descriptor = given.descriptor
        values, field = plain_values(given.values, own_name)
        change_set.only_once |= not isinstance(values, pa.Scalar)
        rows_of = change.rows.by_group(values, staged.row_groups, own_name)
    field = with_digits(described(field, descriptor), storage.digits)
    if struct is not None:
        if default is not None or layers or own:
            raise ValueError(
                "default, meta and how a column is stored are for columns; a field that is left "
                "out is null, and is stored as its column"
            )
        change.fields.add_field(change_set, struct, field, rows_of, _retyping(change_set))
    else:
        declared = target.default(default, field, order_of(values))
        if own:
            columns = {**(change_set.storage.columns or {}), own_name: Storage(**own)}
            change_set.keep_storage(replace(change_set.storage, columns=columns))
        change.columns.add_column(change_set, field, rows_of, declared, layers)


def alter(
    target: ChangeTarget,
    name: str,
    *,
    dtype: Any,
    nullable: bool | None,
    default: Any,
    position: int | None,
    safe: bool,
) -> None:
    """Change the type, the nulls, the default or the position of a column."""
    index = target.staged.index_of(name)
    if dtype is not None or nullable is not None or default is not no_default:
        field, frame = target.altered(index, dtype, nullable)
        new_defaults = {}
        if default is not no_default:
            order = target.categories(index) if dtype is None else None
            new_defaults[index] = target.default(default, field, order)
        change.retype.retype(
            target.change_set,
            "alter_column",
            {index: field},
            frame,
            cast=cast_exactly if safe else cast_anyhow,
            new_defaults=new_defaults,
        )
    elif position is None:
        raise ValueError("alter_column needs one of dtype, nullable, default and position")
    if position is not None:
        change.columns.move_column(target.change_set, index, checked_integer(position, "position"))


def drop(target: ChangeTarget, names: Iterable[Names]) -> None:
    """Drop columns, and fields of structs."""
    change_set = target.change_set
    gone, fields = change.columns.checked_names(change_set.staged, names)
    for index, paths in change.fields.by_column(fields).items():
        change.fields.drop_fields(change_set, index, paths, _retyping(change_set))
    if gone or not fields:
        change.columns.drop_columns(change_set, gone, dropped(change_set.staged.frame, gone))


def rename(target: ChangeTarget, names: Mapping[str, str]) -> None:
    """Rename columns, and fields of structs."""
    change_set = target.change_set
    names = change.columns.checked_mapping(names, "columns", "old names to new names")
    columns, fields = change.columns.checked_names(change_set.staged, names)
    for name in names.values():
        change.columns.checked_new(name)
    by_name = {column_of(name): new for name, new in names.items()}
    new = {name: by_name.pop(name) for name in columns}
    # The names of fields, in the order in which they were found.
    others = dict(zip(fields, by_name.values(), strict=True))
    for index, paths in change.fields.by_column(fields).items():
        by_path = {path: others[index, path] for path in paths}
        change.fields.rename_fields(
            change_set, index, by_path, _retyping(change_set, by_place=True)
        )
    if new or not names:
        change.columns.rename_columns(change_set, new, renamed(change_set.staged.frame, new))


def _retyping(change_set: "ChangeSet", *, by_place: bool = False) -> "MakeRetyped":
    """Return what gives a field another type, with the frame descriptor for it."""

    def retyped(field: pa.Field, type_: pa.DataType) -> tuple[pa.Field, Mapping[str, Any] | None]:
        return with_type(field, change_set.staged.frame, type_, None, by_place=by_place)

    return retyped
