"""Scratch memory: buffers that each thread reuses for short-lived bytes.

Knows nothing of the meaning of the bytes.
"""

import threading

import numpy as np

# Larger buffers are rare, and are not kept.
MOST_KEPT = 16 << 20

_local = threading.local()


def scratch(nbytes: int, number: int = 0) -> memoryview:
    """Return a buffer of this thread with at least `nbytes` bytes; the next call returns it again.

    Buffers with different numbers may be used at the same time.
    """
    if nbytes > MOST_KEPT:
        return np.empty(nbytes, np.uint8).data
    buffers: dict[int, np.ndarray] = _local.__dict__.setdefault("scratch", {})
    buffer = buffers.get(number)
    if buffer is None or len(buffer) < nbytes:
        # `empty` does not touch memory pages: a small file uses only the pages that it fills.
        buffer = buffers[number] = np.empty(max(nbytes, 2 << 20), np.uint8)
    return buffer.data[:nbytes]
