"""A superchunk gives the places of its chunks, and only consistent places are accepted."""

import struct
import zlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blztable.errors import CorruptError, FormatError
from blztable.format.header import CHECKSUMS, FOOT_MAGIC, TRAILER_FOOT, FileHeader, Layer
from blztable.format.metadata import BlockInfo, StreamInfo
from blztable.format.superchunk import pack, unpack

CRC32 = CHECKSUMS[2]
CHUNKS = [bytes([65 + number]) * (20 + number) for number in range(4)]
LAYERS = {"pages": b"{}"}
PLAIN = BlockInfo(50, 16, (StreamInfo("values", "", 4, (64, 64, 64, 8)),))
TEXT = BlockInfo(
    20,
    8,
    (
        StreamInfo("valid", "bitmap", 1, (3,)),
        StreamInfo("ends", "<i4", 4, (64, 16)),
        StreamInfo("values", "|u1", 1, (30,), (10, 10, 10)),
    ),
)
CODED = BlockInfo(
    9,
    8,
    (StreamInfo("codes", "<i1", 1, (8, 1)),),
    {
        "dictionary": BlockInfo(
            2, 8, (StreamInfo("values", "<i8", 8, (16,)), StreamInfo("more", "<i8", 8, (8,)))
        )
    },
)
BLOCKS = {"plain": PLAIN, "text": TEXT, "coded": CODED}


def packed(info=PLAIN, chunks=CHUNKS, checksum=CRC32, layers=LAYERS):
    """Return front, trailer and facts of a superchunk, and the whole file."""
    digests = [checksum.digest(chunk) for chunk in chunks]
    encoded = {name: Layer.encode(blob) for name, blob in layers.items()}
    pieces, facts = pack(info, chunks, digests, checksum, encoded)
    return pieces[0], pieces[-1], facts, b"".join(pieces)


@settings(deadline=None)
@given(
    st.sampled_from(sorted(BLOCKS)),
    st.sampled_from(CHECKSUMS[1:]),
    st.lists(st.binary(min_size=16, max_size=99), min_size=4, max_size=4),
    st.dictionaries(st.sampled_from("abc"), st.binary(), max_size=3),
)
def test_what_was_packed_is_found_where_it_lies(name, checksum, chunks, layers):
    front, trailer, facts, file = packed(BLOCKS[name], chunks, checksum, layers)
    assert len(file) == facts.cbytes
    assert file[: facts.front_length] == front
    assert file[-facts.trailer_length :] == trailer
    found = unpack(front, trailer, facts)
    assert found.checksum is checksum
    assert {name: layer.decode() for name, layer in found.trailer.layers.items()} == layers
    for number, chunk in enumerate(chunks):
        start, stop = found.offsets[number : number + 2]
        assert file[start:stop] == chunk + checksum.digest(chunk)
        size = checksum.size
        assert found.trailer.digests[number * size :][:size] == checksum.digest(chunk)
    assert found.info.rows == BLOCKS[name].rows
    assert [(n, s.chunks) for n, s in found.info.walk()] == [
        (n, s.chunks) for n, s in BLOCKS[name].walk()
    ]


def test_one_stream_of_even_values_makes_a_genuine_bloscpack_file():
    header = FileHeader.decode(packed(PLAIN)[0])
    assert (header.version, header.options, header.meta_size) == (3, 1, 0)
    assert (header.typesize, header.chunk_size, header.last_chunk) == (4, 64, 8)


@pytest.mark.parametrize(
    "info",
    [
        TEXT,
        CODED,
        replace(PLAIN, streams=(replace(PLAIN.streams[0], name="codes"),)),
        replace(PLAIN, streams=(replace(PLAIN.streams[0], chunks=(64, 8, 64, 64)),)),
        replace(PLAIN, streams=(replace(PLAIN.streams[0], pages=(50, 50, 50, 50)),)),
    ],
)
def test_everything_else_says_so_in_its_metadata(info):
    front, trailer, facts, _ = packed(info)
    header = FileHeader.decode(front)
    assert header.version == 4
    assert bool(header.options & 4) == (info is TEXT)
    assert unpack(front, trailer, facts).info == info


@pytest.mark.parametrize("name", BLOCKS)
def test_every_flipped_bit_of_front_and_trailer_is_refused(name):
    front, trailer, facts, _ = packed(BLOCKS[name])
    for part in (front, trailer):
        for bit in range(8 * len(part)):
            flipped = bytearray(part)
            flipped[bit // 8] ^= 1 << bit % 8
            other = (bytes(flipped), trailer) if part is front else (front, bytes(flipped))
            with pytest.raises((CorruptError, FormatError)):
                unpack(*other, facts)


@pytest.mark.parametrize("name", BLOCKS)
def test_a_front_or_trailer_that_was_cut_is_refused(name):
    front, trailer, facts, _ = packed(BLOCKS[name])
    for length in range(len(front)):
        with pytest.raises((CorruptError, FormatError)):
            unpack(front[:length], trailer, facts)
    for length in range(len(trailer)):
        with pytest.raises(CorruptError):
            unpack(front, trailer[:length], facts)


@pytest.mark.parametrize("change", [{"crc": 1}, {"front_length": 1}, {"trailer_length": 1}])
@pytest.mark.parametrize("name", BLOCKS)
def test_another_file_than_the_manifests_is_refused(name, change):
    front, trailer, facts, _ = packed(BLOCKS[name])
    [(key, by)] = change.items()
    with pytest.raises(CorruptError):
        unpack(front, trailer, replace(facts, **{key: getattr(facts, key) + by}))


@pytest.mark.parametrize("change", [{"rows": 8}, {"page_rows": 8}])
@pytest.mark.parametrize("info", [TEXT, CODED])
def test_other_rows_than_the_manifests_are_refused(info, change):
    front, trailer, facts, _ = packed(info)
    [(key, by)] = change.items()
    with pytest.raises(CorruptError, match="rows"):
        unpack(front, trailer, replace(facts, **{key: getattr(facts, key) + by}))


def forged(front, trailer, facts):
    """Return a file with recomputed checksums; an attacker can compute them too."""
    body = trailer[: -TRAILER_FOOT.size]
    crc = zlib.crc32(front + body)
    foot = TRAILER_FOOT.pack(crc, len(trailer), FOOT_MAGIC)
    return front, body + foot, replace(facts, crc=crc, front_length=len(front))


def with_offsets(change, info=PLAIN):
    front, trailer, facts, _ = packed(info)
    place = len(front) - 32
    offsets = list(struct.unpack("<4q", front[place:]))
    change(offsets)
    return forged(front[:place] + struct.pack("<4q", *offsets), trailer, facts)


def setting(position, value):
    return lambda offsets: offsets.__setitem__(position, value)


def moving(position, by):
    return lambda offsets: offsets.__setitem__(position, offsets[position] + by)


OFFSET_LIES = {
    "descending": lambda offsets: offsets.reverse(),
    "swapped": lambda offsets: offsets.__setitem__(slice(1, 3), offsets[2:0:-1]),
    "twice the same": lambda offsets: offsets.__setitem__(2, offsets[1]),
    "overlapping": lambda offsets: offsets.__setitem__(2, offsets[1] + 19),
    "before the front's end": moving(0, -1),
    "behind the front's end": moving(0, 1),
    "negative": setting(1, -1),
    "zero": setting(0, 0),
    "in the trailer": setting(3, 10_000),
    "no room before the trailer": moving(3, 10),
    "the largest": setting(3, 2**63 - 1),
    "the smallest": setting(1, -(2**63)),
    "wrapping": lambda offsets: offsets.__setitem__(slice(1, 3), [2**63 - 1, -(2**63)]),
}


def test_the_forger_can_forge():
    for info in BLOCKS.values():
        unpack(*with_offsets(lambda offsets: None, info))


@pytest.mark.parametrize("info", BLOCKS.values(), ids=list(BLOCKS))
@pytest.mark.parametrize("lie", OFFSET_LIES.values(), ids=list(OFFSET_LIES))
def test_offsets_that_do_not_ascend_within_the_file_are_refused(lie, info):
    with pytest.raises(CorruptError, match="offsets"):
        unpack(*with_offsets(lie, info))


def with_header(info, **fields):
    front, trailer, facts, _ = packed(info)
    header = replace(FileHeader.decode(front), **fields)
    return forged(header.encode() + front[32:], trailer, facts)


@pytest.mark.parametrize(
    "lie",
    [
        {"chunk_size": -1},
        {"chunk_size": 0},
        {"chunk_size": 7},
        {"chunk_size": 2**31 - 1},
        {"chunk_size": (8 << 20) + 1},
        {"last_chunk": -1},
        {"last_chunk": 0},
        {"last_chunk": 65},
        {"nchunks": 3},
        {"nchunks": 5},
        {"nchunks": 0},
        {"checksum": 0},
        {"checksum": 3},
        {"version": 4, "options": 3},
    ],
    ids=str,
)
def test_a_genuine_header_that_lies_is_refused(lie):
    with pytest.raises((CorruptError, FormatError)):
        unpack(*with_header(PLAIN, **lie))


@pytest.mark.parametrize(
    ("info", "lie"),
    [
        (TEXT, {"options": 3}),
        (CODED, {"options": 7}),
        (TEXT, {"nchunks": 3}),
        (TEXT, {"nchunks": 5}),
        (TEXT, {"meta_size": 10}),
        (TEXT, {"version": 3, "options": 1, "meta_size": 0}),
        (TEXT, {"checksum": 0}),
    ],
    ids=str,
)
def test_a_header_that_contradicts_the_metadata_is_refused(info, lie):
    with pytest.raises((CorruptError, FormatError)):
        unpack(*with_header(info, **lie))


def test_a_superchunk_without_checksums_is_refused():
    front, trailer, facts, _ = packed(checksum=CHECKSUMS[0])
    with pytest.raises(CorruptError, match="checksums"):
        unpack(front, trailer, facts)


def test_metadata_of_fewer_chunks_than_the_file_has_are_refused():
    inner = CODED.children["dictionary"]
    fewer = replace(
        CODED,
        children={"dictionary": replace(inner, streams=inner.streams[:1])},
    )
    front, trailer, facts, _ = packed(CODED)
    metadata = fewer.encode()
    header = replace(FileHeader.decode(front), meta_size=len(metadata))
    lengths = [len(chunk) + CRC32.size for chunk in CHUNKS]
    offsets = [header.front_length + sum(lengths[:number]) for number in range(4)]
    lying = header.encode() + metadata + struct.pack("<4q", *offsets)
    facts = replace(facts, cbytes=facts.cbytes + len(lying) - len(front))
    with pytest.raises(CorruptError, match="metadata"):
        unpack(*forged(lying, trailer, facts))


def test_a_file_may_hold_no_chunks():
    empty = BlockInfo(
        0, 8, (StreamInfo("codes", "<i1", 1, ()),), {"dictionary": BlockInfo(0, 8, ())}
    )
    front, trailer, facts, _ = packed(empty, [])
    assert unpack(front, trailer, facts).offsets == [len(front)]
