"""Records: the bytes of a table in one file, and the index of a commit.

Knows nothing of files and of the meaning of keys. The file is a front, then records one after the
other. A record is a head, a key and a value. A commit ends with an index, which names the records
that live, and a foot; the last foot of the file is the table. All numbers are little-endian.
"""

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from isal import isal_zlib

from blztable.errors import CorruptError, LimitError
from blztable.storage.store import Buffer
from blztable.strict_json import strict_decoder

# The header of the BLZ proposals, version 4, with metadata and without offsets. The numbers of
# chunks and their sizes are -1, "in a streaming scenario". No superchunk of a table has this form.
_HEADER = struct.Struct("<4sBBBBiiqII")
_METADATA = json.dumps({"format": "blztable", "format_version": 1, "holds": "table"}).encode()
FRONT = _HEADER.pack(b"blpk", 4, 2, 2, 1, -1, -1, -1, len(_METADATA), 0) + _METADATA
HEADER_BYTES = _HEADER.size
MOST_METADATA = 16 << 20

_HEAD = struct.Struct("<4sBBHQQI")
_CRC = struct.Struct("<I")
_FOOT = struct.Struct("<8sQQQII8s")
_FOOT_START = struct.Struct("<8sQQQI")
assert (_HEAD.size, _FOOT.size) == (28, 48)
HEAD_BYTES = _HEAD.size + _CRC.size
FOOT_BYTES = _FOOT.size
_HEAD_MAGIC = b"blzr"
FOOT_MAGIC, _FOOT_END = b"blzcomit", b"blzf-end"
VALUE, INDEX = 1, 2

# Bytes of the lines of an index. A name takes about 40, so a prefix may have 400,000 names.
MOST_LINE = 16 << 20
_DECODER = strict_decoder()
_KEYS = {"name", "position", "length"}
_DIRECTORY_KEYS = {"prefix", "line", "bytes"}

crc32 = isal_zlib.crc32


class Place(NamedTuple):
    """Where a value lies in the file."""

    position: int
    length: int


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a record, and the key behind it."""

    kind: int
    key: str
    value: Place
    crc: int

    @property
    def end(self) -> int:
        """The position behind the record."""
        return self.value.position + self.value.length


@dataclass(frozen=True, slots=True)
class Foot:
    """The end of a commit.

    Attributes
    ----------
    block : int
        Where the first record of the commit's own block begins; the crc is of all bytes from here.
    index : int
        Where the value of the index begins; it ends where the foot begins.
    previous : int
        Where the foot of the commit before ends; 0 for the first.
    front_crc : int
        The crc32 of the front of the file.
    """

    block: int
    index: int
    previous: int
    front_crc: int


def front_length(data: Buffer) -> int | None:
    """Return the length of the front that begins with these bytes; None if they are not one."""
    if len(data) < HEADER_BYTES:
        return None
    magic, version, options, _, _, chunk, last, chunks, length, reserved = _HEADER.unpack_from(data)
    is_ours = (magic, version, options) == (b"blpk", 4, 2) and chunk == last == chunks == -1
    if not is_ours or reserved or not 0 < length <= MOST_METADATA:
        return None
    return HEADER_BYTES + int(length)


def record(position: int, key: str, buffers: Sequence[Buffer], kind: int = VALUE) -> list[Buffer]:
    """Return the buffers of a record at this position of the file: head, key and value."""
    length = crc = 0
    for buffer in buffers:
        view = memoryview(buffer)
        length += view.nbytes
        crc = crc32(view, crc) if view.nbytes else crc
    return [*record_head(position, key, length, crc, kind), *buffers]


def record_head(position: int, key: str, length: int, crc: int, kind: int = VALUE) -> list[Buffer]:
    """Return the three buffers before the value of a record: the head in two, and the key."""
    name = key.encode()
    head = _HEAD.pack(_HEAD_MAGIC, kind, 0, len(name), position, length, crc)
    return [head, _CRC.pack(crc32(name, crc32(head))), name]


def record_bytes(key: str, length: int) -> int:
    """Return the length of the record of a value of `length` bytes."""
    return HEAD_BYTES + len(key.encode()) + length


def key_length(data: Buffer, position: int) -> int | None:
    """Return the length of the key behind a head; None if no record begins at this position."""
    if len(data) < HEAD_BYTES:
        return None
    magic, kind, reserved, length, at, _, _ = _HEAD.unpack_from(data)
    if magic != _HEAD_MAGIC or at != position or reserved or kind not in (VALUE, INDEX):
        return None
    return int(length)


def decode_head(data: bytes, position: int) -> Head | None:
    """Return the head of the record at this position, from its head and key; None if damaged."""
    named = key_length(data, position)
    if named is None or len(data) < HEAD_BYTES + named:
        return None
    _, kind, _, _, _, length, crc = _HEAD.unpack_from(data)
    (expected,) = _CRC.unpack_from(data, _HEAD.size)
    name = data[HEAD_BYTES : HEAD_BYTES + named]
    if crc32(name, crc32(data[: _HEAD.size])) != expected:
        return None
    return Head(kind, name.decode(), Place(position + HEAD_BYTES + named, length), crc)


def encode_foot(foot: Foot, block: Sequence[Buffer]) -> bytes:
    """Return the foot behind a block, given as buffers that end where the foot begins."""
    crc = 0
    for buffer in block:
        view = memoryview(buffer)
        crc = crc32(view, crc) if view.nbytes else crc
    start = _FOOT_START.pack(FOOT_MAGIC, foot.block, foot.index, foot.previous, foot.front_crc)
    return start + _CRC.pack(crc32(start, crc)) + _FOOT_END


def decode_foot(data: Buffer, end: int) -> Foot | None:
    """Return the foot in the 48 bytes that end at this position; the crc is not checked."""
    if len(data) != FOOT_BYTES:
        return None
    magic, block, index, previous, front_crc, _, last = _FOOT.unpack(data)
    begins = end - FOOT_BYTES
    is_foot = magic == FOOT_MAGIC and last == _FOOT_END
    if not is_foot or not HEADER_BYTES <= block < index <= begins or previous > block:
        return None
    return Foot(block, index, previous, front_crc)


def is_whole(block: memoryview) -> bool:
    """True if the crc in the foot at the end of a block is that of the bytes before it."""
    crc_at = len(block) - len(_FOOT_END) - _CRC.size
    (crc,) = _CRC.unpack_from(block, crc_at)
    return bool(crc32(block[:crc_at]) == crc)


class Listing:
    """The names of values and where they lie, by prefix. A line is decoded at its first use."""

    def __init__(self) -> None:
        # A line is None once its names have changed.
        self._lines: dict[str, bytes | None] = {"": None}
        self._names: dict[str, dict[str, Place]] = {"": {}}
        # The bytes of the values under each prefix.
        self._bytes: dict[str, int] = {"": 0}
        # No value ends behind this position.
        self._limit = 0

    @classmethod
    def decode(cls, data: bytes, limit: int) -> Self:
        """Return the listing of an index; each value of the file ends before `limit`."""
        first, *_ = data.split(b"\n", 1)
        index = _parsed(first, _DIRECTORY_KEYS)
        prefixes, lengths, sizes = index["prefix"], index["line"], index["bytes"]
        _check_texts(prefixes, unique=True)
        _check_numbers([*lengths, *sizes])
        if not len(prefixes) == len(lengths) == len(sizes) or sum(sizes) > limit:
            raise CorruptError("the index of the file: its lists do not belong together")
        listing = cls()
        listing._limit = limit
        at = len(first) + 1
        for prefix, length, size in zip(prefixes, lengths, sizes, strict=True):
            listing._lines[prefix] = data[at : at + length]
            listing._bytes[prefix] = size
            listing._names.pop(prefix, None)
            at += length + 1
        if at != len(data) + 1 and at != len(data):
            raise CorruptError("the index of the file: its lines have another length")
        return listing

    def copy(self) -> "Listing":
        """Return a listing that can change without this one."""
        other = Listing()
        other._lines, other._names = dict(self._lines), dict(self._names)
        other._bytes, other._limit = dict(self._bytes), self._limit
        return other

    def encode(self) -> bytes:
        """Return the index."""
        lines = [self._line(prefix) for prefix in self._lines]
        index = {
            "prefix": list(self._lines),
            "line": list(map(len, lines)),
            "bytes": [self._bytes[prefix] for prefix in self._lines],
        }
        return b"\n".join([_text(index), *lines])

    @property
    def nbytes(self) -> int:
        """Bytes of all values."""
        return sum(self._bytes.values())

    def find(self, key: str) -> Place | None:
        """Return where the value of a key lies; None if there is none."""
        prefix, name = _parts(key)
        return self.names(prefix).get(name)

    def names(self, prefix: str) -> dict[str, Place]:
        """Return the values directly under a prefix; empty if there is no such prefix."""
        names = self._names.get(prefix)
        if names is None:
            if prefix not in self._lines:
                return {}
            names = self._decode(prefix)
            self._names[prefix] = names
        return names

    def prefixes(self) -> list[str]:
        """Return all prefixes that have values or were made."""
        return list(self._lines)

    def has_prefix(self, key: str) -> bool:
        """True if the key is a prefix, also an empty one."""
        start = key + "/"
        return key in self._lines or any(other.startswith(start) for other in self._lines)

    def children(self, prefix: str) -> set[str]:
        """Return the names one level under a prefix, of values and prefixes."""
        start = prefix + "/" if prefix else ""
        below = (other[len(start) :] for other in self._lines if other.startswith(start))
        return {name.partition("/")[0] for name in below if name} | set(self.names(prefix))

    def values(self) -> Iterator[tuple[str, Place]]:
        """Yield each key with its place."""
        for prefix in self._lines:
            for name, place in self.names(prefix).items():
                yield (f"{prefix}/{name}" if prefix else name), place

    def add(self, key: str, place: Place) -> None:
        """Name a value; it replaces one of the same key."""
        prefix, name = _parts(key)
        names = self._changed(prefix)
        self._bytes[prefix] += place.length - names.get(name, Place(0, 0)).length
        names[name] = place

    def make(self, prefix: str) -> None:
        """Add an empty prefix."""
        if prefix not in self._lines:
            self._lines[prefix], self._names[prefix], self._bytes[prefix] = None, {}, 0

    def remove(self, key: str) -> bool:
        """Remove a value or an empty prefix; return False if there is none."""
        prefix, name = _parts(key)
        if name in self.names(prefix):
            self._bytes[prefix] -= self._changed(prefix).pop(name).length
            return True
        if key in self._lines and not self.children(key):
            del self._lines[key], self._bytes[key]
            self._names.pop(key, None)
            return True
        return False

    def _changed(self, prefix: str) -> dict[str, Place]:
        self.make(prefix)
        if self._lines[prefix] is not None or prefix in self._names:
            self._names[prefix] = dict(self.names(prefix))
        self._lines[prefix] = None
        return self._names[prefix]

    def _line(self, prefix: str) -> bytes:
        line = self._lines[prefix]
        if line is None:
            names = self._names[prefix]
            line = _text(
                {
                    "name": list(names),
                    "position": [place.position for place in names.values()],
                    "length": [place.length for place in names.values()],
                }
            )
            if len(line) > MOST_LINE:
                raise LimitError(f"{prefix}: {len(names)} values are more than one file can name")
            self._lines[prefix] = line
        return line

    def _decode(self, prefix: str) -> dict[str, Place]:
        line = self._lines[prefix]
        assert line is not None, prefix
        lists = _parsed(line, _KEYS)
        names, positions, lengths = lists["name"], lists["position"], lists["length"]
        _check_texts(names, unique=True)
        _check_numbers([*positions, *lengths])
        places = list(map(Place, positions, lengths))
        if not len(names) == len(positions) == len(lengths):
            raise CorruptError(f"the index of the file: the lists of {prefix!r} differ in length")
        if sum(lengths) != self._bytes[prefix] or any(sum(one) > self._limit for one in places):
            raise CorruptError(f"the index of the file: values of {prefix!r} lie behind its end")
        return dict(zip(names, places, strict=True))


def _parts(key: str) -> tuple[str, str]:
    prefix, _, name = key.rpartition("/")
    return prefix, name


def _text(lists: Mapping[str, object]) -> bytes:
    return json.dumps(lists, separators=(",", ":")).encode()


def _parsed(line: bytes, keys: set[str]) -> dict[str, list[Any]]:
    """Return the lists of a line of the index."""
    # Brackets take the most memory; a line has a few of them.
    if len(line) > MOST_LINE or line.count(b"[") + line.count(b"{") > len(keys) + 1:
        raise CorruptError("the index of the file: a line is too long or too deep")
    try:
        lists = _DECODER.decode(line.decode())
    except ValueError as error:
        raise CorruptError(f"the index of the file is not valid: {error}") from None
    if not isinstance(lists, dict) or set(lists) != keys:
        raise CorruptError(f"the index of the file: expected {sorted(keys)}")
    if not all(isinstance(one, list) for one in lists.values()):
        raise CorruptError("the index of the file: expected lists")
    return lists


def _check_texts(texts: list[Any], *, unique: bool) -> None:
    if not set(map(type, texts)) <= {str} or (unique and len(set(texts)) != len(texts)):
        raise CorruptError("the index of the file: expected texts that differ")


def _check_numbers(numbers: list[Any]) -> None:
    if numbers and (set(map(type, numbers)) != {int} or min(numbers) < 0):
        raise CorruptError("the index of the file: expected whole numbers from 0")
