"""Chunks from an attacker who computes valid checksums: our error and no other.

Every table lies behind valid checksums (`support/tamper.py`). Another process reads it
(`support/hostile_reader.py`), and that process must live.
"""

import numpy as np
import pyarrow as pa
import pytest

import blztable as blz
from blztable.engine.read import batch, flat
from blztable.format.chunk import (
    CHUNK_HEADER,
    EMPTY_CHUNK,
    MAX_CHUNK_BYTES,
    ChunkHeader,
    Compression,
)
from blztable.format.records import LENGTHS, VALUES
from support import tamper
from support.hostile_reader import WAYS, assert_read, assert_refused, make, outcomes

pytestmark = pytest.mark.usefixtures("own_files")

NUMBERS = np.arange(1024, dtype="i8") ** 3
ZSTD = Compression("zstd", 9)
ZEROS = bytes(ZSTD.compress(np.zeros(MAX_CHUNK_BYTES, np.uint8), 8))
BYTES = bytes(ZSTD.compress(np.zeros(MAX_CHUNK_BYTES, np.uint8), 1))
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


def first_chunk(path, edit):
    """Replace the first chunk of the part by what an edit makes of it."""
    with tamper.editing(path) as table:
        chunks = table.part().streams[VALUES].chunks
        chunks[0] = edit(chunks[0])


@pytest.mark.parametrize(
    "lie",
    [
        *({"nbytes": value} for value in (0, 8191, 8193, 1 << 31, 0xFFFFFFFF)),
        *({"ctbytes": value} for value in (0, 16, 17, 8208, 8209, 0xFFFFFFFF)),
        *({"blocksize": value} for value in (0, 8193, 0xFFFFFFFF)),
        *({"typesize": value} for value in (0, 4, 255)),
        *({"version": value} for value in (0, 1, 3)),
        *({"version_lz": value} for value in (0, 2)),
        {"flags": 0x21 | 0x04},
        {"flags": 0x21 | 0x08},
    ],
    ids=str,
)
def test_a_chunk_header_that_lies_is_refused_before_it_is_decoded(path, lie):
    first_chunk(path, lambda chunk: tamper.with_header(chunk, **lie))
    assert_refused(path, blz.CorruptError, "a chunk header does not match")


def test_more_blocks_than_a_chunk_has_room_for_are_refused_before_it_is_decoded(path):
    first_chunk(path, lambda chunk: tamper.with_header(chunk, blocksize=1))
    assert_refused(path, blz.CorruptError, "cannot hold 8192 blocks")


@pytest.mark.parametrize("codec", [2, 5, 6, 7])
def test_a_codec_that_is_not_on_the_list_is_refused_before_it_is_decoded(path, codec):
    first_chunk(path, lambda chunk: tamper.with_header(chunk, flags=codec << 5 | 0x01))
    assert_refused(path, blz.FormatError, f"codec {codec}")


@pytest.mark.parametrize("codec", [0, 3, 4])
def test_a_chunk_under_the_name_of_another_codec_does_not_decompress(path, codec):
    first_chunk(path, lambda chunk: tamper.with_header(chunk, flags=codec << 5 | 0x01))
    assert_refused(path, blz.CorruptError, "does not decompress")


def test_a_chunk_that_says_it_is_stored_and_is_not_is_refused(path):
    first_chunk(
        path,
        lambda chunk: tamper.with_header(chunk, flags=ChunkHeader.decode(chunk).flags | 0x02),
    )
    assert_refused(path, blz.CorruptError, "an uncompressed chunk has")


def test_a_stored_chunk_that_is_longer_than_its_bytes_is_refused_unread(path):
    first_chunk(path, lambda chunk: stored(8192) + bytes(1))
    assert_refused(path, blz.CorruptError, "bytes of a compressed chunk")


def test_a_chunk_of_its_header_alone_is_refused(path):
    header = ChunkHeader(2, 1, 0x01 | 1 << 5, 8, 8192, 8192, 16)
    first_chunk(path, lambda chunk: header.encode())
    assert_refused(path, blz.CorruptError, "bytes of a compressed chunk")


@pytest.mark.parametrize("seed", range(3))
def test_a_chunk_of_garbage_does_not_decompress(path, seed):
    draw = np.random.default_rng(seed)
    first_chunk(path, lambda chunk: chunk[:16] + draw.bytes(len(chunk) - 16))
    assert_refused(path, blz.CorruptError, "does not decompress")


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


def test_a_chunk_that_claims_more_than_its_record_is_refused_before_it_is_decoded(path):
    """The chunk is valid and has 8 MiB, not 8 KiB; decoding it would crash the process."""
    first_chunk(path, lambda chunk: ZEROS)
    assert_refused(path, blz.CorruptError, "a chunk header does not match")


def test_chunks_that_changed_places_are_told(tmp_path):
    path = make(tmp_path / "t.blz", pa.table({"x": np.arange(1 << 16) ** 3}))
    with tamper.editing(path) as table:
        chunks = table.part().streams[VALUES].chunks
        assert len(chunks) > 2
    data = bytearray(chunks_file(path).read_bytes())
    sizes, at = [len(chunk) + 4 for chunk in chunks], len(data)
    at -= sum(sizes)
    first, second = data[at : at + sizes[0]], data[at + sizes[0] : at + sizes[0] + sizes[1]]
    data[at : at + sizes[0] + sizes[1]] = second + first
    chunks_file(path).write_bytes(data)
    assert_refused(path, blz.CorruptError, "chunk 0: crc32 is")


def chunks_file(path):
    (file,) = (path / "data").rglob("*.bin")
    return file


# Requested memory.


def claim(path, chunks) -> None:
    """Give the part these chunks, and claim 8 MiB for each."""
    with tamper.editing(path) as table:
        part, rows = table.part(), len(chunks) << 20
        stream = part.streams[VALUES]
        stream.chunks, stream.record["chunk"] = chunks, MAX_CHUNK_BYTES
        stream.record["nbytes"] = part.record["nbytes"] = 8 * rows
        part.record["rows"], part.record["page"], part.pages = rows, 30, part.pages[:1]
        groups = table.leaf().groups
        groups["rows"] = groups["stored"] = table.head["rows"] = rows


def test_a_chunk_that_claims_more_than_a_codec_can_give_is_refused_unread(path):
    claim(path, [ZEROS[:255]] * 1000)
    assert_refused(path, blz.CorruptError, "ratio of a chunk")


def test_a_file_that_claims_gigabytes_is_decoded_before_they_are_allocated(path):
    cut = tamper.with_header(ZEROS[:-16], ctbytes=len(ZEROS) - 16)
    claim(path, [ZEROS] + [cut] * 500)
    assert_refused(path, blz.CorruptError, "does not decompress", rows=(1 << 20, 2 << 20))


def test_columns_that_claim_gigabytes_together_are_decoded_before_they_are_allocated(
    tmp_path, monkeypatch
):
    """Many columns of one type are decoded as a matrix, whose memory is made at once."""
    made = []
    monkeypatch.setattr(batch._Columns, "allocate", made.append)
    for module in (batch, flat):
        monkeypatch.setattr(module, "DOUBTED_BYTES", 1 << 20)
    rows, columns = 32_000, 30
    table = pa.table({f"c{n}": np.zeros(1, "i8") + n for n in range(columns)})
    path = make(tmp_path / "t.blz", table)
    zeros = bytes(ZSTD.compress(np.zeros(8 * rows, np.uint8), 8))
    cut = tamper.with_header(zeros[:-4], ctbytes=len(zeros) - 4)
    with tamper.editing(path) as table:
        for column in range(columns):
            part = table.part(column)
            stream = part.streams[VALUES]
            stream.chunks = [cut]
            stream.record["chunk"] = stream.record["nbytes"] = 8 * rows
            part.record["rows"], part.record["page"] = rows, 30
        groups = table.leaf().groups
        groups["rows"] = groups["stored"] = table.head["rows"] = rows
    with pytest.raises(blz.CorruptError, match="does not decompress"):
        blz.read_table(path)
    assert made == []


def test_an_item_that_claims_gigabytes_is_decoded_before_they_are_allocated(tmp_path):
    path = make(tmp_path / "t.blz", pa.table({"x": pa.array([b"a"], pa.large_binary())}))
    cut = tamper.with_header(BYTES[:-16], ctbytes=len(BYTES) - 16)
    nbytes = 501 * MAX_CHUNK_BYTES
    with tamper.editing(path) as table:
        part = table.part()
        stream, lengths = part.streams[VALUES], part.streams[LENGTHS]
        stream.chunks, stream.record["chunk"] = [BYTES] + [cut] * 500, MAX_CHUNK_BYTES
        stream.record["nbytes"] = nbytes
        lengths.words = np.array([0, nbytes, nbytes])
    assert_refused(path, blz.CorruptError, "does not decompress", rows=(0, 1))


def test_a_file_that_means_what_it_claims_is_read(path):
    """The file has more than a thousand times its size in data, more than is believed unchecked."""
    claim(path, [ZEROS] * 20)
    assert_read(path, rows=(1 << 20, (1 << 20) + 8))


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
