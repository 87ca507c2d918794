"""Scratch: memory of one thread alone, used again and again, for what is gone a moment later."""

import threading

import numpy as np

_local = threading.local()


def scratch(nbytes: int, number: int = 0) -> memoryview:
    """Memory of this thread alone, of at least `nbytes`; the next call may hand it out again.

    Two of different numbers may be used at once.
    """
    buffers: dict[int, np.ndarray] = _local.__dict__.setdefault("scratch", {})
    buffer = buffers.get(number)
    if buffer is None or len(buffer) < nbytes:
        # Not cleared, so that of a small file only the pages it fills are touched.
        buffer = buffers[number] = np.empty(max(nbytes, 2 << 20), np.uint8)
    return buffer.data[:nbytes]
