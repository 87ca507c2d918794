"""The file of a version: the head as JSON, the Arrow schema, and the tail of each level of leaves.

A level's tail has the entries that are not sealed yet. The rows of a table are those of the highest
level first, then those of the level below, and at last the row groups of level 0. A file without
sections stands for a version that was removed. Knows nothing of what the head says, and of where
the file lies.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from blztable.errors import CorruptError, FormatError
from blztable.format import jsontext
from blztable.format.checksums import Buffer, crc32
from blztable.format.jsontext import Json
from blztable.format.leaf import GROUP, MAX_LEVEL, Leaf, encode
from blztable.format.records import PART, WORD, Array, Records

MAGIC = b"blztable"
FORMAT = 1
HEADER = struct.Struct("<8sII")
SECTION = np.dtype([("offset", "<u8"), ("size", "<u4"), ("crc", "<u4")])
SEALED = struct.Struct("<II")
assert HEADER.size == SECTION.itemsize == 16
assert SEALED.size == 8

HEAD, SCHEMA, TAILS = 0, 1, 2
# The first bytes of a version of the drafts before format 1: a line of JSON.
DRAFT = b'{"format":"blztable"'


def _sealed(table: Array) -> bytes:
    """Return the header and the table of the sections, with their checksum."""
    front = HEADER.pack(MAGIC, FORMAT, len(table)) + table.tobytes()
    return front + SEALED.pack(crc32(front), 0)


# In place of the file of a version that was removed where its number must not be free again.
REMOVED = _sealed(np.zeros(0, SECTION))


@dataclass(frozen=True)
class Tail:
    """The entries of a level that no leaf has: their groups, deleted rows and records."""

    groups: Array
    deleted: Array
    records: Records

    @classmethod
    def empty(cls, columns: int) -> Self:
        """Return the tail of a table of so many nodes without rows."""
        return cls(np.zeros(0, GROUP), np.zeros(0, WORD), Records(columns, 0, np.zeros(0, PART)))

    @classmethod
    def of(cls, leaf: Leaf) -> Self:
        """Return the entries of a leaf as a tail."""
        return cls(leaf.groups, leaf.deleted, leaf.records())

    def __len__(self) -> int:
        return len(self.groups)

    def encode(self, level: int) -> bytes:
        """Return the bytes of a leaf with these entries."""
        return encode(level, self.groups, self.deleted, self.records)


def encode_version(head: Mapping[str, Json], schema: Buffer, tails: Sequence[Buffer]) -> bytes:
    """Return the file of a version, whose tails are leaves of the levels from 0 on."""
    parts = [jsontext.dumps(head), schema, *tails]
    table = np.zeros(len(parts), SECTION)
    table["size"] = [len(part) for part in parts]
    table["crc"][:TAILS] = [crc32(part) for part in parts[:TAILS]]
    padded = table["size"].astype(np.int64) + (-table["size"].astype(np.int64) % 8)
    start = HEADER.size + table.nbytes + SEALED.size
    table["offset"] = start + np.cumsum(padded) - padded
    body = [piece for part in parts for piece in (part, bytes(-len(part) % 8))]
    return b"".join([_sealed(table), *body])


@dataclass(frozen=True)
class VersionFile:
    """The sections of a version, found and compared with their checksums."""

    head: dict[str, Json]
    schema: memoryview
    leaves: tuple[Leaf, ...]

    @classmethod
    def decode(cls, data: Buffer) -> Self:
        """Read a version; the records of its tails are checked when they are read."""
        view = memoryview(data)
        if bytes(view[: len(DRAFT)]) == DRAFT:
            raise FormatError(
                "the table was written by an unreleased draft of the format; write it again"
            )
        if len(view) < HEADER.size:
            raise CorruptError(f"a version has {len(view)} bytes; its header alone takes 16")
        magic, version, count = HEADER.unpack_from(view)
        if magic != MAGIC:
            raise CorruptError(f"a version begins with {magic!r}; expected {MAGIC!r}")
        if version != FORMAT:
            raise FormatError(f"a version of the format {version}; this program reads {FORMAT}")
        if view == REMOVED:
            raise CorruptError("the version was removed")
        if not TAILS < count <= TAILS + MAX_LEVEL:
            raise CorruptError(f"a version has {count} sections; expected 3 to {TAILS + MAX_LEVEL}")
        end = HEADER.size + count * SECTION.itemsize
        if len(view) < end + SEALED.size:
            raise CorruptError(f"a version of {count} sections has {len(view)} bytes")
        crc, zero = SEALED.unpack_from(view, end)
        if crc32(view[:end]) != crc or zero:
            raise CorruptError("the table of sections of a version does not match its checksum")
        sections = cls._sections(view, np.frombuffer(view, SECTION, count, HEADER.size))
        head = jsontext.loads(bytes(sections[HEAD]), "the head of a version")
        if not isinstance(head, dict):
            raise CorruptError("the head of a version is an object")
        leaves = tuple(Leaf(section) for section in sections[TAILS:])
        if any(leaf.level != level for level, leaf in enumerate(leaves)):
            raise CorruptError("the tails of a version are those of the levels from 0 on")
        if len({leaf.columns for leaf in leaves}) != 1:
            raise CorruptError("the tails of a version have different columns")
        return cls(head, sections[SCHEMA], leaves)

    @staticmethod
    def _sections(view: memoryview, table: Array) -> list[memoryview]:
        sections, at = [], HEADER.size + table.nbytes + SEALED.size
        for number, (offset, size, crc) in enumerate(table.tolist()):
            if offset != at or at + size > len(view):
                raise CorruptError(f"section {number} of a version lies at {offset}, not at {at}")
            section = view[at : at + size]
            if number < TAILS and crc32(section) != crc:
                raise CorruptError(f"section {number} of a version does not match its checksum")
            if number >= TAILS and crc:
                raise CorruptError(f"section {number} of a version has a checksum of its own")
            at += size + -size % 8
            if any(view[offset + size : at]) or at > len(view):
                raise CorruptError(f"section {number} of a version is not padded with zeros")
            sections.append(section)
        if at != len(view):
            raise CorruptError(f"a version ends at {at}; it has {len(view)} bytes")
        return sections
