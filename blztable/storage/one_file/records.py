"""Records: the bytes of a table in one file.

Knows nothing of files and of the meaning of keys. The file is a front, then records one after the
other. A record is a head, a key and a value. A commit ends with an index, which names the records
that live, and a foot; the last foot of the file is the table. All numbers are little-endian.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from isal import isal_zlib

from blztable.storage.store import Buffer

# The header of the BLZ proposals, version 4, with metadata and without offsets. The numbers of
# chunks and their sizes are -1, "in a streaming scenario". No superchunk of a table has this form.
_HEADER = struct.Struct("<4sBBBBiiqII")
_METADATA = {"format": "blztable", "format_version": 1, "holds": "table"}
HEADER_BYTES = _HEADER.size
MOST_METADATA = 16 << 20
ID_DIGITS = 32
_MOST_REWRITES = 1 << 53

HEAD = struct.Struct("<4sBBHQQI")
_CRC = struct.Struct("<I")
FOOT = struct.Struct("<8sQQQII8s")
_FOOT_START = struct.Struct("<8sQQQI")
SEAL = struct.Struct("<8sQII")
assert (HEAD.size, FOOT.size, SEAL.size) == (28, 48, 24)
HEAD_BYTES = HEAD.size + _CRC.size
FOOT_BYTES, SEAL_BYTES = FOOT.size, SEAL.size
HEAD_MAGIC = b"blzr"
FOOT_MAGIC, _FOOT_END = b"blzcomit", b"blzf-end"
SEAL_MAGIC = b"blzseal!"
VALUE, INDEX = 1, 2

crc32 = isal_zlib.crc32


class Extent(NamedTuple):
    """Where a value lies in the file."""

    position: int
    length: int


@dataclass(frozen=True, slots=True)
class RecordHead:
    """The head of a record, and the key behind it."""

    kind: int
    key: str
    value: Extent
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


def encode_front(metadata: Mapping[str, object]) -> bytes:
    """Return the front with these metadata."""
    data = json.dumps(metadata).encode()
    return _HEADER.pack(b"blpk", 4, 2, 2, 1, -1, -1, -1, len(data), 0) + data


def new_front(number: str) -> bytes:
    """Return the front of a new file, with its id."""
    return encode_front({**_METADATA, "rewrites": 0, "id": number})


_START, _END = new_front("-" * ID_DIGITS).split(b"-" * ID_DIGITS)


def _metadata(data: bytes) -> dict[str, object]:
    """Return the metadata in the front that begins with these bytes; nothing if there is none."""
    length = front_length(data)
    try:
        metadata = json.loads(data[HEADER_BYTES:length]) if length else None
    except (ValueError, RecursionError):
        return {}
    return metadata if isinstance(metadata, dict) else {}


def decode_id(front: bytes) -> tuple[str, int] | None:
    """Return the id in a front, and how often the file was rewritten; None if it has no id."""
    metadata = _metadata(front)
    number, rewrites = metadata.get("id"), metadata.get("rewrites")
    if isinstance(number, str) and type(rewrites) is int and 0 <= rewrites < _MOST_REWRITES:
        return number, rewrites
    return None


def next_front(front: bytes, number: str) -> bytes:
    """Return the front of the file that replaces one; this id is for a file that has none."""
    known = decode_id(front)
    number, rewrites = (number, 0) if known is None else known
    return encode_front({**_metadata(front), "rewrites": rewrites + 1, "id": number})


def is_part_of_front(data: bytes) -> bool:
    """True if a new file begins with these bytes, and its front goes on."""
    number = data[len(_START) : len(_START) + ID_DIGITS]
    front = _START + number + (_END if len(number) == ID_DIGITS else b"-")
    return front.startswith(data) and len(data) < len(front)


def has_header(data: bytes) -> bool:
    """True if these bytes begin with the header of a new file."""
    return data[:HEADER_BYTES] == _START[:HEADER_BYTES]


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
    head = HEAD.pack(HEAD_MAGIC, kind, 0, len(name), position, length, crc)
    return [head, _CRC.pack(crc32(name, crc32(head))), name]


def record_bytes(key: str, length: int) -> int:
    """Return the length of the record of a value of `length` bytes."""
    return HEAD_BYTES + len(key.encode()) + length


def key_length(data: Buffer, position: int) -> int | None:
    """Return the length of the key behind a head; None if no record begins at this position."""
    if len(data) < HEAD_BYTES:
        return None
    magic, kind, reserved, length, at, _, _ = HEAD.unpack_from(data)
    if magic != HEAD_MAGIC or at != position or reserved or kind not in (VALUE, INDEX):
        return None
    return int(length)


def decode_head(data: bytes, position: int) -> RecordHead | None:
    """Return the head of the record at this position, from its head and key; None if damaged."""
    named = key_length(data, position)
    if named is None or len(data) < HEAD_BYTES + named:
        return None
    _, kind, _, _, _, length, crc = HEAD.unpack_from(data)
    (expected,) = _CRC.unpack_from(data, HEAD.size)
    name = data[HEAD_BYTES : HEAD_BYTES + named]
    if crc32(name, crc32(data[: HEAD.size])) != expected:
        return None
    try:
        key = name.decode()
    except UnicodeDecodeError:
        return None
    return RecordHead(kind, key, Extent(position + HEAD_BYTES + named, length), crc)


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
    magic, block, index, previous, front_crc, _, last = FOOT.unpack(data)
    begins = end - FOOT_BYTES
    is_foot = magic == FOOT_MAGIC and last == _FOOT_END
    if not is_foot or not HEADER_BYTES <= block < index <= begins or previous > block:
        return None
    return Foot(block, index, previous, front_crc)


def encode_seal(end: int) -> bytes:
    """Return the seal of a commit whose foot ends at this position."""
    start = SEAL.pack(SEAL_MAGIC, end, 0, 0)[:-4]
    return start + _CRC.pack(crc32(start))


def decode_seal(data: Buffer, position: int) -> int | None:
    """Return where the foot of the sealed commit ends; None if no seal lies at this position."""
    if len(data) != SEAL_BYTES:
        return None
    magic, end, reserved, crc = SEAL.unpack(data)
    # A file within a value of this one has seals that lie elsewhere.
    is_seal = magic == SEAL_MAGIC and not reserved and end == position
    return int(end) if is_seal and crc32(data[:-4]) == crc else None


def is_whole(foot: bytes, block_crc: int) -> bool:
    """True if the crc in a foot is that of its block, whose crc32 is given, and of its fields."""
    (crc,) = _CRC.unpack_from(foot, _FOOT_START.size)
    return bool(crc32(foot[: _FOOT_START.size], block_crc) == crc)
