"""A reader of the files of `SuperChunk`, written from docs/format-array.md and nothing else.

It imports nothing of blztable. `read` returns the array with its metalayers; `whole_chunks` the
rows of a file that was never finished. A broken rule raises `Refused`.
"""

import ast
import base64
import hashlib
import itertools
import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from golden.page_files import Refused, need, parsed
from golden.reader import decompressed

HEADER, SECTION = struct.Struct("<4sBBBBiiqq"), struct.Struct("<8sBBBBIII8s")
TRAILER_HEAD, LAYER, FOOT = (
    struct.Struct("<8sHHIQ"),
    struct.Struct("<BBHII"),
    struct.Struct("<II8s"),
)
MAX_CHUNK_BYTES, MAX_LAYER_BYTES, UNFINISHED = 256 << 20, 16 << 20, 255
NAMES = ("md5", "sha1", "sha224", "sha256", "sha384", "sha512")


def digest(number: int, data: bytes) -> bytes:
    """Return the checksum of this number."""
    if number in (1, 2):
        return struct.pack("<I", (zlib.adler32 if number == 1 else zlib.crc32)(data))
    return hashlib.new(NAMES[number - 3], data).digest() if number else b""


@dataclass
class Front:
    """What the front says."""

    version: int
    checksum: int
    typesize: int
    nchunks: int
    metadata: dict[str, Any]
    offsets: list[int]
    size: int

    def dtype(self) -> np.dtype | None:
        """Return the dtype; None for items of variable length."""
        if self.metadata["dtype"] == "varchar":
            return None
        value = ast.literal_eval(self.metadata["dtype"])
        return np.dtype(value if isinstance(value, str) else [_field(one) for one in value])


@dataclass(frozen=True)
class Array:
    """An array: its values, and what users put beside them."""

    values: np.ndarray
    meta: dict[str, bytes]
    vlmeta: dict[str, bytes]
    attrs: dict[str, Any]


def _field(value: Any) -> tuple[Any, ...]:
    name, kind, *shape = value
    kind = [_field(one) for one in kind] if isinstance(kind, list) else kind
    return (tuple(name) if isinstance(name, tuple | list) else name, kind, *map(tuple, shape))


def read(path: Path) -> Array:
    """Return the array of a finished file."""
    try:
        return _read(journalled(path.read_bytes()))
    except (KeyError, TypeError, ValueError, IndexError, struct.error, SyntaxError) as error:
        # Metadata that lack a key, or have another type, before their checksum is known.
        raise Refused(f"expected the metadata of an array: {error!r}") from None


def _read(data: bytes) -> Array:
    front = front_of(data)
    need(front.version != UNFINISHED, "a file that was finished")
    own = front.metadata["blz"]
    start, length = own["trailer"]
    if front.nchunks < 0:
        start, length = trailer_of_stream(data, front)
    layers, digests = trailer(data, start, length, front)
    shape = front.metadata["shape"]
    if "blz.end" in layers:
        shape = parsed(layers["blz.end"])["shape"]
    chunks = boxes(shape, front.metadata["chunkshape"])
    need(front.nchunks in (-1, len(chunks)), "a chunk for each box")
    offsets = front.offsets[: len(chunks)]
    if front.nchunks < 0:
        offsets = places(data, front, len(chunks))
    elif not own["room"] and chunks:
        offsets = np.frombuffer(layers["blz.offsets"], "<i8").tolist()
    need(len(offsets) == len(chunks) and sorted(offsets) == offsets, "offsets that ascend")
    size = len(digest(front.checksum, b""))
    need(len(digests) == size * len(chunks), "a digest for each chunk")
    pieces = []
    for number, (begin, end) in enumerate(itertools.pairwise([*offsets, start])):
        need(end - begin >= 16 + size, "room for a chunk")
        chunk = data[begin : end - size]
        found = digest(front.checksum, chunk)
        need(found == data[end - size : end], "the digest behind a chunk")
        need(found == digests[number * size :][:size], "the digest in the trailer")
        pieces.append(chunk)
    meta = {name: base64.b64decode(one) for name, one in front.metadata["meta"].items()}
    vlmeta = {name: one for name, one in layers.items() if not name.startswith("blz.")}
    attrs = parsed(layers["blz.attrs"]) if "blz.attrs" in layers else {}
    return Array(values_of(front, pieces, shape), meta, vlmeta, attrs)


def front_of(data: bytes) -> Front:
    """Return the front of a file."""
    need(len(data) >= HEADER.size, "a front")
    magic, version, options, checksum, typesize, _, _, nchunks, tail = HEADER.unpack_from(data)
    need(magic == b"blpk" and version in (3, 4, UNFINISHED), "an array")
    need(options & 2 and checksum <= 8, "metadata, and a checksum that is known")
    is_section = data[32:40] == b"JSON\0\0\0\0"
    at = HEADER.size
    if is_section:
        _, _, kind, codec, _, size, room, stored, _ = SECTION.unpack_from(data, at)
        need(kind == 1 and codec == 0 and size == stored <= room, "metadata as they are")
        text = data[64 : 64 + size]
        at = 64 + room + 4
        need(zlib.adler32(text) == int.from_bytes(data[at - 4 : at], "little"), "the adler32")
    else:
        text = data[32 : 32 + tail]
        at += tail
    metadata = parsed(text)
    need(isinstance(metadata, dict) and isinstance(metadata.get("blz"), dict), "our metadata")
    room = metadata["blz"]["room"]
    need(0 <= 8 * room <= len(data) - at, "room for the offsets")
    offsets = np.frombuffer(data, "<i8", room, at).tolist()
    return Front(version, checksum, typesize, nchunks, metadata, offsets, at + 8 * room)


def trailer(data: bytes, start: int, length: int, front: Front) -> tuple[dict[str, bytes], bytes]:
    """Return the layers and the digests."""
    body = data[start : start + length]
    need(len(body) == length >= TRAILER_HEAD.size + FOOT.size, "a trailer")
    crc, size, magic = FOOT.unpack(body[-FOOT.size :])
    need(magic == b"blzt-end" and size == length, "the foot of a trailer")
    need(zlib.crc32(data[: front.size] + body[: -FOOT.size]) == crc, "the crc of a trailer")
    magic, version, count, zero, _ = TRAILER_HEAD.unpack_from(body)
    need((magic, version, zero) == (b"blztrail", 1, 0) and count <= 19, "the head of a trailer")
    at, layers = TRAILER_HEAD.size, {}
    for _ in range(count):
        length, codec, zero, nbytes, stored = LAYER.unpack_from(body, at)
        need(codec < 2 and zero == 0 and 0 < length <= 31, "the head of a layer")
        name, at = body[at + 12 : at + 12 + length].decode(), at + 12 + length
        blob, at = body[at : at + stored], at + stored
        need(name not in layers and nbytes <= MAX_LAYER_BYTES, "no layer twice")
        layers[name] = zlib.decompressobj().decompress(blob, nbytes + 1) if codec else blob
        need(len(layers[name]) == nbytes, "a layer of its size")
    return layers, body[at : -FOOT.size]


def places(data: bytes, front: Front, most: int) -> list[int]:
    """Return where chunks begin, found one after another from the end of the front."""
    size, at, found = len(digest(front.checksum, b"")), front.size, []
    while len(found) < most and at + 16 <= len(data):
        end = at + int.from_bytes(data[at + 12 : at + 16], "little")
        if end - at < 16 or digest(front.checksum, data[at:end]) != data[end : end + size]:
            break
        found.append(at)
        at = end + size
    return found


def trailer_of_stream(data: bytes, front: Front) -> tuple[int, int]:
    """Return position and length of the trailer: at the end, or else behind the last chunk."""
    _, length, magic = FOOT.unpack(data[-FOOT.size :])
    if magic == b"blzt-end" and data[-length:][:8] == b"blztrail":
        return len(data) - length, length
    found = places(data, front, 1 << 21)
    start = front.size
    if found:
        chunk = int.from_bytes(data[found[-1] + 12 :][:4], "little")
        start = found[-1] + chunk + len(digest(front.checksum, b""))
    end = data.find(b"blzt-end", start)
    need(data[start : start + 8] == b"blztrail" and end > 0, "a trailer behind the last chunk")
    return start, end + 8 - start


def boxes(shape: list[int], chunkshape: list[int]) -> list[tuple[slice, ...]]:
    """Return the boxes of an array, in C order."""
    need(len(shape) == len(chunkshape) and all(one > 0 for one in chunkshape), "a chunk shape")
    axes = [
        [slice(at, min(at + step, length)) for at in range(0, length, step)]
        for length, step in zip(shape, chunkshape, strict=True)
    ]
    return list(itertools.product(*axes)) if all(shape) else []


def values_of(front: Front, pieces: list[bytes], shape: list[int]) -> np.ndarray:
    """Return the array of these chunks."""
    dtype = front.dtype()
    if dtype is None:
        items = [decoded(front, chunk, None) for chunk in pieces]
        is_text = front.metadata["blz"]["items"] == "str"
        found = np.empty(len(items), object)
        found[:] = [item.decode() for item in items] if is_text else items
        return found
    values, order = np.empty(shape, dtype), front.metadata["order"]
    for box, chunk in zip(boxes(shape, front.metadata["chunkshape"]), pieces, strict=True):
        sizes = [one.stop - one.start for one in box]
        raw = decoded(front, chunk, math.prod(sizes) * dtype.itemsize)
        values[box] = np.frombuffer(raw, dtype).reshape(sizes, order=order)
    for name in _texts(dtype):
        characters = np.ascontiguousarray(values[name]).view("<u4")
        need(characters.max(initial=0) <= 0x10FFFF, "text")
    return values


def _texts(dtype: np.dtype) -> list[str]:
    return [name for name in dtype.names or () if dtype[name].str.startswith("<U")]


def decoded(front: Front, chunk: bytes, nbytes: int | None) -> bytes:
    """Return the items of a chunk, which may have free room at its end."""
    claimed = int.from_bytes(chunk[4:8], "little")
    need(nbytes in (None, claimed) and claimed <= MAX_CHUNK_BYTES, "the bytes of a box")
    need(len(chunk) <= claimed + 16, "not too much room")
    return decompressed(chunk, front.typesize, claimed) if claimed else b""


def journalled(data: bytes) -> bytes:
    """Return the file that a whole journal at its end makes of it."""
    if data[-8:] != b"blzredo!" or len(data) < 56:
        return data
    at, length, crc, zero = struct.unpack("<QQII", data[-32:-8])
    body = data[at:-32] if at < len(data) else b""
    if body[:8] != b"blzredo1" or at < length or zlib.crc32(body) != crc or zero:
        return data
    count, zero, new = struct.unpack_from("<IIQ", body, 8)
    if zero or new != length:
        return data
    place, edits = 24, []
    for _ in range(count):
        position, size = struct.unpack_from("<QQ", body, place)
        if not size or position + size > new or place + 16 + size > len(body):
            return data
        edits.append((position, body[place + 16 : place + 16 + size]))
        place += 16 + size
    spans = sorted((position, position + len(raw)) for position, raw in edits)
    if place != len(body) or any(a[1] > b[0] for a, b in itertools.pairwise(spans)):
        return data
    result = bytearray(data[:new].ljust(new, b"\0"))
    for position, raw in edits:
        result[position : position + len(raw)] = raw
    return bytes(result)


def whole_chunks(path: Path) -> np.ndarray:
    """Return the rows of the whole chunks of an array that was never finished: of whole rows."""
    data = path.read_bytes()
    front = front_of(data)
    if front.version != UNFINISHED:
        raise Refused("expected a file that was never finished")
    step, *others = front.metadata["chunkshape"]
    dtype, parts = front.dtype(), []
    for at in places(data, front, 1 << 21):
        end = at + int.from_bytes(data[at + 12 : at + 16], "little")
        parts.append(np.frombuffer(decoded(front, data[at:end], None), dtype))
    return np.concatenate(parts).reshape(-1, *others) if step and parts else np.empty(0, dtype)
