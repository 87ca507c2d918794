"""What follows the last chunk: metalayers, every chunk checksum once more, and a checksum over all.

A trailer is found from the end of the file, so that one page of a part costs three ranges: front,
trailer, page. A part without a whole trailer was never finished.

Knows nothing of what a metalayer holds.
"""

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from blztable.errors import CorruptError, FormatError, LimitError
from blztable.format.checksum import Buffer, crc32

TRAILER_HEAD = struct.Struct("<8sHHIQ")
METALAYER_HEAD = struct.Struct("<BBHII")
TRAILER_FOOT = struct.Struct("<II8s")
assert TRAILER_HEAD.size == 24
assert METALAYER_HEAD.size == 12
assert TRAILER_FOOT.size == 16

HEAD_MAGIC = b"blztrail"
FOOT_MAGIC = b"blzt-end"
VERSION = 1
# Of the proposals: a name has at most 31 bytes, a layer is small beside the data.
MAX_NAME_BYTES = 31
MAX_LAYERS = 16
MAX_LAYER_BYTES = 16 << 20
# Below, there is nothing to win.
COMPRESSED_FROM = 256
STORED = 0
ZLIB = 1


@dataclass(frozen=True, slots=True)
class Layer:
    """A named blob as it is stored; inflated when it is asked for."""

    codec: int
    nbytes: int
    stored: bytes

    @classmethod
    def encode(cls, blob: bytes) -> Self:
        """Compress a blob, if that makes it smaller."""
        if len(blob) > MAX_LAYER_BYTES:
            raise LimitError(f"a metalayer of {len(blob)} bytes; at most {MAX_LAYER_BYTES} fit")
        if len(blob) >= COMPRESSED_FROM:
            packed = zlib.compress(blob, 1)
            if len(packed) < len(blob):
                return cls(ZLIB, len(blob), packed)
        return cls(STORED, len(blob), blob)

    def decode(self) -> bytes:
        """The blob, inflated to the size it claims and no more."""
        blob = self.stored
        if self.codec == ZLIB:
            inflater = zlib.decompressobj()
            try:
                blob = inflater.decompress(blob, self.nbytes + 1)
            except zlib.error as error:
                raise CorruptError(f"a metalayer that cannot be read: {error}") from None
            if len(blob) == self.nbytes and not inflater.eof:
                raise CorruptError("a metalayer whose zlib stream is cut")
            if inflater.unused_data:
                found = len(inflater.unused_data)
                raise CorruptError(f"a metalayer with {found} bytes behind its zlib stream")
        if len(blob) != self.nbytes:
            raise CorruptError(f"a metalayer of {len(blob)} bytes; expected {self.nbytes}")
        return blob


@dataclass(frozen=True, slots=True)
class Trailer:
    """Named blobs, and the digests of all chunks in the order of the chunks."""

    digest_size: int
    digests: bytes
    layers: Mapping[str, Layer] = field(default_factory=dict)

    def encode(self, front: Buffer) -> tuple[bytes, int]:
        """The trailer of a file with this front, and the crc32 over both."""
        nchunks = len(self.digests) // max(self.digest_size, 1)
        head = TRAILER_HEAD.pack(HEAD_MAGIC, VERSION, len(self.layers), 0, nchunks)
        body = b"".join([head, *map(_encode_layer, self.layers.items()), self.digests])
        crc = crc32(body, crc32(front))
        return body + TRAILER_FOOT.pack(crc, len(body) + TRAILER_FOOT.size, FOOT_MAGIC), crc

    @classmethod
    def decode(cls, front: Buffer, data: bytes, nchunks: int, digest_size: int) -> Self:
        """Read a trailer, its crc32 over `front` and itself compared first."""
        least = TRAILER_HEAD.size + TRAILER_FOOT.size + nchunks * digest_size
        if len(data) < least:
            raise CorruptError(f"a trailer of {len(data)} bytes; at least {least} are expected")
        _, length, foot = TRAILER_FOOT.unpack_from(data, len(data) - TRAILER_FOOT.size)
        magic, version, nlayers, reserved, found = TRAILER_HEAD.unpack_from(data)
        if foot != FOOT_MAGIC or magic != HEAD_MAGIC or length != len(data):
            raise CorruptError(f"no trailer of {len(data)} bytes at the end; it was never finished")
        cls.check_crc(front, data)
        body = memoryview(data)[: -TRAILER_FOOT.size]
        if version != VERSION:
            raise FormatError(f"a trailer of version {version}; {VERSION} is read")
        if reserved or found != nchunks or nlayers > MAX_LAYERS:
            raise CorruptError(f"a trailer with {found} digests; expected {nchunks}")
        layers: dict[str, Layer] = {}
        position = TRAILER_HEAD.size
        end = len(body) - nchunks * digest_size
        for _ in range(nlayers):
            name, layer, position = _decode_layer(body[:end], position)
            if name in layers:
                raise CorruptError(f"two metalayers {name!r}")
            layers[name] = layer
        if position != end:
            raise CorruptError(f"{end - position} bytes too many in a trailer")
        return cls(digest_size, bytes(body[end:]), layers)

    @classmethod
    def check_crc(cls, front: Buffer, data: Buffer) -> None:
        """CorruptError unless front and trailer have the crc32 that the trailer claims."""
        crc = cls.stored_crc(data)
        computed = crc32(memoryview(data)[: -TRAILER_FOOT.size], crc32(front))
        if computed != crc:
            raise CorruptError(f"front and trailer: crc32 is {computed:08x}, expected {crc:08x}")

    @staticmethod
    def stored_crc(data: Buffer) -> int:
        """The crc32 a trailer claims; its place is fixed."""
        if len(data) < TRAILER_FOOT.size:
            raise CorruptError(f"a trailer of {len(data)} bytes")
        crc: int = TRAILER_FOOT.unpack_from(data, len(data) - TRAILER_FOOT.size)[0]
        return crc


def _encode_layer(item: tuple[str, Layer]) -> bytes:
    name, layer = item[0].encode("utf-8"), item[1]
    assert 0 < len(name) <= MAX_NAME_BYTES, name
    head = METALAYER_HEAD.pack(len(name), layer.codec, 0, layer.nbytes, len(layer.stored))
    return head + name + layer.stored


def _decode_layer(data: memoryview, position: int) -> tuple[str, Layer, int]:
    """The layer at `position`, and the position after it."""
    if position + METALAYER_HEAD.size > len(data):
        raise CorruptError("a metalayer that ends before its head")
    name_length, codec, reserved, nbytes, stored = METALAYER_HEAD.unpack_from(data, position)
    start = position + METALAYER_HEAD.size + name_length
    if reserved or not 0 < name_length <= MAX_NAME_BYTES or start + stored > len(data):
        raise CorruptError("a metalayer that does not fit its trailer")
    if nbytes > MAX_LAYER_BYTES:
        raise CorruptError(f"a metalayer of {nbytes} bytes; at most {MAX_LAYER_BYTES} are read")
    if codec not in (STORED, ZLIB):
        raise FormatError(f"a metalayer with codec {codec}")
    try:
        name = str(data[start - name_length : start], "utf-8")
    except UnicodeDecodeError:
        raise CorruptError("a metalayer whose name is not UTF-8") from None
    return name, Layer(codec, nbytes, bytes(data[start : start + stored])), start + stored
