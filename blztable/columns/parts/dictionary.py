"""The encoding `dictionary`: a code for each row, and the different items once.

The items are streams of their own: sorted and distinct, unless they are those of a dictionary of
Arrow, whose order is kept. A sample decides whether to look for few items. Two codes of few items
are looked up at once, which is as fast as to decompress text; more items take twice that time, so
they have to save more. Knows nothing of pages.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable import tuning
from blztable.arrow.types import bytes_of, mask_of, offsets_of
from blztable.columns.parts import numbers
from blztable.columns.parts.physical import Form, Physical, physical, values_of
from blztable.columns.parts.stream import (
    SAMPLED_ROWS,
    Stream,
    bytes_of_codes,
    sample,
    typesize_of_codes,
    width_of,
)
from blztable.errors import SchemaError
from blztable.format.chunk import BIT, Compression
from blztable.format.records import (
    DICTIONARY,
    ITEMS_LENGTHS,
    ITEMS_VALID,
    ITEMS_VALUES,
    LENGTHS,
    PLAIN,
    UNSORTED,
    VALUES,
    WORD,
    Array,
)

MAX_ITEMS = 1 << 16
# The longest values of fixed width: a longer one takes more room than its rows mostly do.
MAX_WIDTH = 255
MAX_TYPESIZE = 255
# Of more items a sample has mostly different ones: there are above 6,000.
_MOST_SAMPLED = SAMPLED_ROWS * 3 // 4
# The bytes of all items, so that they stay in the cache.
_MAX_VALUES_BYTES, _MAX_TEXT_BYTES = 1 << 16, 1 << 18
# Text that is compressed to see how many bytes a dictionary saves: twice the window of LZ4.
TRIED_BYTES = 1 << 17
CODES, ITEMS = Compression("lz4", 5, BIT), Compression("lz4hc", 1)
# Items in a page of their lengths, as a power of two: nearly always all of them.
ONE_PAGE = 30

# Returns how many bytes the codes of many items may have that replace this text.
Worth = Callable[[Array], float]


def of_bytes(
    array: pa.Array, form: Physical, lengths: Array, data: Array, worth: Worth
) -> tuple[Array, pa.Array] | None:
    """Return the code of each row, and the sorted items as binary; None if they are many.

    Parameters
    ----------
    array, form
        The rows of text or binary, and their form.
    lengths, data
        The lengths and the bytes of all items.
    worth
        Returns the bytes that codes of more than `few_items` items may have in place of text.
    """
    rows = len(array)
    tried = _to_try(array, MAX_ITEMS, form.is_text)
    short = _of_short_items(lengths, data) if tried and not array.null_count else None
    encoded = None
    for some in tried:
        encoded = some.dictionary_encode() if short is None else short
        items = encoded.dictionary
        if len(items) > min(MAX_ITEMS, rows // tuning.current.rows_per_item):
            return None
        nbytes = pc.sum(pc.binary_length(items)).as_py() or 0
        if nbytes > _MAX_TEXT_BYTES:
            return None
        if len(items) > tuning.current.few_items and not _is_worth(
            encoded, nbytes, rows, data, worth
        ):
            return None
    if encoded is None:
        return None
    if form.is_text:
        try:
            encoded.dictionary.validate(full=True)
        except pa.ArrowInvalid as error:
            raise SchemaError(f"the text is not UTF-8: {error}") from None
    items = _as_binary(encoded.dictionary)
    codes = bytes_of(encoded.indices.buffers()[1]).view("<i4")[encoded.indices.offset :][:rows]
    order = pc.array_sort_indices(items).to_numpy()
    ranks = np.empty(len(items), f"<u{max(width_of(len(items) - 1), 1)}")
    ranks[order] = np.arange(len(items))
    # The codes of null rows may be anything.
    return np.take(ranks, codes, mode="wrap"), items.take(pa.array(order))


def _to_try(array: pa.Array, most: int, is_text: bool = False) -> tuple[pa.Array, ...]:
    """Return the rows to make a dictionary of at most `most` items of, one array after the other.

    Return none if a sample has too many different items. If it has many, the first array is an
    eighth of the rows: a dictionary of all takes long if they do not repeat.
    """
    parts = [array[rows] for rows in sample(len(array))]
    if is_text:
        try:
            for part in parts:
                # Arrow reads the sample unchecked.
                part.validate(full=True)
        except pa.ArrowInvalid:
            return ()
    count = _count_distinct(parts)
    if not 0 < count <= min(most, _MOST_SAMPLED, len(array) // tuning.current.rows_per_item):
        return ()
    return (array,) if count <= tuning.current.few_items else (array[: len(array) // 8], array)


def _count_distinct(parts: list[pa.Array]) -> int:
    if not pa.types.is_integer(parts[0].type):
        return int(pc.count_distinct(pa.chunked_array(parts)).as_py())
    # numpy sorts integers in a third of the time that Arrow takes to count them.
    values = np.sort(np.concatenate([part.to_numpy() for part in parts]))
    return int(np.count_nonzero(values[1:] != values[:-1])) + min(len(values), 1)


def _of_short_items(lengths: Array, data: Array) -> pa.DictionaryArray | None:
    """Return items of one or of two bytes each as a dictionary array, far faster than Arrow does.

    Return None for items of other lengths.
    """
    width = int(lengths[0])
    if width not in (1, 2) or int(lengths.min()) != int(lengths.max()):
        return None
    words = data.view(f"<u{width}")
    present = np.flatnonzero(np.bincount(words, minlength=256**width))
    codes = np.zeros(256**width, np.int32)
    codes[present] = np.arange(len(present))
    ends = np.arange(len(present) + 1, dtype="<i4") * np.int32(width)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(present.astype(words.dtype))]
    items = pa.Array.from_buffers(pa.binary(), len(present), buffers)
    return pa.DictionaryArray.from_arrays(codes[words], items)


def _is_worth(
    encoded: pa.DictionaryArray, nbytes: int, rows: int, data: Array, worth: Worth
) -> bool:
    """True if codes of many items, which have `nbytes` bytes, are small beside the rows' text."""
    items, codes = encoded.dictionary, encoded.indices
    start = max(len(data) - TRIED_BYTES, 0) // 2
    tried = data[start : start + TRIED_BYTES]
    most = worth(tried) * len(data) / max(len(tried), 1)
    # Bits that are always 0 take no room once they are shuffled.
    if rows * (len(items) - 1).bit_length() / 8 + nbytes + 2 * len(items) <= most:
        return True
    # Rows in some order have codes and items that repeat: some are compressed to see how much.
    width = width_of(len(items) - 1)
    count = min(len(codes), TRIED_BYTES // width) // 8 * 8
    if most <= 0 or not count or not nbytes:
        return False
    some = codes.slice((len(codes) - count) // 2, count).fill_null(0).to_numpy()
    stored = len(CODES.compress(some.astype(f"<u{width}").view(np.uint8), width))
    first = int(offsets_of(items, f"<i{physical(items.type).width}")[0])
    text = np.ascontiguousarray(bytes_of(items.buffers()[2])[first : first + nbytes])
    return rows * stored / count + len(ITEMS.compress(text, 1)) + 2 * len(items) <= most


def _as_binary(items: pa.Array) -> pa.Array:
    """Return text as binary, which Arrow compares byte by byte."""
    large = pa.types.is_large_string(items.type) or pa.types.is_large_binary(items.type)
    return items.cast(pa.large_binary() if large else pa.binary())


def of_values(
    values: Array, form: Physical, valid: Array | None, below: int
) -> tuple[Array, Array] | None:
    """Return the code of each value of fixed width, and the sorted values; None if they are many.

    Parameters
    ----------
    values, form
        The values, as numbers or as rows of bytes, and their form.
    valid
        True for each row that has a value; None if all have one.
    below
        The bytes of a code must be fewer.
    """
    width = form.width
    if below <= 1 or not 1 < width <= MAX_WIDTH:
        return None
    limit = min(1 << 8 * min(below - 1, 2), _MAX_VALUES_BYTES // width)
    bits = _bits(values, width)
    present = bits if valid is None else bits[valid]
    keys = _as_arrow(present, width)
    encoded = None
    for some in _to_try(keys, limit):
        encoded = some.dictionary_encode()
        if len(encoded.dictionary) > min(limit, len(present) // tuning.current.rows_per_item):
            return None
    if encoded is None:
        return None
    count = len(encoded.dictionary)
    items = bytes_of(encoded.dictionary.buffers()[1])[: count * width].reshape(count, width)
    order = _order(items, form)
    ranks = np.empty(count, f"<u{max(width_of(count - 1), 1)}")
    ranks[order] = np.arange(count)
    coded = np.take(ranks, bytes_of(encoded.indices.buffers()[1]).view("<i4")[: len(present)])
    if valid is None:
        return coded, items[order]
    codes = np.zeros(len(valid), ranks.dtype)
    codes[valid] = coded
    return codes, items[order]


def _bits(values: Array, width: int) -> Array:
    """Return values as numbers or bytes that are equal if all their bits are."""
    dtype = f"<u{width}" if width in (1, 2, 4, 8) else f"V{width}"
    return np.ascontiguousarray(values).view(dtype).reshape(-1)


def _as_arrow(bits: Array, width: int) -> pa.Array:
    type_ = {2: pa.uint16(), 4: pa.uint32(), 8: pa.uint64()}.get(width, pa.binary(width))
    return pa.Array.from_buffers(type_, len(bits), [None, pa.py_buffer(bits)])


def _order(items: Array, form: Physical) -> Array:
    """Return the order of items, given as rows of bytes, in the order of their values."""
    if form.form is Form.WIDE:
        limbs = np.ascontiguousarray(items).view("<u8")
        keys = [*limbs[:, :-1].T, limbs[:, -1].view(WORD)]
        return np.lexsort(keys)
    if form.dtype is None:
        # Bytes without an order of their own compare from the first one on.
        return np.lexsort(list(items.T[::-1]))
    numbers_ = np.ascontiguousarray(items).view(form.dtype).reshape(-1)
    return np.argsort(numbers_, kind="stable")


def encode_codes(codes: Array, count: int, name: int, flags: int = 0) -> Stream:
    """Return the stream of the codes of so many items."""
    width = width_of(max(count - 1, 0))
    data = bytes_of_codes(codes, width)
    typesize = typesize_of_codes(len(data), width)
    words = np.array([count], WORD)
    return Stream(name, DICTIONARY, data, typesize, words, flags, width=width)


def encode_items(codes: Array, items: pa.Array) -> list[Stream]:
    """Return the streams of codes and of items of text or binary."""
    return [encode_codes(codes, len(items), LENGTHS), *_text_items(items)]


def encode_values(codes: Array, items: Array) -> list[Stream]:
    """Return the streams of codes and of items of fixed width, given as rows of bytes."""
    data = np.ascontiguousarray(items).reshape(-1)
    typesize = min(items.shape[1], MAX_TYPESIZE)
    return [
        encode_codes(codes, len(items), VALUES),
        Stream(ITEMS_VALUES, PLAIN, data, typesize),
    ]


def encode_arrow(codes: Array, items: pa.Array) -> list[Stream]:
    """Return the streams of a dictionary of Arrow: codes, and the items in their order."""
    form, count = physical(items.type), len(items)
    name = LENGTHS if form.form is Form.BYTES else VALUES
    streams = [encode_codes(codes, count, name, UNSORTED)]
    if form.form is Form.NOTHING:
        return streams
    valid = mask_of(items)
    if valid is not None:
        streams.append(Stream(ITEMS_VALID, PLAIN, np.packbits(valid, bitorder="little")))
    if form.form is Form.BYTES:
        return [*streams, *_text_items(items if valid is None else items.fill_null(""))]
    values = values_of(items, form)
    if valid is not None:
        values = values.copy()
        values[~valid] = 0
    data = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
    return [*streams, Stream(ITEMS_VALUES, PLAIN, data, min(form.width, MAX_TYPESIZE) or 1)]


def _text_items(items: pa.Array) -> list[Stream]:
    offsets = offsets_of(items, f"<i{physical(items.type).width}")
    lengths = replace(numbers.encode_lengths(offsets, ONE_PAGE), name=ITEMS_LENGTHS)
    body = bytes_of(items.buffers()[2])[int(offsets[0]) : int(offsets[-1])]
    return [lengths, Stream(ITEMS_VALUES, PLAIN, body, is_text=True)]
