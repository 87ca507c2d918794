"""Bundles: one superchunk for all parts of a small row group.

A part of its own costs about as much time as 100 KB of data: a file, a front, a trailer, and for
each stream a chunk. So the streams of a small row group lie one behind the other, and are
compressed together. A merge makes ordinary parts of them when they are large enough. Knows nothing
of how an array is encoded.
"""

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from blztable import tuning
from blztable.columns.paging import CHUNK_BYTES
from blztable.engine.run.limits import MemoryBudget
from blztable.engine.run.pool import Task, batches
from blztable.engine.write.bundle_builder import (
    BUNDLE_CHUNK_BYTES,
    BundleBuilder,
    BundledPart,
    PartBatch,
    directory_bytes,
)
from blztable.engine.write.reuse import compressing
from blztable.errors import LimitError
from blztable.format import bundle, layout
from blztable.format.bundle import (
    BUNDLE,
    MAX_DIRECTORY_BYTES,
    BundleMeta,
)
from blztable.format.header import Checksum
from blztable.format.metadata import BlockInfo
from blztable.format.superchunk import pack
from blztable.storage.store import KeyTaken, Store


def is_small(nbytes: Collection[int]) -> bool:
    """True if a row group with these bytes in each column is bundled."""
    most = min(tuning.current.bundle_bytes, tuning.current.bundled_bytes * len(nbytes))
    return len(nbytes) > 1 and 0 < sum(nbytes) <= most


@dataclass(slots=True)
class BundleWriter:
    """The bundles of a write: their numbers, and those written so far."""

    store: Store
    # The first number to use; above 1 if the table has bundles already.
    first_k: int
    file_numbers: list[int] = field(default_factory=list)

    def put(self, pieces: Sequence[bytes]) -> int:
        """Store a bundle under the first number that is free; return the number."""
        k = max([self.first_k, *(number + 1 for number in self.file_numbers)])
        while k <= layout.MAX_ID:
            try:
                self.store.put_new(layout.part(layout.SHARED, k), pieces)
            except KeyTaken:
                k += 1  # Another writer uses that number.
            else:
                self.file_numbers.append(k)
                return k
        raise LimitError(f"{self.store.name}: all bundle numbers up to {layout.MAX_ID} are used")


class Bundle:
    """The bundle of one row group, while its parts are made."""

    def __init__(
        self,
        columns: Mapping[int, int],
        rows: int,
        writer: BundleWriter,
        checksum: Checksum,
        budget: MemoryBudget,
    ) -> None:
        """Wait for the parts of columns, given their bytes by index, in the order of the file."""
        self.columns = columns.keys()
        self._budget = budget
        nbytes = sum(columns.values())
        # The bytes that the bundle releases, because it has the parts until they are compressed.
        self._held = nbytes if nbytes > tuning.current.large_bundle_bytes else 0
        self._rows = rows
        self._writer = writer
        self._checksum = checksum
        self._lock = threading.Lock()
        self._unfinished = len(columns)
        # By the index of the first column.
        self._parts: dict[int, BundledPart | PartBatch] = {}
        # The stored bundle; None if no part is in it.
        self.meta: BundleMeta | None = None
        # The bytes that `entries` and `encodings` may still get.
        self._room = MAX_DIRECTORY_BYTES

    def takes(self, part: BundledPart | PartBatch) -> bool:
        """True if a part fits into the bundle, which then keeps room for it."""
        room = directory_bytes(part)
        if room is None:
            return False
        with self._lock:
            is_taken = room <= self._room
            self._room -= room if is_taken else 0
            return is_taken

    @property
    def is_large(self) -> bool:
        """True if the bundle releases the memory of its columns, and not the parts."""
        return self._held > 0

    def add(self, columns: Sequence[int], part: BundledPart | PartBatch | None) -> list[Task]:
        """Add the parts of columns, None if they have files; the last ones return tasks to run."""
        with self._lock:
            if part is not None:
                self._parts[columns[0]] = part
            self._unfinished -= len(columns)
            is_last = self._unfinished == 0
        return self._finish() if is_last else []

    def _finish(self) -> list[Task]:
        """Return the tasks that compress the chunks; the last of them stores the file."""
        builder = BundleBuilder([self._parts[first] for first in sorted(self._parts)])
        self._parts.clear()
        # A piece is released as soon as it is compressed.
        pieces = dict(enumerate(builder.pieces()))
        chunks: list[bytes] = [b""] * len(pieces)
        digests = chunks.copy()
        make = compressing(self._checksum)
        count = self._unfinished = len(pieces)
        if not count:
            self._budget.release(self._held)

        def compress(number: int) -> None:
            chunks[number], digests[number] = make(number, pieces.pop(number))
            # The shares add up to all bytes.
            shares = (self._held * (number + 1) // count, self._held * number // count)
            self._budget.release(shares[0] - shares[1])
            with self._lock:
                self._unfinished -= 1
                is_last = self._unfinished == 0
            if is_last:
                self._put(builder, chunks, digests)

        calls = (partial(compress, number) for number in range(count))
        return list(batches(calls, CHUNK_BYTES // BUNDLE_CHUNK_BYTES))

    def _put(
        self, builder: BundleBuilder, chunks: Sequence[bytes], digests: Sequence[bytes]
    ) -> None:
        page_rows = bundle.page_rows_of(self._rows)
        info = BlockInfo(self._rows, page_rows, builder.streams, encoding=BUNDLE)
        packed, meta = pack(info, chunks, digests, self._checksum, {})
        k = self._writer.put(packed)
        self.meta = BundleMeta(k, meta.cbytes, meta.front_length, meta.trailer_length, meta.crc)
        lengths = [len(chunk) + self._checksum.size for chunk in chunks]
        builder.report_stored(lengths, meta.cbytes)
