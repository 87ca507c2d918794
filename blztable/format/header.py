"""The header and the trailer of a superchunk, and the checksums of its bytes.

Version 3 is Bloscpack's header, version 4 that of the BLZ proposals. They differ in the last eight
bytes: the offsets kept free, or the size of the metadata. A table takes two forms (`FileHeader`):
version 3 with offsets and without metadata, and version 4, where a reserved word follows the size.
An array may have any form of Bloscpack 1, 2 and 3 too (`ArrayHeader`); version 1 has 16 bytes, and
version 2 reserves the last 8. Knows nothing of what follows the header.

The trailer behind the last chunk: metalayers, a copy of all digests, and a checksum. A reader finds
the trailer from the end of the file, so one page of a part needs three ranges: front, trailer,
page. A file without a complete trailer was never finished.

The nine checksums of Bloscpack, by their number in the header of a superchunk. A checksum is a
function from bytes to its digest, as the digest is stored in the file. Knows nothing of which bytes
are covered.
"""

import hashlib
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field, replace
from operator import attrgetter
from typing import Self

from isal import isal_zlib

from blztable.errors import CorruptError, FormatError, LimitError

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Checksum:
    """A checksum: its number, name, digest size in bytes, and function."""

    id: int
    name: str
    size: int
    digest: Callable[[Buffer], bytes]


def crc32(data: Buffer, value: int = 0) -> int:
    """Return the CRC-32 of `data`, continuing from `value`; several times faster than zlib."""
    result: int = isal_zlib.crc32(data, value)
    return result


def _crc32_digest(data: Buffer) -> bytes:
    return crc32(data).to_bytes(4, "little")


CHECKSUMS = (
    Checksum(0, "none", 0, lambda data: b""),
    Checksum(1, "adler32", 4, lambda data: zlib.adler32(data).to_bytes(4, "little")),
    Checksum(2, "crc32", 4, _crc32_digest),
    Checksum(3, "md5", 16, lambda data: hashlib.md5(data, usedforsecurity=False).digest()),
    Checksum(4, "sha1", 20, lambda data: hashlib.sha1(data, usedforsecurity=False).digest()),
    Checksum(5, "sha224", 28, lambda data: hashlib.sha224(data).digest()),
    Checksum(6, "sha256", 32, lambda data: hashlib.sha256(data).digest()),
    Checksum(7, "sha384", 48, lambda data: hashlib.sha384(data).digest()),
    Checksum(8, "sha512", 64, lambda data: hashlib.sha512(data).digest()),
)
BY_NAME = {checksum.name: checksum for checksum in CHECKSUMS}


TRAILER_HEAD = struct.Struct("<8sHHIQ")
METALAYER_HEAD = struct.Struct("<BBHII")
TRAILER_FOOT = struct.Struct("<II8s")
assert TRAILER_HEAD.size == 24
assert METALAYER_HEAD.size == 12
assert TRAILER_FOOT.size == 16

HEAD_MAGIC = b"blztrail"
FOOT_MAGIC = b"blzt-end"
VERSION = 1
# From the BLZ proposals: a name has at most 31 bytes, and a layer is small beside the data.
MAX_NAME_BYTES = 31
MAX_LAYERS = 16
MAX_LAYER_BYTES = 16 << 20
# Compressing a smaller layer saves nothing.
COMPRESSED_FROM = 256
STORED = 0
ZLIB = 1


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
        blob = self.stored
        if self.codec == ZLIB:
            inflater = zlib.decompressobj()
            try:
                blob = inflater.decompress(blob, self.nbytes + 1)
            except zlib.error as error:
                raise CorruptError(f"a metalayer cannot be inflated: {error}") from None
            if len(blob) == self.nbytes and not inflater.eof:
                raise CorruptError("the zlib stream of a metalayer is cut off")
            if inflater.unused_data:
                extra = len(inflater.unused_data)
                raise CorruptError(f"a metalayer has {extra} bytes behind its zlib stream")
        if len(blob) != self.nbytes:
            raise CorruptError(f"a metalayer has {len(blob)} bytes; expected {self.nbytes}")
        return blob


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


FILE_HEADER = struct.Struct("<4sBBBBiiqII")
ARRAY_HEADER = struct.Struct("<4sBBBBiiqq")
FIRST_HEADER = struct.Struct("<4sB3xq")
assert FILE_HEADER.size == ARRAY_HEADER.size == 32
assert FIRST_HEADER.size == 16

MAGIC = b"blpk"
# Where the byte of the version lies.
VERSION_AT = len(MAGIC)
FIRST, SECOND, BLOSCPACK, EXTENDED = 1, 2, 3, 4
# The version of an array that is being written: Bloscpack refuses it.
UNFINISHED = 255
UNKNOWN = -1

OFFSETS = 0x01
METADATA = 0x02
ITEM_ENDS = 0x04
# The option bits that each version of an array has.
_OPTIONS = {
    SECOND: OFFSETS,
    BLOSCPACK: OFFSETS | METADATA,
    EXTENDED: OFFSETS | METADATA | ITEM_ENDS,
    UNFINISHED: OFFSETS | METADATA | ITEM_ENDS,
}

# A front is read as a whole, with 8 bytes per offset. No real part comes near this limit.
MAX_CHUNKS = 1 << 21
MAX_METADATA_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class FileHeader:
    """The fields of the header, in the order of the file, without magic and reserved word."""

    version: int
    options: int
    checksum: int
    typesize: int
    chunk_size: int
    last_chunk: int
    nchunks: int
    meta_size: int

    def encode(self) -> bytes:
        """Return the 32 bytes of the header."""
        return FILE_HEADER.pack(MAGIC, *_FIELDS(self), 0)

    @classmethod
    def decode(cls, data: Buffer) -> Self:
        """Read and check the header of a superchunk of a table."""
        if len(data) < FILE_HEADER.size:
            raise CorruptError(f"a superchunk has {len(data)} bytes; its header alone takes 32")
        magic, *fields, reserved = FILE_HEADER.unpack_from(data)
        header = cls(*fields)
        if magic != MAGIC:
            raise CorruptError(f"a superchunk begins with {magic!r}; expected {MAGIC!r}")
        if header.version not in (BLOSCPACK, EXTENDED):
            raise FormatError(f"a superchunk of version {header.version}; expected 3 or 4")
        expected = OFFSETS if header.version == BLOSCPACK else OFFSETS | METADATA
        if header.options & ~ITEM_ENDS != expected or (
            header.options & ITEM_ENDS and header.version == BLOSCPACK
        ):
            raise FormatError(
                f"a superchunk of version {header.version} has options {header.options:#x}; "
                f"expected {expected:#x}"
            )
        if reserved or bool(header.meta_size) != (header.version == EXTENDED):
            raise CorruptError(
                f"metadata of {header.meta_size} bytes and the reserved word {reserved}; "
                "only version 4 has metadata, and the word is 0"
            )
        if header.meta_size > MAX_METADATA_BYTES:
            raise CorruptError(
                f"metadata of {header.meta_size} bytes; at most {MAX_METADATA_BYTES} are read"
            )
        if header.checksum >= len(CHECKSUMS) or header.typesize < 1:
            raise CorruptError(
                f"checksum {header.checksum} and typesize {header.typesize}; "
                f"expected a checksum below {len(CHECKSUMS)} and a typesize from 1"
            )
        if not 0 <= header.nchunks <= MAX_CHUNKS:
            raise CorruptError(
                f"a superchunk has {header.nchunks} chunks; expected 0 to {MAX_CHUNKS}"
            )
        return header

    @property
    def front_length(self) -> int:
        """Number of bytes before the first chunk: header, metadata and offsets."""
        return FILE_HEADER.size + self.meta_size + 8 * self.nchunks


_FIELDS = attrgetter(*FileHeader.__slots__)


@dataclass(frozen=True, slots=True)
class ArrayHeader:
    """The fields of the header, in the order of the file, without the magic."""

    version: int
    options: int
    checksum: int
    typesize: int
    chunk_size: int
    last_chunk: int
    nchunks: int
    # The offsets kept free (3) or the bytes of the metadata (4).
    tail: int

    def encode(self) -> bytes:
        """Return the 32 bytes of the header."""
        return ARRAY_HEADER.pack(MAGIC, *astuple(self))

    @classmethod
    def decode(cls, data: Buffer) -> Self:
        """Read and check the header of a file that begins with `data`."""
        begin = bytes(data[:VERSION_AT])
        if begin != MAGIC:
            raise FormatError(f"the file begins with {begin!r}; expected {MAGIC!r}")
        if len(data) < FIRST_HEADER.size:
            raise CorruptError(f"the file has {len(data)} bytes; the shortest header takes 16")
        version = data[VERSION_AT]
        if version == FIRST:
            return cls._first(data)
        if version not in _OPTIONS:
            raise FormatError(f"the file has version {version}; expected 1 to 4")
        if len(data) < ARRAY_HEADER.size:
            raise CorruptError(f"the file has {len(data)} bytes; its header alone takes 32")
        _, *fields = ARRAY_HEADER.unpack_from(data)
        header = cls(*fields)
        if header.options & ~_OPTIONS[version]:
            raise FormatError(f"a file of version {version} has options {header.options:#x}")
        if header.checksum >= len(CHECKSUMS):
            raise CorruptError(f"checksum {header.checksum}; expected one below {len(CHECKSUMS)}")
        if min(header.chunk_size, header.last_chunk, header.nchunks) < UNKNOWN:
            raise CorruptError(f"the header has a negative number: {header}")
        if version == SECOND:
            return replace(header, tail=0)
        if header.tail < 0 or (version == EXTENDED and header.tail > MAX_METADATA_BYTES):
            raise CorruptError(f"the last field of the header is {header.tail}")
        return header

    @classmethod
    def _first(cls, data: Buffer) -> Self:
        _, version, nchunks = FIRST_HEADER.unpack_from(data)
        if any(data[5:8]) or nchunks < UNKNOWN:
            raise CorruptError(f"a header of version 1 with {nchunks} chunks, or with options")
        return cls(version, 0, 0, 0, UNKNOWN, UNKNOWN, nchunks, 0)

    @property
    def length(self) -> int:
        """Return the number of bytes of the header."""
        return FIRST_HEADER.size if self.version == FIRST else ARRAY_HEADER.size
