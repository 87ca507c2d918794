"""Objects: columns of Python values, where all of them are of one kind that Arrow knows.

One pass collects the types of the values; a column with two kinds, or with one that has no Arrow
type, is refused with the row and the value that showed it.
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

from blztable.arrow_errors import REFUSALS
from blztable.arrow_types import is_binary, is_text
from blztable.convert.arrays import missing_of, whole
from blztable.convert.frames.descriptor import Descriptor, expect_keys, expect_text
from blztable.convert.frames.text import text_array
from blztable.errors import FormatError, LimitError, SchemaError

# What stands for a missing value; a column with several kinds comes back with None in all.
MARKERS = {"none": None, "nan": np.nan, "NA": pd.NA, "NaT": pd.NaT}
MARKER_NAMES = {type(None): "none", float: "nan", np.float64: "nan"}
MARKER_NAMES |= {type(pd.NA): "NA", type(pd.NaT): "NaT"}


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of Python value: its types, its Arrow form, and the values Arrow would change."""

    name: str
    types: frozenset[type]
    encode: Callable[[np.ndarray, str], pa.Array]
    holds: Callable[[pa.DataType], bool]
    # True where the Arrow type alone gives objects back.
    implied: bool
    loses: Callable[[Any], bool] | None = None


def encode_objects(values: np.ndarray, place: str) -> tuple[pa.Array, Descriptor | None]:
    """An object array of one kind of value and missing ones."""
    types = set(map(type, values))
    markers = {MARKER_NAMES[found] for found in types if found in MARKER_NAMES}
    found = types - MARKER_NAMES.keys()
    kind = next((kind for kind in KINDS if found <= kind.types), None)
    if kind is None or "nan" in markers:
        _check_each(values, place)
    assert kind is not None
    if kind.loses is not None:
        for row, value in enumerate(values):
            if type(value) in kind.types and kind.loses(value):
                _refuse(place, row, value, f"no Arrow {kind.name} holds it")
    if markers:
        values = values.copy()
        values[pd.isna(values)] = None
    marker = next(iter(markers)) if len(markers) == 1 else "none"
    descriptor: Descriptor = {"dtype": "object"}
    if marker != "none":
        descriptor["missing"] = marker
    needless = kind.implied and marker == "none"
    return kind.encode(values, place), None if needless else descriptor


def decode_objects(column: pa.ChunkedArray, descriptor: Descriptor) -> np.ndarray:
    """The Python values, and the marker where there are none."""
    expect_keys(descriptor, ["dtype"], ["missing"])
    marker = MARKERS[expect_text(descriptor.get("missing", "none"), MARKERS)]
    if not any(kind.holds(column.type) for kind in KINDS):
        raise FormatError(f"an object column cannot be {column.type}")
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


def decode_nulls(column: pa.ChunkedArray) -> np.ndarray:
    """None in each row; the table has any number of them for nothing, a frame has not."""
    try:
        return np.full(len(column), None, dtype=object)
    except (MemoryError, ValueError):
        raise _too_many(column) from None


def foreign_objects(column: pa.ChunkedArray) -> np.ndarray:
    """The values as pyarrow itself gives them to pandas; Python objects for most types."""
    try:
        series = column.to_pandas()
    except (*REFUSALS, ArithmeticError, ValueError) as error:
        raise SchemaError(
            f"pandas cannot hold {column.type}: {error}; read it as a table"
        ) from None
    except MemoryError:
        raise _too_many(column) from None
    values = series.array
    if type(values) is pd.arrays.NumpyExtensionArray:
        values = values.to_numpy()
        return values if values.flags.writeable else values.copy()
    return values


def _too_many(column: pa.ChunkedArray) -> LimitError:
    rows, type_ = len(column), column.type
    return LimitError(f"pandas has no memory for {rows} rows of {type_}; read it as a table")


def _check_each(values: np.ndarray, place: str) -> None:
    """Raise for the first value that is of no kind, or of another than those before it."""
    expected: Kind | None = None
    for row, value in enumerate(values):
        if type(value) in MARKER_NAMES:
            if isinstance(value, float) and value == value:
                _refuse(place, row, value, "an object column holds no numbers; give it a dtype")
            continue
        kind = next((kind for kind in KINDS if type(value) in kind.types), None)
        if kind is None:
            _refuse(place, row, value, f"an object column holds one of {[k.name for k in KINDS]}")
        if expected is not None and kind is not expected:
            _refuse(place, row, value, f"the values before it are {expected.name}")
        expected = kind


def _refuse(place: str, row: int, value: object, why: str) -> NoReturn:
    shown = f"{reprlib.repr(value)} of type {type(value).__name__}"
    raise SchemaError(f"{place}, row {row}: {shown} cannot be stored: {why}")


def _of_type(type_: pa.DataType | None) -> Callable[[np.ndarray, str], pa.Array]:
    def encode(values: np.ndarray, place: str) -> pa.Array:
        try:
            return pa.array(values, type=type_, from_pandas=False)
        except (*REFUSALS, OverflowError, ValueError) as error:
            raise SchemaError(f"{place}: {error}") from None

    return encode


def _decimals(values: np.ndarray, place: str) -> pa.Array:
    array = _of_type(None)(values, place)
    # Without a value there is nothing to infer digits from.
    return array if pa.types.is_decimal(array.type) else array.cast(pa.decimal128(38, 18))


def _is_bytes(type_: pa.DataType) -> bool:
    return is_binary(type_) or bool(pa.types.is_fixed_size_binary(type_))


# Text first: it is what a column of nothing but missing values becomes.
KINDS = (
    Kind("text", frozenset({str, np.str_}), text_array, is_text, implied=False),
    Kind("bytes", frozenset({bytes}), _of_type(pa.large_binary()), _is_bytes, implied=True),
    Kind("bool", frozenset({bool}), _of_type(pa.bool_()), pa.types.is_boolean, implied=False),
    Kind(
        "date",
        frozenset({datetime.date}),
        _of_type(pa.date32()),
        pa.types.is_date,
        implied=True,
    ),
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
