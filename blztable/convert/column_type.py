"""Column type: a type as users give it, and the field of a column that gets another type.

Knows nothing of values. The descriptor of a column stays if it can describe the new type.
"""

from contextlib import suppress
from typing import Any

import pandas as pd
import pyarrow as pa

from blztable.arrow_types import value_type
from blztable.convert.frames import dtypes, objects
from blztable.convert.frames.descriptor import FIELD_KEY, Descriptor
from blztable.convert.frames.frame import Facts, described, descriptor_of, without_dtypes
from blztable.convert.gateway import encoded
from blztable.errors import FormatError, SchemaError


def altered(
    field: pa.Field, frame: Descriptor | None, type_: Any, nullable: bool | None
) -> tuple[pa.Field, Descriptor | None]:
    """Return the field with another type or nullability, and the frame descriptor for it.

    None leaves the type or the nullability as it is.
    """
    new = field if nullable is None else field.with_nullable(nullable)
    if type_ is None:
        return new, frame
    arrow, descriptor = parsed(type_, field)
    return with_type(new, frame, arrow, descriptor)


def with_type(
    field: pa.Field,
    frame: Descriptor | None,
    type_: pa.DataType,
    descriptor: Descriptor | None,
    *,
    keep: bool = True,
) -> tuple[pa.Field, Descriptor | None]:
    """Return the field with a type and a descriptor, and the frame descriptor for it.

    Without a descriptor the field keeps its own, if `keep` is set and it describes the new type.
    """
    present = descriptor_of(field, Facts.decode(frame)) if keep else None
    if descriptor is None and _describes(present, field.type, type_):
        descriptor = present
    metadata = {key: text for key, text in (field.metadata or {}).items() if key != FIELD_KEY}
    bare = field.with_type(type_).with_metadata(metadata or None)
    return described(bare, descriptor), without_dtypes(frame, [field.name])


def parsed(type_: Any, field: pa.Field) -> tuple[pa.DataType, Descriptor | None]:
    """Return a type of Arrow, a name of one, or a dtype of pandas, with the descriptor it needs."""
    if isinstance(type_, pa.DataType):
        return type_, None
    # Arrow would take "Int64" of pandas for its own "int64".
    if isinstance(type_, str) and type_.islower():
        with suppress(ValueError):
            return pa.type_for_alias(type_), None
    try:
        dtype = pd.api.types.pandas_dtype(type_)
        if dtype == pd.CategoricalDtype():
            return pa.dictionary(pa.int32(), value_type(field.type)), None
        array, descriptor = encoded(pd.Series([], dtype=dtype), "type")
    except (TypeError, ValueError):
        raise SchemaError(
            f'column {field.name!r}: expected a type such as pa.int64(), "int64" or a dtype of '
            f"pandas, found {type_!r:.60}"
        ) from None
    return array.type, descriptor


def _describes(descriptor: Descriptor | None, old: pa.DataType, new: pa.DataType) -> bool:
    """True if the descriptor of a column of type `old` holds for `new` as well."""
    if descriptor is None:
        return False
    is_implied = descriptor["dtype"] == "object" and "kind" not in descriptor
    if is_implied and not objects.same_kind(old, new):
        return False
    try:
        dtypes.decode(pa.chunked_array([], new), descriptor, None)
    except (FormatError, SchemaError):
        return False
    return True
