"""The families of types that stand alone, by the id of their Arrow type.

Each family is one file with the same three functions: `layout`, `encode`, `decoder`.
"""

from types import ModuleType

import pyarrow as pa

from blztable.arrow_types import value_type, without_view
from blztable.columns.codecs import boolean, fixed, null, text

FAMILIES: dict[int, ModuleType] = {
    type_id: family for family in (fixed, boolean, text, null) for type_id in family.TYPE_IDS
}


def stored_type(type_: pa.DataType) -> pa.DataType:
    """The type `type_` is stored as."""
    # Views are stored as large types and cast back last.
    return without_view(type_)


def as_stored(array: pa.Array) -> pa.Array:
    """The array as the type it is stored as; the array itself for all but views."""
    stored = stored_type(array.type)
    return array if stored.id == array.type.id else array.cast(stored)


def compared_type(type_: pa.DataType) -> pa.DataType:
    """The type a column of this type is compared as: its values', wider where Arrow needs it."""
    type_ = value_type(type_)
    if pa.types.is_float16(type_):
        return pa.float32()
    if pa.types.is_decimal32(type_) or pa.types.is_decimal64(type_):
        return pa.decimal128(type_.precision, type_.scale)
    return stored_type(type_)


def as_compared(array: pa.Array) -> pa.Array:
    """The array, not of a dictionary, as the type it is compared as."""
    # That is wide enough, and values are as they were given: decimals may have more digits than
    # their type says, which Arrow looks at when it casts decimals only.
    return array.cast(compared_type(array.type), safe=False)


def is_plain(type_: pa.DataType) -> bool:
    """Whether a family takes care of the type."""
    return stored_type(type_).id in FAMILIES and not isinstance(type_, pa.BaseExtensionType)


def family_of(type_: pa.DataType) -> ModuleType:
    """The file that takes care of a stored type."""
    return FAMILIES[type_.id]
