"""Whether what is said of runs of rows is true of them: nulls, NaNs and bounds.

Filters pass over rows by what is said, so a bound that is too narrow would lose rows in silence.
One that is wider than the writer's own is as true, and accepted.
"""

from collections.abc import Iterator

import pyarrow as pa

from blztable.columns.codecs.text import TYPE_IDS as ITEM_IDS
from blztable.columns.statistics import bounds
from blztable.columns.statistics.compute import RunStatistics
from blztable.columns.stored import as_stored
from blztable.errors import CorruptError

Key = int | float | bytes
# Items that are objects of Python's together.
ITEMS_AT_ONCE = 1 << 10


def false_statistics(
    array: pa.Array, run_rows: int, stated: RunStatistics, found: RunStatistics
) -> Iterator[tuple[int, str]]:
    """The runs of so many rows of which something false is stated, by number, and what it is.

    `found` is what the writer's own rules say of these rows.
    """
    ordered = bounds.ordered_type(array.type)
    for run in range(len(found.nulls)):
        if stated.nulls[run] != found.nulls[run]:
            yield run, f"{found.nulls[run]} nulls, {stated.nulls[run]} are stated"
        if stated.nans[run] != found.nans[run]:
            yield run, f"{found.nans[run]} NaNs, {stated.nans[run]} are stated"
        rows = array.slice(run * run_rows, run_rows)
        for side, bound, own in (
            ("lower", stated.lowest[run], found.lowest[run]),
            ("upper", stated.highest[run], found.highest[run]),
        ):
            if bound is None or bound == own:
                continue
            try:
                key = _key(ordered, bound)
                is_sound = _encloses(key, side, ordered, own, rows)
            except CorruptError as error:
                yield run, f"{side} bound: {error}"
                continue
            if not is_sound:
                yield run, f"{side} bound {key!r} does not enclose the values"


def _key(type_: pa.DataType, bound: bytes) -> Key:
    """What a bound is compared by, from its bytes."""
    (value,) = bounds.decode(type_, [bound])
    if type_.id in ITEM_IDS:
        return bound
    if pa.types.is_floating(type_):
        return float(value.as_py())
    return int.from_bytes(bound, "little", signed=not pa.types.is_unsigned_integer(type_))


def _encloses(key: Key, side: str, type_: pa.DataType, own: bytes | None, rows: pa.Array) -> bool:
    """Whether no value of the rows lies beyond the bound."""
    if type_.id in ITEM_IDS:
        # The writer's own bound may be a prefix, so it does not tell.
        return all(_encloses_one(key, item, side) for item in _items(rows))
    # Bounds of numbers are values; without one there is nothing to enclose.
    return own is None or _encloses_one(key, _key(type_, own), side)


def _encloses_one(key: Key, value: Key, side: str) -> bool:
    # Never true of a NaN.
    return key <= value if side == "lower" else key >= value  # type: ignore[operator]


def _items(rows: pa.Array) -> Iterator[bytes]:
    """The items that the rows have."""
    if isinstance(rows, pa.DictionaryArray):
        rows = as_stored(rows.dictionary).take(rows.indices.drop_null().unique())
    for start in range(0, len(rows), ITEMS_AT_ONCE):
        items = rows.slice(start, ITEMS_AT_ONCE).cast(pa.large_binary()).to_pylist()
        yield from (item for item in items if item is not None)
