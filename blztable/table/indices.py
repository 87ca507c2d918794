"""Row numbers and numbers of rows that users pass, checked.

Knows nothing of tables.
"""

import operator
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa


def row_numbers(indices: Any, rows: int) -> np.ndarray:
    """Return the row numbers as an int64 array; IndexError unless each is from 0 to `rows` - 1."""
    if isinstance(indices, pa.Array | pa.ChunkedArray):
        if indices.null_count:
            raise IndexError("a row number is null; drop the nulls first")
        indices = indices.to_numpy(zero_copy_only=False) if len(indices) else np.zeros(0, np.int64)
    try:
        numbers = np.asarray(indices)
    except (TypeError, ValueError):
        numbers = np.array(None)
    if numbers.size == 0 and numbers.ndim == 1:
        return np.zeros(0, np.int64)
    if numbers.dtype.kind not in "iu" or numbers.ndim != 1:
        kind = f"{numbers.ndim}-d {numbers.dtype}" if numbers.size else type(indices).__name__
        raise TypeError(
            f"row numbers must be a 1-d array of integers, not {kind}; for a condition pass "
            "filters= to to_arrow()"
        )
    least, most = numbers.min(), numbers.max()
    if least < 0 or most >= rows:
        wrong = least if least < 0 else most
        raise IndexError(f"row {wrong} is out of range for a table of {rows} rows")
    return numbers.astype(np.int64, copy=False)


def checked_count(value: Any, name: str, least: int = 0) -> int:
    """Return the number as an int; TypeError if it is no integer, ValueError if it is too small."""
    number = checked_integer(value, name)
    if number < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    return number


def checked_integer(value: Any, name: str) -> int:
    """Return the value as an int; TypeError if it is no integer."""
    if not isinstance(value, bool):
        with suppress(TypeError):
            return operator.index(value)
    raise TypeError(f"{name} must be an integer, not {value!r:.60} of type {type(value).__name__}")
