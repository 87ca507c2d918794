"""Column type: types as users give them, and the field of a column that gets another type.

Knows nothing of values. The descriptor of a column stays if it can describe the new type.
"""

import dataclasses
import datetime
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from blztable.arrow.extensions import retyped_as
from blztable.arrow.types import value_type
from blztable.convert.categories import descriptor_of_values
from blztable.convert.frames import dtypes, objects
from blztable.convert.frames.descriptor import FIELD_KEY, Descriptor
from blztable.convert.frames.frame import FrameInfo, described, descriptor_of, without_dtypes
from blztable.convert.gateway import AS_USUAL, IngestOptions, encoded, ingest
from blztable.errors import FormatError, SchemaError, check_none

# Types of Python that say all about a column; pandas would make objects of some.
_OF_PYTHON = {
    str: pa.large_string(),
    bytes: pa.large_binary(),
    datetime.datetime: pa.timestamp("us"),
    datetime.date: pa.date32(),
    datetime.time: pa.time64("us"),
    datetime.timedelta: pa.duration("us"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class EmptyColumns:
    """The columns of a table without rows, and the facts that only pandas has."""

    schema: pa.Schema
    frame: Descriptor | None = None
    attrs: dict[str, Any] = dataclasses.field(default_factory=dict)


def schema_of(types: Any, options: IngestOptions = AS_USUAL) -> EmptyColumns:
    """Return the columns that users ask for; SchemaError that names each type that is none."""
    if isinstance(types, pd.DataFrame):
        # The values say what objects are; without rows, a category keeps all that it may have.
        whole, data = (ingest(frame, options=options) for frame in (types, types.iloc[:0]))
        fields = [
            full if _word(full) == "object" else empty
            for full, empty in zip(whole.table.schema, data.table.schema, strict=True)
        ]
        return EmptyColumns(pa.schema(fields), data.frame, data.attrs)
    if not isinstance(types, Mapping | list | tuple):
        return EmptyColumns(pa.schema(types))
    fields, errors = [], []
    for pair in types.items() if isinstance(types, Mapping) else types:
        try:
            fields.append(_field(*pair) if isinstance(pair, tuple) else pair)
        except SchemaError as error:
            errors.append(str(error))
    check_none(errors)
    return EmptyColumns(pa.schema(fields))


def _word(field: pa.Field) -> str | None:
    return (descriptor_of(field, FrameInfo()) or {}).get("dtype")


def _field(name: str, type_: Any, *rest: Any) -> pa.Field:
    arrow, descriptor = parsed(type_, pa.field(name, pa.large_string()))
    return described(pa.field(name, arrow, *rest), descriptor)


def altered(
    field: pa.Field,
    frame: Descriptor | None,
    type_: Any,
    nullable: bool | None,
    is_empty: Callable[[], bool] = lambda: False,
) -> tuple[pa.Field, Descriptor | None]:
    """Return the field with another type or nullability, and the frame descriptor for it.

    None leaves the type or the nullability as it is. `is_empty` says whether the column holds
    nothing but nulls. SchemaError if stored values would get another meaning in pandas.
    """
    new = field if nullable is None else field.with_nullable(nullable)
    if type_ is None:
        return new, frame
    if isinstance(type_, pd.CategoricalDtype) and type_.categories is not None:
        raise SchemaError(
            f"column {field.name!r}: a column of categories has those of its values; pass "
            'dtype="category", or add a column: t.add_column("new", '
            f"t[{field.name!r}].to_pandas().astype(dtype))"
        )
    arrow, descriptor = parsed(type_, field)
    stated = descriptor_of(field, FrameInfo.decode(frame))
    # Without this, a column of an ArrowDtype would become one of Arrow's dictionaries.
    is_category = pa.types.is_dictionary(arrow) and not isinstance(type_, pa.DataType)
    if is_category and _describes(coded := _coded(stated, arrow), field.type, arrow):
        descriptor = coded
    plain = retyped_as(new, arrow).type
    kept, others = with_type(new, frame, plain, descriptor, keep=not is_category)
    given = descriptor_of(kept, FrameInfo.decode(others))
    ours, theirs = meaning(stated), meaning(given)
    # Categories that are objects such as tuples would be dicts.
    is_lost = stated is not None and given is None and pa.types.is_dictionary(arrow)
    is_lost = is_lost and bool(field.type.num_fields)
    # A column that keeps its type may keep its files, which others may append to meanwhile.
    if (ours != theirs or is_lost) and (kept.type == field.type or not is_empty()):
        raise SchemaError(
            f"column {field.name!r}: {ours or field.type} cannot become {theirs or kept.type}, "
            "because the values would not mean the same; convert the data in pandas, and add them "
            'as another column: t.add_column("new", data)'
        )
    return retyped_as(kept, arrow), others


def with_type(
    field: pa.Field,
    frame: Descriptor | None,
    type_: pa.DataType,
    descriptor: Descriptor | None,
    *,
    keep: bool = True,
    other: Descriptor | None = None,
    by_place: bool = False,
) -> tuple[pa.Field, Descriptor | None]:
    """Return the field with a type and a descriptor, and the frame descriptor for it.

    Without a descriptor the field keeps its own, if `keep` is set and it describes the new type.
    If its own does not, it gets the `other` one that does, or its own for the fields that structs
    have now: those of the same name, or with `by_place`, in the same place.
    """
    present = descriptor_of(field, FrameInfo.decode(frame)) if keep else None
    rest = objects.reshaped(present, field.type, type_, by_place)
    coded = _coded(present, type_)
    candidates = (present, other if present else None, rest, coded)
    for candidate in candidates if descriptor is None else ():
        if descriptor is None and _describes(candidate, field.type, type_):
            descriptor = candidate
    metadata = {key: text for key, text in (field.metadata or {}).items() if key != FIELD_KEY}
    bare = field.with_type(type_).with_metadata(metadata or None)
    return described(bare, descriptor), without_dtypes(frame, [field.name])


def parsed(type_: Any, field: pa.Field) -> tuple[pa.DataType, Descriptor | None]:
    """Return a type of Arrow, a name of one, or a dtype of pandas, with the descriptor it needs."""
    if isinstance(type_, pa.DataType):
        return type_, None
    if isinstance(type_, type) and type_ in _OF_PYTHON:
        return _OF_PYTHON[type_], None
    # Arrow would take "Int64" of pandas for its own "int64".
    if isinstance(type_, str) and type_.islower():
        with suppress(ValueError):
            return pa.type_for_alias(type_), None
    try:
        dtype: Any = pd.api.types.pandas_dtype(type_)
        if dtype == pd.CategoricalDtype():
            return pa.dictionary(pa.int32(), value_type(field.type)), None
        # pandas takes None for float64, and objects may be anything.
        if type_ is None or dtype == np.dtype(object):
            raise TypeError(type_)
        empty = np.empty(0, dtype) if isinstance(dtype, np.dtype) else pd.array([], dtype=dtype)
        array, descriptor = encoded(empty, "type")
    except (TypeError, ValueError):
        raise SchemaError(
            f'column {field.name!r}: expected a type such as pa.int64(), "int64", int or a dtype '
            f"of pandas, found {type_!r:.60}"
        ) from None
    return array.type, descriptor


def meaning(descriptor: Descriptor | None) -> str | None:
    """Return what the values of a column mean, if it is more than the Arrow type says."""
    descriptor = descriptor_of_values(descriptor)
    if descriptor is None:
        return None
    if dtypes.is_reinterpreted(descriptor):
        kept = [str(descriptor[key]) for key in ("freq", "closed") if key in descriptor]
        return " ".join([descriptor["dtype"], *kept])
    if objects.are_sets(descriptor):
        return f"{descriptor['kind'][0]} of objects"
    # Other containers may have fields of other kinds, as the type has other fields.
    kinds = objects.special_kind(descriptor) if isinstance(descriptor.get("kind"), str) else []
    return f"objects of the kind {kinds[0]}" if kinds else None


def _coded(descriptor: Descriptor | None, type_: pa.DataType) -> Descriptor | None:
    """Return the descriptor of the same values as categories, or no longer as categories."""
    if descriptor is None:
        return None
    if descriptor["dtype"] == "category":
        return None if pa.types.is_dictionary(type_) else descriptor_of_values(descriptor)
    is_object = descriptor["dtype"] == "object"
    # pandas makes numbers, text and times of the other objects that become categories.
    is_kept = meaning(descriptor) is not None or descriptor.get("kind") == "uuid"
    if not pa.types.is_dictionary(type_) or descriptor["dtype"] == "sparse" or is_object > is_kept:
        return None
    kept = {key: fact for key, fact in descriptor.items() if key != "missing"}
    return {"dtype": "category", "categories": {"values": kept}}


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
