"""Unnamed types: extension types and narrow run ends inside dictionaries and runs.

Arrow writes the name of an extension type in the metadata of a field, so that of a dictionary's
values is lost, or taken for that of the dictionary. Run ends of 16 bits reach too few rows for a
column. Both are kept in the metadata of the nearest field above. The types from that field down to
the next one, or to a leaf, are its levels, of which the field's own type is the first, 0.
"""

import pyarrow as pa

from blztable.arrow.extension_names import KEPT_NAME, PARAMETERS, read_plain, registered
from blztable.arrow.run_ends import is_narrow
from blztable.arrow.types import UNNAMED, has_children, with_fields
from blztable.errors import SchemaError

# The levels whose run ends have 16 bits: numbers with a comma between them.
RUN_ENDS = b"blz:run_ends"
# The extension type of the last level.
VALUES_NAME = b"blz:values:extension:name"
VALUES_PARAMETERS = b"blz:values:extension:metadata"
KEYS = (RUN_ENDS, VALUES_NAME, VALUES_PARAMETERS)


def is_kept_above(type_: pa.DataType) -> bool:
    """True if something of a type, at any level, must be kept in the metadata of a field."""
    if type_.id in UNNAMED:
        values = type_.value_type
        is_unnamed = isinstance(values, pa.BaseExtensionType)
        return is_narrow(type_) or is_unnamed or is_kept_above(values)
    if isinstance(type_, pa.BaseExtensionType):
        return is_kept_above(type_.storage_type)
    inner = range(type_.num_fields)
    return bool(inner) and any(is_kept_above(type_.field(number).type) for number in inner)


def without_unnamed(field: pa.Field, column: str) -> pa.Field:
    """Return a field whose metadata say what its type cannot.

    Raises
    ------
    SchemaError
        An extension type is stored as such a type; `column` begins the message.
    """
    if not is_kept_above(field.type):
        return field
    narrow: list[int] = []
    kept: dict[bytes, bytes] = {}

    def plain(type_: pa.DataType, level: int) -> pa.DataType:
        if isinstance(type_, pa.BaseExtensionType):
            storage = type_.storage_type
            if is_kept_above(storage) or (level and _is_unnamed(storage)):
                raise SchemaError(
                    f"column {column!r}: {type_} cannot be stored, because its storage is "
                    f"{storage}; pass its storage, such as array.storage"
                )
            if not level:
                return type_
            (named,) = read_plain(pa.schema([pa.field("", type_)]).serialize().to_pybytes())
            kept[VALUES_NAME] = named.metadata[KEPT_NAME]
            kept[VALUES_PARAMETERS] = named.metadata.get(PARAMETERS, b"")
            return named.type
        if not _is_unnamed(type_):
            return with_fields(type_, lambda inner: without_unnamed(inner, column))
        if is_narrow(type_):
            narrow.append(level)
        values = plain(type_.value_type, level + 1)
        if pa.types.is_dictionary(type_):
            return pa.dictionary(type_.index_type, values, type_.ordered)
        ends = pa.int32() if is_narrow(type_) else type_.run_end_type
        return pa.run_end_encoded(ends, values)

    type_ = plain(field.type, 0)
    if narrow:
        kept[RUN_ENDS] = ",".join(map(str, narrow)).encode()
    metadata = {**(field.metadata or {}), **kept}
    return field.with_type(type_).with_metadata(metadata or None)


def with_unnamed(field: pa.Field) -> pa.Field:
    """Return the field that `without_unnamed` was given, as far as classes are registered here."""
    if not has_children(field.type):
        return field
    metadata = dict(field.metadata or {})
    narrow = metadata.pop(RUN_ENDS, b"").split(b",")

    def named(type_: pa.DataType, level: int) -> pa.DataType:
        if not _is_unnamed(type_):
            type_ = with_fields(type_, with_unnamed)
            return _named(type_, metadata) if level else type_
        values = named(type_.value_type, level + 1)
        if pa.types.is_dictionary(type_):
            return pa.dictionary(type_.index_type, values, type_.ordered)
        is_short = b"%d" % level in narrow and pa.types.is_int32(type_.run_end_type)
        return pa.run_end_encoded(pa.int16() if is_short else type_.run_end_type, values)

    type_ = named(field.type, 0)
    return field.with_type(type_).with_metadata(metadata or None)


def _is_unnamed(type_: pa.DataType) -> bool:
    """True if the values of a type have no field."""
    return bool(pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_))


def _named(type_: pa.DataType, metadata: dict[bytes, bytes]) -> pa.DataType:
    """Return the extension type that metadata name, and remove it there; else the type itself."""
    if VALUES_NAME not in metadata or isinstance(type_, pa.BaseExtensionType):
        return type_
    kept = {KEPT_NAME: metadata[VALUES_NAME], PARAMETERS: metadata.get(VALUES_PARAMETERS, b"")}
    (registered_field,) = registered(pa.schema([pa.field("", type_, metadata=kept)]))
    if not isinstance(registered_field.type, pa.BaseExtensionType):
        return type_
    del metadata[VALUES_NAME]
    metadata.pop(VALUES_PARAMETERS, None)
    return registered_field.type
