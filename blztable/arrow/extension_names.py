"""Extension names: how Arrow writes extension types, with the key of their names replaced.

Knows the bytes of schemas, and no arrays.
"""

import pyarrow as pa

from blztable.arrow.types import UNREADABLE, is_foreign

# The keys in the metadata of a field that is written for an extension type.
NAME = b"ARROW:extension:name"
PARAMETERS = b"ARROW:extension:metadata"
# The name within the package.
KEPT_NAME = b"blztb:extension:name"


def read_plain(data: bytes) -> pa.Schema:
    """Return the schema of an Arrow IPC message, with storage types; raises as Arrow does."""
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


def registered(schema: pa.Schema) -> pa.Schema:
    """Return a plain schema with the extension types whose classes are registered here.

    A field whose class is unknown, or refuses the parameters, keeps its storage type.
    """
    try:
        return pa.ipc.read_schema(pa.py_buffer(written(schema)))
    except UNREADABLE as error:
        if is_foreign(error):
            raise
        return pa.schema(map(_registered_field, schema), schema.metadata)


def _registered_field(field: pa.Field) -> pa.Field:
    try:
        (registered_field,) = pa.ipc.read_schema(pa.py_buffer(written(pa.schema([field]))))
    except UNREADABLE as error:
        if is_foreign(error):
            raise
        metadata = {
            NAME if key == KEPT_NAME else key: text for key, text in (field.metadata or {}).items()
        }
        return field.with_metadata(metadata or None)
    return registered_field
