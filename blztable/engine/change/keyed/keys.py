"""Keys: rows that have equal values in some columns.

Keys are equal as in a merge of pandas: null equals null, NaN equals NaN, and 0.0 equals -0.0.
Knows nothing of versions and files.
"""

import math
from collections.abc import Sequence
from functools import reduce
from operator import and_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.nested.nodes import is_nested
from blztable.columns.types import one_array
from blztable.engine.query.expressions import comparable
from blztable.errors import SchemaError


def check(fields: Sequence[pa.Field]) -> None:
    """Raise SchemaError unless rows can be found by columns of these types."""
    for field in fields:
        if is_nested(field.type):
            raise SchemaError(
                f"column {field.name!r}: rows cannot be found by {field.type}; a key has plain "
                "values"
            )


def codes(columns: Sequence[pa.ChunkedArray]) -> np.ndarray:
    """Return a number for each row, shape (rows,): the same where all columns are equal."""
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        found = one_array(_normal(column)).dictionary_encode(null_encoding="encode")
        codes = codes * (len(found.dictionary) or 1) + found.indices.to_numpy()
        if len(columns) > 1:
            # Numbers below the number of rows, so that the next product is one of 64 bits.
            codes = np.unique(codes, return_inverse=True)[1]
    return codes


def repeated(codes: np.ndarray) -> int | None:
    """Return the first row whose key an earlier row has; None if there is none."""
    first = np.unique(codes, return_index=True)[1]
    if len(first) == len(codes):
        return None
    is_first = np.zeros(len(codes), np.bool_)
    is_first[first] = True
    return int(np.argmin(is_first))


def condition(names: Sequence[str], columns: Sequence[pa.ChunkedArray]) -> pc.Expression:
    """Return a filter that is true for all rows with one of these keys.

    It is true for other rows, too, if the key has several columns.
    """
    pairs = zip(names, columns, strict=True)
    return reduce(and_, (pc.field(name).isin(pc.unique(_normal(one))) for name, one in pairs))


def _normal(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column in which equal values have equal bytes."""
    column = comparable(column)
    if not pa.types.is_floating(column.type):
        return column
    zero, nan = pa.scalar(0, column.type), pa.scalar(math.nan, column.type)
    return pc.if_else(pc.is_nan(column), nan, pc.add(column, zero))
