"""One array from several: values that exceed one array raise our error, not Arrow's."""

import numpy as np
import pyarrow as pa
import pytest

from blztable.columns.types import one_array
from blztable.errors import SchemaError

MOST = 2**31 - 1
# Untouched memory takes no pages.
ZEROS = pa.py_buffer(np.zeros(MOST, np.uint8))


def long_item(length, type_):
    """Return an array of one item of `length` bytes."""
    return pa.Array.from_buffers(
        type_, 1, [None, pa.array([0, length], pa.int32()).buffers()[1], ZEROS]
    )


@pytest.mark.parametrize("type_", [pa.string(), pa.binary()], ids=str)
def test_text_that_has_no_room_in_one_array_is_a_schema_error(type_):
    item = long_item(MOST // 2 + 1, type_)
    with pytest.raises(SchemaError, match=f"2 rows do not fit into one array of {type_}"):
        one_array(pa.chunked_array([item, item]))


def test_values_of_dictionaries_that_have_no_room_in_one_array_are_a_schema_error():
    zero = pa.array([0], pa.int8())
    chunks = [
        pa.DictionaryArray.from_arrays(zero, long_item(MOST // 2 + n, pa.string()))
        for n in range(1, 3)
    ]
    with pytest.raises(SchemaError, match="values of 2 dictionaries do not fit into one array"):
        one_array(pa.chunked_array(chunks))
