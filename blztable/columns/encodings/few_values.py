"""Store fixed-width values of few different ones as a dictionary of values and a code per row.

A sample decides whether to try. Knows no types and no files.
"""

import numpy as np
import pyarrow as pa

from blztable.arrow.memory import bytes_of
from blztable.columns.blocks import StreamLayout
from blztable.columns.encodings.numbers import codes_layout
from blztable.columns.encodings.sample import ROWS_PER_ITEM, to_try
from blztable.columns.encodings.values import MAX_BYTES, Values, items_dtype

# The longest values: a longer one takes more room than its rows mostly do.
MAX_WIDTH = 255


def encode_few_values(
    layout: StreamLayout, data: np.ndarray, mask: np.ndarray | None, most: int
) -> tuple[Values, np.ndarray] | None:
    """Return values as codes; None if there are too many different ones.

    Parameters
    ----------
    layout
        The form of the values.
    data
        Their bytes.
    mask
        True for each row that has a value; None if all have one.
    most
        The bytes of a code must be fewer.
    """
    width = layout.nbytes(1)
    if most == 1 or not 1 < width <= MAX_WIDTH:
        return None
    limit = min(1 << 8 * min(most - 1, 2), MAX_BYTES // width)
    values = _as_array(data if mask is None else _of_rows(data, width, mask), width)
    found = None
    for rows in to_try(values, limit):
        found = rows.dictionary_encode()
        if len(found.dictionary) > min(limit, len(values) // ROWS_PER_ITEM):
            return None
    if found is None:
        return None
    items, ranks = _sorted(found.dictionary, layout.dtype)
    present = ranks[bytes_of(found.indices.buffers()[1]).view("<i4")[: len(values)]]
    stored = codes_layout(layout.name, 1 if len(items) <= 256 else 2)
    if mask is None:
        return Values(stored, items), present.astype(stored.dtype)
    codes = np.zeros(len(mask), stored.dtype)
    codes[mask] = present
    return Values(stored, items), codes


def _as_array(data: np.ndarray, width: int) -> pa.Array:
    """Return bytes as values that are equal if all their bits are."""
    type_ = {2: pa.uint16(), 4: pa.uint32(), 8: pa.uint64()}.get(width, pa.binary(width))
    return pa.Array.from_buffers(type_, len(data) // width, [None, pa.py_buffer(data)])


def _of_rows(data: np.ndarray, width: int, mask: np.ndarray) -> np.ndarray:
    """Return the bytes of the rows that have a value."""
    return data.view(items_dtype(width))[mask].view(np.uint8)


def _sorted(dictionary: pa.Array, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the values sorted, so that a range of them is one of codes, and their ranks."""
    width = np.dtype(dtype).itemsize
    items = bytes_of(dictionary.buffers()[1]).view(items_dtype(width))[: len(dictionary)]
    ranks = np.empty(len(items), np.uint16)
    is_number = np.dtype(dtype).kind in "iuf"
    order = np.argsort(items.view(dtype), kind="stable") if is_number else np.arange(len(items))
    ranks[order] = np.arange(len(items))
    return items[order], ranks
