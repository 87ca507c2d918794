"""Random changes of a file of chunks that was taken apart (`Pieces` of `fuzzed/arrays.py`)."""

import random
import struct
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import blosc
import numpy as np

from blztable.arrays.files.trailer import METALAYER_HEAD
from blztable.format.checksums import CHECKSUMS
from blztable.format.chunk import CHUNK_HEADER, ChunkHeader, Compression
from support.fuzzed.changes import bytes_in, json_text, json_value, number

Random = random.Random


@dataclass
class RawLayer:
    """A metalayer as it is in a trailer; its stored size is the size of `stored`."""

    name: bytes
    codec: int
    nbytes: int
    stored: bytes
    reserved: int = 0

    def encode(self) -> bytes:
        sizes = (len(self.name), self.codec, self.reserved, self.nbytes, len(self.stored))
        return METALAYER_HEAD.pack(*sizes) + self.name + self.stored


def named(names: tuple[str, ...], kind: struct.Struct, data: bytes, at: int) -> dict[str, Any]:
    return dict(zip(names, kind.unpack_from(data, at), strict=True))


def followed(now: Any, was: Mapping[str, Any], truth: Mapping[str, Any]) -> Any:
    """Return `now`, with true values in place of those that no change set."""
    if not isinstance(now, dict):
        return now
    return {k: truth[k] if k in truth and v == was.get(k) else v for k, v in now.items()}


def with_header(chunk: bytes, **fields: int) -> bytes:
    """Return the chunk with other fields in its header."""
    return replace(ChunkHeader.decode(chunk), **fields).encode() + chunk[CHUNK_HEADER.size :]


def values_of_a_chunk(random: Random, part: Any) -> str:
    """Replace the bytes of a chunk; it still decompresses."""
    index, chunk = some_chunk(random, part)
    try:
        raw = bytearray(blosc.decompress(chunk))
        assert raw
    except Exception:
        return "not a chunk any more"
    said = bytes_in(random, raw)
    typesize = chunk[3] or 1
    part.chunks[index] = Compression(random.choice(["lz4", "zlib", "zstd"])).compress(
        np.frombuffer(bytes(raw), "u1"), typesize
    )
    return f"chunk {index}: {said}"


def bytes_of_a_chunk(random: Random, part: Any) -> str:
    """Damage bytes behind the header of a chunk, to test the codecs."""
    index, chunk = some_chunk(random, part)
    raw = bytearray(chunk[16:])
    said = bytes_in(random, raw, may_resize=True)
    part.chunks[index] = chunk[:16] + bytes(raw)
    if len(raw) + 16 != len(chunk) and random.random() < 0.9:
        part.chunks[index] = with_header(part.chunks[index], ctbytes=len(raw) + 16)
    return f"chunk {index}: {said}"


def header_of_a_chunk(random: Random, part: Any) -> str:
    index, chunk = some_chunk(random, part)
    name, bits = random.choice(
        [
            ("version", 8),
            ("version_lz", 8),
            ("flags", 8),
            ("flags", 8),
            ("typesize", 8),
            ("nbytes", 32),
            ("blocksize", 32),
            ("blocksize", 32),
            ("ctbytes", 32),
        ]
    )
    value = number(random, getattr(ChunkHeader.decode(chunk), name)) % (1 << bits)
    part.chunks[index] = with_header(chunk, **{name: value})
    return f"chunk {index}: {name} {value}"


def order_of_chunks(random: Random, part: Any) -> str:
    """Swap, duplicate or remove chunks."""
    first, one = some_chunk(random, part)
    second, other = some_chunk(random, part)
    match random.randrange(4):
        case 0:
            part.chunks[first], part.chunks[second] = other, one
        case 1:
            part.chunks[first] = other
        case 2:
            del part.chunks[first]
        case 3:
            part.chunks.insert(second, one)
    return f"{first}, {second}, now {len(part.chunks)}"


def offsets(random: Random, part: Any) -> str:
    if not part.offsets:
        return "none"
    index = random.randrange(len(part.offsets))
    value = max(-(1 << 63), min(number(random, part.offsets[index]), (1 << 63) - 1))
    part.offsets[index] = value
    return f"{index} is {value}"


def digests(random: Random, part: Any) -> str:
    if not part.digests:
        return "none"
    index = random.randrange(len(part.digests))
    part.digests[index] = bytes(random.randrange(256) for _ in part.digests[index])
    return str(index)


def header(random: Random, part: Any) -> str:
    name = random.choice([name for name in part.header if name != "magic"])
    if name == "checksum":
        part.header[name] = random.randrange(len(CHECKSUMS) + 2)
    else:
        low, high = {"chunk_size": (-(1 << 31), 1 << 31), "last_chunk": (-(1 << 31), 1 << 31)}.get(
            name, (-(1 << 63), 1 << 63) if name in ("nchunks", "tail") else (0, 1 << 32)
        )
        high = 256 if name in ("version", "options", "typesize") else high
        part.header[name] = max(low, min(number(random, part.header[name]), high - 1))
    return f"{name} {part.header[name]}"


def metadata(random: Random, part: Any) -> str:
    if not isinstance(part.metadata, dict):
        return "none"
    part.metadata, said = json_value(random, part.metadata)
    return said


def text_of_metadata(random: Random, part: Any) -> str:
    if not part.metadata:
        return "none"
    part.metadata, said = json_text(random, part.metadata)
    return said


def trailer(random: Random, part: Any) -> str:
    fields, limits = random.choice(
        [
            (part.trailer_head, {"version": 1 << 16, "nlayers": 1 << 16, "reserved": 1 << 32}),
            (part.trailer_head, {"nchunks": 1 << 64}),
            (part.foot, {"crc": 1 << 32, "length": 1 << 32}),
        ]
    )
    name = random.choice(sorted(limits))
    fields[name] = number(random, fields[name]) % limits[name]
    return f"{name} {fields[name]}"


def layers(random: Random, part: Any) -> str:
    if not part.layers:
        part.layers.append(RawLayer(b"pages", 0, 10, bytes(10)))
    layer = random.choice(part.layers)
    match random.randrange(6):
        case 0:
            layer.nbytes = number(random, layer.nbytes) % (1 << 32)
        case 1:
            layer.codec = random.randrange(4)
        case 2:
            layer.name = random.choice([b"", b"pages", b"\xff", b"x" * 31, b"x" * 32, b"x" * 255])
        case 3:
            part.layers += [deepcopy(layer)] * random.choice([1, 2, 15, 16])
        case _:
            raw = bytearray(layer.stored)
            bytes_in(random, raw, may_resize=True)
            layer.stored = bytes(raw)
            if layer.codec == 0:
                layer.nbytes = len(raw)
    return f"{layer.name!r} {layer.nbytes} of {len(layer.stored)}, {len(part.layers)} layers"


def some_chunk(random: Random, part: Any) -> tuple[int, bytes]:
    if not part.chunks:
        part.chunks.append(b"\2\1\1\1" + bytes(12))
    index = random.randrange(len(part.chunks))
    return index, part.chunks[index].ljust(16, b"\0")
