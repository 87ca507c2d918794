"""Bit equality of columns: type, nulls, and the bytes of every value.

Arrow's own equality takes NaN for unequal and -0.0 for 0.0. Also has the strictest equality of
DataFrames. Knows nothing of blztable.
"""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from support import object_strategies

Column = pa.Array | pa.ChunkedArray


def same(left: Column, right: Column) -> bool:
    """True if type and every row agree; dictionaries are compared by their values."""
    return left.type == right.type and (_is_same_memory(left, right) or bits(left) == bits(right))


def _is_same_memory(left: Column, right: Column) -> bool:
    """True if all buffers of two columns of a type agree, and so every row; False says nothing."""
    if not _has_plain_buffers(left.type):
        return False
    left, right = _whole(left), _whole(right)
    if pa.types.is_struct(left.type):
        fields = range(left.type.num_fields)
        return (
            len(left) == len(right)
            and left.null_count == right.null_count == 0
            and all(_is_same_memory(left.field(n), right.field(n)) for n in fields)
        )
    return (len(left), left.offset) == (len(right), right.offset) and all(
        one is other or (one is not None and other is not None and one.equals(other))
        for one, other in zip(left.buffers(), right.buffers(), strict=True)
    )


def _has_plain_buffers(type_: pa.DataType) -> bool:
    """True for numbers, times, text and bytes, and structs of these."""
    if pa.types.is_struct(type_):
        return all(_has_plain_buffers(field.type) for field in type_)
    return pa.types.is_primitive(type_) or type_ in (
        pa.string(),
        pa.binary(),
        pa.large_string(),
        pa.large_binary(),
    )


def _whole(column: Column) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def same_table(left: pa.Table, right: pa.Table) -> bool:
    """True if schema with metadata, number of rows and every column agree."""
    return (
        left.schema.equals(right.schema, check_metadata=True)
        and left.num_rows == right.num_rows
        and all(map(same, left.columns, right.columns))
    )


def bits(column: Column) -> list[Any]:
    """Return the bytes of each row, None for a null.

    A row of a struct is a tuple, of a list a list (of pairs for a map), of a union its type code
    and its value, of runs its value.
    """
    if isinstance(column, pa.ChunkedArray):
        return [row for chunk in column.chunks for row in bits(chunk)]
    type_, rows = column.type, len(column)
    if isinstance(type_, pa.BaseExtensionType):
        return bits(column.storage)
    if pa.types.is_null(type_):
        return [None] * rows
    if pa.types.is_dictionary(type_):
        values = bits(column.dictionary)
        codes = [
            None if code is None else int.from_bytes(code, "little")
            for code in bits(column.indices)
        ]
        return [None if code is None else values[code] for code in codes]
    if pa.types.is_union(type_) or pa.types.is_run_end_encoded(type_):
        return _picked(column)
    present = _bitmap(column.buffers()[0], column.offset, rows)
    if pa.types.is_nested(type_):
        values = _nested(column)
    elif pa.types.is_boolean(type_):
        values = [bytes([bit]) for bit in _bitmap(column.buffers()[1], column.offset, rows)]
    elif type_ in (pa.string_view(), pa.binary_view()):
        values = [str(v).encode() if isinstance(v, str) else v for v in column.to_pylist()]
    elif type_ in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary()):
        values = _items(column, "<i8" if "large" in str(type_) else "<i4")
    else:
        width = type_.bit_width // 8
        data = column.buffers()[1].to_pybytes() if rows and width else b""
        first = column.offset * width
        values = [data[first + row * width : first + (row + 1) * width] for row in range(rows)]
    return [value if there else None for value, there in zip(values, present, strict=True)]


def _nested(column: pa.Array) -> list[Any]:
    """Return the rows of structs, lists and maps, also of those that are null."""
    type_, rows, first = column.type, len(column), column.offset
    if pa.types.is_struct(type_):
        fields = [bits(column.field(number)) for number in range(type_.num_fields)]
        return list(zip(*fields, strict=True)) if fields else [()] * rows
    if pa.types.is_map(type_):
        items = list(zip(bits(column.keys), bits(column.items), strict=True))
    else:
        items = bits(column.values)
    if pa.types.is_fixed_size_list(type_):
        starts = np.arange(first, first + rows) * type_.list_size
        return [items[start : start + type_.list_size] for start in starts.tolist()]
    kinds, offsets = pa.types, column.buffers()[1]
    is_large = kinds.is_large_list(type_) or kinds.is_large_list_view(type_)
    starts = _numbers(offsets, "<i8" if is_large else "<i4", first, rows)
    if kinds.is_list_view(type_) or kinds.is_large_list_view(type_):
        sizes = _numbers(column.buffers()[2], starts.dtype, first, rows)
    else:
        sizes = _numbers(offsets, starts.dtype, first + 1, rows) - starts
    stops = starts + sizes
    return [items[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]


def _picked(column: pa.Array) -> list[Any]:
    """Return the rows of unions and of runs."""
    type_, rows, first = column.type, len(column), column.offset
    if pa.types.is_run_end_encoded(type_):
        ends, values = np.asarray(column.run_ends), bits(column.values)
        runs = np.searchsorted(ends, np.arange(first, first + rows), "right")
        return [values[run] for run in runs.tolist()]
    codes = _numbers(column.buffers()[1], "i1", first, rows).tolist()
    places = range(rows)
    if type_.mode == "dense":
        places = _numbers(column.buffers()[2], "<i4", first, rows).tolist()
    children = {code: bits(column.field(number)) for number, code in enumerate(type_.type_codes)}
    return [(code, children[code][place]) for code, place in zip(codes, places, strict=True)]


def _numbers(buffer: pa.Buffer | None, dtype: Any, first: int, rows: int) -> np.ndarray:
    """Return numbers of a buffer, which may be missing if there are none."""
    return np.frombuffer(buffer, dtype, first + rows)[first:] if rows else np.empty(0, dtype)


def _items(column: pa.Array, dtype: str) -> list[bytes]:
    if len(column) == 0:
        return []
    count = column.offset + len(column) + 1
    offsets = np.frombuffer(column.buffers()[1], dtype, count)[column.offset :].tolist()
    data = column.buffers()[2]
    data = b"" if data is None else data.to_pybytes()
    return [data[offsets[row] : offsets[row + 1]] for row in range(len(column))]


def _bitmap(buffer: pa.Buffer | None, offset: int, rows: int) -> list[bool]:
    if buffer is None:
        return [True] * rows
    bits = np.unpackbits(np.frombuffer(buffer, np.uint8), bitorder="little")
    return bits[offset : offset + rows].astype(bool).tolist()


EXACT = {
    "check_dtype": True,
    "check_index_type": "equiv",
    "check_column_type": "equiv",
    "check_exact": True,
    "check_freq": True,
    "check_flags": True,
    "check_categorical": True,
    "check_names": True,
}


def assert_same(found, expected):
    # pandas cannot compare all lists and arrays; `_same_objects` does.
    # numpy warns of a NaN that signals.
    with np.errstate(invalid="ignore"):
        pd.testing.assert_frame_equal(_without_objects(found), _without_objects(expected), **EXACT)
    assert type(found.index) is type(expected.index)
    assert type(found.columns) is type(expected.columns)
    assert found.columns.dtype == expected.columns.dtype
    assert [type(label) for label in found.columns] == [type(label) for label in expected.columns]
    assert list(map(type, found.index.names)) == list(map(type, expected.index.names))
    assert object_strategies.same(found.attrs, expected.attrs)
    for i in range(expected.shape[1]):
        one, other = found.iloc[:, i].array, expected.iloc[:, i].array
        assert type(one) is type(other)
        if one.dtype.kind == "f" and isinstance(one.dtype, np.dtype):
            assert one.to_numpy().tobytes() == other.to_numpy().tobytes()
        if isinstance(one.dtype, pd.StringDtype):
            assert one.dtype.storage == other.dtype.storage
            assert one.dtype.na_value is other.dtype.na_value
        if isinstance(one.dtype, pd.CategoricalDtype):
            assert type(one.categories) is type(other.categories)
            assert one.codes.dtype == other.codes.dtype
        if one.dtype == object:
            _assert_same_objects(one, other)
    if expected.index.dtype == object and not isinstance(expected.index, pd.MultiIndex):
        _assert_same_objects(found.index, expected.index)


def _assert_same_objects(found, expected):
    """Fail unless the values have equal types and values; mixed missing values may become None."""
    missing = pd.isna(np.array([*expected, None], object))[:-1]
    is_mixed = len({type(value) for value in expected if value is None or _is_marker(value)}) > 1
    for one, other, is_missing in zip(found, expected, missing, strict=True):
        is_lost = is_mixed and is_missing and one is None
        assert object_strategies.same(one, other) or is_lost, (one, other)


def _is_marker(value):
    return value is pd.NA or value is pd.NaT or (isinstance(value, float) and value != value)


def _without_objects(frame):
    """Return the frame with integers in place of objects."""
    frame = frame.copy(deep=False)
    for i, dtype in enumerate(frame.dtypes):
        if isinstance(dtype, np.dtype) and dtype.kind == "O":
            frame.isetitem(i, range(len(frame)))
    if frame.index.dtype == object and not isinstance(frame.index, pd.MultiIndex):
        frame.index = pd.RangeIndex(len(frame), name=frame.index.name)
    return frame
