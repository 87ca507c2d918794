"""Defaults: the default value of each column that has one, as a property of the table.

The property maps the id of a column to the bytes of the value, in base64; for a nested type to a
list of its nodes, each an object of such bytes by stream. Knows nothing of rows.
"""

import base64
from collections.abc import Sequence

import pyarrow as pa

from blztable.arrow.nested.nodes import is_nested
from blztable.columns.default import (
    Streams,
    encode_default,
    encode_nested,
    from_json,
)
from blztable.engine.version.staged import StagedVersion
from blztable.errors import CorruptError, LimitError
from blztable.format.jsontext import Json


def declared_defaults(staged: StagedVersion) -> dict[int, pa.Scalar]:
    """Return the declared default values, by index of the column."""
    values, declared = {}, staged.defaults
    for index, field in enumerate(staged.schema) if declared else ():
        found = declared.get(str(staged.root(index).path[0]))
        if found is None:
            continue
        try:
            values[index] = from_json(found, field.type)
        except (CorruptError, LimitError) as error:
            context = f"{staged.store.name}: the default value of column {field.name!r}"
            raise type(error)(f"{context}: {error}") from None
    return values


def to_json(value: pa.Scalar) -> Json:
    """Return a value that is not null as the property has it."""
    if is_nested(value.type):
        return nodes_to_json(encode_nested(value))
    return _text(encode_default(value))


def nodes_to_json(nodes: Sequence[Streams]) -> list[Json]:
    """Return the streams of some nodes as the property has them."""
    return [{name: _text(data) for name, data in streams.items()} for streams in nodes]


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
