"""CTable and Column: one version of a table, held open. The one room between frames and disk.

A table shows one snapshot for its life: it pins its version, so nothing of it is removed while the
table is open. After a commit of its own it shows the version it published.
"""

import os
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from types import TracebackType
from typing import Any, Self, overload

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.extensions import no_default

from blztable.convert.attributes import checked_attrs
from blztable.convert.descriptor import FIELD_KEY
from blztable.convert.frame import index_fields, to_frame
from blztable.convert.interop import arrow_metadata
from blztable.engine.operations import set_attributes
from blztable.engine.read import read_columns, spans
from blztable.engine.versions import Lock, Version
from blztable.errors import BlzError, ColumnNotFoundError, ReadOnlyError

PANDAS_KEY = b"pandas"
# Columns a repr shows before it says how many more there are.
SHOWN = 40


class CTable:
    """One version of a table on disk, opened for reading.

    Made by `open` and `create`. A context manager: closing lets go of the version, so that it can
    be removed when newer ones have taken its place. A table may be shared by threads.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"city": ["Rome", "Oslo"], "people": [2_748_000, 717_000]}, "cities.blz")
    >>> with blz.open("cities.blz") as t:
    ...     print(t.nrows, t.column_names)
    ...     print(t["people"][0])
    2 ['city', 'people']
    2748000
    """

    def __init__(
        self,
        version: Version,
        pinned: Lock,
        *,
        writable: bool,
        columns: Sequence[int] | None = None,
    ) -> None:
        self._version = version
        self._pinned = pinned
        self._writable = writable
        self._pid = os.getpid()
        self._is_closed = False
        # Positions of the columns shown, None for all of them.
        self._columns = columns

    @property
    def nrows(self) -> int:
        """Number of rows."""
        return self._version.head.rows

    def __len__(self) -> int:
        """Number of rows."""
        return self.nrows

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema: exactly the one that was written, for data that came from Arrow."""
        return self._public_schema(self._shown)

    @property
    def column_names(self) -> list[str]:
        """Names of the columns in their order; a stored index is among them."""
        return [self._version.schema.field(index).name for index in self._shown]

    @property
    def nbytes(self) -> int:
        """Bytes of the columns, uncompressed."""
        return sum(self._version.head.columns.nbytes[index] for index in self._shown)

    @property
    def cbytes(self) -> int:
        """Bytes of the columns' files."""
        return sum(self._version.head.columns.cbytes[index] for index in self._shown)

    @property
    def version(self) -> int:
        """Number of the version shown; it grows by one with every commit."""
        return self._version.head.version

    @property
    def path(self) -> str:
        """Where the table is."""
        return self._version.store.name

    @property
    def attrs(self) -> "Attributes":
        """The table's attributes, a mapping of JSON values; an assignment is one commit.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"a": [1]}, "t.blz", attrs={"source": "till 7"})
        >>> with blz.open("t.blz", mode="a") as t:
        ...     t.attrs["checked"] = True
        ...     print(t.attrs, t.version)
        {'source': 'till 7', 'checked': True} 2
        """
        return Attributes(self)

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Read into an Arrow table.

        Parameters
        ----------
        columns : sequence of str, optional
            The columns to read, in this order; all by default. Of columns that share a name, all
            are read.

        Raises
        ------
        ColumnNotFoundError
            No column has one of these names.
        CorruptError
            A file is damaged or missing.
        """
        return self._arrow(self._positions(columns), 0, self.nrows)

    def to_pandas(
        self, columns: Sequence[str] | None = None, *, dtype_backend: Any = no_default
    ) -> pd.DataFrame:
        """Read into a DataFrame that shares its memory with what was decoded, and is writable.

        Parameters
        ----------
        columns : sequence of str, optional
            The columns to read, in this order; all by default. The index is restored beside them.
        dtype_backend : {"numpy_nullable", "pyarrow"}, optional
            As in pandas. With "pyarrow" dates and decimals stay Arrow values instead of one Python
            object each, which is many times faster.

        Raises
        ------
        ColumnNotFoundError
            No column has one of these names.
        CorruptError
            A file is damaged or missing.
        """
        return self._pandas(columns, 0, self.nrows, dtype_backend)

    def head(self, n: int = 5) -> pa.Table:
        """The first `n` rows as an Arrow table; only the pages that hold them are decoded."""
        if n < 0:
            raise ValueError(f"a number of rows from 0, not {n}")
        return self._arrow(self._shown, 0, min(n, self.nrows))

    @overload
    def __getitem__(self, key: str) -> "Column": ...

    @overload
    def __getitem__(self, key: list[str]) -> "CTable": ...

    def __getitem__(self, key: str | list[str]) -> "Column | CTable":
        """One column by its name; or the table narrowed to a list of columns, same snapshot."""
        if isinstance(key, str):
            positions = self._positions([key])
            if len(positions) > 1:
                raise ColumnNotFoundError(f"{len(positions)} columns are named {key!r}")
            return Column(self, positions[0])
        if isinstance(key, list):
            positions = self._positions(key)
            return CTable(self._version, self._pinned, writable=False, columns=positions)
        raise TypeError(f"a column name or a list of them, not {type(key).__name__}")

    def __arrow_c_schema__(self) -> object:
        """The schema as an Arrow PyCapsule, without opening a stream."""
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The table as an Arrow PyCapsule stream, read row group by row group."""
        self._check_open()
        reader = pa.RecordBatchReader.from_batches(self.schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def close(self) -> None:
        """Let go of the version; reading afterwards is an error."""
        self._is_closed = True
        if self._columns is None:
            self._pinned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        names = self.column_names
        width = max(map(len, map(_short, names[:SHOWN])), default=0)
        lines = [
            f"<CTable {self.path}, version {self.version}: {self.nrows:,} rows x "
            f"{len(names):,} columns, {_size(self.nbytes)} in {_size(self.cbytes)}>"
        ]
        lines += [
            f"  {_short(field.name):<{width}}  {field.type}"
            for field in list(self.schema)[:SHOWN]
        ]
        if len(names) > SHOWN:
            lines.append(f"  ... and {len(names) - SHOWN:,} more columns")
        return "\n".join(lines)

    @property
    def _shown(self) -> Sequence[int]:
        return range(len(self._version.schema)) if self._columns is None else self._columns

    def _positions(self, columns: Sequence[str] | None) -> Sequence[int]:
        if columns is None:
            return self._shown
        if isinstance(columns, str):
            raise TypeError(f"columns is a list of names; for one column give [{columns!r}]")
        by_name: dict[str, list[int]] = {}
        for index in self._shown:
            by_name.setdefault(self._version.schema.field(index).name, []).append(index)
        positions = []
        for name in columns:
            if name not in by_name:
                raise ColumnNotFoundError(
                    f"no column {name!r} in {self.path}; there are {list(by_name)!r:.1000}"
                )
            positions += by_name[name]
        return positions

    def _public_schema(self, positions: Sequence[int]) -> pa.Schema:
        """The schema of some columns, with pandas' metadata in place of our own."""
        schema = self._version.schema
        fields = [_without_ours(schema.field(index)) for index in positions]
        metadata = dict(schema.metadata or {})
        if PANDAS_KEY not in metadata:
            head = self._version.head
            described = pa.schema([schema.field(index) for index in positions])
            text = arrow_metadata(
                _plain(head.pandas), described, head.rows, dict(head.attributes)
            )
            if text is not None:
                metadata[PANDAS_KEY] = text
        return pa.schema(fields, metadata or None)

    def _read(self, positions: Sequence[int], start: int, stop: int) -> list[pa.ChunkedArray]:
        self._check_open()
        wanted = spans(self._version.head.row_groups, start, stop)
        return read_columns(self._version, positions, wanted)

    def _arrow(self, positions: Sequence[int], start: int, stop: int) -> pa.Table:
        arrays = self._read(positions, start, stop)
        return _table(arrays, self._public_schema(positions), stop - start)

    def _pandas(
        self, columns: Sequence[str] | None, start: int, stop: int, dtype_backend: Any
    ) -> pd.DataFrame:
        head, schema = self._version.head, self._version.schema
        frame = _plain(head.pandas)
        # With the index; a name asked for twice is read once.
        positions = list(dict.fromkeys(self._positions(columns)))
        levels = set(index_fields(frame))
        positions += [
            index
            for index in range(len(schema))
            if schema.field(index).name in levels and index not in positions
        ]
        arrays = self._read(positions, start, stop)
        fields = pa.schema([schema.field(index) for index in positions], schema.metadata)
        shown = None if columns is None and self._columns is None else self._names(columns)
        return to_frame(
            _table(arrays, fields, stop - start),
            stop - start,
            frame,
            dict(head.attributes),
            columns=shown,
            dtype_backend=dtype_backend,
            row_numbers=range(start, stop),
        )

    def _names(self, columns: Sequence[str] | None) -> list[str]:
        names = self.column_names if columns is None else columns
        return list(dict.fromkeys(names)) if columns is None else list(names)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        first = 0
        for rows in self._version.head.row_groups:
            yield from self._arrow(self._shown, first, first + rows).to_batches()
            first += rows

    def _check_open(self) -> None:
        if self._is_closed:
            raise BlzError(f"{self.path} was closed")

    def _check_writable(self) -> None:
        self._check_open()
        if not self._writable:
            raise ReadOnlyError(f"{self.path} was opened for reading; open it with mode='a'")
        if os.getpid() != self._pid:
            raise ReadOnlyError(f"{self.path} was opened before a fork; open it again to write")

    def _set_attributes(self, changes: Mapping[str, Any], removed: Sequence[str]) -> None:
        self._check_writable()
        version, pinned = set_attributes(
            self._version.store,
            self._version,
            checked_attrs(dict(changes)),
            removed,
            is_durable=True,
        )
        self._pinned.close()
        self._version, self._pinned = version, pinned


class Attributes(MutableMapping[str, Any]):
    """The attributes of a table: as read with the version shown; each assignment is one commit."""

    def __init__(self, table: CTable) -> None:
        self._table = table

    def __getitem__(self, key: str) -> Any:
        return self._table._version.head.attributes[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._table._set_attributes({key: value}, ())

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self._table._set_attributes({}, (key,))

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set several attributes in one commit."""
        self._table._set_attributes(dict(*args, **kwargs), ())

    def __iter__(self) -> Iterator[str]:
        return iter(self._table._version.head.attributes)

    def __len__(self) -> int:
        return len(self._table._version.head.attributes)

    def __repr__(self) -> str:
        return repr(dict(self))


class Column:
    """One column of an open table.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"a": [1, 2, None, 4]}, "t.blz")
    >>> with blz.open("t.blz") as t:
    ...     print(t["a"].type, len(t["a"]), t["a"][1:3].to_pylist(), t["a"][-1])
    int64 4 [2, None] 4
    """

    def __init__(self, table: CTable, index: int) -> None:
        self._table = table
        self._index = index

    @property
    def name(self) -> str:
        """The column's name."""
        return str(self._field.name)

    @property
    def type(self) -> pa.DataType:
        """The column's Arrow type."""
        return self._field.type

    @property
    def nbytes(self) -> int:
        """Bytes of the column, uncompressed."""
        return self._table._version.head.columns.nbytes[self._index]

    @property
    def cbytes(self) -> int:
        """Bytes of the column's files."""
        return self._table._version.head.columns.cbytes[self._index]

    def __len__(self) -> int:
        """Number of rows."""
        return self._table.nrows

    @overload
    def __getitem__(self, key: int) -> Any: ...

    @overload
    def __getitem__(self, key: slice) -> pa.Array: ...

    def __getitem__(self, key: int | slice) -> Any:
        """One value as Python has it, or rows as an Arrow array; only their pages are decoded."""
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step != 1:
                raise ValueError(f"a slice of rows in their order, not in steps of {step}")
            return _combined(self._table._read([self._index], start, max(start, stop))[0])
        row = key.__index__()
        row += len(self) if row < 0 else 0
        if not 0 <= row < len(self):
            raise IndexError(f"row {key} of a column of {len(self)} rows")
        return self[row : row + 1][0].as_py()

    def to_arrow(self) -> pa.ChunkedArray:
        """The column as Arrow has it."""
        return self._table._read([self._index], 0, len(self))[0]

    def to_pandas(self, *, dtype_backend: Any = no_default) -> pd.Series:
        """The column as a Series, with the table's index."""
        narrowed = CTable(
            self._table._version, self._table._pinned, writable=False, columns=[self._index]
        )
        frame = narrowed._pandas([self.name], 0, len(self), dtype_backend)
        if frame.shape[1] == 0:
            return frame.index.to_series().reset_index(drop=True)
        return frame.iloc[:, 0]

    def to_numpy(self) -> np.ndarray:
        """The column as a numpy array: writable and without a copy for numbers without nulls."""
        array = _combined(self.to_arrow())
        type_ = array.type
        is_number = pa.types.is_integer(type_) or pa.types.is_floating(type_)
        if is_number and array.null_count == 0 and len(array):
            buffer, dtype = array.buffers()[1], np.dtype(type_.to_pandas_dtype())
            return np.frombuffer(buffer, dtype, len(array), array.offset * dtype.itemsize)
        return array.to_numpy(zero_copy_only=False)

    def __repr__(self) -> str:
        return (
            f"<Column {self.name!r} of {self._table.path}: {self.type}, {len(self):,} rows, "
            f"{_size(self.nbytes)} in {_size(self.cbytes)}>"
        )

    @property
    def _field(self) -> pa.Field:
        return self._table._version.schema.field(self._index)


def _table(arrays: list[pa.ChunkedArray], schema: pa.Schema, rows: int) -> pa.Table:
    """A table of these columns; one without columns keeps its number of rows."""
    if arrays:
        return pa.Table.from_arrays(arrays, schema=schema)
    return pa.table([pa.nulls(rows)], ["rows"]).select([]).replace_schema_metadata(schema.metadata)


def _combined(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        raise BlzError(f"{column.nbytes} bytes do not fit one array of {column.type}")
    return array


def _without_ours(field: pa.Field) -> pa.Field:
    """The field as it was given: without what we wrote on it."""
    metadata = dict(field.metadata or {})
    if metadata.pop(FIELD_KEY, None) is None:
        return field
    return field.with_metadata(metadata or None)


def _plain(frame: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if frame is None else dict(frame)


def _short(name: str) -> str:
    return name if len(name) <= SHOWN else name[: SHOWN - 3] + "..."


def _size(nbytes: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes} bytes"
