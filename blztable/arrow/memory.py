"""The memory of results: Arrow buffers, viewed by numpy.

Arrow's memory pool reuses warm pages. Its buffers are writable, so numpy, pandas and Arrow share
them without a copy. Knows nothing of types.
"""

import numpy as np
import pyarrow as pa


def allocate(nbytes: int) -> pa.Buffer:
    """Return a buffer of `nbytes` bytes, not cleared; raise MemoryError if memory is short."""
    return pa.allocate_buffer(nbytes)


def view(buffer: pa.Buffer) -> np.ndarray:
    """Return the bytes of a buffer; they are writable if the buffer is."""
    return np.frombuffer(buffer, np.uint8)


def bytes_of(buffer: pa.Buffer | None) -> np.ndarray:
    """Return the bytes of an array's buffer; Arrow leaves out the buffers of empty arrays."""
    return np.empty(0, np.uint8) if buffer is None else view(buffer)


def numbers_in(buffer: pa.Buffer | None, dtype: str | type, first: int, count: int) -> np.ndarray:
    """Return `count` numbers of an array's buffer, from `first` on, whatever bytes follow."""
    width = np.dtype(dtype).itemsize
    return bytes_of(buffer)[first * width : (first + count) * width].view(dtype)


def offsets_of(array: pa.Array, dtype: str) -> np.ndarray:
    """Return the offsets of lists or text; their number is one more than the rows."""
    offsets = numbers_in(array.buffers()[1], dtype, array.offset, len(array) + 1)
    return offsets if len(offsets) else np.zeros(1, dtype)
