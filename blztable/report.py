"""Reports: the values that changes, `verify`, `explain`, `versions` and `vacuum` return.

Knows nothing of how they are computed. One column or file may have several problems.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from html import escape
from typing import Any, NamedTuple

import pyarrow as pa

# Problems that the text of a report lists; it counts the rest.
PROBLEMS_PRINTED = 40
# Characters of a name in a line of text.
NAME_LENGTH = 40

RowInterval = tuple[int, int]


class Printed:
    """Looks in a terminal and in a notebook as it prints, also within a list."""

    # The dataclasses below have no `__repr__` of their own: IPython would take that of the class
    # itself before `_repr_pretty_` of a base.
    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print it in IPython."""
        printer.text(str(self))


@dataclass(frozen=True, slots=True, repr=False)
class Problem(Printed):
    """A problem of a version, and the rows that it affects.

    Attributes
    ----------
    message : str
        What was found and what was expected.
    column : str or None
        Name of the column; None if all columns are affected.
    position : int or None
        Index of the column in the table, because names may repeat; None if all are affected.
    row_group : int or None
        Index of the row group; None if all are affected.
    start, stop : int
        First row affected, and the row after the last one.
    file : str
        Path of the damaged file below the table's directory; a leaf has the records of parts.
    is_readable : bool
        True if the rows can still be read, because only their statistics or other facts are wrong.

    Examples
    --------
    >>> import blztable as blz
    >>> from pathlib import Path
    >>> blz.to_blz({"a": [1, 2, 3]}, "t.blz")
    >>> for file in Path("t.blz/data").glob("*/*"):
    ...     size = file.write_bytes(file.read_bytes()[:-8])
    >>> with blz.open("t.blz") as t:
    ...     problem = t.verify().problems[0]
    >>> problem.column, problem.start, problem.stop, problem.is_readable
    ('a', 0, 3, False)
    """

    message: str
    column: str | None
    position: int | None
    row_group: int | None
    start: int
    stop: int
    file: str
    is_readable: bool

    def __str__(self) -> str:
        """Return one line of text."""
        parts = [self.file] if self.file else []
        if self.column is not None:
            parts.append(f"column {self.column!r}")
        parts.append(f"rows {self.start:,} to {self.stop:,}")
        if self.is_readable:
            parts.append("which can be read")
        return f"{', '.join(parts)}: {self.message}".replace("\n", "\\n")


@dataclass(frozen=True, slots=True, repr=False)
class Report(Printed):
    """Result of `CTable.verify`: what was checked, and the problems. True if there are none.

    Attributes
    ----------
    version : int
        Number of the version checked.
    rows : int
        Number of rows of the version.
    columns : tuple of str
        Names of the columns checked.
    full : bool
        True if all chunks were checked, False if only the manifest, the leaves, and what each file
        says of itself.
    files, chunks : int
        Number of files and of chunks checked.
    nbytes : int
        Number of bytes that were compared with a checksum.
    problems : tuple of Problem
        The problems; empty if the version is intact.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"a": [1, 2, 3]}, "t.blz")
    >>> with blz.open("t.blz") as t:
    ...     report = t.verify()
    >>> bool(report), report.rows, report.columns, report.problems
    (True, 3, ('a',), ())
    >>> report.intact_rows("a"), report.to_json()["intact_rows"]
    (((0, 3),), [[0, 3]])
    """

    version: int
    rows: int
    columns: tuple[str, ...]
    full: bool
    files: int
    chunks: int
    nbytes: int
    problems: tuple[Problem, ...]

    @property
    def is_intact(self) -> bool:
        """True if the version has no problems."""
        return not self.problems

    def __bool__(self) -> bool:
        """Return True if the version has no problems."""
        return self.is_intact

    def intact_rows(self, column: str | None = None) -> tuple[RowInterval, ...]:
        """Return the rows that can be read, in one column or in all columns.

        Parameters
        ----------
        column : str, optional
            Name of a column; by default rows must be readable in all columns.

        Returns
        -------
        tuple of (int, int)
            Ranges of rows in order: first row, and the row after the last one.
        """
        lost = [
            (problem.start, problem.stop)
            for problem in self.problems
            if not problem.is_readable and (column is None or problem.column in (None, column))
        ]
        return _without(self.rows, lost)

    @property
    def summary(self) -> str:
        """The result and the checked sizes, in one line."""
        shape = f"{counted(self.rows, 'row')} x {counted(len(self.columns), 'column')}"
        chunks = f", {counted(self.chunks, 'chunk')}" if self.full else ", no chunks"
        verdict = counted(len(self.problems), "problem") if self.problems else "intact"
        # The files of other programs.
        has_none = self.full and self.chunks and not self.nbytes
        compared = "no checksums" if has_none else counted(self.nbytes, "byte")
        return (
            f"version {self.version}: {verdict}; {shape}; checked: "
            f"{counted(self.files, 'file')}{chunks}, {compared}"
        )

    def __str__(self) -> str:
        """Return a summary, one line per problem, and the rows that are intact."""
        lines = [self.summary, *map(str, self.problems[:PROBLEMS_PRINTED])]
        if len(self.problems) > PROBLEMS_PRINTED:
            lines.append(f"... and {len(self.problems) - PROBLEMS_PRINTED:,} more problems")
        if self.problems:
            ranges = [f"{start:,} to {stop:,}" for start, stop in self.intact_rows()]
            lines.append(f"intact in all columns: rows {', '.join(ranges) or 'none'}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Convert the report to values that `json.dumps` accepts.

        Returns
        -------
        dict
            The fields of the report, and the intact rows of each column.
        """
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


@dataclass(frozen=True, slots=True, repr=False)
class StreamStorage(Printed):
    """How a stream of a column is stored. A column has one or a few streams.

    Attributes
    ----------
    name : str
        Name of the stream, as in docs/format.md: ``valid``, ``values``, ``lengths`` of text, and
        ``items.values`` of a dictionary, for example.
    encodings : tuple of str
        Encodings of the row groups, ``plain`` if values are stored as Arrow has them.
    codecs : tuple of str
        Codecs of the row groups, with their shuffle; ``stored`` where compression saved nothing.
        lz4 and lz4hc are the same once they are written. Each row group is represented by its first
        chunk.
    nbytes : int
        Bytes of the values.
    nbytes_encoded : int
        Bytes after encoding, before compression.
    cbytes : int
        Bytes after compression, with checksums.

    Examples
    --------
    >>> import blztable as blz
    >>> storage = blz.Storage(encoding="plain")
    >>> blz.to_blz({"a": range(100_000)}, "t.blz", compression="zstd", storage=storage)
    >>> with blz.open("t.blz") as t:
    ...     (values,) = t["a"].streams()
    >>> values.name, values.encodings, values.codecs, values.nbytes
    ('values', ('plain',), ('zstd, byte',), 800000)
    """

    name: str
    encodings: tuple[str, ...]
    codecs: tuple[str, ...]
    nbytes: int
    nbytes_encoded: int
    cbytes: int

    def __str__(self) -> str:
        """Return one line of text."""
        sizes = " in ".join(
            dict.fromkeys(map(size_text, (self.nbytes, self.nbytes_encoded, self.cbytes)))
        )
        return f"{self.name}: {' | '.join((*self.encodings, *self.codecs))}, {sizes}"


@dataclass(frozen=True, slots=True, repr=False)
class ColumnPlan(Printed):
    """The part of a column that a read decodes, and the part that it skips.

    Attributes
    ----------
    name : str
        Name of the column.
    position : int
        Index of the column in the table, because names may repeat.
    is_filter, is_returned : bool
        True if the filter needs the column; True if the result has it.
    row_groups : int
        Number of row groups from which pages are read.
    pages, pages_in_all : int
        Number of pages read; number of all pages.
    nbytes, nbytes_in_all : int
        Bytes of the column's chunks that are read, with digests; bytes of all of its chunks.
    encodings : tuple of str
        Encodings of the streams that are read; ``plain`` if values are stored as Arrow has them.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"a": range(64), "b": range(64)}, "t.blz", storage=blz.Storage(page_rows=16))
    >>> with blz.open("t.blz") as t:
    ...     plan = t.explain(["b"], filters=[("a", "==", 50)])
    >>> [(column.name, column.pages, column.pages_in_all) for column in plan.columns]
    [('a', 1, 4), ('b', 1, 4)]
    """

    name: str
    position: int
    is_filter: bool
    is_returned: bool
    row_groups: int
    pages: int
    pages_in_all: int
    nbytes: int
    nbytes_in_all: int
    encodings: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return one line of text."""
        return (
            f"{short_text(self.name)}: {self.pages:,} of {counted(self.pages_in_all, 'page')}, "
            f"{size_text(self.nbytes)} of {size_text(self.nbytes_in_all)}"
        )


@dataclass(frozen=True, slots=True, repr=False)
class Explanation(Printed):
    """Result of `CTable.explain`: the pages that a read decodes and skips, by their statistics.

    A read may skip more: after the filter, pages without a matching row are not read from the
    other columns. Manifests and leaves are not counted.

    Attributes
    ----------
    steps : tuple of str
        Steps of the filter, in the order of their evaluation.
    rows, rows_in_all : int
        Number of rows in pages that are read; number of all rows.
    row_groups, row_groups_in_all : int
        Number of row groups that are read; number of all row groups.
    columns : tuple of ColumnPlan
        The plan of each column: first the columns of the filter, then the others.
    row_groups_in_leaves : int
        Number of row groups whose pages are compared with the filter. The others are in leaves
        whose bounds exclude it.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"a": range(64), "b": range(64)}, "t.blz", storage=blz.Storage(page_rows=16))
    >>> with blz.open("t.blz") as t:
    ...     plan = t.explain(["b"], filters=[("a", "==", 50)])
    >>> plan.rows, plan.rows_in_all
    (16, 64)
    """

    steps: tuple[str, ...]
    rows: int
    rows_in_all: int
    row_groups: int
    row_groups_in_all: int
    columns: tuple[ColumnPlan, ...]
    row_groups_in_leaves: int

    @property
    def pages(self) -> int:
        """Number of pages that are read, over all columns."""
        return sum(column.pages for column in self.columns)

    @property
    def pages_skipped(self) -> int:
        """Number of pages of these columns that are skipped."""
        return sum(column.pages_in_all for column in self.columns) - self.pages

    @property
    def nbytes(self) -> int:
        """Number of bytes of chunks that are read, with digests."""
        return sum(column.nbytes for column in self.columns)

    @property
    def nbytes_skipped(self) -> int:
        """Number of bytes of these columns' files that are skipped."""
        return sum(column.nbytes_in_all for column in self.columns) - self.nbytes

    def __str__(self) -> str:
        """Return a table with one line per column."""
        lines = [
            f"row groups {self.row_groups:,} of {self.row_groups_in_all:,}, "
            f"rows {self.rows:,} of {self.rows_in_all:,}, "
            f"{size_text(self.nbytes)} read, {size_text(self.nbytes_skipped)} skipped"
        ]
        lines += [f"filter {number}: {step}" for number, step in enumerate(self.steps, 1)]
        cells = [("column", "for", "row groups", "pages", "bytes", "stored as")]
        for column in self.columns:
            uses = ("filter", column.is_filter), ("result", column.is_returned)
            cells.append(
                (
                    short_text(column.name),
                    ", ".join(name for name, is_used in uses if is_used),
                    f"{column.row_groups:,} of {self.row_groups_in_all:,}",
                    f"{column.pages:,} of {column.pages_in_all:,}",
                    f"{size_text(column.nbytes)} of {size_text(column.nbytes_in_all)}",
                    ", ".join(column.encodings),
                )
            )
        widths = [max(map(len, cell)) for cell in zip(*cells, strict=True)]
        lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, repr=False)
class VersionInfo(Printed):
    """One version in the list that `CTable.versions` returns.

    For a damaged version only `number` and `damage` are set.

    Attributes
    ----------
    number : int
        Number of the version.
    time : datetime.datetime or None
        Time of the commit in UTC; None also if the manifest holds an impossible time.
    operation : str or None
        Kind of commit: "create", "append", "delete" and so on, or "transaction" for several.
    rows, columns : int or None
        Number of rows and of columns.
    row_groups : int or None
        Number of row groups. `CTable.compact` merges many small ones.
    parent : int or None
        Number of the version that this one was made from, 0 for the first.
    commit_ids : tuple of str or None
        Values of `commit_id` of the commits that made the version.
    writer : str or None
        Program and version that wrote it.
    damage : str or None
        What is damaged; None if the version is intact.
    tags : tuple of str
        Its tags, see `CTable.tags`.
    deleted_rows : int or None
        Number of deleted rows whose values are still in files, not counted in `rows`.
        `CTable.compact` writes the other rows again without them.
    rows_appended, rows_updated, rows_deleted : int or None
        Number of rows that the commit added, gave new values, and removed. A replaced table counts
        as deleted, and a restored version by the difference of the rows. Rows that were only
        written again, as by a merge, count as nothing.
    seconds : float or None
        Time that the commit took, from its begin to its publication.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"n": [1, 2]}, "t.blz", commit_id="day 1")
    >>> with blz.open("t.blz") as t:
    ...     one = t.versions()[0]
    >>> one.number, one.operation, one.rows, one.commit_ids, one.damage
    (1, 'create', 2, ('day 1',), None)
    >>> one.rows_appended, one.rows_updated, one.rows_deleted, one.seconds > 0
    (2, 0, 0, True)
    """

    number: int
    time: datetime | None = None
    operation: str | None = None
    rows: int | None = None
    columns: int | None = None
    row_groups: int | None = None
    parent: int | None = None
    commit_ids: tuple[str, ...] | None = None
    writer: str | None = None
    damage: str | None = None
    tags: tuple[str, ...] = ()
    deleted_rows: int | None = None
    rows_appended: int | None = None
    rows_updated: int | None = None
    rows_deleted: int | None = None
    seconds: float | None = None

    def __str__(self) -> str:
        """Return one line of text."""
        parts = [f"version {self.number}"]
        if self.time is not None:
            parts.append(f"{self.time:%Y-%m-%d %H:%M:%S}")
        parts += [] if self.operation is None else [self.operation]
        parts += [] if self.rows is None else [counted(self.rows, "row")]
        parts += done_texts(self.rows_appended, self.rows_updated, self.rows_deleted)
        parts += [f"tag {tag!r}" for tag in self.tags]
        parts += [] if self.damage is None else [f"damaged: {self.damage}"]
        return ", ".join(parts)


class ChangedRows(NamedTuple):
    """Result of `VersionDiff.rows`: the rows added and the rows removed.

    Attributes
    ----------
    added, removed : pyarrow.Table
        Rows that only the newer version has, and rows that only the older one has.
    """

    added: pa.Table
    removed: pa.Table


@dataclass(frozen=True, slots=True, repr=False)
class VersionDiff(Printed):
    """What changed between two versions, as `CTable.diff` finds it in their manifests.

    A row group that was written again, as by an update or a merge, is one that was removed and one
    that was added. The numbers of rows are what the commits between the versions did.

    Attributes
    ----------
    old, new : int
        Numbers of the versions.
    rows_old, rows_new : int
        Their numbers of rows.
    columns_added, columns_removed : tuple of str
        Names of columns that only the new and only the old version has.
    columns_renamed : tuple of (str, str)
        The old and the new name of columns.
    columns_retyped : tuple of (str, str, str)
        Name of columns, and their old and new type.
    row_groups_added, row_groups_removed, row_groups_kept : int
        Numbers of row groups. One to which only columns were added is kept.
    rows_appended, rows_updated, rows_deleted : int or None
        Number of rows that the commits after the old version added, gave new values, and removed,
        up to the new version; a row counts as often as it was changed. None if a version in between
        is not kept any more.
    attributes_changed : tuple of str
        Names of attributes that were added, removed or changed.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"n": [1, 2]}, "t.blz")
    >>> with blz.open("t.blz", mode="a") as t:
    ...     version = t.rename_columns({"n": "number"})
    ...     version = t.append({"number": [3]})
    ...     diff = t.diff(1)
    ...     print(diff)
    ...     added, removed = diff.rows()
    versions 1 to 3, rows 2 to 3
    column renamed: n to number
    1 row appended
    row groups: 1 added, 0 removed, 1 kept
    >>> added.to_pylist(), removed.to_pylist(), diff.to_json()["rows_new"]
    ([{'number': 3}], [], 3)
    """

    old: int
    new: int
    rows_old: int
    rows_new: int
    columns_added: tuple[str, ...] = ()
    columns_removed: tuple[str, ...] = ()
    columns_renamed: tuple[tuple[str, str], ...] = ()
    columns_retyped: tuple[tuple[str, str, str], ...] = ()
    row_groups_added: int = 0
    row_groups_removed: int = 0
    row_groups_kept: int = 0
    rows_appended: int | None = None
    rows_updated: int | None = None
    rows_deleted: int | None = None
    attributes_changed: tuple[str, ...] = ()
    # Reads the rows that differ; of an open table.
    _read: Callable[[], ChangedRows] | None = field(default=None, compare=False)

    def rows(self) -> ChangedRows:
        """Read the rows that only the new version has, and those that only the old one has.

        A row that was updated is removed with its old values and added with the new ones. Rows that
        were only moved or written again are no changes. Row groups that both versions share are not
        read; the rows of the others are compared in memory. Columns that only one of the versions
        has are left out. If the table was written anew with mode "w" in between, columns of the
        same name are compared.

        Returns
        -------
        ChangedRows
            Two tables, `added` and `removed`, each in the order of its version.

        Raises
        ------
        TableNotFoundError
            A version does not exist any more.
        SchemaError
            A column has got another type, or no column is left.
        """
        assert self._read is not None, "made by CTable.diff"
        return self._read()

    def to_json(self) -> dict[str, Any]:
        """Convert the comparison to values that `json.dumps` accepts.

        Returns
        -------
        dict
            The fields.
        """
        return {item.name: getattr(self, item.name) for item in fields(self) if item.compare}

    def __str__(self) -> str:
        """Return the changes in lines."""
        done = done_texts(self.rows_appended, self.rows_updated, self.rows_deleted)
        lines = [
            f"versions {self.old} to {self.new}, rows {self.rows_old:,} to {self.rows_new:,}",
            *(f"column added: {one_line(name)}" for name in self.columns_added),
            *(f"column removed: {one_line(name)}" for name in self.columns_removed),
            *(
                f"column renamed: {one_line(old)} to {one_line(new)}"
                for old, new in self.columns_renamed
            ),
            *(
                f"column {one_line(name)}: {one_line(old)} to {one_line(new)}"
                for name, old, new in self.columns_retyped
            ),
            *([", ".join(done)] if done else []),
            f"row groups: {self.row_groups_added:,} added, {self.row_groups_removed:,} removed, "
            f"{self.row_groups_kept:,} kept",
            *(f"attribute changed: {one_line(name)}" for name in self.attributes_changed),
        ]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, repr=False)
class RowGroup(Printed):
    """A row group of a table, as `CTable.row_groups` lists it.

    Attributes
    ----------
    start, stop : int
        The first row, and the row after the last one.
    nbytes : int
        Uncompressed bytes of the columns, also of rows that are deleted.
    cbytes : int
        Bytes on disk of the columns.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"n": range(25_000)}, "t.blz", storage=blz.Storage(row_group_rows=10_000))
    >>> with blz.open("t.blz") as t:
    ...     [(one.start, one.stop, one.nbytes) for one in t.row_groups]
    [(0, 10000, 80000), (10000, 20000, 80000), (20000, 25000, 40000)]
    """

    start: int
    stop: int
    nbytes: int
    cbytes: int

    def __str__(self) -> str:
        """Return one line of text."""
        sizes = f"{size_text(self.nbytes)} in {size_text(self.cbytes)}"
        return f"rows {self.start:,} to {self.stop:,}: {sizes}"


@dataclass(frozen=True, slots=True, repr=False)
class DiskUsage(Printed):
    """Result of `CTable.disk_usage`: the bytes on disk, by what they are for.

    Attributes
    ----------
    newest : int
        Bytes of the newest version.
    tagged : int
        Bytes of the versions with a tag that the newest one does not use.
    older : int
        Bytes of the other versions that neither of these use. They go when the versions expire.
    other : int
        Bytes of files that no version names: locks, mirror documents, and files of killed or active
        writers; in a table in one file, also removed values. `vacuum` frees most of these bytes.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"n": range(100_000)}, "t.blz")
    >>> with blz.open("t.blz", mode="a") as t:
    ...     done = t.update({"n": 1})
    ...     used = t.disk_usage()
    >>> used.total == used.newest + used.tagged + used.older + used.other
    True
    """

    newest: int = 0
    tagged: int = 0
    older: int = 0
    other: int = 0

    @property
    def total(self) -> int:
        """Bytes of all files."""
        return self.newest + self.tagged + self.older + self.other

    def __str__(self) -> str:
        """Return one line of text."""
        parts = [f"{size_text(nbytes)} {name}" for name, nbytes in asdict(self).items() if nbytes]
        return f"{size_text(self.total)}: {', '.join(parts)}"


@dataclass(frozen=True, slots=True, repr=False)
class Vacuumed(Printed):
    """Result of `CTable.vacuum`: what was removed, and the versions that prevented more.

    Attributes
    ----------
    versions : tuple of int
        Numbers of the versions removed.
    files : int
        Number of files removed that no version names.
    nbytes : int
        Size of these files, in bytes.
    pinned : tuple of int
        Numbers of expired versions that stay because they are open somewhere.
    damaged : tuple of int
        Numbers of versions whose manifest is damaged, so that the files they name are unknown. If
        there are any, nothing is removed.

    Examples
    --------
    >>> import blztable as blz
    >>> for n in range(3):
    ...     blz.to_blz({"n": [n]}, "t.blz", mode="a")
    >>> with blz.open("t.blz", mode="a") as t:
    ...     vacuumed = t.vacuum(keep=1)
    >>> vacuumed.versions, vacuumed.pinned
    ((1, 2), ())
    """

    versions: tuple[int, ...] = ()
    files: int = 0
    nbytes: int = 0
    pinned: tuple[int, ...] = ()
    damaged: tuple[int, ...] = ()

    def __str__(self) -> str:
        """Return one line of text."""
        removed = counted(len(self.versions), "version"), counted(self.files, "file")
        kept = [
            f"; {why}: {', '.join(map(str, versions))}"
            for why, versions in (("still open", self.pinned), ("damaged", self.damaged))
            if versions
        ]
        return f"{' and '.join(removed)} removed, {size_text(self.nbytes)}{''.join(kept)}"


@dataclass(frozen=True, slots=True, repr=False)
class VersionLeft(Printed):
    """A version that `CTable.erase` could not remove, and that may have the rows.

    Attributes
    ----------
    number : int
        Number of the version.
    rows : int or None
        Number of its rows that meet the condition; None if nobody can tell, for example because
        the version keeps values of rows that it names as deleted, or a category without rows.
    tags : tuple of str
        Names of the version. Remove them: ``del t.tags[name]``.
    pids : tuple of int
        Ids of the processes on this machine that have the version open, as far as it is known.
        Empty if the version is only tagged, or is open on another machine.
    why : str
        What keeps the version, and what to do before the next `erase`.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"n": [1, 2]}, "t.blz")
    >>> with blz.open("t.blz", mode="a") as t:
    ...     t.tags["audited"] = 1
    ...     [left] = t.erase("n = 2").left
    >>> left.number, left.rows, left.tags
    (1, 1, ('audited',))
    """

    number: int
    rows: int | None
    tags: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    why: str = ""

    def __str__(self) -> str:
        """Return a line that says what keeps the version, and what to do."""
        rows = "may have the rows" if self.rows is None else f"has {self.rows:,} of the rows"
        return f"version {self.number} {rows}: {self.why}, and erase again"


@dataclass(frozen=True, slots=True, repr=False)
class Erased(Printed):
    """Result of `CTable.erase`: what was removed, and the versions that still have the rows.

    Attributes
    ----------
    rows : int
        Number of rows that were deleted.
    version : int
        Number of the version without the rows.
    versions : tuple of int
        Numbers of the versions that were removed.
    left : tuple of VersionLeft
        The versions that still have the rows, or may have them. Empty once all is erased.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"n": [1, 2]}, "t.blz")
    >>> with blz.open("t.blz", mode="a") as t:
    ...     done = t.erase("n = 2")
    >>> done
    version 2: 1 row erased; removed versions: 1
    >>> done.left
    ()
    """

    rows: int
    version: int
    versions: tuple[int, ...] = ()
    left: tuple[VersionLeft, ...] = ()

    def __str__(self) -> str:
        """Return a line about what was done, and one for each version that is left."""
        rows = "1 row" if self.rows == 1 else f"{self.rows:,} rows"
        verb = "deleted, not erased yet" if self.left else "erased"
        removed = ", ".join(map(str, self.versions)) or "none"
        first = f"version {self.version}: {rows} {verb}; removed versions: {removed}"
        return "\n".join([first, *map(str, self.left)])


@dataclass(frozen=True, slots=True, repr=False)
class Repaired(Printed):
    """Result of `CTable.repair`: the version that was made, and what is lost.

    Attributes
    ----------
    version : int
        Number of the version without damage.
    lost : tuple of (str or None, int, int, str)
        For each run of rows: the column whose values are null now, or None if the rows are left
        out; the first row, and the row after the last one, in the damaged version; the damage.
    rebuilt : tuple of str
        The leaves that were missing or damaged, and were made again from the data files.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"n": [1, 2, 3]}, "t.blz")
    >>> with blz.open("t.blz", mode="a") as t:
    ...     print(t.repair())
    version 1: nothing is lost
    """

    version: int
    lost: tuple[tuple[str | None, int, int | None, str], ...] = ()
    rebuilt: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return a line for each run of rows that is lost, and for each leaf that was rebuilt."""
        if not self.lost:
            return "\n".join([f"version {self.version}: nothing is lost", *self.rebuilt])
        lines = [
            f"rows {start:,} to {stop or start:,} "
            + ("are left out" if column is None else f"of column {column!r} are null")
            + f": {reason}"
            for column, start, stop, reason in self.lost
        ]
        return "\n".join([f"version {self.version}:", *lines, *self.rebuilt])


@dataclass(frozen=True, slots=True, repr=False)
class Copied(Printed):
    """Result of `copy`: what was copied, and what was not.

    Attributes
    ----------
    rows : int
        Number of rows of the copy.
    version : int or None
        Number of the version that was copied; None if the source had none.
    lost : tuple of str
        For each thing that was not copied, or is damaged in the copy: what it is.
    rebuilt : tuple of str
        The leaves that were missing or damaged, and were made again from the data files.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"n": [1, 2, 3]}, "t.blz")
    >>> blz.copy("t.blz", "t-again.blz")
    version 1: 3 rows
    """

    rows: int
    version: int | None = None
    lost: tuple[str, ...] = ()
    rebuilt: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return a line of what was copied, and one for each thing that was not, or was rebuilt."""
        of = "" if self.version is None else f"version {self.version}: "
        lost = [f"not copied: {thing}" for thing in self.lost]
        return "\n".join([f"{of}{self.rows:,} rows", *lost, *self.rebuilt])


@dataclass(frozen=True, slots=True, repr=False)
class Changed(Printed):
    """Result of a change: the numbers of rows that it changed, and the version that it made.

    Attributes
    ----------
    rows_appended, rows_updated, rows_deleted : int
        Number of rows added, of rows that got new values, and of rows removed.
    version : int or None
        Number of the version that has the change: a new one, or the one that was looked at if
        there was nothing to change. None for a change within a transaction.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"n": [1, 2, 3]}, "t.blz")
    >>> with blz.open("t.blz", mode="a") as t:
    ...     done = t.delete([("n", ">", 1)])
    >>> done
    Changed(rows_deleted=2, version=2)
    >>> print(done)
    version 2: 2 rows deleted
    """

    rows_appended: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    version: int | None = None

    def __repr__(self) -> str:
        """Return the numbers that are not 0."""
        numbers = [f"{name}={number}" for name, number in asdict(self).items() if number]
        return f"Changed({', '.join(numbers)})"

    # Beside the `__repr__` above.
    _repr_pretty_ = Printed._repr_pretty_

    def __str__(self) -> str:
        """Return one line of text."""
        done = done_texts(self.rows_appended, self.rows_updated, self.rows_deleted)
        version = "" if self.version is None else f"version {self.version}: "
        return version + (", ".join(done) or "no rows changed")


def done_texts(appended: int | None, updated: int | None, deleted: int | None) -> list[str]:
    """Return what was done to rows as texts; none for what is 0 or not known."""
    numbers = {"appended": appended, "updated": updated, "deleted": deleted}
    return [f"{counted(number, 'row')} {name}" for name, number in numbers.items() if number]


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in singular or plural."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _lists(ranges: Sequence[RowInterval]) -> list[list[int]]:
    return [list(rows) for rows in ranges]


def _without(rows: int, lost: Sequence[RowInterval]) -> tuple[RowInterval, ...]:
    """Return the ranges of rows, from 0 to `rows`, that are not lost."""
    intact, begin = [], 0
    for start, stop in sorted(lost):
        if begin < start:
            intact.append((begin, start))
        begin = max(begin, stop)
    return (*intact, (begin, rows)) if begin < rows else tuple(intact)


def one_line(text: str) -> str:
    """Return the text with escapes for the characters that could end a line."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def short_text(name: str) -> str:
    """Return the name in one line, cut to fit."""
    name = one_line(name[: NAME_LENGTH + 1])
    return name if len(name) <= NAME_LENGTH else name[: NAME_LENGTH - 3] + "..."


def size_text(nbytes: int) -> str:
    """Return a number of bytes as text with a unit."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes} bytes"
