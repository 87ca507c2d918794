"""Checks that stored statistics match the rows: nulls, NaNs and bounds.

Filters skip rows because of statistics, so a bound that is too narrow would silently lose rows. A
bound that is wider than the computed bound is correct and accepted. Knows nothing of files.
"""

from collections.abc import Iterator

import pyarrow as pa

from blztable.arrow.types import as_stored
from blztable.columns.codecs.text import TYPE_IDS as ITEM_IDS
from blztable.columns.statistics import bounds
from blztable.columns.statistics.compute import Key
from blztable.errors import CorruptError
from blztable.format.line import Statistics

# Number of items that are converted to Python objects at the same time.
ITEMS_AT_ONCE = 1 << 10


def false_statistics(
    array: pa.Array, zone_rows: int, stored: Statistics, computed: Statistics
) -> Iterator[tuple[int, str]]:
    """Yield (index of the zone, message) for each stored fact that is false.

    All zones but the last have `zone_rows` rows; `computed` are the statistics of the same zones.
    """
    ordered = bounds.ordered_type(array.type)
    for zone in range(len(computed)):
        if stored.nulls[zone] != computed.nulls[zone]:
            yield zone, f"{computed.nulls[zone]} nulls, the statistics say {stored.nulls[zone]}"
        if stored.nans[zone] != computed.nans[zone]:
            yield zone, f"{computed.nans[zone]} NaNs, the statistics say {stored.nans[zone]}"
        rows = array.slice(zone * zone_rows, zone_rows)
        for side, bound, own in (
            ("lower", stored.lowest[zone], computed.lowest[zone]),
            ("upper", stored.highest[zone], computed.highest[zone]),
        ):
            if bound is None or bound == own:
                continue
            try:
                key = _key(ordered, bound)
                is_sound = _encloses(key, side, ordered, own, rows)
            except CorruptError as error:
                yield zone, f"{side} bound: {error}"
                continue
            if not is_sound:
                yield zone, f"{side} bound {key!r} does not enclose the values"


def _key(type_: pa.DataType, bound: bytes) -> Key:
    """Decode a bound to a Python number or bytes that compare like the values."""
    (value,) = bounds.decode(type_, [bound])
    if type_.id in ITEM_IDS:
        return bound
    if pa.types.is_floating(type_):
        return float(value.as_py())
    return int.from_bytes(bound, "little", signed=not pa.types.is_unsigned_integer(type_))


def _encloses(key: Key, side: str, type_: pa.DataType, own: bytes | None, rows: pa.Array) -> bool:
    """True if no value of the rows lies beyond the bound."""
    if type_.id in ITEM_IDS:
        # The computed bound may be a prefix, so the items must be compared.
        return all(_encloses_one(key, item, side) for item in _items(rows))
    # The computed bound of numbers is the extreme value; None means that the rows have no value.
    return own is None or _encloses_one(key, _key(type_, own), side)


def _encloses_one(key: Key, value: Key, side: str) -> bool:
    # The comparison is False if one of them is NaN.
    return key <= value if side == "lower" else key >= value  # type: ignore[operator]


def _items(rows: pa.Array) -> Iterator[bytes]:
    """Yield the items of the rows, without nulls."""
    if isinstance(rows, pa.DictionaryArray):
        rows = as_stored(rows.dictionary).take(rows.indices.drop_null().unique())
    for start in range(0, len(rows), ITEMS_AT_ONCE):
        items = rows.slice(start, ITEMS_AT_ONCE).cast(pa.large_binary()).to_pylist()
        yield from (item for item in items if item is not None)
