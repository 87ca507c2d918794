"""Lengths of items cost no byte where they say nothing."""

import pyarrow as pa
import pytest

from blztable.columns.parts.encode import encode
from blztable.format.records import CONSTANT, LENGTHS, NUMBERS, VALID, VALUES
from blztable.tuning import tuned

ROWS = 20_000
SAME = [f"{number:06d}" for number in range(ROWS)]


def streams_of(array):
    with tuned(encoded_bytes=1):
        return {stream.name: stream for stream in encode(array, 14).streams}


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.binary()], ids=str)
def test_lengths_of_one_size_are_a_word_and_no_codes(type_):
    streams = streams_of(pa.array(SAME).cast(type_))
    lengths = streams[LENGTHS]
    assert (lengths.kind, lengths.width, len(lengths.data)) == (NUMBERS, 0, 0)
    assert len(streams[VALUES].data) == 6 * ROWS


def test_lengths_of_up_to_255_bytes_more_than_the_least_take_a_byte_each():
    words = ["x" * (1000 + number % 256) for number in range(ROWS // 10)]
    lengths = streams_of(pa.array([f"{at}{word}" for at, word in enumerate(words)]))[LENGTHS]
    assert lengths.width in (1, 2)
    assert len(lengths.data) == len(words) * lengths.width


@pytest.mark.parametrize("type_", [pa.string(), pa.int64(), pa.list_(pa.int8())], ids=str)
def test_a_column_of_nulls_takes_no_bytes_for_its_rows(type_):
    if pa.types.is_nested(type_):
        type_ = pa.list_(pa.null())
    streams = streams_of(pa.nulls(ROWS, type_))
    assert streams[VALID].kind == CONSTANT
    assert sum(len(stream.data) for stream in streams.values()) == 0
