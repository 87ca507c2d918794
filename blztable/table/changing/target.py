"""Target: the change set of a verb, and how user data become values of its columns.

Knows how values become rows of a column: the default, the categories and the missing values that
the column has. Changes nothing by itself.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.casts import narrowed
from blztable.arrow.extensions import plain_values
from blztable.convert.append_source import TableSpec
from blztable.convert.categories import check_order, one_in_order
from blztable.convert.coerce_column import coerce_values, default_of, one_row, options_for
from blztable.convert.column_type import EmptyColumns, altered
from blztable.convert.frames.descriptor import Descriptor
from blztable.convert.frames.frame import FrameInfo, described, descriptor_of
from blztable.convert.frames.objects import NO_OPTION
from blztable.convert.gateway import Ingested, IngestOptions, Nan
from blztable.convert.objects.tagged import checked_attrs
from blztable.convert.values import GivenValues, values_of
from blztable.convert.widen import evolved
from blztable.convert.wider import has_nulls
from blztable.engine import change
from blztable.engine.query import expressions
from blztable.engine.query.select import null_counts
from blztable.engine.read.columns import OpenColumns
from blztable.engine.version.staged import StagedVersion
from blztable.engine.write.options import (
    OBJECTS,
    Storage,
    check_columns,
    check_digits,
    given_storage,
)
from blztable.errors import ReadOnlyError, SchemaError
from blztable.format.metalayers import LayerKey, Layers
from blztable.table.attributes import fixed_metalayers
from blztable.table.snapshot import Snapshot

if TYPE_CHECKING:
    from blztable.engine.change.change_set import ChangeSet
    from blztable.engine.change.update import Coerce


@dataclass(frozen=True, slots=True)
class ChangeTarget:
    """The changes of a transaction so far, to which a verb adds others.

    Attributes
    ----------
    staged
        The version that they have made.
    snapshot
        The version before the verb, to read from.
    """

    change_set: "ChangeSet"
    staged: StagedVersion
    snapshot: Snapshot

    def renewed(self) -> "ChangeTarget":
        """Return the target as the changes made meanwhile left it."""
        return replace(self, staged=self.change_set.staged)

    def check_appends(self) -> None:
        """Raise ReadOnlyError if each append would write the whole table again."""
        store = self.staged.store
        if store.publishes_all:
            raise ReadOnlyError(
                f"{store.name} is one file in a bucket, which each change writes anew, so it takes "
                "no appends; append to a directory, blztable.copy(source, target, "
                'layout="directory"), or write all rows with mode="w"'
            )

    def spec(self, *, all_filled: bool = False) -> TableSpec:
        """Return the facts that appended data depends on.

        With `all_filled`, any column that the data lack is filled, if need be with zeros.
        """
        staged = self.staged
        return TableSpec(
            staged.schema,
            staged.frame,
            staged.head.rows,
            self.fillings(are_all=all_filled),
            self.categories,
            self.is_free,
        )

    def fillings(self, *, are_all: bool) -> Callable[[int], pa.Scalar | None]:
        """Return a function that tells the value of a column in rows without data, by its index.

        It is the default. With `are_all`, a column without one has null, or zero where it is not
        nullable; ordered categories may lack a zero, so their first one takes its place. A value
        is looked up when a row needs it: the data may have all columns.
        """
        declared, schema = self.staged.default_values(), self.staged.schema

        def filling(index: int) -> pa.Scalar | None:
            if index in declared:
                try:
                    return self.in_order(index, declared[index])
                except SchemaError as error:
                    name = schema.field(index).name
                    raise SchemaError(
                        f"{error}; call alter_column({name!r}, default=...) with one of these"
                    ) from None
            if not are_all or index >= len(schema):
                return None
            field, order = schema.field(index), self.categories(index)
            if field.nullable or order is None:
                return change.columns.empty_of(field)
            first = pa.array([0], field.type.index_type)
            return pa.DictionaryArray.from_arrays(first, order, ordered=True)[0]

        return filling

    def options(self, storage: Storage | None = None) -> IngestOptions:
        """Return how data are read, by the options of a call or else by that of the table."""
        nan_as_null, objects = self.change_set.storage.nan_as_null, NO_OPTION
        if storage is not None:
            objects = storage.objects or OBJECTS[0]
            if storage.nan_as_null is not None:
                nan_as_null = storage.nan_as_null
        nan = Nan.of(nan_as_null, is_frame=self.staged.head.pandas is not None)
        return IngestOptions(nan, objects)

    @contextmanager
    def stored_as(self, storage: Storage | None) -> Iterator[IngestOptions]:
        """Store rows as a call says, and set what it says of attributes and metalayers.

        Yields how the data of the call are read.
        """
        given, change_set = given_storage(storage), self.change_set
        check_digits(self.staged.schema, given)
        with change_set.stored_as(given):
            yield self.options(given)
        check_columns(given, change_set.staged.schema.names)
        if given.attrs:
            change_set.set_keys("attributes", checked_attrs(dict(given.attrs)), ())
        for name, content in (given.meta or {}).items():
            fixed_metalayers(self)[name] = content
        for column, own in (given.columns or {}).items():
            if own.meta:
                index = change_set.staged.index_of(column)
                node = change_set.staged.nodes(index)[0]
                owner = str(change_set.staged.paths[node][0])
                for name, content in own.meta.items():
                    fixed_metalayers(self, owner, column)[name] = content

    @property
    def path(self) -> str:
        """Path of the table."""
        return self.staged.store.name

    def _layers(self) -> Layers:
        return self.change_set.staged.head.metalayers

    def _set_layers(self, changes: Mapping[LayerKey, bytes | None]) -> None:
        for key, content in changes.items():
            self.change_set.set_layer(key, content)

    def given(self, name: str, data: Any) -> GivenValues:
        """Return values of the user for a column, or for a new one of this name."""
        options = self.options()
        if name in self.staged.schema.names:
            field = self.staged.schema.field(self.staged.index_of(name))
            options = options_for(options, field, self.staged.frame)
        return values_of(data, f"column {name!r}", options)

    def has_nulls(self, name: str) -> bool:
        """True for a column of the null type, or with it inside."""
        return has_nulls(self.staged.schema.field(name).type)

    def widened(
        self, name: str, given: GivenValues, evolve: bool, *, has_values: bool = False
    ) -> EmptyColumns | None:
        """Return the columns that take these values; None for the present ones.

        Without `evolve`, only columns of the null type become others. `has_values` says that the
        column has values beside those of the table.
        """
        staged = self.staged
        is_new = name not in staged.schema.names
        index = len(staged.schema) if is_new else staged.index_of(name)
        if not evolve and (is_new or not self.has_nulls(name)):
            return None
        values, field = plain_values(given.values, name)
        if isinstance(values, pa.Scalar):
            values = one_row(values, field.type if is_new else staged.schema.field(index).type)
            field = field.with_type(values.type)
        table = pa.table([values], pa.schema([described(field, given.descriptor)]))
        data = Ingested(table, len(table), None, {}, {name: given.cast})
        schema, frame = evolved(
            data,
            staged.schema,
            staged.frame,
            is_empty=lambda _: not has_values and self.is_free(index),
            takes_columns=evolve,
            widens=evolve,
        )
        is_same = schema.equals(staged.schema, check_metadata=True)
        return None if is_same else EmptyColumns(schema, frame)

    def values(self, index: int, given: GivenValues, evolve: bool) -> pa.Scalar | pa.ChunkedArray:
        """Return values of the user as new values of a column: one for all rows, or one for each.

        `evolve` is the option of the call.
        """
        column = self.coerced(index, given, evolve)
        if isinstance(given.values, pa.Scalar):
            return self.in_order(index, column[0])
        context = f"column {self.staged.schema.field(index).name!r}"
        check_order(column, self.categories(index), context)
        return column

    def computed(self, values: Mapping[int, Any]) -> "Coerce":
        """Return what makes the results of these expressions new values of their columns."""
        given = {
            index: descriptor_of(self.field_of(value), FrameInfo())
            for index, value in values.items()
            if isinstance(value, pc.Expression)
        }

        def coerced(index: int, column: pa.ChunkedArray) -> pa.ChunkedArray:
            field = self.staged.schema.field(index)
            values = GivenValues(narrowed(column, field.type), given[index])
            column = self.coerced(index, values, evolve=False)
            check_order(column, self.categories(index), f"column {field.name!r}")
            return column

        return coerced

    def field_of(self, expression: pc.Expression) -> pa.Field:
        """Return the field of the values of an expression, with the dtype if it is a column."""
        schema = self.staged.schema
        index = expressions.column_of(expression, schema)
        if index is None:
            return pa.field("", expressions.type_of(expression, schema))
        field = schema.field(index)
        descriptor = descriptor_of(field, FrameInfo.decode(self.staged.frame))
        return described(field, descriptor).with_nullable(True)

    def default(self, default: Any, field: pa.Field, order: pa.Array | None) -> pa.Scalar | None:
        """Return a default of the field's type, of the ordered categories; None for null."""
        return default_of(default, field, self.staged.frame, order, self.options())

    def in_order(self, index: int, value: pa.Scalar) -> pa.Scalar:
        """Return the value; for an ordered column, with the categories that the column has."""
        if not pa.types.is_dictionary(value.type) or not value.is_valid:
            return value
        context = f"column {self.staged.schema.field(index).name!r}"
        single = pa.chunked_array([change.rows.repeated(value, 1)])
        return one_in_order(single, self.categories(index), context)[0]

    def categories(self, index: int) -> pa.Array | None:
        """Return the categories of an ordered column, from its first rows; else None."""
        type_ = self.staged.schema.field(index).type
        if not pa.types.is_dictionary(type_) or not type_.ordered:
            return None
        if index >= len(self.snapshot.version.schema):
            return None  # A new column has no categories.
        start = 0
        for group_rows in self.staged.row_groups:
            array = self.snapshot.array(index, range(start, start + 1))
            if len(array.dictionary):
                return plain_values(array.dictionary, "")[0]
            start += group_rows
        return None

    def altered(
        self, index: int, type_: Any, nullable: bool | None
    ) -> tuple[pa.Field, Descriptor | None]:
        """Return the field of a column with another type or nullability, and its frame."""
        field, is_empty = self.staged.schema.field(index), partial(self.is_empty, index)
        return altered(field, self.staged.frame, type_, nullable, is_empty)

    def is_empty(self, index: int) -> bool:
        """True if all rows of a column are null."""
        with OpenColumns.whole(self.staged) as opened:
            return int(null_counts(opened, index).sum()) == self.staged.head.rows

    def is_free(self, index: int) -> bool:
        """True if a column holds nothing but nulls and has no declared default."""
        return index not in self.staged.default_values() and self.is_empty(index)

    def coerced(self, index: int, given: GivenValues, evolve: bool) -> pa.ChunkedArray:
        """Return values of the user in the type of a column."""
        field = self.staged.schema.field(index)
        return coerce_values(
            given,
            field,
            self.staged.frame,
            f"column {field.name!r}",
            evolve=evolve,
            is_empty=partial(self.is_free, index),
        )
