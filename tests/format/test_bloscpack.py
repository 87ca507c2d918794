"""The front of a file of Bloscpack: a header of 32 bytes, and the section of its metadata."""

import struct
import tracemalloc
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.errors import CorruptError, FormatError
from blztable.format.bloscpack import (
    MAX_METADATA_BYTES,
    Header,
    Section,
    decode_section,
    encode_section,
    inflated,
    section_length,
)
from blztable.format.checksums import CHECKSUMS, CRC32
from support.bloscpack_reference import import_bloscpack

SIZES = st.integers(-1, 2**31 - 1)
PLAIN = Header(3, 1, 2, 8, 1 << 20, 8, 3, 0)
EXTENDED = Header(4, 3, 2, 8, -1, -1, 3, 200)


@st.composite
def headers(draw):
    version = draw(st.sampled_from([2, 3, 4, 255]))
    most = {2: 1, 3: 3, 4: 7, 255: 7}[version]
    tail = draw(st.integers(0, {2: 0, 4: MAX_METADATA_BYTES}.get(version, 2**63 - 1)))
    return Header(
        version,
        draw(st.integers(0, most)),
        draw(st.integers(0, 8)),
        draw(st.integers(0, 255)),
        draw(SIZES),
        draw(SIZES),
        draw(st.integers(-1, 2**63 - 1)),
        tail,
    )


@given(headers())
def test_a_header_comes_back(header):
    data = header.encode()
    assert len(data) == header.length == 32
    assert Header.decode(data) == header


def test_a_header_of_version_3_is_bloscpacks_to_the_byte():
    real = import_bloscpack().headers.BloscpackHeader(
        format_version=3,
        offsets=True,
        checksum="crc32",
        typesize=8,
        chunk_size=1 << 20,
        last_chunk=8,
        nchunks=3,
    )
    assert PLAIN.encode() == real.encode()


def test_a_header_of_version_1_has_16_bytes():
    data = struct.pack("<4sB3xq", b"blpk", 1, 5)
    header = Header.decode(data)
    assert (header.version, header.length, header.nchunks) == (1, 16, 5)
    for broken in (data[:5] + b"\1" + data[6:], struct.pack("<4sB3xq", b"blpk", 1, -2)):
        with pytest.raises(CorruptError):
            Header.decode(broken)


@pytest.mark.parametrize("length", [5, 15, 31])
def test_less_than_a_header_is_refused(length):
    with pytest.raises(CorruptError, match="header"):
        Header.decode(PLAIN.encode()[:length])


@pytest.mark.parametrize("version", [0, 5, 254])
def test_another_version_is_a_format_error(version):
    with pytest.raises(FormatError, match="version"):
        Header.decode(replace(PLAIN, version=version).encode())


@pytest.mark.parametrize(
    ("header", "options"),
    [(PLAIN, bits) for bits in (4, 5, 8, 129)] + [(EXTENDED, bits) for bits in (8, 11, 131)],
)
def test_options_of_another_meaning_are_a_format_error(header, options):
    with pytest.raises(FormatError, match="options"):
        Header.decode(replace(header, options=options).encode())


@pytest.mark.parametrize(
    ("header", "lie"),
    [
        (PLAIN, {"tail": -1}),
        (EXTENDED, {"tail": -1}),
        (EXTENDED, {"tail": MAX_METADATA_BYTES + 1}),
        (PLAIN, {"checksum": 9}),
        (PLAIN, {"checksum": 255}),
        (PLAIN, {"chunk_size": -2}),
        (PLAIN, {"last_chunk": -(2**31)}),
        (PLAIN, {"nchunks": -2}),
        (PLAIN, {"nchunks": -(2**63)}),
    ],
    ids=str,
)
def test_a_field_out_of_range_is_corrupt(header, lie):
    with pytest.raises(CorruptError):
        Header.decode(replace(header, **lie).encode())


def test_another_magic_is_a_format_error():
    with pytest.raises(FormatError, match="begins with"):
        Header.decode(b"blpx" + PLAIN.encode()[4:])


# The metadata.


def reader(data):
    return lambda at, length: data[at : at + length]


@given(
    st.binary(max_size=300),
    st.sampled_from(CHECKSUMS),
    st.integers(0, 500),
    st.integers(0, 9),
)
def test_a_section_comes_back(text, checksum, room, level):
    data = encode_section(text, checksum, room, level)
    found, section = decode_section(reader(b"x" * 7 + data), 7)
    assert (found, section.length) == (text, len(data))
    assert len(data) == section_length(section.room, checksum)
    if not level:
        assert section.room == max(room, len(text))


def test_the_real_program_reads_a_section(tmp_path):
    bloscpack = import_bloscpack()
    for level in (0, 6):
        section = encode_section(b'{"a":[1,2]}', CRC32, 64, level)
        path = tmp_path / f"{level}.blp"
        head = Header(3, 2, 0, 1, -1, -1, 0, 0)
        path.write_bytes(head.encode() + section)
        with path.open("rb") as file:
            file.seek(32)
            found = bloscpack.file_io._read_metadata(file)[0]
        assert found == {"a": [1, 2]}


@pytest.mark.parametrize(
    "lie",
    [
        {"codec": 2},
        {"checksum": 9},
        {"stored": 40},
        {"room": 2**32 - 1},
        {"size": MAX_METADATA_BYTES + 1},
        {"size": 10},
        {"size": 12},
        {"stored": 10},
        {"codec": 1},
    ],
    ids=str,
)
def test_a_header_of_metadata_that_lies_is_refused(lie):
    data = encode_section(b'{"a":[1,2]}', CRC32)
    section = Section.decode(data[:32])
    broken = replace(section, **lie).encode() + data[32:]
    with pytest.raises((CorruptError, FormatError)):
        decode_section(reader(broken), 0)


@pytest.mark.parametrize("length", range(47))
def test_a_section_that_is_cut_is_refused(length):
    data = encode_section(b'{"a":[1,2]}', CRC32)
    assert len(data) == 47
    with pytest.raises(CorruptError):
        decode_section(reader(data[:length]), 0)


def test_a_bomb_is_inflated_to_what_it_states():
    packed = zlib.compress(bytes(256 << 20), 9)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptError, match="expected 1000"):
            inflated(packed, 1000, "metadata")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("change", [lambda one: one[:-1], lambda one: one + b"x"])
def test_what_is_not_one_whole_stream_is_refused(change):
    with pytest.raises(CorruptError, match="whole zlib stream"):
        inflated(change(zlib.compress(b"abc")), 3, "metadata")
