"""Statistics of zones as arrays: the words of page records as bounds of Arrow.

A zone is a page, a row group, or all row groups of a leaf. Filters compare all zones in one call,
so nothing here loops over zones. Knows nothing of filters and files; `soundness` compares
statistics with the rows.

Bounds of text are bytes and need not be characters: a lower one is the beginning of an item, and an
upper one the next bytes after it. Arrow compares text by its bytes, so both stay bounds.

Extremes: the least or the greatest value of a column, from few of its zones. The bounds of a zone
need not be values. So zones are read in the order of their bounds, until a value is found that no
other zone can be beyond.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.types import (
    as_compared,
    as_stored,
    bitmap,
    compared_type,
    stored_type,
    value_type,
)
from blztable.columns.parts.physical import Form, Physical, physical
from blztable.format.bounds import (
    GREATEST,
    LEAST,
    NONE,
    WORD_BYTES,
    scales,
    values_of_floats,
)
from blztable.format.records import EXACT_BOUNDS, Array, Records


@dataclass(frozen=True, slots=True)
class Zones:
    """Arrays with one entry for each zone.

    Attributes
    ----------
    rows, nulls, nans
        How many rows there are, and how many of them are null or NaN; where this is not known, all
        of them are both.
    values
        Whether a row may have a value that is neither.
    lowest, highest
        Bounds of these values, of the type that filters compare. An unknown bound is null.
    exact
        Whether the bounds are values.
    """

    rows: Array
    nulls: Array
    nans: Array
    values: Array
    lowest: pa.Array
    highest: pa.Array
    exact: Array

    def __len__(self) -> int:
        """Return the number of zones."""
        return len(self.nulls)

    def take(self, indices: Array) -> "Zones":
        """Return the zones at these indices, in their order; an index may repeat."""
        of_bounds = pa.array(indices)
        return Zones(
            self.rows[indices],
            self.nulls[indices],
            self.nans[indices],
            self.values[indices],
            self.lowest.take(of_bounds),
            self.highest.take(of_bounds),
            self.exact[indices],
        )

    @property
    def is_counted(self) -> Array:
        """For each zone: True if its nulls and NaNs are known."""
        return self.nulls + self.nans <= self.rows


def zones_of_pages(type_: pa.DataType, records: Records) -> Zones:
    """Return the statistics of each page of a column, in the order of its parts."""
    parts, pages = records.parts, records.pages
    part = np.repeat(np.arange(len(parts)), parts["pages"])
    log2 = parts["page"].astype(np.int64)[part]
    begin = (np.arange(len(part)) - records.first_page[part]) << log2
    rows = np.minimum(parts["rows"].astype(np.int64)[part] - begin, 1 << log2)
    nulls, nans = pages["nulls"].astype(np.int64), pages["nans"].astype(np.int64)
    return _zones(type_, records, part, (rows, nulls, nans), pages["min"], pages["max"])


def zones_of_groups(type_: pa.DataType, records: Records) -> Zones:
    """Return the statistics of each row group, or leaf, of a column."""
    rows = records.parts["rows"].astype(np.int64)
    described = records.parts["pages"] > 0
    # Of a part without page records nothing is known.
    nulls, nans = rows.copy(), rows.copy()
    low, high = np.where(rows > 0, LEAST, GREATEST), np.where(rows > 0, GREATEST, LEAST)
    first = records.first_page[:-1][described]
    if len(first):
        pages = records.pages
        valued = pages["min"] <= pages["max"]
        low[described] = np.minimum.reduceat(np.where(valued, pages["min"], NONE[0]), first)
        high[described] = np.maximum.reduceat(np.where(valued, pages["max"], NONE[1]), first)
        nulls[described] = np.add.reduceat(pages["nulls"], first, dtype=np.int64)
        nans[described] = np.add.reduceat(pages["nans"], first, dtype=np.int64)
    return _zones(type_, records, np.arange(len(rows)), (rows, nulls, nans), low, high)


def _zones(
    type_: pa.DataType,
    records: Records,
    part: Array,
    counts: tuple[Array, Array, Array],
    low: Array,
    high: Array,
) -> Zones:
    """Return zones, given for each its part, its numbers of rows, and its extreme words."""
    rows, nulls, nans = counts
    if pa.types.is_null(type_):
        nulls, nans = rows, np.zeros_like(rows)
    values = (low <= high) & ((nulls + nans < rows) | (nulls + nans > rows))
    exact = values & (records.parts["flags"][part] & EXACT_BOUNDS != 0)
    ordered = ordered_type(type_)
    form = physical(ordered)
    if form.order is None:
        lowest = highest = pa.nulls(len(rows))
        exact = np.zeros_like(exact)
    elif form.form is Form.BYTES:
        lowest = _items(ordered, records, part, low, values)
        above = values & (exact | (high < GREATEST))
        highest = _items(ordered, records, part, high + (above & ~exact), above)
    elif form.form is Form.FLOAT:
        lowest = _floats(type_, records, part, low, values, -np.inf)
        highest = _floats(type_, records, part, high, values, np.inf)
    elif form.form is Form.WIDE:
        lowest, highest = _wide(ordered, records, part, low, high, values)
    else:
        lowest = as_compared(_numbers(ordered, form, low, values))
        highest = as_compared(_numbers(ordered, form, high, values))
    return Zones(rows, nulls, nans, values, lowest, highest, exact)


def ordered_type(type_: pa.DataType) -> pa.DataType:
    """Return the type that gives bounds their order and their words."""
    return stored_type(value_type(type_))


def _array(type_: pa.DataType, known: Array, *buffers: Array) -> pa.Array:
    """Return an array of a type; null where nothing is known."""
    wrapped = [pa.py_buffer(np.ascontiguousarray(buffer)) for buffer in buffers]
    return pa.Array.from_buffers(type_, len(known), [bitmap(known), *wrapped])


def _numbers(type_: pa.DataType, form: Physical, words: Array, known: Array) -> pa.Array:
    """Return words as integers, times or booleans; a word that is none of the type is unknown."""
    if form.form is Form.UNSIGNED and form.width == 8:
        return _array(type_, known, words ^ LEAST)
    assert form.dtype is not None
    if form.form is Form.BOOL:
        known = known & (words >= 0) & (words <= 1)
        return _array(type_, known, np.packbits(words == 1, bitorder="little"))
    limits = np.iinfo(form.dtype.str)
    known = known & (words >= limits.min) & (words <= limits.max)
    return _array(type_, known, words.astype(form.dtype))


def _floats(
    type_: pa.DataType, records: Records, part: Array, words: Array, known: Array, towards: float
) -> pa.Array:
    """Return words as floats of the type that is compared, rounded to one side."""
    whole, powers = scales(records)
    values = values_of_floats(words, whole[part], powers[part])
    known = known & ~np.isnan(values) & (~whole[part] | ((words != LEAST) & (words != GREATEST)))
    compared = compared_type(type_)
    if compared.bit_width == 32:
        with np.errstate(over="ignore", invalid="ignore"):
            narrow = values.astype("<f4")
            inside = narrow > values if towards < 0 else narrow < values
            values = np.where(inside, np.nextafter(narrow, np.float32(towards)), narrow)
    return _array(compared, known, values)


def _wide(
    type_: pa.DataType, records: Records, part: Array, low: Array, high: Array, known: Array
) -> tuple[pa.Array, pa.Array]:
    """Return words as decimals: numbers if bounds are values, otherwise their upper 64 bits."""
    whole = records.parts["flags"][part] & EXACT_BOUNDS != 0
    limbs, greatest = type_.bit_width // 64, 10**type_.precision - 1
    bounds = []
    for words, filling, limit in ((low, 0, -greatest), (high, -1, greatest)):
        last = np.frombuffer(limit.to_bytes(8 * limbs, "little", signed=True), "<i8")
        values = np.empty((len(words), limbs), np.int64)
        values[:, 0] = np.where(whole, words, filling)
        values[:, 1:-1] = np.where(whole, words >> 63, filling)[:, None]
        values[:, -1] = np.where(whole, words >> 63, words)
        # No value has more digits than its type, and Arrow casts no decimal that has.
        beyond = words <= last[-1] if limit < 0 else words >= last[-1]
        values[~whole & beyond] = last
        bounds.append(_array(type_, known, values))
    return bounds[0], bounds[1]


def _items(
    type_: pa.DataType, records: Records, part: Array, words: Array, known: Array
) -> pa.Array:
    """Return text or bytes: the prefix of the part, and the bytes of a word up to its zeros."""
    last = (words ^ LEAST).astype(">u8").view(np.uint8).reshape(-1, WORD_BYTES)
    kept = np.where(known, WORD_BYTES - (last[:, ::-1] != 0).argmax(1), 0)
    kept[~last.any(1)] = 0
    prefix = np.where(known, records.parts["prefix"][part], 0).astype(np.int64)
    is_large = physical(type_).width == 8
    ends = np.zeros(len(words) + 1, "<i8" if is_large else "<i4")
    np.cumsum(prefix + kept, out=ends[1:])
    data = np.empty(int(ends[-1]), np.uint8)
    begin, inside = ends[:-1].astype(np.int64), np.arange(int(prefix.sum()))
    inside -= np.repeat(np.cumsum(prefix) - prefix, prefix)
    data[np.repeat(begin, prefix) + inside] = records.prefixes[
        np.repeat(records.first_prefix[part], prefix) + inside
    ]
    positions = np.arange(WORD_BYTES)
    chosen = positions < kept[:, None]
    data[((begin + prefix)[:, None] + positions)[chosen]] = last[chosen]
    return _array(type_, known, ends, data)


def extreme(zones: Zones, read: Callable[[int], pa.Array], *, is_least: bool) -> pa.Scalar:
    """Return the least or the greatest value of some zones; null if there is none, or no order.

    Nulls and NaNs are no values.

    Parameters
    ----------
    zones : Zones
        Statistics of each zone.
    read : callable
        Returns the values of a zone, given its number. It is called where bounds are not values.
    is_least : bool
        Whether the least value is wanted.
    """
    bounds = zones.lowest if is_least else zones.highest
    best = pa.scalar(None, bounds.type)
    if pa.types.is_null(bounds.type):
        return best
    for zone in _in_order(bounds, np.flatnonzero(zones.values), is_least):
        # The bound may be unknown, and at first there is no value yet.
        is_known = bounds[zone].is_valid and best.is_valid
        if is_known and not _is_beyond(bounds[zone], best, is_least):
            break
        value = bounds[zone] if zones.exact[zone] else extreme_of(read(zone), is_least=is_least)
        best = _better(best, value, is_least)
    return best


def extreme_of_all(arrays: Iterator[pa.Array], *, is_least: bool) -> pa.Scalar:
    """Return the least or the greatest value of one array or more, of which nothing is known."""
    best = extreme_of(next(arrays), is_least=is_least)
    for array in arrays:
        best = _better(best, extreme_of(array, is_least=is_least), is_least)
    return best


def _better(best: pa.Scalar, value: pa.Scalar, is_least: bool) -> pa.Scalar:
    """Return the value that is less or greater; nulls are no values."""
    if not (best.is_valid and value.is_valid):
        return value if value.is_valid else best
    return value if _is_beyond(value, best, is_least) else best


def _is_beyond(value: pa.Scalar, best: pa.Scalar, is_least: bool) -> bool:
    """True if a value is less or greater than another one of its type."""
    if pa.types.is_decimal(value.type):
        # Arrow compares no decimals of negative scale.
        one, other = value.as_py(), best.as_py()
        return bool(one < other if is_least else one > other)
    return bool((pc.less if is_least else pc.greater)(value, best).as_py())


def _in_order(bounds: pa.Array, zones: Array, is_least: bool) -> Iterator[int]:
    """Yield the zones, those with unknown bounds first, and then the most promising ones."""
    order = "ascending" if is_least else "descending"
    taken = bounds.take(pa.array(zones))
    sorted_order = pc.array_sort_indices(taken, order=order, null_placement="at_start")
    yield from zones[sorted_order.to_numpy()].tolist()


def extreme_of(array: pa.Array, *, is_least: bool) -> pa.Scalar:
    """Return the least or greatest value; null if there is none."""
    if pa.types.is_dictionary(array.type):
        # Arrow decodes no dictionaries of views.
        array = as_stored(array.dictionary).take(array.indices)
    array = as_compared(array)
    if pa.types.is_floating(array.type):
        array = array.filter(pc.invert(pc.is_nan(array)))
    type_ = array.type
    if pa.types.is_duration(type_):
        # Arrow has no minimum of durations.
        array = array.view(pa.int64())
    return (pc.min if is_least else pc.max)(array).cast(type_)


def null_count(array: pa.Array) -> int:
    """Return how many rows have no value; values of a dictionary may be null, too."""
    if not pa.types.is_dictionary(array.type) or not array.dictionary.null_count:
        return int(array.null_count)
    return int(pc.sum(array.is_null()).as_py() or 0)


def above_prefix(prefix: bytes) -> bytes | None:
    """Return the least bytes above all that begin with a prefix; None if there are none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
