"""Struct fields: the fields of structs as columns, null where a struct is.

Arrow's own functions give unions and runs a bitmap, which these types do not have. The one of a
union ends the process. Knows Arrow arrays only.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.nested.assemble import rebuilt
from blztable.arrow.nested.flatten import flatten
from blztable.arrow.nested.nodes import Node


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
    return all(_has_bitmap(one) and has_safe_fields(one) for one in types)


def masked(array: pa.Array, mask: np.ndarray) -> pa.Array:
    """Return an array of any type that is null where the mask is False."""
    if not _has_bitmap(array.type):
        node = Node.of(array.type)
        return rebuilt(node, iter(flatten(node, array, visible=mask)))
    structs = pa.StructArray.from_arrays([array], ["values"], mask=pa.array(~mask))
    return pc.struct_field(structs, [0])


def _has_bitmap(type_: pa.DataType) -> bool:
    return not (pa.types.is_union(type_) or pa.types.is_run_end_encoded(type_))
