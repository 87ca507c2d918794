"""The header of a superchunk: 32 bytes, in two versions."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.errors import CorruptError, FormatError
from blztable.format.header import MAX_CHUNKS, MAX_METADATA_BYTES, FileHeader

SIZES = st.integers(-(2**31), 2**31 - 1)
V3 = FileHeader(3, 1, 2, 8, 1 << 20, 8, 3, 0)
V4 = FileHeader(4, 3, 2, 8, -1, -1, 3, 200)


@st.composite
def headers(draw):
    version = draw(st.sampled_from([3, 4]))
    options = 1 if version == 3 else draw(st.sampled_from([3, 7]))
    return FileHeader(
        version,
        options,
        draw(st.integers(0, 8)),
        draw(st.integers(1, 255)),
        draw(SIZES),
        draw(SIZES),
        draw(st.integers(0, MAX_CHUNKS)),
        0 if version == 3 else draw(st.integers(1, MAX_METADATA_BYTES)),
    )


@given(headers())
def test_a_header_comes_back(header):
    data = header.encode()
    assert len(data) == 32
    assert FileHeader.decode(data) == header
    assert header.front_length == 32 + header.meta_size + 8 * header.nchunks


def test_a_header_of_version_3_is_bloscpacks_to_the_byte():
    data = V3.encode()
    assert data[:8] == b"blpk\x03\x01\x02\x08"
    assert data[8:12] == (1 << 20).to_bytes(4, "little")
    assert data[12:16] == (8).to_bytes(4, "little")
    assert data[16:24] == (3).to_bytes(8, "little")
    assert data[24:] == bytes(8)


@pytest.mark.parametrize("length", [0, 4, 31])
def test_less_than_a_header_is_refused(length):
    with pytest.raises(CorruptError, match="header"):
        FileHeader.decode(V3.encode()[:length])


@pytest.mark.parametrize("version", [0, 1, 2, 5, 255])
def test_another_version_is_a_format_error(version):
    with pytest.raises(FormatError, match="version"):
        FileHeader.decode(replace(V3, version=version).encode())


@pytest.mark.parametrize(
    ("header", "options"),
    [(V3, bits) for bits in (0, 2, 3, 5, 9, 129)] + [(V4, bits) for bits in (0, 1, 2, 6, 11, 131)],
)
def test_options_of_another_meaning_are_a_format_error(header, options):
    with pytest.raises(FormatError, match="options"):
        FileHeader.decode(replace(header, options=options).encode())


@pytest.mark.parametrize(
    ("header", "lie"),
    [
        (V3, {"meta_size": 1}),
        (V4, {"meta_size": 0}),
        (V4, {"meta_size": MAX_METADATA_BYTES + 1}),
        (V4, {"meta_size": 2**32 - 1}),
        (V3, {"checksum": 9}),
        (V3, {"checksum": 255}),
        (V3, {"typesize": 0}),
        (V3, {"nchunks": -1}),
        (V3, {"nchunks": MAX_CHUNKS + 1}),
        (V3, {"nchunks": 2**63 - 1}),
        (V3, {"nchunks": -(2**63)}),
    ],
    ids=str,
)
def test_a_field_out_of_range_is_corrupt(header, lie):
    with pytest.raises(CorruptError):
        FileHeader.decode(replace(header, **lie).encode())


@pytest.mark.parametrize("header", [V3, V4], ids=["3", "4"])
@pytest.mark.parametrize("position", [0, 3, 28, 31])
def test_magic_and_reserved_word_are_held(header, position):
    data = bytearray(header.encode())
    data[position] ^= 1
    with pytest.raises(CorruptError):
        FileHeader.decode(data)
