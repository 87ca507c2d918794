"""Column: one column of an open table, by itself."""

import operator
from typing import Any, overload

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.extensions import no_default

from blztable.arrow_errors import REFUSALS
from blztable.arrow_types import is_number, is_view, without_view
from blztable.errors import SchemaError
from blztable.table.snapshot import Snapshot
from blztable.text import size_text


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

    def __init__(self, snapshot: Snapshot, index: int) -> None:
        self._snapshot = snapshot
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
        return self._snapshot.version.head.columns.nbytes[self._index]

    @property
    def cbytes(self) -> int:
        """Bytes of the column's files."""
        return self._snapshot.version.head.columns.cbytes[self._index]

    def __len__(self) -> int:
        """Number of rows."""
        return self._snapshot.rows

    @overload
    def __getitem__(self, key: int) -> Any: ...

    @overload
    def __getitem__(self, key: slice) -> pa.Array: ...

    def __getitem__(self, key: int | slice) -> Any:
        """One value as Python has it, or rows as an Arrow array; only their pages are decoded."""
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            return self._snapshot.array(self._index, range(start, stop, step))
        if isinstance(key, bool):
            raise TypeError(f"a row is given by its number, not by {key}")
        row = operator.index(key)
        row += len(self) if row < 0 else 0
        if not 0 <= row < len(self):
            raise IndexError(f"row {key} of a column of {len(self)} rows")
        return self[row : row + 1][0].as_py()

    def to_arrow(self) -> pa.ChunkedArray:
        """The column as Arrow has it."""
        return self._snapshot.column(self._index)

    def to_pandas(self, *, dtype_backend: Any = no_default) -> pd.Series:
        """The column as a Series, with the table's index."""
        frame = self._snapshot.pandas([self._index], columns=None, dtype_backend=dtype_backend)
        if frame.shape[1] == 0:  # It is the index, or a level of it.
            index = frame.index
            if isinstance(index, pd.MultiIndex):
                index = index.get_level_values(self._snapshot.levels.index(self.name))
            return index.to_series().reset_index(drop=True)
        return frame.iloc[:, 0]

    def to_numpy(self) -> np.ndarray:
        """The column as a numpy array: writable and without a copy for numbers without nulls."""
        array = self._snapshot.array(self._index, range(len(self)))
        type_ = array.type
        if not pa.types.is_primitive(type_):
            # Rows of nothing take no memory in Arrow, but a pointer each in numpy.
            self._snapshot.check_rows(len(array), f"column {self.name!r}")
        if is_number(type_) and array.null_count == 0 and len(array):
            buffer, dtype = array.buffers()[1], np.dtype(type_.to_pandas_dtype())
            return np.frombuffer(buffer, dtype, len(array), array.offset * dtype.itemsize)
        if pa.types.is_dictionary(type_) and is_view(type_.value_type):
            # Arrow has no kernel that takes views out of a dictionary.
            values = array.dictionary.cast(without_view(type_.value_type))
            array = pa.DictionaryArray.from_arrays(array.indices, values)
        try:
            return array.to_numpy(zero_copy_only=False)
        except (*REFUSALS, ArithmeticError, ValueError) as error:
            raise SchemaError(
                f"column {self.name!r}: numpy cannot hold {type_}: {error}; take to_arrow()"
            ) from None

    def __repr__(self) -> str:
        return (
            f"<Column {self.name!r} of {self._snapshot.name}: {self.type}, {len(self):,} rows, "
            f"{size_text(self.nbytes)} in {size_text(self.cbytes)}>"
        )

    @property
    def _field(self) -> pa.Field:
        return self._snapshot.version.schema.field(self._index)
