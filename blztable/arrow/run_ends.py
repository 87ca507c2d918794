"""Run ends: arrays of runs, at any level, with run ends of another width.

Run ends of 16 bits reach 32,767 rows. Within the package they have 32 bits, so that any number of
rows is one array; arrays are cut where users see them. Knows nothing of tables.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from blztable.arrow.types import (
    LISTS_OF_VIEWS,
    bitmap,
    has_children,
    numbers_in,
    offset_dtype,
    offsets_of,
    with_fields,
)
from blztable.errors import SchemaError

# The most rows that run ends of 16 bits reach.
MOST_ROWS = (1 << 15) - 1


class _TooManyRowsError(Exception):
    """Some runs have more rows than their run ends reach."""


def is_narrow(type_: pa.DataType) -> bool:
    """True for runs with ends of 16 bits."""
    return type_.id == pa.lib.Type_RUN_END_ENCODED and bool(pa.types.is_int16(type_.run_end_type))


def widened_type(type_: pa.DataType) -> pa.DataType:
    """Return a type in which all run ends of 16 bits have 32."""
    if not has_children(type_):
        return type_
    if is_narrow(type_):
        return pa.run_end_encoded(pa.int32(), widened_type(type_.value_type))
    wide = with_fields(type_, lambda field: field.with_type(widened_type(field.type)))
    return type_ if wide == type_ else wide


def widened(array: pa.Array) -> pa.Array:
    """Return an array in which all run ends of 16 bits have 32."""
    type_ = widened_type(array.type)
    return array if type_ is array.type else _as_type(array, type_)


def narrowed(array: pa.Array, type_: pa.DataType) -> Iterator[pa.Array]:
    """Yield an array in a type that has run ends of 16 bits, in pieces that these reach.

    Raises
    ------
    SchemaError
        One row has too many items in a list of runs.
    """
    if array.type.equals(type_):
        yield array
        return
    for start in range(0, max(len(array), 1), MOST_ROWS):
        yield from _as_fits(array.slice(start, MOST_ROWS), type_)


def _as_fits(array: pa.Array, type_: pa.DataType) -> Iterator[pa.Array]:
    """Yield an array as it is, or in halves of halves."""
    try:
        whole = _as_type(array, type_)
    except _TooManyRowsError:
        if len(array) < 2:
            raise SchemaError(
                f"a row has more items than run ends of 16 bits reach, which is {MOST_ROWS}: the "
                f"type is {type_}"
            ) from None
        half = len(array) // 2
        yield from _as_fits(array.slice(0, half), type_)
        yield from _as_fits(array.slice(half), type_)
    else:
        yield whole


def _as_type(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return the rows of an array with other run ends; the types are else the same."""
    if array.type.equals(type_):
        return array
    rows, kinds = len(array), pa.types
    if kinds.is_run_end_encoded(type_):
        return _runs(array, type_)
    if kinds.is_dictionary(type_):
        values = _as_type(array.dictionary, type_.value_type)
        return pa.DictionaryArray.from_arrays(
            array.indices, values, ordered=type_.ordered, safe=False
        )
    if kinds.is_union(type_):
        return _union(array, type_)
    validity = bitmap(np.asarray(array.is_valid())) if array.null_count else None
    if kinds.is_struct(type_):
        children = [_as_type(array.field(n), type_.field(n).type) for n in range(type_.num_fields)]
        return pa.Array.from_buffers(type_, rows, [validity], children=children)
    if kinds.is_fixed_size_list(type_):
        size = type_.list_size
        items = _as_type(array.values.slice(array.offset * size, rows * size), type_.value_type)
        return pa.Array.from_buffers(type_, rows, [validity], children=[items])
    dtype = offset_dtype(type_)
    if type_.id in LISTS_OF_VIEWS:
        _, *places = array.buffers()[:3]
        starts, sizes = (numbers_in(buffer, dtype, array.offset, rows) for buffer in places)
        # The view of a null may lead anywhere.
        sizes = np.where(np.asarray(array.is_valid()), sizes, 0)
        starts = np.where(sizes > 0, starts, starts[sizes > 0].min(initial=len(array.values)))
        low, high = int(starts.min(initial=0)) if rows else 0, int((starts + sizes).max(initial=0))
        more = [pa.py_buffer(sizes.astype(dtype))]
    else:
        starts = offsets_of(array, dtype)
        low, high, more = int(starts[0]), int(starts[-1]), []
    buffers = [validity, pa.py_buffer((starts - low).astype(dtype)), *more]
    if kinds.is_map(type_):
        fields = [type_.key_field, type_.item_field]
        pairs = zip(fields, (array.keys, array.items), strict=True)
        entries = [_as_type(values.slice(low, high - low), field.type) for field, values in pairs]
        items = pa.Array.from_buffers(pa.struct(fields), high - low, [None], children=entries)
    else:
        items = _as_type(array.values.slice(low, high - low), type_.value_type)
    return pa.Array.from_buffers(type_, rows, buffers, children=[items])


def _runs(array: pa.RunEndEncodedArray, type_: pa.RunEndEncodedType) -> pa.Array:
    rows, width = len(array), np.iinfo(type_.run_end_type.to_pandas_dtype())
    if rows > width.max:
        raise _TooManyRowsError
    ends, before = np.asarray(array.run_ends), array.offset
    first = int(np.searchsorted(ends, before, "right"))
    stop = int(np.searchsorted(ends, before + rows, "left")) + 1 if rows else first
    own = np.minimum(ends[first:stop].astype(np.int64) - before, rows)
    run_ends = pa.array(own, type_.run_end_type)
    values = _as_type(array.values.slice(first, stop - first), type_.value_type)
    return pa.RunEndEncodedArray.from_arrays(run_ends, values, type=type_)


def _union(array: pa.UnionArray, type_: pa.UnionType) -> pa.Array:
    rows, own = len(array), array.buffers()
    codes = numbers_in(own[1], "i1", array.offset, rows)
    buffers = [None, pa.py_buffer(codes)]
    children = [array.field(number) for number in range(type_.num_fields)]
    if type_.mode == "dense":
        starts = numbers_in(own[2], "<i4", array.offset, rows).copy()
        for number, code in enumerate(type_.type_codes):
            used = starts[codes == code]
            low, high = (int(used.min()), int(used.max()) + 1) if len(used) else (0, 0)
            starts[codes == code] -= low
            children[number] = children[number].slice(low, high - low)
        buffers.append(pa.py_buffer(starts))
    types = [type_.field(number).type for number in range(type_.num_fields)]
    children = list(map(_as_type, children, types))
    return pa.Array.from_buffers(type_, rows, buffers, children=children)
