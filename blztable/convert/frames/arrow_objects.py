"""Arrow objects: pandas columns of pyarrow-backed dtypes that no descriptor names.

Knows nothing of descriptors. Values become what pyarrow makes of them in pandas, except where
pyarrow loses digits, shows values below a null, or ends the process.
"""

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.extensions import plain_values
from blztable.arrow.types import REFUSALS
from blztable.convert.arrays import missing_of, values_of, whole
from blztable.convert.frames.nested import loses_digits, without_hidden
from blztable.errors import LimitError, SchemaError

# Days since 1970 of the dates that Python has; Arrow has more.
_EPOCH = datetime.date(1970, 1, 1).toordinal()
_FIRST_DAY = datetime.date.min.toordinal() - _EPOCH
_LAST_DAY = datetime.date.max.toordinal() - _EPOCH


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
        chunks = list(map(without_hidden, _joined(column)))
        column, has_objects = pa.chunked_array(chunks), any(map(loses_digits, chunks))
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
