"""Defaults: the default value of each column that has one, as a property of the table.

The property maps the id of a column to the bytes of the value, in base64. Knows nothing of rows.
"""

import base64

import pyarrow as pa

from blztable.columns.default import decode_default, encode_default
from blztable.columns.nested.nodes import is_nested
from blztable.engine.version.staged import StagedVersion
from blztable.errors import CorruptError, LimitError, SchemaError
from blztable.format.jsontext import Json


def declared_defaults(staged: StagedVersion) -> dict[int, pa.Scalar]:
    """Return the declared default values, by index of the column."""
    values = {}
    for index, field in enumerate(staged.schema):
        text = staged.defaults.get(str(staged.root(index).path[0]))
        if text is None:
            continue
        try:
            values[index] = _value(text, field.type)
        except (CorruptError, LimitError) as error:
            context = f"{staged.store.name}: the default value of column {field.name!r}"
            raise type(error)(f"{context}: {error}") from None
    return values


def to_json(value: pa.Scalar, name: str) -> str:
    """Return the text of a value that is not null, the default of the column with this name."""
    if is_nested(value.type):
        raise SchemaError(
            f"column {name!r}: a column of type {value.type} can have no default; give its values "
            "with the rows"
        )
    return base64.b64encode(encode_default(value)).decode("ascii")


def _value(text: Json, type_: pa.DataType) -> pa.Scalar:
    try:
        data = base64.b64decode(text, validate=True)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise CorruptError("the default value is not base64") from None
    return decode_default(data, type_)
