"""Print the annotated dumps in format.md, of tables written into memory.

If the format changes, run this program with `--write`: it puts each dump between its markers. A
test compares them. Each line of a dump has an offset, the bytes, the name of the field, and what it
means; of long texts and records it has several lines.
"""

import re
import struct
import sys
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import blztable as blz
from blztable.format import bloscpack, data_file, layout, leaf, records, version_file
from blztable.format.chunk import CHUNK_HEADER
from blztable.format.records import PAGE, PART, STREAM
from blztable.storage.memory import RamStore
from blztable.tuning import tuned

PAGE_OF_FORMAT = Path(__file__).with_name("format.md")
BYTES_PER_LINE = 24
CHARACTERS_PER_LINE = 80

# Values that differ between tables and between releases, and their replacements.
REPLACED = {
    "uuid": "00112233-4455-6677-8899-aabbccddeeff",
    "commit": "00112233445566778899aabbccddeeff",
    "time": "2026-11-22T09:30:00.000000+00:00",
    "writer": "blztable",
}
STREAMS = ("valid", "values", "lengths", "items.valid", "items.lengths", "items.values")
KINDS = ("plain", "numbers", "dictionary", "constant", "one chunk an item")

# Offset, bytes, name of the field, meaning.
Entry = tuple[int, bytes, str, str]

NUMBERS = pa.table({"n": pa.array([1, 2, 3, 4, 5, 6, 7, 8, -3], pa.int32())})
SMALL = pa.table({"n": [1000, 1001, 1003, 1002, 1000, 1007, 1255, 1000, 1000]})
BOTH = pa.table({"n": pa.array([1000, 1001, 1003], pa.int32()), "s": ["a", None, "bc"]})


def main() -> None:
    """Print the dumps, or write them into the page."""
    dumps = made()
    if "--write" in sys.argv:
        page = PAGE_OF_FORMAT.read_text(encoding="utf-8")
        for name, text in dumps.items():
            page = re.sub(pattern(name), lambda match, text=text: match[1] + text + match[3], page)
        PAGE_OF_FORMAT.write_text(page, encoding="utf-8")
    else:
        print("\n\n".join(dumps.values()))


def pattern(name: str) -> re.Pattern[str]:
    """Return the pattern of a dump between its markers."""
    return re.compile(
        rf"(<!-- dump of {name} -->\n```text\n)(.*?)(\n```\n<!-- end of dump -->)", re.DOTALL
    )


def made() -> dict[str, str]:
    """Return each dump by its name."""
    numbers = written(NUMBERS, page_rows=8, encoding="plain")
    bundle = written(BOTH)
    with tuned(encoded_bytes=1, sampled_values=4):
        encoded = written(SMALL, page_rows=8)
    with tuned(leaf_entries=2):
        sealed = written(pa.table({"n": [7, 8, 9]}), row_group_rows=2)
    return {
        "the manifest": dump(manifest_entries(replaced(numbers.get(layout.manifest(1))))),
        "the leaf": dump(leaf_entries(file_below(sealed, "meta/leaf"))),
        "a plain part": dump(file_entries(file_below(numbers, "data/col0"))),
        "an encoded part": dump(file_entries(file_below(encoded, "data/col0"))),
        "a bundle": dump(file_entries(file_below(bundle, layout.BUNDLES))),
    }


def written(data: pa.Table, **options: Any) -> RamStore:
    """Write a table into memory."""
    store = RamStore()
    blz.to_blz(data, store, storage=blz.Storage(**options))
    return store


def file_below(store: RamStore, prefix: str) -> bytes:
    """Return the only file below a prefix."""
    (name,) = store.list_names(prefix)
    data = store.get(f"{prefix}/{name}")
    return of_one_table(data) if prefix.startswith("data") else data


def replaced(data: bytes) -> bytes:
    """Return a manifest with fixed values in place of those that always differ."""
    found = version_file.VersionFile.decode(data)
    head = found.head | {key: REPLACED[key] for key in REPLACED}
    head["did"] = {**head["did"], "seconds": 0.001}
    tails = [bytes(one.data) for one in found.leaves]
    return version_file.encode_version(head, bytes(found.schema), tails)


def of_one_table(data: bytes) -> bytes:
    """Return a data file with a fixed id of its table."""
    found = data_file.DataFile.decode(data)
    chunks = []
    for at in _offsets(data):
        size = CHUNK_HEADER.unpack_from(data, at)[-1]
        chunks.append(data[at : at + size])
    whole = replace(found, uuid=REPLACED["uuid"])
    front, _ = whole.encode(chunks)
    digests = [zlib.crc32(chunk).to_bytes(4, "little") for chunk in chunks]
    return front + b"".join(a + b for a, b in zip(chunks, digests, strict=True))


# Text


def dump(entries: Iterator[Entry]) -> str:
    """Return bytes, field by field."""
    width = 2 * BYTES_PER_LINE
    lines, position = [f"{'offset':<6}  {'bytes':<{width}}  {'field':<10}  meaning"], 0
    for offset, raw, name, meaning in entries:
        assert offset == position, (offset, position)
        if name == "text":
            text = raw.decode()
            for start in range(0, len(text), CHARACTERS_PER_LINE):
                piece = text[start : start + CHARACTERS_PER_LINE]
                lines += [f"{offset + start:#06x}  {piece}"]
        else:
            shown = raw[:BYTES_PER_LINE] if name == "schema" else raw
            for start in range(0, len(shown), BYTES_PER_LINE):
                line = raw[start : start + BYTES_PER_LINE].hex()
                said = f"{name:<10}  {meaning}" if start == 0 else ""
                lines.append(f"{offset + start:#06x}  {line:<{width}}  {said}")
        position += len(raw)
    return "\n".join(line.rstrip() for line in lines)


# Manifests and leaves


def manifest_entries(data: bytes) -> Iterator[Entry]:
    """Yield every byte of a manifest."""
    count = version_file.HEADER.unpack_from(data)[2]
    yield 0, data[:16], "header", f"blztable, format 1, {count} sections"
    table = np.frombuffer(data, version_file.SECTION, count, 16)
    names = ["head", "schema", *(f"tail of level {level}" for level in range(count - 2))]
    for number, (row, name) in enumerate(zip(table.tolist(), names, strict=True)):
        at = 16 + 16 * number
        offset, size, crc = row
        yield at, data[at : at + 16], "section", f"{name}: offset {offset}, size {size}, {crc:#x}"
    at = 16 + 16 * count
    yield at, data[at : at + 8], "crc, zero", "crc32 of the table"
    for (offset, size, _), name in zip(table.tolist(), names, strict=True):
        stop = offset + size
        if name == "head":
            yield offset, data[offset:stop], "text", ""
        elif name == "schema":
            yield offset, data[offset:stop], "schema", f"an Arrow IPC message of {size} bytes"
        else:
            for begin, raw, field, meaning in leaf_entries(data[offset:stop]):
                yield offset + begin, raw, field, meaning
        if pad := -size % 8:
            yield stop, data[stop : stop + pad], "padding", ""


def leaf_entries(data: bytes) -> Iterator[Entry]:
    """Yield every byte of a leaf."""
    found = leaf.Leaf(data)
    text = f"level {found.level}, {found.entries} entries, {found.columns} columns"
    yield 0, data[: leaf.HEADER.size], "header", f"blz-leaf, {text}"
    at = leaf.HEADER.size
    for number, row in enumerate(found.index):
        counts = ", ".join(f"{row[name]} {name}" for name in leaf.COUNTED if row[name])
        name = f"node {number - 1}" if number else "entries"
        yield at, data[at : at + 32], "index", f"{name}: offset {row['offset']}; {counts}"
        at += 32
    for row in found.groups:
        fields = ", ".join(f"{name} {row[name]}" for name in row.dtype.names if row[name])
        yield at, data[at : at + 48], "group", fields
        at += 48
    for word in found.deleted.tolist():
        yield at, data[at : at + 8], "word", f"{word & 0xFFFFFF} rows from {word >> 24} on"
        at += 8
    for column in range(found.columns):
        for raw, name, meaning in _records(found.records([column])):
            yield at, raw, name, meaning
            at += len(raw)


def _records(found: records.Records) -> Iterator[tuple[bytes, str, str]]:
    for row in found.parts:
        yield row.tobytes(), "part", _fields(row, PART)
    for row in found.streams:
        said = f"{STREAMS[row['name']]}, {KINDS[row['kind']]}: "
        rest = _fields(row, STREAM, without=("name", "kind"))
        yield row.tobytes(), "stream", said + rest
    for row in found.chunks:
        yield row.tobytes(), "chunk", f"size {row['size']}, crc {row['crc']:#x}"
    for row in found.pages:
        yield row.tobytes(), "page", ", ".join(f"{name} {row[name]}" for name in PAGE.names)
    for word in found.words:
        yield word.tobytes(), "word", str(word)
    if prefixes := found.prefixes.tobytes():
        padded = prefixes + bytes(-len(prefixes) % 8)
        yield padded, "prefixes", prefixes.decode()


def _fields(row: Any, kind: np.dtype[Any], without: tuple[str, ...] = ()) -> str:
    names = (name for name in kind.names or () if name not in without)
    return ", ".join(f"{name} {row[name]}" for name in names if row[name])


# Data files


def _offsets(data: bytes) -> list[int]:
    *_, count, _ = bloscpack.HEADER.unpack_from(data)
    stored = struct.unpack_from("<I", data, 52)[0]
    return list(struct.unpack_from(f"<{count}q", data, 64 + stored + 4))


def file_entries(data: bytes) -> Iterator[Entry]:
    """Yield every byte of a data file."""
    _, version, options, checksum, typesize, largest, last, count, _ = bloscpack.HEADER.unpack_from(
        data
    )
    said = f"version {version}, options {options}, checksum {checksum}, typesize {typesize}"
    yield 0, data[:8], "header", f"blpk, {said}"
    yield 8, data[8:16], "", f"chunk_size {largest}, last_chunk {last}"
    yield 16, data[16:32], "", f"nchunks {count}, max_app_chunks 0"
    _, _, _, codec, _, size, room, stored = bloscpack.SECTION.unpack_from(data, 32)
    yield 32, data[32:48], "metadata", f"header: JSON, codec {codec}, size {size}"
    yield 48, data[48:64], "", f"room {room}, stored {stored}"
    yield 64, data[64 : 64 + stored], "text", ""
    at = 64 + stored
    yield at, data[at : at + 4], "crc", "of the metadata"
    at += 4
    for number, offset in enumerate(_offsets(data)):
        yield at, data[at : at + 8], f"offset {number}", str(offset)
        at += 8
    for offset in _offsets(data):
        fields = CHUNK_HEADER.unpack_from(data, offset)
        names = ("typesize", "nbytes", "blocksize", "ctbytes")
        said = ", ".join(f"{a} {b}" for a, b in zip(names, fields[3:], strict=True))
        yield offset, data[offset : offset + 16], "chunk", f"flags {fields[2]:#x}, {said}"
        stop = offset + fields[-1]
        how = "stored as it is" if fields[2] & 2 else "compressed"
        yield offset + 16, data[offset + 16 : stop], "payload", how
        yield stop, data[stop : stop + 4], "digest", "crc32 of the chunk"


if __name__ == "__main__":
    main()
