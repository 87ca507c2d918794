"""Tables edited behind valid checksums: change any field, and only that field is wrong.

A checksum finds accidental damage before anyone reads it, but not an attacker's edit. So tests of
the checks behind the checksums edit tables with this module. An edit takes a directory or a store,
and writes everything that was opened in it when it closes:

    with tamper.editing(path) as table:
        part = table.part(column=0, group=0)
        part.header["typesize"] = 3
        part.metadata["streams"][0]["pages"] = [1, 2]
        part.chunks[1] = tamper.with_header(part.chunks[1], nbytes=1 << 30)
        part.layers[0].stored = b""
        table.lines[0]["rows"] = [7]
        bundle = table.bundle(group=0)
        entries = bundle.stream(0).view(ENTRY)
        entries["start"][2] += 8
        bundle.set_stream(0, entries)
        table.head["row_groups"] = [7]

Derived fields (sizes, counts, offsets, digests, a column's facts in its line, the places and sha256
of the lines in the head) are computed again, unless the edit set them. `metadata`, a line and the
head are JSON values, or bytes for a text that `json` would not write. An edit starts with a valid
table.
"""

import base64
import hashlib
import json
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise, zip_longest
from typing import Any

import blosc
import numpy as np

from blztable.engine.version.versions import newest_number
from blztable.format import layout
from blztable.format.chunk import CHUNK_HEADER, ChunkHeader, Compression
from blztable.format.header import (
    CHECKSUMS,
    FILE_HEADER,
    METALAYER_HEAD,
    TRAILER_FOOT,
    TRAILER_HEAD,
    crc32,
)
from blztable.storage.local import LocalStore

HEADER_FIELDS = (
    "magic",
    "version",
    "options",
    "checksum",
    "typesize",
    "chunk_size",
    "last_chunk",
    "nchunks",
    "meta_size",
    "reserved",
)
TRAILER_FIELDS = ("magic", "version", "nlayers", "reserved", "nchunks")
FOOT_FIELDS = ("crc", "length", "magic")


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


class Part:
    """The pieces of one superchunk."""

    def __init__(self, data: bytes) -> None:
        self.header: dict[str, Any] = _named(HEADER_FIELDS, FILE_HEADER, data, 0)
        size, count, meta_size = self._digest_size, self.header["nchunks"], self.header["meta_size"]
        position = FILE_HEADER.size + meta_size
        text = data[FILE_HEADER.size : position]
        self.metadata: Any = json.loads(text) if text else b""
        self.offsets: list[int] = list(struct.unpack_from(f"<{count}q", data, position))
        self.foot = _named(FOOT_FIELDS, TRAILER_FOOT, data, len(data) - TRAILER_FOOT.size)
        start = len(data) - self.foot["length"]
        spans = pairwise([*self.offsets, start])
        pieces = [data[begin:end] for begin, end in spans]
        self.chunks = [piece[: len(piece) - size] for piece in pieces]
        self.digests = [piece[len(piece) - size :] for piece in pieces]
        self.trailer_head = _named(TRAILER_FIELDS, TRAILER_HEAD, data, start)
        self.layers: list[RawLayer] = []
        position = start + TRAILER_HEAD.size
        for _ in range(self.trailer_head["nlayers"]):
            name, codec, reserved, nbytes, stored = METALAYER_HEAD.unpack_from(data, position)
            position += METALAYER_HEAD.size
            body = data[position : position + name + stored]
            self.layers.append(RawLayer(body[:name], codec, nbytes, body[name:], reserved))
            position += name + stored
        self._was = deepcopy(vars(self))

    def encode(self) -> tuple[bytes, dict[str, int]]:
        """Return the file, and its facts for the line of the manifest."""
        metadata = as_text(self.metadata)
        counts = {"nchunks": len(self.chunks), "meta_size": len(metadata)}
        header = _followed(self.header, self._was["header"], counts)
        front_length = FILE_HEADER.size + len(metadata) + 8 * len(self.chunks)
        digests = self.digests
        if digests == self._was["digests"]:
            digests = [self._digest(chunk) for chunk in self.chunks]
        pieces = [
            chunk + digest for chunk, digest in zip_longest(self.chunks, digests, fillvalue=b"")
        ]
        offsets = self.offsets
        if offsets == self._was["offsets"]:
            offsets = list(accumulate(map(len, pieces), initial=front_length))[:-1]
        places = struct.pack(f"<{len(offsets)}q", *offsets)
        front = FILE_HEADER.pack(*header.values()) + metadata + places
        counts = {"nlayers": len(self.layers), "nchunks": len(self.chunks)}
        head = _followed(self.trailer_head, self._was["trailer_head"], counts)
        layers = [layer.encode() for layer in self.layers]
        body = b"".join([TRAILER_HEAD.pack(*head.values()), *layers, *digests])
        length = len(body) + TRAILER_FOOT.size
        sums = {"crc": crc32(body, crc32(front)), "length": length}
        foot = _followed(self.foot, self._was["foot"], sums)
        data = b"".join([front, *pieces, body, TRAILER_FOOT.pack(*foot.values())])
        facts = {"front_length": len(front), "trailer_length": length, "crc": foot["crc"]}
        return data, {"cbytes": len(data), **facts}

    def sizes(self) -> dict[str, int]:
        """Return the uncompressed size of each stream by header or metadata; empty if invalid.

        The line states the size of the values of an encoded stream, which stays as it is.
        """
        if not isinstance(self.metadata, dict):
            full = self.header["chunk_size"] * (len(self.chunks) - 1)
            return {} if self.metadata else {"values": full + self.header["last_chunk"]}
        result = {}
        for prefix, block in (
            ("", self.metadata),
            ("dictionary.", self.metadata.get("dictionary")),
        ):
            streams = block.get("streams") if isinstance(block, dict) else None
            for stream in streams if isinstance(streams, list) else ():
                is_plain = isinstance(stream, dict) and "encoding" not in stream
                if is_plain and type(stream.get("nbytes")) is int:
                    result[f"{prefix}{stream.get('name')}"] = stream["nbytes"]
        return result

    def stream(self, index: int) -> np.ndarray:
        """Return a copy of the bytes of a stream without children before it, all chunks joined."""
        chunks = [blosc.decompress(chunk) for chunk in self.chunks[self._chunks_of(index)]]
        return np.frombuffer(bytearray(b"".join(chunks)), np.uint8)

    def set_stream(self, index: int, data) -> None:
        """Replace the bytes of such a stream by others, in one chunk."""
        stream, data = self.metadata["streams"][index], np.frombuffer(bytes(data), np.uint8)
        chunks = [Compression().compress(data, stream["typesize"])] if len(data) else []
        self.chunks[self._chunks_of(index)] = chunks
        if data.nbytes != stream["nbytes"]:
            stream.pop("chunks", None)
            stream |= {"nbytes": data.nbytes, "chunk_size": data.nbytes}

    def _chunks_of(self, index: int) -> slice:
        counts = [_chunk_count(stream) for stream in self.metadata["streams"][: index + 1]]
        return slice(sum(counts[:-1]), sum(counts))

    @property
    def _digest_size(self) -> int:
        number = self.header["checksum"]
        return CHECKSUMS[number].size if number < len(CHECKSUMS) else 0

    def _digest(self, chunk: bytes) -> bytes:
        return CHECKSUMS[self.header["checksum"]].digest(chunk) if self._digest_size else b""


def _chunk_count(stream: dict[str, Any]) -> int:
    if "chunks" in stream:
        return len(stream["chunks"])
    return -(-stream["nbytes"] // stream["chunk_size"])


class Table:
    """One version: its head, the lines of its columns, and the parts that were opened."""

    def __init__(self, store, version: int) -> None:
        self._store = store
        self._key = layout.manifest(version)
        first, _, *lines = store.get(self._key).split(b"\n")[:-1]
        self.head: Any = json.loads(first)
        self.lines: list[Any] = [json.loads(line) for line in lines]
        self._head_was, self._lines_were = deepcopy((self.head, self.lines))
        self._parts: dict[tuple[int, int], Part] = {}
        self._bundles: dict[int, Part] = {}

    def part(self, column: int = 0, group: int = 0) -> Part:
        """Return the superchunk of a column in a row group; it is written when the edit ends."""
        if (column, group) not in self._parts:
            self._parts[column, group] = Part(self._store.get(self.key(column, group)))
        return self._parts[column, group]

    def bundle(self, group: int = 0) -> Part:
        """Return the bundle of a row group; it is written when the edit ends."""
        if group not in self._bundles:
            self._bundles[group] = Part(self._store.get(self.bundle_key(group)))
        return self._bundles[group]

    def key(self, column: int = 0, group: int = 0) -> str:
        """Return the key of the file of that superchunk."""
        line = self._lines_were[column]
        path = line["path"]
        return layout.part(tuple(path) if isinstance(path, list) else (path,), line["k"][group])

    def bundle_key(self, group: int = 0) -> str:
        """Return the key of the bundle of a row group."""
        return layout.part(layout.SHARED, self._head_was["bundles"]["k"][group])

    def seal(self) -> None:
        """Write everything that was opened, with new checksums."""
        truth, bundles = deepcopy(self._lines_were), deepcopy(self._head_was.get("bundles"))
        for (column, group), part in self._parts.items():
            data, facts = part.encode()
            self._store.put(self.key(column, group), data)
            for name, value in facts.items():
                truth[column][name][group] = value
            for name, size in part.sizes().items():
                entry = truth[column]["streams"].setdefault(name, [0] * len(truth[column]["k"]))
                entry[group] = size
        for group, part in self._bundles.items():
            data, facts = part.encode()
            self._store.put(self.bundle_key(group), data)
            for name, value in facts.items():
                bundles[name][group] = value
        if isinstance(self.head, dict) and "bundles" in self.head:
            known = self.head["bundles"], self._head_was.get("bundles") or {}, bundles or {}
            self.head["bundles"] = _followed(*known)
        lines = [
            as_text(_followed(line, was, true))
            for line, was, true in zip(self.lines, self._lines_were, truth, strict=True)
        ]
        first = as_text(self._head_of(lines, truth))
        sha = hashlib.sha256(first).hexdigest().encode("ascii")
        self._store.put(self._key, b"\n".join([first, sha, *lines, b""]))

    def _head_of(self, lines: list[bytes], truth: list[dict[str, Any]]) -> Any:
        """Return the head with the places of these lines."""
        if not isinstance(self.head, dict):
            return self.head
        places = _places(lines, truth)
        columns = _followed(self.head.get("columns"), self._head_was["columns"], places)
        return {**self.head, "columns": columns} if "columns" in self.head else self.head


def _places(lines: list[bytes], truth: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the head's facts of the columns' lines."""
    lengths = [len(line) for line in lines]
    digests = b"".join(hashlib.sha256(line).digest() for line in lines)
    return {
        "nbytes": [sum(map(sum, line["streams"].values())) for line in truth],
        "cbytes": [sum(line["cbytes"]) for line in truth],
        "offset": list(accumulate((length + 1 for length in lengths), initial=0))[: len(lines)],
        "length": lengths,
        "sha256": base64.b64encode(digests).decode("ascii"),
    }


def _followed(now: Any, was: Mapping[str, Any], truth: Mapping[str, Any]) -> Any:
    """Return `now`, with true values in place of those that the edit did not set."""
    if not isinstance(now, dict):
        return now
    return {k: truth[k] if k in truth and v == was.get(k) else v for k, v in now.items()}


def _named(names: tuple[str, ...], kind: struct.Struct, data: bytes, at: int) -> dict[str, Any]:
    return dict(zip(names, kind.unpack_from(data, at), strict=True))


def as_text(value: Any) -> bytes:
    """Return JSON as the writer writes it, but of any value; bytes are returned unchanged."""
    if isinstance(value, bytes):
        return value
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")
