"""Text and binary from codes: the items of a dictionary, one behind the other.

Arrow's `take` costs some nanoseconds an item. So two or four codes are looked up at a time: they
are bits of one index into a table of all combinations of items. The index is made by shifts of
whole arrays. Of more than 128 items the combinations would leave the cache, so these are taken one
by one; items of one length by numpy, which is three times faster.

Knows no files and no columns.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.types import bytes_of, empty, offsets_of, view
from blztable.columns.parts.stream import need
from blztable.format.records import Array

# Rows that are looked up at once. Threads wait for each other in each step, so steps are long.
_STEP = 1 << 17
# To make a table takes longer than to take fewer rows.
_FEW_ROWS = 1 << 12
# More bytes are counted before memory is made.
_MOST_TAKEN = 1 << 26
# The largest tables of combinations, and their bytes: larger ones are slower.
_MOST_COMBINATIONS, _MOST_BYTES = 1 << 14, 1 << 20


def spell(
    items: pa.Array, longest: int, codes: Array, make: Callable[[int], pa.Buffer]
) -> tuple[Array, pa.Buffer]:
    """Return the offsets and the bytes of the items of checked codes, in memory that `make` makes.

    `items` are large binary without nulls, the longest of so many bytes.
    """
    if len(codes) < _FEW_ROWS and longest * len(codes) < _MOST_TAKEN:
        taken = items.take(pa.array(codes))
        _, ends, body = taken.buffers()
        if not len(codes):
            return np.zeros(1, np.int64), pa.py_buffer(b"")
        return np.frombuffer(ends, "<i8", len(codes) + 1), body or pa.py_buffer(b"")
    table = _Table.of(items, len(codes), codes.itemsize)
    need(float(table.longest) * len(codes) < 1 << 62, "bytes of items")
    ends = empty(len(codes) + 1, np.int64)
    ends[0] = 0
    steps = range(0, len(codes), _STEP)
    for start in steps:
        some = codes[start : start + _STEP]
        target = ends[1 + start : 1 + start + len(some)]
        table.fill_ends(some, table.numbers(some), int(ends[start]), target)
    total = int(ends[-1])
    body = make(total)
    out = view(body)
    for start in steps:
        some = codes[start : start + _STEP]
        target = out[int(ends[start]) : int(ends[start + len(some)])]
        table.put_items(some, table.numbers(some), target)
    return ends, body


@dataclass(frozen=True, slots=True)
class _Table:
    """All combinations of `group` items, each by the bits of its codes.

    Attributes
    ----------
    bits
        The bits of a code in an index.
    each
        The length of every item; 0 if they differ.
    longest
        The length of the longest item.
    items
        The items.
    lengths
        The length of each item.
    words
        The lengths of each combination as one number.
    combinations
        The bytes of each combination: of items of one length as an array of numpy, which has
        numbers if there are 1, 2, 4 or 8 bytes; otherwise as binary.
    """

    group: int
    bits: int
    each: int
    longest: int
    items: pa.Array
    lengths: Array
    words: Array
    combinations: pa.Array | Array

    @classmethod
    def of(cls, items: pa.Array, rows: int, width: int) -> "_Table":
        """Return the table for so many rows, and codes of so many bytes."""
        bits = max((len(items) - 1).bit_length(), 1)
        lengths = np.diff(offsets_of(items, "<i8"))
        longest = int(lengths.max())
        most = min(_MOST_COMBINATIONS, rows // 8)
        group = 1
        for count in (2, 4) if width == 1 else ():
            size = 1 << bits * count
            if size <= most and size * count * longest <= _MOST_BYTES:
                group = count
        dtypes = (dtype for dtype in ("|u1", "<u2", "<u4") if longest <= np.iinfo(dtype).max)
        lengths = lengths.astype(next(dtypes, "<i8"))
        combinations, words = items, lengths
        if group > 1:
            # Codes of no item are not used: they stand for the last one.
            numbers = np.arange(1 << bits * group)
            shifted = (numbers >> bits * digit & (1 << bits) - 1 for digit in range(group))
            digits = [np.minimum(number, len(items) - 1) for number in shifted]
            parts = [items.take(pa.array(digit)) for digit in digits]
            combinations = pc.binary_join_element_wise(*parts, pa.scalar(b"", items.type))
            words = np.ascontiguousarray(lengths[np.stack(digits, axis=1)])
            words = words.view(f"<u{group * lengths.itemsize}").reshape(-1)
        each = longest if int(lengths.min()) == longest else 0
        if each:
            nbytes = each * group
            first = int(offsets_of(combinations, "<i8")[0])
            data = bytes_of(combinations.buffers()[2])[first : first + len(combinations) * nbytes]
            combinations = data.view(f"<u{nbytes}" if nbytes in (1, 2, 4, 8) else f"|V{nbytes}")
        return cls(group, bits, each, longest, items, lengths, words, combinations)

    def numbers(self, codes: Array) -> Array:
        """Return the index of each whole group of codes."""
        if self.group == 1:
            return codes
        codes = codes[: len(codes) // self.group * self.group]
        if self.group == 4 and self.bits <= 2:
            # One product shifts the four codes side by side, into the highest byte.
            shifts = (24 - (8 - self.bits) * digit for digit in range(4))
            product = codes.view("<u4") * np.uint32(sum(1 << shift for shift in shifts))
            return (product >> np.uint32(24)).astype("|u1") & np.uint8((1 << 4 * self.bits) - 1)
        # The lower byte of two is the first code.
        numbers = codes.view("<u2")
        numbers = _joined(numbers, 8, self.bits)
        if self.group == 4:
            numbers = _joined(numbers.view("<u4"), 16, 2 * self.bits).astype("<u2")
        return numbers

    def put_items(self, codes: Array, numbers: Array, out: Array) -> None:
        """Put the bytes of all items, one after another, into a result."""
        rest = codes[len(numbers) * self.group :]
        whole = len(out) - int(self.lengths[rest].sum(dtype=np.int64))
        if isinstance(self.combinations, np.ndarray):
            target = out[:whole].view(self.combinations.dtype)
            # Unlike the default mode, "wrap" writes to `out` without a buffer.
            np.take(self.combinations, numbers, out=target, mode="wrap")
        else:
            out[:whole] = _taken(self.combinations, numbers)
        if len(rest):
            out[whole:] = _taken(self.items, rest)

    def fill_ends(self, codes: Array, numbers: Array, at: int, out: Array) -> None:
        """Make the ends of the items, of which the first begins at `at`."""
        if self.each:
            np.add(_ends_of_equal(len(codes), self.each), at, out=out)
        else:
            np.cumsum(self._lengths_of(codes, numbers), out=out)
            out += at

    def _lengths_of(self, codes: Array, numbers: Array) -> Array:
        lengths = np.take(self.words, numbers, mode="wrap").view(self.lengths.dtype)
        rest = codes[len(numbers) * self.group :]
        return np.concatenate([lengths, self.lengths[rest]]) if len(rest) else lengths


@lru_cache(4)
def _ends_of_equal(count: int, length: int) -> Array:
    """Return where items of one length end."""
    return np.arange(length, length * (count + 1), length)


def _joined(numbers: Array, bits: int, kept: int) -> Array:
    """Return the lower `kept` bits of both halves of each number, side by side."""
    low = numbers.dtype.type((1 << bits) - 1)
    return numbers & low | (numbers & ~low) >> numbers.dtype.type(bits - kept)


def _taken(items: pa.Array, codes: Array) -> Array:
    """Return the bytes of these items, one after another."""
    taken = items.take(pa.array(codes))
    offsets = offsets_of(taken, "<i8")
    return bytes_of(taken.buffers()[2])[int(offsets[0]) : int(offsets[-1])]
