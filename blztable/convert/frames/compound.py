"""Compound: dtypes whose values are those of another dtype: intervals, sparse arrays, dictionaries.

Knows nothing of the other dtypes; the caller says how their values are encoded and decoded. An
interval is a struct of its ends, and a text as a category: engines group by text, not by structs.
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from blztable.arrow.types import is_text
from blztable.convert.arrays import PandasArray, whole
from blztable.convert.frames.descriptor import Descriptor, Json, expect_keys, expect_text
from blztable.convert.frames.labels import CLOSED
from blztable.convert.frames.times import REFUSALS
from blztable.convert.objects.tagged import decode_value, encode_value
from blztable.errors import FormatError, SchemaError

ENDS = ("left", "right")
BRACKETS = {"left": ("[", ")"), "right": ("(", "]"), "both": ("[", "]"), "neither": ("(", ")")}
ZONED = re.compile(r"timestamp\[(s|ms|us|ns), tz=([^\]]{1,200})\]")
SPARSE_KINDS = ("integer", "block")

Encode = Callable[[Any], tuple[pa.Array | pa.ChunkedArray, Descriptor | None]]
Decode = Callable[[pa.ChunkedArray, Descriptor | None], Any]


def encode_intervals(values: PandasArray, encode: Encode) -> tuple[pa.Array, Descriptor]:
    """Return intervals as structs of their ends, null for a missing one."""
    ends = [encode(getattr(values, end).array) for end in ENDS]
    arrays = [pa.concat_arrays(a.chunks) if isinstance(a, pa.ChunkedArray) else a for a, _ in ends]
    missing = values.isna()
    mask = pa.array(missing) if missing.any() else None
    descriptor: Descriptor = {"dtype": "interval", "closed": values.closed}
    if ends[0][1] is not None:
        descriptor["ends"] = ends[0][1]
    return pa.StructArray.from_arrays(arrays, ENDS, mask=mask), descriptor


def decode_intervals(
    column: pa.ChunkedArray, descriptor: Descriptor, decode: Decode
) -> PandasArray:
    """Return intervals from their ends, or from their text."""
    expect_keys(descriptor, ["dtype", "closed"], ["ends", "text"])
    closed: Any = expect_text(descriptor["closed"], CLOSED)
    if "text" in descriptor:
        column = _parsed(column, descriptor)
    type_ = column.type
    is_right = pa.types.is_struct(type_) and [field.name for field in type_] == list(ENDS)
    if not is_right or type_[0].type != type_[1].type:
        raise FormatError(f"expected the ends of intervals, found {type_!s:.200}")
    inner = descriptor.get("ends")
    # Unlike its fields, the parts of a flattened struct are null where the struct is.
    left, right = (decode(pa.chunked_array([end]), inner) for end in whole(column).flatten())
    try:
        return pd.arrays.IntervalArray.from_arrays(left, right, closed=closed)
    except REFUSALS as error:
        raise SchemaError(
            f"pandas cannot hold these intervals: {error}; read the column with to_arrow"
        ) from None


def interval_texts(array: pa.Array, descriptor: Descriptor) -> tuple[pa.Array, Descriptor]:
    """Return structs of ends as texts such as (0.0, 1.5], and the descriptor for them."""
    opening, closing = BRACKETS[descriptor["closed"]]
    ends = [_as_texts(end) for end in array.flatten()]
    texts = [f"{opening}{left}, {right}{closing}" for left, right in zip(*ends, strict=True)]
    return pa.array(texts, pa.large_string()), {**descriptor, "text": str(array.type[0].type)}


def ends_type(descriptor: Descriptor) -> pa.DataType:
    """Return the type of the ends of intervals that are texts."""
    name = expect_text(descriptor["text"])
    zoned = ZONED.fullmatch(name)
    try:
        return pa.timestamp(*zoned.groups()) if zoned else pa.type_for_alias(name)
    except ValueError as error:
        raise FormatError(f"expected the text of intervals: {error}") from None


def _as_texts(array: pa.Array) -> list[str]:
    # Arrow has no text of durations.
    ticks = array.view(pa.int64()) if pa.types.is_duration(array.type) else array
    if pa.types.is_floating(array.type):
        # Of Python, in which 1 is 1.0. Two texts of zero would be two categories, equal in pandas.
        return [repr(end + 0.0) for end in array.to_pylist()]
    texts: list[str] = ticks.cast(pa.string()).to_pylist()
    return texts


def _parsed(column: pa.ChunkedArray, descriptor: Descriptor) -> pa.ChunkedArray:
    """Return texts of intervals as structs of their ends."""
    if not is_text(column.type):
        raise FormatError(f"expected the text of intervals, found {column.type}")
    opening, closing = BRACKETS[descriptor["closed"]]
    ends: tuple[list[str | None], ...] = ([], [])
    for text in column.to_pylist():
        inner = (text or "")[1:-1].split(", ")
        if text is not None and (len(inner) != 2 or (text[0], text[-1]) != (opening, closing)):
            raise FormatError(f"expected the text of an interval, found {text!r:.60}")
        for end, part in zip(ends, inner if text is not None else (None, None), strict=True):
            end.append(part)
    type_ = ends_type(descriptor)
    is_duration = pa.types.is_duration(type_)
    try:
        arrays = [
            pa.array(end, pa.string()).cast(pa.int64() if is_duration else type_) for end in ends
        ]
    except ValueError as error:
        raise FormatError(f"expected the text of intervals: {error}") from None
    except pa.ArrowNotImplementedError:
        raise FormatError(f"expected intervals of numbers or times, found {type_!s:.60}") from None
    mask = pa.array([end is None for end in ends[0]], pa.bool_())
    return pa.chunked_array(
        [pa.StructArray.from_arrays([a.view(type_) for a in arrays], ENDS, mask=mask)]
    )


def encode_sparse(
    values: PandasArray, context: str, encode: Encode
) -> tuple[pa.Array | pa.ChunkedArray, Descriptor]:
    """Return a sparse array as its dense values, which take few bytes in a file."""
    array, inner = encode(values.to_dense())
    descriptor: Descriptor = {
        "dtype": "sparse",
        "fill": encode_value(values.dtype.fill_value, f"{context}, fill value"),
    }
    if inner is not None:
        descriptor["values"] = inner
    if values.kind != "integer":
        descriptor["kind"] = values.kind
    return array, descriptor


def decode_sparse(column: pa.ChunkedArray, descriptor: Descriptor, decode: Decode) -> PandasArray:
    """Return a sparse array of the column's values."""
    expect_keys(descriptor, ["dtype", "fill"], ["values", "kind"])
    kind: Any = expect_text(descriptor.get("kind", "integer"), SPARSE_KINDS)
    dense, dtype = sparse_dtype(decode(column, descriptor.get("values")), descriptor["fill"])
    return pd.arrays.SparseArray(dense, dtype=dtype, kind=kind)


def sparse_dtype(values: Any, fill: Json) -> tuple[np.ndarray, pd.SparseDtype]:
    """Return values as a numpy array, and the sparse dtype of it with this fill value."""
    dense = values if isinstance(values, np.ndarray) else np.asarray(values.astype(np.float64))
    try:
        return dense, pd.SparseDtype(dense.dtype, decode_value(fill, "fill value"))
    except REFUSALS as error:
        raise FormatError(f"a sparse dtype cannot have this fill value: {error}") from None


def decode_coded(column: pa.ChunkedArray, decode: Decode) -> np.ndarray:
    """Return a dictionary column as its values; equal codes of a chunk share an object."""
    result = np.full(len(column), None, object)
    first = 0
    for chunk in column.chunks:
        values = np.asarray(decode(pa.chunked_array([chunk.dictionary]), None), object)
        is_valid = chunk.indices.is_valid().to_numpy(zero_copy_only=False)
        codes = chunk.indices.drop_null().to_numpy()
        result[np.flatnonzero(is_valid) + first] = values[codes]
        first += len(chunk)
    return result
