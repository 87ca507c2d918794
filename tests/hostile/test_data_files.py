"""Data files from an attacker who computes valid checksums: our error, or values, and no other.

Each field of the front, of the metadata, of the offsets and of the chunks is set to wrong values,
and everything around it is made right again.
"""

import functools
import json
import struct
import time
import tracemalloc
import zlib
from random import Random

import numpy as np
import pyarrow as pa
import pytest

import blztable as blz
from blztable.format.checksums import crc32
from blztable.format.chunk import Compression
from blztable.format.data_file import MAX_NUMBERS, DataFile
from support.data_files import file_of

HEADER = struct.Struct("<4sBBBBiiqq")
SECTION = struct.Struct("<8sBBBBIIIQ")
HEADER_FIELDS = ("magic", "version", "options", "checksum", "typesize", "chunk_size", "last_chunk")
HEADER_FIELDS = (*HEADER_FIELDS, "nchunks", "free")
SECTION_FIELDS = ("magic", "options", "checksum", "codec", "level", "size", "room", "stored", "end")
NOISE = np.random.default_rng(1)
TEXTS = [f"text {row}" * (row % 5) for row in range(300)]
FORMS = {
    "plain": [pa.array(NOISE.integers(-(1 << 62), 1 << 62, 900))],
    "codes": [pa.array(NOISE.integers(1000, 1255, 5000))],
    "sums": [pa.array(np.cumsum(NOISE.integers(0, 9, 5000)))],
    "decimals": [pa.array(np.append(NOISE.integers(0, 10_000, 5000) / 100, [1 / 3, np.inf]))],
    "constant": [pa.array(np.full(5000, 7.5))],
    "few": [pa.array(NOISE.choice(NOISE.random(100), 5000))],
    "nulls": [pa.array([None if row % 3 == 0 else row * 1000 for row in range(900)])],
    "text": [pa.array(TEXTS)],
    "words": [pa.array(NOISE.choice(["rail", "air", "ship"], 5000))],
    "items": [pa.array([*TEXTS[:20], None])],
    "lists": [pa.array([[1] * (row % 4) for row in range(900)])],
    "two": [pa.array([1, 2, 3]), pa.array(["a", "b", None])],
}
# No case may take more memory or time.
MOST_BYTES, MOST_SECONDS = 64 << 20, 5.0


@functools.cache
def made(form):
    return file_of(*FORMS[form], per_item=form == "items")


class Pieces:
    """A data file taken apart; `encode` makes right again what was not changed."""

    def __init__(self, data):
        self.header = dict(zip(HEADER_FIELDS, HEADER.unpack_from(data), strict=True))
        self.section = dict(zip(SECTION_FIELDS, SECTION.unpack_from(data, 32), strict=True))
        self.was = dict(self.header), dict(self.section)
        stored = data[64 : 64 + self.section["stored"]]
        self.metadata = json.loads(zlib.decompress(stored) if self.section["codec"] else stored)
        at = 68 + self.section["room"]
        count = self.header["nchunks"]
        self.offsets = list(struct.unpack_from(f"<{count}q", data, at))
        ends = [*self.offsets[1:], len(data)][: len(self.offsets)]
        self.chunks = [data[start : end - 4] for start, end in zip(self.offsets, ends, strict=True)]
        self.digests = [data[end - 4 : end] for end in ends]
        self.moves = {}

    def encode(self):
        metadata = self.metadata
        text = metadata if isinstance(metadata, bytes) else json.dumps(metadata).encode()
        packed = zlib.compress(text, 1) if self.section["codec"] == 1 else text
        sizes = {"size": len(text), "room": len(packed), "stored": len(packed)}
        counts = {"nchunks": len(self.chunks)}
        section = self._made(self.section, self.was[1], sizes)
        header = self._made(self.header, self.was[0], counts)
        digests = [
            crc32(chunk).to_bytes(4, "little") if digest is not None else b"\1\2\3\4"
            for chunk, digest in zip(self.chunks, self.digests, strict=True)
        ]
        at = 68 + len(packed) + 8 * len(self.chunks)
        offsets = []
        for number, chunk in enumerate(self.chunks):
            offsets.append(at + self.moves.get(number, 0))
            at += len(chunk) + 4
        front = HEADER.pack(*header.values()) + SECTION.pack(*section.values())
        front += packed + crc32(packed).to_bytes(4, "little")
        body = b"".join(map(bytes.__add__, self.chunks, digests))
        return front + struct.pack(f"<{len(offsets)}q", *offsets) + body

    @staticmethod
    def _made(fields, was, truth):
        return {
            name: truth.get(name, fields[name]) if fields[name] == was[name] else fields[name]
            for name in fields
        }


def tried(data):
    """Read a file in both ways; return what came: "values", "refused" or, wrongly, something else.

    Neither way may take long, or much memory.
    """
    results = []
    for read in (DataFile.decode, _values):
        begin = time.monotonic()
        tracemalloc.start()
        try:
            read(data)
            results.append("values")
        except blz.BlzError:
            results.append("refused")
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert peak < MOST_BYTES, peak
        assert time.monotonic() - begin < MOST_SECONDS
    return results


def _values(data):
    with blz.SuperChunk.open(data) as part:
        part[5:9]
        return part.to_numpy()


@pytest.mark.parametrize("form", FORMS)
def test_what_is_not_changed_is_read(form):
    whole = Pieces(made(form))
    expected = ["values", "refused" if form == "two" else "values"]
    assert tried(whole.encode()) == expected
    assert tried(made(form)) == expected


VALUES = (0, 1, 2, 3, 4, 5, 7, 8, 16, 64, 127, 128, 255)
LARGE = (256, 1 << 16, (1 << 31) - 1, -1, -2, -(1 << 31))
LARGER = (1 << 32, 1 << 44, (1 << 62) - 1, (1 << 63) - 1, -(1 << 63))


@pytest.mark.parametrize("form", ["plain", "text", "constant", "two"])
def test_no_other_header_is_taken(form):
    for name in HEADER_FIELDS[1:]:
        values = VALUES + (LARGE if name in HEADER_FIELDS[5:] else ())
        values += LARGER if name in HEADER_FIELDS[7:] else ()
        for value in values:
            pieces = Pieces(made(form))
            if pieces.header[name] == value:
                continue
            pieces.header[name] = value
            data = pieces.encode()
            # What it says of its chunks belongs to them, so no field may lie.
            assert tried(data)[0] == "refused", (name, value)
            assert tried(data)[1] == "refused" or name == "options" or data[4] < 3


@pytest.mark.parametrize("form", ["plain", "text", "two"])
def test_no_other_header_of_the_metadata_is_taken(form):
    for name in SECTION_FIELDS[1:]:
        values = VALUES + ((256, 1 << 16, (1 << 32) - 1) if name in SECTION_FIELDS[5:] else ())
        for value in values:
            pieces = Pieces(made(form))
            if pieces.section[name] == value:
                continue
            pieces.section[name] = value
            assert tried(pieces.encode())[0] == "refused", (name, value)


OTHERS = [None, True, "x", "", [], {}, -1, 0, 1.5, [0], [[0]], {"a": 1}, [None], 1 << 62, "é" * 99]


def spots(value, path=()):
    """Yield the path of each value in JSON, of a long list only some."""
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from spots(value[key], (*path, key))
    elif isinstance(value, list):
        for index in sorted({0, 1, len(value) // 2, len(value) - 1} & {*range(len(value))}):
            yield from spots(value[index], (*path, index))


def put(root, path, value):
    if not path:
        return value
    inner = root
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return root


def at(root, path):
    for key in path:
        root = root[key]
    return root


# Some values for each place: all would take minutes.
@pytest.mark.parametrize("count", [3, pytest.param(100, marks=pytest.mark.storm)])
@pytest.mark.parametrize("form", FORMS)
def test_any_other_value_in_the_metadata_is_refused_or_harmless(form, count):
    random = Random(form)
    for path in [*spots(Pieces(made(form)).metadata)]:
        old = at(Pieces(made(form)).metadata, path)
        others = [*VALUES, *LARGE, *LARGER, 1 << 64, 10**30] if type(old) is int else OTHERS
        for value in random.sample(others, min(count, len(others))):
            pieces = Pieces(made(form))
            pieces.metadata = put(pieces.metadata, path, value)
            tried(pieces.encode())


@pytest.mark.parametrize("form", FORMS)
def test_a_key_that_is_missing_is_refused(form):
    metadata = Pieces(made(form)).metadata
    for path in [one for one in spots(metadata) if one and isinstance(one[-1], str)]:
        pieces = Pieces(made(form))
        inner = at(pieces.metadata, path[:-1])
        del inner[path[-1]]
        assert tried(pieces.encode()) == ["refused"] * 2 or path[0] in ("uuid", "number", "nodes")


@pytest.mark.parametrize("form", FORMS)
def test_a_list_of_another_length_is_refused_or_harmless(form):
    metadata = Pieces(made(form)).metadata
    for path in [one for one in spots(metadata) if isinstance(at(metadata, one), list)]:
        for change in (
            lambda one: one[:-1],
            lambda one: one + (one[-1:] or [0]),
            lambda one: one * 2,
        ):
            pieces = Pieces(made(form))
            pieces.metadata = put(pieces.metadata, path, change(at(pieces.metadata, path)))
            tried(pieces.encode())


@pytest.mark.parametrize("form", ["plain", "text", "items", "two"])
@pytest.mark.parametrize("move", [-1, 1, 8, -(1 << 20), 1 << 20, 1 << 40, -(1 << 62)])
def test_an_offset_that_leads_elsewhere_is_refused(form, move):
    for number in range(len(Pieces(made(form)).chunks)):
        pieces = Pieces(made(form))
        pieces.moves[number] = move
        assert tried(pieces.encode()) == ["refused"] * 2


@pytest.mark.parametrize("form", ["plain", "text", "items", "two"])
def test_a_digest_that_lies_is_refused(form):
    for number in range(len(Pieces(made(form)).chunks)):
        pieces = Pieces(made(form))
        pieces.digests[number] = None
        assert tried(pieces.encode())[0] == "refused"
        if form != "items":
            assert tried(pieces.encode())[1] == "refused"


def test_chunks_that_were_moved_are_refused_or_of_the_same_size():
    for form in FORMS:
        count = len(Pieces(made(form)).chunks)
        for number in range(count):
            for change in ("swap", "drop", "double"):
                pieces = Pieces(made(form))
                other = (number + 1) % count
                if change == "swap":
                    chunks = pieces.chunks
                    chunks[number], chunks[other] = chunks[other], chunks[number]
                elif change == "drop":
                    del pieces.chunks[number], pieces.digests[number]
                else:
                    pieces.chunks.insert(number, pieces.chunks[number])
                    pieces.digests.insert(number, pieces.digests[number])
                found = tried(pieces.encode())
                assert change == "swap" or found == ["refused"] * 2


@pytest.mark.parametrize("form", FORMS)
def test_a_header_of_a_chunk_that_lies_is_refused(form):
    count = len(Pieces(made(form)).chunks)
    for number in sorted({0, 1, count - 1} & {*range(count)}):
        # Version, flags, typesize and the bytes of a block; all readers take some of these.
        for place, size in ((0, 1), (2, 1), (3, 1), (8, 4)):
            for value in (0, 1, 3, 0x0F, 0xFF):
                tried(with_number(form, number, place, size, value))
        for place in (4, 12):
            for value in (0, 1, 15, 16, 17, 1 << 20, 1 << 28, 1 << 31, (1 << 32) - 1):
                data = with_number(form, number, place, 4, value)
                # The size of an item is said by its chunk alone.
                is_same = data == Pieces(made(form)).encode()
                assert is_same or tried(data)[1] == "refused" or form == "items"


def with_number(form, number, place, size, value):
    """Return a file with another number in the header of a chunk."""
    pieces = Pieces(made(form))
    chunk = bytearray(pieces.chunks[number])
    chunk[place : place + size] = (value % (1 << 8 * size)).to_bytes(size, "little")
    pieces.chunks[number] = bytes(chunk)
    return pieces.encode()


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_is_cut_or_longer_is_refused(form):
    data = made(form)
    step = max(len(data) // 50, 1)
    for length in [*range(0, 100, 3), *range(100, len(data), step)]:
        assert tried(data[:length]) == ["refused"] * 2
    assert tried(data + b"\0") == ["refused"] * 2


@pytest.mark.parametrize("form", FORMS)
def test_random_bytes_of_streams_are_values_or_refused(form):
    for seed in range(15):
        noise = np.random.default_rng(seed)
        pieces = Pieces(made(form))
        for number, chunk in enumerate(pieces.chunks):
            nbytes = int.from_bytes(chunk[4:8], "little")
            if nbytes:
                raw = noise.integers(0, noise.choice([2, 256]), nbytes).astype("u1")
                pieces.chunks[number] = Compression().compress(raw, chunk[3])
        tried(pieces.encode())


def test_more_numbers_than_any_file_has_are_not_parsed():
    pieces = Pieces(made("plain"))
    text = json.dumps(pieces.metadata)
    pieces.metadata = text.replace('"words": []', '"words": [' + "0," * MAX_NUMBERS + "0]").encode()
    pieces.section["codec"], pieces.section["level"] = 1, 1
    data = pieces.encode()
    assert len(data) < 1 << 20
    begin = time.monotonic()
    with pytest.raises(blz.LimitError, match="numbers"):
        DataFile.decode(data)
    assert time.monotonic() - begin < 1


def test_a_part_of_more_rows_than_memory_has_is_refused():
    pieces = Pieces(made("constant"))
    pieces.metadata["parts"]["rows"] = [1 << 39]
    pieces.metadata["parts"]["page"] = [30]
    pages = pieces.metadata["pages"]
    pieces.metadata["pages"] = {name: values[:1] * 512 for name, values in pages.items()}
    pieces.metadata["parts"]["pages"] = [512]
    with blz.SuperChunk.open(pieces.encode()) as part:
        assert part.shape == (1 << 39,)
        with pytest.raises(blz.LimitError, match="memory"):
            part.to_numpy()
        assert part[:5].tolist() == [7.5] * 5
