"""Python values: a list of Python's values as a column.

Knows nothing of tables. Values take the type that Arrow infers. Those that Arrow does not take or
would change, and sets, become what they are in a column of a DataFrame.
"""

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from blztable.arrow.types import is_binary
from blztable.convert.arrays import UNSUITABLE, PandasArray, arrow_array
from blztable.convert.frames import dtypes
from blztable.convert.objects.containers import as_objects
from blztable.errors import SchemaError

# Advice about a column of a DataFrame, and about a list.
_ADVICE = {
    "convert it with astype(str)": "make the values text",
    'make the column bytes with .str.encode("utf-8", "surrogatepass")': (
        'make it bytes with encode("utf-8", "surrogatepass")'
    ),
}


def encode(
    values: Collection[Any], context: str, nan_as_null: bool, choice: str = "infer"
) -> dtypes.Encoded:
    """Return values as an Arrow column, with a descriptor for Python objects."""
    try:
        array = arrow_array(values, context, nan_as_null)
        # The other choices say what becomes of all that is no plain value.
        levels = _levels(array.type)
        is_plain = levels == 0 or (
            choice not in ("json", "error") and not _has_sets(values, levels)
        )
        if is_plain and not (_may_change(array.type) and _change(_leaves(values, levels))):
            return array, None
    except SchemaError:
        pass
    try:
        return dtypes.encode(_as_in_a_frame(values), context, nan_as_null, choice)
    except SchemaError as error:
        message = str(error)
        for of_frames, of_lists in _ADVICE.items():
            message = message.replace(of_frames, of_lists)
        raise SchemaError(message) from None


def have_dtype(values: Collection[Any]) -> bool:
    """True if one of these values, or of those in them, is of a type that has a dtype."""
    while values:
        types = set(map(type, values))
        if any(hasattr(type_, "dtype") for type_ in types):
            return True
        if types.isdisjoint((list, tuple, dict)):
            return False
        inner = [value for value in values if isinstance(value, list | tuple | dict)]
        parts = (value.values() if isinstance(value, dict) else value for value in inner)
        values = list(chain.from_iterable(parts))
    return False


def largest_integer(values: Iterable[Any], type_: pa.DataType) -> int:
    """Return the largest absolute value of the integers where the Arrow type has floats."""
    if pa.types.is_floating(type_):
        if int not in set(map(type, values)):
            return 0
        return max(abs(value) for value in values if type(value) is int)
    if pa.types.is_struct(type_):
        dicts = [value for value in values if isinstance(value, Mapping)]
        fields = ([row.get(field.name) for row in dicts] for field in type_)
        return max(map(largest_integer, fields, (field.type for field in type_)), default=0)
    if pa.types.is_list(type_):
        inner = chain.from_iterable(value for value in values if isinstance(value, list | tuple))
        return largest_integer(list(inner), type_.value_type)
    return 0


def _as_in_a_frame(values: Collection[Any]) -> PandasArray:
    """Return values as the array that a DataFrame makes of them; objects if it changed integers."""
    objects = as_objects(list(values))
    as_given = pd.Series(objects, dtype=object)
    try:
        array = as_given.infer_objects().array
    except UNSUITABLE:
        # Such as text that UTF-8 cannot encode.
        return as_given.array
    # pandas rounds integers beside fractions, also those that no float equals.
    return as_given.array if array.dtype.kind in "fc" and _rounds(objects, array) else array


def _rounds(objects: np.ndarray, array: PandasArray) -> bool:
    """True if an integer is not equal to the float at its place, as Python compares them."""
    return any(
        isinstance(value, int | np.integer) and int(value) != number
        for value, number in zip(objects, array.to_numpy().tolist(), strict=True)
    )


def _levels(type_: pa.DataType) -> int:
    """Return how many types are nested in each other."""
    if not pa.types.is_nested(type_):
        return 0
    inner = (type_.field(number).type for number in range(type_.num_fields))
    return 1 + max(map(_levels, inner), default=0)


def _may_change(type_: pa.DataType) -> bool:
    """True if Arrow infers the type also of values that it changes."""
    types = [type_.field(number).type for number in range(type_.num_fields)]
    return is_binary(type_) or pa.types.is_temporal(type_) or any(map(_may_change, types))


def _leaves(values: Iterable[Any], levels: int) -> list[Any]:
    """Return the values within so many levels of lists and dicts."""
    leaves, inner = [], list(values)
    for _ in range(levels):
        parts = [list(value.values()) if isinstance(value, Mapping) else value for value in inner]
        leaves += [part for part in parts if not isinstance(part, list | tuple)]
        inner = list(chain.from_iterable(part for part in parts if isinstance(part, list | tuple)))
    return leaves + inner


def _change(values: Sequence[Any]) -> bool:
    """True if Arrow would cut nanoseconds or zones, or mix dates with times, or text with bytes."""
    types = set(map(type, values))
    if {str, bytes} <= types or {datetime.date, datetime.datetime} <= types:
        return True
    zones = {value.tzinfo is None for value in values if isinstance(value, datetime.datetime)}
    if len(zones) > 1 or (pd.Timestamp in types and datetime.date in types):
        return True
    if datetime.time in types:
        return any(value.tzinfo for value in values if type(value) is datetime.time)
    exact = pd.Timestamp, pd.Timedelta
    return not types.isdisjoint(exact) and any(
        value.nanoseconds if type(value) is pd.Timedelta else value.nanosecond
        for value in values
        if type(value) in exact
    )


def _has_sets(values: Collection[Any], levels: int) -> bool:
    """True if a set is among the values of so many levels of lists and dicts."""
    # By types, and not among numbers and text: a look at each would take longer than the array.
    types = set(map(type, values))
    if any(issubclass(type_, set | frozenset) for type_ in types):
        return True
    maps = {type_ for type_ in types if issubclass(type_, Mapping)}
    inner = maps | {type_ for type_ in types if issubclass(type_, list | tuple)}
    if not inner or levels == 1:
        return False
    containers = [value for value in values if type(value) in inner]
    parts = (value.values() if type(value) in maps else value for value in containers)
    return _has_sets(list(chain.from_iterable(parts)), levels - 1)
