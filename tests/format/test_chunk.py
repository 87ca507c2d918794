"""A chunk is decoded only if its header agrees with the expected sizes.

`blosc.decompress_ptr` writes as many bytes as the chunk claims. So every refusal must leave the
destination, and the bytes behind it, unchanged.
"""

from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import blosc
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blztable.errors import BlzError, CorruptError, FormatError
from blztable.format.chunk import (
    BIT_SHUFFLE,
    BYTE_SHUFFLE,
    CHUNK_HEADER,
    CODEC_NAMES,
    CODEC_SHIFT,
    MAX_CHUNK_BYTES,
    MEMCPYED,
    RESERVED,
    SHUFFLES,
    WRITABLE_CODECS,
    ChunkHeader,
    Compression,
    decompress_into,
)

BYTES = st.integers(0, 255)
WORDS = st.integers(0, 2**32 - 1)
HEADERS = st.builds(ChunkHeader, BYTES, BYTES, BYTES, BYTES, WORDS, WORDS, WORDS)
COMPRESSIONS = st.builds(
    Compression,
    st.sampled_from(sorted(WRITABLE_CODECS)),
    st.integers(0, 9),
    st.sampled_from([None, *SHUFFLES]),
)
RAW = np.arange(4000, dtype="<u4").view(np.uint8)
TYPESIZE = 4
GOOD = Compression().compress(RAW, TYPESIZE)
HEADER = ChunkHeader.decode(GOOD)
# Noise does not compress, so Blosc stores it.
NOISE = np.random.default_rng(1).integers(0, 256, 400, dtype=np.uint8)
STORED = Compression().compress(NOISE, 1)
CANARY = 0xA5


class Destination:
    """A buffer of `nbytes`, with canaries around it."""

    def __init__(self, nbytes):
        self._whole = np.full(nbytes + 128, CANARY, np.uint8)
        self.inside = self._whole[64:-64]

    def fill(self, chunk, typesize):
        decompress_into(chunk, typesize, self.inside.ctypes.data, self.inside.nbytes)

    def fill_blocks(self, chunk, typesize, ranges):
        starts, stops = np.array(ranges, np.int64).reshape(-1, 2).T
        address, nbytes = self.inside.ctypes.data, self.inside.nbytes
        decompress_into(chunk, typesize, address, nbytes, ranges=(starts, stops, 0))

    @property
    def is_untouched(self):
        return bool((self._whole == CANARY).all())

    @property
    def is_fenced(self):
        return bool((self._whole[:64] == CANARY).all() and (self._whole[-64:] == CANARY).all())


def lying(chunk=GOOD, **fields):
    """Return the chunk with other fields in its header."""
    return replace(ChunkHeader.decode(chunk), **fields).encode() + chunk[16:]


# Our message, before Blosc is called; the message of Blosc is "does not decompress".
OURS = "does not match|uncompressed chunk has|cannot hold|header alone|with codec"


def assert_refused(chunk, kind=CorruptError, typesize=TYPESIZE, nbytes=RAW.nbytes):
    destination = Destination(nbytes)
    with pytest.raises(kind, match=OURS):
        destination.fill(chunk, typesize)
    assert destination.is_untouched


@given(HEADERS)
def test_a_header_comes_back(header):
    data = header.encode()
    assert len(data) == CHUNK_HEADER.size == 16
    assert ChunkHeader.decode(data) == header
    assert ChunkHeader.decode(memoryview(data + b"more")) == header


@pytest.mark.parametrize("length", range(16))
def test_less_than_a_header_is_refused(length):
    with pytest.raises(CorruptError, match="header"):
        ChunkHeader.decode(GOOD[:length])
    assert_refused(GOOD[:length])


@settings(deadline=None)
@given(COMPRESSIONS, st.binary(min_size=1, max_size=600), st.integers(1, 255))
def test_a_chunk_comes_back(compression, raw, typesize):
    chunk = compression.compress(np.frombuffer(raw * 3, np.uint8), typesize)
    assert len(chunk) <= 3 * len(raw) + 16
    destination = Destination(3 * len(raw))
    destination.fill(memoryview(chunk), typesize)
    assert destination.inside.tobytes() == raw * 3
    assert destination.is_fenced


def test_a_blosclz_chunk_of_others_is_read():
    destination = Destination(RAW.nbytes)
    destination.fill(blosc.compress(RAW, TYPESIZE, 5, blosc.SHUFFLE, "blosclz"), TYPESIZE)
    assert (destination.inside == RAW).all()


def test_the_good_chunks_are_what_the_lies_are_made_from():
    assert not HEADER.flags & MEMCPYED
    assert HEADER.flags & BYTE_SHUFFLE
    assert CODEC_NAMES[HEADER.flags >> CODEC_SHIFT] == "lz4"
    assert ChunkHeader.decode(STORED).flags & MEMCPYED
    for chunk, raw, typesize in ((GOOD, RAW, TYPESIZE), (STORED, NOISE, 1)):
        destination = Destination(raw.nbytes)
        destination.fill(chunk, typesize)
        assert (destination.inside == raw).all()


@pytest.mark.parametrize(
    "lie",
    [
        {"version": 0},
        {"version": 1},
        {"version": 3},
        {"version": 255},
        {"version_lz": 0},
        {"version_lz": 2},
        {"flags": HEADER.flags | RESERVED},
        {"flags": HEADER.flags | BIT_SHUFFLE},
        {"flags": HEADER.flags | MEMCPYED},
        {"typesize": 0},
        {"typesize": 1},
        {"typesize": 8},
        {"nbytes": 0},
        {"nbytes": RAW.nbytes - 1},
        {"nbytes": RAW.nbytes + 1},
        {"nbytes": RAW.nbytes + 4},
        {"nbytes": 1 << 31},
        {"nbytes": (1 << 32) - 1},
        {"blocksize": 0},
        {"blocksize": 1},
        {"blocksize": RAW.nbytes + 1},
        {"blocksize": (1 << 32) - 1},
        {"ctbytes": 0},
        {"ctbytes": 16},
        {"ctbytes": len(GOOD) - 1},
        {"ctbytes": len(GOOD) + 1},
        {"ctbytes": (1 << 32) - 1},
    ],
    ids=str,
)
def test_a_header_that_lies_is_refused_before_decompression(lie):
    assert_refused(lying(**lie))


@pytest.mark.parametrize("codec", [2, 5, 6, 7])
def test_a_codec_that_is_not_read_is_a_format_error(codec):
    assert_refused(lying(flags=HEADER.flags & 0x1F | codec << 5), FormatError)


@pytest.mark.parametrize("codec", range(8))
def test_a_stored_chunk_is_read_whatever_codec_it_names(codec):
    destination = Destination(NOISE.nbytes)
    destination.fill(lying(STORED, flags=MEMCPYED | codec << 5), 1)
    assert (destination.inside == NOISE).all()


def test_a_stored_chunk_is_as_long_as_its_bytes():
    short = STORED[:-10]
    assert_refused(lying(short, ctbytes=len(short)), typesize=1, nbytes=NOISE.nbytes)


def test_a_chunk_longer_than_its_bytes_is_refused():
    slack = GOOD + bytes(RAW.nbytes)
    assert_refused(lying(slack, ctbytes=len(slack)))


def test_a_chunk_of_a_header_alone_is_refused():
    assert_refused(lying(ctbytes=16)[:16])
    assert_refused(lying(ctbytes=16, nbytes=0)[:16])


# Found by the fuzzer: a directory of bcolz says the typesize, and a single block divided by it.
def test_a_typesize_of_0_is_refused():
    assert_refused(lying(typesize=0), typesize=0)
    with pytest.raises(CorruptError, match="typesize 0"):
        Destination(RAW.nbytes).fill_blocks(lying(typesize=0), 0, [(0, 1)])


def test_more_blocks_than_fit_are_refused():
    blocks = (len(GOOD) - 16) // 4
    assert_refused(lying(blocksize=RAW.nbytes // (blocks + 2)))


@pytest.mark.parametrize("length", [16, 17, 20, 40, len(GOOD) - 1])
def test_a_chunk_that_was_cut_is_refused(length):
    assert_refused(GOOD[:length])


def test_a_chunk_that_was_cut_and_says_so_is_corrupt():
    cut = GOOD[:60]
    destination = Destination(RAW.nbytes)
    with pytest.raises(CorruptError, match="does not decompress"):
        destination.fill(lying(cut, ctbytes=len(cut)), TYPESIZE)
    assert destination.is_fenced


@settings(deadline=None, max_examples=120)
@given(COMPRESSIONS, st.lists(st.tuples(st.integers(0, 10**6), BYTES), min_size=1, max_size=4))
def test_no_change_of_a_chunk_writes_outside_its_destination(compression, changes):
    raw = RAW[:2000]
    chunk = bytearray(compression.compress(raw, TYPESIZE))
    for position, value in changes:
        chunk[position % len(chunk)] = value
    destination = Destination(raw.nbytes)
    with suppress(CorruptError, FormatError):
        destination.fill(bytes(chunk), TYPESIZE)
    assert destination.is_fenced


@st.composite
def blocked(draw):
    """Draw a chunk of many Blosc blocks, its bytes, its typesize and ranges of these bytes."""
    compression, typesize = draw(COMPRESSIONS), draw(st.integers(1, 17))
    count = draw(st.integers(1, 3000))
    alphabet = np.frombuffer(draw(st.binary(min_size=2, max_size=9)), np.uint8)
    raw = np.random.default_rng(draw(st.integers(0, 9))).choice(alphabet, count * typesize)
    raw = raw[: draw(st.integers(1, len(raw)))] if draw(st.booleans()) else raw
    # Blosc takes the size as a wish, and only outside of the GIL.
    blosc.set_blocksize(draw(st.sampled_from([0, 128, 1000, 4096])))
    before = blosc.set_releasegil(True)
    try:
        chunk = compression.compress(raw, typesize)
    finally:
        blosc.set_releasegil(before)
        blosc.set_blocksize(0)
    places = st.integers(0, len(raw))
    ranges = draw(st.lists(st.tuples(places, places).map(sorted), max_size=4))
    return chunk, raw, typesize, sorted(ranges)


@settings(deadline=None, max_examples=120)
@given(blocked())
def test_single_blocks_are_those_of_the_whole_chunk(drawn):
    chunk, raw, typesize, ranges = drawn
    destination = Destination(len(raw))
    destination.fill_blocks(chunk, typesize, ranges)
    assert destination.is_fenced
    for start, stop in ranges:
        assert (destination.inside[start:stop] == raw[start:stop]).all()


def many_blocks():
    """Return a chunk of sixteen blocks or more, and its bytes."""
    raw = np.tile(np.arange(256, dtype=np.uint8), 4096)
    chunk = Compression("lz4hc", 1).compress(raw, 1)
    assert raw.nbytes // ChunkHeader.decode(chunk).blocksize >= 16
    return chunk, raw


def test_only_the_blocks_that_have_the_bytes_are_decompressed():
    chunk, raw = many_blocks()
    size = ChunkHeader.decode(chunk).blocksize
    destination = Destination(len(raw))
    destination.fill_blocks(chunk, 1, [(size - 1, size + 1), (5 * size, 5 * size)])
    assert (destination.inside[: 2 * size] == raw[: 2 * size]).all()
    assert (destination.inside[2 * size :] == CANARY).all()


def test_blocks_that_lie_in_any_order_are_found():
    chunk, raw = many_blocks()
    size = ChunkHeader.decode(chunk).blocksize
    count = len(raw) // size
    offsets = np.frombuffer(chunk, "<i4", count, 16)
    # Threads of Blosc may have written them in another order.
    ends = dict(pairwise([*np.sort(offsets).tolist(), len(chunk)]))
    bodies = [chunk[start : ends[start]] for start in offsets.tolist()]
    lengths = [len(body) for body in reversed(bodies)]
    turned = offsets.min() + np.cumsum([0, *lengths[:-1]])
    other = chunk[:16] + turned[::-1].astype("<i4").tobytes() + b"".join(reversed(bodies))
    destination = Destination(len(raw))
    destination.fill_blocks(other, 1, [(3, 4), (size * count - 1, size * count)])
    assert (destination.inside[:size] == raw[:size]).all()
    assert (destination.inside[-size:] == raw[-size:]).all()


@settings(deadline=None, max_examples=120)
@given(blocked(), st.lists(st.tuples(st.integers(0, 10**6), BYTES), min_size=1, max_size=4))
def test_no_change_of_a_chunk_writes_outside_its_blocks(drawn, changes):
    chunk, raw, typesize, ranges = drawn
    damaged = bytearray(chunk)
    for place, byte in changes:
        damaged[place % len(damaged)] = byte
    destination = Destination(len(raw))
    with suppress(CorruptError, FormatError):
        destination.fill_blocks(bytes(damaged), typesize, ranges)
    assert destination.is_fenced


@pytest.mark.parametrize("offset", [-1, 0, 16, 2**31 - 1])
def test_the_offset_of_a_block_that_lies_elsewhere_is_refused(offset):
    chunk, raw = many_blocks()
    for block in (0, 2):
        damaged = bytearray(chunk)
        damaged[16 + 4 * block : 20 + 4 * block] = np.int32(offset).tobytes()
        destination = Destination(len(raw))
        with pytest.raises(CorruptError):
            destination.fill_blocks(bytes(damaged), 1, [(0, 1)])
        assert destination.is_untouched


@pytest.mark.parametrize(
    ("variable", "value"),
    [("BLOSC_TYPESIZE", "1"), ("BLOSC_COMPRESSOR", "zlib")],
)
def test_a_chunk_other_than_asked_for_is_not_kept(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    before = blosc.set_releasegil(False)  # When it releases the GIL, Blosc ignores the environment.
    try:
        with pytest.raises(BlzError, match="asked for"):
            Compression().compress(RAW, TYPESIZE)
    finally:
        blosc.set_releasegil(before)


@pytest.mark.parametrize("nbytes", [0, MAX_CHUNK_BYTES + 1])
def test_chunks_are_neither_empty_nor_above_the_limit(nbytes):
    with pytest.raises(AssertionError):
        Compression().compress(np.zeros(nbytes, np.uint8), 1)
    with pytest.raises(AssertionError):
        decompress_into(GOOD, TYPESIZE, RAW.ctypes.data, nbytes)
