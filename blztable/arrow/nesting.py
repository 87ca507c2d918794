"""Nesting: types whose child types are changed one by one. Knows no arrays."""

from collections.abc import Callable

import pyarrow as pa

LISTS = {
    pa.lib.Type_LIST: pa.list_,
    pa.lib.Type_LARGE_LIST: pa.large_list,
    pa.lib.Type_LIST_VIEW: pa.list_view,
    pa.lib.Type_LARGE_LIST_VIEW: pa.large_list_view,
}
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
    return type_.num_fields > 0 or pa.types.is_dictionary(type_)


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
    if pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
        return _has(id_, type_.value_type)
    return any(_has(id_, type_.field(number).type) for number in range(type_.num_fields))
