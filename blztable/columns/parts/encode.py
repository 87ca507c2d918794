"""An Arrow array as a part: the streams of the encoding that takes the fewest bytes a row.

The order in which encodings are tried is here, and nothing else of them. Knows no files.
"""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from blztable.arrow.types import as_stored, bytes_of, offsets_of
from blztable.columns.parts import bounds, dictionary, numbers
from blztable.columns.parts.physical import (
    Form,
    Physical,
    physical,
    upper_words,
    validity_of,
    values_of,
    words_of,
)
from blztable.columns.parts.stream import Stream
from blztable.format.records import (
    CONSTANT,
    EXACT_BOUNDS,
    NAN_IS_NULL,
    PLAIN,
    TIMES,
    VALID,
    VALUES,
    WORD,
    Array,
)

MAX_TYPESIZE = 255


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


def encode(array: pa.Array, page: int) -> EncodedPart:
    """Return an array of a flat type, or the node of a nested one, as a part."""
    array = as_stored(array)
    form = physical(array.type)
    valid = validity_of(array)
    pages = bounds.empty(len(array), page)
    nans = None
    if form.form is Form.NOTHING:
        flags, prefix, nbytes = 0, b"", 0
        streams: list[Stream] = []
    elif form.form in (Form.BYTES, Form.ITEMS):
        streams, flags, prefix, nbytes = _items(array, form, valid, page, pages)
    else:
        values = values_of(array, form)
        nans = np.isnan(values) if form.form is Form.FLOAT else None
        if nans is not None and valid is not None:
            nans &= valid
        streams, flags = _fixed(values, form, valid, nans, page, pages)
        prefix, nbytes = b"", len(array) * form.width
        if flags & NAN_IS_NULL:
            nans = None
    bounds.count(pages, len(array), page, valid, nans)
    if valid is not None and not flags & NAN_IS_NULL:
        streams = [_bitmap(valid), *streams]
    return EncodedPart(len(array), page, nbytes, tuple(streams), pages, flags, prefix)


def _bitmap(valid: Array) -> Stream:
    """Return validity: a bit a row, or nothing if no row has a value."""
    if not valid.any():
        return Stream(VALID, CONSTANT, words=np.zeros(1, WORD))
    return Stream(VALID, PLAIN, np.packbits(valid, bitorder="little"))


def _items(
    array: pa.Array, form: Physical, valid: Array | None, page: int, pages: Array
) -> tuple[list[Stream], int, bytes, int]:
    """Return the streams of text, binary or lists, and the flags, prefix and bytes of the part."""
    offsets = offsets_of(array, f"<i{form.width}").astype(np.int64)
    lengths = np.diff(offsets)
    if form.form is Form.ITEMS:
        if valid is not None:
            lengths = np.where(valid, lengths, 0)
        return [numbers.encode_lengths(lengths, page)], 0, b"", form.width * len(array)
    prefix, exact = bounds.of_bytes(pages, array, page)
    flags = EXACT_BOUNDS if exact else 0
    whole = array.cast(pa.large_string() if form.is_text else pa.large_binary())
    whole = whole.cast(pa.large_binary())
    if valid is not None:
        whole = whole.fill_null(b"")
    offsets = offsets_of(whole, "<i8")
    nbytes = form.width * len(array) + int(offsets[-1] - offsets[0])
    found = dictionary.of_bytes(whole) if len(array) else None
    if found is not None:
        return dictionary.encode_items(*found), flags, prefix, nbytes
    body = bytes_of(whole.buffers()[2])[offsets[0] : offsets[-1]]
    lengths_ = numbers.encode_lengths(np.diff(offsets), page)
    return [Stream(VALUES, PLAIN, body), lengths_], flags, prefix, nbytes


def _fixed(
    values: Array,
    form: Physical,
    valid: Array | None,
    nans: Array | None,
    page: int,
    pages: Array,
) -> tuple[list[Stream], int]:
    """Return the streams of values of fixed width, and the flags of the part."""
    if valid is not None:
        values = values.copy()
        values[~valid] = _filling(values, valid)
    ordered = valid
    if nans is not None and nans.any():
        ordered = ~nans if valid is None else valid & ~nans
    if (
        len(values)
        and (
            np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1) == _raw(values)[0]
        ).all()
    ):
        return _constant(values, form, ordered, page, pages)
    if form.form is Form.FLOAT:
        return _floats(values, form, valid, nans, ordered, page, pages)
    words = words_of(values, form) if form.form is not Form.OPAQUE else None
    if words is not None:
        bounds.of_words(pages, words, page, ordered)
        encoded = numbers.encode(
            _between(words, pages, page, ordered),
            pages["min"],
            pages["max"],
            page,
            form.width,
            sums=valid is None,
        )
        if encoded is not None:
            return [encoded], EXACT_BOUNDS
    elif form.form is Form.WIDE:
        bounds.of_words(pages, upper_words(values, form), page, ordered)
    few = dictionary.of_values(values, form) if form.width > 1 else None
    exact = EXACT_BOUNDS if words is not None and form.form is not Form.WIDE else 0
    if few is not None:
        return dictionary.encode_values(*few), exact
    if words is not None and form.form is Form.WIDE:
        bounds.of_words(pages, upper_words(values, form), page, ordered)
    return [_plain(_zeroed(values, valid), form)], exact


def _floats(
    values: Array,
    form: Physical,
    valid: Array | None,
    nans: Array | None,
    ordered: Array | None,
    page: int,
    pages: Array,
) -> tuple[list[Stream], int]:
    """Return floats as decimals, as few values, or as they are."""
    found = numbers.decimals(values) if form.width == 8 and len(values) else None
    encoded = None if found is None else _decimals(values, *found, ordered, page, pages)
    if encoded is not None:
        return [encoded], 0 if encoded.exceptions else EXACT_BOUNDS
    words = words_of(values, form)
    assert words is not None
    bounds.of_words(pages, words, page, ordered)
    few = dictionary.of_values(values, form)
    if few is not None:
        return dictionary.encode_values(*few), EXACT_BOUNDS
    if valid is None or (nans is not None and nans.any()):
        return [_plain(_zeroed(values, valid), form)], EXACT_BOUNDS
    values = values.copy()
    values[~valid] = np.nan
    return [_plain(values, form)], EXACT_BOUNDS | NAN_IS_NULL


def _decimals(
    values: Array,
    power: int,
    times: bool,
    integers: Array,
    exceptions: Array,
    ordered: Array | None,
    page: int,
    pages: Array,
) -> Stream | None:
    """Return floats as integers with a power of ten, and some rows as they are."""
    coded = ordered
    if len(exceptions):
        coded = np.ones(len(values), bool) if ordered is None else ordered.copy()
        coded[exceptions] = False
    bounds.of_words(pages, integers, page, coded)
    within = _between(integers, pages, page, coded)
    encoded = numbers.encode(within, pages["min"], pages["max"], page, 8, sums=False)
    if encoded is None:
        return None
    flags = TIMES if times else 0
    if not len(exceptions):
        return replace(encoded, power=power, flags=flags)
    words = np.concatenate([pages["min"], exceptions, values[exceptions].view(WORD)])
    with np.errstate(over="ignore"):
        scaled = values[exceptions] * float(f"1e{power}")
    bounds.widen(pages, scaled, exceptions >> page)
    return replace(
        encoded, power=power, flags=flags, words=words.astype(WORD), exceptions=len(exceptions)
    )


def _constant(
    values: Array, form: Physical, ordered: Array | None, page: int, pages: Array
) -> tuple[list[Stream], int]:
    """Return the stream of one value for all rows."""
    raw = _raw(values)[0]
    padded = np.zeros(len(raw) + -len(raw) % 8, np.uint8)
    padded[: len(raw)] = raw
    flags = 0
    if form.form is Form.WIDE:
        bounds.of_words(pages, upper_words(values, form), page, ordered)
    elif form.form is not Form.OPAQUE:
        words = words_of(values, form)
        assert words is not None
        bounds.of_words(pages, words, page, ordered)
        flags = EXACT_BOUNDS
    return [Stream(VALUES, CONSTANT, words=padded.view(WORD))], flags


def _plain(values: Array, form: Physical) -> Stream:
    data = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
    return Stream(VALUES, PLAIN, data, form.width if form.width <= MAX_TYPESIZE else 1)


def _zeroed(values: Array, valid: Array | None) -> Array:
    """Return values whose nulls are zero."""
    if valid is not None:
        values[~valid] = 0
    return values


def _filling(values: Array, valid: Array) -> Array:
    """Return the value that null rows get: one that the part has."""
    first = int(valid.argmax())
    return values[first] if valid[first] else np.zeros_like(values[0])


def _between(words: Array, pages: Array, page: int, ordered: Array | None) -> Array:
    """Return words that are within the bounds of their page also where a row has no value."""
    if ordered is None:
        return words
    low = np.repeat(pages["min"], 1 << page)[: len(words)]
    return np.where(ordered, words, low)


def _raw(values: Array) -> Array:
    """Return the bytes of each value."""
    return np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
