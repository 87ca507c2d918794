"""Statistics of an Arrow array: the nulls, the NaNs and the bounds of each page.

Knows nothing of encodings and files. The array is one that its codec accepts: offsets ascend, text
is UTF-8, codes lie inside their dictionary, decimals have no more digits than their type.

Theory of operation. An array of numbers without nulls is reduced by numpy, all full pages in one
call. Other arrays are cut into pages, and kernels of Arrow find the extremes of each page; they
skip nulls, whose slots may hold any bytes. No Python code is called per row. NaNs are counted but
are never bounds. Fixed-size binary and intervals have no bounds. The bounds of a page of a
dictionary array are the bounds of the values that its rows refer to. Bounds are Python numbers or
bytes until all pages are known. Then they are encoded: numbers as little-endian bytes, text as a
prefix.

Bounds of text and binary values: the smallest and the largest item, cut to a prefix. A bound has at
most `PREFIX_BYTES`. A prefix of the smallest item is never above the item; a prefix of the largest
item is rounded up. Bounds of text are text.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.types import as_stored, bytes_of, is_binary, is_text
from blztable.columns.parts.physical import NUMPY_TYPES
from blztable.format.line import Statistics

PREFIX_BYTES = 32


def round_down_prefix(item: bytes, is_text: bool) -> bytes:
    """Return the item, or a prefix of it, which is never above the item."""
    if len(item) <= PREFIX_BYTES:
        return item
    prefix = item[:PREFIX_BYTES]
    return _whole_characters(prefix).encode("utf-8") if is_text else prefix


def round_up_prefix(item: bytes, is_text: bool) -> bytes | None:
    """Return the item, or a short item above all items with its prefix; None if none exists."""
    return item if len(item) <= PREFIX_BYTES else above_prefix(item[:PREFIX_BYTES], is_text)


def above_prefix(prefix: bytes, is_text: bool) -> bytes | None:
    """Return the smallest item of at most this length above all items with this prefix, or None."""
    if not is_text:
        kept = prefix.rstrip(b"\xff")
        return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
    text = _whole_characters(prefix).rstrip(chr(0x10FFFF))
    if not text:
        return None
    above = ord(text[-1]) + 1
    # Surrogates are not characters.
    return (text[:-1] + chr(0xE000 if above == 0xD800 else above)).encode("utf-8")


def _whole_characters(prefix: bytes) -> str:
    """Decode a prefix; drop a character that is cut at its end."""
    return prefix.decode("utf-8", "ignore")


Key = int | float | bytes
# The bounds of a page; None if the page has no value. Text may have no upper bound.
Bounds = tuple[Key, Key | None] | None
# The nulls, the NaNs and the bounds of a page.
Page = tuple[int, int, Bounds]
# Decimals of at most this precision fit into their lowest 64-bit word.
_WORD_DIGITS = 18
# If a dictionary has more values per row than this, its unused values are not counted.
_DENSE = 8


def statistics(array: pa.Array, page_rows: int) -> tuple[Statistics, Statistics]:
    """Return the statistics of each page of an array, and those of all rows as one zone.

    An array of the null type is one page.
    """
    if pa.types.is_null(array.type):
        # No file holds its page statistics, and it may have more rows than memory has bytes.
        whole = Statistics((len(array),), (0,), (None,), (None,))
        return whole if len(array) else Statistics((), (), (), ()), whole
    array = as_stored(array)
    type_ = array.type
    if pa.types.is_dictionary(type_):
        values = as_stored(array.dictionary)
        type_ = values.type
        pages = [_of_dictionary(page, values) for page in _cut(array, page_rows)]
    elif array.null_count == 0 and _is_number(type_):
        pages = _of_numbers(_numbers(array), page_rows)
    else:
        pages = [_of_page(page) for page in _cut(array, page_rows)]
    of_pages = _encoded(type_, pages)
    return of_pages, of_pages if len(pages) == 1 else _encoded(type_, [_joined(pages)])


def _cut(array: pa.Array, page_rows: int) -> list[pa.Array]:
    return [array[start : start + page_rows] for start in range(0, len(array), page_rows)]


def _of_page(page: pa.Array) -> Page:
    """Return the statistics of one page of a plain type."""
    type_, nulls = page.type, page.null_count
    values = len(page) - nulls
    if values == 0:
        return nulls, 0, None
    if _is_number(type_):
        ((_, nans, bounds),) = _of_numbers(_numbers(page.drop_null()), values)
        return nulls, nans, bounds
    if pa.types.is_boolean(type_):
        return nulls, 0, (int(page.true_count == values), int(page.true_count > 0))
    if is_text(type_) or is_binary(type_):
        low, high = (_first_bytes(extreme) for extreme in pc.min_max(page).values())
        lower = round_down_prefix(low, is_text(type_))
        return nulls, 0, (lower, round_up_prefix(high, is_text(type_)))
    if pa.types.is_decimal(type_):
        lowest, highest = (_unscaled(extreme) for extreme in pc.min_max(page).values())
        return nulls, 0, (lowest, highest)
    return nulls, 0, None


def _of_dictionary(page: pa.DictionaryArray, values: pa.Array) -> Page:
    """Return the statistics of one page of a dictionary array."""
    codes = _numbers(page.indices.drop_null()).astype(np.intp, copy=False)
    if len(values) <= _DENSE * len(codes):
        counts = np.bincount(codes, minlength=len(values))
        used = np.flatnonzero(counts)
        counts = counts[used]
    else:
        used, counts = np.unique(codes, return_counts=True)
    referred = values.take(pa.array(used))
    nulls, nans, bounds = _of_page(referred)
    if nulls or nans:  # These counted values of the dictionary; count rows instead.
        is_null = referred.is_null().to_numpy(zero_copy_only=False)
        nulls = int(counts[is_null].sum())
    if nans:
        # `to_numpy` converts nulls to NaN too.
        is_nan = np.isnan(referred.to_numpy(zero_copy_only=False))
        nans = int(counts[is_nan & ~is_null].sum())
    return page.null_count + nulls, nans, bounds


def _is_number(type_: pa.DataType) -> bool:
    """True if numpy can view the values as numbers of the same order."""
    is_decimal = pa.types.is_decimal(type_)
    return type_.id in NUMPY_TYPES or (is_decimal and type_.precision <= _WORD_DIGITS)


def _numbers(array: pa.Array) -> np.ndarray:
    """View an array without nulls as numbers; a decimal as its lowest 64-bit word."""
    width = array.type.byte_width
    data = bytes_of(array.buffers()[1])[array.offset * width :][: len(array) * width]
    if array.type.id in NUMPY_TYPES:
        return data.view(NUMPY_TYPES[array.type.id])
    return data.view("<i8")[:: width // 8]


def _of_numbers(values: np.ndarray, page_rows: int) -> list[Page]:
    """Return the statistics of each page of numbers."""
    if values.dtype.kind != "f":
        low, high = _reduced(np.minimum, values, page_rows), _reduced(np.maximum, values, page_rows)
        return [(0, 0, bounds) for bounds in zip(low, high, strict=True)]
    is_nan = np.isnan(values)
    nans = [0] * -(-len(values) // page_rows)
    if is_nan.any():
        nans = _reduced(np.add, is_nan, page_rows)
        # A signalling NaN makes fmin and fmax forget the values before it.
        values = np.where(is_nan, values.dtype.type(np.nan), values)
    low, high = _reduced(np.fmin, values, page_rows), _reduced(np.fmax, values, page_rows)
    pages = zip(nans, low, high, strict=True)
    return [(0, count, (low, high) if low <= high else None) for count, low, high in pages]


def _reduced(function: np.ufunc, values: np.ndarray, page_rows: int) -> list[Any]:
    """Reduce the values of each page to a Python number."""
    if 0 < len(values) <= page_rows:  # A fast path: the columns of a wide table have one page.
        return [function.reduce(values).item()]
    full = len(values) // page_rows * page_rows
    pages = function.reduce(values[:full].reshape(-1, page_rows), axis=1)
    if full < len(values):
        pages = np.append(pages, function.reduce(values[full:]))
    result: list[Any] = pages.tolist()
    return result


def _first_bytes(item: pa.Scalar) -> bytes:
    """Return the first bytes of an item, one more than a prefix may have."""
    data: bytes = item.as_buffer()[: PREFIX_BYTES + 1].to_pybytes()
    return data


def _unscaled(decimal: pa.Scalar) -> int:
    """Return the integer in the bytes of a decimal."""
    data = pa.repeat(decimal, 1).buffers()[1].to_pybytes()
    return int.from_bytes(data[: decimal.type.byte_width], "little", signed=True)


def _joined(pages: Sequence[Page]) -> Page:
    """Return the statistics of all pages as one page."""
    known = [bounds for _, _, bounds in pages if bounds is not None]
    highest = [high for _, high in known if high is not None]
    low = min((low for low, _ in known), default=None)
    high = max(highest, default=None) if len(highest) == len(known) else None
    bounds = None if low is None else (low, high)
    return sum(nulls for nulls, _, _ in pages), sum(nans for _, nans, _ in pages), bounds


def _encoded(type_: pa.DataType, pages: Sequence[Page]) -> Statistics:
    """Return the statistics of pages, with the bounds as bytes."""
    bounds = [(None, None) if page is None else page for _, _, page in pages]
    return Statistics(
        tuple(nulls for nulls, _, _ in pages),
        tuple(nans for _, nans, _ in pages),
        tuple(_bytes(type_, low) for low, _ in bounds),
        tuple(_bytes(type_, high) for _, high in bounds),
    )


def _bytes(type_: pa.DataType, key: Key | None) -> bytes | None:
    """Return the little-endian bytes of a bound."""
    if isinstance(key, int):
        return key.to_bytes(max(type_.bit_width // 8, 1), "little", signed=key < 0)
    if isinstance(key, float):
        return np.array(key, NUMPY_TYPES[type_.id]).tobytes()
    return key
