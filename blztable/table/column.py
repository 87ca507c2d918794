"""Column: one column of an open table.

Knows nothing of the other columns, but for the index of a frame.
"""

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.extensions import no_default

from blztable.arrow.nested.nodes import is_nested
from blztable.convert.foreign.numpy_arrays import decode
from blztable.engine.version.schema import digits_of
from blztable.errors import SchemaError
from blztable.metalayers import FixedMetalayers, VariableMetalayers
from blztable.report import StreamStorage, size_text
from blztable.table.attributes import LayerOwner, fixed_metalayers, variable_metalayers
from blztable.table.names import checked_integer
from blztable.table.snapshot import Snapshot


class Column:
    """One column of an open table, made by ``t["name"]``; values are read when asked for.

    Each method that reads raises CorruptError, LimitError and ClosedError, as `CTable` says.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"a": [1, 2, None, 4]}, "t.blz")
    >>> with blz.open("t.blz") as t:
    ...     column = t["a"]
    ...     print(column.type, len(column), column[1:3].to_pylist(), column[-1])
    ...     print(column.null_count(), column.min(), column.max(), column.to_numpy())
    ...     print(column.to_arrow().to_pylist(), column.to_pandas().sum())
    ...     print(*column.streams(), sep="; ")
    int64 4 [2, None] 4
    1 1 4 [ 1.  2. nan  4.]
    [1, 2, None, 4] 7.0
    valid: plain | stored, 1 bytes in 21 bytes; values: plain | stored, 32 bytes in 52 bytes
    """

    def __init__(self, snapshot: Snapshot, index: int, table: LayerOwner) -> None:
        self._snapshot = snapshot
        self._index = index
        self._table = table

    @property
    def name(self) -> str:
        """Name of the column."""
        return str(self._field.name)

    @property
    def type(self) -> pa.DataType:
        """Arrow type of the column."""
        return self._field.type

    @property
    def digits(self) -> int | None:
        """Number of significant decimal digits kept of floats, by the option `digits`.

        None if values are stored as they are.
        """
        return digits_of(self._field)

    @property
    def nbytes(self) -> int:
        """Bytes that the values of the column take in memory, as Arrow arrays."""
        return self._snapshot.projection.nbytes(self._index)

    @property
    def cbytes(self) -> int:
        """Bytes of the column's files on disk."""
        return self._snapshot.projection.cbytes(self._index)

    @property
    def meta(self) -> FixedMetalayers:
        """Fixed metalayers of the column: named bytes that keep their length.

        Their names are given when the column is made, by `Storage(meta=...)`: with `add_column`, or
        for the column with `create` and `to_blz`. A column keeps them when it is renamed, and loses
        them when it is dropped. A mapping with the verbs ``add``, ``get``, ``exists`` and
        ``update``.
        """
        return fixed_metalayers(self._table, self._id, self.name)

    @property
    def vlmeta(self) -> VariableMetalayers:
        """Variable metalayers of the column: added, resized and removed at any time.

        A mapping with the verbs ``add``, ``get``, ``exists``, ``update`` and ``delete``.
        """
        return variable_metalayers(self._table, self._id, self.name)

    def streams(self) -> tuple[StreamStorage, ...]:
        """Show how the column is stored: encoding, codec and sizes of its streams.

        Only records and headers of chunks are read.

        Returns
        -------
        tuple of StreamStorage
            The streams, as in docs/format.md: the values, and for text their lengths.
        """
        return self._snapshot.streams(self._index)

    def __len__(self) -> int:
        """Number of rows."""
        return self._snapshot.rows

    @overload
    def __getitem__(self, key: int) -> Any: ...

    @overload
    def __getitem__(self, key: slice) -> pa.Array: ...

    def __getitem__(self, key: int | slice) -> Any:
        """Return one value or a slice of rows; only the pages that hold them are decoded.

        Parameters
        ----------
        key : int or slice
            Row number, negative from the end, or rows as in a list.

        Returns
        -------
        Any or pyarrow.Array
            The value as a Python object, None for a null; or the rows, with shape (rows,).

        Raises
        ------
        IndexError
            The column has no row of this number.
        """
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            return self._snapshot.array(self._index, range(start, stop, step))
        row = checked_integer(key, "a row number")
        row += len(self) if row < 0 else 0
        if not 0 <= row < len(self):
            raise IndexError(f"row {key} is out of range for a column of {len(self)} rows")
        return self[row : row + 1][0].as_py()

    def null_count(self) -> int:
        """Return the number of nulls, from the statistics; no row is read.

        Returns
        -------
        int
            Number of rows without a value. A NaN is a value.
        """
        self._snapshot.check_open()
        return self._snapshot.null_count(self._index)

    def min(self) -> Any:
        """Return the least value; only row groups that may hold it are read.

        Returns
        -------
        Any
            The value as a Python object, or as a pyarrow.Scalar if Python has no such time. Nulls
            and NaNs are left out. None if no value is left, or if values of this type have no
            order; those of nested types have none.
        """
        return self._extreme(is_least=True)

    def max(self) -> Any:
        """Return the greatest value, as `min`.

        Returns
        -------
        Any
            The value as a Python object, or None.
        """
        return self._extreme(is_least=False)

    def to_arrow(self) -> pa.ChunkedArray:
        """Read the column into an Arrow array.

        Returns
        -------
        pyarrow.ChunkedArray
            All values, with shape (rows,).
        """
        return self._snapshot.column(self._index)

    def to_pandas(self, *, dtype_backend: Any = no_default) -> pd.Series:
        """Read the column into a Series with the table's index.

        Parameters
        ----------
        dtype_backend : {"numpy_nullable", "pyarrow"}, optional
            Kind of dtype, as in pandas.

        Returns
        -------
        pandas.Series
            All values, with shape (rows,). A column that is the index itself has a default index.
        """
        frame = self._snapshot.pandas([self._index], columns=None, dtype_backend=dtype_backend)
        if frame.shape[1] == 0:  # The column is the index, or a level of it.
            index = frame.index
            if isinstance(index, pd.MultiIndex):
                index = index.get_level_values(self._snapshot.levels.index(self.name))
            return index.to_series().reset_index(drop=True)
        return frame.iloc[:, 0]

    def to_numpy(self) -> np.ndarray:
        """Read the column into a numpy array.

        Integers and floats without nulls are not copied, and the array is writable.

        Returns
        -------
        numpy.ndarray
            All values, with shape (rows,). Integers with nulls become floats with NaN, text becomes
            Python objects.

        Raises
        ------
        SchemaError
            Numpy has no type for these values; use `to_arrow`.
        """
        array = self._snapshot.array(self._index, range(len(self)))
        if not pa.types.is_primitive(array.type):
            # Rows of the null type take no memory in Arrow, but one pointer each in numpy.
            self._snapshot.check_rows(len(array), f"column {self.name!r}")
        return decode(array, f"column {self.name!r}")

    def __repr__(self) -> str:
        kept = "" if self.digits is None else f"{self.digits} digits kept, "
        return (
            f"<Column {self.name!r} of {self._snapshot.name}: {self.type}, {kept}"
            f"{len(self):,} rows, {size_text(self.nbytes)} in {size_text(self.cbytes)}>"
        )

    def _extreme(self, *, is_least: bool) -> Any:
        snapshot = self._snapshot
        snapshot.check_open()
        if is_nested(snapshot.projection.schema.field(self._index).type):
            return None
        bound = snapshot.extreme(self._index, is_least=is_least)
        try:
            return bound.as_py()
        except (OverflowError, ValueError):
            return bound

    @property
    def _id(self) -> str:
        """The id of the column in all versions."""
        if self._snapshot.projection.is_field(self._index):
            raise SchemaError(f"{self.name!r} is a field; metalayers are those of its column")
        version = self._snapshot.version
        return str(version.paths[version.nodes(self._index)[0]][0])

    @property
    def _field(self) -> pa.Field:
        return self._snapshot.fields.field(self._index)


def described(columns: Sequence[Column]) -> pd.DataFrame:
    """Return a frame with a row of facts for each column."""
    details = {
        "type": [str(column.type) for column in columns],
        "count": [len(column) - column.null_count() for column in columns],
        "nulls": [column.null_count() for column in columns],
        "min": pd.array([column.min() for column in columns], object),
        "max": pd.array([column.max() for column in columns], object),
    }
    return pd.DataFrame(details, index=pd.Index([column.name for column in columns]))
