"""Extensions: data of extension types as data of their storage types, and back.

Theory of operation. Arrow writes an extension type as its storage type, with a name and parameters
in the metadata of the field. Whoever reads the field calls the class that is registered under the
name. A table keeps what Arrow writes. Within the package the field has another key than `NAME`, of
the same length, so that Arrow calls no class and every function sees storage types. The key is
changed in the bytes of the schema, at all levels at once. Arrays take a new type through Arrow's C
data interface, which copies nothing. Knows nothing of tables.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from blztable.arrow_errors import UNREADABLE, is_foreign
from blztable.errors import SchemaError

# The keys in the metadata of a field that is written for an extension type.
NAME = b"ARROW:extension:name"
PARAMETERS = b"ARROW:extension:metadata"
# The name within the package.
KEPT_NAME = b"blztb:extension:name"


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema with storage types instead of extension types, which their fields name.

    Raises
    ------
    SchemaError
        The values of a dictionary have an extension type, which Arrow cannot write.
    """
    data = schema.serialize().to_pybytes()
    if NAME not in data:
        return schema
    for field in schema:
        _check_dictionaries(field.name, field.type)
    return read_plain(data)


def read_plain(data: bytes) -> pa.Schema:
    """Return the schema of an Arrow IPC message as `plain_schema` does; raises as Arrow does."""
    schema = pa.ipc.read_schema(pa.py_buffer(data.replace(NAME, KEPT_NAME)))
    kept, name = KEPT_NAME.decode(), NAME.decode()
    if NAME not in data or not any(kept in one for one in schema.names):
        return schema
    # A column may have this name.
    fields = [field.with_name(field.name.replace(kept, name)) for field in schema]
    return pa.schema(fields, schema.metadata)


def written(schema: pa.Schema) -> bytes:
    """Return the Arrow IPC message of a plain schema."""
    data: bytes = schema.serialize().to_pybytes()
    return data.replace(KEPT_NAME, NAME)


def shown_schema(schema: pa.Schema) -> pa.Schema:
    """Return a plain schema with the extension types whose classes are registered here.

    A field whose class is unknown, or refuses the parameters, keeps its storage type.
    """
    try:
        return pa.ipc.read_schema(pa.py_buffer(written(schema)))
    except UNREADABLE as error:
        if is_foreign(error):
            raise
        return pa.schema(map(_shown_field, schema), schema.metadata)


def _shown_field(field: pa.Field) -> pa.Field:
    try:
        (shown,) = pa.ipc.read_schema(pa.py_buffer(written(pa.schema([field]))))
    except UNREADABLE as error:
        if is_foreign(error):
            raise
        metadata = {
            NAME if key == KEPT_NAME else key: text for key, text in (field.metadata or {}).items()
        }
        return field.with_metadata(metadata or None)
    return shown


def plain_table(table: pa.Table) -> pa.Table:
    """Return a table with a plain schema; nothing is copied."""
    schema = table.schema
    plain = plain_schema(schema)
    if plain is schema:
        return table
    return pa.Table.from_arrays(list(map(column_as, table.columns, plain.types)), schema=plain)


def plain_values(values: Any, name: str) -> tuple[Any, pa.Field]:
    """Return an array, a chunked array or a scalar in its storage type, with a field for it."""
    field = pa.field(name, values.type)
    if not is_extended(values.type):
        return values, field
    (field,) = plain_schema(pa.schema([field]))
    if isinstance(values, pa.ChunkedArray):
        return column_as(values, field.type), field
    if isinstance(values, pa.Array):
        return array_as(values, field.type), field
    return array_as(pa.repeat(values, 1), field.type)[0], field


def column_as(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Return a column in a type of the same storage; nothing is copied."""
    return pa.chunked_array([array_as(chunk, type_) for chunk in column.chunks], type_)


def array_as(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return an array in a type of the same storage; nothing is copied."""
    return pa.array(_Retyped(array, type_))


class _Retyped:
    """The memory of an array with another type, for Arrow's C data interface."""

    def __init__(self, array: pa.Array, type_: pa.DataType) -> None:
        self._array, self._type = array, type_

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self._type.__arrow_c_schema__(), self._array.__arrow_c_array__()[1]


def is_extended(type_: pa.DataType) -> bool:
    """True if a type is an extension type, or has one at any level."""
    if isinstance(type_, pa.BaseExtensionType):
        return True
    return any(is_extended(type_.field(number).type) for number in range(type_.num_fields))


def retyped(field: pa.Field, type_: pa.DataType) -> pa.Field:
    """Return a plain field with another type; the name of an extension type belongs to the old."""
    metadata = dict(field.metadata or {})
    if field.type != type_ and metadata.pop(KEPT_NAME, None) is not None:
        metadata.pop(PARAMETERS, None)
        field = field.with_metadata(metadata or None)
    return field.with_type(type_)


def check_same(source: pa.Field, target: pa.Field, context: str) -> None:
    """Raise SchemaError if values of an extension type go to a plain field of another one.

    Values of a storage type go to any. Another extension type may give them another meaning.
    """
    theirs, ours = list(_kinds(source)), list(_kinds(target))
    if theirs and theirs != ours:
        raise SchemaError(
            f"{context}: values of {_named(theirs)} cannot be stored as {_named(ours)}; pass their "
            "storage if it means the same, such as array.storage"
        )


def _kinds(field: pa.Field, path: str = "") -> Iterator[tuple[str, bytes, bytes]]:
    """Yield path, name and parameters of each extension type of a plain field."""
    metadata, type_ = field.metadata or {}, field.type
    if KEPT_NAME in metadata:
        yield path, metadata[KEPT_NAME], metadata.get(PARAMETERS, b"")
    for number in range(type_.num_fields):
        child = type_.field(number)
        yield from _kinds(child, f"{path}.{child.name}")


def _named(kinds: list[tuple[str, bytes, bytes]]) -> str:
    """Return the names of extension types for an error."""
    if not kinds:
        return "a plain type"
    names = (name + (b" " + parameters if parameters else b"") for _, name, parameters in kinds)
    return ", ".join(f"{name.decode(errors='replace'):.100}" for name in names)


def _check_dictionaries(name: str, type_: pa.DataType) -> None:
    if isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    if pa.types.is_dictionary(type_) and is_extended(type_.value_type):
        raise SchemaError(
            f"column {name!r}: a dictionary of {type_.value_type} cannot be stored, because Arrow "
            "cannot write its type; decode the dictionary"
        )
    for number in range(type_.num_fields):
        _check_dictionaries(name, type_.field(number).type)
