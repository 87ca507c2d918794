"""A part as an Arrow array: all its rows, a slice of them, or ascending rows.

Streams give their bytes decompressed. What the records say was compared with the type
(`check.py`); codes, lengths, booleans, decimals and text are checked here, before Arrow sees them.
Knows no files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.types import allocate, bitmap, bytes_of, empty, nulls, stored_type, view
from blztable.cached import cached_property
from blztable.columns.parts import decimals, from_codes
from blztable.columns.parts.physical import NUMPY_TYPES, Form, Physical, physical
from blztable.columns.parts.spelling import spell
from blztable.columns.parts.stream import EncodedStream, need
from blztable.errors import CorruptError
from blztable.format.records import (
    CONSTANT,
    DICTIONARY,
    ITEMS_LENGTHS,
    ITEMS_VALID,
    ITEMS_VALUES,
    LENGTHS,
    NAN_IS_NULL,
    NUMBERS,
    PER_ITEM,
    PLAIN,
    SUM,
    VALID,
    VALUES,
    Array,
)

MAX_INT32 = (1 << 31) - 1
# Items of a dictionary in a page of their lengths, as a power of two.
ONE_PAGE = 30
# Ascending rows: slices of the part, or their numbers.
# At most so many values of codes are kept with a part.
MOST_KEPT_VALUES = 4096
Chosen = Sequence[slice] | Array


@dataclass
class EncodedRows:
    """A part that is read: its type, its rows, its page records and its streams by name."""

    type: pa.DataType
    rows: int
    page: int
    flags: int
    pages: Array
    nbytes: int
    streams: Mapping[int, EncodedStream]

    @cached_property
    def form(self) -> Physical:
        """Return the physical form of the rows: of a dictionary, that of its values."""
        return physical(self.type.value_type if self.is_dictionary else self.type)

    @cached_property
    def _stored_type(self) -> pa.DataType:
        """Return the type that the rows have as an array."""
        return stored_type(self.type)

    @cached_property
    def is_dictionary(self) -> bool:
        """True if the type is a dictionary."""
        return bool(pa.types.is_dictionary(self.type))

    def array(self, chosen: slice | Chosen = slice(None)) -> pa.Array:
        """Return some rows as an array of the stored type."""
        if isinstance(chosen, slice):
            start, stop, _ = chosen.indices(self.rows)
            chosen = [slice(start, max(start, stop))]
        type_, form = self._stored_type, self.form.form
        if self.is_dictionary:
            return self._coded(chosen)
        if form is Form.BYTES:
            ends, body = self.text(chosen)
            return self._with_offsets(type_, chosen, ends, [body])
        count = count_of(chosen)
        if pa.types.is_null(type_):
            return nulls(count, pa.null())
        if form is Form.NOTHING:
            return pa.Array.from_buffers(type_, count, [_packed(self.valid(chosen))])
        if form is Form.ITEMS:
            ends = self.ends(chosen)[0]
            return self._with_offsets(type_, chosen, ends, [], [nulls(int(ends[-1]), pa.null())])
        values = self.allocate(count * self.form.width)
        self.fill(chosen, view(values))
        valid = self.valid(chosen, view(values))
        if form is Form.BOOL:
            values = bitmap(view(values))
        return pa.Array.from_buffers(type_, count, [_packed(valid), values])

    def allocate(self, nbytes: int) -> pa.Buffer:
        """Return memory for values that these are decoded to."""
        return allocate(nbytes)

    def valid(self, chosen: Chosen, values: Array | None = None) -> Array | None:
        """Return which rows have a value, one boolean a row; None if all have.

        `values` are the values of these rows, if NaN may stand for null.
        """
        if self.flags & NAN_IS_NULL and values is not None:
            assert self.form.dtype is not None
            floats = values.view(self.form.dtype)
            bits: Array = np.equal(floats, floats)
            return None if bits.all() else bits
        stream = self.streams.get(VALID)
        if stream is None:
            return None
        if stream.kind == CONSTANT:
            return np.zeros(count_of(chosen), bool)
        if not isinstance(chosen, np.ndarray):
            return _joined([_bits(stream, rows) for rows in chosen])
        bits = from_codes.numbers_at(stream, chosen >> 3, np.dtype(np.uint8))
        return (bits >> (chosen & 7).astype(np.uint8) & 1).view(bool)

    # Values of one width.

    def fill(self, chosen: Chosen, out: Array) -> None:
        """Put values of one width into a result of bytes."""
        stream, width = self.streams.get(VALUES), self.form.width
        if stream is None or not len(out):
            return
        if isinstance(chosen, np.ndarray):
            self._fill(stream, chosen, out)
        else:
            at = 0
            for rows in chosen:
                end = at + (rows.stop - rows.start) * width
                if at < end:
                    self._fill(stream, rows, out[at:end])
                at = end
        if self._has_limits and not self._are_values(out):
            valid = self.valid(chosen)
            if valid is None or not self._are_values(out.reshape(len(valid), width)[valid]):
                raise CorruptError(f"a value {self._wrong}")

    @property
    def _wrong(self) -> str:
        return (
            "is no boolean" if self.form.form is Form.BOOL else f"has more digits than {self.type}"
        )

    @cached_property
    def _has_limits(self) -> bool:
        """True if not all bytes are values of the type."""
        return self.form.form is Form.BOOL or bool(pa.types.is_decimal(self.type))

    def _are_values(self, data: Array) -> bool:
        """True if bytes are values of a type with limits. Those of null rows may be anything."""
        if not data.size:
            return True
        if self.form.form is Form.BOOL:
            return int(data.max()) <= 1
        return decimals.are_within(self.type, data.reshape(-1))

    @cached_property
    def low(self) -> Array:
        """Return the least word of each page, or 0 of a page without values."""
        low: Array = self.pages["min"]
        return np.where(low <= self.pages["max"], low, 0)

    @cached_property
    def _bases(self) -> Array:
        """Return the base of each page, in the form of the values."""
        return from_codes.bases_of(self.streams[VALUES], self.form, self.low)

    def _fill(self, stream: EncodedStream, chosen: slice | Array, out: Array) -> None:
        width = self.form.width
        if stream.kind == PLAIN:
            if isinstance(chosen, slice):
                stream.read_into(chosen.start * width, chosen.stop * width, out)
            else:
                out[:] = from_codes.gathered(stream, chosen * width, chosen * width + width)
        elif stream.kind == CONSTANT:
            item = _items_view(stream.words.view(np.uint8)[:width], width)
            _items_view(out, width)[:] = item[0]
        elif stream.kind == DICTIONARY:
            self._look_up(stream, chosen, _items_view(out, width))
        elif isinstance(chosen, slice):
            rows = chosen.start, chosen.stop
            from_codes.fill(stream, self.form, self.page, self._bases, *rows, out)
        else:
            from_codes.pick(stream, self.form, self.page, self._bases, chosen, out)
        if stream.exceptions:
            self._put_exceptions(stream, chosen, out.view("<f8"))

    def _look_up(self, stream: EncodedStream, chosen: slice | Array, out: Array) -> None:
        """Put the items of codes into a result."""
        items = self._items_of_width
        if not isinstance(chosen, slice) or not stream.width:
            rows = [chosen] if isinstance(chosen, slice) else chosen
            items.take(self.checked(self.codes(rows)), out=out, mode="wrap")
            return
        width, start = stream.width, chosen.start
        for at, data in stream.runs(start * width, chosen.stop * width):
            codes = self.checked(data.view(f"<u{width}"))
            row = at // width - start
            # Unlike the default mode, "wrap" writes to `out` without a buffer.
            items.take(codes, out=out[row : row + len(codes)], mode="wrap")

    def _put_exceptions(self, stream: EncodedStream, chosen: slice | Array, out: Array) -> None:
        """Put the values that no integer gives into a result."""
        count = stream.exceptions
        rows, values = stream.words[-2 * count : -count], stream.words[-count:].view("<f8")
        need(rows[0] >= 0 and rows[-1] < self.rows, "rows of exceptions")
        need((rows[1:] > rows[:-1]).all(), "rows of exceptions")
        if isinstance(chosen, slice):
            first, last = np.searchsorted(rows, (chosen.start, chosen.stop))
            out[rows[first:last] - chosen.start] = values[first:last]
        else:
            positions = np.minimum(np.searchsorted(rows, chosen), count - 1)
            some = rows[positions] == chosen
            out[some] = values[positions[some]]

    # Text, binary and lists.

    def ends(self, chosen: Chosen) -> tuple[Array, Array, Array]:
        """Return the offsets of items of some rows, and where they begin and end in the part.

        The items of a slice lie one behind the other, and begin and end once.
        """
        stream, rows, page = self.streams.get(LENGTHS), self.rows, self.page
        if stream is None:
            return np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64)
        if isinstance(chosen, np.ndarray):
            begins, stops = from_codes.ends_of_rows(stream, rows, page, chosen)
            ends = np.zeros(len(chosen) + 1, np.int64)
            np.cumsum(stops - begins, out=ends[1:])
            return ends, begins, stops
        pieces: list[Array] = []
        bounds: list[tuple[int, int]] = []
        total = 0
        for run in chosen:
            first = run.start >> page << page
            piece = from_codes.ends(stream, rows, page, first, run.stop)[run.start - first :]
            bounds.append((int(piece[0]), int(piece[-1])))
            if piece[0] != total:
                piece += total - int(piece[0])
            total = int(piece[-1])
            pieces.append(piece[1:] if pieces else piece)
        begins, stops = np.array(bounds, np.int64).reshape(-1, 2).T
        return _joined(pieces) if pieces else np.zeros(1, np.int64), begins, stops

    def text(self, chosen: Chosen) -> tuple[Array, pa.Buffer]:
        """Return the offsets and the bytes of items of text or binary."""
        lengths = self.streams.get(LENGTHS)
        if lengths is not None and lengths.kind == DICTIONARY:
            codes = self.checked(self.codes(chosen))
            return spell(self.binary_items, self._longest_item, codes, self.allocate)
        ends, begins, stops = self.ends(chosen)
        body = self.allocate(int(ends[-1]))
        out, is_ascii = view(body), True
        if len(out):
            is_ascii = self._put_items(self.streams[VALUES], chosen, ends, begins, stops, out)
        if not is_ascii:
            check_text(ends, body)
        return ends, body

    def _put_items(
        self,
        data: EncodedStream,
        chosen: Chosen,
        ends: Array,
        begins: Array,
        stops: Array,
        out: Array,
    ) -> bool:
        """Put the bytes of items into a result; return False if text needs a check of UTF-8."""
        is_text = self.form.is_text
        if data.kind == PER_ITEM:
            if not isinstance(chosen, np.ndarray):
                chosen = _joined([np.arange(run.start, run.stop) for run in chosen])
            data.read_items(chosen, np.diff(ends), out)
            return not is_text or _is_ascii(out)
        if isinstance(chosen, np.ndarray):
            some = stops > begins
            out[:] = from_codes.gathered(data, begins[some], stops[some])
            return not is_text or _is_ascii(out)
        at, is_ascii = 0, True
        for begin, stop in zip(begins.tolist(), stops.tolist(), strict=True):
            # Each piece is looked at while it is in the cache.
            for piece in data.pieces_into(begin, stop, out[at : at + stop - begin]):
                is_ascii = is_ascii and (not is_text or _is_ascii(piece))
            at += stop - begin
        return is_ascii

    def _with_offsets(
        self,
        type_: pa.DataType,
        chosen: Chosen,
        ends: Array,
        buffers: list[pa.Buffer],
        children: list[pa.Array] | None = None,
    ) -> pa.Array:
        if self.form.width == 4:
            need(int(ends[-1]) <= MAX_INT32, "offsets: they do not fit into 32 bits")
            ends = ends.astype("<i4")
        buffers = [_packed(self.valid(chosen)), pa.py_buffer(ends), *buffers]
        return pa.Array.from_buffers(type_, len(ends) - 1, buffers, children=children)

    # Codes and items.

    @cached_property
    def coded(self) -> EncodedStream | None:
        """Return the stream that may have codes."""
        return self.streams.get(LENGTHS if self.form.form is Form.BYTES else VALUES)

    def codes(self, chosen: Chosen) -> Array:
        """Return the codes of some rows, as unsigned numbers."""
        stream, count = self.coded, count_of(chosen)
        if stream is None or not stream.width:
            return np.zeros(count, np.uint8)
        if isinstance(chosen, np.ndarray):
            return from_codes.codes_at(stream, chosen)
        width = stream.width
        codes = empty(count, f"<u{width}")
        out, at = codes.view(np.uint8), 0
        for rows in chosen:
            end = at + (rows.stop - rows.start) * width
            if at < end:
                stream.read_into(rows.start * width, rows.stop * width, out[at:end])
            at = end
        return codes

    def checked_codes(self, chosen: Chosen) -> Array:
        """Return the codes of some rows, if each stands for a value."""
        codes, stream = self.codes(chosen), self.coded
        return self.checked(codes) if stream is not None and stream.kind == DICTIONARY else codes

    def values_of_codes(self, most: int) -> pa.Array | None:
        """Return the values that the codes of rows stand for, in order, in the stored type.

        Return None if a code has no one value, or if there are more than `most` codes.
        """
        known = self.known_values
        if known is not None:
            return known if len(known) <= most else None
        values = self._new_values_of_codes(most)
        if values is not None and len(values) <= MOST_KEPT_VALUES:
            self.known_values = values
        return values

    # Few values that codes stand for, once they are made.
    known_values: pa.Array | None = None

    def _new_values_of_codes(self, most: int) -> pa.Array | None:
        stream = self.coded
        if stream is None or (stream.kind == DICTIONARY and not 0 < self.item_count <= most):
            return None
        if stream.kind == DICTIONARY:
            values = self.items
        else:
            is_same = stream.kind == NUMBERS and not stream.flags & SUM and not stream.exceptions
            count = 1 << 8 * stream.width
            if not is_same or stream.width not in (1, 2) or count > most:
                return None
            low = stream.words if len(stream.words) else self.low
            if self.form.form is Form.BYTES or not len(low) or (low != low[0]).any():
                return None
            values = self._values_of_numbers(stream, count, low[:1])
            if values is None:
                return None
        if self.flags & NAN_IS_NULL:
            return pc.if_else(pc.is_nan(values), None, values)
        return values

    def _values_of_numbers(self, stream: EncodedStream, count: int, low: Array) -> pa.Array | None:
        out = allocate(count * self.form.width)
        codes = np.arange(count, dtype=f"<u{stream.width}")
        from_codes.put(stream, self.form, codes, low, view(out))
        if self.form.form is Form.BOOL:
            return None
        # A code that no row has may stand for a value that has too many digits.
        if pa.types.is_decimal(self.type) and not decimals.are_within(self.type, view(out)):
            return None
        return pa.Array.from_buffers(stored_type(self.type), count, [None, out])

    def checked(self, codes: Array) -> Array:
        """Return codes, if each numbers an item."""
        count = self.item_count
        if count < 1 << 8 * codes.itemsize and len(codes) and codes.max() >= count:
            raise CorruptError("a stream has the wrong codes: one numbers no item")
        return codes

    @cached_property
    def item_count(self) -> int:
        """Return the number of items of the dictionary."""
        return int(self.coded.words[0]) if self.coded is not None else 0

    @cached_property
    def _item_bytes(self) -> Array:
        """Return the bytes of all items."""
        return _all_bytes(self.streams[ITEMS_VALUES])

    @cached_property
    def _items_of_width(self) -> Array:
        """Return the items, of one width, as numpy moves them fastest."""
        return _items_view(self._item_bytes, self.form.width)

    @cached_property
    def _longest_item(self) -> int:
        """Return the bytes of the longest item of text or binary."""
        return int(np.diff(self._item_ends).max(initial=0))

    @cached_property
    def binary_items(self) -> pa.Array:
        """Return the items of a dictionary of text or binary as large binary; text is UTF-8."""
        ends, body = self._item_ends, pa.py_buffer(self._item_bytes)
        if self.form.is_text:
            check_text(ends, body)
        buffers = [None, pa.py_buffer(ends), body]
        return pa.Array.from_buffers(pa.large_binary(), self.item_count, buffers)

    @cached_property
    def _item_ends(self) -> Array:
        stream, count = self.streams[ITEMS_LENGTHS], self.item_count
        return from_codes.ends(stream, count, ONE_PAGE, 0, count)

    @cached_property
    def items(self) -> pa.Array:
        """Return the items of a dictionary in their stored type."""
        form, count = self.form, self.item_count
        type_ = stored_type(self.type.value_type if self.is_dictionary else self.type)
        if pa.types.is_null(type_) or not count:
            return nulls(count, type_)
        stream, validity = self.streams.get(ITEMS_VALID), None
        if stream is not None:
            validity = pa.py_buffer(_all_bytes(stream))
        if form.form is Form.BYTES:
            _, ends, body = self.binary_items.buffers()
            if form.width == 4:
                numbers = self._item_ends
                need(int(numbers[-1]) <= MAX_INT32, "offsets: they do not fit into 32 bits")
                ends = pa.py_buffer(numbers.astype("<i4"))
            return pa.Array.from_buffers(type_, count, [validity, ends, body])
        data = self._item_bytes
        if form.form is Form.BOOL:
            need(not len(data) or int(data.max()) <= 1, "booleans")
            return pa.Array.from_buffers(type_, count, [validity, bitmap(data)])
        if pa.types.is_decimal(type_) and not decimals.are_within(type_, data):
            raise CorruptError(f"a value has more digits than {type_}")
        return pa.Array.from_buffers(type_, count, [validity, pa.py_buffer(data)])

    @cached_property
    def dictionary(self) -> pa.Array:
        """Return the items in the type of the dictionary's values."""
        type_ = self.type.value_type
        return self.items if self.items.type.id == type_.id else self.items.cast(type_)

    def _coded(self, chosen: Chosen) -> pa.DictionaryArray:
        """Return rows of a dictionary type."""
        codes, valid = self.codes(chosen), self.valid(chosen)
        if self.item_count:
            codes = self.checked(codes)
        else:
            need(not len(codes) or (valid is not None and not valid.any()), "codes: no item")
            codes = np.zeros(len(codes), np.uint8)
        index = self.type.index_type
        dtype = np.dtype(NUMPY_TYPES[index.id])
        if len(codes):
            need(int(codes.max()) <= np.iinfo(dtype).max, "codes: they do not fit into the indices")
        buffers = [_packed(valid), pa.py_buffer(codes.astype(dtype))]
        indices = pa.Array.from_buffers(index, len(codes), buffers)
        return pa.DictionaryArray.from_arrays(
            indices, self.dictionary, ordered=self.type.ordered, safe=False
        )


def check_text(ends: Array, body: pa.Buffer) -> None:
    """Raise CorruptError if the bytes are not UTF-8, or if an item begins inside a character."""
    first, last = int(ends[0]), int(ends[-1])
    data = view(body)[first:last]
    if _is_ascii(data):
        return
    whole = pa.py_buffer(np.array([first, last], np.int64))
    try:
        pa.Array.from_buffers(pa.large_string(), 1, [None, whole, body]).validate(full=True)
    except pa.ArrowInvalid:
        raise CorruptError("the text is not UTF-8") from None
    begins = ends[ends < last] - first
    if ((data[begins] & 0xC0) == 0x80).any():
        raise CorruptError("an item of text begins inside a character")


def _is_ascii(data: Array) -> bool:
    return not len(data) or int(data.view(np.int8).min()) >= 0


def count_of(chosen: Chosen) -> int:
    """Return the number of rows."""
    if isinstance(chosen, np.ndarray):
        return len(chosen)
    count: int = 0
    for run in chosen:
        count += run.stop - run.start
    return count


def _joined(arrays: list[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _bits(stream: EncodedStream, rows: slice) -> Array:
    """Return a boolean for each bit of adjacent rows."""
    first = rows.start // 8
    data = np.empty(-(-rows.stop // 8) - first if rows.start < rows.stop else 0, np.uint8)
    stream.read_into(first, first + len(data), data)
    skipped = rows.start - 8 * first
    bits = np.unpackbits(data, count=skipped + rows.stop - rows.start, bitorder="little")
    return bits[skipped:].view(bool)


def _packed(valid: Array | None) -> pa.Buffer | None:
    return None if valid is None or valid.all() else bitmap(valid)


def _items_view(data: Array, width: int) -> Array:
    """Return values of one width as numpy moves them fastest."""
    return data.view(f"<u{width}" if width in (1, 2, 4, 8) else f"|V{width}")


def _all_bytes(stream: EncodedStream) -> Array:
    data = bytes_of(allocate(stream.nbytes))
    if len(data):
        stream.read_into(0, stream.nbytes, data)
    return data
