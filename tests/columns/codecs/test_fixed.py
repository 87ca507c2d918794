"""Nulls of floats: stored as NaN, found again while the values are decoded."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blztable.block_terms import VALID, VALUES
from blztable.columns.blocks import Piece
from blztable.columns.codecs.fixed import nan_for_null
from blztable.columns.types import decoder, encode
from support.bit_equality import bits

FLOATS = [pa.float16(), pa.float32(), pa.float64()]
WORDS = {2: "<u2", 4: "<u4", 8: "<u8"}


def nan_of(width):
    """Return the bits of the usual NaN."""
    return int(np.array(np.nan, f"<f{width}").view(WORDS[width]))


def floats(type_):
    """Return a strategy of arrays with any bits in their values, sliced at any offset."""
    width = type_.byte_width
    word = st.integers(0, 256**width - 1) | st.just(nan_of(width))

    def made(pairs, start):
        words = np.array([word for word, _ in pairs], f"<u{width}")
        present = np.array([not null for _, null in pairs], np.bool_)
        mask = np.packbits(present, bitorder="little")
        buffers = [pa.py_buffer(mask), pa.py_buffer(words)]
        return pa.Array.from_buffers(type_, len(pairs), buffers)[start:]

    pairs = st.lists(st.tuples(word, st.booleans()), max_size=40)
    return st.builds(made, pairs, st.integers(0, 9))


def is_nan(array):
    """Return for each row whether it has a value that is NaN."""
    values = np.array(array.to_pylist(), "f8")
    return np.isnan(values) & array.is_valid().to_numpy(zero_copy_only=False)


@pytest.mark.parametrize("type_", FLOATS)
@given(data=st.data())
def test_nulls_are_stored_as_nan_unless_a_value_is_nan(type_, data):
    array = data.draw(floats(type_))
    block = encode(array)
    assert block.nan_is_null == (array.null_count > 0 and not is_nan(array).any())
    names = [stream.layout.name for stream in block.streams]
    assert names == ([VALID] if array.null_count and not block.nan_is_null else []) + [VALUES]
    if block.nan_is_null:
        width = type_.byte_width
        words = block.streams[0].data.view(WORDS[width]).tolist()
        assert words == [
            nan_of(width) if one is None else int.from_bytes(one, "little") for one in bits(array)
        ]


def test_floats_that_are_nan_already_are_not_copied():
    values = np.array([1.5, np.nan, 2.5])
    buffers = [pa.py_buffer(bytes([0b101])), pa.py_buffer(values)]
    array = pa.Array.from_buffers(pa.float64(), 3, buffers)
    assert encode(array).streams[0].data.ctypes.data == values.ctypes.data
    values[1:2].view("<u8")[0] += 1
    assert encode(array).streams[0].data.ctypes.data != values.ctypes.data


@pytest.mark.parametrize("type_", [pa.int64(), pa.string(), pa.bool_(), pa.null()])
def test_other_types_have_no_nan(type_):
    assert nan_for_null(pa.nulls(3, type_)) is None
    assert not encode(pa.nulls(3, type_)).nan_is_null


def test_the_values_of_a_dictionary_have_a_bitmap():
    array = pa.DictionaryArray.from_arrays([0, 1], pa.array([1.5, None]))
    [child] = encode(array).children.values()
    assert not child.nan_is_null
    assert [stream.layout.name for stream in child.streams] == [VALID, VALUES]


@settings(deadline=None)
@pytest.mark.parametrize("type_", FLOATS)
@given(data=st.data())
def test_bitmaps_are_made_wherever_pieces_and_chunks_begin(type_, data):
    arrays = data.draw(st.lists(floats(type_), max_size=4))
    blocks = [encode(array) for array in arrays]
    pieces = [
        Piece(
            block.rows,
            {stream.layout.name: stream.nbytes for stream in block.streams},
            nan_is_null=block.nan_is_null,
        )
        for block in blocks
    ]
    made = decoder(type_, pieces)
    for number, block in enumerate(blocks):
        for stream in block.streams:
            target = made.target(number, stream.layout.name)
            target.buffer[:] = stream.data
            cuts = data.draw(st.lists(st.integers(0, stream.nbytes), max_size=3))
            bounds = sorted({0, *cuts, stream.nbytes})
            ranges = data.draw(st.permutations(list(pairwise(bounds))))
            for start, stop in ranges:
                if target.check is not None and start < stop:
                    target.check(start, stop)
    found = made.finish()
    wanted = [row for array in arrays for row in bits(array)]
    assert bits(found) == wanted
    assert found.null_count == wanted.count(None)
    for chunk in found.chunks:
        chunk.validate(full=True)
