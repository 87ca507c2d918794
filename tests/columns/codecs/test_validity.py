"""Validity: one bit a row, whatever the row offset of a part."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blztable.arrow.types import bits_of, mask_of
from blztable.block_terms import VALID
from blztable.columns.blocks import Piece
from blztable.columns.codecs.validity import Validity, encode, whole_items
from blztable.errors import CorruptError
from support import arrow_strategies as own


@given(st.binary(max_size=9), st.data())
def test_bits_are_taken_from_any_offset(data, draw):
    offset = draw.draw(st.integers(0, 8 * len(data)))
    rows = draw.draw(st.integers(0, 8 * len(data) - offset))
    wanted = [data[bit // 8] >> bit % 8 & 1 for bit in range(offset, offset + rows)]
    assert bits_of(np.frombuffer(data, np.uint8), offset, rows).tolist() == wanted


@settings(deadline=None)
@given(st.data(), st.sampled_from([pa.int8(), pa.bool_(), pa.string(), pa.binary(0)]))
def test_a_mask_is_what_arrow_says(data, type_):
    array = data.draw(own.arrays(type_))
    mask = mask_of(array)
    if array.null_count == 0:
        assert mask is None
        assert encode(mask) == ()
    else:
        assert mask.tolist() == array.is_valid().to_pylist()
        [stream] = encode(mask)
        assert len(stream.data) == -(-len(array) // 8)


def test_a_column_of_the_null_type_has_no_mask():
    assert mask_of(pa.nulls(3)) is None


@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=3), st.integers(0, 7), st.integers(0, 20)))
)
def test_bitmaps_of_parts_are_merged_wherever_they_begin(parts):
    pieces, wanted = [], []
    for packed, trim, rows in parts:
        if packed is None:
            wanted += [1] * rows
            pieces.append(Piece(rows, {}))
        else:
            rows = max(8 * len(packed) - trim, 0)
            packed = packed[: -(-rows // 8)]
            # The bits behind the last row are garbage.
            wanted += bits_of(np.frombuffer(packed, np.uint8), 0, rows).tolist()
            pieces.append(Piece(rows, {VALID: len(packed)}))
    validity = Validity(pieces)
    for index, (packed, _, _) in enumerate(parts):
        if packed is not None:
            size = pieces[index].sizes[VALID]
            validity.target(index).buffer[:] = np.frombuffer(packed[:size], np.uint8)
    bitmap, nulls = validity.finish()
    assert nulls == wanted.count(0)
    if nulls == 0:
        assert bitmap is None
    else:
        assert bits_of(np.frombuffer(bitmap, np.uint8), 0, len(wanted)).tolist() == wanted
        rest = np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")[len(wanted) :]
        assert not rest.any()


def test_items_are_whole():
    assert whole_items(8, 24, 8) == slice(1, 3)
    for start, stop in ((4, 24), (8, 20)):
        with pytest.raises(CorruptError):
            whole_items(start, stop, 8)
