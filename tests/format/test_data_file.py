"""A data file explains itself: its records come back from it alone, and bloscpack opens it."""

import blosc
import numpy as np
import pytest

from blztable.errors import BlzError
from blztable.format.checksums import crc32
from blztable.format.chunk import EMPTY_CHUNK
from blztable.format.data_file import DataFile
from blztable.format.records import (
    CHUNK,
    CONSTANT,
    ITEM_CHUNKS,
    LENGTHS,
    NUMBERS,
    PAGE,
    PART,
    PER_ITEM,
    PLAIN,
    STREAM,
    VALUES,
    WORD,
    Records,
    stack,
)
from support.bloscpack_reference import bloscpack_bytes

UUID = "00112233-4455-6677-8899-aabbccddeeff"


def numbers(rows=500, chunk=1 << 10):
    """Return the records of a part of plain numbers, and its chunks."""
    values = np.arange(rows, dtype="<i8")
    chunks = [
        blosc.compress(values[at : at + chunk // 8].tobytes(), 8)
        for at in range(0, rows, chunk // 8)
    ]
    stream = np.array([(8 * rows, chunk, 0, VALUES, PLAIN, 0, 0, 0, 8, 0)], STREAM)
    return described(rows, stream, chunks, prefix=2), chunks


def constant(rows=500):
    stream = np.array([(0, 0, 1, VALUES, CONSTANT, 0, 0, 0, 8, 0)], STREAM)
    return described(rows, stream, [], words=[-7]), []


def items():
    """Return the records of a part with one chunk an item, of which one is empty."""
    lengths = blosc.compress(b"\2\0\3", 1)
    chunks = [lengths, blosc.compress(b"ab", 1), EMPTY_CHUNK, blosc.compress(b"cde", 1)]
    streams = np.array(
        [
            (5, 0, 1, VALUES, PER_ITEM, 0, 0, 0, 1, 0),
            (3, 8, 2, LENGTHS, NUMBERS, 1, 0, 1, 1, 0),
        ],
        STREAM,
    )
    chunks = [*chunks[1:], lengths]
    return described(
        3, streams, chunks, words=[99, 0, 5], flags=ITEM_CHUNKS, listed=[lengths]
    ), chunks


def described(rows, streams, chunks, words=(), flags=0, prefix=0, listed=None):
    part = np.zeros(1, PART)
    pages = np.zeros(-(-rows // 8), PAGE)
    pages["min"], pages["max"] = np.iinfo("i8").min, np.iinfo("i8").max
    cbytes = sum(len(chunk) + 4 for chunk in chunks)
    part[0] = (0, 0, rows, 8 * rows, cbytes, len(streams), 3, flags, prefix, len(pages))
    stored = chunks if listed is None else listed
    records = np.array([(len(chunk), crc32(chunk)) for chunk in stored], CHUNK)
    prefixes = np.frombuffer(b"\xffz"[:prefix], np.uint8)
    return Records(1, 1, part, streams, records, pages, np.array(words, WORD), prefixes)


def file_of(*parts):
    """Return the bytes of a data file with parts, and its records as the facts have them."""
    nodes = tuple((number,) for number in range(len(parts)))
    chunks = [chunk for _, some in parts for chunk in some]
    file = DataFile(UUID, 7, nodes, ("<i8",) * len(parts), stack([records for records, _ in parts]))
    front, records = file.encode(chunks)
    body = b"".join(chunk + crc32(chunk).to_bytes(4, "little") for chunk in chunks)
    return front + body, records


FILES = {
    "a part": [numbers()],
    "a bundle": [numbers(), constant(), numbers(64), items()],
    "no chunk": [constant()],
    "an item a chunk": [items()],
    "many parts": [numbers(16) for _ in range(300)],
}


@pytest.mark.parametrize("parts", FILES.values(), ids=FILES)
def test_the_records_come_back_from_the_file_alone(parts):
    data, records = file_of(*parts)
    read = DataFile.decode(data)
    assert (read.uuid, read.number, len(read.nodes)) == (UUID, 7, len(parts))
    assert read.dtypes == ("<i8",) * len(parts)
    for one, other in zip(read.records.arrays, records.arrays, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("parts", FILES.values(), ids=FILES)
def test_bloscpack_opens_the_file(parts, tmp_path):
    data, _ = file_of(*parts)
    path = tmp_path / "1.bin"
    path.write_bytes(data)
    expected = b"".join(
        b"" if chunk == EMPTY_CHUNK else blosc.decompress(chunk)
        for _, some in parts
        for chunk in some
    )
    assert bloscpack_bytes(path) == expected


@pytest.mark.parametrize("name", ["a bundle", "no chunk", "an item a chunk"])
def test_no_byte_of_a_file_changes_unnoticed(name):
    data, _ = file_of(*FILES[name])
    unnoticed = []
    for position in range(len(data)):
        broken = bytearray(data)
        broken[position] ^= 1 << position % 8
        try:
            DataFile.decode(broken)
        except BlzError:
            continue
        unnoticed.append(position)
    assert not unnoticed


def test_metadata_of_many_parts_are_deflated():
    few, _ = file_of(*FILES["an item a chunk"])
    many, _ = file_of(*FILES["many parts"])
    assert b'"nodes"' in few
    assert b'"nodes"' not in many
