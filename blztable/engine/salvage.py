"""Salvage: the row groups of a damaged table that are whole, and what is wrong with the others."""

import errno
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from blztable.engine.pages import Span
from blztable.engine.progress import Progress
from blztable.engine.read import read_columns
from blztable.engine.versions import Version
from blztable.errors import BlzError, CorruptError, FormatError, StorageError


@dataclass(frozen=True, slots=True)
class Loss:
    """Rows of the table that cannot be read, and why."""

    start: int
    stop: int
    reason: str


def read_intact(
    version: Version,
    indices: Sequence[int],
    wanted: Sequence[Span],
    progress: Progress | None = None,
) -> tuple[list[pa.ChunkedArray], list[Loss]]:
    """The columns at these positions, of the row groups that can be read in all of them.

    Raises
    ------
    CorruptError
        The manifest's line of a column is damaged, so that nothing is known of any row of it.
    """
    try:
        return read_columns(version, indices, wanted, progress), []
    except BlzError as error:
        if not _is_damage(error):
            raise
    for index in indices:
        version.column(index)
    intact, lost = [], []
    for span in wanted:
        try:
            read_columns(version, indices, [span])
        except BlzError as error:
            if not _is_damage(error):
                raise
            first = sum(version.head.row_groups[: span.group])
            lost.append(Loss(first + span.start, first + span.stop, str(error)))
        else:
            intact.append(span)
    return read_columns(version, indices, intact), lost


def _is_damage(error: BlzError) -> bool:
    """Bytes that are wrong, or that the medium cannot read any more."""
    if isinstance(error, StorageError):
        return error.errno == errno.EIO
    # A LimitError says that there is too much of it, not that it is wrong.
    return isinstance(error, CorruptError | FormatError)
