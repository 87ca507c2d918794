"""Salvage: read the intact row groups of a damaged table, and report the damage of the others.

Knows nothing of files: the caller passes the function that reads.
"""

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

from blztable.engine.read.selection import RowSpan
from blztable.engine.run.progress import Progress
from blztable.engine.version.versions import Version
from blztable.errors import BlzError, CorruptError, FormatError, StorageError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Loss:
    """Rows of the table that cannot be read, and the reason; `stop` is None if it is not known."""

    start: int
    stop: int | None
    reason: str

    def __str__(self) -> str:
        end = "their end" if self.stop is None else f"{self.stop:,}"
        return f"rows {self.start:,} to {end} are left out: {self.reason}"


def read_intact(
    read: Callable[[Sequence[RowSpan], Progress | None], T],
    version: Version,
    indices: Sequence[int],
    selected: Sequence[RowSpan],
    progress: Progress | None = None,
) -> tuple[T, list[Loss]]:
    """Return what `read` returns for the row groups that it can read, and the losses.

    `read` needs the columns at `indices`.

    Raises
    ------
    CorruptError
        The manifest's line of a column is damaged, so that no row of the column can be read.
    """
    try:
        return read(selected, progress), []
    except BlzError as error:
        if not _is_damage(error):
            raise
    for index in indices:
        version.column(index)
    intact, lost = [], []
    firsts = [0, *accumulate(version.head.row_groups)]
    for span in selected:
        try:
            read([span], None)
        except BlzError as error:
            if not _is_damage(error):
                raise
            first = firsts[span.group]
            lost.append(Loss(first + span.start, first + span.stop, str(error)))
        else:
            intact.append(span)
    return read(intact, None), lost


def _is_damage(error: BlzError) -> bool:
    """True if bytes are wrong, or if the disk cannot read them any more."""
    if isinstance(error, StorageError):
        return error.errno == errno.EIO
    # A LimitError reports too much data, not wrong data.
    return isinstance(error, CorruptError | FormatError)
