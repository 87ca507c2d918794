"""What a look at a table found: the values that `verify`, `versions` and `vacuum` of a table give.

Knows nothing of how it was found. Of one column or file there may be several problems.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from blztable.text import short_text, size_text

# Problems that the text of a report lists before it says how many more there are.
SHOWN = 40

Rows = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and the rows of the table it concerns, `start` to `stop`."""

    message: str
    column: str | None
    # The position of the column in the table, for names may repeat.
    position: int | None
    # None where it concerns all of them.
    row_group: int | None
    start: int
    stop: int
    # The file it was found in, below the table's directory.
    file: str
    # Whether the rows can be read all the same: only what is said about them is wrong.
    is_readable: bool

    def __str__(self) -> str:
        """One line."""
        parts = [self.file] if self.file else []
        if self.column is not None:
            parts.append(f"column {self.column!r}")
        parts.append(f"rows {self.start:,} to {self.stop:,}")
        if self.is_readable:
            parts.append("which can be read")
        return f"{', '.join(parts)}: {self.message}".replace("\n", "\\n")


@dataclass(frozen=True, slots=True)
class Report:
    """What was checked, what is wrong, and which rows are intact. True where nothing is wrong."""

    version: int
    rows: int
    columns: tuple[str, ...]
    # False where only manifest, fronts and trailers were looked at.
    full: bool
    files: int
    chunks: int
    # Bytes that were compared with a checksum.
    nbytes: int
    problems: tuple[Problem, ...]

    @property
    def is_intact(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def __bool__(self) -> bool:
        """Whether nothing is wrong."""
        return self.is_intact

    def intact_rows(self, column: str | None = None) -> tuple[Rows, ...]:
        """Ranges of rows, start and stop, that can be read: in this column, or in all of them."""
        lost = [
            (problem.start, problem.stop)
            for problem in self.problems
            if not problem.is_readable and (column is None or problem.column in (None, column))
        ]
        return _without(self.rows, lost)

    @property
    def summary(self) -> str:
        """What was checked and how it stands, in a line."""
        shape = f"{_count(self.rows, 'row')} x {_count(len(self.columns), 'column')}"
        chunks = f", {_count(self.chunks, 'chunk')}" if self.full else ", no chunks"
        verdict = _count(len(self.problems), "problem") if self.problems else "intact"
        return (
            f"version {self.version}: {verdict}; {shape}; checked: "
            f"{_count(self.files, 'file')}{chunks}, {_count(self.nbytes, 'byte')}"
        )

    def __str__(self) -> str:
        """A summary, a line for each problem, and the rows that are intact."""
        lines = [self.summary, *map(str, self.problems[:SHOWN])]
        if len(self.problems) > SHOWN:
            lines.append(f"... and {len(self.problems) - SHOWN:,} more problems")
        if self.problems:
            ranges = [f"{start:,} to {stop:,}" for start, stop in self.intact_rows()]
            lines.append(f"intact in all columns: rows {', '.join(ranges) or 'none'}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """All of it as values that JSON knows."""
        return {
            "version": self.version,
            "rows": self.rows,
            "full": self.full,
            "is_intact": self.is_intact,
            "files": self.files,
            "chunks": self.chunks,
            "nbytes": self.nbytes,
            "problems": [asdict(problem) for problem in self.problems],
            "intact_rows": _lists(self.intact_rows()),
            "columns": [
                {"name": name, "intact_rows": _lists(self.intact_rows(name))}
                for name in self.columns
            ],
        }


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """What a read takes of one column."""

    name: str
    position: int
    is_filter: bool
    is_returned: bool
    row_groups: int
    pages: int
    # All there are.
    pages_in_all: int
    # Bytes of its files that are read, fronts and trailers among them; and all there are.
    nbytes: int
    nbytes_in_all: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a read takes and passes over, as the statistics tell.

    A look at the rows spares more: pages in which no row is left by a filter are not read of other
    columns. Manifests are not counted.
    """

    # The steps of the filter, in the order in which they are evaluated.
    steps: tuple[str, ...]
    # The rows in pages that are not passed over, and all there are.
    rows: int
    rows_in_all: int
    row_groups: int
    row_groups_in_all: int
    columns: tuple[ColumnPlan, ...]

    @property
    def pages(self) -> int:
        """Pages that are read, over all columns."""
        return sum(column.pages for column in self.columns)

    @property
    def pages_skipped(self) -> int:
        """Pages of these columns that are passed over."""
        return sum(column.pages_in_all for column in self.columns) - self.pages

    @property
    def nbytes(self) -> int:
        """Bytes of files that are read."""
        return sum(column.nbytes for column in self.columns)

    @property
    def nbytes_skipped(self) -> int:
        """Bytes of these columns' files that are passed over."""
        return sum(column.nbytes_in_all for column in self.columns) - self.nbytes

    def __str__(self) -> str:
        """A table, a column a line."""
        lines = [
            f"row groups {self.row_groups:,} of {self.row_groups_in_all:,}, "
            f"rows {self.rows:,} of {self.rows_in_all:,}, "
            f"{size_text(self.nbytes)} read, {size_text(self.nbytes_skipped)} passed over"
        ]
        lines += [f"filter {number}: {step}" for number, step in enumerate(self.steps, 1)]
        cells = [("column", "for", "row groups", "pages", "bytes")]
        for column in self.columns:
            uses = ("filter", column.is_filter), ("result", column.is_returned)
            cells.append(
                (
                    short_text(column.name),
                    ", ".join(use for use, is_so in uses if is_so),
                    f"{column.row_groups:,} of {self.row_groups_in_all:,}",
                    f"{column.pages:,} of {column.pages_in_all:,}",
                    f"{size_text(column.nbytes)} of {size_text(column.nbytes_in_all)}",
                )
            )
        widths = [max(map(len, cell)) for cell in zip(*cells, strict=True)]
        lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """One version of a table; of a damaged one only the number and the damage are known."""

    number: int
    # None as well where the manifest has a time that no calendar has.
    time: datetime | None = None
    operation: str | None = None
    rows: int | None = None
    columns: int | None = None
    # Many of few rows are what `compact` is for.
    row_groups: int | None = None
    parent: int | None = None
    # What callers named the commit that made it.
    commit_ids: tuple[str, ...] | None = None
    writer: str | None = None
    damage: str | None = None


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """What a vacuum removed, and what kept it from removing more."""

    versions: tuple[int, ...] = ()
    files: int = 0
    nbytes: int = 0
    # Past keeping, but someone reads them.
    pinned: tuple[int, ...] = ()
    # What these versions name cannot be told: not a version nor a file was removed.
    damaged: tuple[int, ...] = ()


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def _lists(ranges: Sequence[Rows]) -> list[list[int]]:
    return [list(rows) for rows in ranges]


def _without(rows: int, lost: Sequence[Rows]) -> tuple[Rows, ...]:
    """What is left of so many rows."""
    left, begin = [], 0
    for start, stop in sorted(lost):
        if begin < start:
            left.append((begin, start))
        begin = max(begin, stop)
    return (*left, (begin, rows)) if begin < rows else tuple(left)
