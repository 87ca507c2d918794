"""Literals: the values that the literals of a condition stand for, in the types of their columns.

Knows types and values, nothing of the text of a condition.
"""

import datetime
import math
import uuid
from contextlib import suppress
from decimal import Decimal
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.casts import cast_exactly
from blztable.arrow.errors import REFUSALS
from blztable.arrow.types import is_binary, is_text
from blztable.columns.stored import compared_type
from blztable.errors import SchemaError

Literal = str | Decimal | bool


class Column(NamedTuple):
    """A column or a field of structs: its name as text, its expression, and its type."""

    name: str
    expression: pc.Expression
    type: pa.DataType


def typed(value: Literal, column: Column) -> pa.Scalar:
    """Return a literal as a value that Arrow can compare with the column; SchemaError if none."""
    try:
        scalar = _scalar(value, compared_type(column.type))
    except (*REFUSALS, ValueError, OverflowError):
        scalar = None
    if scalar is None:
        raise SchemaError(f"{_shown(value)} is no value of {described(column)}")
    return scalar


def described(column: Column) -> str:
    """Return a column as text for an error, with the form of its literals."""
    type_ = compared_type(column.type)
    what = f"the column {column.name!r}, whose type is {column.type}"
    if is_text(type_):
        return f"{what}; write texts in single quotes"
    if pa.types.is_temporal(type_):
        return f"{what}; write dates and times as '2026-01-02', '2026-01-02T10:00' or '10:00'"
    return what


def _shown(value: Literal) -> str:
    return f"{value!r:.100}" if isinstance(value, str) else f"{value!s:.100}".lower()


def _scalar(value: Literal, type_: pa.DataType) -> pa.Scalar | None:
    """Return a literal as a value of a type, or as the nearest type that is compared with it."""
    if isinstance(value, bool):
        return pa.scalar(value) if pa.types.is_boolean(type_) else None
    if isinstance(value, str):
        if is_text(type_):
            return pa.scalar(value, type_)
        if is_binary(type_):
            return pa.scalar(value.encode(), type_)
        if type_ == pa.binary(16):
            return pa.scalar(uuid.UUID(value).bytes, type_)
        return moment(value, type_)
    if pa.types.is_floating(type_):
        number = pa.scalar(float(value), type_)
        return number if math.isfinite(number.as_py()) else pa.scalar(float(value))
    if pa.types.is_integer(type_) or pa.types.is_decimal(type_):
        # A fraction beside integers stays a decimal: a float would round large ones.
        return _exactly(pa.scalar(value), type_)
    return None


def _exactly(value: pa.Scalar, type_: pa.DataType) -> pa.Scalar:
    """Return a value as another type, or as it is where that would change it."""
    exact = cast_exactly(pa.chunked_array([pa.repeat(value, 1)]), type_)
    return value if exact is None else exact[0]


def moment(text: str, type_: pa.DataType) -> pa.Scalar | None:
    """Return a date or a time; without an offset it is one of the time zone of the column."""
    if pa.types.is_time(type_):
        return _exactly(pa.scalar(datetime.time.fromisoformat(text)), type_)
    if not pa.types.is_timestamp(type_) and not pa.types.is_date(type_):
        return None
    zone = getattr(type_, "tz", None)
    for one in (type_, *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns"))):
        with suppress(*REFUSALS):
            return pa.scalar(text).cast(one)
        if zone:
            with suppress(*REFUSALS):
                return pc.assume_timezone(pa.scalar(text).cast(pa.timestamp(one.unit)), zone)
    return None
