"""Plain values: convert Arrow values to JSON values.

Values without a JSON type become text: dates, times and durations in ISO 8601 (instants in UTC,
with a Z), decimals with all digits, bytes in hexadecimal, NaN and infinities by name. A time
outside of the calendar gets Arrow's own text. So do the values inside others: a struct is an
object, and a list or the pairs of a map are an array. Knows nothing of tables.
"""

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from blztable.cli.terminal import Json

_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def plain_values(column: pa.ChunkedArray) -> list[Json]:
    """Return the values of a column as JSON values, None for a null."""
    return [value for chunk in column.chunks for value in _plain(chunk)]


def plain_object(value: Any) -> Json:
    """Return a value of the attributes as a JSON value; convert numpy numbers and times."""
    match value:
        case dict():
            return {key: plain_object(item) for key, item in value.items()}
        case list() | np.ndarray():
            return [plain_object(item) for item in value]
        case np.bool_() | np.integer() | np.str_():
            return value.item()
        case float() | np.floating():
            return _number(float(str(value)))
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _plain(array: pa.Array) -> list[Json]:
    type_ = array.type
    if pa.types.is_nested(type_) or isinstance(type_, pa.BaseExtensionType):
        return [_plain_scalar(value) for value in array]
    if pa.types.is_dictionary(type_):
        codes = array.indices.to_pylist()
        return [None if code is None else _plain(array.dictionary[code:][:1])[0] for code in codes]
    if pa.types.is_timestamp(type_):
        # Cast without the time zone, which gives UTC: this machine may not know the zone.
        texts = array.view(pa.timestamp(type_.unit)).cast(pa.string()).to_pylist()
        return _mapped(texts, lambda text: _iso(text) + ("Z" if type_.tz else ""))
    if pa.types.is_date(type_) or pa.types.is_time(type_):
        return array.cast(pa.string()).to_pylist()
    if pa.types.is_duration(type_):
        counts = array.view(pa.int64()).to_pylist()
        return _mapped(counts, lambda count: f"PT{_seconds(count, type_.unit)}S")
    if pa.types.is_floating(type_):
        return _mapped(_floats(array), _number)
    convert = _CONVERSIONS.get(type_.id)
    values = array.to_pylist()
    return values if convert is None else _mapped(values, convert)


def _plain_scalar(value: pa.Scalar) -> Json:
    """Return a value that has others inside, or one of an extension type."""
    if not value.is_valid:
        return None
    match value:
        case pa.StructScalar():
            names = [field.name for field in value.type]
            return {name: _alone(value[number]) for number, name in enumerate(names)}
        case pa.MapScalar():
            return list(map(list, zip(*map(_plain, value.values.flatten()), strict=True)))
        case pa.ListScalar():
            return _plain(value.values)
        case pa.UnionScalar() | pa.RunEndEncodedScalar():
            return _alone(value.value)
        case pa.UuidScalar():
            return str(value.as_py())
        case pa.Bool8Scalar():
            return value.as_py()
        case pa.ExtensionScalar():
            return _alone(value.value)
    return _alone(value)


def _alone(value: pa.Scalar) -> Json:
    """Return a single value."""
    return _plain(pa.repeat(value, 1))[0] if value.is_valid else None


def _mapped(values: list[Any], convert: Callable[[Any], Json]) -> list[Json]:
    """Convert the values that are not null."""
    return [None if value is None else convert(value) for value in values]


def _iso(text: str) -> str:
    return text if text.startswith("<") else text.replace(" ", "T")


def _seconds(count: int, unit: str) -> str:
    return f"{Decimal(count).scaleb(-_DIGITS[unit]):f}"


def _floats(array: pa.Array) -> list[float | None]:
    """Return the values as the shortest decimals that are equal in their own width."""
    values = array.to_pylist()
    if pa.types.is_float64(array.type):
        return values
    width = np.float16 if pa.types.is_float16(array.type) else np.float32
    return _mapped(values, lambda value: float(str(width(value))))


def _number(value: float) -> Json:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _interval(value: pa.MonthDayNano) -> str:
    return f"P{value.months}M{value.days}DT{_seconds(value.nanoseconds, 'ns')}S"


_CONVERSIONS: dict[int, Callable[[Any], Json]] = {
    **dict.fromkeys((pa.lib.Type_BINARY, pa.lib.Type_LARGE_BINARY), bytes.hex),
    **dict.fromkeys((pa.lib.Type_BINARY_VIEW, pa.lib.Type_FIXED_SIZE_BINARY), bytes.hex),
    **dict.fromkeys((pa.lib.Type_DECIMAL32, pa.lib.Type_DECIMAL64), str),
    **dict.fromkeys((pa.lib.Type_DECIMAL128, pa.lib.Type_DECIMAL256), str),
    pa.lib.Type_INTERVAL_MONTH_DAY_NANO: _interval,
}
