"""Print the three annotated dumps in format.md, of a table written into memory.

The table has nine rows in two pages: `n` has 32-bit integers and a superchunk of version 3, `s` has
text with nulls and a superchunk of version 4. If the format changes, run this program and put each
dump between its markers; a test compares them.
"""

import json
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

import blztable as blz
from blztable.engine.version import versions
from blztable.format import layout, manifest
from blztable.format.chunk import CHUNK_HEADER, ChunkHeader
from blztable.format.header import (
    FILE_HEADER,
    METALAYER_HEAD,
    STORED,
    TRAILER_FOOT,
    TRAILER_HEAD,
    FileHeader,
)
from blztable.format.line import Statistics
from blztable.format.metadata import BlockInfo
from blztable.storage.memory import RamStore

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, -3)
TEXTS = ("Oslo", None, "", "Bern", None, "größer", "a", "b", "Rome")
PAGE_ROWS = 8
BYTES_PER_LINE = 16
CHARACTERS_PER_LINE = 100

# Values that differ between tables and between releases, and their replacements.
REPLACED = {
    "uuid": "00112233-4455-6677-8899-aabbccddeeff",
    "commit": "00112233445566778899aabbccddeeff",
    "time": "2026-11-22T09:30:00.000000+00:00",
    "writer": "blztable",
}

# The names of format.md, in the order of each struct.
CHUNK_FIELDS = tuple(field.name for field in fields(ChunkHeader))
HEADER_FIELDS = ("magic", *(field.name for field in fields(FileHeader)), "reserved")
TRAILER_HEAD_FIELDS = ("magic", "version", "nlayers", "reserved", "nchunks")
METALAYER_FIELDS = ("name_length", "codec", "reserved", "nbytes", "stored")
TRAILER_FOOT_FIELDS = ("crc", "length", "magic")

# Offset, bytes, name of the field, meaning.
Entry = tuple[int, bytes, str, str]


def main() -> None:
    """Print the dumps."""
    store = written()
    for text in (dump_of_text(head_and_lines(store)), dump(part(store, 0)), dump(part(store, 1))):
        print(text, end="\n\n")


def written() -> RamStore:
    """Write the table."""
    store = RamStore()
    columns = {"n": pa.array(ROWS, pa.int32()), "s": pa.array(TEXTS)}
    blz.to_blz(pa.table(columns), store, storage=blz.Storage(page_rows=PAGE_ROWS))
    return store


def part(store: RamStore, column: int) -> bytes:
    """Return the only superchunk of a column."""
    return store.get(layout.part((column,), 1))


def head_and_lines(store: RamStore) -> bytes:
    """Return the manifest, with fixed values in place of those that always differ."""
    version = versions.read(store, 1)
    return manifest.encode(replace(version.head, **REPLACED), version.lines())


# Text


def dump_of_text(data: bytes) -> str:
    """Return a manifest as text: one key per line, long lines in pieces."""
    lines = ["offset  text"]
    position = 0
    for line in data.split(b"\n")[:-1]:
        for piece in _pieces(line.decode()):
            lines.append(f"{position:#06x}  {piece}")
            position += len(piece.encode())
        lines.append(f"{position:#06x}  <LF>")
        position += 1
    assert position == len(data), (position, len(data))
    return "\n".join(lines)


def _pieces(line: str) -> Iterator[str]:
    """Cut the text before each key of its object, and where it is too long."""
    keys = [f',"{key}":' for key in json.loads(line)] if line.startswith("{") else []
    cuts = [0, *sorted(line.index(key) + 1 for key in keys if key in line), len(line)]
    for start, stop in pairwise(cuts):
        for first in range(start, stop, CHARACTERS_PER_LINE):
            yield line[first : min(first + CHARACTERS_PER_LINE, stop)]


# Superchunks


def dump(data: bytes) -> str:
    """Return the bytes of a superchunk, field by field."""
    width = 3 * BYTES_PER_LINE - 1
    lines = [f"{'offset':<6}  {'bytes':<{width}}  {'field':<12}  meaning"]
    position = 0
    for offset, raw, name, meaning in entries(data):
        assert offset == position, (offset, position)
        for start in range(0, len(raw), BYTES_PER_LINE):
            line = raw[start : start + BYTES_PER_LINE].hex(" ")
            words = (name, meaning) if start == 0 else ("", "")
            if name == "metadata":
                words = (words[0], raw[start : start + BYTES_PER_LINE].decode())
            lines.append(f"{offset + start:#06x}  {line:<{width}}  {words[0]:<12}  {words[1]}")
        position += len(raw)
    assert position == len(data), (position, len(data))
    return "\n".join(line.rstrip() for line in lines)


def entries(data: bytes) -> Iterator[Entry]:
    """Yield every byte of the file, with the name of its field."""
    header = FileHeader.decode(data)
    yield from _struct(data, 0, FILE_HEADER, HEADER_FIELDS)
    offsets_at = FILE_HEADER.size + header.meta_size
    metadata = data[FILE_HEADER.size : offsets_at]
    if metadata:
        yield FILE_HEADER.size, metadata, "metadata", ""
    offsets = struct.unpack_from(f"<{header.nchunks}q", data, offsets_at)
    for number, offset in enumerate(offsets):
        at = offsets_at + 8 * number
        yield at, data[at : at + 8], f"offsets[{number}]", str(offset)
    names = [stream.name for stream in BlockInfo.decode(metadata).streams] if metadata else ["n"]
    trailer_at = 0
    for name, offset in zip(names, offsets, strict=True):
        trailer_at = yield from _chunk(data, offset, name)
    yield from _trailer(data, trailer_at)


def _chunk(data: bytes, start: int, stream: str) -> Iterator[Entry]:
    """Yield a chunk and its digest; return the position behind them."""
    chunk = ChunkHeader.decode(data[start:])
    yield from _struct(data, start, CHUNK_HEADER, CHUNK_FIELDS)
    digest_at = start + chunk.ctbytes
    values = data[start + CHUNK_HEADER.size : digest_at]
    yield start + CHUNK_HEADER.size, values, "data", "stored: " + _meaning_of(stream, values)
    yield digest_at, data[digest_at : digest_at + 4], "digest", "crc32 of the chunk"
    return digest_at + 4


def _meaning_of(stream: str, values: bytes) -> str:
    """Return the meaning of the bytes of a stream."""
    if stream == "valid":
        bits = np.unpackbits(np.frombuffer(values, np.uint8), bitorder="little")[: len(TEXTS)]
        return "valid, a bit a row: " + " ".join(map(str, bits))
    if stream == "values":
        return f"values: {values.decode()}"
    numbers = ", ".join(map(str, np.frombuffer(values, "<i4")))
    return numbers if stream == "n" else f"ends: {numbers}"


def _trailer(data: bytes, start: int) -> Iterator[Entry]:
    """Yield the fields of the trailer, which has one layer."""
    yield from _struct(data, start, TRAILER_HEAD, TRAILER_HEAD_FIELDS)
    layer_at = start + TRAILER_HEAD.size
    yield from _struct(data, layer_at, METALAYER_HEAD, METALAYER_FIELDS)
    name_length, codec, _, _, stored = METALAYER_HEAD.unpack_from(data, layer_at)
    name_at = layer_at + METALAYER_HEAD.size
    blob_at = name_at + name_length
    yield name_at, data[name_at:blob_at], "name", data[name_at:blob_at].decode()
    assert codec == STORED
    yield from _zone_map(data[blob_at : blob_at + stored], blob_at)
    digests_at = blob_at + stored
    foot_at = len(data) - TRAILER_FOOT.size
    words = "that of each chunk once more"
    yield digests_at, data[digests_at:foot_at], "digests", words
    yield from _struct(data, foot_at, TRAILER_FOOT, TRAILER_FOOT_FIELDS)


def _zone_map(blob: bytes, start: int) -> Iterator[Entry]:
    """Yield the six arrays of the layer `pages`."""
    pages = -(-len(ROWS) // PAGE_ROWS)
    zone_map = Statistics.decode(blob, pages)
    lows = [bound for bound in zone_map.lowest if bound is not None]
    highs = [bound for bound in zone_map.highest if bound is not None]
    arrays = (
        ("nulls", 4 * pages, zone_map.nulls),
        ("nans", 4 * pages, zone_map.nans),
        ("low lengths", pages, list(map(len, lows))),
        ("high lengths", pages, list(map(len, highs))),
        ("lower", sum(map(len, lows)), list(map(_bound, lows))),
        ("upper", sum(map(len, highs)), list(map(_bound, highs))),
    )
    position = 0
    for name, size, values in arrays:
        meaning = "of each page: " + ", ".join(map(str, values))
        yield start + position, blob[position : position + size], name, meaning
        position += size


def _bound(value: bytes) -> int | str:
    """Return a bound: text as JSON, and bytes that are no letters as a number."""
    if len(value) == 4 and not value.isalpha():
        return int.from_bytes(value, "little", signed=True)
    return json.dumps(value.decode(), ensure_ascii=False)


def _struct(
    data: bytes, start: int, layout_: struct.Struct, names: Sequence[str]
) -> Iterator[Entry]:
    """Yield the fields of a struct."""
    values = layout_.unpack_from(data, start)
    kinds = kinds_of(layout_)
    for kind, name, value in zip(kinds, names, values, strict=True):
        size = struct.calcsize("<" + kind)
        yield start, data[start : start + size], name, _meaning(name, value)
        start += size


def kinds_of(layout_: struct.Struct) -> list[str]:
    """Return the format of each field of a struct: "B", "4s"..."""
    return re.findall(r"\d+s|[A-Za-z]", layout_.format.lstrip("<"))


def _meaning(name: str, value: int | bytes) -> str:
    if isinstance(value, bytes):
        return value.decode("ascii")
    digits = {"options": 2, "flags": 2, "crc": 8}.get(name)
    return f"0x{value:0{digits}x}" if digits else str(value)


if __name__ == "__main__":
    main()
