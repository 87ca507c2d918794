"""BlzDataset: a version of a table as a pyarrow Dataset, which query engines scan.

An engine asks for columns and a filter, and gets only these columns and rows. Knows nothing of
files: a TableReader does the work.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs

from blztable.arrow.extensions import plain_schema
from blztable.engine.query import expressions
from blztable.engine.read.damage import OnCorrupt
from blztable.errors import SchemaError
from blztable.report import counted, short_text
from blztable.table.batches import Batches, cast, without_views
from blztable.table.display import rows_of

# Names, or a mapping of result names to expressions, as in pyarrow's own datasets.
ScanColumns = Sequence[str] | Mapping[str, pc.Expression]

# The one file of every dataset: Arrow code that bypasses the methods below looks for it, and its
# error shows this name.
_SENTINEL = "/no file: Arrow cannot scan a blztable dataset by itself; use its to_table()"
# Columns that a dataset names when it is shown.
NAMES_PRINTED = 10


# Arguments of pyarrow's scanners that have no effect here.
_OF_NO_EFFECT = {
    "batch_readahead",
    "fragment_readahead",
    "fragment_scan_options",
    "use_threads",
    "cache_metadata",
    "memory_pool",
}


class Readable(Protocol):
    """The part of a TableReader that a scan needs."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the columns."""

    def __getitem__(self, key: list[str]) -> "Readable":
        """Return a reader of these columns."""

    def to_arrow(self, *, filters: Any = None) -> pa.Table:
        """Read the rows that meet a condition into a table."""

    def to_batches(
        self, *, filters: Any = None, batch_rows: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read the rows that meet a condition as a stream."""

    def take(self, indices: Any) -> pa.Table:
        """Read rows by number."""

    def count(self, *, filters: Any = None) -> int:
        """Count the rows that meet a condition."""

    def _fragments(self) -> Sequence["Readable"]:
        """Return readers of a few row groups each, which have all rows together."""


class Salvageable(Protocol):
    """The part of a TableReader that reads in spite of damage."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the columns."""

    def __getitem__(self, key: list[str]) -> "Salvageable":
        """Return a reader of these columns."""

    def to_arrow(self, *, filters: Any, on_corrupt: OnCorrupt) -> pa.Table:
        """Read the rows that meet a condition into a table."""

    def to_batches(self, *, filters: Any, batch_rows: int | None, on_corrupt: OnCorrupt) -> Batches:
        """Read the rows that meet a condition as a stream."""


@dataclass(frozen=True)
class Salvaging:
    """A reader that leaves out damaged rows, or makes damaged values null."""

    source: Salvageable
    on_corrupt: OnCorrupt

    @property
    def schema(self) -> pa.Schema:
        """The schema of the columns, which may all get nulls."""
        schema = self.source.schema
        if self.on_corrupt != "null":
            return schema
        return pa.schema([field.with_nullable(True) for field in schema], schema.metadata)

    def __getitem__(self, key: list[str]) -> "Salvaging":
        return type(self)(self.source[key], self.on_corrupt)

    def to_arrow(self, *, filters: Any = None) -> pa.Table:
        """Read the rows that meet a condition into a table."""
        table = self.source.to_arrow(filters=filters, on_corrupt=self.on_corrupt)
        return table.cast(self.schema)

    def to_batches(self, *, filters: Any = None, batch_rows: int | None = None) -> Batches:
        """Read the rows that meet a condition as a stream."""
        return self.source.to_batches(
            filters=filters, batch_rows=batch_rows, on_corrupt=self.on_corrupt
        )

    def take(self, indices: Any) -> pa.Table:
        """Read rows by number, counted without those left out."""
        return rows_of(self.to_arrow(), indices)

    def count(self, *, filters: Any = None) -> int:
        """Count the rows that a scan of all columns returns."""
        return sum(batch.num_rows for batch in self.to_batches(filters=filters))

    def _fragments(self) -> "list[Salvaging]":
        """Return the reader itself."""
        return [self]


class _Scannable:
    """Methods that a dataset and its fragment derive from `scanner`."""

    def scanner(self, *args: Any, **options: Any) -> "BlzScan":
        raise NotImplementedError

    def to_batches(self, *args: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        """Read some columns and rows as a stream of record batches.

        Parameters
        ----------
        *args : Any
            Arguments of `scanner`: columns, filter, batch_size.
        **options : Any
            Keyword arguments of `scanner`.

        Returns
        -------
        iterator of pyarrow.RecordBatch
            The rows that meet the condition, in stored order.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1, 2, 3]}, "t.blz")
        >>> [batch.num_rows for batch in blz.dataset("t.blz").to_batches(batch_size=2)]
        [2, 1]
        """
        return self.scanner(*args, **options).to_batches()

    def to_table(self, *args: Any, **options: Any) -> pa.Table:
        """Read some columns and rows into an Arrow table.

        Parameters
        ----------
        *args : Any
            Arguments of `scanner`: columns, filter, batch_size.
        **options : Any
            Keyword arguments of `scanner`.

        Returns
        -------
        pyarrow.Table
            The rows that meet the condition, in stored order.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1, 2, 3]}, "t.blz")
        >>> blz.dataset("t.blz").to_table(["n"]).to_pydict()
        {'n': [1, 2, 3]}
        """
        return self.scanner(*args, **options).to_table()

    def head(self, num_rows: int, *args: Any, **options: Any) -> pa.Table:
        """Read the first rows into an Arrow table.

        Parameters
        ----------
        num_rows : int
            Maximum number of rows.
        *args : Any
            Arguments of `scanner`: columns, filter, batch_size.
        **options : Any
            Keyword arguments of `scanner`.

        Returns
        -------
        pyarrow.Table
            The first rows that meet the condition.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1, 2, 3]}, "t.blz")
        >>> blz.dataset("t.blz").head(2).to_pydict()
        {'n': [1, 2]}
        """
        return self.scanner(*args, **options).head(num_rows)

    def take(self, indices: Any, *args: Any, **options: Any) -> pa.Table:
        """Read rows by number into an Arrow table.

        Parameters
        ----------
        indices : array-like of int
            Numbers of rows among those that meet the condition, with shape (n,).
        *args : Any
            Arguments of `scanner`: columns, filter, batch_size.
        **options : Any
            Keyword arguments of `scanner`.

        Returns
        -------
        pyarrow.Table
            Row `i` is row `indices[i]`: n rows.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1, 2, 3]}, "t.blz")
        >>> blz.dataset("t.blz").take([2, 0]).to_pydict()
        {'n': [3, 1]}
        """
        return self.scanner(*args, **options).take(indices)

    def count_rows(self, filter: pc.Expression | None = None, **options: Any) -> int:
        """Count the rows that meet a condition; only its columns are read.

        Parameters
        ----------
        filter : pyarrow.compute.Expression, optional
            Condition that a row must meet; all rows by default.
        **options : Any
            Keyword arguments of `scanner`.

        Returns
        -------
        int
            Number of rows.

        Examples
        --------
        >>> import blztable as blz
        >>> import pyarrow.compute as pc
        >>> blz.to_blz({"n": [1, 2, 3]}, "t.blz")
        >>> blz.dataset("t.blz").count_rows(pc.field("n") > 1)
        2
        """
        return self.scanner(filter=filter, **options).count_rows()


class BlzDataset(_Scannable, ds.FileSystemDataset):  # type: ignore[misc]
    """A version of a table as a pyarrow Dataset: engines read the columns and rows they need.

    Made by `CTable.dataset` and `blztable.dataset`. DuckDB, Polars (`scan_pyarrow_dataset`) and
    DataFusion (`register_dataset`) pass the columns of a query, and the conditions that Arrow can
    express; row groups and pages that cannot hold such rows are skipped.

    The schema is the table's, with large text and bytes instead of views, because all engines can
    compare these. An engine refuses types that it does not know, as DuckDB refuses float16: choose
    the other columns, `t[["a", "b"]].dataset()`. Columns that share a name cannot be read.

    The dataset keeps its version, may be scanned by several threads, and pickles as path, version
    and filter. `sort_by`, `join`, `join_asof`, `replace_schema` and unions with datasets of others
    are not supported; call `to_table` first. `blztable.dataset` unites several tables. Each method
    that reads raises ColumnNotFoundError and SchemaError as `scanner`, and CorruptError if a file
    is damaged or missing.

    References
    ----------
    pyarrow datasets, https://arrow.apache.org/docs/python/dataset.html

    Examples
    --------
    >>> import blztable as blz
    >>> import pyarrow.compute as pc
    >>> blz.to_blz({"n": [1, 2, 3], "word": ["a", "b", "c"]}, "words.blz")
    >>> d = blz.dataset("words.blz")
    >>> d.to_table(columns=["word"], filter=pc.field("n") > 1).to_pydict()
    {'word': ['b', 'c']}
    """

    def __init__(
        self,
        source: Readable,
        filter: pc.Expression | None = None,
        schema: pa.Schema | None = None,
    ) -> None:
        """Show the columns of a reader, by default in their own types without views."""
        schema = without_views(source.schema) if schema is None else schema
        format_, disk = ds.IpcFileFormat(), pyarrow.fs.LocalFileSystem()
        sentinel = format_.make_fragment(_SENTINEL, disk)
        super().__init__([sentinel], schema, format_, disk)
        self.source = source
        self._filter = filter

    def __repr__(self) -> str:
        names = ", ".join(map(short_text, self.schema.names[:NAMES_PRINTED]))
        more = ", ..." if len(self.schema) > NAMES_PRINTED else ""
        return f"<{type(self).__name__} of {counted(len(self.schema), 'column')}: {names}{more}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.source, self._filter, self.schema)

    def filter(self, expression: pc.Expression) -> Self:
        """Return a dataset of the rows that meet a condition, besides earlier ones.

        Parameters
        ----------
        expression : pyarrow.compute.Expression
            Condition that a row must meet.

        Returns
        -------
        BlzDataset
            A dataset of the same version; nothing is read.

        Examples
        --------
        >>> import blztable as blz
        >>> import pyarrow.compute as pc
        >>> blz.to_blz({"n": [1, 2, 3]}, "t.blz")
        >>> blz.dataset("t.blz").filter(pc.field("n") > 1).count_rows()
        2
        """
        expression = expressions.as_expression(expression, _compared(self.schema))
        expressions.check(expression, _compared(self.schema))
        return type(self)(self.source, _both(self._filter, expression), self.schema)

    def scanner(
        self,
        columns: ScanColumns | None = None,
        filter: pc.Expression | None = None,
        batch_size: int | None = None,
        **others: Any,
    ) -> "BlzScan":
        """Return a scan of some columns and rows, which can be read several times.

        Parameters
        ----------
        columns : list of str, or dict of str to pyarrow.compute.Expression, optional
            Names of columns, or names of results and how to compute them; all columns by default.
        filter : pyarrow.compute.Expression, optional
            Condition that a row must meet. Its columns need not be among `columns`.
        batch_size : int, optional
            Maximum number of rows of a batch.
        **others : Any
            Further arguments of pyarrow's scanners, such as `use_threads`, have no effect.

        Returns
        -------
        BlzScan
            An object with the methods of pyarrow.dataset.Scanner.

        Raises
        ------
        SchemaError
            A condition or expression does not fit the types of its columns, or columns share a
            name.

        Examples
        --------
        >>> import blztable as blz
        >>> import pyarrow.compute as pc
        >>> blz.to_blz({"n": [1, 2, 3]}, "t.blz")
        >>> scan = blz.dataset("t.blz").scanner({"double": pc.field("n") * 2})
        >>> scan.to_table().to_pydict()
        {'double': [2, 4, 6]}
        """
        if unknown := others.keys() - _OF_NO_EFFECT:
            raise TypeError(f"unexpected keyword argument {min(unknown)!r}")
        if filter is not None:
            filter = expressions.as_expression(filter, _compared(self.schema))
        return BlzScan(self.source, self.schema, columns, _both(self._filter, filter), batch_size)

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator["BlzFragment"]:
        """Return fragments of a few row groups each; one is decoded by all processors.

        Parameters
        ----------
        filter : pyarrow.compute.Expression, optional
            Checked, but not applied: as in pyarrow, it could only leave out whole fragments.

        Returns
        -------
        iterator of BlzFragment
            They have all rows, in the order of the dataset.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1, 2, 3]}, "t.blz")
        >>> [one.count_rows() for one in blz.dataset("t.blz").get_fragments()]
        [3]
        """
        if filter is not None:
            schema = _compared(self.schema)
            expressions.check(expressions.as_expression(filter, schema), schema)
        return (BlzFragment(self, part) for part in self.source._fragments())

    def _is_refused(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError("a blztable dataset cannot do this; call its to_table() first")

    sort_by = join = join_asof = replace_schema = _is_refused


class BlzFragment(_Scannable):
    """Some rows of a dataset, for engines that scan it fragment by fragment."""

    def __init__(self, dataset: BlzDataset, source: Readable) -> None:
        self._dataset = type(dataset)(source, dataset._filter, dataset.schema)

    @property
    def physical_schema(self) -> pa.Schema:
        """Arrow schema of the dataset."""
        return self._dataset.schema

    @property
    def partition_expression(self) -> pc.Expression:
        """Expression that is true for all rows."""
        return pc.scalar(True)

    def scanner(self, schema: pa.Schema | None = None, *args: Any, **options: Any) -> "BlzScan":
        """Return `BlzDataset.scanner`; the schema has no effect."""
        return self._dataset.scanner(*args, **options)


class BlzScan:
    """Columns of the rows that meet a condition, with the methods of pyarrow's Scanner.

    It is not a pyarrow Scanner: those fetch batches in Arrow's threads, and a process that ends
    while one of these threads runs Python hangs.
    """

    def __init__(
        self,
        source: Readable,
        schema: pa.Schema,
        columns: ScanColumns | None,
        filter: pc.Expression | None,
        batch_rows: int | None,
    ) -> None:
        if filter is not None:
            expressions.check(filter, _compared(schema))
        if isinstance(columns, str):
            raise TypeError(f"columns must be a list of names, not a str; pass [{columns!r}]")
        self._schema = schema
        self._filter = filter
        self._batch_rows = batch_rows
        # Columns computed from those read; empty if columns are returned as stored.
        self._computed: list[_ComputedColumn] = []
        if isinstance(columns, Mapping):
            # Arrow computes nothing of views.
            schema = without_views(schema)
            self._computed = [_ComputedColumn.of(name, columns[name], schema) for name in columns]
            columns = list(
                dict.fromkeys(name for column in self._computed for name in column.needs)
            )
        times = Counter(schema.names)
        for name in schema.names if columns is None else columns:
            if times[name] > 1:
                raise SchemaError(
                    f"{times[name]} columns are named {name!r}; rename one with rename_columns(), "
                    "or choose other columns"
                )
        # Made here and not later, so that missing columns raise at once.
        self.source = source if columns is None else source[list(columns)]
        stored = self.source.schema
        # The metadata are the dataset's, as in pyarrow: DataFusion compares them.
        fields = (
            schema.field(field.name) if field.name in times else field
            for field in without_views(stored)
        )
        self._read = pa.schema(fields, schema.metadata)
        self._is_as_stored = self._read == stored and not self._computed

    @property
    def dataset_schema(self) -> pa.Schema:
        """Arrow schema of the dataset."""
        return self._schema

    @property
    def projected_schema(self) -> pa.Schema:
        """Arrow schema of the batches."""
        computed = pa.schema([column.field for column in self._computed], self._read.metadata)
        return computed if self._computed else self._read

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a RecordBatchReader."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Return an iterator of the rows as batches."""
        rows = self.source.to_batches(filters=self._filter, batch_rows=self._batch_rows)
        return rows if self._is_as_stored else map(self._made, rows)

    def to_table(self) -> pa.Table:
        """Read the rows into a table."""
        if self._is_as_stored:
            return self.source.to_arrow(filters=self._filter)
        return self.to_reader().read_all()

    def head(self, num_rows: int) -> pa.Table:
        """Read the first rows into a table."""
        taken: list[pa.RecordBatch] = []
        left = num_rows
        with self.to_reader() as reader:
            while left > 0 and (batch := next(reader, None)) is not None:
                taken.append(batch.slice(0, left))
                left -= taken[-1].num_rows
        return pa.Table.from_batches(taken, reader.schema)

    def take(self, indices: Any) -> pa.Table:
        """Read rows by their numbers in the result."""
        if self._filter is None:
            table = self.source.take(indices)
        else:
            table = rows_of(self.source.to_arrow(filters=self._filter), indices)
        if self._is_as_stored:
            return table
        batches = [self._made(batch) for batch in table.to_batches()]
        return pa.Table.from_batches(batches, self.projected_schema)

    def count_rows(self) -> int:
        """Count the rows; only the filter's columns are read."""
        return self.source.count(filters=self._filter)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as an Arrow PyCapsule stream."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def _made(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of the source as one of the result."""
        batch = cast(batch, self._read)
        if not self._computed:
            return batch
        arrays = [column.array(batch) for column in self._computed]
        return pa.RecordBatch.from_arrays(arrays, schema=self.projected_schema)


@dataclass(frozen=True)
class _ComputedColumn:
    """A column of the result: its field, its input columns, and its expression, if any."""

    field: pa.Field
    needs: tuple[str, ...]
    expression: pc.Expression | None = None

    @classmethod
    def of(cls, name: str, expression: pc.Expression, schema: pa.Schema) -> Self:
        """Return the column that an expression over this schema makes."""
        needs = tuple(schema.names[index] for index in expressions.columns_of(expression, schema))
        if len(needs) == 1 and expression.equals(pc.field(needs[0])):
            return cls(schema.field(needs[0]).with_name(name), needs)
        return cls(pa.field(name, expressions.type_of(expression, schema)), needs, expression)

    def array(self, batch: pa.RecordBatch) -> pa.Array:
        """Compute its values for the rows of a batch."""
        if self.expression is None:
            return batch.column(self.needs[0])
        columns = {name: pa.chunked_array([batch.column(name)]) for name in self.needs}
        return expressions.evaluate(self.expression, columns, batch.num_rows).combine_chunks()


def _compared(schema: pa.Schema) -> pa.Schema:
    """Return a schema with the types that a filter meets: without views and extensions."""
    return plain_schema(without_views(schema))


def _both(one: pc.Expression | None, other: pc.Expression | None) -> pc.Expression | None:
    """Return the conjunction of two filters."""
    if one is None or other is None:
        return other if one is None else one
    return one & other
