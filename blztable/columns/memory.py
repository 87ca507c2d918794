"""Memory that results are decoded into: Arrow buffers of ours, seen through numpy.

Arrow's pool hands out pages that are warm already, and what it gives is writable, so numpy, pandas
and Arrow share it without a copy.
"""

import numpy as np
import pyarrow as pa


def allocate(nbytes: int) -> pa.Buffer:
    """Room for `nbytes` bytes, not cleared; MemoryError where there is none."""
    return pa.allocate_buffer(nbytes)


def view(buffer: pa.Buffer) -> np.ndarray:
    """The bytes of a buffer, writable where it is."""
    return np.frombuffer(buffer, np.uint8)


def bytes_of(buffer: pa.Buffer | None) -> np.ndarray:
    """The bytes of a buffer of an array; Arrow leaves out the buffers of empty ones."""
    return np.empty(0, np.uint8) if buffer is None else view(buffer)
