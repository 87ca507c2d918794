"""Memory budget of a write: count the bytes of row groups that are not encoded yet.

Several threads may use it. Knows nothing else of threads.
"""

import threading


class MemoryBudget:
    """A budget that has room for another row group while at most half of the last one is held.

    So memory holds about two row groups at a time, with their copies and chunks.
    """

    def __init__(self, small_bytes: int) -> None:
        self._small_bytes = small_bytes
        self._lock = threading.Lock()
        self._nbytes = 0
        self._room_below = 0
        self._total = 0

    def acquire(self, nbytes: int) -> None:
        """Hold a row group of `nbytes` bytes."""
        with self._lock:
            self._nbytes += nbytes
            self._room_below = nbytes // 2
            self._total += nbytes

    def release(self, nbytes: int) -> None:
        """Release an array of `nbytes` bytes."""
        with self._lock:
            self._nbytes -= nbytes

    def has_room(self) -> bool:
        """True if another row group may be fetched."""
        return self._nbytes <= self._room_below

    def is_small(self) -> bool:
        """True if all row groups so far are so small that helpers would start too late."""
        return self._total <= self._small_bytes
