"""The terms of this room: an encoded stream, and how an encoding is written as JSON.

Theory of operation. An encoding stands between a stream of a type (the values, as Arrow has them)
and the stream of a file (the codes). It is chosen when a part is written (`choose.py`) and stands
in the metadata of the stream, with its parameters. A reader makes the encoding of the metadata
(`parse.py`), and asks it how long the codes are. Each chunk is decompressed into the memory of a
thread, and `decode` makes the values of its rows, straight in the memory of the result. A chunk has
whole rows; if `needs_pages`, whole pages. Any codes make some values: no code can lead out of the
memory that `decode` is given.

Knows nothing of files.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from blztable.columns.blocks import StreamLayout
from blztable.errors import CorruptError

# JSON values of the parameters.
Parameters = Mapping[str, object]


class Encoding:
    """How the values of a stream come from codes.

    Attributes
    ----------
    kind
        The name of the encoding in the metadata.
    needs_pages
        True if rows can be decoded only together with all rows before them in their page.
    stored
        The form of the stream of codes.
    """

    kind: ClassVar[str]
    needs_pages: ClassVar[bool] = False
    stored: StreamLayout

    def parameters(self) -> Parameters:
        """Return the parameters as JSON values."""
        raise NotImplementedError

    def decode(self, row: int, codes: np.ndarray, out: np.ndarray) -> None:
        """Make the values of the codes of the rows from `row` on.

        Parameters
        ----------
        row
            The first row, as an index within the part.
        codes
            Bytes of codes.
        out
            Room for the bytes of as many values.
        """
        raise NotImplementedError

    def to_json(self) -> dict[str, object]:
        """Return the encoding as the metadata has it."""
        return {"kind": self.kind, **self.parameters()}


def words_to_json(words: np.ndarray) -> str:
    """Return 64-bit integers as base64; JSON numbers of the format end at 2**62."""
    return base64.b64encode(words.astype("<i8", copy=False).tobytes()).decode()


def words_from_json(value: object, name: str, counts: tuple[int, ...]) -> np.ndarray:
    """Read 64-bit integers; CorruptError unless there are as many as one of `counts`."""
    try:
        data = base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except (binascii.Error, ValueError):
        data = None
    if data is None or len(data) not in {8 * count for count in counts}:
        raise CorruptError(f"{name} of an encoding; expected base64 of {counts[-1]} integers")
    return np.frombuffer(data, "<i8")
