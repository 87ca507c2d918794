"""Numbers of rows as users give them, checked."""

from typing import Any

import numpy as np
import pyarrow as pa


def row_numbers(indices: Any, rows: int) -> np.ndarray:
    """The numbers, each of a row from 0 to `rows`.

    Raises
    ------
    IndexError
        A number that is not the number of a row.
    TypeError
        Something else than whole numbers, a mask among others.
    """
    if isinstance(indices, pa.Array | pa.ChunkedArray):
        if indices.null_count:
            raise IndexError("a null is the number of no row")
        indices = indices.to_numpy(zero_copy_only=False) if len(indices) else np.zeros(0, np.int64)
    try:
        numbers = np.asarray(indices)
    except (TypeError, ValueError):
        numbers = np.array(None)
    if numbers.size == 0 and numbers.ndim == 1:
        return np.zeros(0, np.int64)
    if numbers.dtype.kind not in "iu" or numbers.ndim != 1:
        what = f"{numbers.ndim}-d {numbers.dtype}" if numbers.size else type(indices).__name__
        raise TypeError(f"rows are named by a 1-d array of whole numbers, not by {what}")
    least, most = numbers.min(), numbers.max()
    if least < 0 or most >= rows:
        raise IndexError(f"row {least if least < 0 else most} of a table of {rows} rows")
    return numbers.astype(np.int64, copy=False)
