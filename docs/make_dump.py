"""Print the annotated dump that stands in format.md, from a file written into memory.

The table holds one column of nine 32-bit integers in two pages, so its superchunk has version 3 and
a zone map. Run this and
put the output between the markers when the format changes; a test compares the two.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import fields

import pyarrow as pa

import blztable as blz
from blztable.format import layout
from blztable.format.chunk import CHUNK_HEADER, ChunkHeader
from blztable.format.header import FILE_HEADER, FileHeader
from blztable.format.statistics import Statistics
from blztable.format.trailer import METALAYER_HEAD, STORED, TRAILER_FOOT, TRAILER_HEAD
from blztable.storage.memory import MemoryStore

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, -3)
PAGE_ROWS = 8
BYTES_PER_LINE = 16

# The words of format.md, in the order of each struct.
CHUNK_FIELDS = tuple(field.name for field in fields(ChunkHeader))
HEADER_FIELDS = ("magic", *(field.name for field in fields(FileHeader)), "reserved")
TRAILER_HEAD_FIELDS = ("magic", "version", "nlayers", "reserved", "nchunks")
METALAYER_FIELDS = ("name_length", "codec", "reserved", "nbytes", "stored")
TRAILER_FOOT_FIELDS = ("crc", "length", "magic")

# Offset, bytes, name of the field, what they mean.
Entry = tuple[int, bytes, str, str]


def main() -> None:
    """Print the dump."""
    print(dump(part()))


def part() -> bytes:
    """The one superchunk of the table."""
    store = MemoryStore()
    blz.to_blz(pa.table({"n": pa.array(ROWS, pa.int32())}), store, page_rows=PAGE_ROWS)
    return store.get(layout.part((0,), 1))


def dump(data: bytes) -> str:
    """The bytes of a superchunk of one stream and one chunk, field by field."""
    width = 3 * BYTES_PER_LINE - 1
    lines = [f"{'offset':<6}  {'bytes':<{width}}  {'field':<12}  meaning"]
    position = 0
    for offset, raw, name, meaning in entries(data):
        assert offset == position, (offset, position)
        for start in range(0, len(raw), BYTES_PER_LINE):
            line = raw[start : start + BYTES_PER_LINE].hex(" ")
            words = (name, meaning) if start == 0 else ("", "")
            lines.append(f"{offset + start:#06x}  {line:<{width}}  {words[0]:<12}  {words[1]}")
        position += len(raw)
    assert position == len(data), (position, len(data))
    return "\n".join(line.rstrip() for line in lines)


def entries(data: bytes) -> Iterator[Entry]:
    """Every byte of the file, named."""
    header = FileHeader.decode(data)
    assert (header.version, header.nchunks) == (3, 1)
    yield from _struct(data, 0, FILE_HEADER, HEADER_FIELDS)
    (chunk_at,) = struct.unpack_from("<q", data, FILE_HEADER.size)
    yield FILE_HEADER.size, data[FILE_HEADER.size : chunk_at], "offsets[0]", str(chunk_at)

    chunk = ChunkHeader.decode(data[chunk_at:])
    yield from _struct(data, chunk_at, CHUNK_HEADER, CHUNK_FIELDS)
    digest_at = chunk_at + chunk.ctbytes
    values = data[chunk_at + CHUNK_HEADER.size : digest_at]
    yield chunk_at + CHUNK_HEADER.size, values, "data", "stored: " + ", ".join(map(str, ROWS))
    trailer_at = digest_at + 4
    yield digest_at, data[digest_at:trailer_at], "digest", "crc32 of the chunk"

    yield from _struct(data, trailer_at, TRAILER_HEAD, TRAILER_HEAD_FIELDS)
    layer_at = trailer_at + TRAILER_HEAD.size
    yield from _struct(data, layer_at, METALAYER_HEAD, METALAYER_FIELDS)
    name_length, codec, _, _, stored = METALAYER_HEAD.unpack_from(data, layer_at)
    name_at = layer_at + METALAYER_HEAD.size
    blob_at = name_at + name_length
    yield name_at, data[name_at:blob_at], "name", data[name_at:blob_at].decode()
    assert codec == STORED
    yield from _zone_map(data[blob_at : blob_at + stored], blob_at)
    digests_at = blob_at + stored
    foot_at = len(data) - TRAILER_FOOT.size
    yield digests_at, data[digests_at:foot_at], "digests", "that of the chunk once more"
    yield from _struct(data, foot_at, TRAILER_FOOT, TRAILER_FOOT_FIELDS)


def _zone_map(blob: bytes, start: int) -> Iterator[Entry]:
    """The six arrays of the layer `pages`."""
    pages = -(-len(ROWS) // PAGE_ROWS)
    zone_map = Statistics.decode(blob, pages)
    lows, highs = zone_map.lowest, zone_map.highest
    assert None not in lows + highs
    arrays = (
        ("nulls", 4 * pages, zone_map.nulls),
        ("nans", 4 * pages, zone_map.nans),
        ("low lengths", pages, tuple(map(len, lows))),
        ("high lengths", pages, tuple(map(len, highs))),
        ("lower", sum(map(len, lows)), [int.from_bytes(b, "little", signed=True) for b in lows]),
        ("upper", sum(map(len, highs)), [int.from_bytes(b, "little", signed=True) for b in highs]),
    )
    position = 0
    for name, size, values in arrays:
        meaning = "of each page: " + ", ".join(map(str, values))
        yield start + position, blob[position : position + size], name, meaning
        position += size


def _struct(
    data: bytes, start: int, layout_: struct.Struct, names: Sequence[str]
) -> Iterator[Entry]:
    """The fields of a struct, one by one."""
    values = layout_.unpack_from(data, start)
    kinds = kinds_of(layout_)
    for kind, name, value in zip(kinds, names, values, strict=True):
        size = struct.calcsize("<" + kind)
        yield start, data[start : start + size], name, _meaning(name, value)
        start += size


def kinds_of(layout_: struct.Struct) -> list[str]:
    """The format of each field of a struct: "B", "4s"..."""
    kinds, count = [], ""
    for letter in layout_.format.lstrip("<"):
        if letter.isdigit():
            count += letter
        elif letter == "s":
            kinds.append(count + letter)
            count = ""
        else:
            kinds += [letter] * int(count or 1)
            count = ""
    return kinds


def _meaning(name: str, value: int | bytes) -> str:
    if isinstance(value, bytes):
        return value.decode("ascii")
    digits = {"options": 2, "flags": 2, "crc": 8}.get(name)
    return f"0x{value:0{digits}x}" if digits else str(value)


if __name__ == "__main__":
    main()
