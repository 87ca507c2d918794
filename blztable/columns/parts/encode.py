"""An Arrow array as a part: the streams of the encoding that takes the fewest bytes a row.

The order in which encodings are tried is here, and nothing else of them. An encoding is chosen by a
sample, then verified on every value: it returns the very same bits for each row that has a value;
the slot of a null may come back as any value. Knows no files.
"""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable import tuning
from blztable.arrow.types import as_stored, bitmap, bytes_of, mask_of, numbers_in, offsets_of
from blztable.columns.parts import bounds, decimals, dictionary, numbers
from blztable.columns.parts.dictionary import MAX_TYPESIZE, Worth
from blztable.columns.parts.physical import (
    NUMPY_TYPES,
    Form,
    Physical,
    physical,
    upper_words,
    values_of,
    words_of,
)
from blztable.columns.parts.stream import Stream, sample
from blztable.errors import SchemaError
from blztable.format.bounds import ANY, words_of_integers
from blztable.format.chunk import LARGE_CHUNK_BYTES
from blztable.format.records import (
    CONSTANT,
    EXACT_BOUNDS,
    ITEM_CHUNKS,
    NAN_IS_NULL,
    PER_ITEM,
    PLAIN,
    VALID,
    VALUES,
    WORD,
    Array,
)

# Rows of a page, as a power of two, unless the caller chooses.
PAGE = 14


@dataclass(frozen=True)
class EncodingOptions:
    """What is asked for a part.

    Attributes
    ----------
    plain
        The values are stored as they are.
    per_item
        Each item of text or binary is a chunk.
    has_bounds
        False if the values are codes, whose bounds say nothing.
    worth
        Returns how many bytes the codes of many items may have that replace some text.
    """

    plain: bool = False
    per_item: bool = False
    has_bounds: bool = True
    worth: Worth = lambda data: len(data) / 2


USUAL = EncodingOptions()


@dataclass(frozen=True)
class EncodedPart:
    """A part before its streams are cut into chunks."""

    rows: int
    page: int
    nbytes: int
    streams: tuple[Stream, ...]
    pages: Array
    flags: int = 0
    prefix: bytes = b""


def encode(array: pa.Array, page: int = PAGE, options: EncodingOptions = USUAL) -> EncodedPart:
    """Return an array of a flat type, or the node of a nested one, as a part.

    Raises
    ------
    SchemaError
        A value is invalid: text is not UTF-8, an index is outside its dictionary.
    """
    array, rows = as_stored(array), len(array)
    if pa.types.is_null(array.type) or not rows:
        # A part of a null type may have more rows than memory has bytes.
        return EncodedPart(rows, page, 0, (), bounds.empty(0, page))
    if not options.plain and array.nbytes < tuning.current.encoded_bytes:
        # Encodings gain less than their words take, and a trial takes longer than the part.
        options = replace(options, plain=True)
    valid = mask_of(array)
    part = _PartBuilder(rows, page, valid, bounds.empty(rows, page), options)
    if pa.types.is_dictionary(array.type):
        part.encode_dictionary(array)
    else:
        form = physical(array.type)
        if form.form is Form.BYTES:
            part.encode_text(array, form)
        elif form.form is Form.ITEMS:
            part.encode_lengths(array, form)
        elif form.form is not Form.NOTHING:
            part.encode_fixed(array, form)
    return part.finish()


class _PartBuilder:
    """A part while it is encoded: what the encodings of its values add to.

    Attributes
    ----------
    valid
        The rows that are not null; None if all are.
    valued, nans
        The rows that have a value, as the page records count them, and those whose value is NaN.
    """

    def __init__(
        self, rows: int, page: int, valid: Array | None, pages: Array, options: EncodingOptions
    ) -> None:
        self.rows, self.page, self.valid, self.pages = rows, page, valid, pages
        self.options = options
        self.valued = valid
        self.nans: Array | None = None
        self.streams: list[Stream] = []
        self.nbytes = 0
        self.flags = 0
        self.prefix = b""

    def finish(self) -> EncodedPart:
        """Return the part, with its validity and the counts of its pages."""
        bounds.count(self.pages, self.rows, self.page, self.valued, self.nans)
        if self.valid is not None:
            self.nbytes += -(-self.rows // 8)
            if not self.flags & NAN_IS_NULL:
                self.streams.insert(0, _bitmap(self.valid, self.options))
        if not self.options.has_bounds:
            self.pages["min"], self.pages["max"] = ANY
            self.flags &= ~EXACT_BOUNDS
        streams = tuple(self.streams)
        return EncodedPart(
            self.rows, self.page, self.nbytes, streams, self.pages, self.flags, self.prefix
        )

    # Items.

    def encode_lengths(self, array: pa.Array, form: Physical) -> None:
        """Encode a list without its items, which `flatten` made: its null rows have none."""
        offsets = offsets_of(array, f"<i{form.width}")
        self.streams = [numbers.encode_lengths(offsets, self.page)]
        self.nbytes = form.width * self.rows

    def encode_text(self, array: pa.Array, form: Physical) -> None:
        """Encode text or binary: items of a dictionary if they are few, or lengths and bytes."""
        array, offsets, lengths, data = _sound_items(array, form, self.valid)
        self.nbytes = form.width * self.rows + len(data)
        encoded = None
        if not self.options.plain and not self.options.per_item:
            encoded = dictionary.of_bytes(array, form, lengths, data, self.options.worth)
        if encoded is not None:
            codes, items = encoded
            self.streams = dictionary.encode_items(codes, items)
            self._put_items(codes, items)
            return
        if form.is_text:
            _check_utf8(array, data)
        binary = pa.binary() if form.width == 4 else pa.large_binary()
        buffers = [None if self.valid is None else bitmap(self.valid), *_of_rows(array, offsets)]
        items = pa.Array.from_buffers(binary, self.rows, buffers)
        self._put_extremes(bounds.of_items(items, self.page))
        values = Stream(VALUES, PLAIN, data, is_text=True)
        if self.options.per_item and int(lengths.max()) <= LARGE_CHUNK_BYTES:
            values, self.flags = (
                replace(values, kind=PER_ITEM, sizes=lengths),
                ITEM_CHUNKS | self.flags,
            )
        self.streams = [values, numbers.encode_lengths(offsets, self.page)]

    def _put_items(self, ranks: Array, items: pa.Array) -> None:
        """Put the bounds of rows that are the numbers of sorted items."""
        low, high = numbers.extremes(ranks, self.valued, self.page)
        known = low <= high
        used = np.unique(np.concatenate([low[known], high[known]])).tolist()
        spelled = {rank: bounds.first_bytes(items[rank]) for rank in used}
        pages = zip(low.tolist(), high.tolist(), strict=True)
        self._put_extremes([(spelled[a], spelled[b]) if a <= b else None for a, b in pages])

    def _put_extremes(self, extremes: bounds.Extremes) -> None:
        self.prefix, exact = bounds.of_bytes(self.pages, extremes)
        self.flags |= EXACT_BOUNDS if exact else 0

    # Dictionaries of Arrow.

    def encode_dictionary(self, array: pa.DictionaryArray) -> None:
        """Encode the codes of a dictionary, and its items in their order."""
        items, dtype = as_stored(array.dictionary), NUMPY_TYPES[array.type.index_type.id]
        codes = numbers_in(array.buffers()[1], dtype, array.offset, self.rows)
        if self.valid is not None:
            codes = np.where(self.valid, codes, codes.dtype.type(0))
        used = codes if self.valid is None else codes[self.valid]
        if len(used) and (used.min() < 0 or used.max() >= len(items)):
            raise SchemaError(
                f"dictionary indices from {used.min()} to {used.max()}; "
                f"expected 0 to {len(items) - 1}"
            )
        self._check_items(items)
        self.streams = dictionary.encode_arrow(codes, items)
        self.nbytes = codes.nbytes + items.nbytes
        # A row whose item is null has no value.
        present = np.zeros(len(items), bool) if pa.types.is_null(items.type) else mask_of(items)
        if present is not None and len(items):
            self.valued = present[codes] if self.valid is None else present[codes] & self.valid
        if self.valued is None or self.valued.any():
            self._put_referred(codes, items)

    def _check_items(self, items: pa.Array) -> None:
        """Raise SchemaError if an item is invalid."""
        form = physical(items.type)
        if form.form is Form.BYTES:
            _, _, _, data = _sound_items(items, form, mask_of(items))
            if form.is_text:
                _check_utf8(items, data)
        elif pa.types.is_decimal(items.type):
            _check_decimals(items.type, values_of(items, form), mask_of(items))

    def _put_referred(self, codes: Array, items: pa.Array) -> None:
        """Put the bounds and the NaNs of the items that rows refer to."""
        form = physical(items.type)
        if form.form is Form.BYTES:
            items = items.cast(pa.large_binary())
            if len(items) > self.rows:
                used, codes = np.unique(codes, return_inverse=True)
                items = items.take(pa.array(used))
            order = pc.array_sort_indices(items).to_numpy()
            ranks = np.empty(len(items), np.int64)
            ranks[order] = np.arange(len(items))
            self._put_items(ranks[codes], items.take(pa.array(order)))
            return
        if form.order is None:
            return
        values, ordered = values_of(items, form), self.valued
        low = _as_one_word(values, form) if form.form is Form.WIDE else words_of(values, form)
        words = upper_words(values, form) if low is None else low
        self.flags = 0 if low is None else EXACT_BOUNDS
        if form.form is Form.FLOAT and (is_nan := np.isnan(values)).any():
            self.nans = is_nan[codes] if ordered is None else is_nan[codes] & ordered
            ordered = ~self.nans if ordered is None else ordered & ~self.nans
        bounds.of_words(self.pages, words[codes], self.page, ordered)

    # Values of fixed width.

    def encode_fixed(self, array: pa.Array, form: Physical) -> None:
        """Encode values of fixed width."""
        values = values_of(array, form)
        self.nbytes = self.rows * form.width
        if pa.types.is_decimal(array.type):
            values = _check_decimals(array.type, values, self.valid)
        if not form.width:
            self.streams = [Stream(VALUES, PLAIN)]
        elif form.form is Form.FLOAT:
            self._encode_floats(values, form)
        elif form.form is Form.WIDE:
            self._encode_wide(values, form)
        elif form.form is Form.OPAQUE:
            self._encode_few_or_plain(values, form)
        else:
            self._encode_integers(values, form)

    def _encode_integers(self, values: Array, form: Physical) -> None:
        low, high = numbers.extremes(values, self.valid, self.page)
        words = [words_of_integers(bound) for bound in (low, high)]
        bounds.put(self.pages, *words)
        self.flags = EXACT_BOUNDS
        if self.options.plain:
            self._encode_plain(values, form)
            return
        known = low <= high
        if not known.any() or low[known].min() == high[known].max():
            self._encode_constant(values, form)
            return
        stream = numbers.encode(values, (low, high), self.valid, self.page, form.width)
        if stream is not None and not self.options.has_bounds and not len(stream.words):
            stream = replace(stream, words=words[0])
        below = form.width if stream is None else stream.width
        if self._encode_few(values, form, below):
            return
        if stream is None:
            self._encode_plain(values, form)
        else:
            self.streams = [stream]

    def _encode_wide(self, values: Array, form: Physical) -> None:
        low = _as_one_word(values, form)
        if low is None:
            bounds.of_words(self.pages, upper_words(values, form), self.page, self.valid)
            self._encode_few_or_plain(values, form)
            return
        extremes = numbers.extremes(low, self.valid, self.page)
        bounds.put(self.pages, *extremes)
        self.flags = EXACT_BOUNDS
        if self.options.plain:
            self._encode_plain(values, form)
            return
        stream = numbers.encode(low, extremes, self.valid, self.page, form.width)
        assert stream is not None, "a word takes fewer bytes"
        self.streams = [stream]

    def _encode_floats(self, values: Array, form: Physical) -> None:
        valid = self.valid
        with np.errstate(invalid="ignore"):
            nans = np.isnan(values)
        if valid is not None:
            nans &= valid
        self.nans = nans if nans.any() else None
        ordered = valid
        if self.nans is not None:
            ordered = ~nans if valid is None else valid & ~nans
        decimals = None
        if form.width == 8 and not self.options.plain and not self._is_constant(values):
            decimals = numbers.decimals(values, valid)
        encoded, bases = None, None
        if decimals is not None:
            bases = numbers.extremes(decimals.integers, decimals.coded, self.page)
            encoded = numbers.encode_decimals(decimals, values, bases, self.page)
        below = form.width if encoded is None else encoded.width
        if self._encode_few(values, form, below) or encoded is None or bases is None:
            bounds.of_floats(self.pages, values, form, self.page, ordered)
            self.flags = EXACT_BOUNDS
            if not self.streams:
                self._encode_plain_floats(values, form)
            return
        bounds.put(self.pages, *bases)
        self.streams = [encoded]
        self.flags = 0 if encoded.exceptions else EXACT_BOUNDS
        if encoded.exceptions:
            assert decimals is not None
            odd = decimals.exceptions
            with np.errstate(over="ignore"):
                scaled = values[odd] * numbers.POWERS[decimals.power]
            bounds.widen(self.pages, scaled, odd >> self.page)

    def _encode_plain_floats(self, values: Array, form: Physical) -> None:
        """Store floats as they are; nulls as NaN, if no value is NaN."""
        if self.valid is not None and self.nans is None:
            bits = values.view(f"<u{form.width}")
            values = np.where(self.valid, bits, np.array(np.nan, form.dtype).view(bits.dtype))
            self.flags |= NAN_IS_NULL
            self.streams = [_plain(values, form)]
        else:
            self._encode_plain(values, form)

    def _encode_few_or_plain(self, values: Array, form: Physical) -> None:
        if not self._encode_few(values, form, form.width):
            self._encode_plain(values, form)

    def _encode_few(self, values: Array, form: Physical, below: int) -> bool:
        """Store one value, or the items of a dictionary, if codes have fewer bytes than `below`."""
        if self.options.plain:
            return False
        if self._is_constant(values):
            self._encode_constant(values, form)
            return True
        encoded = dictionary.of_values(values, form, self.valid, below)
        if encoded is not None:
            self.streams = dictionary.encode_values(*encoded)
        return encoded is not None

    def _encode_constant(self, values: Array, form: Physical) -> None:
        row = 0 if self.valid is None else int(self.valid.argmax())
        raw = np.zeros(form.width + -form.width % 8, np.uint8)
        if self.valid is None or self.valid[row]:
            raw[: form.width] = (
                np.ascontiguousarray(values[row : row + 1]).view(np.uint8).reshape(-1)
            )
        self.streams = [Stream(VALUES, CONSTANT, words=raw.view(WORD))]

    def _is_constant(self, values: Array) -> bool:
        """True if all values have the same bytes, nulls aside."""
        # Words are compared faster than bytes.
        width = values[:1].nbytes
        word = next(size for size in (8, 4, 2, 1) if width % size == 0)
        words = np.ascontiguousarray(values).view(f"<u{word}").reshape(-1, width // word)
        first = words[0 if self.valid is None else int(self.valid.argmax())]
        for rows in (*sample(len(words)), slice(None)):
            same = (words[rows] == first).all(axis=1)
            if not (same if self.valid is None else same | ~self.valid[rows]).all():
                return False
        return True

    def _encode_plain(self, values: Array, form: Physical) -> None:
        """Store values as they are; nulls are zero."""
        if self.valid is not None:
            values = values.copy()
            values[~self.valid] = 0
        self.streams = [_plain(values, form)]


def _plain(values: Array, form: Physical) -> Stream:
    data = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
    return Stream(VALUES, PLAIN, data, form.width if form.width <= MAX_TYPESIZE else 1)


def _bitmap(valid: Array, options: EncodingOptions) -> Stream:
    """Return validity: a bit a row, or nothing if no row has a value."""
    if not options.plain and not valid.any():
        return Stream(VALID, CONSTANT, words=np.zeros(1, WORD))
    return Stream(VALID, PLAIN, np.packbits(valid, bitorder="little"))


def _of_rows(array: pa.Array, offsets: Array) -> list[pa.Buffer]:
    """Return the offsets of the rows of text or binary, and all bytes."""
    data = array.buffers()[2]
    return [pa.py_buffer(offsets), pa.py_buffer(b"") if data is None else data]


def _as_one_word(values: Array, form: Physical) -> Array | None:
    """Return decimals as the word that each fits in; None if one does not."""
    limbs = np.ascontiguousarray(values).view(WORD).reshape(len(values), form.width // 8)
    for rows in (*sample(len(limbs)), slice(None)):
        if (limbs[rows, 1:] != (limbs[rows, :1] >> 63)).any():
            return None
    return np.ascontiguousarray(limbs[:, 0])


def _check_decimals(type_: pa.DataType, values: Array, valid: Array | None) -> Array:
    """Return decimals with zeros as nulls; SchemaError if one has more digits than its type."""
    if valid is not None:
        values = values.copy()
        values[~valid] = 0
    if not decimals.are_within(type_, np.ascontiguousarray(values).view(np.uint8).reshape(-1)):
        raise SchemaError(f"a value has more digits than {type_}; cast to a wider type")
    return values


def _sound_items(
    array: pa.Array, form: Physical, valid: Array | None
) -> tuple[pa.Array, Array, Array, Array]:
    """Return the array with empty items as nulls; its offsets, and lengths and bytes of its items.

    Raises
    ------
    SchemaError
        The offsets lead out of the bytes.
    """
    offsets = offsets_of(array, f"<i{form.width}")
    lengths = np.diff(offsets)
    if valid is not None and lengths[~valid].any():
        array = pc.fill_null(array, pa.scalar("", array.type))
        offsets = offsets_of(array, f"<i{form.width}")
        lengths = np.diff(offsets)
    first, last = int(offsets[0]), int(offsets[-1])
    values = bytes_of(array.buffers()[2])[first:last]
    if first < 0 or len(values) != last - first or (len(lengths) and lengths.min() < 0):
        raise SchemaError("the offsets of an Arrow array do not ascend within its data")
    return array, offsets, lengths, values


def _check_utf8(array: pa.Array, data: Array) -> None:
    """Raise SchemaError if an item of text, whose bytes are given, is not UTF-8."""
    if len(data) and data.view(np.int8).min() < 0:  # Not ASCII alone.
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as error:
            raise SchemaError(f"the text is not UTF-8: {error}") from None
