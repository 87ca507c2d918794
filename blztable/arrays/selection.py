"""Selections: the smallest box that holds what an index of numpy selects.

Knows nothing of chunks.
"""

import operator
from types import EllipsisType
from typing import SupportsIndex

import numpy as np

from blztable.arrays.files.grid import Box

Key = object
# An entry of an index as numpy sees it: a truth value and a mask are arrays of booleans.
Entry = slice | int | np.ndarray | EllipsisType | None


def bounding_box(key: Key, shape: tuple[int, ...]) -> tuple[Box, tuple[object, ...]]:
    """Return a box of the array, and the index that selects the same from the box alone.

    IndexError as numpy raises it, for an index beyond the array or of too many axes.
    """
    entries = [_entry(each) for each in (key if isinstance(key, tuple) else (key,))]
    spare = len(shape) - sum(map(_axes, entries))
    if spare < 0:
        raise IndexError(f"too many indices for an array with {len(shape)} axes")
    if sum(entry is Ellipsis for entry in entries) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    box: list[slice] = []
    local: list[object] = []
    for entry in entries:
        if not _axes(entry):
            local.append(entry)
            if entry is Ellipsis:
                box += [slice(0, size) for size in shape[len(box) :][:spare]]
            continue
        for part in _parts(entry, shape[len(box) :]):
            cut, rest = _bounded(part, shape[len(box)], len(box))
            box.append(cut)
            local.append(rest)
    box += [slice(0, size) for size in shape[len(box) :]]
    return tuple(box), tuple(local)


def _entry(entry: object) -> Entry:
    if entry is None or isinstance(entry, slice | EllipsisType):
        return entry
    if isinstance(entry, SupportsIndex) and not isinstance(entry, bool | np.bool_ | np.ndarray):
        return operator.index(entry)
    try:
        array = np.asarray(entry)
    except ValueError as error:
        raise IndexError(f"no index: {error}") from None
    if not array.size and not isinstance(entry, np.ndarray):
        # An empty list has no dtype.
        array = array.astype(np.intp)
    if array.dtype.kind in "SU":
        raise IndexError("an array in a file is not selected by the names of fields; select rows")
    if array.dtype.kind not in "biu":
        raise IndexError(
            f"an array has no index {str(entry)[:80]!r}; expected integers, slices, '...', None, "
            "or arrays of integers or booleans"
        )
    return array if array.ndim or array.dtype == bool else int(array)


def _axes(entry: Entry) -> int:
    """Return the number of axes that an entry selects from; a truth value makes a new one."""
    if entry is None or entry is Ellipsis:
        return 0
    is_mask = isinstance(entry, np.ndarray) and entry.dtype == bool
    return entry.ndim if is_mask else 1  # type: ignore[union-attr]


def _parts(entry: Entry, sizes: tuple[int, ...]) -> tuple[Entry, ...]:
    """Return an entry for each axis: a mask as the places that it selects."""
    if not isinstance(entry, np.ndarray) or entry.dtype != bool:
        return (entry,)
    if entry.shape != sizes[: entry.ndim]:
        raise IndexError(f"a mask of shape {entry.shape} for axes of shape {sizes[: entry.ndim]}")
    return np.nonzero(entry)


def _bounded(entry: Entry, size: int, axis: int) -> tuple[slice, object]:
    """Return the part of an axis that an entry selects from, and the entry within that part."""
    if isinstance(entry, slice):
        chosen = range(*entry.indices(size))
        if not chosen:
            return slice(0, 0), slice(None)
        low, high = min(chosen[0], chosen[-1]), max(chosen[0], chosen[-1])
        return slice(low, high + 1), slice(None, None, chosen.step)
    rows = np.asarray(entry)
    if not rows.size:
        return slice(0, 0), rows
    low, high = int(rows.min()), int(rows.max())
    if low < -size or high >= size:
        wrong = high if high >= size else low
        raise IndexError(f"index {wrong} is out of bounds for axis {axis} with size {size}")
    if isinstance(entry, int):
        return slice(entry % size, entry % size + 1), 0
    rows = rows.astype(np.intp)
    rows[rows < 0] += size
    low = int(rows.min())
    return slice(low, int(rows.max()) + 1), rows - low
