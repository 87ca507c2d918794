"""Bundles: one file for all parts of a small row group.

A file costs about as much time as 30 KB of data, and a durable commit flushes each file and its
directory. So the parts of a small row group lie one behind the other in one file. A merge makes
ordinary parts of them when they are large enough. Knows nothing of how a part is made.
"""

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from blztable.errors import LimitError
from blztable.format import layout
from blztable.format.layout import Path
from blztable.format.superchunk import BUNDLE_MAGIC
from blztable.storage.store import KeyTaken, Store

# A row group is bundled if its columns have at most this many bytes each, as a mean; that much is
# read by one call. 0 makes no bundles.
BUNDLED_BYTES = 64 << 10
# A bundle is in memory until its last part is ready.
MOST_BYTES = 512 << 20

# Takes where a part begins in the bundle, 0 if it has no bytes.
Placed = Callable[[int], None]


def is_small(nbytes: Collection[int]) -> bool:
    """True if a row group with these bytes in each column is bundled."""
    return len(nbytes) > 1 and 0 < sum(nbytes) <= min(MOST_BYTES, BUNDLED_BYTES * len(nbytes))


@dataclass(slots=True)
class BundleWriter:
    """The bundles of a write: their numbers, and those written so far."""

    store: Store
    # The first number to use; above 1 if the table has bundles already.
    first_k: int
    file_numbers: list[int] = field(default_factory=list)

    @property
    def path(self) -> Path:
        """The path of the bundles."""
        return layout.SHARED

    def put(self, pieces: Sequence[bytes]) -> int:
        """Store a bundle under the first number that is free; return the number."""
        k = max([self.first_k, *(number + 1 for number in self.file_numbers)])
        while k <= layout.MAX_ID:
            try:
                self.store.put_new(layout.part(self.path, k), pieces)
            except KeyTaken:
                k += 1  # Another writer uses that number.
            else:
                self.file_numbers.append(k)
                return k
        raise LimitError(f"{self.store.name}: all bundle numbers up to {layout.MAX_ID} are used")


class Bundle:
    """The bundle of one row group, while its parts are made."""

    def __init__(self, columns: Sequence[int], writer: BundleWriter) -> None:
        """Wait for the parts of these columns, which get this order in the file."""
        self.columns = frozenset(columns)
        self._writer = writer
        self._lock = threading.Lock()
        self._unfinished = len(columns)
        self._parts: dict[int, tuple[Sequence[bytes], Placed]]
        self._parts = dict.fromkeys(columns, ((), _nowhere))
        # The number of the file, 0 if no part has bytes.
        self.k = 0

    def add(self, index: int, pieces: Sequence[bytes], placed: Placed) -> None:
        """Add the part of a column; the last part of the row group stores the file."""
        self._parts[index] = (pieces, placed)
        with self._lock:
            self._unfinished -= 1
            is_last = self._unfinished == 0
        if is_last:
            self._put()

    def _put(self) -> None:
        whole, places, end = [BUNDLE_MAGIC], [], len(BUNDLE_MAGIC)
        for pieces, _ in self._parts.values():
            places.append(end if pieces else 0)
            whole += pieces
            end += sum(map(len, pieces))
        if any(places):
            self.k = self._writer.put([b"".join(whole)])
        for (_, placed), at in zip(self._parts.values(), places, strict=True):
            placed(at)
        self._parts.clear()


def _nowhere(at: int) -> None:
    """Stand for a part that is not made yet."""
