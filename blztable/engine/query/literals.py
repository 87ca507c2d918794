"""Literals: how a value of any kind meets the type of a column.

Knows types and values; nothing of rows, statistics, or the form of a filter.

Theory of operation. Tuples, texts and expressions become comparisons by `compared` and sets by
`among`, and both ask `position`. It finds the literal among the values that the column's type can
hold: at one of them, between two of them, or beyond them all. A literal between two values equals
none, and an order is one with its neighbour: beside days, `> noon` is `> day`. So a column meets
only values of its own type, for rows, codes and bounds, and Arrow inserts no cast, which could
round, overflow or refuse. Two instants, two numbers or two dates always have a common order; for
two kinds without one, such as a number and a text, `position` raises.

Numbers and times are exact: integers that count a unit (1, a decimal's last digit, a second, a
day), compared as fractions. Only floats round: a number that has no width of its own (a Python
float, a decimal) is rounded to the width of a column of floats, as in SQL.
"""

import datetime
import math
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from decimal import Context, Decimal
from fractions import Fraction
from operator import eq, ge, gt, le, lt, ne
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.types import REFUSALS, compared_type, is_text, value_type
from blztable.errors import SchemaError

Compare = Callable[[Any, Any], pc.Expression]

_IDS = {
    "boolean": [pa.bool_()],
    "integer": [
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.uint8(),
        pa.uint16(),
        pa.uint32(),
        pa.uint64(),
    ],
    "float": [pa.float16(), pa.float32(), pa.float64()],
    "decimal": [pa.decimal32(1), pa.decimal64(1), pa.decimal128(1), pa.decimal256(1)],
    "date": [pa.date32(), pa.date64()],
    "time": [pa.time32("s"), pa.time64("us")],
    "duration": [pa.duration("s")],
    "timestamp": [pa.timestamp("s")],
    "item": [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
    ],
}
_KINDS = {type_.id: kind for kind, types in _IDS.items() for type_ in types}
# The families whose values are numbers.
_NUMBERS = ("integer", "float", "decimal")
# Types of Python whose values pyarrow converts to these types exactly, or refuses.
_OWN: dict[int, frozenset[type]] = {
    **{type_.id: frozenset({int}) for type_ in _IDS["integer"]},
    **{pa.string().id: frozenset({str}), pa.large_string().id: frozenset({str})},
    **{pa.binary().id: frozenset({bytes}), pa.large_binary().id: frozenset({bytes})},
    **{pa.bool_().id: frozenset({bool}), pa.date32().id: frozenset({datetime.date})},
    pa.float64().id: frozenset({int, float}),
}
_UNREADABLE = (*REFUSALS, TypeError, ValueError, OverflowError, AttributeError)
# Nanoseconds.
_UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY = 86_400 * 10**9
# Units of numpy that Arrow lacks, and are whole seconds.
_OF_SECONDS = ("Y", "M", "W", "D", "h", "m")
_EXACT = Context(prec=100)

_MIRRORED: dict[Compare, Compare] = {eq: eq, ne: ne, lt: gt, le: ge, gt: lt, ge: le}
# The comparison with a neighbour that means the same as one with a literal between two values: with
# the value below the literal, and with the value above it.
_WITH_LOWER: dict[Compare, Compare] = {lt: le, le: le, gt: gt, ge: gt}
_WITH_HIGHER: dict[Compare, Compare] = {lt: lt, le: lt, gt: ge, ge: ge}

_WORDS = {
    "boolean": "a boolean",
    "integer": "a number",
    "float": "a number",
    "decimal": "a number",
    "date": "a date",
    "time": "a time of day",
    "duration": "a duration",
    "timestamp": "a time without a time zone",
    "instant": "a time with a time zone",
}
_REMEDIES = {
    "boolean": "compare it with true or false",
    "integer": "compare it with a number",
    "float": "compare it with a number",
    "decimal": "compare it with a number",
    "date": "compare it with a date, such as '2026-01-02'",
    "time": "compare it with a time of day, such as '10:00'",
    "duration": "compare it with a datetime.timedelta",
    "timestamp": "compare it with a time without a time zone, such as '2026-01-02T10:00'",
    "instant": "compare it with a time with a time zone, such as '2026-01-02T10:00Z'",
}


class ComparedColumn(NamedTuple):
    """One side of a comparison: its name as text, its expression, and its type."""

    name: str
    expression: pc.Expression
    type: pa.DataType


class Position(NamedTuple):
    """Where a literal is among the values of a type.

    Attributes
    ----------
    value
        The literal as a value of the type, or a neighbour of it; None if it is beyond all values.
    side
        0: at the value, or without any order if there is none; 1: above it; -1: below it.
    """

    value: pa.Scalar | None
    side: int = 0


def compared(column: ComparedColumn, compare: Compare, value: pa.Scalar) -> pc.Expression:
    """Return the comparison of a column with a literal; SchemaError if they have no order."""
    neighbour, side = position(column, value)
    if neighbour is not None and not side:
        return compare(column.expression, neighbour)
    if compare in (eq, ne):
        return _constant(column, compare is ne)
    if neighbour is None:
        return _constant(column, side == (1 if compare in (lt, le) else -1))
    return (_WITH_LOWER if side > 0 else _WITH_HIGHER)[compare](column.expression, neighbour)


def _constant(column: ComparedColumn, is_true: bool) -> pc.Expression:
    """Return a comparison that is the same for all values of a column, and null for a null."""
    null = pa.scalar(None, pa.bool_())
    return pc.if_else(column.expression.is_valid(), pa.scalar(is_true), null)


def mirrored(compare: Compare) -> Compare:
    """Return the comparison that holds for (b, a) where this one holds for (a, b)."""
    return _MIRRORED[compare]


def among(column: ComparedColumn, values: pa.Array | Sequence[pa.Scalar]) -> pc.Expression:
    """Return the condition that a column has one of some values; SchemaError as in `compared`.

    A null among the values matches nulls, and a NaN every NaN.
    """
    members, expression = _members(column, values), column.expression
    if not pa.types.is_floating(members.type):
        return expression.isin(members)
    # Arrow's sets distinguish floats by their bits.
    is_zero = pc.fill_null(pc.equal(members, pa.scalar(0, members.type)), False)
    if pc.any(is_zero).as_py():
        zeros = pa.array([0.0, -0.0], members.type)
        members = pa.concat_arrays([members.filter(pc.invert(is_zero)), zeros])
    is_nan = pc.fill_null(pc.is_nan(members), False)
    if not pc.any(is_nan).as_py():
        return expression.isin(members)
    test = expression.isin(members.filter(pc.invert(is_nan)))
    return test | (expression.is_valid() & pc.is_nan(expression))


def _members(column: ComparedColumn, values: pa.Array | Sequence[pa.Scalar]) -> pa.Array:
    """Return the values that a column can have, and nulls, as an array of the column's type."""
    type_ = compared_type(column.type)
    if isinstance(values, pa.Array):
        values = plain(values)
        if values.type == type_ and not pa.types.is_nested(type_):
            return values
        if kind(values.type) == kind(type_) in ("integer", "item"):
            with suppress(*REFUSALS):
                return values.cast(type_)
    valid = [value for value in values if value.is_valid]
    positions = [position(column, value) for value in valid]
    exact = [position for position in positions if not position.side]
    members = [position.value for position in exact if position.value is not None]
    nulls = [None] * (len(valid) < len(values))
    return pa.array([*members, *nulls], type_)


def is_decided(column: ComparedColumn, value: pa.Scalar | pa.Array) -> bool:
    """True if literals have the type that Arrow compares the column's values as already."""
    type_ = compared_type(column.type)
    is_own = value.type == type_ and column.type != pa.float16()
    return is_own and not pa.types.is_nested(type_)


def position(column: ComparedColumn, value: pa.Scalar) -> Position:
    """Return where a literal is among the values that a column can have.

    Raises
    ------
    SchemaError
        The literal and the column have no common order.
    """
    value, type_ = plain(value), compared_type(column.type)
    if pa.types.is_null(type_):
        # Arrow compares no values of this type, not even nulls.
        return Position(None)
    if not value.is_valid:
        # pa.scalar makes no null of a dictionary of lists.
        return Position(pa.nulls(1, type_)[0])
    position = None
    with suppress(*REFUSALS, ValueError, OverflowError):
        position = _position(value, value_type(column.type), type_)
    if position is None:
        raise misfit(column, value)
    return position


def _position(value: pa.Scalar, type_: pa.DataType, compared: pa.DataType) -> Position | None:
    """Return the position of a valid literal; None if there is none."""
    if value.type == compared and type_ != pa.float16():
        return None if pa.types.is_nested(type_) else Position(value)
    match kind(value.type), kind(type_):
        case (("integer" | "float" | "decimal"), "float"):
            return _among_floats(value, type_, compared)
        case (("integer" | "float" | "decimal"), ("integer" | "decimal")):
            return _among_counts(_number(value, type_), compared)
        case (("date" | "timestamp"), ("date" | "timestamp")):
            return _among_counts(_ticks(value), compared)
        case ("instant", "instant") | ("time", "time") | ("duration", "duration"):
            return _among_counts(_ticks(value), compared)
        case "item", "item":
            return Position(value.cast(compared))
        case "item", ("date" | "time" | "timestamp" | "instant") if is_text(value.type):
            moment_ = moment(value.as_py(), compared)
            return None if moment_ is None else _position(moment_, type_, compared)
        case (("item" | None), None) if pa.types.is_fixed_size_binary(type_):
            is_data = kind(value.type) or pa.types.is_fixed_size_binary(value.type)
            return _among_fixed(value, type_) if is_data else None
        case None, "item" if pa.types.is_fixed_size_binary(value.type):
            return Position(value.cast(pa.binary()).cast(compared))
    return None


def _among_floats(value: pa.Scalar, type_: pa.DataType, compared: pa.DataType) -> Position:
    """Return the position of a number among floats: a float has a width, and is not rounded."""
    number = value.as_py()
    if not pa.types.is_floating(value.type):
        value = rounded(number, type_)
        if value.type == compared:
            return Position(value)
        number = value.as_py()
    nearest = _nearest(number, type_)
    side = 0 if math.isnan(number) else (number > nearest) - (number < nearest)
    return Position(pa.scalar(nearest, compared), side)


def rounded(number: Any, type_: pa.DataType) -> pa.Scalar:
    """Return a number as the nearest float of this width, or as a double if it is beyond these."""
    number = _as_float(number)
    nearest = _nearest(number, type_)
    if math.isinf(nearest) and not math.isinf(number):
        return pa.scalar(number)
    return pa.scalar(nearest, compared_type(type_))


def _nearest(number: float, type_: pa.DataType) -> float:
    with np.errstate(over="ignore"):
        return float(np.dtype(f"f{type_.bit_width // 8}").type(number))


def _as_float(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _number(value: pa.Scalar, type_: pa.DataType) -> Fraction | float:
    """Return a number exactly; a float beside decimals as the decimal that it is printed as."""
    number = value.as_py()
    if not isinstance(number, float):
        return Fraction(number)
    if not math.isfinite(number):
        return number
    if kind(type_) == "decimal":
        return Fraction(str(np.dtype(f"f{value.type.bit_width // 8}").type(number)))
    return Fraction(number)


def _ticks(value: pa.Scalar) -> Fraction:
    """Return a date, time or duration in nanoseconds."""
    return value.value * _unit(value.type)


def _unit(type_: pa.DataType) -> Fraction:
    """Return what 1 in the integers of a type counts: a number, or nanoseconds."""
    match kind(type_):
        case "integer":
            return Fraction(1)
        case "decimal":
            return Fraction(10) ** -type_.scale
        case "date":
            return Fraction(_DAY if pa.types.is_date32(type_) else _UNITS["ms"])
        case _:
            return Fraction(_UNITS[type_.unit])


def _among_counts(number: Fraction | float, type_: pa.DataType) -> Position:
    """Return the position of a number among the values of a type that counts a unit."""
    if isinstance(number, float):
        return Position(None, 0 if math.isnan(number) else int(math.copysign(1, number)))
    lowest, highest = _range(type_)
    count = number / _unit(type_)
    below = math.floor(count)
    if below < lowest or count > highest:
        return Position(None, 1 if below > 0 else -1)
    return Position(_counted(below, type_), int(count != below))


def _range(type_: pa.DataType) -> tuple[int, int]:
    """Return the least and the greatest integer of a type that counts a unit."""
    if kind(type_) == "decimal":
        end = 10**type_.precision - 1
        return -end, end
    if pa.types.is_unsigned_integer(type_):
        return 0, 2**type_.bit_width - 1
    end = 2 ** (type_.bit_width - 1)
    return -end, end - 1


def _counted(count: int, type_: pa.DataType) -> pa.Scalar:
    """Return the value of a type that is this integer."""
    match kind(type_):
        case "integer":
            return pa.scalar(count, type_)
        case "decimal":
            return pa.scalar(Decimal(count).scaleb(-type_.scale, _EXACT), type_)
        case _:
            return pa.scalar(count, pa.int32() if type_.bit_width == 32 else pa.int64()).cast(type_)


def _among_fixed(value: pa.Scalar, type_: pa.DataType) -> Position:
    """Return the position of bytes, or of the text of a UUID, among bytes of one length."""
    data, width = value.as_py(), type_.byte_width
    if isinstance(data, str):
        data = uuid.UUID(data).bytes if width == 16 else data.encode()
    nearest = data[:width].ljust(width, b"\0")
    return Position(pa.scalar(nearest, type_), (len(data) > width) - (len(data) < width))


def moment(text: str, type_: pa.DataType) -> pa.Scalar | None:
    """Return a date or a time; without an offset it is one of the time zone of the column."""
    if pa.types.is_time(type_):
        time = moment(f"1970-01-01T{text}", pa.timestamp("s"))
        return time and time.cast(pa.timestamp("ns")).cast(pa.time64("ns"))
    zone = getattr(type_, "tz", None)
    for unit in _UNITS:
        one = pa.timestamp(unit, zone)
        with suppress(*REFUSALS):
            return pa.scalar(text).cast(one)
        if zone:
            with suppress(*REFUSALS):
                return pc.assume_timezone(pa.scalar(text).cast(pa.timestamp(unit)), zone)
    return None


def kind(type_: pa.DataType) -> str | None:
    """Return the name of the family of types that share an order; None without an order."""
    name = _KINDS.get(type_.id)
    # An instant and a wall-clock time have no common order.
    return "instant" if name == "timestamp" and type_.tz is not None else name


def plain(value: Any) -> Any:
    """Return an array or a scalar of Arrow without extension, dictionary and view."""
    if isinstance(value, pa.ExtensionScalar | pa.DictionaryScalar):
        return plain(pa.scalar(None) if value.value is None else value.value)
    if isinstance(value, pa.ExtensionArray):
        return plain(value.storage)
    if isinstance(value, pa.DictionaryArray):
        return plain(value.dictionary_decode())
    type_ = compared_type(value.type)
    return value if type_ == value.type else value.cast(type_)


def values_of(values: Iterable[Any], column: ComparedColumn) -> pa.Array | list[pa.Scalar]:
    """Return the values of a set for `among`: objects of Python, numpy, pandas or Arrow."""
    if isinstance(values, pa.ChunkedArray):
        return pa.concat_arrays(values.chunks) if values.num_chunks else pa.nulls(0)
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        values = values.tolist()
    values, own = list(values), _OWN.get(value_type(column.type).id)
    if own and set(map(type, values)) <= own | {type(None)}:
        with suppress(*_UNREADABLE):
            return pa.array(values, compared_type(column.type))
    return [scalar_of(value, column) for value in values]


def scalar_of(value: Any, column: ComparedColumn) -> pa.Scalar:
    """Return an object of Python, numpy, pandas or Arrow as exactly this value of Arrow.

    A number without a width is rounded to that of a column of floats.

    Raises
    ------
    SchemaError
        No type of Arrow that is compared has this value.
    """
    try:
        if type(value) in _OWN.get(value_type(column.type).id, ()):
            with suppress(*_UNREADABLE):
                return pa.scalar(value, compared_type(column.type))
        scalar = _scalar(value, value_type(column.type))
    except _UNREADABLE:
        scalar = None
    if scalar is None:
        raise misfit(column, value)
    return scalar


def operand_of(value: Any, column: ComparedColumn) -> pa.Scalar:
    """Return one side of a comparison as `scalar_of` does, but NaN as a number beside numbers.

    In a set, NaN stands for missing values. In a comparison it is no value: every number differs
    from it, as in pandas.
    """
    is_float = isinstance(value, float | np.floating)
    if is_float and kind(value_type(column.type)) in _NUMBERS and math.isnan(value):
        return pa.scalar(math.nan)
    return scalar_of(value, column)


def _scalar(value: Any, type_: pa.DataType) -> pa.Scalar | None:
    if isinstance(value, pa.Scalar):
        return value
    if isinstance(value, uuid.UUID):
        return pa.scalar(value.bytes, pa.binary(16))
    # Those of pandas know their nanoseconds, as numpy's.
    exact = getattr(value, "asm8", value)
    if isinstance(exact, np.datetime64 | np.timedelta64):
        scalar = _of_numpy(exact)
        if scalar is None or not scalar.is_valid or getattr(value, "tzinfo", None) is None:
            return scalar
        return scalar.cast(pa.timestamp(scalar.type.unit, "UTC"))
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and kind(type_) == "float":
        return rounded(value, type_)
    if isinstance(value, datetime.time) and value.tzinfo is not None:
        return None
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.UTC)
    with suppress(*_UNREADABLE):
        # NaN of a column that has none is a missing value, as in pandas.
        return pa.array([value], from_pandas=True)[0]
    if isinstance(value, int | Decimal):
        with suppress(*_UNREADABLE):
            return pa.scalar(Decimal(value))
        return pa.scalar(_as_float(value))
    return None


def _of_numpy(value: np.datetime64 | np.timedelta64) -> pa.Scalar | None:
    """Return a date, time or duration of numpy in a unit of Arrow; None if none has its value."""
    if np.isnat(value):
        return pa.scalar(None)
    unit, name = np.datetime_data(value.dtype)[0], value.dtype.kind
    if unit == "generic" or (name == "m" and unit in ("Y", "M")):
        # A number, or a length that depends on the calendar.
        return None
    unit = "s" if unit in _OF_SECONDS else unit if unit in _UNITS else "ns"
    stamp = value.astype(f"{name}8[{unit}]")
    # Where it overflows, or is finer, another value comes back.
    return pa.scalar(stamp) if stamp.astype(value.dtype) == value else None


def misfit(column: ComparedColumn, value: Any) -> SchemaError:
    """Return the error about a literal that has no order with a column."""
    type_ = column.type
    return SchemaError(
        f"column {column.name!r} is {type_}; the value {_quoted(value)} is {_described(value)}; "
        f"{_remedy(value_type(type_))}"
    )


def _quoted(value: Any) -> str:
    with suppress(ValueError, OverflowError):
        value = value.as_py() if isinstance(value, pa.Scalar) else value
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value!r:.100}" if isinstance(value, str | bytes) else f"{value!s:.100}"


def _described(value: Any) -> str:
    """Return what a value is, in words."""
    if isinstance(value, str | bytes):
        return "text that is not UTF-8" if isinstance(value, str) else "bytes"
    if not isinstance(value, pa.Scalar):
        return f"of type {type(value).__name__}"
    name = kind(value.type)
    if name == "item":
        return "text" if is_text(value.type) else "bytes"
    return _WORDS.get(name or "", str(value.type))


def _remedy(type_: pa.DataType) -> str:
    name = kind(type_)
    if name == "item":
        return f"compare it with {'a text, such as ' + repr('Bern') if is_text(type_) else 'bytes'}"
    if pa.types.is_fixed_size_binary(type_):
        return "compare it with bytes" + (", or with a UUID" if type_.byte_width == 16 else "")
    return _REMEDIES.get(name or "", "only is_null() and is_valid() are for a column of this type")
