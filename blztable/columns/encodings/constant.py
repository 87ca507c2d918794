"""The encoding of a stream whose values are all the same: the value, and no bytes in the file.

Knows no types: a value is its bytes.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from blztable.columns.blocks import Encoding, StreamLayout
from blztable.errors import CorruptError

# The width of a value that can be constant.
MAX_WIDTH = 255


@dataclass(frozen=True, slots=True)
class Constant(Encoding):
    """Equal values.

    Attributes
    ----------
    stored
        The form of the values.
    value
        The bytes of a value; of a bitmap, one byte.
    """

    kind: ClassVar[str] = "constant"
    has_codes: ClassVar[bool] = False

    stored: StreamLayout
    value: bytes

    def parameters(self) -> Mapping[str, object]:
        """Return the value."""
        return {"value": base64.b64encode(self.value).decode()}

    def decode(self, row: int, codes: np.ndarray, out: np.ndarray) -> None:
        """Fill the room with the value."""
        width = len(self.value)
        if width in (1, 2, 4, 8):
            out.view(f"<u{width}")[:] = int.from_bytes(self.value, "little")
        else:
            out.reshape(-1, width)[:] = np.frombuffer(self.value, np.uint8)

    def pick(self, rows: np.ndarray, codes: np.ndarray, out: np.ndarray) -> None:
        """Fill the room with the value."""
        self.decode(0, codes, out)


def value_width(layout: StreamLayout) -> int:
    """Return the bytes of the value of a stream; 0 if it cannot be constant."""
    width = -(-(layout.bits or 0) // 8)
    return width if width <= MAX_WIDTH else 0


def value_from_json(value: object, layout: StreamLayout) -> bytes:
    """Read the value; CorruptError unless it has the bytes of a value of this stream."""
    try:
        data = base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except (binascii.Error, ValueError):
        data = None
    if not data or len(data) != value_width(layout):
        raise CorruptError(
            f"encoding 'constant' of stream {layout.name!r} with value {value!r:.100}"
        )
    return data
