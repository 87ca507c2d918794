"""Coerce a column: convert values to the type and dtype of a table's column, if none changes.

Knows one column at a time; nothing of names and other columns.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from blztable.arrow.casts import cast_exactly, keeps_anyhow, misfit, repeated
from blztable.arrow.extensions import plain_values
from blztable.arrow.nested.casts import Cast
from blztable.arrow.types import (
    REFUSALS,
    abbreviated,
    first_missing,
    is_moment,
    is_text,
    is_zoned,
    nulls,
    value_type,
)
from blztable.convert.categories import (
    are_intervals,
    as_interval_texts,
    check_kind,
    descriptor_of_values,
    one_in_order,
)
from blztable.convert.frames import dtypes, objects
from blztable.convert.frames.descriptor import Descriptor
from blztable.convert.frames.frame import FrameInfo, descriptor_of
from blztable.convert.gateway import AS_USUAL, IngestOptions, cast_for
from blztable.convert.values import GivenValues, nested_value, values_of
from blztable.convert.wider import wider
from blztable.errors import SchemaError

# Dtypes that are different in pandas although their values are the same.
_SAME_VALUES = {None, "arrow", "masked", "object", "sparse", "string"}
# Of these, the dtypes that have lists, structs and maps.
_OF_ARROW = {None, "arrow"}


@dataclass(frozen=True, slots=True)
class CoercionContext:
    """The facts that the columns of a table share, and words for errors about them."""

    info: FrameInfo
    verb: str = "stored as"
    # The option `evolve` of the call; None if it has none.
    evolve: bool | None = None
    # True for a table that is being created from a stream.
    is_new: bool = False

    def check_nulls(self, column: pa.ChunkedArray, field: pa.Field, context: str) -> None:
        """SchemaError for missing values that the field cannot hold."""
        row = None if field.nullable else first_missing(column)
        if row is None:
            return
        is_float = pa.types.is_floating(field.type)
        or_keep = ", or pass nan_as_null=False to keep NaN" if is_float else ""
        raise SchemaError(
            f"{context}: missing values cannot be {self.verb} {field.type}, which is not nullable; "
            f"the first is in row {row}; fill or drop them{or_keep}, or allow them with "
            f"alter_column({field.name!r}, nullable=True)"
        )


def coerce_column(
    column: pa.ChunkedArray,
    descriptor: Descriptor | None,
    field: pa.Field,
    table: CoercionContext,
    context: str,
    is_empty: Callable[[], bool] = lambda: False,
    *,
    cast: Cast = cast_exactly,
) -> pa.ChunkedArray:
    """Return the column as `field` of a table; SchemaError if a value would change.

    `is_empty` returns whether the table's column holds nothing but nulls. `cast` says which
    values are the same.
    """
    stated = descriptor_of(field, table.info)
    cast = cast_for(descriptor, cast)
    if objects.differ(stated, descriptor):
        values = _objects(column, descriptor)
        may_widen = partial(_may_widen, column, descriptor, field, table, is_empty, cast)
        array = objects.as_stated(values, stated, context, table.evolve, may_widen)
        column, descriptor = pa.chunked_array([plain_values(array, field.name)[0]]), stated
    column, descriptor = _intervals(column, descriptor, stated, table, context)
    source, type_, verb = column.type, field.type, table.verb
    ours, theirs = _word(stated), _word(descriptor)
    of_dtypes = (
        f"{context}: dtype {theirs or 'plain'} cannot be {verb} dtype {ours or 'plain'} "
        "without change; convert the data first"
    )
    if ours != theirs and column.null_count == len(column):
        # Without the categories of another dtype.
        return pa.chunked_array([nulls(len(column), type_)])
    if ours != theirs and dtypes.is_reinterpreted(stated):
        raise SchemaError(of_dtypes)
    array = cast(column, type_)
    if array is None:
        remedies = _remedies(column, field, table, is_empty, cast)
        if is_moment(source) and is_moment(type_) and is_zoned(source) != is_zoned(type_):
            raise SchemaError(
                f"{context}: {_zoned(source)} cannot be {verb} {_zoned(type_)}; {remedies}"
            )
        raise SchemaError(
            f"{context}: type {abbreviated(source)} cannot be {verb} {abbreviated(type_)} "
            f"without loss: {_misfit(column, type_, cast)}; {remedies}"
        )
    is_same = ours == theirs or _SAME_VALUES.issuperset((ours, theirs))
    # Lists of Python are lists where nothing is known of pandas, and the other way round.
    is_same |= ours in _OF_ARROW and objects.are_nested(descriptor)
    is_same |= theirs in _OF_ARROW and objects.are_nested(stated)
    if not is_same:
        raise SchemaError(of_dtypes)
    return array


def _intervals(
    column: pa.ChunkedArray,
    descriptor: Descriptor | None,
    stated: Descriptor | None,
    table: CoercionContext,
    context: str,
) -> tuple[pa.ChunkedArray, Descriptor | None]:
    """Return intervals for categories of intervals as the texts that these are; others unchanged.

    Raise SchemaError for an interval that is none of the table's dtype.
    """
    of_values = descriptor_of_values(stated)
    is_same = _word(descriptor) == _word(stated) or column.null_count == len(column)
    if is_same or of_values is None or "text" not in of_values or not are_intervals(descriptor):
        return column, descriptor
    texts = as_interval_texts(column, descriptor, of_values)
    if texts is None:
        theirs = pd.Categorical(dtypes.decode(column[:0], descriptor, None)).categories.dtype
        ours = dtypes.decode(pa.chunked_array([], pa.large_string()), of_values, None).dtype
        remedy = "give all items intervals of one dtype" if table.is_new else "convert them first"
        raise SchemaError(
            f"{context}: {theirs} cannot be {table.verb} categories "
            f"of {ours} without change; {remedy}"
        )
    return texts, stated


def _objects(column: pa.ChunkedArray, descriptor: Descriptor | None) -> np.ndarray:
    """Return the values as Python objects."""
    if descriptor is None and column.type.num_fields:
        # Python's lists and dicts, where pandas would make arrays.
        values = column.to_pylist()
    else:
        values = dtypes.decode(column, descriptor, None)
    return objects.objects_of(values, column.is_null().to_numpy())


def _zoned(type_: pa.DataType) -> str:
    """Return what kind of times a type has, for an error."""
    if pa.types.is_date(type_):
        return f"dates (type {type_})"
    how = f"in the zone {type_.tz}" if is_zoned(type_) else "without a time zone"
    return f"times {how} (type {type_})"


def _misfit(column: pa.ChunkedArray, type_: pa.DataType, cast: Cast) -> str:
    """Return why a column does not fit a type: a row, or too many categories."""
    if pa.types.is_dictionary(type_):
        roomy = pa.dictionary(pa.int64(), type_.value_type, type_.ordered)
        if cast_exactly(column, roomy) is not None:
            return f"codes of {type_.index_type} have no room for all categories"
    row, value = misfit(column, lambda rows: cast(rows, type_))
    return f"row {row} is {value}"


def _remedies(
    column: pa.ChunkedArray,
    field: pa.Field,
    table: CoercionContext,
    is_empty: Callable[[], bool],
    cast: Cast,
) -> str:
    """Return the end of an error about a column that does not fit a field: the calls that help."""
    if _may_widen(column, None, field, table, is_empty, cast):
        return "pass evolve=True"
    source, type_ = value_type(column.type), value_type(field.type)
    if pa.types.is_dictionary(field.type) and field.type.ordered:
        return "give the data the same ordered categories, with pd.Categorical"
    if is_moment(source) and is_moment(type_) and is_zoned(source) != is_zoned(type_):
        return _zone_remedy(source, type_)
    remedies = []
    with suppress(*REFUSALS):
        column.cast(field.type)
        remedies.append(f"cast the data to {field.type}")
    if table.is_new:
        remedies.append("give the column one type in all items, such as text")
    else:
        wide = wider(column, field.type, is_empty=is_empty(), cast=cast)
        how = ""
        if wide == field.type and keeps_anyhow(type_, source):
            wide, how = source, ", safe=False"
        if wide != field.type:
            call = f"alter_column({field.name!r}, dtype={_spelled(wide)}{how})"
            remedies.append(f"change the column with {call}")
    return ", or ".join(remedies) or "convert the data, or add them as another column"


def _zone_remedy(source: pa.DataType, type_: pa.DataType) -> str:
    """Return how times get the zone that a column has, or lose theirs."""
    if not is_zoned(source):
        zone = type_.tz
        return (
            f"say in which zone they are, with Series.dt.tz_localize({zone!r}), or "
            f"pc.assume_timezone(array, {zone!r}) for Arrow"
        )
    return (
        "take the times without the zone, with Series.dt.tz_localize(None), or "
        "pc.local_timestamp(array) for Arrow"
    )


def _may_widen(
    column: pa.ChunkedArray,
    descriptor: Descriptor | None,
    field: pa.Field,
    table: CoercionContext,
    is_empty: Callable[[], bool],
    cast: Cast,
) -> bool:
    """True if the column would fit a wider field, and the call could ask for one."""
    if table.evolve is not False or table.is_new:
        return False
    try:
        objects.merged(descriptor_of(field, table.info), descriptor)
    except SchemaError:
        return False
    return wider(column, field.type, is_empty=is_empty(), cast=cast) != field.type


def _spelled(type_: pa.DataType) -> str:
    """Return a type as Python code, or dots for one with other types in it."""
    if pa.types.is_decimal(type_):
        return f"pa.decimal{type_.bit_width}({type_.precision}, {type_.scale})"
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return f"pa.timestamp({type_.unit!r}, {type_.tz!r})"
    try:
        pa.type_for_alias(str(type_))
    except ValueError:
        return "..."
    return f'"{type_}"'


def coerce_values(
    given: GivenValues,
    field: pa.Field,
    frame: Descriptor | None,
    context: str,
    *,
    evolve: bool | None = None,
    is_empty: Callable[[], bool] = lambda: False,
) -> pa.ChunkedArray:
    """Return values, or a scalar as one row, as the column `field` of a table with this frame.

    `evolve` is the option of the call, None if it has none.

    Raises
    ------
    SchemaError
        The type or dtype would change values, or values are missing in a column that cannot be
        null; `context` begins the message.
    """
    values, source = plain_values(given.values, field.name)
    descriptor = given.descriptor
    table = CoercionContext(FrameInfo.decode(frame), evolve=evolve)
    stated = descriptor_of(field, table.info)
    check_kind(source, field, stated, context)
    if isinstance(values, pa.Scalar):
        if are_intervals(descriptor):
            column = pa.chunked_array([pa.repeat(values, 1)])
            column, descriptor = _intervals(column, descriptor, stated, table, context)
            values = column[0].value if pa.types.is_dictionary(column.type) else values
        column = one_row(values, field.type)
    else:
        column = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
    column = coerce_column(column, descriptor, field, table, context, is_empty, cast=given.cast)
    table.check_nulls(column, field, context)
    return column


def options_for(options: IngestOptions, field: pa.Field, frame: Descriptor | None) -> IngestOptions:
    """Return how values for a column are read: as JSON, if it holds mixed objects; or as sets."""
    stated = descriptor_of(field, FrameInfo.decode(frame))
    if objects.is_json(stated):
        return replace(options, objects="json", has_sets=True)
    return replace(options, has_sets=objects.are_sets(stated))


def default_of(
    default: Any, field: pa.Field, frame: Any, order: Any, options: IngestOptions = AS_USUAL
) -> pa.Scalar | None:
    """Return the default as a value of the field's type; None for no default and for null."""
    if default is None:
        return None
    context = f"the default of column {field.name!r}"
    options = options_for(options, field, frame)
    if pa.types.is_nested(value_type(field.type)):
        are_objects = "kind" in (descriptor_of(field, FrameInfo.decode(frame)) or {})
        given = nested_value(default, field.type, context, options, are_objects)
    else:
        given = values_of(default, context, options)
    if not isinstance(given.values, pa.Scalar):
        raise SchemaError(
            f"{context}: expected one value, found an array; pass its value, such as array[0]"
        )
    column = coerce_values(given, field, frame, context)
    has_value = first_missing(column) is None
    return one_in_order(column, order, context)[0] if has_value else None


def one_row(value: pa.Scalar, type_: pa.DataType) -> pa.ChunkedArray:
    """Return a scalar as a column of one row, of type `type_` if that loses nothing."""
    if pa.types.is_dictionary(type_):
        inner = type_.value_type
        if value.type == inner or (is_text(value.type) and is_text(inner)):
            return repeated(type_, 1, value)
    if pa.types.is_floating(value.type):
        is_nan = not value.is_valid or value.as_py() != value.as_py()
        if is_nan and not pa.types.is_floating(type_):
            # Users of pandas write NaN for a missing value in any column.
            return repeated(pa.null(), 1, None)
        if pa.types.is_floating(type_) and is_nan:
            return repeated(type_, 1, value)
    return repeated(value.type, 1, value)


def _word(descriptor: object) -> str | None:
    """Return the dtype in a descriptor, without the parts that depend on the values."""
    # The Arrow type says whether it is a category.
    of_values = descriptor_of_values(descriptor)
    if of_values is None:
        return None
    keys = ("dtype", "freq", "library", "closed", "text")
    words = [str(of_values[key]) for key in keys if key in of_values]
    return " ".join([*words, *objects.special_kind(of_values)])
