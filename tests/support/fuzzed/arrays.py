"""Arrays: files of SuperChunk and of Bloscpack, taken apart, changed and put together again.

Checksums, lengths and places are made right again, unless a change sets them. Some files get a
whole journal behind their end.
"""

import io
import json
import random
import struct
import zlib
from copy import deepcopy
from itertools import accumulate, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

import blztable as blz
from blztable.arrays.files.front import Front
from blztable.arrays.files.info import ArrayInfo
from blztable.arrays.files.trailer import METALAYER_HEAD, TRAILER_FOOT, TRAILER_HEAD
from blztable.format.bloscpack import HEADER
from blztable.format.checksums import BY_NAME, CHECKSUMS, crc32
from blztable.format.chunk import CHUNK_HEADER
from blztable.storage.journal import ENTRY, FOOT, FOOT_MAGIC, HEAD, HEAD_MAGIC
from golden.sets import unpacked
from support.bloscpack_files import file_of
from support.fuzzed.changes import WORDS, as_text, number, pieces_of
from support.fuzzed.parts import (
    RawLayer,
    bytes_of_a_chunk,
    digests,
    followed,
    header,
    header_of_a_chunk,
    layers,
    metadata,
    named,
    offsets,
    order_of_chunks,
    text_of_metadata,
    trailer,
    values_of_a_chunk,
)

Random = random.Random

TRAILER_FIELDS = ("magic", "version", "nlayers", "reserved", "nchunks")
FOOT_FIELDS = ("crc", "length", "magic")
HEADER_FIELDS = ("magic", "version", "options", "checksum", "typesize")
HEADER_FIELDS += ("chunk_size", "last_chunk", "nchunks", "tail")
SECTION_FIELDS = ("magic", "options", "checksum", "codec", "level", "size", "room", "stored", "end")
# With the reserved bytes.
SECTION = struct.Struct("<8sBBBBIII8s")
# Dtypes as metadata have them.
NAMED = ["'<i8'", "'|u1'", "'<U1'", "'<M8[Y]'", "varchar", "'|O'", "'<f2'", "'|b1'"]
NAMED += ["[('a', '<i4'), ('b', '<f4')]", "[('a', '<i4', (2,))]"]
# A large array in these files would only make the cases slow.
MOST_BYTES = 100_000
# Items of more bytes are not read as a whole.
MOST_READ = 16 << 20
DTYPES = ["i1", "<u2", ">i4", "f8", "c16", "S3", "U2", "?", "M8[us]", "i4,f8", "V7"]


def seeds(only: str = "") -> dict[str, bytes]:
    """Return the golden files, and arrays of every kind of dtype and form."""
    files = [file for name in ("arrays", "bloscpack") for file in unpacked(name).glob("*.blp")]
    found = {path.stem: path.read_bytes() for path in sorted(files)}
    for checksum in (0, 2, 8):
        shape = {"dtype": "'<f8'", "shape": [40, 5], "order": "C", "container": "numpy"}
        raw = np.arange(200.0).tobytes()
        for version in (3, 4):
            name = f"foreign {version} {checksum}"
            found[name] = file_of(raw, version=version, checksum=checksum, metadata=shape, room=3)
    for dtype in DTYPES:
        values = np.arange(60).astype("u1").repeat(np.dtype(dtype).itemsize).view(dtype)
        values = np.zeros(60, dtype) if np.dtype(dtype).kind == "U" else values
        for order, chunks in (("C", (7, 3)), ("F", (7, 2))):
            if np.dtype(dtype).kind == "b":
                values = values.view("u1").astype(bool)
            file = io.BytesIO()
            with blz.SuperChunk.create(
                file, dtype, (0, 3), chunk_shape=chunks, order=order, expectedlen=40, reserve=30
            ) as array:
                array.append(values.reshape(20, 3))
                array.attrs["unit"] = "mm"
                array.vlmeta["note"] = b"x" * 300
            found[f"{dtype} {order}"] = file.getvalue()
    short = {name: data for name, data in found.items() if len(data) <= MOST_BYTES}
    return {name: data for name, data in short.items() if name.startswith(only)}


class Pieces:
    """The pieces of a file, as `tamper.Part` has those of a part of a table."""

    def __init__(self, data: bytes) -> None:
        self.header: dict[str, Any] = named(HEADER_FIELDS, HEADER, data, 0)
        at = HEADER.size
        self.section: dict[str, Any] = {}
        self.metadata: Any = b""
        self.text_room = 0
        if self.header["options"] & 2:
            at = self._read_metadata(data, at)
        self.offsets: list[int] = []
        if self.header["options"] & 1:
            room = max(self.header["nchunks"], 0)
            room += self.header["tail"] if self.header["version"] == 3 else 0
            with_room = self.metadata.get("blz") if isinstance(self.metadata, dict) else None
            room = with_room["room"] if with_room else room
            self.offsets = list(struct.unpack_from(f"<{room}q", data, at))
            at += 8 * room
        size = CHECKSUMS[self.header["checksum"]].size
        self.chunks, self.digests = [], []
        while len(data) - at >= CHUNK_HEADER.size and data[at : at + 8] != b"blztrail":
            length = CHUNK_HEADER.unpack_from(data, at)[-1]
            self.chunks.append(data[at : at + length])
            self.digests.append(data[at + length : at + length + size])
            at += length + size
        self.layers: list[RawLayer] = []
        self.has_trailer = data[at : at + 8] == b"blztrail"
        self.trailer_head: dict[str, Any] = {}
        self.foot: dict[str, Any] = {}
        if self.has_trailer:
            self._read_trailer(data, at)
        else:
            self.trailer_head = dict(zip(TRAILER_FIELDS, (b"blztrail", 1, 0, 0, 0), strict=True))
            self.foot = dict(zip(FOOT_FIELDS, (0, 0, b"blzt-end"), strict=True))
        self._was = deepcopy(vars(self))

    def _read_metadata(self, data: bytes, at: int) -> int:
        if data[at : at + 4] == b"JSON":
            self.section = named(SECTION_FIELDS, SECTION, data, at)
            at += SECTION.size
            text = data[at : at + self.section["stored"]]
            text = zlib.decompress(text) if self.section["codec"] else text
            self.text_room = self.section["room"]
            at += CHECKSUMS[self.section["checksum"]].size
        else:
            self.text_room = self.header["tail"]
            text = data[at : at + self.text_room]
        self.metadata = json.loads(text)
        return at + self.text_room

    def _read_trailer(self, data: bytes, at: int) -> None:
        self.trailer_head = named(TRAILER_FIELDS, TRAILER_HEAD, data, at)
        at += TRAILER_HEAD.size
        for _ in range(self.trailer_head["nlayers"]):
            name, codec, reserved, nbytes, stored = METALAYER_HEAD.unpack_from(data, at)
            at += METALAYER_HEAD.size
            body = data[at : at + name + stored]
            self.layers.append(RawLayer(body[:name], codec, nbytes, body[name:], reserved))
            at += name + stored
        self.foot = named(FOOT_FIELDS, TRAILER_FOOT, data, len(data) - TRAILER_FOOT.size)

    def encode(self) -> bytes:
        """Return the file."""
        size = CHECKSUMS[self.header["checksum"]].size if self.header["checksum"] < 9 else 4
        found = self.digests
        if found == self._was["digests"] and self.header["checksum"] < 9:
            found = [CHECKSUMS[self.header["checksum"]].digest(chunk) for chunk in self.chunks]
        pieces = [one + digest for one, digest in zip_longest(self.chunks, found, fillvalue=b"")]
        # A text of another length moves everything, so its length must be known before.
        text = as_text(self.metadata) if self.section or self.text_room else b""
        room = max(self.text_room, len(text))
        begin = HEADER.size + room + 8 * len(self.offsets)
        begin += SECTION.size + 4 if self.section else 0
        places = list(accumulate(map(len, pieces), initial=begin))
        moved = self.offsets
        if moved == self._was["offsets"]:
            moved = [*places[:-1], *[-1] * len(moved)][: len(moved)]
        body = self._body(struct.pack(f"<{len(places) - 1}q", *places[:-1]), found, size)
        length = len(body) + TRAILER_FOOT.size
        text = as_text(self._placed(places[-1], length)) if text else b""
        front = self._header(room) + self._text(text[:room], room)
        front += struct.pack(f"<{len(moved)}q", *moved)
        data = front + b"".join(pieces)
        if not self.has_trailer:
            return data
        foot = {"crc": crc32(body, crc32(front)), "length": length}
        foot = followed(self.foot, self._was["foot"], foot)
        return data + body + TRAILER_FOOT.pack(*foot.values())

    def _header(self, room: int) -> bytes:
        truth = {"nchunks": len(self.chunks)} if self._was["header"]["nchunks"] >= 0 else {}
        if self.header["version"] == 4:
            truth["tail"] = room
        elif self.header["version"] == 3:
            truth["tail"] = max(len(self.offsets) - len(self.chunks), 0)
        values = followed(self.header, self._was["header"], truth)
        return HEADER.pack(*values.values())

    def _text(self, text: bytes, room: int) -> bytes:
        if not self.section:
            return text.ljust(room)
        packed = zlib.compress(text) if self.section["codec"] == 1 else text
        packed = packed if len(packed) <= room else text
        sizes = {"size": len(text), "room": room, "stored": len(packed)}
        sizes |= {"checksum": BY_NAME["adler32"].id}
        sizes |= {"codec": int(packed is not text)} if self.section["codec"] < 2 else {}
        section = followed(self.section, self._was["section"], sizes)
        digest = BY_NAME["adler32"].digest(packed)
        return SECTION.pack(*section.values()) + packed.ljust(room, b"\0") + digest

    def _placed(self, at: int, length: int) -> Any:
        """Return the metadata with the place of the trailer."""
        found, was = self.metadata, self._was["metadata"]
        if not (
            self.has_trailer and isinstance(found, dict) and isinstance(found.get("blz"), dict)
        ):
            return found
        blz_, was = found["blz"], was["blz"]
        if blz_.get("trailer") != was["trailer"] or not any(was["trailer"]):
            return found
        return {**found, "blz": {**blz_, "trailer": [at, length]}}

    def _body(self, places: bytes, found: list[bytes], size: int) -> bytes:
        for layer in self.layers:
            if layer.name == b"blz.offsets" and layer in self._was["layers"]:
                layer.codec, layer.nbytes, layer.stored = 0, len(places), places
        counts = {"nlayers": len(self.layers), "nchunks": len(self.chunks) if size else 0}
        head = followed(self.trailer_head, self._was["trailer_head"], counts)
        tails = [layer.encode() for layer in self.layers]
        return b"".join([TRAILER_HEAD.pack(*head.values()), *tails, *found])


def shapes(random: Random, part: Pieces) -> str:
    """Change what the metadata say of the array, and make the header that this needs."""
    try:
        name = random.choice(["shape", "shape", "chunkshape", "dtype", "order", "blz"])
        value = deepcopy(part.metadata[name])
        if isinstance(value, list) and value:
            axis = random.randrange(len(value))
            near = [value[axis] + 1, value[axis] - 1, *value, number(random, value[axis])]
            value[axis] = random.choice(near)
            if random.random() < 0.2:
                value = random.choice([[*value, 1], value[1:], value[::-1]])
        elif name == "dtype":
            value = random.choice(
                ["'<i8'", "'|u1'", "'<U1'", "'<M8[Y]'", "varchar", "'|O'", "'<f2'"]
            )
            value = random.choice([value, "[('a', '<i4'), ('b', '<f4')]", "[('a', '<i4', (2,))]"])
        elif name == "order":
            value = random.choice("CFA")
        else:
            key = random.choice(list(value))
            value[key] = random.choice([number(random, 3), "", "str", "bytes", 0.5, None, *WORDS])
        part.metadata[name] = value
        said = f"{name}: {value!s:.80}"
    except (KeyError, TypeError, AttributeError, IndexError):
        return "no array"
    with_header(part)
    return said


def with_header(part: Pieces) -> None:
    """Give the file the header that its metadata need, if there is one."""
    try:
        info = ArrayInfo.from_json(part.metadata)
        is_stream = part._was["header"]["nchunks"] < 0
        checksum = CHECKSUMS[part.header["checksum"]]
        front = Front(part.header["version"], checksum, info, part.text_room, is_stream)
        made = front.header()
        part.header |= {name: getattr(made, name) for name in HEADER_FIELDS[2:]}
        HEADER.pack(*part.header.values())
    except (blz.BlzError, struct.error, ArithmeticError, IndexError, TypeError, MemoryError):
        part.header = deepcopy(part._was["header"])


def sections(random: Random, part: Pieces) -> str:
    """Change a field of the metadata section."""
    if not part.section:
        return "none"
    name = random.choice(["options", "checksum", "codec", "level", "size", "room", "stored"])
    bits = 8 if name in SECTION_FIELDS[1:5] else 32
    part.section[name] = number(random, part.section[name]) % (1 << bits)
    return f"{name} {part.section[name]}"


OF_PIECES = [
    *([values_of_a_chunk] * 4 + [bytes_of_a_chunk] * 2 + [metadata] * 3 + [shapes] * 6),
    header_of_a_chunk,
    order_of_chunks,
    offsets,
    digests,
    header,
    header,
    text_of_metadata,
    trailer,
    layers,
    layers,
    sections,
    sections,
]


def with_journal(random: Random, data: bytes, other: bytes) -> tuple[bytes, str]:
    """Return the file with a whole journal: changes of bytes, or all of another file."""
    writes: list[tuple[int, bytes]] = []
    end = len(data)
    if random.random() < 0.3:
        writes, end = [(0, other)], len(other)
    for _ in range(random.choice([0, 1, 1, 3])):
        at = random.randrange(len(data))
        size = random.choice([1, 8, 32, 300])
        changed = pieces_of(random, data[at : at + size])
        writes.append((at, changed))
    count, new_end = len(writes), random.choice([end, end, end, number(random, end) % (1 << 64)])
    if random.random() < 0.2:
        count = number(random, count) % (1 << 32)
    body = HEAD.pack(HEAD_MAGIC, count, new_end)
    for at, new in writes:
        at, length = at, len(new)
        if random.random() < 0.1:
            at, length = number(random, at) % (1 << 64), number(random, length) % (1 << 64)
        body += ENTRY.pack(at, length) + new
    start = max(len(data), min(new_end, len(data) + 5000))
    place = start if random.random() < 0.9 else number(random, start) % (1 << 64)
    foot = FOOT.pack(place, new_end, crc32(body), FOOT_MAGIC)
    return data.ljust(start, b"\0") + body + foot, f"journal of {count} to {new_end}"


def mutated(random: Random, seeds: dict[str, bytes]) -> tuple[bytes, list[str]]:
    """Return a file with a few changes behind right checksums, or with damage."""
    name = random.choice(sorted(seeds))
    data, done = seeds[name], [name]
    if random.random() < 0.2 or data[4] == 1:
        data = pieces_of(random, data)
        done.append("damaged")
    else:
        part = Pieces(data)
        for _ in range(random.choice([1, 1, 1, 2, 3])):
            mutate = random.choice(OF_PIECES)
            done.append(f"{mutate.__name__}: {mutate(random, part)}")
        try:
            data = part.encode()
        except (struct.error, OverflowError):
            done.append("cannot be written")
    if data and random.random() < 0.2:
        data, said = with_journal(random, data, seeds[random.choice(sorted(seeds))])
        done.append(said)
    return data, done


def save(data: bytes, path: Path) -> None:
    """Save the file."""
    (path / "a.blp").write_bytes(data)


def read_all(random: Random, data: bytes) -> str:
    """Read in every way, and change; return the outcome, or an unexpected exception."""
    outcomes = {outcome(lambda way=way: way(random, data)) for way in (whole, recovered, changed)}
    return "read" if outcomes == {"read"} else "refused" if "read" not in outcomes else "both"


def outcome(read: Any) -> str:
    try:
        read()
    except blz.BlzError:
        return "refused"
    return "read"


def whole(random: Random, data: bytes) -> None:
    with blz.SuperChunk.open(data) as array:
        repr(array)
        _ = (array.shape, array.dtype, array.chunk_shape, array.order, array.nchunks, array.cbytes)
        _ = (dict(array.attrs), dict(array.meta), dict(array.vlmeta))
        if array.nbytes > MOST_READ:
            return
        report = array.verify()
        found = array.to_numpy()
        assert report or not found.size, "verify reports what a read does not"
        assert found.shape == array.shape
        assert found.dtype == array.dtype
        outcome(array.to_arrow)
        outcome(array.tobytes)
        if not array.shape:
            return
        cut = tuple(
            slice(*sorted(random.randrange(size + 1) for _ in "ab")) for size in found.shape
        )
        assert same(array[cut], found[cut]), "a slice differs"
        rows = [random.randrange(len(found)) for _ in range(3)] if len(found) else []
        if rows:
            assert same(array[rows], found[rows]), "rows differ"
        if 0 < len(found) < 1000:
            rows_ = zip(array, found, strict=True)
            assert all(same(np.asarray(one), np.asarray(row)) for one, row in rows_), "rows differ"


def recovered(random: Random, data: bytes) -> None:
    with blz.SuperChunk.recover(data) as array:
        if array.nbytes <= MOST_READ:
            array.to_numpy()


def changed(random: Random, data: bytes) -> None:
    """Change an array from an attacker; what a change returned from can be read."""
    file = io.BytesIO(data)
    with blz.SuperChunk.open(file, "a") as array:
        # Floats of an attacker may have more digits than the file states.
        if array.nbytes > MOST_READ or array._opened.array.front.info.decimals is not None:
            return
        before = array.to_numpy()
        match random.randrange(6):
            case 0:
                array.append(before[:2])
                before = np.concatenate([before, before[:2]])
            case 1:
                rows = random.randrange(len(before) + 1)
                array.resize(rows)
                before = before[:rows]
            case 2 if len(before):
                row = random.randrange(len(before))
                array[row] = before[0]
                before = before.copy()
                before[row] = before[0]
            case 3:
                array.rewrite(reserve=random.choice([0, 0.5, 20]))
            case 4:
                array.vlmeta["new"] = b"x" * random.randrange(2000)
            case _:
                array.attrs["new"] = list(range(random.randrange(200)))
    try:
        with blz.SuperChunk.open(file.getvalue()) as array:
            assert same(array.to_numpy(), before), "what was changed differs"
    except blz.BlzError as error:
        raise AssertionError("what was changed cannot be read") from error


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """True for the same items; NaN and padding count as bytes."""
    if one.dtype.hasobject:
        return one.tolist() == other.tolist()
    return one.shape == other.shape and one.tobytes() == other.astype(one.dtype).tobytes()
