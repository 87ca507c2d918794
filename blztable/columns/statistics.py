"""Bounds and counts of each page of a block, from its streams.

A bound is the little-endian bytes of a value; of text and binary at most `PREFIX_BYTES`, cut so
that it stays a bound: what is below the smallest value is below all, and the largest is raised
where it is cut. NaN is counted and bounds nothing. Fixed-size binary and intervals have no bounds.

Returned are plain tuples: how they are written down is the format's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from blztable.columns.fixed import NUMPY_TYPES
from blztable.columns.nulls import bits_of
from blztable.columns.plain import stored_type
from blztable.columns.stream import ENDS, VALID, VALUES, Block
from blztable.columns.text import NARROW, TEXT

WORD = 8
PREFIX_WORDS = 4
PREFIX_BYTES = WORD * PREFIX_WORDS

# By the number of bytes that count, from the first.
_MASKS = np.array([(1 << 64) - (1 << 64 - 8 * size) for size in range(WORD + 1)], np.uint64)

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


def statistics(type_: pa.DataType, block: Block) -> tuple[RunStatistics, RunStatistics]:
    """What is known of each page of a block of this type, and of the block as one run."""
    streams = {stream.layout.name: stream.data for stream in block.streams}
    mask = bits_of(streams[VALID], 0, block.rows).view(np.bool_) if VALID in streams else None
    pages = _Pages(block.rows, block.page_rows, mask)
    stored = stored_type(type_)
    nans = (0,) * pages.count
    encode: Callable[[Key], bytes] = bytes  # type: ignore[assignment]
    bounds: list[Bounds] = [None] * pages.count
    if pa.types.is_null(type_):
        mask = np.zeros(block.rows, np.bool_)
    elif ENDS in streams:
        ends = streams[ENDS].view("<i4" if stored.id in NARROW else "<i8")
        bounds = _of_items(pages, ends, streams[VALUES], stored.id in TEXT)
    elif pa.types.is_boolean(stored) or stored.id in NUMPY_TYPES:
        values = streams[VALUES].view(NUMPY_TYPES.get(stored.id, "<u1"))
        encode = lambda key: values.dtype.type(key).tobytes()  # noqa: E731
        if values.dtype.kind == "f":
            bounds, nans = _of_floats(pages, values)
        else:
            bounds = _of_integers(pages, values)
    elif pa.types.is_decimal(stored):
        words = stored.bit_width // 64
        bounds = _of_wide_integers(pages, streams[VALUES].view("<u8").reshape(-1, words))
        encode = lambda key: _wide_bytes(key, words)  # noqa: E731
    nulls = (0,) * pages.count if mask is None else pages.sums(~mask)
    return _runs(nulls, nans, bounds, encode), _runs(
        (sum(nulls),), (sum(nans),), [_outermost(bounds)], encode
    )


def _runs(
    nulls: tuple[int, ...],
    nans: tuple[int, ...],
    bounds: Sequence[Bounds],
    encode: Callable[[Key], bytes],
) -> RunStatistics:
    return RunStatistics(
        nulls,
        nans,
        tuple(None if page is None else encode(page[0]) for page in bounds),
        tuple(None if page is None or page[1] is None else encode(page[1]) for page in bounds),
    )


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
    if pages.mask is not None:
        nans = pages.sums(np.isnan(values) & pages.mask)
        values = np.where(pages.mask, values, values.dtype.type(np.nan))
    else:
        nans = pages.sums(np.isnan(values))
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
        low, high = _item_extremes(page, starts, lengths)
        result.append((_lowered(low, is_text), _raised(high, is_text)))
    return result


def _item_extremes(
    data: np.ndarray, starts: np.ndarray, lengths: np.ndarray
) -> tuple[tuple[bytes, bool], tuple[bytes, bool]]:
    """The smallest and the largest item. Their first bytes leave few that can be it."""
    has_empty = lengths.min() == 0
    if has_empty:
        filled = np.flatnonzero(lengths)
        starts, lengths = starts[filled], lengths[filled]
        if len(starts) == 0:
            return (b"", True), (b"", True)
    first = data[starts]
    least, most = first.min(), first.max()
    if lengths.max() == 1:
        low, high = (bytes([least]), True), (bytes([most]), True)
    else:
        tie_low, tie_high = np.flatnonzero(first == least), np.flatnonzero(first == most)
        low = _extreme(data, starts[tie_low], lengths[tie_low], np.min)
        high = _extreme(data, starts[tie_high], lengths[tie_high], np.max)
    return ((b"", True) if has_empty else low), high


def _extreme(
    data: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
    pick: Callable[[np.ndarray], np.generic],
) -> tuple[bytes, bool]:
    """The first bytes of the smallest or largest item, and whether they are all of it.

    They are compared word by word, and those that tie in a word go on to the next. Where an item
    ends within the word, those that tie differ by zero bytes at their ends only: the shortest is
    the smallest.
    """
    prefix = b""
    for _ in range(PREFIX_WORDS):
        words = _words(data, starts, lengths)
        extreme = pick(words)
        ties = np.flatnonzero(words == extreme)
        lengths = lengths[ties]
        length = int(pick(lengths))
        prefix += int(extreme).to_bytes(WORD, "big")[:length]
        if length <= WORD:
            return prefix, True
        longer = lengths > WORD
        starts, lengths = starts[ties][longer] + WORD, lengths[longer] - WORD
    return prefix, False


def _words(data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Eight bytes of each item as a number that sorts like them, zeros behind its end."""
    at = np.ndarray((len(data) - WORD + 1,), "<u8", data, strides=(1,))
    words = at[starts].byteswap()
    words &= _MASKS[np.minimum(lengths, WORD)]
    return words


def _lowered(item: tuple[bytes, bool], is_text: bool) -> bytes:
    prefix, whole = item
    return prefix if whole or not is_text else _whole_characters(prefix).encode("utf-8")


def _raised(item: tuple[bytes, bool], is_text: bool) -> bytes | None:
    """The smallest short item above all that begin like this; None where there is none."""
    prefix, whole = item
    if whole:
        return prefix
    if not is_text:
        kept = prefix.rstrip(b"\xff")
        return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
    text = _whole_characters(prefix).rstrip(chr(0x10FFFF))
    if not text:
        return None
    above = ord(text[-1]) + 1
    # The surrogates are no characters.
    return (text[:-1] + chr(0xE000 if above == 0xD800 else above)).encode("utf-8")


def _whole_characters(prefix: bytes) -> str:
    """The text of a prefix that may end inside a character."""
    return prefix.decode("utf-8", "ignore")
