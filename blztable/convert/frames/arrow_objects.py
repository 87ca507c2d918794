"""Arrow objects: pandas columns of pyarrow-backed dtypes that no descriptor names.

Knows nothing of descriptors. Values become what pyarrow makes of them in pandas, except where
pyarrow loses digits, shows values below a null, or ends the process. pyarrow makes floats of
integers beside nulls. A field is null wherever its struct is, so that one null struct would make
floats of all, although nobody sees these nulls: they become zeros before.
"""

import datetime
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.extensions import plain_values
from blztable.arrow.types import LISTS, LISTS_OF_VIEWS, REFUSALS, bitmap, with_fields
from blztable.convert.arrays import missing_of, values_of, whole
from blztable.errors import LimitError, SchemaError

# Days since 1970 of the dates that Python has; Arrow has more.
_EPOCH = datetime.date(1970, 1, 1).toordinal()
_FIRST_DAY = datetime.date.min.toordinal() - _EPOCH
_LAST_DAY = datetime.date.max.toordinal() - _EPOCH
# Up to here a float has every integer.
EXACT_MAX = 1 << 53
# True for each row below a null struct; None without any.
Hidden = np.ndarray | None


def decode_nulls(column: pa.ChunkedArray) -> np.ndarray:
    """Return None for each row; Arrow stores these without memory, numpy does not."""
    try:
        return np.full(len(column), None, dtype=object)
    except (MemoryError, ValueError):
        raise too_many(column) from None


def foreign_objects(column: pa.ChunkedArray) -> np.ndarray:
    """Return the values as pyarrow converts them to pandas; Python objects for most types."""
    if pa.types.is_date32(column.type) and (dates := _dates(whole(column))) is not None:
        return dates
    if not isinstance(column.type, pa.BaseExtensionType):
        # pyarrow knows no extension types within nested types.
        column, _ = plain_values(column, "")
    has_objects = False
    if pa.types.is_nested(column.type) and not len(column):
        # Arrow ends the process for views of lists without an array.
        return np.empty(0, object)
    if pa.types.is_nested(column.type):
        chunks = list(map(_without_hidden, _joined(column)))
        column, has_objects = pa.chunked_array(chunks), any(map(_loses_digits, chunks))
    try:
        series = column.to_pandas(integer_object_nulls=has_objects)
    except pa.ArrowNotImplementedError:
        # Such as lists of decimals: a Python object for each row.
        return np.fromiter(column.to_pylist(), object, len(column))
    except (*REFUSALS, ArithmeticError, ValueError) as error:
        raise SchemaError(
            f"pandas cannot hold {column.type}: {error}; read the column with to_arrow"
        ) from None
    except MemoryError:
        raise too_many(column) from None
    values = series.array
    if type(values) is pd.arrays.NumpyExtensionArray:
        values = values.to_numpy()
        return values if values.flags.writeable else values.copy()
    return values


def _joined(column: pa.ChunkedArray | pa.Array) -> list[pa.Array]:
    """Return the chunks of a nested column as one, where Arrow can join them.

    pyarrow makes floats of integers only in the chunks that have nulls.
    """
    if not isinstance(column, pa.ChunkedArray):
        return [column]
    try:
        return [whole(column)]
    except REFUSALS:
        # Such as dictionaries with nulls.
        return list(column.chunks)


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


def too_many(column: pa.ChunkedArray) -> LimitError:
    """Return the error for a column whose objects have no room in memory."""
    rows, type_ = len(column), column.type
    return LimitError(
        f"no memory for {rows} rows of {type_} in pandas; read the column with to_arrow"
    )


def _without_hidden(array: pa.Array, hidden: Hidden = None) -> pa.Array:
    """Return an array with zeros for integers that are null below a null struct, at any level.

    Dictionaries and runs of integers become plain integers.
    """
    type_, rows = array.type, len(array)
    if pa.types.is_integer(type_) and hidden is not None and array.null_count:
        return pc.if_else(pa.array(hidden), pa.scalar(0, type_), array)
    if pa.types.is_dictionary(type_) and pa.types.is_integer(type_.value_type):
        return _without_hidden(array.dictionary_decode(), hidden)
    if pa.types.is_struct(type_):
        missing = missing_of(array)
        if missing is not None:
            hidden = missing if hidden is None else hidden | missing
        fields = [array.field(number) for number in range(type_.num_fields)]
        fields = [_without_hidden(field, hidden) for field in fields]
        type_ = _retyped(type_, fields)
        return pa.Array.from_buffers(type_, rows, _validity(missing), children=fields)
    if pa.types.is_fixed_size_list(type_):
        size = type_.list_size
        below = None if hidden is None else hidden.repeat(size)
        items = _without_hidden(array.values.slice(array.offset * size, rows * size), below)
        type_, validity = _retyped(type_, [items]), _validity(missing_of(array))
        return pa.Array.from_buffers(type_, rows, validity, children=[items])
    if pa.types.is_run_end_encoded(type_):
        if pa.types.is_integer(type_.value_type):
            return _without_hidden(pc.run_end_decode(array), hidden)
        children = [array.run_ends, _without_hidden(array.values)]
        type_ = _retyped(type_, children[1:])
        return pa.Array.from_buffers(type_, rows, [None], 0, array.offset, children)
    if pa.types.is_map(type_) or type_.id in LISTS:
        items = _without_hidden(array.values)
        type_ = _retyped(type_, items.flatten() if pa.types.is_map(type_) else [items])
        buffers = array.buffers()[: 3 if array.type.id in LISTS_OF_VIEWS else 2]
        return pa.Array.from_buffers(type_, rows, buffers, -1, array.offset, [items])
    return array


def _loses_digits(array: pa.Array) -> bool:
    """True if an integer of a result of `_without_hidden` would be another number as a float."""
    type_ = array.type
    if pa.types.is_integer(type_):
        bounds = pc.min_max(array).values() if array.null_count else ()
        return any(abs(bound.as_py() or 0) > EXACT_MAX for bound in bounds)
    if pa.types.is_struct(type_):
        return any(_loses_digits(array.field(number)) for number in range(type_.num_fields))
    is_list = pa.types.is_nested(type_) and not pa.types.is_union(type_)
    return is_list and _loses_digits(array.values)


def _validity(missing: Hidden) -> list[pa.Buffer | None]:
    return [None if missing is None else bitmap(~missing)]


def _retyped(type_: pa.DataType, children: Sequence[pa.Array]) -> pa.DataType:
    """Return a nested type with the types of these child arrays."""
    types = iter([child.type for child in children])
    return with_fields(type_, lambda field: field.with_type(next(types)))
