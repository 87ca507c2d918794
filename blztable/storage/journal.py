"""The tail journal: several changes of a file, all of them or none.

Knows nothing of what the bytes mean.

Theory of operation. A file of `old_end` bytes gets new bytes at some positions, and a new length.

1. New bytes that lie behind the old end are written there and flushed; nobody looks there yet.
2. A journal of the bytes within the old end is written behind the end of both files, and flushed.
   This is the commit.
3. The bytes are written to their places, and flushed.
4. The file is cut to its new length, and flushed.

A reader of a file that ends with a whole journal reads through it: the bytes of the journal stand
for those at their places. The next writer makes the steps 3 and 4 first. Without a whole journal
the old file is valid, and so is its length, which the bytes before state. Without the flush of
step 1 the journal could survive without the bytes behind the old end.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Protocol

from blztable.storage.files import File
from blztable.storage.store import Buffer

HEAD = struct.Struct("<8sI4xQ")
ENTRY = struct.Struct("<QQ")
FOOT = struct.Struct("<QQI4x8s")
assert (HEAD.size, ENTRY.size, FOOT.size) == (24, 16, 32)
HEAD_MAGIC = b"blzredo1"
FOOT_MAGIC = b"blzredo!"

Write = tuple[int, Buffer]


class Crc(Protocol):
    """The crc32 of bytes; this room knows no checksums."""

    def __call__(self, data: Buffer) -> int:
        """Return it."""


@dataclass(frozen=True, slots=True)
class Journal:
    """A whole journal at the end of a file: the new bytes, and the new length.

    No write is empty, none overlaps another, and they ascend.
    """

    writes: tuple[Write, ...]
    new_end: int


class Patched:
    """A file as its journal makes it, for reading."""

    def __init__(self, file: File, journal: Journal) -> None:
        self.name = file.name
        self._file = file
        self._journal = journal
        self._starts = [start for start, _ in journal.writes]
        self._ends = [start + len(new) for start, new in journal.writes]

    @property
    def size(self) -> int:
        """Length of the file."""
        return self._journal.new_end

    def read(self, at: int, length: int) -> bytes:
        """Return the bytes at a position, fewer at the end of the file."""
        data = bytearray(self._file.read(at, min(length, max(self.size - at, 0))))
        first = bisect_right(self._ends, at)
        last = bisect_left(self._starts, at + len(data))
        for start, new in self._journal.writes[first:last]:
            low, high = max(start, at), min(start + len(new), at + len(data))
            data[low - at : high - at] = new[low - start : high - start]
        return bytes(data)


def commit(file: File, writes: Sequence[Write], old_end: int, new_end: int, crc: Crc) -> None:
    """Make these changes of a file of `old_end` bytes, all of them or none."""
    inside: list[Write] = []
    beyond: list[Write] = []
    for at, data in sorted(writes, key=itemgetter(0)):
        cut = min(max(old_end - at, 0), len(data))
        if cut:
            inside.append((at, memoryview(data)[:cut]))
        if cut < len(data):
            beyond.append((at + cut, memoryview(data)[cut:]))
    for at, data in beyond:
        file.write(at, data)
    if beyond:
        file.flush()
    start = max(old_end, new_end)
    if file.size < start:
        file.write(file.size, bytes(start - file.size))
    pieces = [HEAD.pack(HEAD_MAGIC, len(inside), new_end)]
    for at, data in inside:
        pieces += (ENTRY.pack(at, len(data)), bytes(data))
    body = b"".join(pieces)
    file.write(start, body + FOOT.pack(start, new_end, crc(body), FOOT_MAGIC))
    file.flush()
    _apply(file, Journal(tuple(inside), new_end))


def find(file: File, crc: Crc) -> Journal | None:
    """Return the journal at the end of a file; None without a whole one."""
    size = file.size
    foot = file.read(max(size - FOOT.size, 0), FOOT.size)
    if len(foot) < FOOT.size or foot[-8:] != FOOT_MAGIC:
        return None
    start, new_end, expected, _ = FOOT.unpack(foot)
    if not new_end <= start <= size - FOOT.size - HEAD.size:
        return None
    body = file.read(start, size - FOOT.size - start)
    if crc(body) != expected:
        return None
    magic, count, end = HEAD.unpack_from(body)
    at = HEAD.size
    writes = []
    for _ in range(count):
        if at + ENTRY.size > len(body):
            return None
        place, length = ENTRY.unpack_from(body, at)
        at += ENTRY.size
        if not length or place + length > new_end or at + length > len(body):
            return None
        writes.append((place, body[at : at + length]))
        at += length
    writes.sort(key=itemgetter(0))
    overlaps = any(place + len(data) > after for (place, data), (after, _) in pairwise(writes))
    is_whole = magic == HEAD_MAGIC and end == new_end and at == len(body) and not overlaps
    return Journal(tuple(writes), new_end) if is_whole else None


def read_through(file: File, crc: Crc) -> "File | Patched":
    """Return the file for reading, as the journal at its end makes it."""
    journal = find(file, crc)
    return file if journal is None else Patched(file, journal)


def finish(file: File, crc: Crc) -> None:
    """Make the changes of a journal that a crash left."""
    journal = find(file, crc)
    if journal is not None:
        _apply(file, journal)


def _apply(file: File, journal: Journal) -> None:
    for at, data in journal.writes:
        file.write(at, data)
    file.flush()
    file.cut(journal.new_end)
    file.flush()
