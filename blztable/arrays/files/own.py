"""An array of ours as it is read: front and trailer, compared with each other.

Knows nothing of how it is changed.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Self

from blztable.arrays.files.chunks import ByteSource, Chunks
from blztable.arrays.files.front import Front, own_front
from blztable.arrays.files.info import ArrayInfo, shape_of_json
from blztable.arrays.files.trailer import HEAD_MAGIC, TRAILER_FOOT, Layer, Trailer
from blztable.errors import CorruptError, FormatError
from blztable.format import jsontext
from blztable.format.bloscpack import UNFINISHED, Header
from blztable.format.chunk import CHUNK_HEADER, ChunkHeader
from blztable.format.jsontext import Json
from blztable.format.metalayers import MAX_LAYERS

OFFSET = struct.Struct("<q")
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
    def read(cls, source: ByteSource, header: Header) -> Self:
        """Read front and trailer; CorruptError unless they belong together."""
        front = own_front(header, source.read)
        if header.version == UNFINISHED:
            count = len(whole_chunks(source, front))
            raise CorruptError(
                f"{source.name}: it was never finished; {count} chunks are whole, "
                "SuperChunk.recover reads them"
            )
        first = source.read(0, front.length)
        at, data = _trailer(source, front, first)
        trailer = _decoded(first, data, front, source.size)
        own = {name: trailer.layers[name].decode() for name in OWN_LAYERS if name in trailer.layers}
        layers = {name: layer for name, layer in trailer.layers.items() if name not in own}
        packed = own.get(OFFSETS_LAYER, b"")
        if front.is_stream:
            front = _ended(front, own.get(END_LAYER, b"{}"), at, len(data))
            # Nothing else says how many chunks there are without a checksum.
            if len(packed) != OFFSET.size * len(front.info.grid):
                raise CorruptError(f"{len(packed)} bytes of offsets; the shape has others")
        room, count, size = front.info.room, len(front.info.grid), front.checksum.size
        if len(trailer.digests) != count * size:
            raise CorruptError(f"{len(trailer.digests)} bytes of checksums of {count} chunks")
        offsets = _unpacked(first[-OFFSET.size * room :] if room else packed, count)
        _check_offsets(offsets, front.length, at, size)
        digests = [trailer.digests[i * size : (i + 1) * size] for i in range(count)]
        attrs = jsontext.loads(own.get(ATTRS_LAYER, b"{}"), "the attributes")
        if not isinstance(attrs, dict):
            raise CorruptError("the attributes are not an object")
        return cls(front, offsets, at, digests, layers, attrs)

    @classmethod
    def recovered(cls, source: ByteSource, header: Header) -> Self:
        """Return the array of the whole chunks of a file that was never finished."""
        front = own_front(header, source.read)
        first = source.read(0, front.length)
        is_cut = front.is_stream and _stream_trailer(source, front, first) is None
        if header.version != UNFINISHED and not is_cut:
            raise FormatError(f"{source.name}: it was finished; SuperChunk.open reads it")
        info = front.info
        chunks, rows = _whole_rows(whole_chunks(source, front), info)
        size = front.checksum.size
        offsets = [at for at, _ in chunks]
        digests = [source.read(at + header.ctbytes, size) for at, header in chunks]
        end = offsets[-1] + chunks[-1][1].ctbytes + size if chunks else front.length
        front = front.with_info(replace(info, shape=(rows, *info.shape[1:])))
        return cls(front, offsets, end, digests)

    def chunks(self, source: ByteSource) -> Chunks:
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


def whole_chunks(source: ByteSource, front: Front) -> list[tuple[int, ChunkHeader]]:
    """Return position and header of each whole chunk of a file that was never finished."""
    size = front.checksum.size
    chunks = []
    for at, header in _headers(source, front):
        length = header.ctbytes
        data = source.read(at, length + size)
        if len(data) < length + size or front.checksum.digest(data[:length]) != data[length:]:
            break
        chunks.append((at, header))
    return chunks


def _headers(source: ByteSource, front: Front) -> Iterator[tuple[int, ChunkHeader]]:
    """Yield position and header of one chunk after another, until something else follows."""
    at = front.length
    while len(head := source.read(at, CHUNK_HEADER.size)) == CHUNK_HEADER.size:
        header = ChunkHeader.decode(head)
        if header.ctbytes < CHUNK_HEADER.size or head.startswith(HEAD_MAGIC):
            break
        yield at, header
        at += header.ctbytes + front.checksum.size


def _whole_rows(
    headers: list[tuple[int, ChunkHeader]], info: ArrayInfo
) -> tuple[list[tuple[int, ChunkHeader]], int]:
    """Return the chunks that are whole rows of chunks, and the number of rows of the array."""
    step = info.chunk_shape[0]
    one_row = replace(info, shape=(step, *info.shape[1:]))
    per_row = len(one_row.grid)
    # Rows without items have no chunks.
    if not 1 <= per_row <= len(headers):
        return [], 0
    if info.items:
        return headers, len(headers)
    shares = [one_row.raw_size(number) // step for number in range(per_row)]
    rows = 0
    for first in range(0, len(headers) - per_row + 1, per_row):
        sizes = [header.nbytes for _, header in headers[first : first + per_row]]
        # The last row of chunks may be shorter than the others.
        height = sizes[0] // shares[0]
        if not 1 <= height <= step or sizes != [height * share for share in shares]:
            return headers[:first], rows
        rows += height
        if height < step:
            return headers[: first + per_row], rows
    return headers[: len(headers) // per_row * per_row], rows


def _trailer(source: ByteSource, front: Front, first: bytes) -> tuple[int, bytes]:
    """Return where the trailer begins, and the trailer."""
    info = front.info
    if not front.is_stream:
        return info.trailer, source.read(info.trailer, info.trailer_length)
    trailer = _stream_trailer(source, front, first)
    if trailer is None:
        raise CorruptError(
            f"{source.name}: it has no valid trailer, so it was damaged or never finished; "
            f"{len(whole_chunks(source, front))} chunks are whole, SuperChunk.recover reads them"
        )
    return trailer


def _stream_trailer(source: ByteSource, front: Front, first: bytes) -> tuple[int, bytes] | None:
    """Return the trailer of a stream that begins with these bytes, and its place; None without one.

    It is at the end of the file, or else behind the last chunk: a writer that is stopped while it
    changes the file leaves bytes behind the trailer.
    """
    foot = source.read(max(source.size - TRAILER_FOOT.size, 0), TRAILER_FOOT.size)
    length = Trailer.length_before(foot)
    at = source.size - length
    data = _checked(source, front, first, at, length)
    if data is None:
        at = front.length
        for begin, header in _headers(source, front):
            at = begin + header.ctbytes + front.checksum.size
        length = Trailer.length_at(source.read, at, front.checksum.size)
        data = _checked(source, front, first, at, length)
    return None if data is None else (at, data)


def _checked(source: ByteSource, front: Front, first: bytes, at: int, length: int) -> bytes | None:
    """Return the trailer at a position; None unless it is whole and matches its crc32."""
    if not length or not front.length <= at <= source.size - length:
        return None
    data = source.read(at, length)
    if Trailer.length_before(data) != length:
        return None
    try:
        Trailer.check_crc(first, data)
    except CorruptError:
        return None
    return data


def _decoded(first: bytes, data: bytes, front: Front, size: int) -> Trailer:
    # The trailer states how many chunks a stream had; without a checksum it has no digests.
    count = Trailer.stated_digests(data) if front.is_stream else len(front.info.grid)
    if count * CHUNK_HEADER.size > size:
        raise CorruptError(f"{count} chunks in a file of {size} bytes")
    digest_size = front.checksum.size
    ndigests = count if digest_size else 0
    return Trailer.decode(first, data, ndigests, digest_size, MAX_LAYERS + len(OWN_LAYERS))


def _ended(front: Front, end: bytes, trailer: int, length: int) -> Front:
    """Return the front of a stream, with what its trailer says."""
    shape = _shape_of(end)
    if len(shape) != len(front.info.chunk_shape):
        raise CorruptError(f"the shape {shape} at the end of a stream has other axes")
    info = replace(front.info, shape=shape, trailer=trailer, trailer_length=length)
    return front.with_info(info)


def _shape_of(data: bytes) -> tuple[int, ...]:
    value = jsontext.loads(data, "the end of the stream")
    return shape_of_json(value.get("shape") if isinstance(value, dict) else None)


def _unpacked(data: bytes, count: int) -> list[int]:
    if len(data) < OFFSET.size * count:
        raise CorruptError(f"{len(data) // OFFSET.size} offsets of {count} chunks")
    return list(struct.unpack_from(f"<{count}q", data))


def _check_offsets(offsets: list[int], first: int, end: int, digest_size: int) -> None:
    """CorruptError unless the chunks lie between front and trailer, one after another."""
    least = CHUNK_HEADER.size + digest_size
    ends = [*offsets, end]
    if ends[0] != first or any(stop - start < least for start, stop in pairwise(ends)):
        raise CorruptError("the chunk offsets do not ascend from the front to the trailer")
