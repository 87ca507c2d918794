"""The encoding `dictionary`: a code for each row, and the different items once.

The items are streams of their own, in ascending order. Knows nothing of pages.
"""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.types import bytes_of, offsets_of
from blztable.columns.parts import numbers
from blztable.columns.parts.physical import Form, Physical
from blztable.columns.parts.stream import Stream, bytes_of_codes, need, width_of
from blztable.format.records import (
    DICTIONARY,
    ITEMS_LENGTHS,
    ITEMS_VALUES,
    LENGTHS,
    PLAIN,
    VALUES,
    WORD,
    Array,
)

MAX_ITEMS = 1 << 16
# A dictionary is tried if the rows of a sample have at most this share of different items.
_SHARE = 0.5
_SAMPLE = 20_000
# All items are one page: their lengths have one base.
ONE_PAGE = 30


def encode_items(codes_of: Array, items: pa.Array) -> list[Stream]:
    """Return the streams of codes and of items of text or binary."""
    width = width_of(max(len(items) - 1, 0))
    data = bytes_of_codes(codes_of, width)
    codes = Stream(LENGTHS, DICTIONARY, data, max(width, 1), _count(items), width=width)
    offsets = offsets_of(items, "<i8")
    lengths = numbers.encode_lengths(np.diff(offsets), ONE_PAGE)
    body = bytes_of(items.buffers()[2])[offsets[0] : offsets[-1]]
    return [codes, replace(lengths, name=ITEMS_LENGTHS), Stream(ITEMS_VALUES, PLAIN, body)]


def of_bytes(array: pa.Array) -> tuple[Array, pa.Array] | None:
    """Return the code of each item and the sorted items of large binary, if these are few."""
    rows = len(array)
    half = _SAMPLE // 2
    sample = array
    if rows > 2 * _SAMPLE:
        sample = pa.concat_arrays([array.slice(0, half), array.slice(rows // 2, half)])
    if pc.count_distinct(sample).as_py() > len(sample) * _SHARE:
        return None
    encoded = array.dictionary_encode()
    items = encoded.dictionary
    if len(items) > MAX_ITEMS or 4 * len(items) > rows:
        return None
    order = pc.sort_indices(items).to_numpy(zero_copy_only=False)
    rank = np.empty(len(items), np.int64)
    rank[order] = np.arange(len(items))
    codes = rank[encoded.indices.to_numpy(zero_copy_only=False)]
    return codes, items.take(pa.array(order))


def of_values(values: Array, form: Physical) -> tuple[Array, Array] | None:
    """Return the code of each value of fixed width, and the values; None if they are many."""
    rows = len(values)
    if rows == 0:
        return None
    keys = _keys(values, form)
    sample = keys[:: max(rows // _SAMPLE, 1)]
    if len(np.unique(sample)) > len(sample) * _SHARE / 4:
        return None
    items, codes = np.unique(keys, return_inverse=True)
    if len(items) > MAX_ITEMS or 8 * len(items) > rows:
        return None
    return codes.reshape(-1), items.view(np.uint8).reshape(len(items), form.width)


def encode_values(codes: Array, items: Array) -> list[Stream]:
    """Return the streams of codes and of items of fixed width."""
    width = width_of(max(len(items) - 1, 0))
    data = bytes_of_codes(codes, width)
    return [
        Stream(VALUES, DICTIONARY, data, max(width, 1), _count(items), width=width),
        Stream(ITEMS_VALUES, PLAIN, items.reshape(-1), min(items.shape[1], 255)),
    ]


def check(codes: Array, items: int) -> Array:
    """Return codes, if each numbers an item."""
    need(not len(codes) or int(codes.max()) < items, "codes: one numbers no item")
    return codes


def _keys(values: Array, form: Physical) -> Array:
    """Return values as numbers or bytes that numpy sorts: by their bits."""
    if form.form in (Form.WIDE, Form.OPAQUE):
        return np.ascontiguousarray(values).view(f"V{form.width}").reshape(-1)
    return values.view(f"<u{form.width}")


def _count(items: Array | pa.Array) -> Array:
    return np.array([len(items)], WORD)
