"""Values of the user as the items of an array: of a dtype of fixed width, or of any length.

Knows nothing of files.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from blztable.arrays.encoding import item_bytes
from blztable.arrays.exact import exactly
from blztable.arrays.files.info import ArrayInfo
from blztable.errors import SchemaError


def as_items(info: ArrayInfo, values: Any) -> np.ndarray:
    """Return values as an array of the dtype; SchemaError if one of them would change."""
    kind = info.items
    if not kind:
        return exactly(values, info.dtype)
    if not isinstance(values, Iterable) or isinstance(values, str | bytes):
        raise SchemaError(f"expected a sequence of {kind}, found {values!r:.80}")
    items = [*values]
    for item in items:
        # Now, for an error while a new file is written leaves it unfinished.
        item_bytes(kind, item)
    array = np.empty(len(items), object)
    array[:] = items
    return array


def as_values(info: ArrayInfo, values: Any) -> np.ndarray:
    """Return values to assign; a single item of any length is an array without axes."""
    if not info.items or not isinstance(values, str | bytes):
        return as_items(info, values)
    item_bytes(info.items, values)
    item = np.empty((), object)
    item[()] = values
    return item


def by_number(numbers: np.ndarray, values: np.ndarray) -> dict[int, object]:
    """Return the items of any length that are assigned to these numbers; the last one counts."""
    items = np.broadcast_to(values, np.shape(numbers))
    return dict(zip(np.ravel(numbers).tolist(), items.flat, strict=True))
