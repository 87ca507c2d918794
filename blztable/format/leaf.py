"""A leaf: the records of some entries, a slice with a checksum for each column.

Level 0 describes row groups; level k + 1 describes leaves of level k by the same records. A leaf is
a file of its own or a section of a manifest. Knows nothing of types, keys and files.
"""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from isal.isal_zlib import crc32

from blztable.cached import cached_property
from blztable.errors import CorruptError
from blztable.format import deletions
from blztable.format.records import (
    KINDS,
    MAX_FILE,
    MAX_ROWS,
    WORD,
    Array,
    Records,
    behind_each_other,
    need,
)

HEADER = struct.Struct("<8sIIII")
MAGIC = b"blz-leaf"
GROUP = np.dtype(
    [
        ("rows", "<u8"),
        ("stored", "<u8"),
        ("changed", "<u8"),
        ("file", "<u8"),
        ("size", "<u4"),
        ("crc", "<u4"),
        ("groups", "<u4"),
        ("deleted", "<u4"),
    ]
)
INDEX = np.dtype(
    [
        ("offset", "<u8"),
        ("crc", "<u4"),
        ("streams", "<u4"),
        ("chunks", "<u4"),
        ("pages", "<u4"),
        ("words", "<u4"),
        ("bytes", "<u4"),
    ]
)
assert HEADER.size == 24
assert GROUP.itemsize == 48
assert INDEX.itemsize == 32

COUNTED = ("streams", "chunks", "pages", "words", "bytes")
ITEMSIZES = np.array([kind.itemsize for kind in KINDS])
MAX_LEVEL = 7
MAX_COLUMNS = 1 << 20
MAX_ENTRIES = 1 << 20
# Row groups of a version: lists of them take some hundred bytes each.
MAX_GROUPS = 1 << 23


def encode(level: int, groups: Array, deleted: Array, records: Records) -> bytes:
    """Return the bytes of a leaf. `deleted` has the words of all groups, in their order."""
    first = groups.astype(GROUP, copy=False).tobytes() + deleted.astype(WORD, copy=False).tobytes()
    counts = records.counts()
    padded = counts.copy()
    padded[-1] += -counts[-1] % 8
    sizes = padded * ITEMSIZES[:, None]
    totals = sizes.sum(0)
    index = np.zeros(records.columns + 1, INDEX)
    start = HEADER.size + index.nbytes
    offsets = start + len(first) + totals.cumsum() - totals
    index["offset"] = np.concatenate([[start], offsets])
    index["words"][0] = len(deleted)
    for name, row in zip(COUNTED, counts[1:], strict=True):
        index[name][1:] = row
    body = np.zeros(int(totals.sum()), np.uint8)
    begin = offsets - (start + len(first))
    for kind, array, count, size in zip(KINDS, records.arrays, counts, sizes, strict=True):
        if len(array):
            body.view(_words(kind))[_places(begin, count, kind.itemsize)] = array.view(_words(kind))
        begin = begin + size
    view = body.data
    ends = totals.cumsum().tolist()
    index["crc"][0] = crc32(first)
    index["crc"][1:] = [
        crc32(view[end - size : end]) for end, size in zip(ends, totals.tolist(), strict=True)
    ]
    head = HEADER.pack(MAGIC, level, len(groups), records.columns, 0)[:-4]
    crc = crc32(index.tobytes(), crc32(head))
    return b"".join([head, crc.to_bytes(4, "little"), index.tobytes(), first, body.data])


class Leaf:
    """A leaf whose header and index are checked; the records of a column are when they are read."""

    def __init__(self, data: bytes | memoryview) -> None:
        view = self.data = memoryview(data)
        if len(view) < HEADER.size:
            raise CorruptError(
                f"a leaf has {len(view)} bytes; its header alone takes {HEADER.size}"
            )
        magic, self.level, self.entries, self.columns, crc = HEADER.unpack_from(view)
        if magic != MAGIC:
            raise CorruptError(f"a leaf begins with {magic!r}; expected {MAGIC!r}")
        need(self.level < MAX_LEVEL and self.entries <= MAX_ENTRIES, "header of a leaf")
        need(self.columns <= MAX_COLUMNS, "columns of a leaf")
        start = HEADER.size + (self.columns + 1) * INDEX.itemsize
        need(start <= len(view), "a leaf that is cut")
        computed = crc32(view[HEADER.size : start], crc32(view[: HEADER.size - 4]))
        if computed != crc:
            raise CorruptError(f"a leaf: crc32 is {computed:08x}, the header says {crc:08x}")
        self.crc = crc
        self.index = np.frombuffer(view, INDEX, self.columns + 1, HEADER.size)
        self._check_index(start)
        self._checked = np.zeros(self.columns, bool)

    def _check_index(self, start: int) -> None:
        # The counts are the last numbers of the index, in the order of COUNTED.
        counts = self.index.view("<u4").reshape(-1, 8)[:, 3:].astype(np.int64)
        need(counts[0, [0, 1, 2, 4]] == 0, "counts of the first slice")
        counts[:, -1] += -counts[:, -1] % 8
        self._sizes = counts @ ITEMSIZES[1:] + self.entries * ITEMSIZES[0]
        ends = self._sizes.cumsum() + start
        offsets = self.index["offset"].view(np.int64)
        need(offsets == ends - self._sizes, "offset of a slice")
        need(bool(ends[-1] == len(self.data)), "bytes of a leaf")

    def _slice(self, number: int) -> memoryview:
        offset, size = int(self.index["offset"][number]), int(self._sizes[number])
        piece = self.data[offset : offset + size]
        computed, stored = crc32(piece), int(self.index["crc"][number])
        if computed != stored:
            what = f"column {number - 1}" if number else "the row groups"
            raise CorruptError(
                f"a leaf: the crc32 of {what} is {computed:08x}, the index says {stored:08x}"
            )
        return piece

    @cached_property
    def groups(self) -> Array:
        """Return the record of each entry, checked."""
        groups = np.frombuffer(self._slice(0), GROUP, self.entries)
        rows, stored = groups["rows"], groups["stored"]
        need((rows > 0) & (rows <= stored) & (stored < MAX_ROWS), "rows of a row group")
        need(groups["file"] <= MAX_FILE, "number of a file")
        if self.level:
            need((groups["file"] > 0) & (groups["groups"] > 0), "a leaf in a leaf")
            need(groups["size"] >= HEADER.size, "bytes of a leaf in a leaf")
            need(len(self.deleted) == 0, "deleted rows in a leaf of leaves")
        else:
            need((groups["groups"] == 1) & (groups["size"] == 0), "a row group")
            stored = stored.astype(np.int64)
            gone = stored - rows.astype(np.int64)
            deletions.check(self.deleted, groups["deleted"].astype(np.int64), stored, gone)
        return groups

    @cached_property
    def deleted(self) -> Array:
        """Return the words that name deleted rows, of all entries."""
        return np.frombuffer(self._slice(0), WORD, -1, self.entries * GROUP.itemsize)

    def records(self, columns: Sequence[int] | Array | None = None) -> Records:
        """Return the records of some columns, in this order; None means all.

        The records of a column are compared with their checksum and checked once.
        """
        chosen = np.arange(self.columns) if columns is None else np.asarray(columns, np.int64)
        if self._checked[chosen].all():
            return self._records(chosen)[0]
        records, counts = self._compared(chosen)
        records.check(self.level)
        need(records.counts() == counts, "counts of the index")
        self._checked[chosen] = True
        return records

    def _compared(self, chosen: Array) -> tuple[Records, Array]:
        """Return unchecked records of some columns, and their counts, if the checksums agree."""
        for number in chosen[~self._checked[chosen]].tolist():
            self._slice(number + 1)
        return self._records(chosen)

    def _records(self, chosen: Array) -> tuple[Records, Array]:
        """Return the records of some columns, and their counts, a row for each of KINDS."""
        arrays: list[Array] = []
        if len(chosen) == 1:
            offset, _, *row = self.index[int(chosen[0]) + 1].item()
            for kind, one in zip(KINDS, (self.entries, *row), strict=True):
                arrays.append(np.frombuffer(self.data, kind, one, offset))
                offset += one * kind.itemsize
            return Records(1, self.entries, *arrays), np.array([[self.entries], *zip(row)])
        index = self.index[chosen + 1]
        counts = np.empty((len(KINDS), len(chosen)), np.int64)
        counts[0] = self.entries
        counts[1:] = index.view("<u4").reshape(-1, 8)[:, 3:].T
        begin = index["offset"].astype(np.int64)
        for kind, count in zip(KINDS, counts, strict=True):
            words = np.frombuffer(self.data, _words(kind))
            arrays.append(words[_places(begin, count, kind.itemsize)].view(kind))
            begin = begin + count * kind.itemsize
        return Records(len(chosen), self.entries, *arrays), counts


def records_together(leaves: Sequence[Leaf], columns: Sequence[int] | Array) -> dict[Leaf, Records]:
    """Return the records of some columns of leaves of one level, as each of them does.

    The records of many leaves are checked in the time of a few. CorruptError does not say which
    leaf is damaged.
    """
    chosen = np.asarray(columns, np.int64)
    compared = {leaf: leaf._compared(chosen) for leaf in leaves}
    new = [leaf for leaf in leaves if not leaf._checked[chosen].all()]
    if new and len(chosen):
        parts = [len(compared[leaf][0].parts) for leaf in new]
        arrays = behind_each_other([compared[leaf][0] for leaf in new])
        whole = Records(1, sum(parts), *arrays)
        whole.check(new[0].level)
        # Where the records of each column of each leaf end.
        entries = np.repeat([leaf.entries for leaf in new], len(chosen))
        ends = np.append(0, entries.cumsum())
        before = np.stack([first[ends] for first in whole.firsts])
        counts = np.concatenate([compared[leaf][1] for leaf in new], axis=1)
        need(before[:, 1:] - before[:, :-1] == counts, "counts of the index")
    for leaf in new:
        leaf._checked[chosen] = True
    return {leaf: records for leaf, (records, _) in compared.items()}


def _words(kind: np.dtype[Any]) -> np.dtype[Any]:
    """Return the unit that records of a kind are copied in: 8 bytes, or one of prefixes."""
    return np.dtype("u1") if kind.itemsize == 1 else np.dtype("<u8")


def _places(begin: Array, count: Array, itemsize: int) -> Array:
    """Return where each unit of the records lies that begin at some bytes, in units."""
    unit = 1 if itemsize == 1 else 8
    units = count * (itemsize // unit)
    ends = units.cumsum()
    return (begin // unit - (ends - units)).repeat(units) + np.arange(ends[-1] if len(ends) else 0)
