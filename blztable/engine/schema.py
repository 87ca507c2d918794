"""The schema of a table: Arrow's own bytes, every type held against the closed list."""

import pyarrow as pa

from blztable.columns.types import is_storable
from blztable.errors import CorruptError, FormatError, SchemaError


def check(schema: pa.Schema) -> None:
    """SchemaError naming the first column whose type cannot be stored."""
    for field in schema:
        if not is_storable(field.type):
            raise SchemaError(
                f"column {field.name!r}: type {field.type} cannot be stored; "
                "cast it to a plain type first"
            )
        try:
            field.name.encode("utf-8")
        except UnicodeEncodeError:
            raise SchemaError(f"column {field.name!r}: a name that is not UTF-8") from None


def encode(schema: pa.Schema) -> bytes:
    """The schema as an Arrow IPC message."""
    data: bytes = schema.serialize().to_pybytes()
    return data


def readable(schema: pa.Schema) -> tuple[tuple[str, str], ...]:
    """Names and types as text, for people who open the manifest."""
    return tuple((field.name, str(field.type)) for field in schema)


def decode(data: bytes) -> pa.Schema:
    """Read the schema of a manifest; FormatError for a type this version does not know."""
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(data))
    except (pa.ArrowException, ValueError, TypeError, KeyError, OSError) as error:
        raise CorruptError(f"the schema of a manifest cannot be read: {error}") from None
    for field in schema:
        if not is_storable(field.type):
            raise FormatError(
                f"column {field.name!r} has type {field.type}, which this version cannot read"
            )
    return schema
