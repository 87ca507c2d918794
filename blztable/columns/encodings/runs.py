"""The encoding of a bitmap of few long runs: the rows where a run begins, and no bytes in the file.

Knows nothing of types or files.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from blztable.columns.blocks import Encoding, StreamLayout
from blztable.columns.encodings.numbers import words_to_json

# Runs that a file may have. Each takes a step of Python to decode.
MOST_RUNS = 4096
# Of so many runs the rows take no more bytes than a chunk with the compressed bitmap.
FEW_RUNS = 64


@dataclass(frozen=True, slots=True)
class BitmapRuns(Encoding):
    """Validity as the rows where it changes.

    Attributes
    ----------
    stored
        The form of the bitmap.
    at
        The rows, ascending, from which on the bit differs from the row before, as i64. Before the
        first of them all bits are set.
    """

    kind: ClassVar[str] = "runs"
    has_codes: ClassVar[bool] = False

    stored: StreamLayout
    at: np.ndarray

    def parameters(self) -> Mapping[str, object]:
        """Return the rows."""
        return {"at": words_to_json(self.at)}

    def decode(self, row: int, codes: np.ndarray, out: np.ndarray) -> None:
        """Make the bits of eight rows a byte; `row` counts bytes."""
        out[:] = 0xFF
        end = 8 * len(out)
        cuts = np.clip(self.at - 8 * row, 0, end).tolist()
        for start, stop in zip(cuts[::2], [*cuts[1::2], end], strict=False):
            # Whole bytes of nulls, between a byte that begins and one that ends with others.
            first, last = start // 8, stop // 8
            below, above = (1 << start % 8) - 1, 0xFF & (0xFF << stop % 8)
            if first == last < len(out):
                out[first] &= below | above
            elif first < last:
                out[first] &= below
                out[first + 1 : last] = 0
                if last < len(out):
                    out[last] &= above

    def pick(self, rows: np.ndarray, codes: np.ndarray, out: np.ndarray) -> None:
        """Make the bits of single rows: set behind an even number of changes."""
        flags = np.searchsorted(self.at, rows, "right") % 2 == 0
        out[:] = np.packbits(flags, bitorder="little")


def few_runs(bitmap: np.ndarray, mask: np.ndarray) -> np.ndarray | None:
    """Return the rows where a mask changes; None if these are many."""
    # Most bitmaps of many runs show it in their bytes, which are fewer than the rows.
    if np.count_nonzero((bitmap != 0) & (bitmap != 0xFF)) > FEW_RUNS + 1:
        return None
    at = np.flatnonzero(np.diff(mask, prepend=np.True_))
    return at if len(at) <= FEW_RUNS else None
