"""The encoding of text and binary of few different items: a code per row, and the items once.

The stream `ends` has the codes; the stream `values` has no bytes in the file.

Theory of operation. Arrow's `take` costs some nanoseconds per item. So `spell` looks up two or four
codes at a time: they are bits of one index into a table of all combinations of items. The index is
made by shifts of whole arrays. The lengths of the items come from a second table, and their sum is
compared with the bytes of the page before anything is copied. Of more than 128 items the
combinations would leave the cache, so these are taken one by one; items of one length by numpy,
which is three times faster.

A sample decides whether to encode text so. Two codes of few items are looked up at once, which is
as fast as to decompress text. More items take twice that time, so they have to save more.

Knows no files.
"""

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable import tuning
from blztable.arrow.types import bytes_of, is_text, mask_of
from blztable.block_terms import ENDS
from blztable.columns.blocks import Block, Encoding, Stream, StreamLayout
from blztable.columns.codecs import text, validity
from blztable.columns.encodings.items import starts_of
from blztable.columns.encodings.numbers import codes_layout
from blztable.columns.paging import CHUNK_BYTES, page_bytes
from blztable.errors import CorruptError, SchemaError

# A sample of values: this many runs of this many values.
SAMPLE_RUNS, SAMPLE_ROWS = 8, 512
SAMPLED_ROWS = SAMPLE_RUNS * SAMPLE_ROWS
# Of more items a sample of 4,096 rows has mostly different ones: there are above 6,000.
_MOST_SAMPLED = SAMPLED_ROWS * 3 // 4


def sample(rows: int) -> Iterator[slice]:
    """Yield runs of rows, spread evenly."""
    if rows <= SAMPLED_ROWS:
        yield slice(0, rows)
        return
    for number in range(SAMPLE_RUNS):
        start = (rows - SAMPLE_ROWS) * number // (SAMPLE_RUNS - 1)
        yield slice(start, start + SAMPLE_ROWS)


def is_one_chunk(rows: int, page_rows: int, width: int) -> bool:
    """True if a page of codes fits into a chunk, so that a chunk can be decoded by itself."""
    return min(rows, page_rows) * width <= CHUNK_BYTES


def to_try(array: pa.Array, most: int) -> tuple[pa.Array, ...]:
    """Return the rows to make a dictionary of at most `most` items of, one array after the other.

    Return none if a sample has too many different items. If it has many, the first array is an
    eighth of the rows: a dictionary of all takes long if they do not repeat.
    """
    count = _count_distinct([array[rows] for rows in sample(len(array))])
    if not 0 < count <= min(most, _MOST_SAMPLED, len(array) // tuning.current.rows_per_item):
        return ()
    return (array,) if count <= tuning.current.few_items else (array[: len(array) // 8], array)


def _count_distinct(parts: list[pa.Array]) -> int:
    if not pa.types.is_integer(parts[0].type):
        return int(pc.count_distinct(pa.chunked_array(parts)).as_py())
    # numpy sorts integers in a third of the time that Arrow takes to count them.
    values = np.sort(np.concatenate([part.to_numpy() for part in parts]))
    return int(np.count_nonzero(values[1:] != values[:-1])) + min(len(values), 1)


# The bytes of all items, which a reader has in memory as soon as a part is open.
MAX_BYTES = 1 << 18
# The bytes of an item: a step of rows never reaches the 2 GiB of Arrow's short offsets.
MAX_LENGTH = (1 << 16) - 1
# Rows that are looked up at once. Threads wait for each other in each step, so steps are long.
_STEP = 1 << 17
# Items that may have more bytes than this are counted before they are made.
_MOST_MADE = 1 << 26
# The largest tables of combinations, and their bytes: larger ones are slower.
_MOST_COMBINATIONS, _MOST_BYTES = 1 << 14, 1 << 20
# Items that have codes of two bytes, a null among them.
MOST_ITEMS = (1 << 16) - 1
# Text that is compressed to see how many bytes a dictionary saves: twice the window of LZ4.
TRIED_BYTES = 1 << 17

# Returns how many bytes the codes may have that replace this text.
Worth = Callable[[np.ndarray], float]


@dataclass(frozen=True)
class Dictionary(Encoding):
    """Item ends as the numbers of the items in a dictionary.

    Attributes
    ----------
    stored
        The form of the codes.
    width
        The bytes of an item end.
    items
        The items, as binary.
    starts
        Where the items of each page begin, and where the last ones end.
    page_rows
        Rows of a page.
    """

    kind: ClassVar[str] = "dictionary"
    needs_pages: ClassVar[bool] = True

    stored: StreamLayout
    width: int
    items: pa.Array
    starts: np.ndarray
    page_rows: int

    @cached_property
    def table(self) -> "_Table":
        """The combinations of items that are looked up; the more rows, the more."""
        rows = self.page_rows * (len(self.starts) - 1)
        return _Table.of(self.items, rows, self.stored.nbytes(1))

    def parameters(self) -> Mapping[str, object]:
        """Return the bytes of the items and their lengths."""
        lengths = _lengths_of(self.items).astype("<u2")
        data = bytes_of(self.items.buffers()[2])[: int(lengths.sum(dtype=np.int64))]
        return {"items": _to_base64(data), "lengths": _to_base64(lengths)}

    def shifted(self, by: int) -> "Dictionary":
        """Return an encoding that adds a number to the ends."""
        return replace(self, starts=self.starts + by) if by else self

    def decode(self, row: int, codes: np.ndarray, out: np.ndarray) -> None:
        """Make the ends of the items of whole pages."""
        ends, numbers = out.view(f"<i{self.width}"), codes.view(self.stored.dtype)
        for first in range(0, len(numbers), self.page_rows):
            rows = slice(first, first + self.page_rows)
            self.spell((row + first) // self.page_rows, numbers[rows], ends[rows], None)

    def spell(
        self, page: int, codes: np.ndarray, ends: np.ndarray | None, values: np.ndarray | None
    ) -> None:
        """Make the ends and the bytes of the items of a page; raise CorruptError for wrong codes.

        Parameters
        ----------
        page
            The number of the page.
        codes
            The codes of all its rows.
        ends
            Room for as many item ends; None if they are not wanted.
        values
            Room for the bytes of the items; None if they are not wanted.
        """
        self.check(codes)
        at, stop = int(self.starts[page]), int(self.starts[page + 1])
        low, table = at, self.table
        for first in range(0, len(codes), _STEP):
            part = codes[first : first + _STEP]
            numbers = table.numbers(part)
            pieces = offsets = None
            is_large = table.longest * len(part) > _MOST_MADE
            if is_large and at + table.nbytes_of(part, numbers, None) > stop:
                break
            if values is not None:
                pieces, offsets = table.items_of(part, numbers)
            after = at + table.nbytes_of(part, numbers, pieces)
            if after > stop:
                break
            if ends is not None:
                place = ends[first : first + len(part)]
                if offsets is None:
                    table.fill_ends(part, numbers, at, place)
                else:
                    np.add(offsets[1:], at, out=place)
            if values is not None and pieces is not None:
                values[at - low : after - low] = pieces
            at = after
        else:
            if at == stop:
                return
        raise CorruptError(f"the items of page {page} do not have the bytes of the page")

    def values_of_codes(self, type_: pa.DataType, most: int) -> pa.Array | None:
        """Return the items, which are UTF-8 if the column is text."""
        if len(self.items) > most:
            return None
        kind = pa.string() if is_text(type_) else pa.binary()
        items = pa.Array.from_buffers(kind, len(self.items), self.items.buffers())
        return items.cast(type_)

    def lengths_of(self, codes: np.ndarray) -> np.ndarray:
        """Return the lengths of the items of checked codes."""
        return _lengths_of(self.items)[codes].astype(np.int64)

    def items_of(self, codes: np.ndarray) -> np.ndarray:
        """Return the bytes of the items of checked codes, one after another."""
        return _taken(self.items.cast(pa.large_binary()), codes)[0]

    def check(self, codes: np.ndarray) -> None:
        """Raise CorruptError if a code leads out of the dictionary."""
        if len(codes) and int(codes.max()) >= len(self.items):
            raise CorruptError(f"a code is outside of a dictionary of {len(self.items)} items")


@dataclass(frozen=True, slots=True)
class Spelled(Encoding):
    """Bytes of items that the codes of their ends tell; the file has none of them."""

    kind: ClassVar[str] = "dictionary"

    stored: StreamLayout

    def parameters(self) -> Mapping[str, object]:
        """Return none."""
        return {}


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
    lengths: np.ndarray
    words: np.ndarray
    combinations: pa.Array | np.ndarray

    @classmethod
    def of(cls, items: pa.Array, rows: int, width: int) -> "_Table":
        """Return the table for so many rows, and codes of so many bytes."""
        bits = max((len(items) - 1).bit_length(), 1)
        lengths = _lengths_of(items)
        longest = int(lengths.max())
        most = min(_MOST_COMBINATIONS, rows // 8)
        group = 1
        for count in (2, 4) if width == 1 else ():
            size = 1 << bits * count
            if size <= most and size * count * longest <= _MOST_BYTES:
                group = count
        lengths = lengths.astype("|u1" if longest < 256 else "<u2")
        combinations, words = items, lengths
        if group > 1:
            # Codes of no item are not used: they stand for the last one.
            numbers = np.arange(1 << bits * group)
            places = (numbers >> bits * place & (1 << bits) - 1 for place in range(group))
            digits = [np.minimum(place, len(items) - 1) for place in places]
            parts = [items.take(pa.array(digit)) for digit in digits]
            combinations = pc.binary_join_element_wise(*parts, pa.scalar(b"", items.type))
            words = np.ascontiguousarray(lengths[np.stack(digits, axis=1)])
            words = words.view(f"<u{group * lengths.itemsize}").reshape(-1)
        each = longest if int(lengths.min()) == longest else 0
        if each:
            nbytes = each * group
            data = bytes_of(combinations.buffers()[2])[: len(combinations) * nbytes]
            combinations = data.view(f"<u{nbytes}" if nbytes in (1, 2, 4, 8) else f"|V{nbytes}")
        return cls(group, bits, each, longest, items, lengths, words, combinations)

    def numbers(self, codes: np.ndarray) -> np.ndarray:
        """Return the index of each whole group of codes."""
        if self.group == 1:
            return codes
        codes = codes[: len(codes) // self.group * self.group]
        if self.group == 4 and self.bits <= 2:
            # One product shifts the four codes side by side, into the highest byte.
            shifts = (24 - (8 - self.bits) * place for place in range(4))
            product = codes.view("<u4") * np.uint32(sum(1 << shift for shift in shifts))
            return (product >> np.uint32(24)).astype("|u1") & np.uint8((1 << 4 * self.bits) - 1)
        # The lower byte of two is the first code.
        numbers = codes.view("<u2")
        numbers = _joined(numbers, 8, self.bits)
        if self.group == 4:
            numbers = _joined(numbers.view("<u4"), 16, 2 * self.bits).astype("<u2")
        return numbers

    def items_of(
        self, codes: np.ndarray, numbers: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the bytes of all items, one after another, and their offsets if known."""
        if self.group == 1 and not self.each:
            return _taken(self.items, codes)
        if isinstance(self.combinations, np.ndarray):
            found = np.take(self.combinations, numbers, mode="wrap").view(np.uint8)
        else:
            found = _taken(self.combinations, numbers)[0]
        rest = codes[len(numbers) * self.group :]
        return (np.concatenate([found, _taken(self.items, rest)[0]]) if len(rest) else found), None

    def nbytes_of(self, codes: np.ndarray, numbers: np.ndarray, items: np.ndarray | None) -> int:
        """Return the number of bytes of all items."""
        if items is not None:
            return len(items)
        if self.each:
            return len(codes) * self.each
        return int(self._lengths_of(codes, numbers).sum(dtype=np.int64))

    def fill_ends(self, codes: np.ndarray, numbers: np.ndarray, at: int, out: np.ndarray) -> None:
        """Make the ends of the items, of which the first begins at `at`."""
        if self.each:
            np.add(_ends_of_equal(len(codes), self.each, out.dtype.str), at, out=out)
        else:
            np.cumsum(self._lengths_of(codes, numbers), out=out)
            out += at

    def _lengths_of(self, codes: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        lengths = np.take(self.words, numbers, mode="wrap").view(self.lengths.dtype)
        rest = codes[len(numbers) * self.group :]
        return np.concatenate([lengths, self.lengths[rest]]) if len(rest) else lengths


@lru_cache(4)
def _ends_of_equal(count: int, length: int, dtype: str) -> np.ndarray:
    """Return where items of one length end."""
    return np.arange(length, length * (count + 1), length).astype(dtype)


def _joined(numbers: np.ndarray, bits: int, kept: int) -> np.ndarray:
    """Return the lower `kept` bits of both halves of each number, side by side."""
    low = numbers.dtype.type((1 << bits) - 1)
    return numbers & low | (numbers & ~low) >> numbers.dtype.type(bits - kept)


def items_from_json(value: Mapping[str, object], is_text: bool) -> pa.Array:
    """Read the items; CorruptError unless they are as long as stated, and text if they must be."""
    data, lengths = (_from_base64(value.get(key)) for key in ("items", "lengths"))
    if data is None or lengths is None or len(data) > MAX_BYTES or len(lengths) % 2:
        raise CorruptError(f"the items of a dictionary; expected base64 of {MAX_BYTES} bytes")
    sizes = np.frombuffer(lengths, "<u2")
    ends = np.cumsum(np.append(0, sizes), dtype=np.int64)
    if int(ends[-1]) != len(data) or not 0 < len(sizes) <= 1 << 16:
        raise CorruptError(f"{len(sizes)} items of a dictionary; they have {len(data)} bytes")
    buffers = [None, pa.py_buffer(ends.astype("<i4")), pa.py_buffer(data)]
    if is_text:
        try:
            pa.Array.from_buffers(pa.string(), len(sizes), buffers).validate(full=True)
        except pa.ArrowInvalid:
            raise CorruptError("an item of a dictionary is not UTF-8") from None
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)


def _taken(items: pa.Array, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the bytes of these items, one after another, and their offsets."""
    width = 8 if pa.types.is_large_binary(items.type) else 4
    if not len(codes):
        return np.empty(0, np.uint8), np.zeros(1, f"<i{width}")
    found = items.take(pa.array(codes))
    offsets = bytes_of(found.buffers()[1]).view(f"<i{width}")[: len(codes) + 1]
    return bytes_of(found.buffers()[2])[: int(offsets[-1])], offsets


def _lengths_of(items: pa.Array) -> np.ndarray:
    return np.diff(bytes_of(items.buffers()[1]).view("<i4")[: len(items) + 1])


def _to_base64(data: np.ndarray) -> str:
    return base64.b64encode(data.tobytes()).decode()


def _from_base64(value: object) -> bytes | None:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except (binascii.Error, ValueError):
        return None


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
        Returns the bytes that codes of more than `few_items` items may have in place of text.

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
        if len(items) > min(
            MOST_ITEMS, len(array) // tuning.current.rows_per_item
        ) or not _has_room(items):
            return None
        if len(items) > tuning.current.few_items and not _is_worth(items, len(array), data, worth):
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
