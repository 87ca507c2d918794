"""The metadata section of Bloscpack 3: a header of 32 bytes, JSON, room, and a checksum.

Knows nothing of what the JSON means.
"""

import struct
from collections.abc import Callable

from blztable.errors import CorruptError, FormatError
from blztable.format import jsontext
from blztable.format.header import BY_NAME, CHECKSUMS, MAX_METADATA_BYTES, STORED, ZLIB, Layer
from blztable.format.jsontext import Json

SECTION_HEADER = struct.Struct("<8sBBBBIII8s")
assert SECTION_HEADER.size == 32
JSON_MAGIC = b"JSON\0\0\0\0"
# The checksum that Bloscpack writes by default.
_ADLER32 = BY_NAME["adler32"]

Read = Callable[[int, int], bytes]


def encode_section(text: bytes, room: int) -> bytes:
    """Return the section of a JSON text with `room` bytes for longer ones."""
    assert len(text) <= room
    head = SECTION_HEADER.pack(
        JSON_MAGIC, 0, _ADLER32.id, STORED, 0, len(text), room, len(text), b""
    )
    return head + text.ljust(room, b"\0") + _ADLER32.digest(text)


def section_length(room: int) -> int:
    """Return the bytes of a section with that room."""
    return SECTION_HEADER.size + room + _ADLER32.size


def decode_section(read: Read, at: int) -> tuple[Json, int, int]:
    """Return the JSON of the section at a position, the end of the section, and its room."""
    head = read(at, SECTION_HEADER.size)
    if len(head) < SECTION_HEADER.size:
        raise CorruptError("the file ends within its metadata")
    magic, _, number, codec, _, size, room, stored, _ = SECTION_HEADER.unpack(head)
    if magic != JSON_MAGIC or codec not in (STORED, ZLIB) or number >= len(CHECKSUMS):
        raise FormatError(f"metadata of the kind {magic!r}, codec {codec}, checksum {number}")
    if stored > room or max(size, room) > MAX_METADATA_BYTES:
        raise CorruptError(f"metadata of {stored} bytes, {size} inflated, with room for {room}")
    checksum = CHECKSUMS[number]
    body = read(at + SECTION_HEADER.size, room + checksum.size)
    text, digest = body[:stored], body[room:]
    if len(body) < room + checksum.size or checksum.digest(text) != digest:
        raise CorruptError("the metadata do not match their checksum")
    if codec == ZLIB:
        text = Layer(ZLIB, size, text).decode()
    return jsontext.loads(text, "the metadata"), at + SECTION_HEADER.size + len(body), room
