"""Store text and binary of few different items as a dictionary of items and a code per row.

A sample decides whether to try. Two codes of few items are looked up at once, which is as fast as
to decompress text. More items take twice that time, so they have to save more. Knows no files.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.memory import bytes_of
from blztable.arrow.types import is_text, mask_of
from blztable.block_terms import ENDS
from blztable.columns.blocks import Block, Stream
from blztable.columns.codecs import text, validity
from blztable.columns.encodings.dictionary import MAX_BYTES, MAX_LENGTH, Dictionary, Spelled
from blztable.columns.encodings.items import starts_of
from blztable.columns.encodings.numbers import codes_layout
from blztable.columns.encodings.sample import (
    FEW_ITEMS,
    ROWS_PER_ITEM,
    is_one_chunk,
    sample,
    to_try,
)
from blztable.columns.paging import page_bytes
from blztable.errors import SchemaError

# Items that have codes of two bytes, a null among them.
MOST_ITEMS = (1 << 16) - 1
# Text that is compressed to see how many bytes a dictionary saves: twice the window of LZ4.
TRIED_BYTES = 1 << 17

# Returns how many bytes the codes may have that replace this text.
Worth = Callable[[np.ndarray], float]


def encode_few_items(
    array: pa.Array, page_rows: int | None, worth: Worth
) -> tuple[Block, pa.DictionaryArray] | None:
    """Return text or binary as a block with a dictionary, and the array as a dictionary array.

    Parameters
    ----------
    array
        The rows, in a type that is stored.
    page_rows
        Rows of a page; None to choose.
    worth
        Returns the bytes that codes of more than `FEW_ITEMS` items may have in place of text.

    Returns
    -------
    tuple or None
        None if there are too many different items, or none, or if their codes save too little.

    Raises
    ------
    SchemaError
        An item is invalid.
    """
    if array.type.id not in text.TYPE_IDS or not (tried := _to_try(array)):
        return None
    mask = mask_of(array)
    # The items of null rows are not encoded, whatever bytes they have.
    _, offsets, lengths, data = text.sound_items(array, mask)
    short = None if mask is not None else _of_short_items(array.type, lengths, data)
    for rows in tried:
        found = rows.dictionary_encode() if short is None else short
        items = found.dictionary.cast(pa.large_binary())
        if len(items) > min(MOST_ITEMS, len(array) // ROWS_PER_ITEM) or not _has_room(items):
            return None
        if len(items) > FEW_ITEMS and not _is_worth(items, len(array), data, worth):
            return None
    if is_text(array.type):
        try:
            found.dictionary.validate(full=True)
        except pa.ArrowInvalid as error:
            raise SchemaError(f"the text is not UTF-8: {error}") from None
    page_rows = page_rows or text.page_rows_of(lengths)
    codes = _codes(found)
    if mask is not None:
        # A null row is an empty item.
        empty = pc.index(items, pa.scalar(b"", items.type)).as_py()
        if empty < 0:
            empty = len(items)
            items = pa.concat_arrays([items, pa.array([b""], items.type)])
        codes[~mask] = empty
    if not is_one_chunk(len(codes), page_rows, codes.itemsize):
        return None
    ends, values = text.layout(array.type)
    pages = page_bytes(offsets[1:] - offsets[0], page_rows)
    starts = starts_of(pages)
    stored = codes_layout(ENDS, codes.itemsize)
    encoding = Dictionary(stored, ends.typesize, items.cast(pa.binary()), starts, page_rows)
    streams = (
        *validity.encode(mask),
        Stream(stored, codes.view(np.uint8), None, encoding, ends.nbytes(len(codes))),
        Stream(values, data[:0], pages, Spelled(values), int(starts[-1])),
    )
    return Block(len(codes), page_rows, streams), found


def _to_try(array: pa.Array) -> tuple[pa.Array, ...]:
    """Return the rows to encode; Arrow checks a sample of them before it reads it."""
    try:
        for rows in sample(len(array)):
            array[rows].validate(full=True)
    except pa.ArrowInvalid:
        return ()
    return to_try(array, MOST_ITEMS)


def _of_short_items(
    type_: pa.DataType, lengths: np.ndarray, data: np.ndarray
) -> pa.DictionaryArray | None:
    """Return items of one or of two bytes each as a dictionary array, far faster than Arrow does.

    Return None for items of other lengths.
    """
    width = int(lengths[0])
    if width not in (1, 2) or int(lengths.min()) != int(lengths.max()):
        return None
    numbers = data.view(f"<u{width}")
    present = np.flatnonzero(np.bincount(numbers, minlength=256**width))
    codes = np.zeros(256**width, np.int32)
    codes[present] = np.arange(len(present))
    ends = np.arange(len(present) + 1, dtype="<i4") * np.int32(width)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(present.astype(numbers.dtype))]
    items = pa.Array.from_buffers(pa.binary(), len(present), buffers)
    return pa.DictionaryArray.from_arrays(codes[numbers], items.view(pa.string()).cast(type_))


def _is_worth(items: pa.Array, rows: int, data: np.ndarray, worth: Worth) -> bool:
    """True if codes of these items are small beside the text of so many rows."""
    start = max(len(data) - TRIED_BYTES, 0) // 2
    tried = data[start : start + TRIED_BYTES]
    # Bits that are always 0 take no room once they are shuffled. The items are base64.
    stored = rows * (len(items) - 1).bit_length() / 8 + (_nbytes(items) + 2 * len(items)) * 4 / 3
    return stored * len(tried) <= worth(tried) * len(data)


def _codes(found: pa.DictionaryArray) -> np.ndarray:
    """Return the codes, with room for one more; those of null rows may be anything."""
    data = bytes_of(found.indices.buffers()[1]).view("<i4")[found.indices.offset :][: len(found)]
    return data.astype("|u1" if len(found.dictionary) < 256 else "<u2")


def _has_room(items: pa.Array) -> bool:
    """True if the metadata can have these items, and their lengths."""
    longest = pc.max(pc.binary_length(items)).as_py() or 0
    return longest <= MAX_LENGTH and _nbytes(items) <= MAX_BYTES


def _nbytes(items: pa.Array) -> int:
    return pc.sum(pc.binary_length(items)).as_py() or 0
