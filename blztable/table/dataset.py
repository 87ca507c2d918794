"""BlzDataset: a version of a table as pyarrow's Dataset, which query engines scan.

They say which columns and which rows they want, and are given no others. Knows nothing of files:
whatever reads columns by a filter, a view, does the work.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs

from blztable.engine.query import expressions
from blztable.errors import SchemaError
from blztable.table.batches import Batches, cast, without_views

# Names, or expressions by the names of their results, as pyarrow's own datasets take them.
Projection = Sequence[str] | Mapping[str, pc.Expression]

# The one file of every dataset: what of Arrow's own code goes round the methods below looks for it,
# and says so.
_SENTINEL = "/no file: Arrow cannot scan a blztable dataset by itself; use its to_table()"


# Arguments of pyarrow's scanners that change nothing here.
_OF_NO_EFFECT = {
    *("batch_readahead", "fragment_readahead", "fragment_scan_options", "use_threads"),
    *("cache_metadata", "memory_pool"),
}


class Readable(Protocol):
    """What is scanned: some columns of a version."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the columns."""

    def to_arrow(self, columns: Sequence[str] | None = None, *, filters: Any = None) -> pa.Table:
        """The rows that a filter keeps, as a table."""

    def to_batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        filters: Any = None,
        batch_rows: int | None = None,
    ) -> Batches:
        """The rows that a filter keeps, as a stream."""

    def take(self, indices: Any, columns: Sequence[str] | None = None) -> pa.Table:
        """Rows by their numbers."""

    def count(self, *, filters: Any = None) -> int:
        """How many rows a filter keeps."""


class _Scannable:
    """What a dataset and its fragment can do once they have a scanner."""

    def scanner(self, *args: Any, **options: Any) -> "BlzScan":
        raise NotImplementedError

    def to_batches(self, *args: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        """The batches of the `scanner` of these arguments."""
        return self.scanner(*args, **options).to_batches()

    def to_table(self, *args: Any, **options: Any) -> pa.Table:
        """The rows of the `scanner` of these arguments."""
        return self.scanner(*args, **options).to_table()

    def head(self, num_rows: int, *args: Any, **options: Any) -> pa.Table:
        """The first rows of the `scanner` of the other arguments."""
        return self.scanner(*args, **options).head(num_rows)

    def take(self, indices: Any, *args: Any, **options: Any) -> pa.Table:
        """Rows, by their numbers, of the `scanner` of the other arguments."""
        return self.scanner(*args, **options).take(indices)

    def count_rows(self, filter: pc.Expression | None = None, **options: Any) -> int:
        """How many rows a filter keeps; no more than its columns are read."""
        return self.scanner(filter=filter, **options).count_rows()


class BlzDataset(_Scannable, ds.FileSystemDataset):  # type: ignore[misc]
    """A version of a table as a pyarrow Dataset: engines read the columns and rows they need.

    DuckDB, Polars (`scan_pyarrow_dataset`), DataFusion (`register_dataset`), and what is built on
    them, hand down the columns of a query and the part of its conditions that Arrow can express;
    row groups and pages that cannot hold such rows are passed over. Made by `CTable.dataset` and
    `blztable.dataset`.

    The schema is that of the table, but views of text and bytes are large text and bytes, with
    which all engines can compare. A type that an engine does not take, as DuckDB does not take
    float16, is refused there; choose other columns, `t[["a", "b"]].dataset()`. A column whose name
    is there twice cannot be read.

    It holds its version, may be scanned by threads at the same time, and pickles as path, version
    and filter. `sort_by`, `join`, `join_asof` and `replace_schema` are not supported, nor a union
    with other datasets: `to_table` first.

    Examples
    --------
    >>> import blztable as blz
    >>> import pyarrow.compute as pc
    >>> blz.to_blz({"n": [1, 2, 3], "word": ["a", "b", "c"]}, "words.blz")
    >>> d = blz.dataset("words.blz")
    >>> d.to_table(columns=["word"], filter=pc.field("n") > 1).to_pydict()
    {'word': ['b', 'c']}
    """

    def __init__(self, source: Readable, filter: pc.Expression | None = None) -> None:
        format_, disk = ds.IpcFileFormat(), pyarrow.fs.LocalFileSystem()
        sentinel = format_.make_fragment(_SENTINEL, disk)
        super().__init__([sentinel], without_views(source.schema), format_, disk)
        self._source = source
        self._filter = filter

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._source, self._filter)

    def filter(self, expression: pc.Expression) -> Self:
        """The dataset of the rows that a filter keeps, beside those before it."""
        expression = expressions.as_expression(expression, self.schema)
        expressions.check(expression, self.schema)
        return type(self)(self._source, _both(self._filter, expression))

    def scanner(
        self,
        columns: Projection | None = None,
        filter: pc.Expression | None = None,
        batch_size: int | None = None,
        **others: Any,
    ) -> "BlzScan":
        """What a query needs, to be read as a table or a stream, as often as one likes.

        Parameters
        ----------
        columns : list of str, or dict of expressions, optional
            Names of columns, or what is computed from them, by the names of the results.
        filter : pyarrow.compute.Expression, optional
            Which rows; its columns need not be among `columns`.
        batch_size : int, optional
            The most rows of a batch.

        Further arguments of pyarrow's datasets, how far to read ahead and by how many threads, are
        taken and change nothing.
        """
        if unknown := others.keys() - _OF_NO_EFFECT:
            raise TypeError(f"unexpected keyword argument {min(unknown)!r}")
        if filter is not None:
            filter = expressions.as_expression(filter, self.schema)
        return BlzScan(self._source, columns, _both(self._filter, filter), batch_size)

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator["BlzFragment"]:
        """The one fragment there is, with all rows: it is decoded by all processors.

        The filter is checked only, as pyarrow's leave out fragments by it, and no rows of them.
        """
        if filter is not None:
            expressions.check(expressions.as_expression(filter), self.schema)
        return iter([BlzFragment(self)])

    def _is_refused(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError("not by a blztable dataset; call its to_table() first")

    sort_by = join = join_asof = replace_schema = _is_refused


class BlzFragment(_Scannable):
    """All rows of a dataset, for engines that scan it fragment by fragment."""

    def __init__(self, dataset: BlzDataset) -> None:
        self._dataset = dataset

    @property
    def physical_schema(self) -> pa.Schema:
        """The schema, that of the dataset."""
        return self._dataset.schema

    @property
    def partition_expression(self) -> pc.Expression:
        """True of all rows."""
        return pc.scalar(True)

    def scanner(self, schema: pa.Schema | None = None, *args: Any, **options: Any) -> "BlzScan":
        """As that of the dataset, whatever the schema."""
        return self._dataset.scanner(*args, **options)


class BlzScan:
    """Columns of the rows that a filter keeps, as pyarrow's Scanner gives them.

    Not one of pyarrow's: those fetch batches in threads of Arrow's, and a process that ends while
    one of these is in Python hangs.
    """

    def __init__(
        self,
        source: Readable,
        columns: Projection | None,
        filter: pc.Expression | None,
        batch_rows: int | None,
    ) -> None:
        schema = without_views(source.schema)
        if filter is not None:
            expressions.check(filter, schema)
        self._source = source
        self._filter = filter
        self._batch_rows = batch_rows
        self._names = columns if not isinstance(columns, Mapping) else None
        # What is made of the columns read; nothing where they are given out as they are.
        self._made: list[_Made] = []
        if isinstance(columns, Mapping):
            self._made = [_Made.of(name, columns[name], schema) for name in columns]
            self._names = list(dict.fromkeys(name for one in self._made for name in one.needs))
        times = Counter(schema.names)
        for name in schema.names if self._names is None else self._names:
            if times[name] > 1:
                raise SchemaError(f"column {name!r} is there twice; a dataset needs one")
        # Asked for now: it tells of columns that are not there.
        stored = source.to_batches(self._names).schema
        # The metadata are the dataset's, as with pyarrow's own: DataFusion compares them.
        self._read = without_views(stored).with_metadata(schema.metadata)
        self._is_as_stored = self._read == stored and not self._made

    @property
    def dataset_schema(self) -> pa.Schema:
        """The schema of the table."""
        return without_views(self._source.schema)

    @property
    def projected_schema(self) -> pa.Schema:
        """The schema of the batches."""
        made = pa.schema([one.field for one in self._made], self._read.metadata)
        return made if self._made else self._read

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a RecordBatchReader."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as batches."""
        rows = self._source.to_batches(
            self._names, filters=self._filter, batch_rows=self._batch_rows
        )
        if self._is_as_stored:
            return rows
        batches = (cast(batch, self._read) for batch in rows)
        return map(self._make, batches) if self._made else batches

    def to_table(self) -> pa.Table:
        """The rows as a table."""
        if self._is_as_stored:
            return self._source.to_arrow(self._names, filters=self._filter)
        return self.to_reader().read_all()

    def head(self, num_rows: int) -> pa.Table:
        """The first rows."""
        taken: list[pa.RecordBatch] = []
        left = num_rows
        with self.to_reader() as reader:
            while left > 0 and (batch := next(reader, None)) is not None:
                taken.append(batch.slice(0, left))
                left -= taken[-1].num_rows
        return pa.Table.from_batches(taken, reader.schema)

    def take(self, indices: Any) -> pa.Table:
        """Rows by their numbers among those read."""
        if self._is_as_stored and self._filter is None:
            return self._source.take(indices, self._names)
        return self.to_table().take(indices)

    def count_rows(self) -> int:
        """How many rows there are; no more than the filter's columns are read."""
        return self._source.count(filters=self._filter)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows as an Arrow PyCapsule stream."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def _make(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [one.array(batch) for one in self._made]
        return pa.RecordBatch.from_arrays(arrays, schema=self.projected_schema)


@dataclass(frozen=True)
class _Made:
    """A column given out: the columns it is made of, and the expression, if it is not just one."""

    field: pa.Field
    needs: tuple[str, ...]
    expression: pc.Expression | None = None

    @classmethod
    def of(cls, name: str, expression: pc.Expression, schema: pa.Schema) -> Self:
        """What an expression over columns of this schema makes."""
        needs = tuple(schema.names[index] for index in expressions.columns_of(expression, schema))
        if len(needs) == 1 and expression.equals(pc.field(needs[0])):
            return cls(schema.field(needs[0]).with_name(name), needs)
        return cls(pa.field(name, expressions.type_of(expression, schema)), needs, expression)

    def array(self, batch: pa.RecordBatch) -> pa.Array:
        """Its values for the rows of a batch."""
        if self.expression is None:
            return batch.column(self.needs[0])
        columns = {name: pa.chunked_array([batch.column(name)]) for name in self.needs}
        return expressions.evaluate(self.expression, columns, batch.num_rows).combine_chunks()


def _both(one: pc.Expression | None, other: pc.Expression | None) -> pc.Expression | None:
    """The filter of the rows that both keep."""
    if one is None or other is None:
        return other if one is None else one
    return one & other
