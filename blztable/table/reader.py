"""TableReader: the columns of one version, and every way to read them. Changes nothing.

Base of CTable and of Transaction, which shows the table as its changes have made it so far.
"""

import operator
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, overload

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pandas.api.extensions import no_default

from blztable.engine.check.verify import verify
from blztable.engine.write.sort_keys import kept
from blztable.errors import ColumnNotFoundError
from blztable.report import Explanation, Report
from blztable.table.batches import Batches
from blztable.table.column import Column
from blztable.table.dataset import BlzDataset
from blztable.table.indices import row_numbers
from blztable.table.progress import ProgressOption, reporting
from blztable.table.snapshot import Reading, Snapshot
from blztable.text import short_text, size_text

# Columns that a repr lists; it counts the rest.
SHOWN = 40

Filters: TypeAlias = pc.Expression | list[Any] | None


class TableReader:
    """Some or all columns of one version of a table, to be read."""

    def __init__(self, snapshot: Snapshot, columns: Sequence[int] | None = None) -> None:
        self._snapshot = snapshot
        # Positions of the columns shown, None for all of them.
        self._columns = columns

    @property
    def nrows(self) -> int:
        """Number of rows."""
        return self._snapshot.rows

    def __len__(self) -> int:
        """Number of rows."""
        return self.nrows

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema: exactly the one that was written, for data that came from Arrow."""
        snapshot, shown = self._reading()
        return snapshot.schema(shown)

    @property
    def column_names(self) -> list[str]:
        """Names of the columns in their order; a stored index is among them."""
        snapshot, shown = self._reading()
        names = snapshot.version.schema.names
        return [names[index] for index in shown]

    @property
    def nbytes(self) -> int:
        """Bytes of the columns, uncompressed."""
        snapshot, shown = self._reading()
        return sum(snapshot.version.head.columns.nbytes[index] for index in shown)

    @property
    def cbytes(self) -> int:
        """Bytes of the columns' files."""
        snapshot, shown = self._reading()
        return sum(snapshot.version.head.columns.cbytes[index] for index in shown)

    @property
    def sort_by(self) -> list[tuple[str, str]]:
        """The columns that `to_blz` or `compact` sorted the rows by, each with its direction.

        What was appended or changed since is where it is, until `compact` sorts again.
        """
        version = self._snapshot.version
        keys = kept(version.head.properties, version.head.columns.paths)
        return [(version.schema.names[index], way) for index, way in keys]

    @property
    def version(self) -> int:
        """Number of the version shown; it grows by one with every commit."""
        return self._snapshot.version.head.version

    @property
    def path(self) -> str:
        """Where the table is."""
        return self._snapshot.name

    def __arrow_c_schema__(self) -> object:
        """The schema as an Arrow PyCapsule, without opening a stream."""
        return self.schema.__arrow_c_schema__()

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        *,
        filters: Filters = None,
        on_corrupt: str = "raise",
        progress: ProgressOption = None,
    ) -> pa.Table:
        """Read into an Arrow table.

        Parameters
        ----------
        columns : sequence of str, optional
            The columns to read, in this order; all by default. Of columns that share a name, all
            are read.
        filters : pyarrow.compute.Expression, list of tuples or list of such lists, optional
            Which rows, as in `read_blz`.
        on_corrupt : {"raise", "skip"}
            "skip" leaves out the row groups that are damaged in one of these columns, warns, and
            says in the schema's metadata, as "blz:missing_rows", which rows they are.
        progress : bool or callable, optional
            As in `to_blz`.

        Raises
        ------
        ColumnNotFoundError
            No column has one of these names.
        CorruptError
            A file is damaged or missing.
        LimitError
            The result would be larger than this machine's memory.
        """
        with reporting(progress, "reading") as callback:
            how = Reading(filters, on_corrupt, callback)
            snapshot, positions = self._reading(columns)
            return snapshot.arrow(positions, 0, snapshot.rows, how)

    def to_batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        filters: Filters = None,
        batch_rows: int | None = None,
    ) -> Batches:
        """Read as a stream of record batches, for tables larger than memory.

        A few row groups are in memory at a time: the batches given out last, and the rows after
        them, which are decoded while the caller works.

        Parameters
        ----------
        columns : sequence of str, optional
            The columns to read, in this order; all by default.
        filters : pyarrow.compute.Expression, list of tuples or list of such lists, optional
            Which rows, as in `read_blz`.
        batch_rows : int, optional
            The most rows of a batch, 131,072 by default. Some have fewer, where row groups end.

        Returns
        -------
        Batches
            An iterator of pyarrow.RecordBatch with a `schema` and a method `close`; also a context
            manager. It can be left at any time, and read or closed by another thread.

        Raises
        ------
        ColumnNotFoundError
            No column has one of these names.
        CorruptError
            A file is damaged or missing, told by the batch that would need it.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": range(10)}, "t.blz", row_group_rows=6)
        >>> with blz.open("t.blz") as t:
        ...     print([batch.num_rows for batch in t.to_batches(batch_rows=4)])
        [4, 4, 2]
        """
        if isinstance(batch_rows, bool):
            raise TypeError(f"batch_rows is a number of rows, not {batch_rows}")
        most = None if batch_rows is None else operator.index(batch_rows)
        if most is not None and most < 1:
            raise ValueError(f"a batch has at least 1 row, not {most}")
        return Batches(*self._reading(columns), most, filters)

    def to_pandas(
        self,
        columns: Sequence[str] | None = None,
        *,
        filters: Filters = None,
        dtype_backend: Any = no_default,
        on_corrupt: str = "raise",
        progress: ProgressOption = None,
    ) -> pd.DataFrame:
        """Read into a DataFrame that shares its memory with what was decoded, and is writable.

        Parameters
        ----------
        columns : sequence of str, optional
            The columns to read, in this order; all by default. The index is restored beside them.
        filters : pyarrow.compute.Expression, list of tuples or list of such lists, optional
            Which rows, as in `read_blz`; they keep their labels.
        dtype_backend : {"numpy_nullable", "pyarrow"}, optional
            As in pandas. With "pyarrow" dates and decimals stay Arrow values instead of one Python
            object each, which is many times faster.
        on_corrupt : {"raise", "skip"}
            "skip" leaves out the row groups that are damaged in one of these columns, warns, and
            says in `attrs["blz:missing_rows"]` which rows they are; the others keep their labels.
        progress : bool or callable, optional
            As in `to_blz`.

        Raises
        ------
        ColumnNotFoundError
            No column has one of these names.
        CorruptError
            A file is damaged or missing.
        LimitError
            The result would be larger than this machine's memory.
        """
        columns = _list_of(columns)
        with reporting(progress, "reading") as callback:
            snapshot, positions = self._reading(columns)
            names = columns
            if columns is None and self._columns is not None:
                names = _names_asked_for(snapshot.version.schema.names, positions)
            return snapshot.pandas(
                positions,
                columns=None if names is None else list(names),
                dtype_backend=dtype_backend,
                how=Reading(filters, on_corrupt, callback),
            )

    def count(self, *, filters: Filters = None) -> int:
        """How many rows there are, or how many of them a filter leaves.

        Nothing is read but columns of the filter, and of these nothing where statistics decide.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": range(10)}, "t.blz")
        >>> with blz.open("t.blz") as t:
        ...     t.count(), t.count(filters=[("a", ">", 6)])
        (10, 3)
        """
        return self._snapshot.count(filters)

    def explain(
        self, columns: Sequence[str] | None = None, *, filters: Filters = None
    ) -> Explanation:
        """What reading these columns through this filter takes, and what it passes over.

        Told from the manifest, fronts and trailers alone. Printed, it is a table.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": range(64), "b": range(64)}, "t.blz", page_rows=16, row_group_rows=32)
        >>> with blz.open("t.blz") as t:
        ...     plan = t.explain(["b"], filters=[("a", "==", 50)])
        >>> plan.row_groups, plan.rows, plan.pages, plan.pages_skipped
        (1, 16, 2, 6)
        """
        snapshot, positions = self._reading(columns)
        return snapshot.explain(positions, filters)

    def head(self, n: int = 5) -> pa.Table:
        """The first `n` rows as an Arrow table; only the pages that hold them are decoded."""
        return self[: _number_of_rows(n)]

    def tail(self, n: int = 5) -> pa.Table:
        """The last `n` rows as an Arrow table; only the pages that hold them are decoded."""
        snapshot, shown = self._reading()
        return snapshot.arrow(shown, max(snapshot.rows - _number_of_rows(n), 0), snapshot.rows)

    def take(self, indices: Any, columns: Sequence[str] | None = None) -> pa.Table:
        """These rows as an Arrow table, in any order and as often as they are named.

        Only the pages that hold them are decoded, each of them once.

        Parameters
        ----------
        indices : array-like of int
            Numbers of rows from 0: of numpy, Arrow or pandas, or a list.
        columns : sequence of str, optional
            The columns to read, in this order; all by default.

        Raises
        ------
        IndexError
            A number that is negative, or not below the number of rows.
        ColumnNotFoundError, CorruptError
            As in `to_arrow`.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": [10, 20, 30], "b": ["x", "y", "z"]}, "t.blz")
        >>> with blz.open("t.blz") as t:
        ...     t.take([2, 0, 2], columns=["b"]).to_pydict(), t[::2]["a"].to_pylist()
        ({'b': ['z', 'x', 'z']}, [10, 30])
        """
        snapshot, positions = self._reading(columns)
        return snapshot.take(positions, row_numbers(indices, snapshot.rows))

    def dataset(self) -> BlzDataset:
        """The version, or the columns shown of it, as a pyarrow Dataset, for query engines.

        It shows this version whatever is committed, until the table is closed; `blztable.dataset`
        makes one that stays open.

        Examples
        --------
        >>> import blztable as blz
        >>> import duckdb
        >>> blz.to_blz({"n": [1, 2, 3], "word": ["a", "b", "c"]}, "words.blz")
        >>> with blz.open("words.blz") as t:
        ...     d = t.dataset()
        ...     print(duckdb.sql("SELECT word FROM d WHERE n > 1").fetchall())
        [('b',), ('c',)]
        """
        self._snapshot.check_open()
        # A view of its own: the table may show another version after a commit.
        return BlzDataset(TableReader(*self._reading()))

    def verify(self, *, full: bool = True) -> Report:
        """Check the version, or the columns shown of it, and say what is wrong and what intact.

        Damage is reported, not raised, and does not keep the rest from being checked.

        Parameters
        ----------
        full : bool, optional
            Read all: every checksum, chunk and value, and whether the statistics are true of the
            values. Without it only the manifest, the sizes of files and their fronts and trailers.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": [1, 2, 3]}, "t.blz")
        >>> with blz.open("t.blz") as t:
        ...     report = t.verify()
        >>> report.is_intact, report.problems, report.intact_rows("a")
        (True, (), ((0, 3),))
        """
        snapshot, shown = self._reading()
        snapshot.check_open()
        return verify(snapshot.version, shown, full=full)

    @overload
    def __getitem__(self, key: str) -> Column: ...

    @overload
    def __getitem__(self, key: list[str]) -> "TableReader": ...

    @overload
    def __getitem__(self, key: slice) -> pa.Table: ...

    def __getitem__(self, key: str | list[str] | slice) -> "Column | TableReader | pa.Table":
        """One column by its name; the table narrowed to a list of columns; or a slice of rows."""
        if isinstance(key, str):
            snapshot, positions = self._reading([key])
            if len(positions) > 1:
                raise ColumnNotFoundError(f"{len(positions)} columns are named {key!r}")
            return Column(snapshot, positions[0])
        if isinstance(key, list):
            return TableReader(*self._reading(key))
        if isinstance(key, slice):
            snapshot, shown = self._reading()
            start, stop, step = key.indices(snapshot.rows)
            if step == 1:
                return snapshot.arrow(shown, start, max(start, stop))
            return snapshot.take(shown, snapshot.numbers(range(start, stop, step)))
        raise TypeError(
            f"a column's name, a list of names, or a slice of rows, not {type(key).__name__}"
        )

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The table as an Arrow PyCapsule stream: a few row groups in memory, as `to_batches`."""
        return Batches(*self._reading()).__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        names = self.column_names
        width = max(map(len, map(short_text, names[:SHOWN])), default=0)
        lines = [
            f"<{type(self).__name__} {self.path}, version {self.version}: {self.nrows:,} rows x "
            f"{len(names):,} columns, {size_text(self.nbytes)} in {size_text(self.cbytes)}>"
        ]
        types = self.schema.types
        lines += [
            f"  {short_text(name):<{width}}  {type_}"
            for name, type_ in zip(names[:SHOWN], types, strict=False)
        ]
        if len(names) > SHOWN:
            lines.append(f"  ... and {len(names) - SHOWN:,} more columns")
        return "\n".join(lines)

    def _reading(self, columns: Sequence[str] | None = None) -> tuple[Snapshot, Sequence[int]]:
        """What to read from, and the positions there of these columns, all shown by default.

        Asked once for each read: a commit in another thread puts a newer snapshot in its place.
        """
        snapshot = self._snapshot
        everything = range(len(snapshot.version.schema))
        shown = everything if self._columns is None else self._columns
        return snapshot, snapshot.positions(columns, shown)


def _names_asked_for(names: Sequence[str], positions: Sequence[int]) -> list[str]:
    """The names that lead to these positions; one name leads to all columns that share it."""
    first: dict[str, int] = {}
    for position in positions:
        first.setdefault(names[position], position)
    return [names[position] for position in positions if first[names[position]] == position]


def _number_of_rows(n: int) -> int:
    rows = operator.index(n)
    if rows < 0:
        raise ValueError(f"a number of rows from 0, not {rows}")
    return rows


def _list_of(columns: Iterable[str] | None) -> Sequence[str] | None:
    """The names as a list, for they are gone through twice; one text stays, to be refused."""
    return columns if columns is None or isinstance(columns, str) else list(columns)
