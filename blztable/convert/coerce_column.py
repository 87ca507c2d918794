"""Coerce a column: convert values to the type and dtype of a table's column, if none changes.

Knows one column at a time; nothing of names and other columns.
"""

from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from blztable.arrow_errors import REFUSALS
from blztable.arrow_types import is_number, is_text
from blztable.convert.categories import one_in_order
from blztable.convert.exact_cast import as_categories, cast_exactly, repeated
from blztable.convert.frames.descriptor import Descriptor
from blztable.convert.frames.frame import Facts, descriptor_of
from blztable.convert.gateway import Nan
from blztable.convert.values import values_of
from blztable.convert.wider import wider
from blztable.errors import SchemaError

# Dtypes that are different in pandas although their values are the same.
_SAME_VALUES = {None, "arrow", "masked", "object", "string"}


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The facts that the columns of a table share, and words for errors about them."""

    facts: Facts
    is_frame: bool
    verb: str = "stored as"
    # The option `evolve` of the call; None if it has none.
    evolve: bool | None = None

    @classmethod
    def of(
        cls, frame: Descriptor | None, verb: str = "stored as", evolve: bool | None = None
    ) -> Self:
        """Return the facts of a table with this frame descriptor."""
        return cls(Facts.decode(frame), frame is not None, verb, evolve)

    def can_be_null(self, field: pa.Field) -> bool:
        """True if a column can hold missing values; numpy's integers and booleans cannot."""
        # pandas would convert them to floats or objects.
        is_plain = pa.types.is_integer(field.type) or pa.types.is_boolean(field.type)
        is_numpy = self.is_frame and is_plain and descriptor_of(field, self.facts) is None
        return bool(field.nullable) and not is_numpy

    def check_nulls(self, column: pa.ChunkedArray, field: pa.Field, context: str) -> None:
        """SchemaError for missing values that the field cannot hold."""
        if column.null_count and not self.can_be_null(field):
            why = "a numpy dtype without nulls" if field.nullable else "which is not nullable"
            is_float = pa.types.is_floating(field.type)
            or_keep = ", or pass nan_as_null=False to keep NaN" if is_float else ""
            raise SchemaError(
                f"{context}: missing values cannot be {self.verb} {field.type}, {why}; "
                f"fill or drop them first{or_keep}"
            )


def coerce_column(
    column: pa.ChunkedArray,
    descriptor: Descriptor | None,
    field: pa.Field,
    table: TableFacts,
    context: str,
) -> pa.ChunkedArray:
    """Return the column as `field` of a table; SchemaError if a value would change."""
    source, type_, verb = column.type, field.type, table.verb
    try:
        array = cast_exactly(column, type_)
    except REFUSALS as error:
        raise SchemaError(
            f"{context}: {source} values cannot be {verb} {type_} without loss: {error}"
            + _remedies(column, type_, table.evolve)
        ) from None
    if array is None:
        raise SchemaError(
            f"{context}: type {source} cannot be {verb} {type_} without loss"
            + _remedies(column, type_, table.evolve, f"cast the data to {type_}")
        )
    table.check_nulls(array, field, context)
    ours, theirs = _word(descriptor_of(field, table.facts)), _word(descriptor)
    is_same = ours == theirs or _SAME_VALUES.issuperset((ours, theirs))
    if not is_same and array.null_count < len(array):
        raise SchemaError(
            f"{context}: dtype {theirs or 'plain'} cannot be {verb} dtype {ours or 'plain'} "
            "without change; convert the data first"
        )
    return array


def _remedies(
    column: pa.ChunkedArray, type_: pa.DataType, evolve: bool | None, *remedies: str
) -> str:
    """Return the end of an error about a column that does not fit `type_`: the calls that help."""
    why = ""
    if pa.types.is_null(type_):
        remedies = ("add a new column",)
    elif evolve is False and wider(column, type_) != type_:
        remedies = (*remedies, "pass evolve=True")
    elif evolve is not None and is_number(column.type) and is_number(type_):
        why = f"; {type_} cannot be widened to {column.type} without loss"
        remedies = (*remedies, "add a new column")
    return f"{why}; {', or '.join(remedies)}" if remedies else why


def coerce_values(
    values: pa.Array | pa.ChunkedArray | pa.Scalar,
    descriptor: Descriptor | None,
    field: pa.Field,
    frame: Descriptor | None,
    context: str,
) -> pa.ChunkedArray:
    """Return values, or a scalar as one row, as the column `field` of a table with this frame.

    Raises
    ------
    SchemaError
        The type or dtype would change values, or values are missing in a column that cannot be
        null; `context` begins the message.
    """
    if isinstance(values, pa.Scalar):
        column = _one_row(values, field.type)
    else:
        column = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
        if is_text(column.type):
            column = as_categories(column, field.type)
    return coerce_column(column, descriptor, field, TableFacts.of(frame), context)


def default_of(
    default: Any, field: pa.Field, frame: Any, order: Any, nan: Nan = Nan.NULL_IN_PANDAS
) -> pa.Scalar | None:
    """Return the default as a value of the field's type; None for no default and for null."""
    if default is None:
        return None
    context = f"the default of column {field.name!r}"
    value, descriptor = values_of(default, context, nan)
    if not isinstance(value, pa.Scalar):
        raise SchemaError(f"{context}: expected one value, found {len(value)}")
    column = coerce_values(value, descriptor, field, frame, context)
    return None if column.null_count else one_in_order(column, order, context)[0]


def _one_row(value: pa.Scalar, type_: pa.DataType) -> pa.ChunkedArray:
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
        if pa.types.is_floating(type_) and (is_nan or value.cast(type_).as_py() == value.as_py()):
            return repeated(type_, 1, value)
    return repeated(value.type, 1, value)


def _word(descriptor: object) -> str | None:
    """Return the dtype in a descriptor, without the parts that depend on the values."""
    if not isinstance(descriptor, dict):
        return None
    if descriptor.get("dtype") == "category":
        facts = descriptor.get("categories")
        inner = _word(facts.get("values")) if isinstance(facts, dict) else None
        # For most categories the Arrow type says all.
        return None if inner is None else f"categories of {inner}"
    words = [str(descriptor[key]) for key in ("dtype", "freq", "library") if key in descriptor]
    return " ".join(words)
