"""The trailer of an array, behind its last chunk: metalayers, all digests, and a checksum.

A reader finds it by the front, or from the end of the file. It can be written again without the
chunks. A file without a complete trailer was never finished.
"""

import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

from blztable.errors import CorruptError, FormatError, LimitError
from blztable.format.bloscpack import STORED, ZLIB, inflated
from blztable.format.checksums import Buffer, crc32
from blztable.format.metalayers import MAX_LAYERS, MAX_NAME_BYTES

TRAILER_HEAD = struct.Struct("<8sHHIQ")
METALAYER_HEAD = struct.Struct("<BBHII")
TRAILER_FOOT = struct.Struct("<II8s")
assert TRAILER_HEAD.size == 24
assert METALAYER_HEAD.size == 12
assert TRAILER_FOOT.size == 16

HEAD_MAGIC = b"blztrail"
FOOT_MAGIC = b"blzt-end"
VERSION = 1
# A layer is small beside the data.
MAX_LAYER_BYTES = 16 << 20
# Compressing a smaller layer saves nothing.
COMPRESSED_FROM = 256


@dataclass(frozen=True, slots=True)
class Layer:
    """A metalayer as it is stored; `decode` inflates it."""

    codec: int
    nbytes: int
    stored: bytes

    @classmethod
    def encode(cls, blob: bytes) -> Self:
        """Make a layer of a blob, compressed if that makes it smaller."""
        if len(blob) > MAX_LAYER_BYTES:
            raise LimitError(f"a metalayer has {len(blob)} bytes; at most {MAX_LAYER_BYTES} fit")
        if len(blob) >= COMPRESSED_FROM:
            packed = zlib.compress(blob, 1)
            if len(packed) < len(blob):
                return cls(ZLIB, len(blob), packed)
        return cls(STORED, len(blob), blob)

    def decode(self) -> bytes:
        """Return the blob, inflated to at most the size that it claims."""
        if self.codec == ZLIB:
            return inflated(self.stored, self.nbytes, "a metalayer")
        if len(self.stored) != self.nbytes:
            raise CorruptError(f"a metalayer has {len(self.stored)} bytes; expected {self.nbytes}")
        return self.stored


@dataclass(frozen=True, slots=True)
class Trailer:
    """Metalayers by name, and the digests of all chunks in the order of the chunks."""

    digest_size: int
    digests: bytes
    layers: Mapping[str, Layer] = field(default_factory=dict)

    def encode(self, front: Buffer) -> tuple[bytes, int]:
        """Return the trailer for a file with this front, and the crc32 over both."""
        nchunks = len(self.digests) // max(self.digest_size, 1)
        head = TRAILER_HEAD.pack(HEAD_MAGIC, VERSION, len(self.layers), 0, nchunks)
        body = b"".join([head, *map(_encode_layer, self.layers.items()), self.digests])
        crc = crc32(body, crc32(front))
        return body + TRAILER_FOOT.pack(crc, len(body) + TRAILER_FOOT.size, FOOT_MAGIC), crc

    @classmethod
    def decode(
        cls,
        front: Buffer,
        data: bytes,
        nchunks: int,
        digest_size: int,
        most_layers: int = MAX_LAYERS,
    ) -> Self:
        """Read a trailer, after comparing the crc32 over `front` and the trailer."""
        least = TRAILER_HEAD.size + TRAILER_FOOT.size + nchunks * digest_size
        if len(data) < least:
            raise CorruptError(f"a trailer has {len(data)} bytes; expected at least {least}")
        _, length, foot = TRAILER_FOOT.unpack_from(data, len(data) - TRAILER_FOOT.size)
        magic, version, nlayers, reserved, ndigests = TRAILER_HEAD.unpack_from(data)
        if foot != FOOT_MAGIC or magic != HEAD_MAGIC or length != len(data):
            raise CorruptError(
                f"the file does not end with a trailer of {len(data)} bytes; it is damaged or "
                "incomplete"
            )
        cls.check_crc(front, data)
        body = memoryview(data)[: -TRAILER_FOOT.size]
        if version != VERSION:
            raise FormatError(f"a trailer of version {version}; expected {VERSION}")
        if reserved or ndigests != nchunks or nlayers > most_layers:
            raise CorruptError(
                f"a trailer has {ndigests} digests, {nlayers} metalayers and the reserved word "
                f"{reserved}; expected {nchunks}, at most {most_layers}, and 0"
            )
        layers: dict[str, Layer] = {}
        position = TRAILER_HEAD.size
        end = len(body) - nchunks * digest_size
        for _ in range(nlayers):
            name, layer, position = _decode_layer(body[:end], position)
            if name in layers:
                raise CorruptError(f"two metalayers have the name {name!r}")
            layers[name] = layer
        if position != end:
            raise CorruptError(f"a trailer has {end - position} bytes too many")
        return cls(digest_size, bytes(body[end:]), layers)

    @staticmethod
    def length_before(end: Buffer) -> int:
        """Return the length of the trailer that ends with these bytes; 0 if none does."""
        if len(end) < TRAILER_FOOT.size:
            return 0
        _, length, magic = TRAILER_FOOT.unpack_from(end, len(end) - TRAILER_FOOT.size)
        return length if magic == FOOT_MAGIC else 0

    @staticmethod
    def length_at(read: Callable[[int, int], bytes], position: int, digest_size: int) -> int:
        """Return the length of the trailer at a position, as its heads state it; 0 without one."""
        head = read(position, TRAILER_HEAD.size)
        if len(head) < TRAILER_HEAD.size:
            return 0
        magic, _, nlayers, _, ndigests = TRAILER_HEAD.unpack(head)
        if magic != HEAD_MAGIC:
            return 0
        length = TRAILER_HEAD.size
        for _ in range(nlayers):
            head = read(position + length, METALAYER_HEAD.size)
            if len(head) < METALAYER_HEAD.size:
                return 0
            name_length, _, _, _, stored = METALAYER_HEAD.unpack(head)
            length += METALAYER_HEAD.size + name_length + stored
        return length + ndigests * digest_size + TRAILER_FOOT.size

    @staticmethod
    def stated_digests(data: Buffer) -> int:
        """Return how many digests a trailer states; `decode` compares it with the trailer."""
        if len(data) < TRAILER_HEAD.size:
            raise CorruptError(
                f"a trailer has {len(data)} bytes; its head alone takes {TRAILER_HEAD.size}"
            )
        ndigests: int = TRAILER_HEAD.unpack_from(data)[-1]
        return ndigests

    @classmethod
    def check_crc(cls, front: Buffer, data: Buffer) -> None:
        """CorruptError unless front and trailer match the crc32 in the trailer."""
        crc = cls.stored_crc(data)
        computed = crc32(memoryview(data)[: -TRAILER_FOOT.size], crc32(front))
        if computed != crc:
            raise CorruptError(f"front and trailer: crc32 is {computed:08x}, expected {crc:08x}")

    @staticmethod
    def stored_crc(data: Buffer) -> int:
        """Return the crc32 that the trailer states."""
        if len(data) < TRAILER_FOOT.size:
            raise CorruptError(
                f"a trailer has {len(data)} bytes; its foot alone takes {TRAILER_FOOT.size}"
            )
        crc: int = TRAILER_FOOT.unpack_from(data, len(data) - TRAILER_FOOT.size)[0]
        return crc


def _encode_layer(item: tuple[str, Layer]) -> bytes:
    name, layer = item[0].encode("utf-8"), item[1]
    assert 0 < len(name) <= MAX_NAME_BYTES, name
    head = METALAYER_HEAD.pack(len(name), layer.codec, 0, layer.nbytes, len(layer.stored))
    return head + name + layer.stored


def _decode_layer(data: memoryview, position: int) -> tuple[str, Layer, int]:
    """Return the name and layer at `position`, and the position behind it."""
    if position + METALAYER_HEAD.size > len(data):
        raise CorruptError("the trailer ends within the head of a metalayer")
    name_length, codec, reserved, nbytes, stored = METALAYER_HEAD.unpack_from(data, position)
    start = position + METALAYER_HEAD.size + name_length
    if reserved or not 0 < name_length <= MAX_NAME_BYTES or start + stored > len(data):
        raise CorruptError("a metalayer does not fit in its trailer")
    if nbytes > MAX_LAYER_BYTES:
        raise CorruptError(f"a metalayer has {nbytes} bytes; at most {MAX_LAYER_BYTES} are read")
    if codec not in (STORED, ZLIB):
        raise FormatError(f"a metalayer has codec {codec}; expected {STORED} or {ZLIB}")
    try:
        name = str(data[start - name_length : start], "utf-8")
    except UnicodeDecodeError:
        raise CorruptError("the name of a metalayer is not UTF-8") from None
    return name, Layer(codec, nbytes, bytes(data[start : start + stored])), start + stored
