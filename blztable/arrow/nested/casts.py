"""Nested casts: convert nested values to another nested type, only if no value changes.

A value of another kind, or within a nested one, goes to a function that casts a column of any type.
Knows only Arrow types.

Struct fields: the fields of structs as columns, null where a struct is. Arrow's own functions give
unions and runs a bitmap, which these types do not have. The one of a union ends the process.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.nested.assemble import rebuilt, relisted
from blztable.arrow.nested.flatten import flatten
from blztable.arrow.nested.nodes import Node
from blztable.arrow.types import LISTS_OF_VIEWS, first_missing, has_items, nulls


def fields_of(structs: pa.StructArray) -> list[pa.Array]:
    """Return each field of an array of structs."""
    return [field_of(structs, number) for number in range(structs.type.num_fields)]


def field_of(structs: pa.StructArray, number: int) -> pa.Array:
    """Return a field of an array of structs."""
    array = structs.field(number)
    if not structs.null_count:
        return array
    if _has_bitmap(array.type):
        return pc.struct_field(structs, [number])
    return masked(array, structs.is_valid().to_numpy(zero_copy_only=False))


def inner_field(column: pa.ChunkedArray, names: Sequence[str]) -> pa.ChunkedArray | None:
    """Return a field of structs of a column by its names; None if not exactly one has them."""
    for name in names:
        type_ = column.type
        if not pa.types.is_struct(type_) or len(type_.get_all_field_indices(name)) != 1:
            return None
        number = type_.get_field_index(name)
        fields = [field_of(chunk, number) for chunk in column.chunks]
        column = pa.chunked_array(fields, type_.field(number).type)
    return column


def has_safe_fields(type_: pa.DataType) -> bool:
    """True if Arrow can return any field of a struct, however deep."""
    if not pa.types.is_struct(type_):
        return True
    types = [type_.field(number).type for number in range(type_.num_fields)]
    return all(_has_bitmap(type_) and has_safe_fields(type_) for type_ in types)


def masked(array: pa.Array, mask: np.ndarray) -> pa.Array:
    """Return an array of any type that is null where the mask is False."""
    if not _has_bitmap(array.type):
        node = Node.of(array.type)
        return rebuilt(node, iter(flatten(node, array, visible=mask)))
    structs = pa.StructArray.from_arrays([array], ["values"], mask=pa.array(~mask))
    return pc.struct_field(structs, [0])


def _has_bitmap(type_: pa.DataType) -> bool:
    return not (pa.types.is_union(type_) or pa.types.is_run_end_encoded(type_))


# Returns a column as another type; None if a value changes.
Cast = Callable[[pa.ChunkedArray, pa.DataType], pa.ChunkedArray | None]

# The names of the fields of structs that are pairs: those of Python, and the entries of maps.
PAIRS = (["0", "1"], ["key", "value"])


def cast_nested(column: pa.ChunkedArray, type_: pa.DataType, cast: Cast) -> pa.ChunkedArray | None:
    """Return structs, lists or maps as another such type, value by value; None if one changes."""
    chunks = [_cast_array(chunk, type_, cast) for chunk in column.chunks]
    is_whole = all(chunk is not None for chunk in chunks)
    return pa.chunked_array(chunks, type_) if is_whole else None


def revalued(
    array: pa.DictionaryArray, type_: pa.DataType, cast: Cast
) -> pa.DictionaryArray | None:
    """Return the same codes with the values cast to a type; None if one changes."""
    values = _one(array.dictionary, type_, cast)
    if values is None:
        return None
    return pa.DictionaryArray.from_arrays(
        array.indices, values, ordered=array.type.ordered, safe=False
    )


def numbered(array: pa.Array, index: pa.DataType) -> pa.DictionaryArray:
    """Return a dictionary array in which each row that is not null has a value of its own."""
    values = array.filter(array.is_valid()) if array.null_count else array
    mask = np.asarray(array.is_null())
    codes = pa.array(np.cumsum(~mask) - 1, mask=mask).cast(index)
    return pa.DictionaryArray.from_arrays(codes, values)


def lists_of(maps: pa.MapArray) -> pa.ListArray:
    """Return maps as lists of entries, of which Arrow has more functions."""
    type_, buffers = pa.list_(maps.values.type), maps.buffers()[:2]
    return pa.Array.from_buffers(
        type_, len(maps), buffers, offset=maps.offset, children=[maps.values]
    )


def _cast_array(array: pa.Array, type_: pa.DataType, cast: Cast) -> pa.Array | None:
    source, mask = array.type, array.is_null() if array.null_count else None
    if pa.types.is_struct(source) and pa.types.is_struct(type_):
        children = _fields(array, type_, cast)
        if children is None or not children:
            return None
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=mask)
    if source.id in LISTS_OF_VIEWS:
        like = LISTS_OF_VIEWS[source.id](source.value_field)
        return _cast_array(relisted(array, like), type_, cast)
    if type_.id in LISTS_OF_VIEWS:
        like = LISTS_OF_VIEWS[type_.id](type_.value_field)
        lists = array if source.equals(like) else _cast_array(array, like, cast)
        return None if lists is None else relisted(lists, type_)
    is_map = pa.types.is_map(type_)
    are_maps = is_map and pa.types.is_map(source)
    if not are_maps and not (has_items(source) and (is_map or has_items(type_))):
        return None
    if are_maps:
        array = lists_of(array)
    # Items that no list shows may be anything. Views of lists have no such function.
    items = array.flatten()
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    if is_map:
        entries = _entries(items, type_, cast, are_maps)
        if entries is None:
            return None
        starts = pa.array(offsets, pa.int32())
        maps = pa.ListArray.from_arrays(starts, entries, mask=mask)
        return pa.Array.from_buffers(type_, len(maps), maps.buffers()[:2], children=[entries])
    child = _one(items, type_.value_type, cast)
    if child is None:
        return None
    if pa.types.is_fixed_size_list(type_):
        return _of_size(child, offsets, type_, mask)
    is_large = pa.types.is_large_list(type_)
    starts = pa.array(offsets, pa.int64() if is_large else pa.int32())
    make = pa.LargeListArray if is_large else pa.ListArray
    return make.from_arrays(starts, child, type=type_, mask=mask)


def _entries(
    items: pa.Array, type_: pa.MapType, cast: Cast, are_maps: bool
) -> pa.StructArray | None:
    """Return pairs as the entries of maps; None if an item is no pair, or a value changes.

    Pairs of Python are structs with the fields "0" and "1", or lists if both values have one type.
    """
    if items.null_count:
        return None
    if are_maps or (pa.types.is_struct(items.type) and items.type.names in PAIRS):
        pairs = fields_of(items)
    elif pa.types.is_list(items.type) and pc.all(pc.equal(pc.list_value_length(items), 2)).as_py():
        both = items.flatten()
        pairs = [both.take(pa.array(np.arange(side, len(both), 2))) for side in (0, 1)]
    elif not len(items):
        pairs = [nulls(0, type_.key_type), nulls(0, type_.item_type)]
    else:
        return None
    fields = [type_.key_field, type_.item_field]
    keys, values = (_one(side, field.type, cast) for side, field in zip(pairs, fields, strict=True))
    if keys is None or values is None or first_missing(pa.chunked_array([keys])) is not None:
        return None
    return pa.StructArray.from_arrays([keys, values], fields=fields)


def _fields(array: pa.StructArray, type_: pa.StructType, cast: Cast) -> list[pa.Array] | None:
    """Return the fields of a struct type, null where the array lacks one; None if one is lost."""
    names = [field.name for field in array.type]
    if len(set(names)) < len(names) or set(names) - {field.name for field in type_}:
        return None
    present = dict(zip(names, fields_of(array), strict=True))
    children = [
        _one(present[field.name], field.type, cast)
        if field.name in present
        else nulls(len(array), field.type)
        for field in type_
    ]
    return children if all(child is not None for child in children) else None


def _one(array: pa.Array, type_: pa.DataType, cast: Cast) -> pa.Array | None:
    column = cast(pa.chunked_array([array]), type_)
    return None if column is None else column.combine_chunks()


def _of_size(
    items: pa.Array, offsets: np.ndarray, type_: pa.FixedSizeListType, mask: pa.Array | None
) -> pa.Array | None:
    """Return lists of one size, null items where the list is null; None if a size differs."""
    size, is_full = type_.list_size, np.diff(offsets) == type_.list_size
    if not (is_full if mask is None else is_full | np.asarray(mask)).all():
        return None
    positions = (offsets[:-1, np.newaxis] + np.arange(size)).reshape(-1)
    hidden = np.repeat(~is_full if mask is None else np.asarray(mask), size)
    child = items.take(pa.array(positions, mask=hidden))
    validity = None if mask is None else pc.invert(mask).buffers()[1]
    # Arrow's own constructor ends the process if the size is 0.
    return pa.Array.from_buffers(type_, len(is_full), [validity], children=[child])
