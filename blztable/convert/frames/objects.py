"""Objects: columns of Python values of one kind that has an Arrow type.

Knows nothing of other dtypes. One pass collects the types of the values. A column with two kinds,
or with a kind that Arrow lacks, raises an error with the row and the value.
"""

import datetime
import decimal
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.extensions import plain_values
from blztable.arrow_errors import REFUSALS
from blztable.arrow_types import is_binary, is_text
from blztable.convert.arrays import missing_of, values_of, whole
from blztable.convert.frames.descriptor import Descriptor, expect_keys, expect_text
from blztable.convert.frames.text import text_array
from blztable.errors import FormatError, LimitError, SchemaError

# Markers of a missing value; a column with several kinds of them comes back with None.
MARKERS = {"none": None, "nan": np.nan, "NA": pd.NA, "NaT": pd.NaT}
MARKER_NAMES = {type(None): "none", float: "nan", np.float64: "nan"}
MARKER_NAMES |= {type(pd.NA): "NA", type(pd.NaT): "NaT"}
# Days since 1970 of the dates that Python has; Arrow has more.
_EPOCH = datetime.date(1970, 1, 1).toordinal()
_FIRST_DAY = datetime.date.min.toordinal() - _EPOCH
_LAST_DAY = datetime.date.max.toordinal() - _EPOCH


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of Python value: its types, Arrow form, and the values that Arrow would change."""

    name: str
    types: frozenset[type]
    encode: Callable[[np.ndarray, str], pa.Array]
    holds: Callable[[pa.DataType], bool]
    # True if the Arrow type alone decodes to objects.
    implied: bool
    loses: Callable[[Any], bool] | None = None


def encode_objects(values: np.ndarray, context: str) -> tuple[pa.Array, Descriptor | None]:
    """Return an object array of one kind of values, and missing ones, as Arrow."""
    types = set(map(type, values))
    markers = {MARKER_NAMES[type_] for type_ in types if type_ in MARKER_NAMES}
    types -= MARKER_NAMES.keys()
    kind = next((kind for kind in KINDS if types <= kind.types), None)
    if kind is None or "nan" in markers:
        _check_each(values, context)
    assert kind is not None
    if kind.loses is not None:
        for row, value in enumerate(values):
            if type(value) in kind.types and kind.loses(value):
                _refuse(context, row, value, f"an Arrow {kind.name} cannot hold it")
    if markers:
        values = values.copy()
        values[pd.isna(values)] = None
    marker = next(iter(markers)) if len(markers) == 1 else "none"
    descriptor: Descriptor = {"dtype": "object"}
    if marker != "none":
        descriptor["missing"] = marker
    needless = kind.implied and marker == "none"
    return kind.encode(values, context), None if needless else descriptor


def decode_objects(column: pa.ChunkedArray, descriptor: Descriptor) -> np.ndarray:
    """Return the Python values, and the marker for each null."""
    expect_keys(descriptor, ["dtype"], ["missing"])
    marker = MARKERS[expect_text(descriptor.get("missing", "none"), MARKERS)]
    if not any(kind.holds(column.type) for kind in KINDS):
        raise FormatError(f"expected an object column, found {column.type}")
    array = whole(column)
    if is_text(array.type) or pa.types.is_boolean(array.type):
        values = array.to_numpy(zero_copy_only=False).astype(object, copy=False)
    else:
        values = foreign_objects(column)
    missing = missing_of(array)
    if missing is not None and marker is not None:
        values = values if values.flags.writeable else values.copy()
        values[missing] = marker
    return values


def same_kind(one: pa.DataType, other: pa.DataType) -> bool:
    """True if objects of one kind have both types."""
    return any(kind.holds(one) and kind.holds(other) for kind in KINDS)


def decode_nulls(column: pa.ChunkedArray) -> np.ndarray:
    """Return None for each row; Arrow stores these without memory, numpy does not."""
    try:
        return np.full(len(column), None, dtype=object)
    except (MemoryError, ValueError):
        raise _too_many(column) from None


def foreign_objects(column: pa.ChunkedArray) -> np.ndarray:
    """Return the values as pyarrow converts them to pandas; Python objects for most types."""
    if pa.types.is_date32(column.type) and (dates := _dates(whole(column))) is not None:
        return dates
    if not isinstance(column.type, pa.BaseExtensionType):
        # pyarrow knows no extension types within nested types.
        column, _ = plain_values(column, "")
    try:
        series = column.to_pandas()
    except pa.ArrowNotImplementedError:
        # Such as lists of decimals: a Python object for each row.
        return np.fromiter(column.to_pylist(), object, len(column))
    except (*REFUSALS, ArithmeticError, ValueError) as error:
        raise SchemaError(
            f"pandas cannot hold {column.type}: {error}; read the column with to_arrow"
        ) from None
    except MemoryError:
        raise _too_many(column) from None
    values = series.array
    if type(values) is pd.arrays.NumpyExtensionArray:
        values = values.to_numpy()
        return values if values.flags.writeable else values.copy()
    return values


def _dates(array: pa.Array) -> np.ndarray | None:
    """Return dates, looked up in a table of each day from the first to the last.

    Return None if the table would be longer than the column, or Python has no such dates.
    """
    bounds = pc.min_max(array.view(pa.int32()))
    first, last = bounds["min"].as_py(), bounds["max"].as_py()
    if first is None or first < _FIRST_DAY or last > _LAST_DAY or last - first >= len(array):
        return None
    days = [datetime.date.fromordinal(_EPOCH + day) for day in range(first, last + 1)]
    # The last entry is for nulls, whose days are undefined.
    table = np.array([*days, None], dtype=object)
    rows = np.subtract(values_of(array, np.dtype(np.int32)), first, dtype=np.intp)
    missing = missing_of(array)
    if missing is not None:
        rows[missing] = len(days)
    return table.take(rows)


def _too_many(column: pa.ChunkedArray) -> LimitError:
    rows, type_ = len(column), column.type
    return LimitError(
        f"no memory for {rows} rows of {type_} in pandas; read the column with to_arrow"
    )


def _check_each(values: np.ndarray, context: str) -> None:
    """Raise for the first value of no known kind, or of another kind than the values before it."""
    expected: Kind | None = None
    for row, value in enumerate(values):
        if type(value) in MARKER_NAMES:
            if isinstance(value, float) and value == value:
                _refuse(
                    context, row, value, "an object column cannot hold numbers; use astype(float)"
                )
            continue
        kind = next((kind for kind in KINDS if type(value) in kind.types), None)
        if kind is None:
            _refuse(
                context, row, value, f"an object column can hold one of {[k.name for k in KINDS]}"
            )
        if expected is not None and kind is not expected:
            _refuse(context, row, value, f"the values before it are {expected.name}")
        expected = kind


def _refuse(context: str, row: int, value: object, why: str) -> NoReturn:
    shown = f"{reprlib.repr(value)} of type {type(value).__name__}"
    raise SchemaError(f"{context}, row {row}: {shown} cannot be stored: {why}")


def _of_type(type_: pa.DataType | None) -> Callable[[np.ndarray, str], pa.Array]:
    def encode(values: np.ndarray, context: str) -> pa.Array:
        try:
            return pa.array(values, type=type_, from_pandas=False)
        except (*REFUSALS, OverflowError, ValueError) as error:
            raise SchemaError(f"{context}: {error}") from None

    return encode


def _decimals(values: np.ndarray, context: str) -> pa.Array:
    array = _of_type(None)(values, context)
    # Without a value, Arrow cannot infer the digits.
    return array if pa.types.is_decimal(array.type) else array.cast(pa.decimal128(38, 18))


def _is_bytes(type_: pa.DataType) -> bool:
    return is_binary(type_) or bool(pa.types.is_fixed_size_binary(type_))


# Text comes first, for columns of missing values only.
KINDS = (
    Kind("text", frozenset({str, np.str_}), text_array, is_text, implied=False),
    Kind("bytes", frozenset({bytes}), _of_type(pa.large_binary()), _is_bytes, implied=True),
    Kind("bool", frozenset({bool}), _of_type(pa.bool_()), pa.types.is_boolean, implied=False),
    Kind("date", frozenset({datetime.date}), _of_type(pa.date32()), pa.types.is_date, implied=True),
    Kind(
        "time",
        frozenset({datetime.time}),
        _of_type(pa.time64("us")),
        pa.types.is_time,
        implied=True,
        loses=lambda value: value.tzinfo is not None or value.fold != 0,
    ),
    Kind(
        "decimal",
        frozenset({decimal.Decimal}),
        _decimals,
        pa.types.is_decimal,
        implied=True,
        loses=lambda value: not value.is_finite(),
    ),
)
