"""Arrow casts: convert columns to another Arrow type, only if no value changes.

Knows only Arrow types; nothing of tables and pandas. A value is the same if it compares equal: -0.0
may become 0, and one NaN another.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.errors import REFUSALS
from blztable.arrow.nesting import has_items
from blztable.arrow.types import is_binary, is_text, nulls, recoded, without_view
from blztable.columns.nested.assemble import relisted
from blztable.columns.nested.struct_fields import fields_of


def cast_exactly(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray | None:
    """Return the column as this type; None if the type could change a value, or if one changes."""
    if column.type.equals(type_):
        return column
    if column.null_count == len(column):
        return pa.chunked_array([nulls(len(column), type_)])
    try:
        return _cast(column, type_)
    except REFUSALS:
        return None


def cast_anyhow(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray | None:
    """Return the column as this type, with other values where Arrow's unsafe cast makes them.

    Return None if Arrow has no such cast, or for a value that has no counterpart: a text that is no
    number, a NaN or a number out of range for an integer.
    """
    exact = cast_exactly(column, type_)
    if exact is not None:
        return exact
    try:
        if pa.types.is_dictionary(column.type):
            return cast_anyhow(_decoded(column), type_)
        if pa.types.is_dictionary(type_):
            plain = cast_anyhow(column, type_.value_type)
            return None if plain is None else cast_exactly(plain, type_)
        if pa.types.is_integer(type_) and pa.types.is_floating(column.type):
            return pc.trunc(column.cast(pa.float64())).cast(type_)
        return column.cast(type_, safe=False)
    except REFUSALS:
        return None


def misfit(
    column: pa.ChunkedArray, cast: Callable[[pa.ChunkedArray], pa.ChunkedArray | None]
) -> tuple[int, str]:
    """Return the first row that `cast` refuses, and its value as text; a row must be refused."""
    first, stop = 0, len(column)
    while stop - first > 1:
        middle = (first + stop) // 2
        if cast(column.slice(first, middle - first)) is None:
            stop = middle
        else:
            first = middle
    return first, shown(column[first])


def shown(value: pa.Scalar) -> str:
    """Return a value as text for an error."""
    try:
        return f"{value.as_py()!r:.100}"
    except (ValueError, OverflowError):
        # Python has no such time.
        return f"{value.cast(pa.int64()).as_py()} of type {value.type}"


def narrowed(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Return the result of an expression for a column of this type.

    Arrow computes with plain, wide values: a dictionary's values, half floats as wider floats.
    """
    is_float = pa.types.is_floating(type_) and pa.types.is_floating(column.type)
    if is_float or pa.types.is_dictionary(type_):
        cast = cast_exactly(column, type_)
        return column if cast is None else cast
    return column


def repeated(type_: pa.DataType, rows: int, value: pa.Scalar | None) -> pa.ChunkedArray:
    """Return `rows` rows of one value, or of nulls for None."""
    # Arrow cannot repeat a list 0 times.
    if not rows or value is None or not value.is_valid:
        return pa.chunked_array([nulls(rows, type_)])
    if not pa.types.is_dictionary(type_):
        # Arrow casts no unions, runs and views of lists, not even to their own type.
        cast = value if value.type.equals(type_) else value.cast(type_)
        return pa.chunked_array([pa.repeat(cast, rows)])
    code = pa.scalar(0, type_.index_type)
    if isinstance(value, pa.DictionaryScalar):
        code, values = value.index, value.dictionary
    else:
        is_same = value.type.equals(type_.value_type)
        values = pa.repeat(value if is_same else value.cast(type_.value_type), 1)
    codes = pa.repeat(code, rows)
    return pa.chunked_array([pa.DictionaryArray.from_arrays(codes, values, ordered=type_.ordered)])


def _cast(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray | None:
    """Return the column as another type; raise one of REFUSALS, or return None, if it changes."""
    source = column.type
    are_both = pa.types.is_dictionary(source) and pa.types.is_dictionary(type_)
    if are_both and source.value_type == type_.value_type and source.ordered >= type_.ordered:
        return pa.chunked_array([_recoded(chunk, type_) for chunk in column.chunks], type_)
    if pa.types.is_run_end_encoded(source):
        chunks = [pc.run_end_decode(chunk) for chunk in column.chunks]
        return cast_exactly(pa.chunked_array(chunks, source.value_type), type_)
    if are_both and pa.types.is_nested(type_.value_type) and source.ordered >= type_.ordered:
        # Codes stay: Arrow would not find equal values again.
        chunks = [_revalued(chunk, type_) for chunk in column.chunks]
        return None if None in chunks else pa.chunked_array(chunks, type_)
    if pa.types.is_dictionary(source):
        return cast_exactly(_decoded(column), type_)
    if pa.types.is_run_end_encoded(type_):
        plain = cast_exactly(column, type_.value_type)
        return None if plain is None else pc.run_end_encode(plain, run_end_type=type_.run_end_type)
    if pa.types.is_dictionary(type_):
        return None if type_.ordered else _encoded(column, type_)
    if pa.types.is_nested(source) and pa.types.is_nested(type_):
        return _nested(column, type_)
    if _is_any(source, type_, _TRUSTED):
        return column.cast(type_)
    if pa.types.is_integer(source) and pa.types.is_decimal(type_):
        # Arrow wants room for all values of the type; 20 digits hold each integer.
        return cast_exactly(column.cast(pa.decimal128(20, 0)), type_)
    if getattr(source, "tz", None) == getattr(type_, "tz", None) and _is_any(source, type_, _KINDS):
        # Arrow refuses some integers that a float holds, and takes some decimals that change.
        cast = column.cast(type_, safe=not pa.types.is_floating(type_))
        return cast if _is_same(column, cast) else None
    return None


def _nested(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray | None:
    """Return structs, lists or maps as another such type, value by value; None if one changes."""
    chunks = [_nested_array(chunk, type_) for chunk in column.chunks]
    is_whole = all(chunk is not None for chunk in chunks)
    return pa.chunked_array(chunks, type_) if is_whole else None


def _nested_array(array: pa.Array, type_: pa.DataType) -> pa.Array | None:
    source, mask = array.type, array.is_null() if array.null_count else None
    if pa.types.is_struct(source) and pa.types.is_struct(type_):
        children = _fields(array, type_)
        if children is None or not children:
            return None
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=mask)
    if source.id in _LISTS:
        return _nested_array(relisted(array, _LISTS[source.id](source.value_field)), type_)
    if type_.id in _LISTS:
        like = _LISTS[type_.id](type_.value_field)
        lists = array if source.equals(like) else _nested_array(array, like)
        return None if lists is None else relisted(lists, type_)
    is_map = pa.types.is_map(type_)
    are_maps = is_map and pa.types.is_map(source)
    if not are_maps and not (has_items(source) and (is_map or has_items(type_))):
        return None
    # Items that no list shows may be anything. Views of lists have no such function.
    items = array.flatten()
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    if is_map:
        entries = _entries(items, type_)
        if entries is None:
            return None
        places = pa.array(offsets, pa.int32())
        maps = pa.ListArray.from_arrays(places, entries, mask=mask)
        return pa.Array.from_buffers(type_, len(maps), maps.buffers()[:2], children=[entries])
    child = _one(items, type_.value_type)
    if child is None:
        return None
    if pa.types.is_fixed_size_list(type_):
        return _of_size(child, offsets, type_, mask)
    is_large = pa.types.is_large_list(type_)
    places = pa.array(offsets, pa.int64() if is_large else pa.int32())
    make = pa.LargeListArray if is_large else pa.ListArray
    return make.from_arrays(places, child, type=type_, mask=mask)


def _entries(items: pa.Array, type_: pa.MapType) -> pa.StructArray | None:
    """Return pairs as the entries of maps; None if an item is no pair, or a value changes.

    Arrow makes structs of two fields of Python's pairs, or lists if both values have one type.
    """
    if items.null_count:
        return None
    if pa.types.is_struct(items.type) and items.type.num_fields == 2:
        pairs = fields_of(items)
    elif pa.types.is_list(items.type) and pc.all(pc.equal(pc.list_value_length(items), 2)).as_py():
        both = items.flatten()
        pairs = [both.take(pa.array(np.arange(side, len(both), 2))) for side in (0, 1)]
    elif not len(items):
        pairs = [nulls(0, type_.key_type), nulls(0, type_.item_type)]
    else:
        return None
    fields = [type_.key_field, type_.item_field]
    keys, values = (_one(side, field.type) for side, field in zip(pairs, fields, strict=True))
    if keys is None or values is None or keys.null_count:
        return None
    return pa.StructArray.from_arrays([keys, values], fields=fields)


def _fields(array: pa.StructArray, type_: pa.StructType) -> list[pa.Array] | None:
    """Return the fields of a struct type, null where the array lacks one; None if one is lost."""
    names = [field.name for field in array.type]
    if len(set(names)) < len(names) or set(names) - {field.name for field in type_}:
        return None
    present = dict(zip(names, fields_of(array), strict=True))
    children = [
        _one(present[field.name], field.type)
        if field.name in present
        else nulls(len(array), field.type)
        for field in type_
    ]
    return children if all(child is not None for child in children) else None


def _one(array: pa.Array, type_: pa.DataType) -> pa.Array | None:
    cast = cast_exactly(pa.chunked_array([array]), type_)
    return None if cast is None else cast.combine_chunks()


def _of_size(
    items: pa.Array, offsets: np.ndarray, type_: pa.FixedSizeListType, mask: pa.Array | None
) -> pa.Array | None:
    """Return lists of one size, null items where the list is null; None if a size differs."""
    size, shown = type_.list_size, np.diff(offsets) == type_.list_size
    if not (shown if mask is None else shown | np.asarray(mask)).all():
        return None
    places = (offsets[:-1, np.newaxis] + np.arange(size)).reshape(-1)
    hidden = np.repeat(~shown if mask is None else np.asarray(mask), size)
    child = items.take(pa.array(places, mask=hidden))
    return pa.FixedSizeListArray.from_arrays(child, type=type_, mask=mask)


def _is_same(column: pa.ChunkedArray, cast: pa.ChunkedArray) -> bool:
    """True if each value of a column is the same after a cast."""
    source = column.type
    back = cast.cast(source, safe=False)
    if pa.types.is_floating(source):
        # Arrow does not compare half floats.
        back, column = back.cast(pa.float64()), column.cast(pa.float64())
        same = pc.or_(pc.equal(back, column), pc.and_(pc.is_nan(back), pc.is_nan(column)))
    else:
        same = pc.equal(back, column)
    if pa.types.is_integer(source) and pa.types.is_floating(cast.type):
        # A float beyond the integers may come back as the last one.
        end = 2.0 ** (source.bit_width - pa.types.is_signed_integer(source))
        same = pc.and_(same, pc.less(cast.cast(pa.float64()), end))
    return bool(pc.all(same, min_count=0).as_py())


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values of a dictionary column."""
    type_ = column.type.value_type
    # Arrow takes no rows of views.
    plain = without_view(type_)
    # Nor does it cast each nested type to itself.
    values = [chunk.dictionary for chunk in column.chunks]
    values = values if plain == type_ else [one.cast(plain) for one in values]
    pairs = zip(values, column.chunks, strict=True)
    return pa.chunked_array([one.take(chunk.indices) for one, chunk in pairs], plain)


def _encoded(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray | None:
    """Return plain values as an unordered dictionary type."""
    plain = cast_exactly(column, type_.value_type)
    if plain is None:
        return None
    if pa.types.is_nested(type_.value_type):
        # Arrow finds no equal values of these types, so each row is a value.
        chunks = [_numbered(chunk, type_.index_type) for chunk in plain.chunks]
        return pa.chunked_array(chunks, type_)
    chunks = [_recoded(chunk.dictionary_encode(), type_) for chunk in plain.chunks]
    return pa.chunked_array(chunks, type_)


def _revalued(chunk: pa.DictionaryArray, type_: pa.DataType) -> pa.DictionaryArray | None:
    """Return the same codes with the values cast; None if one changes."""
    values = _one(chunk.dictionary, type_.value_type)
    if values is None:
        return None
    same = pa.DictionaryArray.from_arrays(chunk.indices, values, ordered=type_.ordered, safe=False)
    return _recoded(same, type_)


def _numbered(array: pa.Array, index: pa.DataType) -> pa.DictionaryArray:
    """Return a dictionary array in which each row that is not null has a value of its own."""
    values = array.filter(array.is_valid()) if array.null_count else array
    mask = np.asarray(array.is_null())
    codes = pa.array(np.cumsum(~mask) - 1, mask=mask).cast(index)
    return pa.DictionaryArray.from_arrays(codes, values)


def _recoded(chunk: pa.DictionaryArray, type_: pa.DataType) -> pa.DictionaryArray:
    """Return the same values with codes of another width."""
    # Codes count from 0, so all fit if the last one fits.
    pa.scalar(max(len(chunk.dictionary) - 1, 0), type_.index_type)
    return recoded(chunk, type_)


# The lists that have the bits of item ends that views of lists have.
_LISTS = {pa.lib.Type_LIST_VIEW: pa.list_, pa.lib.Type_LARGE_LIST_VIEW: pa.large_list}
_Kind = Callable[[pa.DataType], bool]
# Pairs of kinds between which Arrow's cast refuses each value that it would change.
_TRUSTED: tuple[tuple[_Kind, _Kind], ...] = (
    (is_text, is_text),
    (is_binary, is_binary),
    (is_binary, pa.types.is_fixed_size_binary),
    (pa.types.is_fixed_size_binary, is_binary),
    (pa.types.is_decimal, pa.types.is_integer),
)
# Pairs of kinds with values in common.
_KINDS: tuple[tuple[_Kind, _Kind], ...] = (
    (pa.types.is_integer, pa.types.is_integer),
    (pa.types.is_integer, pa.types.is_floating),
    (pa.types.is_floating, pa.types.is_integer),
    (pa.types.is_floating, pa.types.is_floating),
    (pa.types.is_decimal, pa.types.is_decimal),
    (pa.types.is_timestamp, pa.types.is_timestamp),
    (pa.types.is_duration, pa.types.is_duration),
    (pa.types.is_time, pa.types.is_time),
    (pa.types.is_date, pa.types.is_date),
)


def _is_any(
    source: pa.DataType, type_: pa.DataType, pairs: tuple[tuple[_Kind, _Kind], ...]
) -> bool:
    return any(from_(source) and to(type_) for from_, to in pairs)
