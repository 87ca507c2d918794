"""Store text and binary of few different items as a dictionary of items and a code per row.

A sample decides whether to try. Knows no files.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow_types import is_text
from blztable.block_terms import ENDS
from blztable.columns.blocks import Block, Stream
from blztable.columns.codecs import text, validity
from blztable.columns.encodings.dictionary import MAX_BYTES, Dictionary, Spelled
from blztable.columns.encodings.items import starts_of
from blztable.columns.encodings.numbers import codes_layout
from blztable.columns.encodings.sample import is_one_chunk, sample
from blztable.columns.memory import bytes_of
from blztable.columns.paging import page_bytes
from blztable.errors import SchemaError

# Two codes of at most this many items are looked up at once.
MOST_ITEMS = 128
# A dictionary must have at least this many rows for each item.
_ROWS_PER_ITEM = 8


def encode_few_items(
    array: pa.Array, page_rows: int | None
) -> tuple[Block, pa.DictionaryArray] | None:
    """Return text or binary as a block with a dictionary, and the array as a dictionary array.

    Parameters
    ----------
    array
        The rows, in a type that is stored.
    page_rows
        Rows of a page; None to choose.

    Returns
    -------
    tuple or None
        None if there are too many different items, or none.

    Raises
    ------
    SchemaError
        An item is invalid.
    """
    if array.type.id not in text.TYPE_IDS or not _has_few_items(array):
        return None
    mask = validity.mask_of(array)
    # The items of null rows are not encoded, whatever bytes they have.
    _, offsets, _ = text.sound_items(array, mask)
    found = array.dictionary_encode()
    items = found.dictionary.cast(pa.large_binary())
    if len(items) > min(MOST_ITEMS, len(array) // _ROWS_PER_ITEM) or not len(items):
        return None
    if is_text(array.type):
        try:
            found.dictionary.validate(full=True)
        except pa.ArrowInvalid as error:
            raise SchemaError(f"the text is not UTF-8: {error}") from None
    page_rows = page_rows or text.page_rows_of(np.diff(offsets))
    codes = _codes(found, mask)
    if mask is not None:
        # A null row is an empty item.
        empty = pc.index(items, pa.scalar(b"", items.type)).as_py()
        if empty < 0:
            empty = len(items)
            items = pa.concat_arrays([items, pa.array([b""], items.type)])
        codes[~mask] = empty
    if _nbytes(items) > MAX_BYTES or not is_one_chunk(len(codes), page_rows, 1):
        return None
    ends, values = text.layout(array.type)
    pages = page_bytes(offsets[1:] - offsets[0], page_rows)
    starts = starts_of(pages)
    stored = codes_layout(ENDS, 1)
    encoding = Dictionary(stored, ends.typesize, items.cast(pa.binary()), starts, page_rows)
    streams = (
        *validity.encode(mask),
        Stream(stored, codes, None, encoding, ends.nbytes(len(codes))),
        Stream(values, codes[:0], pages, Spelled(values), int(starts[-1])),
    )
    return Block(len(codes), page_rows, streams), found


def _has_few_items(array: pa.Array) -> bool:
    """True if a sample has few different items; Arrow checks the sample before it reads it."""
    parts = [array[rows] for rows in sample(len(array))]
    try:
        for part in parts:
            part.validate(full=True)
    except pa.ArrowInvalid:
        return False
    count: int = pc.count_distinct(pa.chunked_array(parts, array.type)).as_py()
    return 0 < count <= min(MOST_ITEMS, len(array) // _ROWS_PER_ITEM)


def _codes(found: pa.DictionaryArray, mask: np.ndarray | None) -> np.ndarray:
    """Return the codes as bytes; those of null rows may be anything."""
    data = bytes_of(found.indices.buffers()[1]).view("<i4")
    return data[found.indices.offset :][: len(found)].astype(np.uint8)


def _nbytes(items: pa.Array) -> int:
    return pc.sum(pc.binary_length(items)).as_py() or 0
