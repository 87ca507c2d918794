"""The reader written from docs/format-array.md reads the arrays that blztable writes, and refuses
what blztable refuses."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as of_numpy

import blztable as blz
from golden import array_reader
from golden.make.arrays import EXPECTED, FILES, VALUES, Pipe, appended
from golden.sets import unpacked

ROOT = unpacked("arrays")


@pytest.mark.parametrize("name", EXPECTED)
def test_an_array_of_before_is_read_to_the_same_values(name):
    found = array_reader.read(ROOT / name)
    assert (found.values.dtype, found.values.shape) == (EXPECTED[name].dtype, EXPECTED[name].shape)
    assert found.values.tolist() == EXPECTED[name].tolist()
    if name in FILES:
        assert (found.meta, found.vlmeta) == ({"pet": b"cat"}, {"note": b"n" * 300})
        assert found.attrs == {"unit": "mm"}


def test_the_whole_chunks_of_an_unfinished_array_are_read():
    found = array_reader.whole_chunks(ROOT / "unfinished.blp")
    assert found.tolist() == VALUES[:10].tolist()


DTYPES = of_numpy.scalar_dtypes() | of_numpy.byte_string_dtypes(endianness="<", min_len=1)


@given(
    DTYPES.filter(lambda dtype: dtype.itemsize <= 16 and dtype.kind != "V").flatmap(
        lambda dtype: of_numpy.arrays(dtype, of_numpy.array_shapes(max_dims=3, max_side=5))
    ),
    st.sampled_from("CF"),
    st.sampled_from(["none", "crc32", "adler32", "sha1"]),
    st.booleans(),
    st.data(),
)
def test_any_array_is_read_to_the_same_bytes(values, order, checksum, is_stream, data):
    boxes = tuple(data.draw(st.integers(1, side + 1)) for side in values.shape)
    file = Pipe() if is_stream else io.BytesIO()
    options = {"chunk_shape": boxes, "order": order, "checksum": checksum}
    if is_stream:
        options["chunk_shape"] = (boxes[0], *values.shape[1:])
    raw = appended(values, file, **options)
    path = unpacked("arrays") / "any.tmp"
    path.write_bytes(raw)
    try:
        found = array_reader.read(path).values
    finally:
        path.unlink()
    assert found.tobytes() == values.tobytes()
    assert found.shape == values.shape


STEP = 3


@pytest.mark.parametrize("name", ["lz4.blp", "grid.blp", "str.blp", "changed.blp", "stream.blp"])
def test_no_flipped_byte_gives_another_array(name, tmp_path):
    data, wanted = (ROOT / name).read_bytes(), array_reader.read(ROOT / name)
    path = tmp_path / "a.blp"
    for at in range(0, len(data), STEP):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        ours = theirs = None
        try:
            found = array_reader.read(path)
            ours = found.values.tolist()
            assert (found.meta, found.vlmeta) == (wanted.meta, wanted.vlmeta), at
        except array_reader.Refused:
            pass
        try:
            with blz.SuperChunk.open(path) as array:
                theirs = array[:].tolist()
        except blz.BlzError:
            pass
        assert ours in (None, wanted.values.tolist()), at
        assert theirs in (None, wanted.values.tolist()), at
