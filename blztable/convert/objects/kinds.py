"""Kinds: what a column of Python objects holds, as an Arrow array and back.

Knows nothing of pandas columns. Values of one kind become an array of one Arrow type and come back
as they were; None is null. Simple kinds are in this file, and `containers.py` has those that hold
others. A kind as JSON comes from a descriptor. They may come from an untrusted file, so each is
checked, and so is the type of the array that a kind decodes.
"""

import datetime
import decimal
import ipaddress
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from blztable.arrow.types import REFUSALS, is_binary, is_text
from blztable.convert.arrays import missing_of
from blztable.convert.frames import numbers, times
from blztable.convert.frames.descriptor import Json
from blztable.convert.frames.text import check_text
from blztable.errors import FormatError, SchemaError

# A sequence of objects, or an array of them.
Values: TypeAlias = Sequence[Any] | np.ndarray
# What Arrow and Python raise for a value that is out of range.
UNFIT = (*REFUSALS, ValueError, TypeError, OverflowError, ArithmeticError, SchemaError)


class UnsuitableError(Exception):
    """A value that cannot be stored beside the others: its row, and why."""

    def __init__(self, row: int, value: Any, why: str) -> None:
        super().__init__(row, value, why)
        self.row, self.value, self.why = row, value, why


class Kind(Protocol):
    """Values of one kind. `encode` and `decode` are each other's inverse."""

    @property
    def as_json(self) -> Json:
        """The kind as JSON."""

    @property
    def is_hashable(self) -> bool:
        """True if a set can hold the values."""

    @property
    def takes_any(self) -> bool:
        """True if every value of the Arrow type is one of the kind."""

    def encode(self, values: Values) -> pa.Array:
        """Return the values, and null for None; UnsuitableError for a value of another kind."""

    def decode(self, array: pa.Array) -> Sequence[Any]:
        """Return the values, and None for null; FormatError for an array of another type."""


@dataclass(frozen=True, slots=True)
class Simple:
    """Values without others inside."""

    as_json: Json
    types: frozenset[type]
    holds: Callable[[pa.DataType], bool]
    to_arrow: Callable[[Values], pa.Array]
    from_arrow: Callable[[pa.Array], list[Any]] = pa.Array.to_pylist
    # True if the values must be compared, because Arrow changes some without an error.
    is_compared: bool = False
    is_hashable: bool = True
    takes_any: bool = True

    def encode(self, values: Values) -> pa.Array:
        """Return the values as an array."""
        check_types(values, self.types)
        try:
            array = self.to_arrow(values)
        except UNFIT as error:
            _refuse_first(values, self.to_arrow, error)
        if self.is_compared:
            for row, (value, back) in enumerate(zip(values, self.decode(array), strict=True)):
                if not times.same_value(value, back):
                    raise UnsuitableError(row, value, f"Arrow would make {back!r:.60} of it")
        return array

    def decode(self, array: pa.Array) -> list[Any]:
        """Return the values of an array."""
        check_type(self, self.holds(array.type), array.type)
        return self.from_arrow(array)


def first_of(values: Values) -> tuple[int, Any]:
    """Return the first row that has a value, and the value."""
    return next((row, value) for row, value in enumerate(values) if value is not None)


def check_types(values: Values, types: frozenset[type]) -> None:
    """UnsuitableError for the first value of another type."""
    if set(map(type, values)) <= types | {type(None)}:
        return
    known = next((type(value) for value in values if type(value) in types), min(types, key=str))
    for row, value in enumerate(values):
        if value is not None and type(value) not in types:
            raise UnsuitableError(row, value, f"other values are {known.__name__}")


def check_type(kind: Kind, is_right: bool, type_: pa.DataType) -> None:
    """FormatError if an array has not the type of a kind."""
    if not is_right:
        raise FormatError(f"expected values of the kind {kind.as_json!r:.60}, found {type_!s:.200}")


def _refuse_first(
    values: Values, to_arrow: Callable[[Values], pa.Array], error: Exception
) -> NoReturn:
    """Raise for the first value that Arrow refuses."""
    for row, value in enumerate(values):
        try:
            check_text(value, "text")
            to_arrow([value])
        except UNFIT as reason:
            raise UnsuitableError(row, value, str(reason)) from None
    # Each value alone is fine, such as decimals with too many digits together.
    raise UnsuitableError(*first_of(values), str(error))


def _typed(type_: pa.DataType | None) -> Callable[[Values], pa.Array]:
    return lambda values: pa.array(values, type_, from_pandas=False)


def _integers(values: Values) -> pa.Array:
    try:
        return pa.array(values, pa.int64(), from_pandas=False)
    except OverflowError:
        return pa.array(values, pa.uint64(), from_pandas=False)


def _decimals(values: Values) -> pa.Array:
    if not all(value is None or value.is_finite() for value in values):
        raise ValueError("a decimal of Arrow is finite")
    array = pa.array(values, from_pandas=False)
    # Without a value, Arrow cannot infer the digits.
    return array if pa.types.is_decimal(array.type) else array.cast(pa.decimal128(38, 18))


def _each(convert: Callable[[Any], Any], type_: pa.DataType) -> Callable[[Values], pa.Array]:
    def to_arrow(values: Values) -> pa.Array:
        return pa.array([None if value is None else convert(value) for value in values], type_)

    return to_arrow


def _back(convert: Callable[[Any], Any]) -> Callable[[pa.Array], list[Any]]:
    def from_arrow(array: pa.Array) -> list[Any]:
        return [None if value is None else convert(value) for value in array.to_pylist()]

    return from_arrow


def _as_text(name: str, type_: type) -> Simple:
    """Return the kind of values that are stored as their text."""
    to_arrow, from_arrow = _each(str, pa.large_string()), _back(_parser(type_))
    return Simple(name, frozenset({type_}), is_text, to_arrow, from_arrow, takes_any=False)


def _parser(type_: Callable[[str], Any]) -> Callable[[Any], Any]:
    def parse(text: str) -> Any:
        try:
            return type_(text)
        except ValueError as error:
            raise FormatError(
                f"expected the text of a value, found {text!r:.60}: {error}"
            ) from None

    return parse


def _complex(values: Values) -> pa.Array:
    missing = np.fromiter((value is None for value in values), np.bool_, len(values))
    parts = np.array([0 if value is None else value for value in values], np.complex128)
    return numbers.complex_array(parts, missing)


def _complex_scalars(type_: type) -> Simple:
    """Return the kind of numpy's complex scalars of one width."""

    def from_arrow(array: pa.Array) -> list[Any]:
        return [None if value is None else type_(value) for value in _complex_back(array)]

    name = f"numpy.{type_.__name__}"
    return Simple(name, frozenset({type_}), numbers.is_complex, _complex, from_arrow)


def _complex_back(array: pa.Array) -> list[Any]:
    values, missing = numbers.complex_values(array).tolist(), missing_of(array)
    for row in [] if missing is None else np.flatnonzero(missing):
        values[row] = None
    return values


def _numpy_kind(dtype: np.dtype) -> Simple:
    """Return the kind of numpy's scalars of one dtype."""
    type_, made = numbers.PLAIN[dtype], dtype.type
    name = f"numpy.{dtype.name}"
    return Simple(name, frozenset({made}), type_.equals, _typed(type_), _back(made))


def _is_bytes(type_: pa.DataType) -> bool:
    return is_binary(type_) or bool(pa.types.is_fixed_size_binary(type_))


_INTEGERS = [dtype.type for dtype in numbers.PLAIN if dtype.kind in "iu"]
_IP = (
    ipaddress.IPv4Address,
    ipaddress.IPv4Network,
    ipaddress.IPv4Interface,
    ipaddress.IPv6Address,
    ipaddress.IPv6Network,
    ipaddress.IPv6Interface,
)
# Engines know the extension type. It may be shown as its storage.
_UUIDS = (pa.uuid(), pa.binary(16))


def _uuids(values: Values) -> pa.Array:
    storage = _each(lambda value: value.bytes, pa.binary(16))(values)
    return pa.ExtensionArray.from_storage(pa.uuid(), storage)


def _uuids_back(array: pa.Array) -> list[Any]:
    storage = array.storage if isinstance(array, pa.ExtensionArray) else array
    return _back(lambda data: uuid.UUID(bytes=data))(storage)


_KINDS = (
    Simple("text", frozenset({str, np.str_}), is_text, _typed(pa.large_string())),
    Simple("bytes", frozenset({bytes, np.bytes_}), _is_bytes, _typed(pa.large_binary())),
    Simple("bool", frozenset({bool, np.bool_}), pa.types.is_boolean, _typed(pa.bool_())),
    Simple("date", frozenset({datetime.date}), pa.types.is_date, _typed(pa.date32())),
    Simple(
        "time",
        frozenset({datetime.time}),
        pa.types.is_time,
        _typed(pa.time64("us")),
        is_compared=True,
    ),
    Simple(
        "decimal",
        frozenset({decimal.Decimal}),
        pa.types.is_decimal,
        _decimals,
        is_compared=True,
    ),
    Simple("int", frozenset({int, *_INTEGERS}), pa.types.is_integer, _integers),
    Simple("float", frozenset({float, np.float64}), pa.types.is_floating, _typed(pa.float64())),
    Simple(
        "timedelta",
        frozenset({datetime.timedelta}),
        pa.duration("us").equals,
        _typed(pa.duration("us")),
    ),
    Simple("uuid", frozenset({uuid.UUID}), _UUIDS.__contains__, _uuids, _uuids_back),
    Simple(
        "complex", frozenset({complex, np.complex128}), numbers.is_complex, _complex, _complex_back
    ),
    Simple("numpy.str", frozenset({np.str_}), is_text, _typed(pa.large_string()), _back(np.str_)),
    Simple(
        "numpy.bytes",
        frozenset({np.bytes_}),
        _is_bytes,
        _typed(pa.large_binary()),
        _back(np.bytes_),
    ),
    *map(_complex_scalars, (np.complex64, np.complex128)),
    *(_as_text(type_.__name__, type_) for type_ in _IP),
    *map(_numpy_kind, numbers.PLAIN),
)
# In the order in which they are tried: numpy's values beside Python's become Python's.
SIMPLE: dict[str, Simple] = {kind.as_json: kind for kind in _KINDS}
