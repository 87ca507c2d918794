"""The encoding of fixed-width values of few different ones: a code per row, and each value once.

Knows no types: a value is its bytes. So NaN and the sign of zero come back as they were.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from blztable.columns.blocks import Encoding, StreamLayout
from blztable.errors import CorruptError

# The bytes of all values, so that they stay in the cache.
MAX_BYTES = 1 << 16
_WORDS = {2: "<u2", 4: "<u4", 8: "<u8"}


@dataclass(frozen=True, slots=True)
class Values(Encoding):
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
