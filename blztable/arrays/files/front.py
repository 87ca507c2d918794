"""The front of an array: header, metadata, and offsets with room for more.

A front never changes its length, so that the array can grow behind it. It is genuine Bloscpack 3
where that can describe the array, and else version 4 of the proposals. If the offsets need more
room than the front has, they move to the trailer, and the front becomes one of version 4.
Knows nothing of files.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from blztable.arrays.files.info import OURS, ArrayInfo
from blztable.errors import CorruptError, FormatError
from blztable.format import jsontext
from blztable.format.bloscpack import (
    BLOSCPACK,
    EXTENDED,
    HEADER,
    ITEM_ENDS,
    JSON_MAGIC,
    METADATA,
    OFFSETS,
    UNFINISHED,
    UNKNOWN,
    Header,
    Read,
    decode_section,
    encode_section,
    section_length,
)
from blztable.format.checksums import ADLER32, CHECKSUMS, Checksum
from blztable.format.jsontext import Json

# The typesize of a header is one byte.
MAX_TYPESIZE = 255


@dataclass(frozen=True, slots=True)
class Front:
    """The front of an array of ours.

    Attributes
    ----------
    version
        3 or 4.
    checksum
        The checksum of the chunks.
    info
        The metadata.
    text_room
        The bytes that the metadata may take.
    is_stream
        True if the file is written once, from its start to its end.
    """

    version: int
    checksum: Checksum
    info: ArrayInfo
    text_room: int
    is_stream: bool = False

    @classmethod
    def new(cls, version: int, checksum: Checksum, info: ArrayInfo, *, is_stream: bool) -> Self:
        """Return the front of a new array."""
        return cls(version, checksum, info, info.most_bytes(), is_stream)

    @property
    def length(self) -> int:
        """Return the number of bytes of the front."""
        is_genuine = self.version == BLOSCPACK
        metadata = section_length(self.text_room, ADLER32) if is_genuine else self.text_room
        return HEADER.size + metadata + 8 * self.info.room

    def with_info(self, info: ArrayInfo) -> Self:
        """Return the front of the same length that has other metadata."""
        return replace(self, info=info)

    def without_offsets(self) -> Self:
        """Return the front of the same length whose offsets are in the trailer."""
        room = self.length - HEADER.size
        return replace(self, version=EXTENDED, text_room=room, info=replace(self.info, room=0))

    def header(self) -> Header:
        """Return the header of the finished array."""
        info = self.info
        options = METADATA | (OFFSETS if info.room else 0) | (ITEM_ENDS if info.items else 0)
        nchunks = len(info.grid)
        size = last = UNKNOWN
        if not info.items and rows_only(info):
            size = info.dtype.itemsize
            for step, length in zip(info.chunk_shape[1:], info.shape[1:], strict=True):
                size *= min(step, length)
            size *= info.chunk_shape[0]
            last = info.raw_size(nchunks - 1) if nchunks else 0
        if self.is_stream:
            nchunks = last = UNKNOWN
        is_genuine = self.version == BLOSCPACK
        tail = info.room - nchunks if is_genuine else self.text_room
        return Header(
            self.version, options, self.checksum.id, info.typesize, size, last, nchunks, tail
        )

    def encode(self, offsets: Sequence[int], *, is_finished: bool) -> bytes:
        """Return the bytes of the front; those of an unfinished file have placeholders."""
        header = self.header()
        if not is_finished:
            tail = self.info.room if self.version == BLOSCPACK else self.text_room
            header = replace(header, version=UNFINISHED, last_chunk=-1, nchunks=-1, tail=tail)
            offsets = ()
        if not self.info.room:
            offsets = ()
        if self.version == BLOSCPACK:
            metadata = encode_section(self.info.encode(), ADLER32, self.text_room)
        else:
            metadata = self.info.encode(self.text_room)
        room = self.info.room
        padded = [*offsets, *[UNKNOWN] * (room - len(offsets))]
        return header.encode() + metadata + struct.pack(f"<{room}q", *padded)

    @classmethod
    def decode(cls, header: Header, value: dict[str, Json], text_room: int, version: int) -> Self:
        """Return the front with this header and these metadata; each is checked."""
        info = ArrayInfo.from_json(value)
        is_stream = bool(header.nchunks == UNKNOWN and header.version != UNFINISHED)
        front = cls(version, CHECKSUMS[header.checksum], info, text_room, is_stream)
        if version == BLOSCPACK and (not is_genuine(info) or is_stream or not info.room):
            raise CorruptError("the metadata of a file of version 3 need version 4")
        if header.version != UNFINISHED and not is_stream and header != front.header():
            raise CorruptError(f"the header is {header}; the metadata need {front.header()}")
        return front


def read_metadata(header: Header, read: Read) -> tuple[int, Json, int, int]:
    """Return the version, the metadata, the end of them and their room.

    An unfinished file does not say which version it will have; the metadata do.
    """
    if not header.options & METADATA:
        return header.version, None, header.length, 0
    version, at = header.version, header.length
    if version == UNFINISHED:
        version = BLOSCPACK if read(at, len(JSON_MAGIC)) == JSON_MAGIC else EXTENDED
    if version == BLOSCPACK:
        text, section = decode_section(read, at)
        return version, jsontext.loads(text, "the metadata"), at + section.length, section.room
    text = bytes(read(at, header.tail))
    if len(text) < header.tail:
        raise CorruptError("the file ends within its metadata")
    return version, jsontext.loads(text, "the metadata"), at + header.tail, header.tail


def is_ours(value: Json) -> bool:
    """True if these are metadata of an array that we wrote."""
    return isinstance(value, dict) and isinstance(value.get(OURS), dict)


def own_front(header: Header, read: Read) -> Front:
    """Return the front of an array of ours; FormatError if it is not one."""
    version, value, _, room = read_metadata(header, read)
    if not is_ours(value):
        raise FormatError("the file was not written by SuperChunk")
    assert isinstance(value, dict)
    return Front.decode(header, value, room, version)


def rows_only(info: ArrayInfo) -> bool:
    """True if a chunk holds whole rows: all but the last have one size."""
    pairs = zip(info.chunk_shape[1:], info.shape[1:], strict=True)
    return all(step >= size for step, size in pairs)


def is_genuine(info: ArrayInfo) -> bool:
    """True if Bloscpack can describe the array."""
    if info.items or not rows_only(info) or info.order != "C":
        return False
    return info.dtype.itemsize <= MAX_TYPESIZE
