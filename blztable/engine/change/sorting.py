"""Sorting: yield the rows of a table in the order of some columns, a few columns at a time.

The sort is stable. Nulls come last, after NaN, in either direction. Knows nothing of commits and
writes nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable import tuning
from blztable.arrow.nested.nodes import is_nested
from blztable.arrow.types import Portion, as_stored, large_type, stored_type
from blztable.columns.types import one_array, take
from blztable.engine.query.expressions import comparable
from blztable.engine.read.columns import OpenColumns
from blztable.engine.read.selection import spans
from blztable.engine.run.limits import check_rows
from blztable.engine.version.projection import Projection
from blztable.engine.version.versions import Version
from blztable.engine.write.row_groups import GroupRows, bytes_taken, rows_per_group
from blztable.engine.write.sort_keys import Key
from blztable.errors import SchemaError

# Bytes of the sort order for each row.
_ORDER_BYTES = 8


@dataclass(frozen=True, slots=True)
class Unsorted:
    """The rows before the sort. A column is fetched when it is needed.

    Attributes
    ----------
    nbytes : sequence of int
        Bytes of each column.
    """

    schema: pa.Schema
    rows: int
    nbytes: Sequence[int]
    column: Callable[[int], pa.ChunkedArray]

    @classmethod
    def of_table(cls, table: pa.Table) -> Self:
        """Return the rows of an Arrow table."""
        nbytes = [bytes_taken(column) for column in table.columns]
        return cls(table.schema, table.num_rows, nbytes, table.column)

    @classmethod
    def of_version(cls, version: Version) -> Self:
        """Return the rows of a version, published or staged."""
        head, projection = version.head, Projection.of(version)
        whole = spans(version.row_groups, 0, head.rows)

        def column(index: int) -> pa.ChunkedArray:
            with OpenColumns(projection) as opened:
                return opened.columns([index], whole)[0]

        return cls(
            version.schema,
            head.rows,
            [projection.nbytes(index) for index in range(len(version.schema))],
            column,
        )

    def order(self, keys: Sequence[Key]) -> np.ndarray | None:
        """Return the sort order as row indices, shape (rows,); None if the rows are sorted.

        Raise SchemaError if the rows cannot be sorted by one of the columns.
        """
        check_rows(self.rows, "sorting", _ORDER_BYTES)
        order = _order([self.column(index) for index, _ in keys], keys, self.schema)
        return None if np.array_equal(order, np.arange(len(order))) else order

    def batches(self) -> Iterator[range]:
        """Yield the indices of columns to sort at the same time: one or as many as fit."""
        start, taken = 0, 0
        for index, nbytes in enumerate(self.nbytes):
            if index > start and taken + nbytes > tuning.current.group_bytes:
                yield range(start, index)
                start, taken = index, 0
            taken += nbytes
        yield range(start, len(self.nbytes))

    def groups(
        self, indices: Sequence[int], order: np.ndarray, group_rows: GroupRows
    ) -> Iterator[Portion]:
        """Yield row groups of these columns in this order, of the same size for all columns."""
        size = rows_per_group(self.nbytes, self.rows, group_rows)
        fields = [self.schema.field(index) for index in indices]
        whole = [
            _one_array(field, self.column(index))
            for field, index in zip(fields, indices, strict=True)
        ]
        for start in range(0, self.rows, size):
            rows = order[start : start + size]
            taken = [
                _take(field, column, rows) for field, column in zip(fields, whole, strict=True)
            ]
            yield pa.Table.from_arrays(taken, names=list(map(str, indices))), len(rows)
            del taken


def check(schema: pa.Schema, keys: Sequence[Key]) -> None:
    """Raise SchemaError, before any row is read, if rows cannot be sorted by these columns."""
    if not keys:
        return
    # Arrow checks the type of a second column only if there are two rows.
    nulls = [pa.chunked_array([pa.nulls(2, schema.field(index).type)]) for index, _ in keys]
    _order(nulls, keys, schema)


def _order(
    columns: Sequence[pa.ChunkedArray], keys: Sequence[Key], schema: pa.Schema
) -> np.ndarray:
    names = [str(number) for number in range(len(keys))]
    fields = [schema.field(index) for index, _ in keys]
    types = ", ".join(f"{field.name!r} ({field.type})" for field in fields)
    if any(is_nested(field.type) for field in fields):
        # Arrow sorts some structs, and crashes on a struct without fields.
        raise SchemaError(f"rows cannot be sorted by {types}: nested values have no order")
    try:
        order: np.ndarray = pc.sort_indices(
            pa.Table.from_arrays(list(map(_sortable, columns)), names=names),
            sort_keys=[(name, way) for name, (_, way) in zip(names, keys, strict=True)],
        ).to_numpy()
    except (pa.ArrowTypeError, pa.ArrowNotImplementedError, pa.ArrowIndexError) as error:
        raise SchemaError(f"rows cannot be sorted by {types}: {error}") from None
    return order


def _sortable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column that Arrow can sort: codes, if all parts have the same ordered categories."""
    type_ = column.type
    if not pa.types.is_dictionary(type_) or not type_.ordered:
        return comparable(column)
    # A part that has only nulls may have no categories.
    orders = [chunk.dictionary for chunk in column.chunks if len(chunk.dictionary)]
    if any(order.null_count or not order.equals(orders[0]) for order in orders):
        return comparable(column)
    return pa.chunked_array([chunk.indices for chunk in column.chunks], type_.index_type)


def _one_array(field: pa.Field, column: pa.ChunkedArray) -> pa.Array:
    """Return a whole column as one array; text gets 64-bit offsets."""
    # An array of text with 32-bit offsets holds at most 2 GiB.
    type_ = large_type(field.type)
    chunks = column.chunks
    if not is_nested(type_):
        chunks = [as_stored(chunk).cast(type_) for chunk in chunks]
    try:
        return one_array(pa.chunked_array(chunks, type_))
    except SchemaError as error:
        raise SchemaError(f"column {field.name!r}: {error}") from None


def _take(field: pa.Field, column: pa.Array, rows: np.ndarray) -> pa.Array:
    try:
        sorted_rows = take(column, rows)
        return sorted_rows if is_nested(field.type) else sorted_rows.cast(stored_type(field.type))
    except pa.ArrowInvalid as error:
        raise SchemaError(
            f"column {field.name!r}: the rows do not fit in one row group: {error}"
        ) from None
