"""Views: text and bytes as 16 bytes a row that point into the values of a dictionary.

Polars keeps text as views, so it takes these without a copy; the bytes of a text are nowhere
repeated. Arrow has no cast from a dictionary to views. Knows nothing of columns or tables.
"""

import numpy as np
import pyarrow as pa

from blztable.arrow.memory import bytes_of
from blztable.arrow.types import is_binary, is_text

_VIEW_BYTES = 16
# A value of so many bytes is in the view itself; of a longer one, it has the first four.
_INLINE, _PREFIX = 12, 4


def view_type(type_: pa.DataType) -> pa.DataType:
    """Return the view of text or bytes; any other type unchanged."""
    if is_text(type_):
        return pa.string_view()
    return pa.binary_view() if is_binary(type_) else type_


def as_views(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return text or bytes, or a dictionary of these, as a type of views."""
    if not pa.types.is_dictionary(array.type):
        return array.cast(type_)
    values = array.dictionary.cast(pa.large_binary())
    data = bytes_of(values.buffers()[2])
    if values.null_count or not len(values) or len(data) > np.iinfo(np.int32).max:
        return array.cast(array.type.value_type).cast(type_)
    # A null row has no view, whatever its code is.
    rows = _views_of(values, data).take(array.indices)
    valid, views = rows.buffers()
    buffers = [valid, views, pa.py_buffer(data)]
    return pa.Array.from_buffers(type_, len(rows), buffers, rows.null_count)


def _views_of(values: pa.Array, data: np.ndarray) -> pa.FixedSizeBinaryArray:
    """Return the view of each value: its length, and its bytes or where they are."""
    ends = bytes_of(values.buffers()[1]).view("<i8")[values.offset :][: len(values) + 1]
    lengths, places = np.diff(ends), np.arange(_INLINE)
    views = np.zeros((len(values), _VIEW_BYTES), np.uint8)
    views[:, :4] = lengths.astype("<i4").view(np.uint8).reshape(-1, 4)
    if len(data):
        first = data[np.minimum(ends[:-1, np.newaxis] + places, len(data) - 1)]
        views[:, 4:] = np.where(places < lengths[:, np.newaxis], first, 0)
    is_long = lengths > _INLINE
    views[is_long, 4 + _PREFIX : 12] = 0  # The number of the buffer.
    views[is_long, 12:] = ends[:-1][is_long].astype("<i4").view(np.uint8).reshape(-1, 4)
    return pa.Array.from_buffers(
        pa.binary(_VIEW_BYTES), len(values), [None, pa.py_buffer(views.reshape(-1))]
    )
