"""An array of ours as it is read: front and trailer, compared with each other.

Knows nothing of how it is changed.
"""

import struct
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Self

from blztable.arrays.files.chunks import Chunks, Source
from blztable.arrays.files.front import Front, own_front
from blztable.arrays.files.header import UNFINISHED, ArrayHeader
from blztable.arrays.files.info import shape_of_json
from blztable.errors import CorruptError, FormatError
from blztable.format import jsontext
from blztable.format.chunk import CHUNK_HEADER, ChunkHeader
from blztable.format.jsontext import Json
from blztable.format.trailer import FOOT_MAGIC, MAX_LAYERS, TRAILER_FOOT, Layer, Trailer

# The layers of the trailer that are not the user's.
OFFSETS_LAYER = "blz.offsets"
ATTRS_LAYER = "blz.attrs"
END_LAYER = "blz.end"
OWN_LAYERS = (OFFSETS_LAYER, ATTRS_LAYER, END_LAYER)


@dataclass(slots=True)
class Own:
    """An array of ours: its front, its chunks, and what is in its trailer.

    Attributes
    ----------
    front
        The front.
    offsets
        Where each chunk lies; the next one would be at `end`.
    digests
        The checksum of each chunk.
    layers
        The variable metalayers.
    attrs
        The attributes, as JSON.
    """

    front: Front
    offsets: list[int]
    end: int
    digests: list[bytes]
    layers: dict[str, Layer] = field(default_factory=dict)
    attrs: dict[str, Json] = field(default_factory=dict)

    @classmethod
    def read(cls, source: Source, header: ArrayHeader) -> Self:
        """Read front and trailer; CorruptError unless they belong together."""
        front = own_front(header, source.read)
        if header.version == UNFINISHED:
            count = len(whole_chunks(source, front))
            raise CorruptError(
                f"{source.name}: it was never finished; {count} chunks are whole, "
                "SuperChunk.recover reads them"
            )
        info = front.info
        at, length = _trailer(source, front)
        data = source.read(at, length)
        first = source.read(0, front.length)
        size = front.checksum.size
        # The trailer states how many chunks a stream had; without a checksum it has no digests.
        count = _digest_count(data) if front.is_stream else len(info.grid)
        if count * CHUNK_HEADER.size > source.size:
            raise CorruptError(f"{count} chunks in a file of {source.size} bytes")
        ndigests = count if size else 0
        trailer = Trailer.decode(first, data, ndigests, size, MAX_LAYERS + len(OWN_LAYERS))
        layers = dict(trailer.layers)
        own = {name: layers.pop(name).decode() for name in OWN_LAYERS if name in layers}
        if front.is_stream:
            info = replace(info, shape=_shape_of(own.get(END_LAYER, b"{}")))
            front = front.with_info(info)
            count = len(own.get(OFFSETS_LAYER, b"")) // 8
            if size and len(trailer.digests) != count * size:
                raise CorruptError(f"{len(trailer.digests)} bytes of checksums of {count} chunks")
            if len(info.shape) != len(info.chunk_shape) or len(info.grid) != count:
                raise CorruptError(f"{count} chunks; an array of shape {info.shape} has others")
        if info.room:
            offsets = _unpacked(first[front.length - 8 * info.room :], count)
        else:
            offsets = _unpacked(own.get(OFFSETS_LAYER, b""), count)
        _check_offsets(offsets, front.length, at, size)
        digests = [trailer.digests[i * size : (i + 1) * size] for i in range(count)]
        attrs = jsontext.loads(own.get(ATTRS_LAYER, b"{}"), "the attributes")
        if not isinstance(attrs, dict):
            raise CorruptError("the attributes are not an object")
        return cls(front, offsets, at, digests, layers, attrs)

    @classmethod
    def recovered(cls, source: Source, header: ArrayHeader) -> Self:
        """Return the array of the whole chunks of a file that was never finished."""
        front = own_front(header, source.read)
        is_over = front.is_stream and not _has_trailer(source)
        if header.version != UNFINISHED and not is_over:
            raise FormatError(f"{source.name}: it was finished; SuperChunk.open reads it")
        info = front.info
        found = whole_chunks(source, front)
        # Only whole rows of chunks make an array.
        one_row = replace(info, shape=(info.chunk_shape[0], *info.shape[1:]))
        # Rows without items have no chunks.
        per_row = len(one_row.grid)
        found = found[: len(found) // per_row * per_row] if per_row else []
        rows = len(found) // max(per_row, 1) * info.chunk_shape[0]
        if found and not info.items:
            # The last row of chunks may be shorter than the others.
            nbytes = ChunkHeader.decode(source.read(found[-per_row][0], CHUNK_HEADER.size)).nbytes
            share = one_row.raw_size(0) // info.chunk_shape[0]
            rows += nbytes // share - info.chunk_shape[0]
        size = front.checksum.size
        offsets = [at for at, _ in found]
        digests = [source.read(at + length, size) for at, length in found]
        end = found[-1][0] + found[-1][1] + size if found else front.length
        front = front.with_info(replace(info, shape=(rows, *info.shape[1:])))
        return cls(front, offsets, end, digests)

    def chunks(self, source: Source) -> Chunks:
        """Return the chunks, in the file that they are read from."""
        size = self.front.checksum.size
        ends = [*self.offsets, self.end]
        lengths = [stop - start - size for start, stop in pairwise(ends)]
        info = self.front.info
        digests = b"".join(self.digests)
        return Chunks(source, self.front.checksum, self.offsets, lengths, info.typesize, digests)

    def trailer(self) -> bytes:
        """Return the trailer; its front must be the one that is written."""
        own: dict[str, bytes] = {}
        info = self.front.info
        if not info.room:
            own[OFFSETS_LAYER] = struct.pack(f"<{len(self.offsets)}q", *self.offsets)
        if self.attrs:
            own[ATTRS_LAYER] = jsontext.dumps(self.attrs)
        if self.front.is_stream:
            own[END_LAYER] = jsontext.dumps({"shape": list(info.shape)})
        layers = {name: Layer.encode(blob) for name, blob in own.items()} | self.layers
        trailer = Trailer(self.front.checksum.size, b"".join(self.digests), layers)
        return trailer.encode(self.encoded_front(is_finished=True))[0]

    def encoded_front(self, *, is_finished: bool) -> bytes:
        """Return the front; the front of a stream does not know its shape."""
        front = self.front
        if front.is_stream:
            shape = (0, *front.info.shape[1:])
            front = front.with_info(replace(front.info, shape=shape))
        return front.encode(self.offsets, is_finished=is_finished)


def whole_chunks(source: Source, front: Front) -> list[tuple[int, int]]:
    """Return position and length of each whole chunk of a file that was never finished."""
    size = front.checksum.size
    at = front.length
    found = []
    while len(head := source.read(at, CHUNK_HEADER.size)) == CHUNK_HEADER.size:
        length = CHUNK_HEADER.unpack(head)[-1]
        data = source.read(at, length + size)
        is_whole = length >= CHUNK_HEADER.size and len(data) == length + size
        if not is_whole or front.checksum.digest(data[:length]) != data[length:]:
            break
        found.append((at, length))
        at += length + size
    return found


def _has_trailer(source: Source) -> bool:
    foot = source.read(max(source.size - TRAILER_FOOT.size, 0), TRAILER_FOOT.size)
    return len(foot) == TRAILER_FOOT.size and TRAILER_FOOT.unpack(foot)[2] == FOOT_MAGIC


def _trailer(source: Source, front: Front) -> tuple[int, int]:
    """Return where the trailer begins, and its length."""
    if front.info.trailer:
        return front.info.trailer, front.info.trailer_length
    foot = source.read(max(source.size - TRAILER_FOOT.size, 0), TRAILER_FOOT.size)
    if not front.is_stream or not _has_trailer(source):
        raise CorruptError(
            f"{source.name}: it was never finished; {len(whole_chunks(source, front))} chunks are "
            "whole, SuperChunk.recover reads them"
        )
    length = TRAILER_FOOT.unpack(foot)[1]
    return max(source.size - length, 0), length


def _digest_count(data: bytes) -> int:
    """Return the number of chunks that a trailer states; it is checked with the trailer."""
    return int.from_bytes(data[16:24], "little")


def _shape_of(data: bytes) -> tuple[int, ...]:
    value = jsontext.loads(data, "the end of the stream")
    return shape_of_json(value.get("shape") if isinstance(value, dict) else None)


def _unpacked(data: bytes, count: int) -> list[int]:
    if len(data) < 8 * count:
        raise CorruptError(f"{len(data) // 8} offsets of {count} chunks")
    return list(struct.unpack_from(f"<{count}q", data))


def _check_offsets(offsets: list[int], first: int, end: int, digest_size: int) -> None:
    """CorruptError unless the chunks lie between front and trailer, one after another."""
    least = CHUNK_HEADER.size + digest_size
    ends = [*offsets, end]
    if ends[0] != first or any(stop - start < least for start, stop in pairwise(ends)):
        raise CorruptError("the chunk offsets do not ascend from the front to the trailer")
