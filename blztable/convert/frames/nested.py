"""Nested: Arrow arrays changed so that pyarrow makes no floats of integers beside nulls.

pyarrow makes floats of integers beside nulls. A field is null wherever its struct is, so that one
null struct would make floats of all, although nobody sees these nulls. Knows nothing of pandas.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.types import LISTS, LISTS_OF_VIEWS, bitmap, with_fields
from blztable.convert.arrays import missing_of

# Up to here a float has every integer.
EXACT_MAX = 1 << 53

# True for each row below a null struct; None without any.
Hidden = np.ndarray | None


def without_hidden(array: pa.Array, hidden: Hidden = None) -> pa.Array:
    """Return an array with zeros for integers that are null below a null struct, at any level.

    Dictionaries and runs of integers become plain integers.
    """
    type_, rows = array.type, len(array)
    if pa.types.is_integer(type_) and hidden is not None and array.null_count:
        return pc.if_else(pa.array(hidden), pa.scalar(0, type_), array)
    if pa.types.is_dictionary(type_) and pa.types.is_integer(type_.value_type):
        return without_hidden(array.dictionary_decode(), hidden)
    if pa.types.is_struct(type_):
        missing = missing_of(array)
        if missing is not None:
            hidden = missing if hidden is None else hidden | missing
        fields = [array.field(number) for number in range(type_.num_fields)]
        fields = [without_hidden(field, hidden) for field in fields]
        type_ = _retyped(type_, fields)
        return pa.Array.from_buffers(type_, rows, _validity(missing), children=fields)
    if pa.types.is_fixed_size_list(type_):
        size = type_.list_size
        below = None if hidden is None else hidden.repeat(size)
        items = without_hidden(array.values.slice(array.offset * size, rows * size), below)
        type_, validity = _retyped(type_, [items]), _validity(missing_of(array))
        return pa.Array.from_buffers(type_, rows, validity, children=[items])
    if pa.types.is_run_end_encoded(type_):
        if pa.types.is_integer(type_.value_type):
            return without_hidden(pc.run_end_decode(array), hidden)
        children = [array.run_ends, without_hidden(array.values)]
        type_ = _retyped(type_, children[1:])
        return pa.Array.from_buffers(type_, rows, [None], 0, array.offset, children)
    if pa.types.is_map(type_) or type_.id in LISTS:
        items = without_hidden(array.values)
        type_ = _retyped(type_, items.flatten() if pa.types.is_map(type_) else [items])
        buffers = array.buffers()[: 3 if array.type.id in LISTS_OF_VIEWS else 2]
        return pa.Array.from_buffers(type_, rows, buffers, -1, array.offset, [items])
    return array


def loses_digits(array: pa.Array) -> bool:
    """True if an integer of a result of `without_hidden` would be another number as a float."""
    type_ = array.type
    if pa.types.is_integer(type_):
        bounds = pc.min_max(array).values() if array.null_count else ()
        return any(abs(bound.as_py() or 0) > EXACT_MAX for bound in bounds)
    if pa.types.is_struct(type_):
        return any(loses_digits(array.field(number)) for number in range(type_.num_fields))
    is_list = pa.types.is_nested(type_) and not pa.types.is_union(type_)
    return is_list and loses_digits(array.values)


def _validity(missing: Hidden) -> list[pa.Buffer | None]:
    return [None if missing is None else bitmap(~missing)]


def _retyped(type_: pa.DataType, children: Sequence[pa.Array]) -> pa.DataType:
    """Return a nested type with the types of these child arrays."""
    types = iter([child.type for child in children])
    return with_fields(type_, lambda field: field.with_type(next(types)))
