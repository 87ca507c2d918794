"""Deleted rows: rows of a row group that its parts hold, and that are no rows of the table.

The deleted rows of a row group are runs of stored rows, each a word: its first row, and behind it
24 bits with the number of its rows. In memory they are the bytes of these words, which can be
compared. A live row has two numbers: its number among the live rows, which is what users count, and
its number among the stored rows, which is its place in the parts.

Knows neither leaves nor files.
"""

from collections.abc import Mapping

import numpy as np

from blztable.errors import LimitError
from blztable.format.records import WORD, Array, need

# The deleted rows of each row group, b"" for none; empty if no row group has any.
Deleted = tuple[bytes, ...]
# The same, or those of some row groups by their indices.
DeletedIn = Deleted | Mapping[int, bytes]
# The bits of a word that have the number of rows of a run.
RUN_BITS = 24
MOST_IN_RUN = (1 << RUN_BITS) - 1
# A row group that has deleted rows has at most so many stored rows, so each first row fits.
MAX_STORED_ROWS = (1 << 39) - 1
# Deleted rows of a row group: 8 MB of row numbers.
MAX_DELETED = 1 << 20


def pack(rows: np.ndarray) -> bytes:
    """Return ascending numbers of stored rows as the deleted rows of a row group."""
    if not len(rows):
        return b""
    if rows[-1] >= MAX_STORED_ROWS:
        raise LimitError(
            f"row {rows[-1]} of a row group cannot be deleted; those up to {MAX_STORED_ROWS} can: "
            "write row groups of fewer rows"
        )
    starts = np.flatnonzero(np.diff(rows, prepend=rows[0] - 2) != 1)
    counts = np.diff(starts, append=len(rows))
    return (rows[starts].astype(WORD) << RUN_BITS | counts).tobytes()


def unpack(deleted: bytes) -> np.ndarray:
    """Return the numbers of the deleted rows of a row group."""
    words = np.frombuffer(deleted, WORD)
    first, counts = words >> RUN_BITS, words & MOST_IN_RUN
    ends = np.cumsum(counts)
    return np.repeat(first - (ends - counts), counts) + np.arange(ends[-1] if len(ends) else 0)


def count(deleted: bytes) -> int:
    """Return the number of deleted rows of a row group."""
    return int((np.frombuffer(deleted, WORD) & MOST_IN_RUN).sum()) if deleted else 0


def check(words: Array, counts: Array, stored: Array, gone: Array) -> None:
    """Raise an error unless these words name the deleted rows of row groups.

    Each row group has so many words, so many stored rows, and so many of them are gone.
    """
    need(counts.sum() == len(words), "deleted rows")
    if (gone > MAX_DELETED).any():
        raise LimitError(
            f"{gone.max()} deleted rows of a row group; at most {MAX_DELETED} are read"
        )
    if not len(words):
        need(gone == 0, "deleted rows of a row group")
        return
    owner = np.repeat(np.arange(len(counts)), counts)
    first, rows = words >> RUN_BITS, words & MOST_IN_RUN
    stops = first + rows
    need((first >= 0) & (rows > 0) & (stops <= stored[owner]), "a deleted row that is not stored")
    need((first[1:] >= stops[:-1]) | (owner[1:] != owner[:-1]), "a row that is deleted twice")
    sums = np.bincount(owner, rows, len(counts)).astype(np.int64)
    need(sums == gone, "deleted rows of a row group")


def stored(deleted: bytes, live: np.ndarray) -> np.ndarray:
    """Return the numbers among the stored rows of ascending live rows."""
    gone = unpack(deleted)
    return live + _steps(np.searchsorted(live, gone - np.arange(len(gone)), "left"), len(live))


def live(deleted: bytes, stored: np.ndarray) -> np.ndarray:
    """Return the number of live rows before each of these ascending stored rows."""
    return stored - _steps(np.searchsorted(stored, unpack(deleted), "right"), len(stored))


def _steps(cuts: np.ndarray, length: int) -> np.ndarray:
    """Return an array that rises by one at each of these indices."""
    return np.repeat(np.arange(len(cuts) + 1), np.diff(cuts, prepend=0, append=length))


def live_range(deleted: bytes, start: int, stop: int) -> tuple[int, int]:
    """Return the first live row of a range of stored rows, and the one after its last."""
    first, last = live(deleted, np.array([start, stop])).tolist()
    return first, last
