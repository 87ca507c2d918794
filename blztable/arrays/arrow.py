"""Arrays as Arrow: one axis as an array, more as lists of fixed size.

Knows nothing of files.
"""

import numpy as np
import pyarrow as pa

from blztable.errors import SchemaError


def to_arrow(array: np.ndarray) -> pa.Array:
    """Return the rows of a numpy array as an Arrow array."""
    if array.dtype.names:
        names = list(array.dtype.names)
        return pa.StructArray.from_arrays([to_arrow(array[name]) for name in names], names)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    # Bytes and text of fixed width have more bytes than their items.
    values = np.ascontiguousarray(array).reshape(-1)
    try:
        result = pa.array(values, from_pandas=False)
    except UnicodeDecodeError as error:
        raise SchemaError(f"Arrow has no such text: {error}; use to_numpy()") from None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise SchemaError(f"Arrow has no dtype {array.dtype}: {error}; use to_numpy()") from None
    for size in reversed(array.shape[1:]):
        if not size:
            raise SchemaError(f"an array of shape {array.shape} has no values for lists")
        result = pa.FixedSizeListArray.from_arrays(result, size)
    return result
