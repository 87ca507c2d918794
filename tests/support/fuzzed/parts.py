"""Random changes of a superchunk that was taken apart: a part of a table, a bundle, or an array."""

import random
from copy import deepcopy

import blosc
import numpy as np

from blztable.format.chunk import Compression
from blztable.format.header import CHECKSUMS
from support import tamper
from support.fuzzed.changes import bytes_in, json_text, json_value, number

Random = random.Random


def values_of_a_chunk(random: Random, part: tamper.Part) -> str:
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


def bytes_of_a_chunk(random: Random, part: tamper.Part) -> str:
    """Damage bytes behind the header of a chunk, to test the codecs."""
    index, chunk = some_chunk(random, part)
    raw = bytearray(chunk[16:])
    said = bytes_in(random, raw, may_resize=True)
    part.chunks[index] = chunk[:16] + bytes(raw)
    if len(raw) + 16 != len(chunk) and random.random() < 0.9:
        part.chunks[index] = tamper.with_header(part.chunks[index], ctbytes=len(raw) + 16)
    return f"chunk {index}: {said}"


def header_of_a_chunk(random: Random, part: tamper.Part) -> str:
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
    value = number(random, getattr(tamper.ChunkHeader.decode(chunk), name)) % (1 << bits)
    part.chunks[index] = tamper.with_header(chunk, **{name: value})
    return f"chunk {index}: {name} {value}"


def order_of_chunks(random: Random, part: tamper.Part) -> str:
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


def offsets(random: Random, part: tamper.Part) -> str:
    if not part.offsets:
        return "none"
    index = random.randrange(len(part.offsets))
    value = max(-(1 << 63), min(number(random, part.offsets[index]), (1 << 63) - 1))
    part.offsets[index] = value
    return f"{index} is {value}"


def digests(random: Random, part: tamper.Part) -> str:
    if not part.digests:
        return "none"
    index = random.randrange(len(part.digests))
    part.digests[index] = bytes(random.randrange(256) for _ in part.digests[index])
    return str(index)


def header(random: Random, part: tamper.Part) -> str:
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


def metadata(random: Random, part: tamper.Part) -> str:
    if not isinstance(part.metadata, dict):
        return "none"
    part.metadata, said = json_value(random, part.metadata)
    return said


def text_of_metadata(random: Random, part: tamper.Part) -> str:
    if not part.metadata:
        return "none"
    part.metadata, said = json_text(random, part.metadata)
    return said


def trailer(random: Random, part: tamper.Part) -> str:
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


def layers(random: Random, part: tamper.Part) -> str:
    if not part.layers:
        part.layers.append(tamper.RawLayer(b"pages", 0, 10, bytes(10)))
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


def some_chunk(random: Random, part: tamper.Part) -> tuple[int, bytes]:
    if not part.chunks:
        part.chunks.append(b"\2\1\1\1" + bytes(12))
    index = random.randrange(len(part.chunks))
    return index, part.chunks[index].ljust(16, b"\0")
