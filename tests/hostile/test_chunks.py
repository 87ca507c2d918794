"""Chunks from an attacker who computes valid checksums: our error and no other.

Every table lies behind valid checksums (`support/tamper.py`). Another process reads it
(`support/hostile_reader.py`), and that process must live.
"""

import numpy as np
import pyarrow as pa
import pytest

import blztable as blz
from blztable.format.chunk import CHUNK_HEADER, EMPTY_CHUNK, ChunkHeader, Compression
from blztable.format.records import LENGTHS, VALUES
from support import tamper
from support.hostile_reader import WAYS, make, outcomes

pytestmark = pytest.mark.usefixtures("own_files")

NUMBERS = np.arange(1024, dtype="i8") ** 3
ITEMS = [b"item %d" % row * (row % 5) for row in range(20)]


@pytest.fixture
def path(tmp_path):
    """Make a part of plain numbers in one chunk."""
    return make(tmp_path / "t.blz", pa.table({"x": NUMBERS}), encoding="plain")


@pytest.fixture
def items(tmp_path):
    return make(tmp_path / "t.blz", pa.table({"x": ITEMS}), packing="per_item")


def refused(path, ways=WAYS):
    """Check that each way of reading raises an error of ours."""
    found = outcomes(path)
    assert all(found[way] and not found[way][0].startswith("!") for way in ways), found


def stored(nbytes: int, typesize: int = 8) -> bytes:
    """Return a chunk that stores its data uncompressed."""
    header = ChunkHeader(2, 1, 0x02 | 0x10, typesize, nbytes, nbytes, nbytes + 16)
    return header.encode() + bytes(nbytes)


@pytest.mark.parametrize(
    "lie",
    [
        *({"nbytes": value} for value in (0, 8191, 8193, 1 << 31, 0xFFFFFFFF)),
        *({"ctbytes": value} for value in (0, 16, 17, 8209, 0xFFFFFFFF)),
        *({"blocksize": value} for value in (0, 8193, 0xFFFFFFFF)),
        *({"typesize": value} for value in (0, 4, 255)),
        *({"version": value} for value in (0, 1, 3)),
        *({"version_lz": value} for value in (0, 2)),
        {"flags": 0x21 | 0x04},
        {"flags": 0x21 | 0x08},
        {"flags": 0x41},
        {"flags": 0xE1},
    ],
    ids=str,
)
def test_a_chunk_header_that_lies_is_refused_before_it_is_decoded(path, lie):
    with tamper.editing(path) as table:
        chunks = table.part().streams[VALUES].chunks
        chunks[0] = tamper.with_header(chunks[0], **lie)
    refused(path)


@pytest.mark.parametrize("seed", range(10))
def test_a_chunk_of_noise_is_refused_or_read(path, seed):
    with tamper.editing(path) as table:
        chunks = table.part().streams[VALUES].chunks
        noise = np.random.default_rng(seed).bytes(len(chunks[0]) - 16)
        chunks[0] = chunks[0][:16] + noise
    found = outcomes(path)
    assert not any(one and one[0].startswith("!") for one in found.values()), found


@pytest.mark.parametrize(
    "chunk",
    [b"", b"\2\1\1\1", EMPTY_CHUNK, stored(8184), stored(8200), stored(8192, 4), bytes(16)],
    ids=len,
)
def test_another_chunk_in_its_place_is_refused(path, chunk):
    with tamper.editing(path) as table:
        table.part().streams[VALUES].chunks[0] = chunk
    refused(path)


def test_a_chunk_that_is_stored_is_read(path):
    with tamper.editing(path) as table:
        table.part().streams[VALUES].chunks[0] = stored(8192)
    assert blz.read_table(path)["x"].to_pylist() == [0] * 1024


def test_a_bomb_is_refused_before_it_is_inflated(path):
    bomb = Compression("zstd", 9).compress(np.zeros(8 << 20, np.uint8), 8)
    with tamper.editing(path) as table:
        table.part().streams[VALUES].chunks[0] = bomb
    refused(path)


# The overflow of blosclz, C-Blosc #405.


def endless_match(nbytes: int, ctbytes: int) -> bytes:
    """Return a blosclz chunk with one match, whose length is as many 0xff bytes as fit."""
    header = ChunkHeader(2, 1, 0x10, 1, nbytes, nbytes, ctbytes).encode()
    body = (20).to_bytes(4, "little") + (ctbytes - 24).to_bytes(4, "little") + b"\x20a\xe0"
    return header + body + b"\xff" * (ctbytes - len(header) - len(body))


@pytest.mark.parametrize("nbytes", [1 << 17, 8 << 20])
def test_a_match_that_overflows_blosclz_is_refused(tmp_path, nbytes):
    zeros = np.zeros(nbytes, "u1")
    path = make(tmp_path / "t.blz", pa.table({"x": zeros}), encoding="plain", page_rows=1 << 20)
    for ctbytes in (nbytes + 16, 8_421_505 + 64):
        with tamper.editing(path) as table:
            stream = table.part().streams[VALUES]
            stream.chunks, stream.record["chunk"] = [endless_match(nbytes, ctbytes)], nbytes
        refused(path)


# One chunk an item.


@pytest.mark.parametrize("number", [1, 7, 19])
@pytest.mark.parametrize(
    "lie", [{"nbytes": 1 << 28}, {"nbytes": 0xFFFFFFFF}, {"nbytes": 3}, {"ctbytes": 17}], ids=str
)
def test_an_item_that_claims_another_size_is_refused(items, number, lie):
    with tamper.editing(items) as table:
        chunks = table.part().streams[VALUES].chunks
        chunks[number] = tamper.with_header(chunks[number], **lie)
    refused(items, ways=("table", "frame"))


def test_items_that_change_places_are_refused_or_have_one_length(items):
    with tamper.editing(items) as table:
        chunks = table.part().streams[VALUES].chunks
        chunks[1], chunks[2] = chunks[2], chunks[1]
    refused(items, ways=("table", "frame"))


@pytest.mark.parametrize("word", [0, -1, 1 << 62])
def test_offsets_of_items_that_are_not_those_of_the_record_are_refused(items, word):
    with tamper.editing(items) as table:
        table.part().streams[VALUES].words[0] = word
    refused(items, ways=("table", "frame"))


@pytest.mark.parametrize("name", [VALUES, LENGTHS])
def test_a_part_of_items_without_a_stream_is_refused(items, name):
    with tamper.editing(items) as table:
        del table.part().streams[name]
    refused(items)


def test_the_header_of_a_chunk_has_the_size_of_the_page():
    assert CHUNK_HEADER.size == len(EMPTY_CHUNK) == 16
