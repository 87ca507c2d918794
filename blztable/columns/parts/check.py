"""Types against records: which streams the parts of a type may have, how wide, and in which form.

Whole arrays are compared, so the parts of any number of columns of one type are checked at once.
Whoever decodes such a part relies on it. Knows no files.
"""

import numpy as np
import pyarrow as pa

from blztable.arrow.types import stored_type
from blztable.columns.parts.physical import Form, Physical, physical
from blztable.format.records import (
    CONSTANT,
    DICTIONARY,
    EXACT_BOUNDS,
    ITEM_CHUNKS,
    ITEMS_LENGTHS,
    ITEMS_VALID,
    ITEMS_VALUES,
    LENGTHS,
    MAX_STREAM_BYTES,
    NAN_CODE,
    NAN_IS_NULL,
    NUMBERS,
    PER_ITEM,
    PLAIN,
    SUM,
    TIMES,
    UNSORTED,
    VALID,
    VALUES,
    Array,
    Records,
    need,
)

# Items of a dictionary that a writer chose; that of a dictionary type may have any number.
MAX_ITEMS = 1 << 16
MAX_VALUES = (1 << 31) - 1
# Items of a dictionary in a page of their lengths, as a power of two.
_PAGE_OF_ITEMS = 30
_NAMES = 6


def check_type(type_: pa.DataType, records: Records) -> None:
    """Raise CorruptError unless all parts may be parts of a flat type, or of a nested one's node.

    The records were checked for themselves.
    """
    _Parts(type_, records).check()


class _Parts:
    """Parts of one type, and a row of numbers for each stream of them."""

    def __init__(self, type_: pa.DataType, records: Records) -> None:
        self.is_dictionary = pa.types.is_dictionary(type_)
        self.value_type = stored_type(type_.value_type if self.is_dictionary else type_)
        self.form: Physical = physical(self.value_type)
        self.records, self.parts, self.streams = records, records.parts, records.streams
        self.owner = np.repeat(np.arange(len(self.parts)), self.parts["streams"])
        rows, log2 = self.parts["rows"].astype(np.int64), self.parts["page"].astype(np.int64)
        self.rows = rows
        self.pages = rows + (1 << log2) - 1 >> log2
        # The place of each stream by its part and name; -1 for none.
        self.place = np.full((len(self.parts), _NAMES), -1)
        self.place[self.owner, self.streams["name"]] = np.arange(len(self.streams))

    def check(self) -> None:
        """Check all parts."""
        parts, form = self.parts, self.form.form
        is_floating = form is Form.FLOAT and not self.is_dictionary
        flagged = parts["flags"] & NAN_IS_NULL > 0
        need(~flagged | (self.place[:, VALID] < 0 if is_floating else False), "NaN as null")
        empty = (self.rows == 0) & (parts["streams"] == 0)
        is_null = pa.types.is_null(self.value_type) and not self.is_dictionary
        if not is_null:
            need((parts["pages"] == self.pages) | empty, "pages of a part")
        need(parts["flags"] & EXACT_BOUNDS == 0 if is_null else True, "bounds of nulls")
        per_item = parts["flags"] & ITEM_CHUNKS > 0
        allowed = {VALID}
        if is_null:
            allowed = set()
        elif form is Form.NOTHING and not self.is_dictionary:
            pass
        elif form is Form.ITEMS:
            allowed |= {LENGTHS}
            self._lengths(LENGTHS, self._has(LENGTHS, ~empty), None)
        elif form is Form.BYTES:
            allowed |= {VALUES, LENGTHS, ITEMS_VALID, ITEMS_LENGTHS, ITEMS_VALUES}
            self._text(empty, per_item)
        else:
            allowed |= {VALUES, ITEMS_VALID, ITEMS_VALUES}
            self._values(empty)
        need(~per_item if form is not Form.BYTES or self.is_dictionary else True, "item chunks")
        names = np.flatnonzero((self.place >= 0).any(axis=0)).tolist()
        need(set(names) <= allowed, "streams of the type")
        self._bitmap(VALID, self.rows)

    def _has(self, name: int, needed: Array) -> Array:
        """Return the places of streams of a name; CorruptError unless these parts have them."""
        has = self.place[:, name] >= 0
        need(has == needed, "streams of the type")
        return self.place[has, name]

    def _bitmap(self, name: int, rows: Array) -> None:
        """Check streams of validity: a bit a row, or one word."""
        has = self.place[:, name] >= 0
        at, rows = self.place[has, name], rows[has]
        streams = self.streams[at]
        is_constant = (streams["kind"] == CONSTANT) & (streams["words"] == 1)
        is_plain = (
            (streams["kind"] == PLAIN)
            & (streams["nbytes"] == (rows + 7 >> 3))
            & (streams["words"] == 0)
        )
        need(is_plain | (is_constant & (name == VALID)), "validity")
        need(self.records.words[self.records.first_word[at[is_constant]]] == 0, "validity")
        need(
            (streams["width"] == 0) & (streams["flags"] == 0) & (streams["exceptions"] == 0),
            "validity",
        )

    def _values(self, empty: Array) -> None:
        """Check streams of values of one width."""
        width = self.form.width
        at = self._has(VALUES, ~empty)
        streams, owner = self.streams[at], self.owner[at]
        rows, pages, kind = self.rows[owner], self.pages[owner], streams["kind"]
        coded = kind == DICTIONARY
        need(coded if self.is_dictionary else kind != PER_ITEM, "kind of values")
        is_plain, is_constant, is_number = kind == PLAIN, kind == CONSTANT, kind == NUMBERS
        need(~is_plain | (streams["nbytes"] == rows * width), "bytes of values")
        need(~is_plain | (streams["width"] == 0), "width of values")
        need(~is_constant | (streams["words"] == -(-width // 8)), "words of a constant")
        need(~(is_plain | coded) | (streams["words"] == coded), "words of values")
        allowed = np.where(is_number, SUM | TIMES | NAN_CODE, np.where(coded, UNSORTED, 0))
        need(streams["flags"] & ~allowed == 0, "flags of values")
        need(
            is_number | ((streams["power"] == 0) & (streams["exceptions"] == 0)),
            "encoding of values",
        )
        self._cut(at, np.where(is_plain, width if width <= 255 else 1, streams["width"]))
        if is_number.any():
            self._numbers(at[is_number], pages[is_number])
        need(~(coded | is_number) | self._has_codes(streams, rows), "bytes of codes")
        self._items(at[coded], owner[coded], self.is_dictionary)

    def _numbers(self, at: Array, pages: Array) -> None:
        """Check values that are codes with bases."""
        form, streams = self.form, self.streams[at]
        need(form.form is not Form.OPAQUE, "encoding of bytes")
        sums, odd = streams["flags"] & SUM > 0, streams["exceptions"].astype(np.int64)
        is_double = form.form is Form.FLOAT and form.width == 8
        if form.form is Form.FLOAT:
            need(is_double, "encoding of floats")
            need(~sums & (streams["width"] <= 4), "encoding of floats")
        else:
            need((streams["power"] == 0) & (odd == 0), "encoding of integers")
            need(streams["flags"] & (TIMES | NAN_CODE) == 0, "encoding of integers")
            need(streams["width"] <= min(form.width, 8), "width of codes")
        need((streams["flags"] & NAN_CODE == 0) | (streams["width"] > 0), "code of NaN")
        need((streams["flags"] & TIMES == 0) | (streams["power"] > 0), "power of ten")
        words = streams["words"]
        need(np.where(sums, words == pages + 1, True), "words of sums")
        based = (words == pages + 2 * odd) | ((words == 0) & (odd == 0))
        need(sums | based, "words of numbers")

    def _text(self, empty: Array, per_item: Array) -> None:
        """Check streams of text and binary."""
        at = self._has(LENGTHS, ~empty)
        streams, owner = self.streams[at], self.owner[at]
        coded = streams["kind"] == DICTIONARY
        need(coded if self.is_dictionary else True, "kind of lengths")
        plain = np.zeros(len(self.parts), bool)
        plain[owner[~coded]] = True
        body = self._has(VALUES, plain)
        values = self.streams[body]
        is_item = values["kind"] == PER_ITEM
        need((values["kind"] == PLAIN) | is_item, "kind of values")
        need(is_item == per_item[self.owner[body]], "item chunks")
        need(~per_item | plain | empty, "item chunks")
        need((values["words"] == is_item) & (values["width"] == 0), "words of values")
        need((values["flags"] == 0) & (values["power"] == 0), "encoding of values")
        need(values["exceptions"] == 0, "encoding of values")
        self._lengths(LENGTHS, at[~coded], values["nbytes"])
        some = streams[coded]
        need(self._has_codes(some, self.rows[owner[coded]]), "bytes of codes")
        need((some["words"] == 1) & (some["flags"] | UNSORTED == UNSORTED), "words of codes")
        need((some["power"] == 0) & (some["exceptions"] == 0), "encoding of codes")
        self._cut(at[coded], some["width"])
        self._items(at[coded], owner[coded], self.is_dictionary)

    def _items(self, at: Array, owner: Array, is_type: bool) -> None:
        """Check the items of dictionaries, given the streams of codes."""
        counts = self.records.words[self.records.first_word[at]]
        if is_type:
            need((counts >= 0) & (counts <= MAX_VALUES), "number of items")
        else:
            need((counts > 0) & (counts <= MAX_ITEMS), "number of items")
        need((self.streams[at]["flags"] == UNSORTED) == is_type, "order of items")
        items = np.zeros(len(self.parts), np.int64)
        items[owner] = counts
        coded = np.zeros(len(self.parts), bool)
        coded[owner] = True
        if not is_type:
            need(self.place[:, ITEMS_VALID] < 0, "validity of items")
        self._bitmap(ITEMS_VALID, items)
        if self.form.form is Form.NOTHING:
            need(self.place[:, ITEMS_VALUES] < 0, "items of nulls")
            return
        values = self._has(ITEMS_VALUES, coded)
        streams = self.streams[values]
        need(
            (streams["kind"] == PLAIN) & (streams["words"] == 0) & (streams["width"] == 0), "items"
        )
        need(
            (streams["flags"] == 0) & (streams["power"] == 0) & (streams["exceptions"] == 0),
            "items",
        )
        if self.form.form is not Form.BYTES:
            need(streams["nbytes"] == items[self.owner[values]] * self.form.width, "bytes of items")
            return
        lengths = self._has(ITEMS_LENGTHS, coded)
        self._lengths(ITEMS_LENGTHS, lengths, streams["nbytes"], items)

    def _lengths(
        self, name: int, at: Array, totals: Array | None, items: Array | None = None
    ) -> None:
        """Check lengths, which ascend in their words; `totals` are the bytes of the items."""
        streams, owner = self.streams[at], self.owner[at]
        rows = self.rows[owner] if items is None else items[owner]
        pages = self.pages[owner] if items is None else -(-rows >> _PAGE_OF_ITEMS)
        need((streams["kind"] == NUMBERS) & (streams["flags"] == SUM), "lengths")
        need((streams["power"] == 0) & (streams["exceptions"] == 0), "lengths")
        need(self._has_codes(streams, rows), "bytes of lengths")
        need(streams["words"] == pages + 2, "words of lengths")
        self._cut(at, streams["width"])
        if not len(at):
            return
        first = self.records.first_word[at]
        words, last = self.records.words, first + pages
        total, least = words[last], words[last + 1]
        need((least >= 0) & (total >= 0) & (total < MAX_STREAM_BYTES), "total of lengths")
        need(words[first] == 0, "bases of lengths")
        steps = np.diff(words, append=0) >= 0
        # Each word but the last of a stream, the least length, is not above the next.
        inner = np.repeat(first, pages) + _counted(pages)
        need(steps[inner], "bases of lengths")
        if totals is not None:
            need(total == totals, "total of lengths")
        need(least <= total, "least of lengths")

    def _has_codes(self, streams: Array, rows: Array) -> Array:
        """Return which streams have a code for each of so many rows."""
        return streams["nbytes"] == (rows + 7 >> 3 << 3) * streams["width"].astype(np.int64)

    def _cut(self, at: Array, width: Array) -> None:
        """Check that no chunk but the last ends within a value."""
        streams = self.streams[at]
        several = streams["nbytes"] > streams["chunk"]
        need(~several | (streams["chunk"] % np.maximum(width, 1) == 0), "bytes of a chunk")


def _counted(counts: Array) -> Array:
    """Return 0, 1, ... up to each count."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)
