"""Damage: which rows of a column cannot be read, and the reason.

Knows nothing of files: the caller passes the function that tries to read.
"""

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Literal, NamedTuple, get_args

from blztable import tuning
from blztable.errors import BlzError, CorruptError, FormatError, StorageError
from blztable.format.records import ITEM_CHUNKS, Records

# What a read does about damage.
OnCorrupt = Literal["raise", "skip", "null"]
ON_CORRUPT = get_args(OnCorrupt)

# How many pieces the rows of a chunk have, about, and the rows of the smallest.
PIECES_OF_CHUNK, LEAST_ROWS = 32, 8

# Reads the rows from a start to a stop; returns the reason if that fails because of damage.
Attempt = Callable[[int, int], str | None]


class DamagedSpan(NamedTuple):
    """Rows of a row group that cannot be read, numbered from its first row, and the reason."""

    start: int
    stop: int
    reason: str


@dataclass(frozen=True, slots=True)
class DamagedRows:
    """Rows of a table that cannot be read, as users are told.

    Attributes
    ----------
    start, stop : int
        The first row, and the row after the last one; `stop` is None if it is not known.
    reason : str
        The damage.
    column : str or None
        The column that is null in these rows; None if the rows are left out.
    """

    start: int
    stop: int | None
    reason: str
    column: str | None = None

    def __str__(self) -> str:
        end = "their end" if self.stop is None else f"{self.stop:,}"
        what = "are left out"
        if self.column is not None:
            what = f"of column {self.column!r} are null"
        return f"rows {self.start:,} to {end} {what}: {self.reason}"


def piece_rows(records: Records) -> int:
    """Return how many rows of parts to read together, so that few are lost with a chunk."""
    if (records.parts["flags"] & ITEM_CHUNKS).any():
        return 1
    rows, chunks = records.parts["rows"].max(initial=1), records.stream_chunks.max(initial=1)
    return max(int(rows) // (PIECES_OF_CHUNK * int(chunks)), LEAST_ROWS)


def find_damage(
    attempt: Attempt, start: int, stop: int, unit_rows: int, most_pieces: int
) -> list[DamagedSpan]:
    """Return the runs of rows that cannot be read, by reading halves of halves.

    Parameters
    ----------
    attempt : callable
        Tries to read rows.
    start, stop : int
        Rows of one row group.
    unit_rows : int
        Rows that are read together; runs are cut between them.
    most_pieces : int
        The number of pieces of the rows that are told apart once `damage_reads` were made.
    """
    units = -(-(stop - start) // unit_rows)
    piece_rows = -(-units // most_pieces) * unit_rows
    cuts = chain(repeat(unit_rows, tuning.current.damage_reads), repeat(piece_rows))
    return _damaged(attempt, start, stop, cuts)


def _damaged(attempt: Attempt, start: int, stop: int, cuts: Iterator[int]) -> list[DamagedSpan]:
    """Return the runs of rows that cannot be read; each attempt takes the next cut."""
    reason, cut = attempt(start, stop), next(cuts)
    if reason is None:
        return []
    first, last = start // cut + 1, (stop - 1) // cut
    if first > last:
        return [DamagedSpan(start, stop, reason)]
    middle = (first + last + 1) // 2 * cut
    spans: list[DamagedSpan] = []
    for low, high in ((start, middle), (middle, stop)):
        for span in _damaged(attempt, low, high, cuts):
            if spans and spans[-1][1:] == (span.start, span.reason):
                span = span._replace(start=spans.pop().start)
            spans.append(span)
    # Both halves may be readable although the whole is not.
    return spans or [DamagedSpan(start, stop, reason)]


def is_damage(error: BlzError) -> bool:
    """True if bytes are wrong, or if the disk cannot read them any more."""
    if isinstance(error, StorageError):
        return error.errno == errno.EIO
    # A LimitError reports too much data, not wrong data.
    return isinstance(error, CorruptError | FormatError)
