"""The encoding of fixed-width values of few different ones: a code per row, and each value once.

A sample decides whether to encode values so. Knows no types and no files: a value is its bytes. So
NaN and the sign of zero come back as they were.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from blztable import tuning
from blztable.arrow.types import bytes_of
from blztable.columns.blocks import Encoding, StreamLayout
from blztable.columns.encodings.dictionary import to_try
from blztable.columns.encodings.numbers import codes_layout
from blztable.errors import CorruptError

# The bytes of all values, so that they stay in the cache.
MAX_BYTES = 1 << 16
_WORDS = {2: "<u2", 4: "<u4", 8: "<u8"}
# The longest values: a longer one takes more room than its rows mostly do.
MAX_WIDTH = 255


@dataclass(frozen=True, slots=True)
class FewValues(Encoding):
    """Values as their numbers in a dictionary.

    Attributes
    ----------
    stored
        The form of the codes.
    items
        The different values, as numbers of their width where there are such, otherwise as bytes.
    """

    kind: ClassVar[str] = "dictionary"

    stored: StreamLayout
    items: np.ndarray

    def parameters(self) -> Mapping[str, object]:
        """Return the values."""
        return {"items": base64.b64encode(self.items.tobytes()).decode()}

    def decode(self, row: int, codes: np.ndarray, out: np.ndarray) -> None:
        """Look up the values; raise CorruptError if a code leads out of the dictionary."""
        numbers = codes.view(self.stored.dtype)
        if len(numbers) and int(numbers.max()) >= len(self.items):
            raise CorruptError(f"a code is outside of a dictionary of {len(self.items)} items")
        # Unlike the default mode, "wrap" writes to `out` without a buffer.
        np.take(self.items, numbers, out=out.view(self.items.dtype), mode="wrap")

    def pick(self, rows: np.ndarray, codes: np.ndarray, out: np.ndarray) -> None:
        """Look up the values of single rows."""
        self.decode(0, codes, out)

    def values_of_codes(self, type_: pa.DataType, most: int) -> pa.Array | None:
        """Return the values."""
        if len(self.items) > most:
            return None
        data = pa.py_buffer(self.items.view(np.uint8))
        return pa.Array.from_buffers(type_, len(self.items), [None, data])


def items_dtype(width: int) -> str:
    """Return how numpy sees values of so many bytes."""
    return _WORDS.get(width, f"|V{width}")


def values_from_json(value: object, width: int) -> np.ndarray:
    """Read the values of a dictionary; CorruptError unless these are some values of this width."""
    try:
        data = base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except (binascii.Error, ValueError):
        data = None
    if not data or len(data) % width or len(data) > MAX_BYTES:
        raise CorruptError(f"the items of a dictionary; expected base64 of values of {width} bytes")
    return np.frombuffer(data, items_dtype(width))


def encode_few_values(
    layout: StreamLayout, data: np.ndarray, mask: np.ndarray | None, most: int
) -> tuple[FewValues, np.ndarray] | None:
    """Return values as codes; None if there are too many different ones.

    Parameters
    ----------
    layout
        The form of the values.
    data
        Their bytes.
    mask
        True for each row that has a value; None if all have one.
    most
        The bytes of a code must be fewer.
    """
    width = layout.nbytes(1)
    if most == 1 or not 1 < width <= MAX_WIDTH:
        return None
    limit = min(1 << 8 * min(most - 1, 2), MAX_BYTES // width)
    values = _as_array(data if mask is None else _of_rows(data, width, mask), width)
    found = None
    for rows in to_try(values, limit):
        found = rows.dictionary_encode()
        if len(found.dictionary) > min(limit, len(values) // tuning.current.rows_per_item):
            return None
    if found is None:
        return None
    items, ranks = _sorted(found.dictionary, layout.dtype)
    present = ranks[bytes_of(found.indices.buffers()[1]).view("<i4")[: len(values)]]
    stored = codes_layout(layout.name, 1 if len(items) <= 256 else 2)
    if mask is None:
        return FewValues(stored, items), present.astype(stored.dtype)
    codes = np.zeros(len(mask), stored.dtype)
    codes[mask] = present
    return FewValues(stored, items), codes


def _as_array(data: np.ndarray, width: int) -> pa.Array:
    """Return bytes as values that are equal if all their bits are."""
    type_ = {2: pa.uint16(), 4: pa.uint32(), 8: pa.uint64()}.get(width, pa.binary(width))
    return pa.Array.from_buffers(type_, len(data) // width, [None, pa.py_buffer(data)])


def _of_rows(data: np.ndarray, width: int, mask: np.ndarray) -> np.ndarray:
    """Return the bytes of the rows that have a value."""
    return data.view(items_dtype(width))[mask].view(np.uint8)


def _sorted(dictionary: pa.Array, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the values sorted, so that a range of them is one of codes, and their ranks."""
    width = np.dtype(dtype).itemsize
    items = bytes_of(dictionary.buffers()[1]).view(items_dtype(width))[: len(dictionary)]
    ranks = np.empty(len(items), np.uint16)
    is_number = np.dtype(dtype).kind in "iuf"
    order = np.argsort(items.view(dtype), kind="stable") if is_number else np.arange(len(items))
    ranks[order] = np.arange(len(items))
    return items[order], ranks
