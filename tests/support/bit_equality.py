"""Whether two columns are the same to the bit: type, nulls, and the bytes of every value.

Arrow's own equality takes NaN for unequal and -0.0 for 0.0. Knows nothing of blztable.
"""

import numpy as np
import pyarrow as pa

Column = pa.Array | pa.ChunkedArray


def same(left: Column, right: Column) -> bool:
    """Whether type and every row agree; dictionaries by what they stand for."""
    return left.type == right.type and bits(left) == bits(right)


def same_table(left: pa.Table, right: pa.Table) -> bool:
    """Whether schema (metadata too), number of rows and every column agree."""
    return (
        left.schema.equals(right.schema, check_metadata=True)
        and left.num_rows == right.num_rows
        and all(map(same, left.columns, right.columns))
    )


def bits(column: Column) -> list[bytes | None]:
    """The bytes of each row, None for a null."""
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
    offsets = np.frombuffer(column.buffers()[1], dtype)[column.offset :].tolist()
    data = column.buffers()[2]
    data = b"" if data is None else data.to_pybytes()
    return [data[offsets[row] : offsets[row + 1]] for row in range(len(column))]


def _bitmap(buffer: pa.Buffer | None, offset: int, rows: int) -> list[bool]:
    if buffer is None:
        return [True] * rows
    bits = np.unpackbits(np.frombuffer(buffer, np.uint8), bitorder="little")
    return bits[offset : offset + rows].astype(bool).tolist()
