"""Arrow types: predicates for text, bytes, views and numbers, casts of dictionaries, nulls, bits.

Knows nothing of columns, tables or pandas.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.memory import bytes_of
from blztable.arrow.nesting import LISTS_OF_VIEWS, offset_dtype

# A table and its number of rows, which a table without columns does not know.
Portion = tuple[pa.Table, int]
# Arrow has few kernels for views. Each has a large type of the same values.
LARGE_OF_VIEW = {
    pa.lib.Type_STRING_VIEW: pa.large_string(),
    pa.lib.Type_BINARY_VIEW: pa.large_binary(),
}
_LARGE = LARGE_OF_VIEW | {
    pa.lib.Type_STRING: pa.large_string(),
    pa.lib.Type_BINARY: pa.large_binary(),
}
_TEXT = {pa.lib.Type_STRING, pa.lib.Type_LARGE_STRING, pa.lib.Type_STRING_VIEW}
_BINARY = {pa.lib.Type_BINARY, pa.lib.Type_LARGE_BINARY, pa.lib.Type_BINARY_VIEW}


def is_text(type_: pa.DataType) -> bool:
    """True for string, large_string and string_view."""
    return type_.id in _TEXT


def is_binary(type_: pa.DataType) -> bool:
    """True for binary, large_binary and binary_view; not for fixed_size_binary."""
    return type_.id in _BINARY


def is_view(type_: pa.DataType) -> bool:
    """True for string_view and binary_view."""
    return type_.id in LARGE_OF_VIEW


def is_number(type_: pa.DataType) -> bool:
    """True for integers and floats; not for booleans and decimals."""
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_))


def has_floats(type_: pa.DataType) -> bool:
    """True for floats, and for a type with floats inside."""
    if pa.types.is_floating(type_):
        return True
    inner = range(type_.num_fields) if pa.types.is_nested(type_) else ()
    return any(has_floats(type_.field(number).type) for number in inner)


def float_limit(type_: pa.DataType) -> int:
    """Return from where on a type of floats does not hold every integer."""
    return 1 << (np.finfo(type_.to_pandas_dtype()).nmant + 1)


def is_moment(type_: pa.DataType) -> bool:
    """True for timestamps and dates."""
    return bool(pa.types.is_timestamp(type_) or pa.types.is_date(type_))


def abbreviated(type_: pa.DataType) -> str:
    """Return the name of a type for an error, cut in the middle if it is long."""
    name = str(type_)
    return name if len(name) <= 200 else f"{name[:120]} ... {name[-60:]}"


def depth_of(type_: pa.DataType) -> int:
    """Return how many types are nested in each other."""
    inner = (type_.field(number).type for number in range(type_.num_fields))
    return 1 + max(map(depth_of, inner), default=0)


def is_zoned(type_: pa.DataType) -> bool:
    """True for timestamps with a time zone."""
    return pa.types.is_timestamp(type_) and type_.tz is not None


def without_view(type_: pa.DataType) -> pa.DataType:
    """Return the large type of a view; any other type unchanged."""
    return LARGE_OF_VIEW.get(type_.id, type_)


def without_views(array: pa.Array) -> pa.Array:
    """Return views as their large type; any other array unchanged."""
    plain = without_view(array.type)
    return array if plain.id == array.type.id else array.cast(plain)


def large_type(type_: pa.DataType) -> pa.DataType:
    """Return the large type of any text or bytes; any other type unchanged."""
    return _LARGE.get(type_.id, type_)


def recoded(array: pa.DictionaryArray, type_: pa.DictionaryType) -> pa.DictionaryArray:
    """Return a dictionary array with the codes and the values cast to a dictionary type."""
    # Not safe: the codes of null rows may be anything.
    indices = array.indices.cast(type_.index_type, safe=False)
    values = array.dictionary
    if values.type != type_.value_type:
        values = values.cast(type_.value_type)
    return pa.DictionaryArray.from_arrays(indices, values, ordered=type_.ordered, safe=False)


def value_type(type_: pa.DataType) -> pa.DataType:
    """Return the type of a dictionary's values; any other type unchanged."""
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def bits_of(bitmap: np.ndarray, offset: int, rows: int) -> np.ndarray:
    """Return a byte, 0 or 1, for each of `rows` bits from `offset`."""
    first, skipped = divmod(offset, 8)
    return np.unpackbits(bitmap[first:], count=skipped + rows, bitorder="little")[skipped:]


def mask_of(array: pa.Array) -> np.ndarray | None:
    """Return True for each row with a value; None if all rows have one."""
    if array.null_count == 0 or pa.types.is_null(array.type):
        return None
    bitmap = bytes_of(array.buffers()[0])
    return bits_of(bitmap, array.offset, len(array)).view(np.bool_)


def bitmap(mask: np.ndarray) -> pa.Buffer:
    """Return a mask of booleans as Arrow's bits."""
    return pa.py_buffer(np.packbits(mask, bitorder="little"))


def nulls(rows: int, type_: pa.DataType) -> pa.Array:
    """Return nulls; those that Arrow makes of runs inside of nested types are invalid.

    A union has nulls of its first type.
    """
    if pa.types.is_dictionary(type_) and pa.types.is_nested(type_.value_type):
        codes, values = pa.nulls(rows, type_.index_type), nulls(0, type_.value_type)
        return pa.DictionaryArray.from_arrays(codes, values, ordered=type_.ordered)
    if not pa.types.is_nested(type_):
        return pa.nulls(rows, type_)
    if pa.types.is_union(type_):
        codes = pa.py_buffer(np.full(rows, type_.type_codes[0], "i1"))
        types = [type_.field(number).type for number in range(type_.num_fields)]
        if type_.mode == "sparse":
            children = [nulls(rows, one) for one in types]
            return pa.Array.from_buffers(type_, rows, [None, codes], children=children)
        children = [nulls(0 if number else rows, one) for number, one in enumerate(types)]
        places = pa.py_buffer(np.arange(rows, dtype="<i4"))
        return pa.Array.from_buffers(type_, rows, [None, codes, places], children=children)
    if pa.types.is_run_end_encoded(type_):
        ends = pa.array([rows] if rows else [], type_.run_end_type)
        values = nulls(len(ends), type_.value_type)
        return pa.RunEndEncodedArray.from_arrays(ends, values, type=type_)
    if pa.types.is_struct(type_):
        children = [nulls(rows, type_.field(one).type) for one in range(type_.num_fields)]
        mask = bitmap(np.zeros(rows, np.bool_))
        return pa.Array.from_buffers(type_, rows, [mask], children=children)
    if pa.types.is_fixed_size_list(type_):
        child = nulls(rows * type_.list_size, type_.value_type)
        mask = bitmap(np.zeros(rows, np.bool_))
        return pa.Array.from_buffers(type_, rows, [mask], children=[child])
    if pa.types.is_map(type_):
        items = pa.struct([type_.key_field, type_.item_field])
    else:
        items = type_.value_type
    offsets = pa.py_buffer(np.zeros(rows + 1, offset_dtype(type_)))
    buffers = [bitmap(np.zeros(rows, np.bool_)), offsets]
    if type_.id in LISTS_OF_VIEWS:
        buffers.append(offsets)
    return pa.Array.from_buffers(type_, rows, buffers, children=[nulls(0, items)])


def no_rows(schema: pa.Schema) -> pa.Table:
    """Return a table without rows; Arrow's own fails for runs inside of nested types."""
    columns = [pa.chunked_array([nulls(0, one)], one) for one in schema.types]
    return pa.Table.from_arrays(columns, schema=schema)


def first_missing(column: pa.ChunkedArray) -> int | None:
    """Return the first null row, also of a dictionary, a union or runs, which count none; or None.

    These have their nulls among their values.
    """
    has_own = not (pa.types.is_dictionary(column.type) or pa.types.is_nested(column.type))
    if has_own and not column.null_count:
        return None
    row = pc.index(column.is_null(), True).as_py()
    return None if row < 0 else int(row)
