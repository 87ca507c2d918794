"""Extensions: data of extension types as data of their storage types, and back.

Theory of operation. Arrow writes an extension type as its storage type, with a name and parameters
in the metadata of the field. Whoever reads the field calls the class that is registered under the
name. A table keeps what Arrow writes. Within the package the field has another key than `NAME`, of
the same length, so that Arrow calls no class and every function sees storage types. The key is
changed in the bytes of the schema, at all levels at once. Arrays take a new type through Arrow's C
data interface, which copies nothing. Knows nothing of tables.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.extension_names import KEPT_NAME, NAME, PARAMETERS, read_plain, registered
from blztable.arrow.run_ends import narrowed, widened, widened_type
from blztable.arrow.types import has_maps, has_runs, nulls
from blztable.arrow.unnamed import (
    KEYS,
    VALUES_NAME,
    VALUES_PARAMETERS,
    is_kept_above,
    with_unnamed,
    without_unnamed,
)
from blztable.errors import SchemaError

# The names of fields of structs, and the numbers of other children, from the root down.
Path = tuple[str | int, ...]
# Name and parameters of an extension type.
ExtensionKind = tuple[bytes, bytes]

_PARAMETERS = {KEPT_NAME: PARAMETERS, VALUES_NAME: VALUES_PARAMETERS}


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema with storage types instead of extension types, which their fields name.

    Run ends of 16 bits have 32, and the field says so. Fields of maps have the names that Arrow
    writes, whatever a Parquet file called them.

    Raises
    ------
    SchemaError
        A type cannot be written so.
    """
    for field in schema:
        _check_dictionaries(field.name, field.type)
    if any(map(is_kept_above, schema.types)):
        fields = [without_unnamed(field, field.name) for field in schema]
        schema = pa.schema(fields, schema.metadata)
    data = schema.serialize().to_pybytes()
    if NAME not in data and not any(map(has_maps, schema.types)):
        return schema
    plain = read_plain(data)
    return schema if plain.equals(schema, check_metadata=True) else plain


def registered_schema(schema: pa.Schema) -> pa.Schema:
    """Return a plain schema with the extension types whose classes are registered here.

    A field whose class is unknown, or refuses the parameters, keeps its storage type.
    """
    with_classes = registered(schema)
    if not any(key in schema.serialize().to_pybytes() for key in KEYS):
        return with_classes
    return pa.schema(map(with_unnamed, with_classes), with_classes.metadata)


def has_others(schema: bytes) -> bool:
    """True if a schema that was written may be shown with other types."""
    return any(key in schema for key in (NAME, *KEYS))


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
    are_runs = has_runs(field.type) and not isinstance(values, pa.Scalar)
    if are_runs and pc.all(values.is_null()).as_py():
        # Arrow's own nulls of runs inside of nested types are invalid.
        values = pa.chunked_array([nulls(len(values), widened_type(values.type))])
    if not is_extended(field.type) and not has_maps(field.type):
        return values, field
    (field,) = plain_schema(pa.schema([field]))
    if isinstance(values, pa.ChunkedArray):
        return column_as(values, field.type), field
    if isinstance(values, pa.Array):
        return array_as(values, field.type), field
    return array_as(pa.repeat(values, 1), field.type)[0], field


def column_as(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Return a column in a type of the same storage; nothing is copied."""
    if column.type.equals(type_):
        return column
    pieces = [piece for chunk in column.chunks for piece in arrays_as(chunk, type_)]
    return pa.chunked_array(pieces, type_)


def arrays_as(array: pa.Array, type_: pa.DataType) -> Iterator[pa.Array]:
    """Yield an array in a type of the same storage; only run ends are copied.

    It is more than one array if run ends of 16 bits do not reach all rows.
    """
    if not len(array):
        # Arrow cannot import an empty slice that it exported.
        return iter((nulls(0, type_),))
    array = widened(array)
    if _has_empty_slice(array):
        array = pa.concat_arrays([array])
    try:
        moved = pa.array(_Retyped(array, widened_type(type_)))
    except pa.ArrowInvalid as error:
        raise SchemaError(
            f"Arrow cannot give values of {array.type} their storage type ({error}); decode runs "
            "within runs with pyarrow.compute.run_end_decode()"
        ) from None
    return narrowed(moved, type_)


def array_as(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return an array in a plain type of the same storage; only run ends are copied."""
    (converted,) = arrays_as(array, type_)
    return converted


def _has_empty_slice(array: pa.Array) -> bool:
    """True if an array, or one at any level below, has no rows but an offset."""
    if not len(array) and array.offset:
        return True
    type_, kinds = array.type, pa.types
    if isinstance(type_, pa.BaseExtensionType):
        children = [array.storage]
    elif kinds.is_dictionary(type_):
        children = [array.dictionary]
    elif kinds.is_struct(type_) or kinds.is_union(type_):
        children = [array.field(number) for number in range(type_.num_fields)]
    elif kinds.is_map(type_):
        children = [array.keys, array.items]
    else:
        children = [array.values] if kinds.is_nested(type_) else []
    return any(map(_has_empty_slice, children))


class _Retyped:
    """The memory of an array with another type, for Arrow's C data interface."""

    def __init__(self, array: pa.Array, type_: pa.DataType) -> None:
        self._array, self._type = array, type_

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self._type.__arrow_c_schema__(), self._array.__arrow_c_array__()[1]


def is_extended(type_: pa.DataType) -> bool:
    """True if a type is an extension type, or has one or run ends of 16 bits, at any level."""
    if isinstance(type_, pa.BaseExtensionType) or is_kept_above(type_):
        return True
    return any(is_extended(type_.field(number).type) for number in range(type_.num_fields))


def retyped(field: pa.Field, type_: pa.DataType) -> pa.Field:
    """Return a plain field with another type; the name of an extension type belongs to the old."""
    if field.type == type_:
        return field.with_type(type_)
    return _without(field, (KEPT_NAME, VALUES_NAME)).with_type(type_)


def retyped_as(field: pa.Field, type_: pa.DataType) -> pa.Field:
    """Return a plain field with another type, which may be an extension type."""
    (plain,) = plain_schema(pa.schema([pa.field(field.name, type_)]))
    return typed_as(field, plain)


def typed_as(field: pa.Field, source: pa.Field) -> pa.Field:
    """Return a plain field with the type of another one, and with its extension type."""
    bare, given = _without(field, (KEPT_NAME, *KEYS)), source.metadata or {}
    kind = {key: given[key] for key in (KEPT_NAME, PARAMETERS, *KEYS) if key in given}
    return bare.with_type(source.type).with_metadata({**(bare.metadata or {}), **kind} or None)


def _without(field: pa.Field, names: Sequence[bytes]) -> pa.Field:
    """Return a plain field without these keys, and without the parameters of an extension type."""
    metadata = dict(field.metadata or {})
    gone = [name for name in names if metadata.pop(name, None) is not None]
    for name in gone:
        metadata.pop(_PARAMETERS.get(name, b""), None)
    return field.with_metadata(metadata or None) if gone else field


def check_same(source: pa.Field, target: pa.Field, context: str) -> None:
    """Raise SchemaError if values of an extension type go to a plain field of another one.

    Values of a storage type go to any. Another extension type may give them another meaning.
    """
    for theirs, ours in _differing(source, target):
        raise SchemaError(
            f"{context}: values of {_named(theirs)} cannot be stored as {_named(ours)}; "
            "pass their storage if it means the same, such as array.storage"
        )


def are_same(source: pa.Field, target: pa.Field) -> bool:
    """True if `check_same` takes the values of one plain field for another."""
    return next(_differing(source, target), None) is None


def _differing(
    source: pa.Field, target: pa.Field
) -> Iterator[tuple[ExtensionKind, ExtensionKind | None]]:
    """Yield the extension types in one plain field that are others in another one, with these."""
    ours = dict(_kinds(target))
    for path, theirs in _kinds(source):
        # A field that the target lacks is another matter.
        if theirs is not None and ours.get(path, theirs) != theirs:
            yield theirs, ours[path]


def _kinds(field: pa.Field, path: Path = ()) -> Iterator[tuple[Path, ExtensionKind | None]]:
    """Yield the path of each field in a plain one, with its extension type."""
    metadata, type_ = field.metadata or {}, field.type
    kind = None
    if KEPT_NAME in metadata:
        kind = metadata[KEPT_NAME], metadata.get(PARAMETERS, b"")
    elif VALUES_NAME in metadata:
        # Values may be encoded or not.
        kind = metadata[VALUES_NAME], metadata.get(VALUES_PARAMETERS, b"")
    yield path, kind
    # The names of items mean nothing.
    has_names = pa.types.is_struct(type_) and field.name != "entries"
    for number in range(type_.num_fields):
        child = type_.field(number)
        yield from _kinds(child, (*path, child.name if has_names else number))


def _named(kind: ExtensionKind | None) -> str:
    """Return the name of an extension type for an error."""
    name, parameters = kind or (b"a plain type", b"")
    text = name + (b" " + parameters if parameters else b"")
    return f"{text.decode(errors='replace'):.100}"


def _check_dictionaries(name: str, type_: pa.DataType) -> None:
    """Raise SchemaError for a dictionary of dictionaries, which a schema of Arrow forgets."""
    if isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    if type_.id == pa.lib.Type_DICTIONARY:
        values = type_.value_type
        if isinstance(values, pa.BaseExtensionType):
            values = values.storage_type
        if pa.types.is_dictionary(values):
            raise SchemaError(
                f"column {name!r}: type {type_} cannot be stored, because Arrow cannot write a "
                "dictionary of dictionaries; decode the outer one: array.dictionary_decode()"
            )
        _check_dictionaries(name, values)
    for number in range(type_.num_fields):
        _check_dictionaries(name, type_.field(number).type)
