"""The schema of a table: Arrow's own bytes, every type held against the closed list."""

import struct
from contextlib import suppress

import pyarrow as pa

from blztable.arrow_errors import REFUSALS, is_foreign
from blztable.columns.types import is_storable
from blztable.errors import ColumnNotFoundError, CorruptError, FormatError, SchemaError

# An extension type that Arrow does not know here arrives as its storage with this beside it; it is
# refused like one that is known, so that every program reads the same tables.
EXTENSION_KEY = b"ARROW:extension:name"
# What Arrow raises of bytes that are no schema, or an extension type that somebody registered and
# that reads its own bytes. Anything else says nothing about the bytes: memory that ran out, or the
# exception of a signal handler.
_UNREADABLE = (
    *(*REFUSALS, OSError, ArithmeticError, AttributeError, LookupError),
    *(NotImplementedError, TypeError, ValueError, struct.error),
)


def check(schema: pa.Schema) -> None:
    """SchemaError naming the first column whose type cannot be stored."""
    for field in schema:
        if not is_storable(field.type) or EXTENSION_KEY in (field.metadata or {}):
            raise SchemaError(
                f"column {field.name!r}: type {field.type} cannot be stored; "
                "cast it to a plain type first"
            )
        try:
            field.name.encode("utf-8")
        except UnicodeEncodeError:
            raise SchemaError(f"column {field.name!r}: a name that is not UTF-8") from None


def position(schema: pa.Schema, name: str, where: str) -> int:
    """Where the one column of this name is; ColumnNotFoundError where there is none."""
    try:
        found = schema.get_all_field_indices(name)
    except UnicodeEncodeError:
        found = []  # A name that is not UTF-8 is no column's.
    if len(found) != 1:
        there = f"{len(found)} columns are" if found else "no column is"
        raise ColumnNotFoundError(
            f"{there} named {name!r} in {where}; there are {schema.names!r:.1000}"
        )
    return int(found[0])


def encode(schema: pa.Schema) -> bytes:
    """The schema as an Arrow IPC message, known to come back."""
    data: bytes = schema.serialize().to_pybytes()
    if not decode(data).equals(schema, check_metadata=True):
        raise SchemaError("a schema that Arrow does not give back as it was")
    return data


def readable(schema: pa.Schema) -> dict[str, tuple[str, ...]]:
    """Names and types as text, for people who open the manifest."""
    return {"name": tuple(schema.names), "type": tuple(map(str, schema.types))}


def decode(data: bytes) -> pa.Schema:
    """Read the schema of a manifest; FormatError for a type this version does not know."""
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(data))
        types = schema.types
        # A table may have very many columns; it has few types. An extension may have no hash.
        with suppress(TypeError):
            types = set(types)
        # All are text that Arrow did not look at yet.
        inner = [getattr(type_, "value_type", None) for type_ in types]
        _ = schema.names, [getattr(type_, "tz", None) for type_ in (*types, *inner)]
    except _UNREADABLE as error:
        if is_foreign(error):
            raise
        raise CorruptError(f"the schema of a manifest cannot be read: {error}") from None
    # The bytes say at once whether a key can be there: a table may have very many columns.
    if EXTENSION_KEY in data or not all(map(is_storable, types)):
        for field in schema:
            _check_readable(field)
    return schema


def _check_readable(field: pa.Field) -> None:
    """FormatError for a type that this version does not know."""
    if not is_storable(field.type):
        raise FormatError(
            f"column {field.name!r} has type {field.type}, which this version cannot read"
        )
    name = (field.metadata or {}).get(EXTENSION_KEY)
    if name is not None:
        raise FormatError(
            f"column {field.name!r} has the extension type {name!r:.60}, "
            "which this version cannot read"
        )
