"""Selections: the smallest box that holds what an index of numpy selects.

Knows nothing of chunks.
"""

import operator
from typing import SupportsIndex

import numpy as np

from blztable.arrays.files.grid import Box

Key = object


def bounding_box(key: Key, shape: tuple[int, ...]) -> tuple[Box, tuple[object, ...]]:
    """Return a box of the array, and the index that selects the same from the box alone.

    IndexError as numpy raises it, for an index beyond the array or of too many axes.
    """
    entries = _expanded(key, shape)
    box: list[slice] = []
    local: list[object] = []
    for entry in entries:
        if entry is None:
            local.append(None)
            continue
        if len(box) == len(shape):
            raise IndexError(f"too many indices for an array with {len(shape)} axes")
        size = shape[len(box)]
        cut, rest = _bounded(entry, size, len(box))
        box.append(cut)
        local.append(rest)
    box += [slice(0, size) for size in shape[len(box) :]]
    return tuple(box), tuple(local)


def _expanded(key: Key, shape: tuple[int, ...]) -> list[object]:
    """Return an entry for each axis: masks as positions, and an ellipsis as slices."""
    axes = len(shape)
    entries: list[object] = []
    for entry in key if isinstance(key, tuple) else (key,):
        if isinstance(entry, list | np.ndarray) and np.asarray(entry).dtype == bool:
            mask = np.asarray(entry)
            axis = sum(before is not None for before in entries)
            if type(Ellipsis) not in map(type, entries) and mask.shape != shape[axis:][: mask.ndim]:
                raise IndexError(f"a mask of shape {mask.shape} for an array of shape {shape}")
            entries += np.nonzero(mask)
        else:
            entries.append(entry)
    wide = [index for index, entry in enumerate(entries) if entry is Ellipsis]
    if len(wide) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    for index in wide:
        named = sum(entry is not None and entry is not Ellipsis for entry in entries)
        entries[index : index + 1] = [slice(None)] * max(axes - named, 0)
    return entries


def _bounded(entry: object, size: int, axis: int) -> tuple[slice, object]:
    """Return the part of an axis that an entry selects from, and the entry within that part."""
    if isinstance(entry, slice):
        chosen = range(*entry.indices(size))
        if not chosen:
            return slice(0, 0), slice(None)
        low, high = min(chosen[0], chosen[-1]), max(chosen[0], chosen[-1])
        return slice(low, high + 1), slice(None, None, chosen.step)
    if isinstance(entry, list | np.ndarray) and np.ndim(entry):
        places = np.asarray(entry, np.intp if not len(entry) else None)
        if places.dtype.kind not in "iu":
            raise IndexError("arrays used as indices must be of integer (or boolean) type")
        if not places.size:
            return slice(0, 0), places
        if places.min() < -size or places.max() >= size:
            raise IndexError(f"an index is out of bounds for axis {axis} with size {size}")
        places = np.where(places < 0, places + size, places).astype(np.intp)
        low = int(places.min())
        return slice(low, int(places.max()) + 1), places - low
    if not isinstance(entry, SupportsIndex) or isinstance(entry, bool | np.bool_):
        raise IndexError(f"an array has no index {str(entry)[:80]!r}")
    index = operator.index(entry)
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {size}")
    index %= size
    return slice(index, index + 1), 0
