"""Arrow types: predicates, casts, the types that are stored and compared, memory, refusals.

Knows nothing of streams, tables or pandas.

Views: text and bytes as 16 bytes a row that point into the values of a dictionary. Polars keeps
text as views, so it takes these without a copy; the bytes of a text are nowhere repeated. Arrow has
no cast from a dictionary to views.

Arrow errors: the exceptions by which Arrow refuses data, types and values. Arrow exceptions for
lack of memory and for a cancelled call say nothing about the data. They are not listed here, so no
code of the package takes them for a refusal.

The memory of results: Arrow buffers, viewed by numpy. Arrow's memory pool reuses warm pages. Its
buffers are writable, so numpy, pandas and Arrow share them without a copy.

The type that a column is stored as, and the type that its values are compared as.
"""

import struct
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# Types whose values have a type that no field names.
UNNAMED = {pa.lib.Type_DICTIONARY, pa.lib.Type_RUN_END_ENCODED}
LISTS = {
    pa.lib.Type_LIST: pa.list_,
    pa.lib.Type_LARGE_LIST: pa.large_list,
    pa.lib.Type_LIST_VIEW: pa.list_view,
    pa.lib.Type_LARGE_LIST_VIEW: pa.large_list_view,
}
# Smaller arrays are made by numpy, which is quicker.
NUMPY_BYTES = 1 << 16
# Views of lists, and the lists whose offsets have as many bits.
LISTS_OF_VIEWS = {
    pa.lib.Type_LIST_VIEW: pa.list_,
    pa.lib.Type_LARGE_LIST_VIEW: pa.large_list,
}


def with_fields(type_: pa.DataType, change: Callable[[pa.Field], pa.Field]) -> pa.DataType:
    """Return a type with each child field changed.

    The values of dictionaries and of runs are fields without a name, of which the type counts. An
    extension type has no child fields.
    """
    if pa.types.is_dictionary(type_):
        values = change(pa.field("", type_.value_type)).type
        return pa.dictionary(type_.index_type, values, type_.ordered)
    if pa.types.is_run_end_encoded(type_):
        values = change(pa.field("", type_.value_type)).type
        return pa.run_end_encoded(type_.run_end_type, values)
    if pa.types.is_map(type_):
        key, item = change(type_.key_field), change(type_.item_field)
        return pa.map_(key, item, keys_sorted=type_.keys_sorted)
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(change(type_.value_field), type_.list_size)
    if type_.id in LISTS:
        return LISTS[type_.id](change(type_.value_field))
    if pa.types.is_union(type_):
        fields = [change(type_.field(number)) for number in range(type_.num_fields)]
        return pa.union(fields, type_.mode, type_.type_codes)
    if pa.types.is_struct(type_):
        return pa.struct([change(field) for field in type_])
    return type_


def has_children(type_: pa.DataType) -> bool:
    """True if a type is made of others."""
    return type_.num_fields > 0 or type_.id == pa.lib.Type_DICTIONARY


def has_items(type_: pa.DataType) -> bool:
    """True for lists of any kind but maps."""
    return type_.id in LISTS or bool(pa.types.is_fixed_size_list(type_))


def offset_dtype(type_: pa.DataType) -> str:
    """Return the numpy type of the offsets of a list, a view of lists or a map."""
    is_large = type_.id in (pa.lib.Type_LARGE_LIST, pa.lib.Type_LARGE_LIST_VIEW)
    return "<i8" if is_large else "<i4"


def has_maps(type_: pa.DataType) -> bool:
    """True if a type is a map, or has one at any level."""
    return _has(pa.lib.Type_MAP, type_)


def has_runs(type_: pa.DataType) -> bool:
    """True if a type is run-end encoded, or has such a type at any level."""
    return _has(pa.lib.Type_RUN_END_ENCODED, type_)


def _has(id_: int, type_: pa.DataType) -> bool:
    if type_.id == id_:
        return True
    if type_.id in UNNAMED:
        return _has(id_, type_.value_type)
    inner = range(type_.num_fields)
    return bool(inner) and any(_has(id_, type_.field(number).type) for number in inner)


def allocate(nbytes: int) -> pa.Buffer:
    """Return a buffer of `nbytes` bytes, not cleared; raise MemoryError if memory is short."""
    return pa.allocate_buffer(nbytes)


def empty(count: int, dtype: str | type) -> np.ndarray:
    """Return an array of `count` numbers, not cleared; a large one is in memory of Arrow.

    The system gets large memory of numpy back at once, and clears what it gives anew.
    """
    nbytes = count * np.dtype(dtype).itemsize
    if nbytes < NUMPY_BYTES:
        return np.empty(count, dtype)
    return view(allocate(nbytes)).view(dtype)


def view(buffer: pa.Buffer) -> np.ndarray:
    """Return the bytes of a buffer; they are writable if the buffer is."""
    return np.frombuffer(buffer, np.uint8)


def bytes_of(buffer: pa.Buffer | None) -> np.ndarray:
    """Return the bytes of an array's buffer; Arrow leaves out the buffers of empty arrays."""
    return np.empty(0, np.uint8) if buffer is None else view(buffer)


def numbers_in(buffer: pa.Buffer | None, dtype: str | type, first: int, count: int) -> np.ndarray:
    """Return `count` numbers of an array's buffer, from `first` on, whatever bytes follow."""
    width = np.dtype(dtype).itemsize
    return bytes_of(buffer)[first * width : (first + count) * width].view(dtype)


def offsets_of(array: pa.Array, dtype: str) -> np.ndarray:
    """Return the offsets of lists or text; their number is one more than the rows."""
    offsets = numbers_in(array.buffers()[1], dtype, array.offset, len(array) + 1)
    return offsets if len(offsets) else np.zeros(1, dtype)


REFUSALS = (
    pa.ArrowInvalid,
    pa.ArrowNotImplementedError,
    pa.ArrowTypeError,
    pa.ArrowKeyError,
    pa.ArrowIndexError,
    pa.lib.ArrowCapacityError,
    pa.lib.ArrowSerializationError,
)
# What Arrow raises for an invalid schema, and the class of an extension type for parameters that it
# refuses. Others, such as MemoryError, say nothing about the data.
UNREADABLE = (
    *REFUSALS,
    OSError,
    ArithmeticError,
    AttributeError,
    LookupError,
    NotImplementedError,
    TypeError,
    ValueError,
    struct.error,
)


def is_foreign(error: BaseException) -> bool:
    """True for an OSError that does not come from an Arrow reader of bytes in memory.

    These readers raise OSError itself. A subclass, such as TimeoutError, comes from a signal
    handler.
    """
    return isinstance(error, OSError) and type(error) is not OSError


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
    if pa.types.is_null(type_):
        # `pa.nulls` takes a bit a row.
        return pa.Array.from_buffers(type_, rows, [None])
    if pa.types.is_dictionary(type_) and pa.types.is_nested(type_.value_type):
        codes, values = pa.nulls(rows, type_.index_type), nulls(0, type_.value_type)
        return pa.DictionaryArray.from_arrays(codes, values, ordered=type_.ordered)
    if not pa.types.is_nested(type_):
        return pa.nulls(rows, type_)
    if pa.types.is_union(type_):
        codes = pa.py_buffer(np.full(rows, type_.type_codes[0], "i1"))
        types = [type_.field(number).type for number in range(type_.num_fields)]
        if type_.mode == "sparse":
            children = [nulls(rows, child) for child in types]
            return pa.Array.from_buffers(type_, rows, [None, codes], children=children)
        children = [nulls(0 if number else rows, child) for number, child in enumerate(types)]
        starts = pa.py_buffer(np.arange(rows, dtype="<i4"))
        return pa.Array.from_buffers(type_, rows, [None, codes, starts], children=children)
    if pa.types.is_run_end_encoded(type_):
        ends = pa.array([rows] if rows else [], type_.run_end_type)
        values = nulls(len(ends), type_.value_type)
        return pa.RunEndEncodedArray.from_arrays(ends, values, type=type_)
    if pa.types.is_struct(type_):
        children = [nulls(rows, type_.field(number).type) for number in range(type_.num_fields)]
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
    columns = [pa.chunked_array([nulls(0, type_)], type_) for type_ in schema.types]
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


_VIEW_BYTES = 16
# A value of so many bytes is in the view itself; of a longer one, it has the first four.
_INLINE, _PREFIX = 12, 4


def view_type(type_: pa.DataType) -> pa.DataType:
    """Return the view of text or bytes; any other type unchanged."""
    if is_text(type_):
        return pa.string_view()
    return pa.binary_view() if is_binary(type_) else type_


def as_views(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return text or bytes, or a dictionary of these, as a type of views."""
    if not pa.types.is_dictionary(array.type):
        return array.cast(type_)
    values = array.dictionary.cast(pa.large_binary())
    data = bytes_of(values.buffers()[2])
    if values.null_count or not len(values) or len(data) > np.iinfo(np.int32).max:
        return array.cast(array.type.value_type).cast(type_)
    # A null row has no view, whatever its code is.
    rows = _views_of(values, data).take(array.indices)
    valid, views = rows.buffers()
    buffers = [valid, views, pa.py_buffer(data)]
    return pa.Array.from_buffers(type_, len(rows), buffers, rows.null_count)


def _views_of(values: pa.Array, data: np.ndarray) -> pa.FixedSizeBinaryArray:
    """Return the view of each value: its length, and its bytes or where they are."""
    ends = bytes_of(values.buffers()[1]).view("<i8")[values.offset :][: len(values) + 1]
    lengths, positions = np.diff(ends), np.arange(_INLINE)
    views = np.zeros((len(values), _VIEW_BYTES), np.uint8)
    views[:, :4] = lengths.astype("<i4").view(np.uint8).reshape(-1, 4)
    if len(data):
        first = data[np.minimum(ends[:-1, np.newaxis] + positions, len(data) - 1)]
        views[:, 4:] = np.where(positions < lengths[:, np.newaxis], first, 0)
    is_long = lengths > _INLINE
    views[is_long, 4 + _PREFIX : 12] = 0  # The number of the buffer.
    views[is_long, 12:] = ends[:-1][is_long].astype("<i4").view(np.uint8).reshape(-1, 4)
    return pa.Array.from_buffers(
        pa.binary(_VIEW_BYTES), len(values), [None, pa.py_buffer(views.reshape(-1))]
    )


def stored_type(type_: pa.DataType) -> pa.DataType:
    """Return the type that `type_` is stored as."""
    # Views are stored as large types and cast back last.
    return without_view(type_)


def as_stored(array: pa.Array) -> pa.Array:
    """Return the array in its stored type; only views are cast."""
    return without_views(array)


@lru_cache(maxsize=1024)
def compared_type(type_: pa.DataType) -> pa.DataType:
    """Return the type that values are compared as: a wider one if Arrow cannot compare theirs."""
    type_ = value_type(type_)
    if pa.types.is_float16(type_):
        return pa.float32()
    if pa.types.is_decimal32(type_) or pa.types.is_decimal64(type_):
        return pa.decimal128(type_.precision, type_.scale)
    return stored_type(type_)


def as_compared(array: pa.Array) -> pa.Array:
    """Cast an array without dictionary to the type that its values are compared as."""
    # The type is wide enough. Decimals may have more digits than the precision of their type, and
    # Arrow's safe cast would refuse them.
    return array.cast(compared_type(array.type), safe=False)
