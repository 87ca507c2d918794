"""Tables edited behind valid checksums: change any field, and only that field is wrong.

A checksum finds accidental damage before anyone reads it, but not an attacker's edit. So tests of
the checks behind the checksums edit tables with this module. An edit takes a directory or a store,
and writes everything again when it closes:

    with tamper.editing(path) as table:
        table.head["rows"] = 7
        table.leaf().groups["rows"][0] = 7
        part = table.part(column=0, group=0)
        part.record["rows"] = 7
        part.pages["min"][0] = -5
        stream = part.streams[VALUES]
        stream.record["width"] = 2
        stream.words[0] = 1
        stream.chunks[1] = tamper.with_header(stream.chunks[1], nbytes=1 << 30)
        stream.set_data(stream.data()[:-8])
        table.file(column=0).metadata["uuid"] = "other"

Derived fields (counts of records, sizes, offsets, checksums, and what a data file says of its
records) are computed again, unless the edit set them. The head and the metadata of a file are JSON
values, or bytes for a text that `json` would not write. An edit starts with a valid table.
"""

import json
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import blosc
import numpy as np

from blztable.arrow.extension_names import read_plain
from blztable.arrow.nested.nodes import Node
from blztable.engine.version.versions import newest_number
from blztable.format import data_file, layout, leaf, records, version_file
from blztable.format.chunk import CHUNK_HEADER, ChunkHeader, Compression
from blztable.format.records import CHUNK, PAGE, PER_ITEM, STREAM, WORD
from blztable.storage.local import LocalStore

HEADER = ("magic", "version", "options", "checksum", "typesize", "chunk_size", "last_chunk")
HEADER = (*HEADER, "nchunks", "max_app_chunks")
SECTION = ("magic", "options", "checksum", "codec", "level", "size", "room", "stored")
EMPTY = np.zeros(0, WORD)


@contextmanager
def editing(place, version: int | None = None) -> Iterator["Table"]:
    """Open a version (default: the newest) to edit; write it back at the end with new checksums."""
    store = LocalStore(place) if isinstance(place, str | os.PathLike) else place
    table = Table(store, version or newest_number(store))
    yield table
    table.seal()


def with_header(chunk: bytes, **fields: int) -> bytes:
    """Return the chunk with other fields in its header."""
    return replace(ChunkHeader.decode(chunk), **fields).encode() + chunk[CHUNK_HEADER.size :]


def crc(*pieces: bytes) -> int:
    return zlib.crc32(b"".join(pieces))


@dataclass
class Stream:
    """A stream: its record, its words, its compressed chunks and their records."""

    record: Any
    words: Any = field(default_factory=lambda: EMPTY)
    chunks: list[bytes] = field(default_factory=list)
    chunk_records: Any = field(default_factory=lambda: np.zeros(0, CHUNK))
    was: "Stream | None" = None

    def data(self) -> np.ndarray:
        """Return a copy of the bytes of the stream."""
        pieces = [blosc.decompress(chunk) for chunk in self.chunks]
        return np.frombuffer(bytearray(b"".join(pieces)), np.uint8)

    def set_data(self, data) -> None:
        """Replace the bytes of the stream by others, in one chunk."""
        raw = np.frombuffer(bytes(data), np.uint8)
        typesize = max(int(self.record["typesize"]), 1)
        self.chunks = [Compression().compress(raw, typesize)] if len(raw) else []
        self.record["nbytes"] = self.record["chunk"] = len(raw)


@dataclass
class Part:
    """The records of one node in one entry of a leaf, and its chunks."""

    record: Any
    streams: dict[int, Stream]
    pages: Any
    prefix: bytes
    was: "Part | None" = None

    def add(self, name: int, data: bytes = b"", words=(), **fields: int) -> Stream:
        """Add a stream or replace one; the streams are in the order of their names."""
        record = np.zeros(1, STREAM)[0]
        record["name"], record["typesize"] = name, 1
        for key, value in fields.items():
            record[key] = value
        self.streams[name] = Stream(record, np.array(words, WORD))
        self.streams[name].set_data(data)
        self.streams = dict(sorted(self.streams.items()))
        return self.streams[name]

    @property
    def chunks(self) -> list[bytes]:
        """Return all chunks in the order of the file."""
        return [chunk for stream in self.streams.values() for chunk in stream.chunks]


@dataclass
class Leaf:
    """A leaf: its groups, the words of deleted rows, and the parts of each column by entry.

    `fields` has values that take the place of fields of the header, `index` those of the index:
    by slice and name.
    """

    level: int
    groups: Any
    deleted: Any
    columns: list[list[Part]]
    number: int = 0
    fields: dict[str, int] = field(default_factory=dict)
    index: dict[tuple[int, str], int] = field(default_factory=dict)
    crc: int = 0

    def encode(self) -> bytes:
        """Return the bytes of the leaf."""
        slices = [(self.groups.tobytes() + self.deleted.tobytes(), [0, 0, 0, len(self.deleted), 0])]
        for parts in self.columns:
            streams = [stream for part in parts for stream in part.streams.values()]
            pieces = (
                [part.record for part in parts],
                [stream.record for stream in streams],
                [stream.chunk_records for stream in streams],
                [part.pages for part in parts],
                [stream.words for stream in streams],
            )
            arrays = [b"".join(one.tobytes() for one in piece) for piece in pieces]
            prefixes = b"".join(part.prefix for part in parts)
            sizes = zip(arrays[1:], (24, 8, 24, 8), strict=True)
            counts = [len(one) // size for one, size in sizes] + [len(prefixes)]
            padded = prefixes + bytes(-len(prefixes) % 8)
            slices.append((b"".join([*arrays, padded]), counts))
        at, index = leaf.HEADER.size + 32 * len(slices), b""
        for number, (data, counts) in enumerate(slices):
            entry = dict(zip(leaf.COUNTED, counts, strict=True)) | {"offset": at, "crc": crc(data)}
            entry |= {name: value for (of, name), value in self.index.items() if of == number}
            index += struct.pack("<Q6I", *(entry[name] for name in leaf.INDEX.names))
            at += len(data)
        head = {"magic": leaf.MAGIC, "level": self.level, "entries": len(self.groups)}
        head |= {"columns": len(self.columns)} | self.fields
        front = leaf.HEADER.pack(head["magic"], head["level"], head["entries"], head["columns"], 0)
        self.crc = self.fields.get("crc", crc(front[:-4], index))
        front = front[:-4] + self.crc.to_bytes(4, "little")
        return b"".join([front, index, *(data for data, _ in slices)])


@dataclass
class File:
    """A data file: the fields of its headers, its metadata, and what lies behind them."""

    header: dict[str, Any]
    section: dict[str, Any]
    metadata: Any
    offsets: list[int] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    was: Any = None

    @classmethod
    def decode(cls, data: bytes) -> "File":
        header = dict(zip(HEADER, data_file.HEADER.unpack_from(data), strict=True))
        values = data_file.SECTION.unpack_from(data, 32)
        section = dict(zip(SECTION, values, strict=True))
        text = data[64 : 64 + section["stored"]]
        text = zlib.decompress(text) if section["codec"] else text
        found = cls(header, section, json.loads(text))
        found.was = deepcopy((header, section, found.metadata))
        return found

    def encode(self, parts: list[Part]) -> bytes:
        """Return the file of these parts, whose records get their places."""
        header_was, section_was, metadata_was = self.was
        metadata = self.metadata
        if metadata == metadata_was:
            metadata = metadata | _said(parts)
        text = as_text(metadata)
        stored = zlib.compress(text, 1) if self.section["codec"] else text
        chunks = [chunk for part in parts for chunk in part.chunks]
        # A header has signed numbers.
        decoded = [min(int.from_bytes(one[4:8], "little"), (1 << 31) - 1) for one in chunks]
        first = [stream for part in parts for stream in part.streams.values()][:1]
        true = {
            "options": 3 if chunks else 2,
            "typesize": int(first[0].record["typesize"]) if first else 1,
            "chunk_size": max(decoded, default=-1),
            "last_chunk": decoded[-1] if decoded else -1,
            "nchunks": len(chunks),
        }
        header = _followed(self.header, header_was, true)
        sizes = {"size": len(text), "room": len(stored), "stored": len(stored)}
        section = _followed(self.section, section_was, sizes)
        front = data_file.HEADER.pack(*header.values())
        front += data_file.SECTION.pack(*section.values())
        front += stored + crc(stored).to_bytes(4, "little")
        start = len(front) + 8 * len(chunks)
        digests = self.digests or [crc(chunk).to_bytes(4, "little") for chunk in chunks]
        pieces = [a + b for a, b in zip(chunks, digests, strict=True)]
        places = list(accumulate(map(len, pieces), initial=start))
        offsets = self.offsets or places[:-1]
        at = 0
        for part in parts:
            _put(part, "offset", places[at])
            self._items(part, offsets[at:], places[at])
            at += len(part.chunks)
            _put(part, "cbytes", places[at] - int(places[at - len(part.chunks)]))
        return front + struct.pack(f"<{len(offsets)}q", *offsets) + b"".join(pieces)

    @staticmethod
    def _items(part: Part, offsets: list[int], start: int) -> None:
        """Set the word of a stream whose items are chunks, unless the edit did."""
        stream = part.streams.get(records.VALUES)
        if stream is None or stream.record["kind"] != PER_ITEM:
            return
        if stream.was is None or not np.array_equal(stream.words, stream.was.words):
            return
        before = sum(len(one.chunks) for name, one in part.streams.items() if name < records.VALUES)
        items = np.array(offsets[before : before + len(stream.chunks)], WORD) - start
        stream.words = np.array([crc(items.tobytes())], WORD)


class Table:
    """One version: its head, its schema, its leaves, and the data files of its parts."""

    def __init__(self, store, version: int) -> None:
        self.store = store
        self._key = layout.manifest(version)
        found = version_file.VersionFile.decode(store.get(self._key))
        self.head: Any = deepcopy(found.head)
        self.schema = bytes(found.schema)
        self.paths = _paths(self.schema, self.head["ids"])
        self.sections: dict[int, dict[str, int]] = {}
        self._files: dict[str, File] = {}
        self._was = deepcopy((self.head, self.schema))
        self.tails = [self._decoded(tail) for tail in found.leaves]
        # All leaves, those above before those below: as their entries name them.
        self.leaves = []
        for tail in reversed(self.tails):
            self._add(tail)

    def _add(self, tail: Leaf) -> None:
        self.leaves.append(tail)
        if tail.level:
            for group in tail.groups:
                data = self.store.get(layout.leaf(int(group["file"])))
                below = self._decoded(leaf.Leaf(data), int(group["file"]))
                self._add(below)

    def _decoded(self, found: leaf.Leaf, number: int = 0) -> Leaf:
        columns = [_parts(found.records([column])) for column in range(found.columns)]
        result = Leaf(found.level, found.groups.copy(), found.deleted.copy(), columns, number)
        if found.level == 0:
            self._open(result)
        return result

    def _open(self, opened: Leaf) -> None:
        """Read the chunks of the parts of a leaf."""
        for column, parts in enumerate(opened.columns):
            for entry, part in enumerate(parts):
                key = self._key_of(opened, column, entry)
                if key is not None:
                    _read(part, self.store.get(key))
                part.was = deepcopy(part)
                for stream in part.streams.values():
                    stream.was = deepcopy(stream)

    def _key_of(self, opened: Leaf, column: int, entry: int) -> str | None:
        number = int(opened.columns[column][entry].record["file"])
        if not number:
            return None
        is_bundled = number == int(opened.groups["file"][entry])
        return layout.part(layout.SHARED if is_bundled else self.paths[column], number)

    def place(self, group: int) -> tuple[Leaf, int]:
        """Return the leaf of a row group, and its entry there."""
        for opened in self.leaves:
            if opened.level == 0:
                if group < len(opened.groups):
                    return opened, group
                group -= len(opened.groups)
        raise IndexError(group)

    def leaf(self, group: int = 0) -> Leaf:
        """Return the leaf of a row group."""
        return self.place(group)[0]

    def part(self, column: int = 0, group: int = 0) -> Part:
        """Return the part of a node in a row group."""
        opened, entry = self.place(group)
        return opened.columns[column][entry]

    def key(self, column: int = 0, group: int = 0) -> str:
        """Return the key of the data file of a part."""
        opened, entry = self.place(group)
        key = self._key_of(opened, column, entry)
        assert key is not None, "a part without a file"
        return key

    def file(self, column: int = 0, group: int = 0) -> File:
        """Return the data file of a part; it is written when the edit ends."""
        key = self.key(column, group)
        if key not in self._files:
            self._files[key] = File.decode(self.store.get(key))
        return self._files[key]

    def seal(self) -> None:
        """Write everything, with new checksums."""
        for opened in self.leaves:
            if opened.level == 0:
                self._seal_files(opened)
        written: dict[int, tuple[int, int]] = {}
        for opened in reversed(self.leaves):
            for group in opened.groups if opened.level else ():
                if int(group["file"]) in written:
                    group["size"], group["crc"] = written[int(group["file"])]
            for parts in opened.columns:
                for part in parts:
                    _count(part)
            if opened.number:
                data = opened.encode()
                self.store.put(layout.leaf(opened.number), data)
                written[opened.number] = (len(data), opened.crc)
        parts = [as_text(self.head), self.schema, *(tail.encode() for tail in self.tails)]
        self.store.put(self._key, _manifest(parts, self.sections))

    def _seal_files(self, opened: Leaf) -> None:
        files: dict[str, list[Part]] = {}
        touched = set(self._files)
        for column, parts in enumerate(opened.columns):
            for entry, part in enumerate(parts):
                if number := int(part.was.record["file"]):
                    is_bundled = number == int(opened.groups["file"][entry])
                    key = layout.part(layout.SHARED if is_bundled else self.paths[column], number)
                    files.setdefault(key, []).append(part)
                    if part.chunks != part.was.chunks:
                        touched.add(key)
        for key, parts in files.items():
            if key in touched:
                file = self._files.get(key) or File.decode(self.store.get(key))
                self.store.put(key, file.encode(parts))


def _manifest(parts: list[bytes], changes: dict[int, dict[str, int]]) -> bytes:
    """Return a manifest of these sections; `changes` has fields of the entries of some."""
    at = 16 + 16 * len(parts) + 8
    table, body = b"", b""
    for number, part in enumerate(parts):
        entry = {"offset": at, "size": len(part), "crc": crc(part) if number < 2 else 0}
        entry |= changes.get(number, {})
        table += struct.pack("<QII", *entry.values())
        body += part + bytes(-len(part) % 8)
        at += len(part) + -len(part) % 8
    front = version_file.HEADER.pack(version_file.MAGIC, version_file.FORMAT, len(parts)) + table
    return front + struct.pack("<II", crc(front), 0) + body


def _paths(schema: bytes, ids: list[int]) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    numbers = iter(ids)

    def walk(node: Node, above: tuple[int, ...]) -> None:
        path = (*above, next(numbers))
        found.append(path)
        for child in node.children:
            walk(child, path)

    # Not with the types that this process has registered: they may refuse what a test writes.
    for column in read_plain(schema):
        walk(Node.of(column.type), ())
    return found


def _parts(found: records.Records) -> list[Part]:
    """Return the parts of the records of one column."""
    parts = []
    for number in range(found.entries):
        streams = {}
        for at in range(found.first_stream[number], found.first_stream[number + 1]):
            words = found.words[found.first_word[at] : found.first_word[at + 1]].copy()
            chunks = found.chunks[found.first_chunk[at] : found.first_chunk[at + 1]].copy()
            record = found.streams[at].copy()
            streams[int(record["name"])] = Stream(record, words, [], chunks)
        pages = found.pages[found.first_page[number] : found.first_page[number + 1]].copy()
        start, stop = found.first_prefix[number : number + 2]
        prefix = found.prefixes[start:stop].tobytes()
        part = Part(found.parts[number].copy(), streams, pages, prefix)
        part.was = deepcopy(part)
        parts.append(part)
    return parts


def _read(part: Part, data: bytes) -> None:
    """Set the chunks of a part."""
    at = int(part.record["offset"])
    for stream in part.streams.values():
        sizes = stream.chunk_records["size"].tolist()
        if stream.record["kind"] == PER_ITEM:
            sizes, place = [], at
            for _ in range(int(part.record["rows"])):
                sizes.append(ChunkHeader.decode(data[place:]).ctbytes)
                place += sizes[-1] + 4
        for size in sizes:
            stream.chunks.append(data[at : at + size])
            at += size + 4


def _count(part: Part) -> None:
    """Set the counts and the records of chunks, unless the edit did."""
    _put(part, "streams", len(part.streams))
    _put(part, "pages", len(part.pages))
    _put(part, "prefix", len(part.prefix))
    for stream in part.streams.values():
        was = stream.was
        if was is None or np.array_equal(stream.chunk_records, was.chunk_records):
            is_listed = stream.record["kind"] != PER_ITEM
            now = [(len(chunk), crc(chunk)) for chunk in stream.chunks if is_listed]
            stream.chunk_records = np.array(now, CHUNK)
        if was is None or stream.record["words"] == was.record["words"]:
            stream.record["words"] = len(stream.words)


def _put(part: Part, name: str, value: int) -> None:
    """Set a field of a part's record, unless the edit did."""
    if part.record[name] == part.was.record[name]:
        part.record[name] = value


def _said(parts: list[Part]) -> dict[str, Any]:
    """Return what the metadata of a file say of records."""
    streams = [stream for part in parts for stream in part.streams.values()]
    for part in parts:
        _count(part)
    tables = {
        "parts": ([part.record for part in parts], data_file.SAID["parts"][1]),
        "streams": ([stream.record for stream in streams], STREAM.names),
        "pages": ([page for part in parts for page in part.pages], PAGE.names),
    }
    said: dict[str, Any] = {
        key: {name: [one[name].item() for one in rows] for name in names}
        for key, (rows, names) in tables.items()
    }
    said["words"] = [word for stream in streams for word in stream.words.tolist()]
    said["prefixes"] = [byte for part in parts for byte in part.prefix]
    return said


def _followed(now: dict[str, Any], was: dict[str, Any], truth: dict[str, Any]) -> dict[str, Any]:
    """Return `now`, with true values in place of those that the edit did not set."""
    return {k: truth[k] if k in truth and v == was.get(k) else v for k, v in now.items()}


def as_text(value: Any) -> bytes:
    """Return JSON as the writer writes it, but of any value; bytes are returned unchanged."""
    if isinstance(value, bytes):
        return value
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")
