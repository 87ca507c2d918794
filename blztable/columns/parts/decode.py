"""A part as an Arrow array: all its rows, a slice of them, or ascending rows.

Streams give their bytes decompressed; what no row needs may be anything. Codes, lengths, booleans
and text are checked before Arrow sees them. Knows no files.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from blztable.arrow.types import allocate, stored_type, view
from blztable.columns.parts import dictionary, numbers
from blztable.columns.parts.physical import Form, Physical, physical, put_words
from blztable.columns.parts.stream import Stream, need
from blztable.errors import CorruptError
from blztable.format.records import (
    CONSTANT,
    DICTIONARY,
    ITEMS_LENGTHS,
    ITEMS_VALUES,
    LENGTHS,
    NAN_CODE,
    NAN_IS_NULL,
    NUMBERS,
    PLAIN,
    VALID,
    VALUES,
    Array,
)

MAX_INT32 = (1 << 31) - 1


@dataclass
class Part:
    """A part that is read: its type, its rows, its page records and its streams by name."""

    type: pa.DataType
    rows: int
    page: int
    flags: int
    pages: Array
    streams: dict[int, Stream]

    @cached_property
    def form(self) -> Physical:
        """Return the physical form of the type."""
        return physical(self.type)

    def array(self, chosen: Array | slice = slice(None)) -> pa.Array:
        """Return some rows as an array of the stored type: a slice, or ascending rows."""
        count = len(range(*chosen.indices(self.rows))) if isinstance(chosen, slice) else len(chosen)
        type_ = stored_type(self.type)
        if not self.rows:
            return pa.nulls(0, type_)
        if self.form.form is Form.NOTHING:
            if pa.types.is_null(type_):
                return pa.nulls(count)
            return pa.Array.from_buffers(pa.struct([]), count, [self._validity(chosen, count)])
        if self.form.form is Form.BYTES:
            return self._bytes(type_, chosen, count)
        values = self._values(chosen, count)
        validity = self._validity(chosen, count)
        if self.flags & NAN_IS_NULL:
            assert self.form.dtype is not None
            nulls = np.isnan(view(values).view(self.form.dtype)[:count])
            validity = _packed(~nulls)
        return pa.Array.from_buffers(type_, count, [validity, values])

    def _validity(self, chosen: Array | slice, count: int) -> pa.Buffer | None:
        stream = self.streams.get(VALID)
        if stream is None:
            return None
        if stream.kind == CONSTANT:
            return pa.py_buffer(bytes(-(-count // 8)))
        need(len(stream.data) == -(-self.rows // 8), "bytes of validity")
        bits = np.unpackbits(stream.data, bitorder="little", count=self.rows)
        return _packed(bits[chosen].view(bool))

    # Values of fixed width.

    def _values(self, chosen: Array | slice, count: int) -> pa.Buffer:
        """Return values of fixed width as an Arrow buffer."""
        form, stream = self.form, self.streams[VALUES]
        buffer = allocate(count * form.width)
        out = view(buffer)
        if stream.kind == PLAIN:
            need(len(stream.data) == self.rows * form.width, "bytes of values")
            rows = stream.data.reshape(self.rows, form.width) if form.width else stream.data
            if form.width:
                out.reshape(count, form.width)[:] = rows[chosen]
        elif stream.kind == CONSTANT:
            need(8 * len(stream.words) == form.width + -form.width % 8, "words of a constant")
            out.reshape(count, form.width)[:] = stream.words.view(np.uint8)[: form.width]
        elif stream.kind == DICTIONARY:
            items = self.streams[ITEMS_VALUES].data
            need(len(items) == self._item_count * form.width, "bytes of items")
            table = items.reshape(-1, form.width)
            codes = dictionary.check(stream.codes(self.rows)[chosen], len(table))
            np.take(table, codes, axis=0, out=out.reshape(count, form.width), mode="clip")
        else:
            need(stream.kind == NUMBERS, "kind")
            words = numbers.decode(stream, self.rows, self.page, self.pages["min"], chosen)
            if form.form is Form.FLOAT:
                need(form.width == 8, "encoding of floats")
                decimal = numbers.value_of(stream.power, numbers.is_times(stream))
                out.view("<f8")[:] = decimal(words.astype("<f8"))
                if stream.flags & NAN_CODE:
                    codes = stream.codes(self.rows)[chosen]
                    out.view("<f8")[codes == (1 << 8 * stream.width) - 1] = np.nan
                self._put_exceptions(stream, chosen, out.view("<f8"))
            else:
                need(form.form is not Form.OPAQUE, "encoding of bytes")
                put_words(words, form, out)
        if form.form is Form.BOOL:
            need(not count or int(out.max()) <= 1, "booleans")
            return _packed(out.view(bool))
        return buffer

    def _put_exceptions(self, stream: Stream, chosen: Array | slice, out: Array) -> None:
        """Put the values that no integer gives into the result."""
        count = stream.exceptions
        if count == 0:
            return
        need(len(stream.words) == len(self.pages) + 2 * count, "words of exceptions")
        rows, values = stream.words[-2 * count : -count], stream.words[-count:].view("<f8")
        need(rows[0] >= 0 and rows[-1] < self.rows, "rows of exceptions")
        need((np.diff(rows) > 0).all(), "rows of exceptions")
        if isinstance(chosen, slice):
            start, stop, _ = chosen.indices(self.rows)
            some = (rows >= start) & (rows < stop)
            out[rows[some] - start] = values[some]
        else:
            places = np.minimum(np.searchsorted(rows, chosen), count - 1)
            some = rows[places] == chosen
            out[some] = values[places[some]]

    # Text and binary.

    def _bytes(self, type_: pa.DataType, chosen: Array | slice, count: int) -> pa.Array:
        """Return items of text or binary."""
        lengths = self.streams[LENGTHS]
        if lengths.kind == DICTIONARY:
            codes = dictionary.check(lengths.codes(self.rows)[chosen], len(self.items))
            whole = self.items.take(pa.array(codes))
            _, offsets, body = whole.buffers()
            ends = np.frombuffer(offsets, "<i8", count + 1, 8 * whole.offset)
        else:
            ends, body = self._picked(lengths, chosen, count)
        width = self.form.width
        if width == 4:
            need(int(ends[-1]) <= MAX_INT32, "offsets: they do not fit into 32 bits")
            ends = ends.astype("<i4")
        validity = self._validity(chosen, count)
        array = pa.Array.from_buffers(type_, count, [validity, pa.py_buffer(ends), body])
        if self.form.is_text and lengths.kind != DICTIONARY:
            _check_text(array)
        return array

    @property
    def _item_count(self) -> int:
        """Return the number of items of the dictionary, which the codes say."""
        stream = self.streams[LENGTHS if self.form.form is Form.BYTES else VALUES]
        need(len(stream.words) == 1, "number of items")
        count = int(stream.words[0])
        need(1 <= count <= dictionary.MAX_ITEMS, "number of items")
        return count

    @cached_property
    def items(self) -> pa.Array:
        """Return the items of a dictionary of text or binary, checked."""
        lengths, body = self.streams[ITEMS_LENGTHS], self.streams[ITEMS_VALUES].data
        count = self._item_count
        numbers.check_lengths(lengths, count, dictionary.ONE_PAGE)
        total = int(lengths.words[-2])
        need(total == len(body), "bytes of items")
        sizes = lengths.codes(count).astype(np.int64) + int(lengths.words[-1])
        need(int(sizes.max(initial=0)) <= total, "lengths of items")
        ends = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=ends[1:])
        need(int(ends[-1]) == total, "lengths of items")
        type_ = pa.large_string() if self.form.is_text else pa.large_binary()
        items = pa.Array.from_buffers(
            type_, len(sizes), [None, pa.py_buffer(ends), pa.py_buffer(body)]
        )
        if self.form.is_text:
            _check_text(items)
        return items

    def _picked(
        self, lengths: Stream, chosen: Array | slice, count: int
    ) -> tuple[Array, pa.Buffer]:
        """Return the offsets and the bytes of some items."""
        numbers.check_lengths(lengths, self.rows, self.page)
        body = self.streams[VALUES].data
        need(int(lengths.words[-2]) == len(body), "bytes of values")
        rows = np.arange(self.rows)[chosen] if isinstance(chosen, slice) else chosen
        begins, stops = numbers.ends_of_rows(lengths, self.rows, self.page, rows)
        ends = np.zeros(count + 1, np.int64)
        np.cumsum(stops - begins, out=ends[1:])
        if count and int(stops[-1] - begins[0]) == int(ends[-1]):
            return ends, pa.py_buffer(body[begins[0] : stops[-1]])
        places = np.repeat(begins - ends[:-1], stops - begins) + np.arange(int(ends[-1]))
        return ends, pa.py_buffer(body[places])


def _packed(flags: Array) -> pa.Buffer:
    """Return booleans as bits."""
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def _check_text(array: pa.Array) -> None:
    """Raise CorruptError if an item is not UTF-8."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise CorruptError(str(error)) from None
