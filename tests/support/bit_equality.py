"""Bit equality of columns: type, nulls, and the bytes of every value.

Arrow's own equality takes NaN for unequal and -0.0 for 0.0. Also has the strictest equality of
DataFrames. Knows nothing of blztable.
"""

import numpy as np
import pandas as pd
import pyarrow as pa

Column = pa.Array | pa.ChunkedArray


def same(left: Column, right: Column) -> bool:
    """True if type and every row agree; dictionaries are compared by their values."""
    return left.type == right.type and bits(left) == bits(right)


def same_table(left: pa.Table, right: pa.Table) -> bool:
    """True if schema with metadata, number of rows and every column agree."""
    return (
        left.schema.equals(right.schema, check_metadata=True)
        and left.num_rows == right.num_rows
        and all(map(same, left.columns, right.columns))
    )


def bits(column: Column) -> list[bytes | None]:
    """Return the bytes of each row, None for a null."""
    if isinstance(column, pa.ChunkedArray):
        return [row for chunk in column.chunks for row in bits(chunk)]
    type_, rows = column.type, len(column)
    if pa.types.is_null(type_):
        return [None] * rows
    if pa.types.is_dictionary(type_):
        values = bits(column.dictionary)
        codes = [
            None if code is None else int.from_bytes(code, "little")
            for code in bits(column.indices)
        ]
        return [None if code is None else values[code] for code in codes]
    present = _bitmap(column.buffers()[0], column.offset, rows)
    if pa.types.is_boolean(type_):
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
    pd.testing.assert_frame_equal(found, expected, **EXACT)
    assert type(found.index) is type(expected.index)
    assert type(found.columns) is type(expected.columns)
    assert found.columns.dtype == expected.columns.dtype
    assert [type(label) for label in found.columns] == [type(label) for label in expected.columns]
    assert list(map(type, found.index.names)) == list(map(type, expected.index.names))
    assert found.attrs == expected.attrs
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
            assert list(map(type, one)) == list(map(type, other)) or mixed_markers(other)


def mixed_markers(values):
    return len({type(v) for v in values if pd.isna(v)}) > 1
