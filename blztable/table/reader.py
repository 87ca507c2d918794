"""TableReader: the columns of one version, and every way to read them. Changes nothing.

Base of CTable and of Transaction, which shows the table as its changes have made it so far.
"""

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias, overload

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pandas.api.extensions import no_default

from blztable.arrow.nested.paths import Names
from blztable.arrow.types import no_rows
from blztable.convert import foreign
from blztable.engine.read.damage import OnCorrupt
from blztable.engine.version.schema import digits_by_name
from blztable.engine.version.versions import Version
from blztable.engine.write.options import Storage, storage_of
from blztable.engine.write.sort_keys import kept
from blztable.errors import BlzError, ColumnNotFoundError, CorruptError, ReadOnlyError, SchemaError
from blztable.format.metalayers import LayerKey, Layers
from blztable.metalayers import FixedMetalayers, VariableMetalayers
from blztable.report import Explanation, Report, RowGroup, counted, short_text, size_text
from blztable.storage.store import Lock
from blztable.table import datasets
from blztable.table.attributes import Attributes, fixed_metalayers, variable_metalayers
from blztable.table.batches import Batches
from blztable.table.column import Column, described
from blztable.table.display import ReadOptions, as_html
from blztable.table.names import (
    Coded,
    Rows,
    checked_count,
    list_of,
    names_asked_for,
    row_numbers,
    row_range,
)
from blztable.table.progress import ProgressOption, reporting
from blztable.table.snapshot import Snapshot

if TYPE_CHECKING:
    from blztable.table.datasets.dataset import BlzDataset
    from blztable.table.datasets.ranges import RowRange

# Columns that a repr lists; it counts the rest.
COLUMNS_PRINTED = 40
# Columns and rows that it shows in a notebook.
COLUMNS_IN_HTML, HEAD = 20, 5

ColumnNames: TypeAlias = Sequence[Names]
Filters: TypeAlias = str | pc.Expression | list[Any] | None


class TableReader:
    """Some or all columns of one version of a table, to be read."""

    def __init__(self, snapshot: Snapshot, columns: Sequence[int] | None = None) -> None:
        self._snapshot = snapshot
        # Indices of the columns shown, None for all of them.
        self._columns = columns

    def __len__(self) -> int:
        """Number of rows of the version shown."""
        return self._snapshot.rows

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the columns shown.

        Data that came from Arrow keep their schema exactly; a DataFrame's schema carries the pandas
        metadata that pyarrow needs to restore its index.
        """
        snapshot, visible = self._reading()
        return snapshot.schema(visible)

    @property
    def columns(self) -> list[str]:
        """Names of the columns shown, in order. Those of a stored index are among them."""
        snapshot, visible = self._reading()
        names = snapshot.projection.schema.names
        return [names[index] for index in visible]

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns, as in pandas."""
        return len(self), len(self.columns)

    def __iter__(self) -> Iterator[str]:
        """Return an iterator of the names of the columns, as in pandas."""
        return iter(self.columns)

    def __contains__(self, name: object) -> bool:
        """True if a column has this name."""
        return name in self.columns

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return `to_numpy`, as numpy and scikit-learn ask for it; it is always a copy."""
        if copy is False:
            raise ValueError(f"{self.path}: an array of a table is always a copy")
        array = self.to_numpy()
        return array if dtype is None else array.astype(dtype)

    @property
    def nbytes(self) -> int:
        """Bytes that the columns shown take in memory, as Arrow arrays."""
        snapshot, visible = self._reading()
        return sum(snapshot.projection.nbytes(index) for index in visible)

    @property
    def cbytes(self) -> int:
        """Bytes of the files on disk of the columns shown, without the manifest."""
        snapshot, visible = self._reading()
        return sum(snapshot.projection.cbytes(index) for index in visible)

    @property
    def row_groups(self) -> list[RowGroup]:
        """Row groups of the table: their rows, and the sizes of the columns shown.

        Each column of a row group has a file of its own; the columns of a small row group share
        one. So a file that is missing costs rows of its row group only. They are in stored order,
        and together they have all rows.
        """
        snapshot, visible = self._reading()
        return datasets.ranges.row_groups(snapshot.projection, visible)

    @property
    def storage(self) -> Storage:
        """How later rows are stored: the options that the table keeps.

        What was given when the table was written, or to `CTable.configure` or `CTable.compact`, and
        the digits that are kept of columns. Rows that were appended or changed since the last sort
        are not in the order of `sort_by` until `CTable.compact` sorts again.
        """
        snapshot, visible = self._reading()
        storage = storage_of(snapshot.version.head.properties)
        columns = dict(storage.columns or {})
        fields = (snapshot.projection.schema.field(index) for index in visible)
        for name, digits in digits_by_name(fields).items():
            columns[name] = replace(columns.get(name, Storage()), digits=digits)
        version = snapshot.version
        keys = kept(version.head.properties, version.paths)
        order = [(version.schema.names[index], direction) for index, direction in keys]
        return replace(storage, columns=columns or None, sort_by=order or None)

    @property
    def version(self) -> int:
        """Number of the version shown: 1 for the first one; each commit adds one."""
        return self._snapshot.version.head.version

    @property
    def path(self) -> str:
        """Path of the table's directory, or the name of its store."""
        return self._snapshot.name

    @property
    def attrs(self) -> Attributes:
        """Attributes of the table: JSON values that travel with it.

        Numbers and times of numpy and pandas, and 1-dimensional arrays of them, keep their type.
        Each assignment is one commit, or part of a transaction.
        """
        return Attributes(lambda: self._snapshot.version.head.attributes, self._set_attributes)

    @property
    def meta(self) -> FixedMetalayers:
        """Fixed metalayers: named bytes that keep their length.

        Those of a table are given to `create` or `to_blz`. Each change is one commit, or part of a
        transaction. A mapping with the verbs ``add``, ``get``, ``exists`` and ``update``.
        """
        return fixed_metalayers(self)

    @property
    def vlmeta(self) -> VariableMetalayers:
        """Variable metalayers: named bytes that may be added, resized and removed at any time.

        At most 16; those of a table and its columns have 16 MiB together. `attrs` is the
        comfortable way; these have the verbs of Blosc2. A mapping with the verbs ``add``, ``get``,
        ``exists``, ``update`` and ``delete``.
        """
        return variable_metalayers(self)

    def to_arrow(
        self,
        columns: ColumnNames | None = None,
        *,
        filters: Filters = None,
        rows: Rows = None,
        dictionaries: Coded = None,
        on_corrupt: OnCorrupt = "raise",
        progress: ProgressOption = None,
    ) -> pa.Table:
        """Read into an Arrow table.

        Parameters
        ----------
        columns : sequence of str or tuple of str, optional
            Names of the columns to read, in this order; all by default. A name that several columns
            share selects all of them.
            "address.city" or ("address", "city") is one field of a struct: the column then has only
            the fields that are named, and no others are read.
        filters : str, pyarrow.compute.Expression, list of tuples or list of such lists, optional
            Condition that a row must meet, as in `read_blz`; all rows by default.
        rows : (int, int), optional
            First row to read, and the row after the last one, as in a slice; all rows by default.
        dictionaries : sequence of str or "auto", optional
            Names of columns of text or binary to read as dictionary arrays of int32 indices; with
            "auto", those that are stored as dictionaries. No text is made of these.
        on_corrupt : {"raise", "skip", "null"}
            With "skip", the rows of pages that are damaged in one of the columns read are left out.
            With "null", all rows are kept, and a column is null where its pages are damaged; rows
            for which the filter needs damaged pages are left out. A warning names the rows. The
            schema's metadata list them under "blz:missing_rows" and "blz:missing_values".
        progress : bool or callable, optional
            Progress of the read, as in `to_blz`.

        Returns
        -------
        pyarrow.Table
            The rows that meet the condition, in stored order; one column per name.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": [1, 2, 3], "b": ["x", "y", "z"]}, "t.blz")
        >>> with blz.open("t.blz") as t:
        ...     t.to_arrow(["b"], filters=[("a", ">", 1)]).to_pydict()
        {'b': ['y', 'z']}
        """
        with reporting(progress, "reading") as callback:
            options = ReadOptions(filters, on_corrupt, callback)
            snapshot, indices = self._reading(columns, dictionaries)
            start, stop = (0, snapshot.rows) if rows is None else row_range(rows, snapshot.rows)
            return snapshot.arrow(indices, start, stop, options)

    def to_batches(
        self,
        columns: ColumnNames | None = None,
        *,
        filters: Filters = None,
        rows: Rows = None,
        dictionaries: Coded = None,
        batch_rows: int | None = None,
        on_corrupt: OnCorrupt = "raise",
    ) -> Batches:
        """Read as a stream of record batches, for tables larger than memory.

        A few row groups are in memory at a time: the batches returned last, and the rows after
        them, which are decoded while the caller works.

        Parameters
        ----------
        columns : sequence of str or tuple of str, optional
            Names of the columns to read, in this order; all by default.
            "address.city" or ("address", "city") is one field of a struct: the column then has only
            the fields that are named, and no others are read.
        filters : str, pyarrow.compute.Expression, list of tuples or list of such lists, optional
            Condition that a row must meet, as in `read_blz`; all rows by default.
        rows : (int, int), optional
            First row to read, and the row after the last one, as in a slice; all rows by default.
        dictionaries : sequence of str or "auto", optional
            Names of columns of text or binary to read as dictionary arrays of int32 indices; with
            "auto", those that are stored as dictionaries. No text is made of these.
        batch_rows : int, optional
            Maximum number of rows of a batch, 131,072 by default. Batches at the end of row groups
            have fewer.
        on_corrupt : {"raise", "skip", "null"}
            Whether damaged pages raise CorruptError, their rows are left out, or their values are
            null, as in `to_arrow`. A warning names the rows when their batch is read.

        Returns
        -------
        Batches
            An iterator of pyarrow.RecordBatch with a `schema` and a method `close`; also a context
            manager. Any thread may read or close it.

        Raises
        ------
        ValueError
            The number of rows of a batch is less than 1.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": range(10)}, "t.blz", storage=blz.Storage(row_group_rows=6))
        >>> with blz.open("t.blz") as t:
        ...     print([batch.num_rows for batch in t.to_batches(batch_rows=4)])
        [4, 4, 2]
        """
        most = None if batch_rows is None else checked_count(batch_rows, "batch_rows", least=1)
        options = ReadOptions(filters, on_corrupt)
        snapshot, indices = self._reading(columns, dictionaries)
        among = (0, snapshot.rows) if rows is None else row_range(rows, snapshot.rows)
        return Batches(snapshot, indices, most, options, range(*among))

    def to_pandas(
        self,
        columns: ColumnNames | None = None,
        *,
        filters: Filters = None,
        rows: Rows = None,
        dictionaries: Coded = None,
        dtype_backend: Any = no_default,
        on_corrupt: OnCorrupt = "raise",
        progress: ProgressOption = None,
    ) -> pd.DataFrame:
        """Read into a DataFrame.

        The frame is writable and shares its memory with the decoded columns.

        Parameters
        ----------
        columns : sequence of str or tuple of str, optional
            Names of the columns to read, in this order; all by default. The index is restored too.
            "address.city" or ("address", "city") is one field of a struct: the column then has only
            the fields that are named, and no others are read.
        filters : str, pyarrow.compute.Expression, list of tuples or list of such lists, optional
            Condition that a row must meet, as in `read_blz`; all rows by default.
        rows : (int, int), optional
            First row to read, and the row after the last one, as in a slice; all rows by default.
        dictionaries : sequence of str or "auto", optional
            Names of columns of text or binary to read as categoricals, in the order in which the
            values first appear; with "auto", those that are stored as dictionaries. No text is made
            of these.
        dtype_backend : {"numpy_nullable", "pyarrow"}, optional
            Kind of dtypes, as in pandas. With "pyarrow", dates and decimals stay Arrow values
            instead of one Python object each, which is many times faster.
        on_corrupt : {"raise", "skip", "null"}
            With "skip", the rows of pages that are damaged in one of the columns read are left out.
            With "null", all rows are kept, and a column is missing where its pages are damaged;
            rows for which the filter needs damaged pages are left out. A warning names the rows.
            `attrs` lists them under "blz:missing_rows" and "blz:missing_values".
        progress : bool or callable, optional
            Progress of the read, as in `to_blz`.

        Returns
        -------
        pandas.DataFrame
            The rows that meet the condition, in stored order and with their index labels; one
            column per name.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": [1, 2, 3], "b": ["x", "y", "z"]}, "t.blz")
        >>> with blz.open("t.blz") as t:
        ...     t.to_pandas(filters=[("a", ">", 1)])
           a  b
        1  2  y
        2  3  z
        """
        columns = list_of(columns)
        with reporting(progress, "reading") as callback:
            snapshot, indices = self._reading(columns, dictionaries)
            names = None
            if columns is not None or self._columns is not None:
                names = names_asked_for(snapshot.projection.schema.names, indices)
            return snapshot.pandas(
                indices,
                columns=names,
                dtype_backend=dtype_backend,
                options=ReadOptions(filters, on_corrupt, callback),
                rows=None if rows is None else row_range(rows, snapshot.rows),
            )

    def to_numpy(
        self,
        columns: ColumnNames | None = None,
        *,
        filters: Filters = None,
        structured: bool = False,
    ) -> np.ndarray:
        """Read into one numpy array, as `DataFrame.to_numpy` of Polars does.

        Parameters
        ----------
        columns : sequence of str or tuple of str, optional
            Names of the columns to read, in this order; all by default.
            "address.city" or ("address", "city") is one field of a struct: the column then has only
            the fields that are named, and no others are read.
        filters : str, pyarrow.compute.Expression, list of tuples or list of such lists, optional
            Condition that a row must meet, as in `read_blz`; all rows by default.
        structured : bool, optional
            If True, each column is a field with a dtype of its own. Text and binary without nulls
            then have the width of their longest value.

        Returns
        -------
        numpy.ndarray
            With shape (rows, columns), in the dtype that numpy promotes the columns to, or object;
            with `structured`, with shape (rows,). Values are as in `Column.to_numpy`.

        Raises
        ------
        SchemaError
            Numpy has no type for these values, or two fields would have one name.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1, 2], "x": [0.5, 1.5], "word": ["a", "bc"]}, "t.blz")
        >>> with blz.open("t.blz") as t:
        ...     t.to_numpy(["n", "x"])
        ...     t.to_numpy(structured=True)
        array([[1. , 0.5],
               [2. , 1.5]])
        array([(1, 0.5, 'a'), (2, 1.5, 'bc')],
              dtype=[('n', '<i8'), ('x', '<f8'), ('word', '<U2')])
        """
        table = self.to_arrow(columns, filters=filters)
        arrays = foreign.structured
        make = arrays.structured_array if structured else arrays.matrix
        return make(table, self._snapshot.check_rows)

    def count(self, *, filters: Filters = None, rows: Rows = None) -> int:
        """Count the rows, or the rows that meet a condition.

        Only the filter's columns are read, and only the pages that statistics do not decide.

        Parameters
        ----------
        filters : str, pyarrow.compute.Expression, list of tuples or list of such lists, optional
            Condition that a row must meet, as in `read_blz`; all rows by default.
        rows : (int, int), optional
            First row to count, and the row after the last one, as in a slice; all rows by default.

        Returns
        -------
        int
            Number of rows.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": range(10)}, "t.blz")
        >>> with blz.open("t.blz") as t:
        ...     t.count(), t.count(filters=[("a", ">", 6)])
        (10, 3)
        """
        snapshot = self._snapshot
        return snapshot.count(filters, None if rows is None else row_range(rows, snapshot.rows))

    def explain(
        self, columns: ColumnNames | None = None, *, filters: Filters = None
    ) -> Explanation:
        """Show what a read with this filter decodes and what it skips.

        Only the manifest and the leaves are read.

        Parameters
        ----------
        columns : sequence of str, optional
            Names of the columns to read; all by default.
        filters : str, pyarrow.compute.Expression, list of tuples or list of such lists, optional
            Condition that a row must meet, as in `read_blz`; all rows by default.

        Returns
        -------
        Explanation
            Row groups, rows, pages and bytes, per column and in total. `print` shows a table.

        Examples
        --------
        >>> import blztable as blz
        >>> storage = blz.Storage(page_rows=16, row_group_rows=32)
        >>> blz.to_blz({"a": range(64), "b": range(64)}, "t.blz", storage=storage)
        >>> with blz.open("t.blz") as t:
        ...     plan = t.explain(["b"], filters=[("a", "==", 50)])
        >>> plan.row_groups, plan.rows, plan.pages, plan.pages_skipped
        (1, 16, 2, 6)
        """
        snapshot, indices = self._reading(columns)
        return snapshot.explain(indices, filters)

    def head(self, n: int = 5) -> pa.Table:
        """Read the first rows; only the pages that hold them are decoded.

        Parameters
        ----------
        n : int, optional
            Maximum number of rows.

        Returns
        -------
        pyarrow.Table
            The first min(n, len(t)) rows of the columns shown.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": range(10)}, "t.blz")
        >>> with blz.open("t.blz") as t:
        ...     t.head(2).to_pydict(), t.head().num_rows
        ({'a': [0, 1]}, 5)
        """
        return self[: checked_count(n, "n")]

    def tail(self, n: int = 5) -> pa.Table:
        """Read the last rows; only the pages that hold them are decoded.

        Parameters
        ----------
        n : int, optional
            Maximum number of rows.

        Returns
        -------
        pyarrow.Table
            The last min(n, len(t)) rows of the columns shown, in stored order.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": range(10)}, "t.blz")
        >>> with blz.open("t.blz") as t:
        ...     t.tail(2).to_pydict()
        {'a': [8, 9]}
        """
        snapshot, visible = self._reading()
        return snapshot.arrow(visible, max(snapshot.rows - checked_count(n, "n"), 0), snapshot.rows)

    def take(self, indices: Any, columns: ColumnNames | None = None) -> pa.Table:
        """Read rows by number, in any order and with repetitions.

        Only the pages that hold these rows are decoded, each page once.

        Parameters
        ----------
        indices : array-like of int
            Row numbers, 1-dimensional, from 0 to len(t) - 1: a numpy, Arrow or pandas array, or a
            list.
        columns : sequence of str or tuple of str, optional
            Names of the columns to read, in this order; all by default.
            "address.city" or ("address", "city") is one field of a struct: the column then has only
            the fields that are named, and no others are read.

        Returns
        -------
        pyarrow.Table
            Row `i` is row `indices[i]` of the table: len(indices) rows, one column per name.

        Raises
        ------
        IndexError
            A row number is negative, null, or not less than the number of rows.
        TypeError
            The row numbers are not integers: a boolean mask, for example.

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

    def sample(
        self, n: int = 5, columns: ColumnNames | None = None, *, seed: int | None = None
    ) -> pa.Table:
        """Read rows at random, each at most once; only their chunks are decoded.

        Parameters
        ----------
        n : int, optional
            Number of rows; all rows if the table has fewer.
        columns : sequence of str or tuple of str, optional
            Names of the columns to read; all by default.
        seed : int, optional
            Makes the choice the same each time.

        Returns
        -------
        pyarrow.Table
            The rows, in stored order.

        Raises
        ------
        ValueError
            `n` is negative.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": range(1000)}, "t.blz")
        >>> with blz.open("t.blz") as t:
        ...     t.sample(3, seed=0).num_rows
        3
        """
        count = min(checked_count(n, "n"), len(self))
        chosen = np.random.default_rng(seed).choice(len(self), count, replace=False)
        return self.take(np.sort(chosen), columns)

    def describe(self, columns: ColumnNames | None = None) -> pd.DataFrame:
        """Return the number of values and the extremes of columns, mostly from statistics.

        Only the row groups that may hold the least or the greatest value are read. For means and
        quantiles, read the columns: ``t.to_pandas(["price"]).describe()``.

        Parameters
        ----------
        columns : sequence of str or tuple of str, optional
            Names of the columns; all by default.

        Returns
        -------
        pandas.DataFrame
            A row for each column, with its type, the numbers of values and of nulls, and the least
            and the greatest value. Nulls and NaNs are left out of these two. They are None if no
            value is left, or if values of the type have no order.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": [1, 2, None], "b": ["x", "z", "y"]}, "t.blz")
        >>> with blz.open("t.blz") as t:
        ...     print(t.describe())
             type  count  nulls min max
        a   int64      2      1   1   2
        b  string      3      0   x   z
        """
        snapshot, positions = self._reading(columns)
        return described([Column(snapshot, index, self) for index in positions])

    def statistics(self, columns: ColumnNames | None = None) -> pa.Table:
        """Return what is known of each row group without reading it.

        Only the manifest and the leaves are read.

        Parameters
        ----------
        columns : sequence of str or tuple of str, optional
            Names of the columns; all by default.

        Returns
        -------
        pyarrow.Table
            A row for each row group, with its first row `start` and the row after its last one,
            `stop`. For each column "a": `nulls.a`, the number of nulls; `min.a` and `max.a`, bounds
            of the other values without NaNs; `exact.a`, true if these two are values; `nbytes.a`
            and `cbytes.a`, the bytes in memory and on disk. What is not known is null: bounds of
            types without an order, and nulls of row groups with deleted rows.

        Examples
        --------
        >>> import blztable as blz
        >>> storage = blz.Storage(row_group_rows=2)
        >>> blz.to_blz({"a": [3, None, 7, 9], "b": list("wxyz")}, "t.blz", storage=storage)
        >>> with blz.open("t.blz") as t:
        ...     t.statistics(["a"]).drop_columns("cbytes.a").to_pandas()
           start  stop  nulls.a  min.a  max.a  exact.a  nbytes.a
        0      0     2        1      3      3     True        17
        1      2     4        0      7      9     True        16
        """
        snapshot, indices = self._reading(columns)
        return snapshot.statistics(indices)

    def dataset(
        self, *, dictionaries: Coded = None, views: bool = False, on_corrupt: OnCorrupt = "raise"
    ) -> "BlzDataset":
        """Return the version as a pyarrow Dataset, for query engines.

        The dataset shows this version, whatever is committed later, until the table is closed;
        `blztable.dataset` returns one that stays open.

        Parameters
        ----------
        dictionaries : sequence of str or "auto", optional
            Names of columns of text or binary to show as dictionary arrays of int32 indices; with
            "auto", those that nearly all rows of the largest row groups store as dictionaries.
            DuckDB shows them as text, Polars as Categorical. Most queries with such a column are
            faster.
        views : bool, optional
            If True, show other text and bytes that are stored as dictionaries as views, string_view
            or binary_view. Polars takes these without a copy, as String. DuckDB then passes no
            conditions, and few functions of pyarrow take views.
        on_corrupt : {"raise", "skip", "null"}
            What a scan does with damaged pages, as in `to_batches`.

        Returns
        -------
        BlzDataset
            A pyarrow.dataset.Dataset of the columns shown.

        Raises
        ------
        SchemaError
            `dictionaries` names a column of another type.

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
        # A separate reader, because the table may show another version after a commit.
        return datasets.text.dataset_of(
            TableReader, self._reading(), dictionaries, views, on_corrupt
        )

    def sql(self, query: str) -> Any:
        """Query the table by SQL, as the table `self`; needs DuckDB.

        Text that is stored as dictionaries is grouped and compared by its codes. The query sees the
        version shown, as long as the table is open.

        Parameters
        ----------
        query : str
            A query in the dialect of DuckDB. A column whose name is a word of SQL, or has capital
            letters that matter, stands in double quotes.

        Returns
        -------
        duckdb.DuckDBPyRelation
            The result, which is computed when it is read: with ``fetchall()``, ``df()`` or
            ``arrow()``.

        Raises
        ------
        ImportError
            DuckDB is not installed.
        SchemaError
            DuckDB lacks a type of the table: pass the other columns, ``t[["a", "b"]].sql(...)``.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"city": ["Rome", "Oslo", "Rome"], "sold": [1, 2, 3]}, "sales.blz")
        >>> with blz.open("sales.blz") as t:
        ...     t.sql("select city, sum(sold) from self group by city order by city").fetchall()
        [('Oslo', 2), ('Rome', 4)]
        """
        return datasets.sql.query(query, {"self": (self.path, self.dataset(dictionaries="auto"))})

    def verify(self, *, full: bool = True) -> Report:
        """Check the version for damage.

        Damage is reported, not raised, and does not stop the check of the rest.

        Parameters
        ----------
        full : bool, optional
            If True, check every checksum, chunk and value, and compare the statistics with the
            values. If False, check only the manifest, the leaves, and what each file says of
            itself.

        Returns
        -------
        Report
            True if nothing is wrong; else it lists the problems and the rows that are intact.

        Raises
        ------
        StorageError
            A file could not be read, for want of permission, descriptors or memory, or on a network
            file system. That says nothing of its bytes. A disk that cannot read a file any more
            (EIO) is damage, which is reported.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": [1, 2, 3]}, "t.blz")
        >>> with blz.open("t.blz") as t:
        ...     report = t.verify()
        >>> report.is_intact, report.problems, report.intact_rows("a")
        (True, (), ((0, 3),))
        """
        snapshot, visible = self._reading()
        return snapshot.verify(visible, full=full)

    @overload
    def __getitem__(self, key: Names) -> Column: ...

    @overload
    def __getitem__(self, key: list[Any]) -> "TableReader": ...

    @overload
    def __getitem__(self, key: slice) -> pa.Table: ...

    @overload
    def __getitem__(self, key: SupportsIndex) -> dict[str, Any]: ...

    def __getitem__(
        self, key: Names | list[Any] | slice | SupportsIndex
    ) -> "Column | TableReader | pa.Table | dict[str, Any]":
        """Return a column or a field, the table with some columns, rows of a slice, or one row."""
        if isinstance(key, str | tuple):
            snapshot, visible = self._reading()
            if key not in self.columns and (field := snapshot.field(key, visible)):
                return Column(*field, self)
            snapshot, indices = self._reading([key])
            if len(indices) > 1:
                raise ColumnNotFoundError(
                    f"{len(indices)} columns are named {key!r}; read them with to_arrow([{key!r}])"
                )
            return Column(snapshot, indices[0], self)
        if isinstance(key, list):
            return TableReader(*self._reading(key))
        if isinstance(key, slice):
            snapshot, visible = self._reading()
            start, stop, step = key.indices(snapshot.rows)
            if step == 1:
                return snapshot.arrow(visible, start, max(start, stop))
            return snapshot.take(visible, snapshot.numbers(range(start, stop, step)))
        if not isinstance(key, SupportsIndex) or isinstance(key, bool):
            raise TypeError(
                "a table is indexed by a column name, a list of column names, a slice of rows or "
                f"the number of a row, not by {type(key).__name__}; read several rows with take()"
            )
        return self._row(operator.index(key))

    def _row(self, number: int) -> dict[str, Any]:
        """Return one row as Python values by column name; a negative number counts from the end."""
        names = self.columns
        if len(set(names)) < len(names):
            raise SchemaError(
                f"{self.path}: several columns share a name, so a row is no dict; use take()"
            )
        if not -len(self) <= number < len(self):
            raise IndexError(f"row {number} of a table of {len(self)} rows")
        row = self.take([number % len(self)]).to_pylist()
        return dict(row[0])

    def __arrow_c_schema__(self) -> object:
        """Return the schema as an Arrow PyCapsule, without opening a stream."""
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as an Arrow PyCapsule stream; like `to_batches`, it decodes as read."""
        return Batches(*self._reading()).__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        snapshot, visible = self._reading()
        fields = [snapshot.fields.field(index) for index in visible[:COLUMNS_PRINTED]]
        names = [short_text(field.name) for field in fields]
        width = max(map(len, names), default=0)
        lines = [
            f"<{type(self).__name__} {self.path}, version {self.version}: "
            f"{counted(len(self), 'row')} x {counted(len(visible), 'column')}, "
            f"{size_text(self.nbytes)} in {size_text(self.cbytes)}>"
        ]
        lines += [
            f"  {name:<{width}}  {field.type}" for name, field in zip(names, fields, strict=True)
        ]
        if len(visible) > COLUMNS_PRINTED:
            lines.append(f"  ... and {len(visible) - COLUMNS_PRINTED:,} more columns")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the names, the types and the first rows as a table of a notebook."""
        snapshot, visible = self._reading()
        some, title = visible[:COLUMNS_IN_HTML], repr(self).splitlines()[0].strip("<>")
        try:
            rows, why = snapshot.arrow(some, 0, min(HEAD, snapshot.rows)), ""
        except CorruptError as error:
            rows, why = no_rows(snapshot.schema(some)), str(error)
        except BlzError as error:
            # It is closed, or its files cannot be read now.
            return f"<p>{escape(f'{title}: {error}')}</p>"
        return as_html(title, rows, (snapshot.rows, len(visible)), why)

    def _ipython_key_completions_(self) -> list[str]:
        return self.columns

    def _reading(
        self, columns: ColumnNames | None = None, dictionaries: Coded = None
    ) -> tuple[Snapshot, Sequence[int]]:
        """Return the snapshot to read and the indices of these columns, all shown by default.

        Of a nested column of which fields are named, only these are shown. The columns named in
        `dictionaries` are shown as dictionaries; with "auto", those that are stored so.
        Called once per read: a commit in another thread replaces the snapshot.
        """
        snapshot = self._snapshot
        everything = range(len(snapshot.projection.schema))
        visible = everything if self._columns is None else self._columns
        snapshot, positions = snapshot.showing(columns, visible)
        if dictionaries == "auto":
            snapshot = snapshot.with_dictionaries(datasets.text.coded(snapshot, positions))
        elif dictionaries is not None:
            as_dictionary = snapshot.positions(dictionaries, visible, "dictionaries")
            snapshot = snapshot.with_dictionaries(as_dictionary)
        return snapshot, positions

    def _fragments(self) -> list["RowRange"]:
        """Return readers of a few row groups each, which have all rows, for scans in parts."""
        self._snapshot.check_open()
        return datasets.ranges.RowRange.all(*self._reading())

    def _set_attributes(self, changes: Mapping[str, Any], removed: Sequence[str]) -> None:
        raise self._read_only()

    def _layers(self) -> Layers:
        return self._snapshot.version.head.metalayers

    def _set_layers(self, changes: Mapping[LayerKey, bytes | None]) -> None:
        raise self._read_only()

    def _read_only(self) -> ReadOnlyError:
        return ReadOnlyError(f"{self.path} cannot be changed; open the table with mode='a'")

    def _show_version(self, version: Version, pinned: Lock) -> None:
        """Read a newer version from here on."""
        # The old snapshot is released, not closed: columns and threads may still read from it.
        before, self._snapshot = self._snapshot, Snapshot(version, pinned)
        self._snapshot.keep(before.hold_seconds, is_needed=False)
        if before.is_closed:
            # The user closed the table while a transaction was open.
            self._snapshot.close()
