"""Statistics of zones as arrays, their bounds decoded from bytes.

A zone is a row group or a page. Filters compare all zones in one call, so nothing here loops over
zones. Knows nothing of filters and files; `soundness` compares statistics with the rows.

Extremes: the least or the greatest value of a column, from few of its zones. The bounds of a zone
need not be values. So zones are read in the order of their bounds, until a value is found that no
other zone can be beyond.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.types import as_compared, stored_type, value_type
from blztable.columns.codecs.fixed import NUMPY_TYPES
from blztable.columns.codecs.text import TYPE_IDS as ITEM_IDS
from blztable.errors import CorruptError
from blztable.format.line import Statistics

Bounds = Sequence[bytes | None]


@dataclass(frozen=True, slots=True)
class Zones:
    """Arrays with one entry for each zone. An unknown bound is null; a NaN is never a bound."""

    rows: np.ndarray
    nulls: np.ndarray
    nans: np.ndarray
    lowest: pa.Array
    highest: pa.Array

    def __len__(self) -> int:
        """Return the number of zones."""
        return len(self.nulls)

    def take(self, indices: np.ndarray) -> "Zones":
        """Return the zones at these indices, in their order; an index may repeat."""
        of_bounds = pa.array(indices)
        return Zones(
            self.rows[indices],
            self.nulls[indices],
            self.nans[indices],
            self.lowest.take(of_bounds),
            self.highest.take(of_bounds),
        )

    @classmethod
    def joined(cls, parts: Sequence["Zones"]) -> Self:
        """Return the zones of all parts, part after part; at least one part is needed."""
        return cls(
            np.concatenate([part.rows for part in parts]),
            np.concatenate([part.nulls for part in parts]),
            np.concatenate([part.nans for part in parts]),
            pa.concat_arrays([part.lowest for part in parts]),
            pa.concat_arrays([part.highest for part in parts]),
        )


def zones(type_: pa.DataType, rows: Sequence[int], statistics: Statistics) -> Zones:
    """Return the statistics of zones of a column of this type, given the row count of each zone.

    Raises
    ------
    CorruptError
        If a bound is not the bytes of a value of this type, or a zone has more nulls and NaNs than
        rows.
    """
    result = Zones(
        np.asarray(rows, np.int64),
        np.asarray(statistics.nulls, np.int64),
        np.asarray(statistics.nans, np.int64),
        decode(type_, statistics.lowest),
        decode(type_, statistics.highest),
    )
    too_many = np.flatnonzero(result.nulls + result.nans > result.rows)
    if len(too_many):
        zone = too_many[0]
        counts = f"{statistics.nulls[zone]} nulls and {statistics.nans[zone]} NaNs"
        raise CorruptError(f"the statistics state {counts} in {rows[zone]} rows")
    return result


def decode(type_: pa.DataType, bounds: Bounds) -> pa.Array:
    """Decode bounds of this type, and cast them to the type that filters compare."""
    return as_compared(_values(ordered_type(type_), bounds))


def ordered_type(type_: pa.DataType) -> pa.DataType:
    """Return the type that gives bounds their order and their bytes."""
    return stored_type(value_type(type_))


def _values(type_: pa.DataType, bounds: Bounds) -> pa.Array:
    if type_.id in ITEM_IDS:
        return _items(type_, bounds)
    if pa.types.is_boolean(type_):
        values = _fixed(type_, 1, bounds).view(pa.uint8())
        if pc.any(pc.greater(values, 1)).as_py():
            raise CorruptError(f"a bound of type {type_} is a byte other than 0 and 1")
        return values.cast(type_)
    if type_.id in NUMPY_TYPES or pa.types.is_decimal(type_):
        values = _fixed(type_, type_.bit_width // 8, bounds).view(type_)
        if pa.types.is_floating(type_) and pc.any(pc.is_nan(values)).as_py():
            raise CorruptError(f"a bound of type {type_} is NaN")
        return values
    if any(bound is not None for bound in bounds):
        raise CorruptError(f"a bound for type {type_}, whose values have no order")
    # Nothing compares them, and Arrow's kernels do not take all nested types.
    return pa.nulls(len(bounds))


def _items(type_: pa.DataType, bounds: Bounds) -> pa.Array:
    try:
        return pa.array(bounds, pa.large_binary()).cast(type_)
    except pa.ArrowInvalid:
        raise CorruptError(f"a bound of type {type_} is not UTF-8") from None


def _fixed(type_: pa.DataType, width: int, bounds: Bounds) -> pa.Array:
    try:
        return pa.array(bounds, pa.binary(width))
    except pa.ArrowInvalid:
        size = next(len(bound) for bound in bounds if bound is not None and len(bound) != width)
        raise CorruptError(f"a bound of type {type_} has {size} bytes, expected {width}") from None


def extreme(zones: Zones, read: Callable[[int], pa.Array], *, is_least: bool) -> pa.Scalar:
    """Return the least or the greatest value of some zones; null if there is none, or no order.

    Nulls and NaNs are no values.

    Parameters
    ----------
    zones : Zones
        Statistics of each zone.
    read : callable
        Returns the values of a zone, given its number.
    is_least : bool
        Whether the least value is wanted.
    """
    bounds = zones.lowest if is_least else zones.highest
    best = pa.scalar(None, bounds.type)
    if pa.types.is_null(bounds.type):
        return best
    is_beyond = pc.less if is_least else pc.greater
    with_values = np.flatnonzero(zones.nulls + zones.nans < zones.rows)
    for zone in _in_order(bounds, with_values, is_least):
        # Null if the bound is unknown, and at first, when there is no value yet.
        if is_beyond(bounds[zone], best).as_py() is False:
            break
        best = _better(best, extreme_of(read(zone), is_least=is_least), is_least)
    return best


def extreme_of_all(arrays: Iterator[pa.Array], *, is_least: bool) -> pa.Scalar:
    """Return the least or the greatest value of one array or more, of which nothing is known."""
    best = extreme_of(next(arrays), is_least=is_least)
    for array in arrays:
        best = _better(best, extreme_of(array, is_least=is_least), is_least)
    return best


def _better(best: pa.Scalar, value: pa.Scalar, is_least: bool) -> pa.Scalar:
    is_beyond = pc.less if is_least else pc.greater
    return value if not best.is_valid or is_beyond(value, best).as_py() else best


def _in_order(bounds: pa.Array, zones: np.ndarray, is_least: bool) -> Iterator[int]:
    """Yield the zones, those with unknown bounds first, and then the most promising ones."""
    order = "ascending" if is_least else "descending"
    taken = bounds.take(pa.array(zones))
    places = pc.array_sort_indices(taken, order=order, null_placement="at_start")
    yield from zones[places.to_numpy()].tolist()


def extreme_of(array: pa.Array, *, is_least: bool) -> pa.Scalar:
    """Return the least or greatest value; null if there is none."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    array = as_compared(array)
    if pa.types.is_floating(array.type):
        array = array.filter(pc.invert(pc.is_nan(array)))
    type_ = array.type
    if pa.types.is_duration(type_):
        # Arrow has no minimum of durations.
        array = array.view(pa.int64())
    return (pc.min if is_least else pc.max)(array).cast(type_)
