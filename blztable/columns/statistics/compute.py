"""Bounds and counts of each page of a block, from its streams.

A bound is the little-endian bytes of a value; of text and binary a prefix that is still a bound.
NaN is counted and bounds nothing. Fixed-size binary and intervals have no bounds.

A dictionary column is bounded by the values its codes stand for, whatever else the dictionary has.

Returned are plain tuples: how they are written down is the format's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.block_terms import CODES, ENDS, VALID, VALUES
from blztable.columns.blocks import Block
from blztable.columns.codecs.fixed import NUMPY_TYPES
from blztable.columns.codecs.text import NARROW, TEXT
from blztable.columns.codecs.validity import bits_of
from blztable.columns.statistics.prefixes import (
    WORD,
    item_extremes,
    round_down_prefix,
    round_up_prefix,
)
from blztable.columns.stored import as_compared, as_stored, stored_type
from blztable.columns.types import encode

# What bounds are compared by: a number, a tuple of words, the bytes of an item.
Key = int | float | bytes | tuple[int, ...]
# The bounds of a page, None without a value. A highest item that cannot be raised is None.
Bounds = tuple[Key, Key | None] | None


@dataclass(frozen=True, slots=True)
class RunStatistics:
    """One entry a run of rows; a bound that is not known is None."""

    nulls: tuple[int, ...]
    nans: tuple[int, ...]
    lowest: tuple[bytes | None, ...]
    highest: tuple[bytes | None, ...]


def statistics(
    type_: pa.DataType, block: Block, dictionary: pa.Array | None = None
) -> tuple[RunStatistics, RunStatistics]:
    """What is known of each page of a block of this type, and of the block as one run.

    The rows of the null type are one page.
    """
    if pa.types.is_null(type_):
        # There is no file for statistics of pages, and there may be more rows than memory holds.
        whole = RunStatistics((block.rows,), (0,), (None,), (None,))
        return whole if block.rows else RunStatistics((), (), (), ()), whole
    streams = {stream.layout.name: stream.data for stream in block.streams}
    mask = bits_of(streams[VALID], 0, block.rows).view(np.bool_) if VALID in streams else None
    pages = _Pages(block.rows, block.page_rows, mask)
    if dictionary is None:
        known = _of_values(stored_type(type_), streams, pages)
    else:
        mask = _with_values(mask, streams[CODES], type_, dictionary)
        pages = _Pages(block.rows, block.page_rows, mask)
        known = _of_dictionary(pages, _codes(streams[CODES], type_), dictionary)
    nulls = (0,) * pages.count if mask is None else pages.sums(~mask)
    found = _runs(nulls, known)
    if pages.count == 1:
        return found, found
    outermost = _Known([_outermost(known.bounds)], (sum(known.nans),), known.encode)
    return found, _runs((sum(nulls),), outermost)


@dataclass(frozen=True, slots=True)
class _Known:
    """Bounds and NaNs of runs, and how a bound becomes bytes."""

    bounds: list[Bounds]
    nans: tuple[int, ...]
    encode: Callable[[Key], bytes]


def _of_values(stored: pa.DataType, streams: Mapping[str, np.ndarray], pages: "_Pages") -> _Known:
    """What is known of pages of a plain type."""
    nans = (0,) * pages.count
    if ENDS in streams:
        ends = streams[ENDS].view("<i4" if stored.id in NARROW else "<i8")
        bounds = _of_items(pages, ends, streams[VALUES], stored.id in TEXT)
        return _Known(bounds, nans, _same_bytes)
    if pa.types.is_boolean(stored) or stored.id in NUMPY_TYPES:
        values = streams[VALUES].view(NUMPY_TYPES.get(stored.id, "<u1"))
        if values.dtype.kind == "f":
            bounds, nans = _of_floats(pages, values)
        else:
            bounds = _of_integers(pages, values)
        return _Known(bounds, nans, partial(_number_bytes, values.dtype))
    if pa.types.is_decimal(stored):
        words = stored.bit_width // (8 * WORD)
        bounds = _of_wide_integers(pages, streams[VALUES].view("<u8").reshape(-1, words))
        return _Known(bounds, nans, partial(_wide_bytes, words=words))
    return _Known([None] * pages.count, nans, _same_bytes)


def _runs(nulls: tuple[int, ...], known: _Known) -> RunStatistics:
    bounds, encode = known.bounds, known.encode
    return RunStatistics(
        nulls,
        known.nans,
        tuple(None if page is None else encode(page[0]) for page in bounds),
        tuple(None if page is None or page[1] is None else encode(page[1]) for page in bounds),
    )


def _same_bytes(key: Key) -> bytes:
    assert isinstance(key, bytes)
    return key


def _number_bytes(dtype: np.dtype[Any], key: Key) -> bytes:
    return dtype.type(key).tobytes()


def _codes(data: np.ndarray, type_: pa.DataType) -> np.ndarray:
    return data.view(NUMPY_TYPES[type_.index_type.id])


def _with_values(
    mask: np.ndarray | None, codes: np.ndarray, type_: pa.DataType, dictionary: pa.Array
) -> np.ndarray | None:
    """The rows with a value: neither their code nor what it stands for is null."""
    if dictionary.null_count == 0:
        return mask
    there = dictionary.is_valid().to_numpy(zero_copy_only=False)[_codes(codes, type_)]
    return there if mask is None else mask & there


def _of_dictionary(pages: "_Pages", codes: np.ndarray, dictionary: pa.Array) -> _Known:
    """What is known of pages of codes: the bounds of the values that rank lowest and highest."""
    values = as_stored(dictionary)
    nans = (0,) * pages.count
    mask = pages.mask
    if len(values) == 0:
        return _Known([None] * pages.count, nans, _same_bytes)
    if pa.types.is_floating(values.type):
        is_nan = np.isnan(values.to_numpy(zero_copy_only=False))[codes]
        is_nan = is_nan if mask is None else is_nan & mask
        nans = pages.sums(is_nan)
        mask = ~is_nan if mask is None else mask & ~is_nan
    try:
        order = pc.sort_indices(as_compared(values)).to_numpy()
    except pa.ArrowNotImplementedError:
        return _Known([None] * pages.count, nans, _same_bytes)
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    by_rank = _of_integers(_Pages(pages.rows, pages.page_rows, mask), ranks[codes])
    ends = [(int(page[0]), int(page[1])) if page else None for page in by_rank]  # type: ignore[arg-type]
    used = sorted({rank for page in ends if page for rank in page})
    block = encode(values.take(pa.array(order[used])), 1)
    streams = {stream.layout.name: stream.data for stream in block.streams}
    alone = _of_values(values.type, streams, _Pages(block.rows, 1, None))
    of_rank = dict(zip(used, alone.bounds, strict=True))
    bounds: list[Bounds] = []
    for page in ends:
        low, high = (of_rank[page[0]], of_rank[page[1]]) if page else (None, None)
        bounds.append((low[0], high[1]) if low and high else None)
    return _Known(bounds, nans, alone.encode)


def _outermost(bounds: Sequence[Bounds]) -> Bounds:
    known = [page for page in bounds if page is not None]
    if not known:
        return None
    highest = [page[1] for page in known if page[1] is not None]
    low = min(page[0] for page in known)
    return low, max(highest) if len(highest) == len(known) else None


@dataclass(frozen=True, slots=True)
class _Pages:
    """Rows of a block by page, and which of them have a value."""

    rows: int
    page_rows: int
    mask: np.ndarray | None

    @property
    def count(self) -> int:
        return -(-self.rows // self.page_rows)

    def slices(self) -> list[slice]:
        starts = range(0, self.rows, self.page_rows)
        return [slice(start, min(start + self.page_rows, self.rows)) for start in starts]

    def reduce(self, function: np.ufunc, values: np.ndarray) -> list[int | float]:
        """`function` over each page."""
        full = self.rows // self.page_rows * self.page_rows
        if full == 0 and self.rows:
            return [function.reduce(values).item()]
        pages = function.reduce(values[:full].reshape(-1, self.page_rows), axis=1)
        if full < self.rows:
            pages = np.append(pages, function.reduce(values[full:]))
        result: list[int | float] = pages.tolist()
        return result

    def sums(self, flags: np.ndarray) -> tuple[int, ...]:
        """How many flags are set in each page."""
        return tuple(int(np.count_nonzero(flags[rows])) for rows in self.slices())


def _of_integers(pages: _Pages, values: np.ndarray) -> list[Bounds]:
    low = high = values
    if pages.mask is not None:
        limits = np.iinfo(values.dtype)
        low = np.where(pages.mask, values, values.dtype.type(limits.max))
        high = np.where(pages.mask, values, values.dtype.type(limits.min))
    found = zip(pages.reduce(np.minimum, low), pages.reduce(np.maximum, high), strict=True)
    return [bounds if bounds[0] <= bounds[1] else None for bounds in found]


def _of_floats(pages: _Pages, values: np.ndarray) -> tuple[list[Bounds], tuple[int, ...]]:
    is_nan = np.isnan(values)
    if pages.mask is not None:
        nans = pages.sums(is_nan & pages.mask)
        values = np.where(pages.mask & ~is_nan, values, values.dtype.type(np.nan))
    else:
        nans = pages.sums(is_nan)
        if any(nans):
            # All NaNs alike: a signalling one makes fmin and fmax forget what came before it.
            values = np.where(is_nan, values.dtype.type(np.nan), values)
    found = zip(pages.reduce(np.fmin, values), pages.reduce(np.fmax, values), strict=True)
    return [bounds if bounds[0] <= bounds[1] else None for bounds in found], nans


def _of_wide_integers(pages: _Pages, values: np.ndarray) -> list[Bounds]:
    """Little-endian words, the last one signed."""
    result: list[Bounds] = []
    for rows in pages.slices():
        page = values[rows] if pages.mask is None else values[rows][pages.mask[rows]]
        if len(page) == 0:
            result.append(None)
            continue
        words = [page[:, -1].view(np.int64), *page[:, -2::-1].T]
        result.append((_wide_extreme(words, np.min), _wide_extreme(words, np.max)))
    return result


def _wide_extreme(words: list[np.ndarray], pick: Callable[[np.ndarray], int]) -> tuple[int, ...]:
    """The extreme of values given by their words, the most significant first."""
    key: list[int] = []
    keep = np.ones(len(words[0]), np.bool_)
    for word in words:
        extreme = pick(word[keep])
        key.append(int(extreme))
        keep &= word == extreme
    return tuple(key)


def _wide_bytes(key: Key, words: int) -> bytes:
    assert isinstance(key, tuple)
    assert len(key) == words
    first, *rest = key
    lower = b"".join(word.to_bytes(WORD, "little") for word in reversed(rest))
    return lower + first.to_bytes(WORD, "little", signed=True)


def _of_items(pages: _Pages, ends: np.ndarray, data: np.ndarray, is_text: bool) -> list[Bounds]:
    result: list[Bounds] = []
    for rows in pages.slices():
        begin = int(ends[rows.start - 1]) if rows.start else 0
        # A word more than the items, so that the last one can be read in whole words too.
        stop = int(ends[rows.stop - 1]) + WORD
        page = data[begin:stop]
        if stop > len(data):
            page = np.append(page, np.zeros(WORD, np.uint8))
        page_ends = np.subtract(ends[rows], begin, dtype=np.int64)
        starts = np.append(0, page_ends[:-1])
        lengths = page_ends - starts
        if pages.mask is not None:
            starts, lengths = starts[pages.mask[rows]], lengths[pages.mask[rows]]
        if len(starts) == 0:
            result.append(None)
            continue
        low, high = item_extremes(page, starts, lengths)
        result.append((round_down_prefix(low, is_text), round_up_prefix(high, is_text)))
    return result
