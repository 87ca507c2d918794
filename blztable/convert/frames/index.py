"""Index: a RangeIndex as facts, any other index as columns of the table.

Knows nothing of the other columns. The values of a level are a field of the table; its name and
frequency are facts of the frame.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa

from blztable.convert.frames import dtypes
from blztable.convert.frames.descriptor import (
    Descriptor,
    Json,
    expect_int64,
    expect_keys,
    expect_list,
    expect_text,
)
from blztable.convert.frames.labels import decode_label, encode_label
from blztable.errors import FormatError, SchemaError

DEFAULT: Descriptor = {"kind": "range", "start": 0, "step": 1}

RowNumbers = range | np.ndarray


@dataclass(frozen=True, slots=True)
class Level:
    """One index level on its way into the table."""

    field: str
    array: pa.Array | pa.ChunkedArray
    descriptor: Descriptor | None


def encode_rows(
    index: pd.Index,
    fields: Sequence[str],
    keep: bool | None,
    nan_as_null: bool,
    choice: str,
    errors: list[str],
) -> tuple[list[Descriptor], list[Level]]:
    """Return the facts of an index and the levels that become columns beside `fields`.

    A level that cannot be stored adds to `errors`.
    """
    if keep is False:
        return [DEFAULT], []
    if isinstance(index, pd.RangeIndex) and not keep:
        keys: Descriptor = {"kind": "range", "start": index.start, "step": index.step}
        if index.name is not None:
            keys["name"] = encode_label(index.name)
        return [keys], []
    taken = set(fields)
    described: list[Descriptor] = []
    levels = []
    # Without names, because get_level_values takes a name of 1 for level 1.
    bare = index.set_names([None] * index.nlevels)
    for number, name in enumerate(index.names):
        level = bare.get_level_values(number).rename(name)
        field = _field_of(level.name, number, taken)
        taken.add(field)
        if isinstance(level, pd.RangeIndex):
            level = pd.Index(level.to_numpy(), name=level.name)
        context = f"index level {field!r}"
        try:
            array, keys = dtypes.encode_index(level, context, nan_as_null, choice)
        except SchemaError as error:
            errors.append(str(error))
            continue
        descriptor = keys.pop("values", None)
        described.append({"kind": "field", "field": field, **keys})
        levels.append(Level(field, array, descriptor))
    return described, levels


def decode_rows(
    levels: Sequence[Descriptor],
    multi: bool,
    columns: dict[str, tuple[pa.ChunkedArray, Descriptor | None]],
    numbers: RowNumbers,
    backend: str | None,
) -> pd.Index:
    """Return the index of the rows; `columns` has the fields of its levels by name."""
    if levels[0]["kind"] == "range":
        return _counted(levels[0], numbers)
    # A level without a column was dropped, and pandas' own readers leave it out too.
    parts = []
    for level in levels:
        if level["field"] not in columns:
            continue
        column, descriptor = columns[level["field"]]
        keys: Descriptor = {key: level[key] for key in ("name", "freq") if key in level}
        if descriptor is not None:
            keys["values"] = descriptor
        try:
            parts.append(dtypes.decode_index(column, keys, backend))
        except FormatError as error:
            raise FormatError(f"index level {level['field']!r}: {error}") from None
    if not parts:
        return _counted(DEFAULT, numbers)
    if not multi:
        return parts[0]
    try:
        return pd.MultiIndex.from_arrays(parts, names=[part.name for part in parts])
    except (OverflowError, TypeError) as error:
        # pandas makes Python objects of some values, and these have a smaller range than Arrow's.
        # It hashes objects, and lists and dicts have no hash.
        raise FormatError(f"pandas cannot make an index of these levels: {error}") from None


def checked_levels(keys: Json) -> list[Descriptor]:
    """Return the checked facts of all levels."""
    levels = expect_list(keys)
    for level in levels:
        if not isinstance(level, dict) or level.get("kind") not in ("range", "field"):
            raise FormatError(f"expected an index level, found {level!r:.60}")
        if level["kind"] == "field":
            expect_keys(level, ["kind", "field"], ["name", "freq"])
            expect_text(level["field"])
        else:
            expect_keys(level, ["kind", "start", "step"], ["name"])
            if expect_int64(level["step"]) == 0:
                raise FormatError("an index cannot step by 0")
            expect_int64(level["start"])
    counted = any(level["kind"] == "range" for level in levels)
    if not levels or (counted and len(levels) != 1):
        raise FormatError("expected one range, or one or more fields, as an index")
    return levels


def renamed_level(level: Descriptor, names: Mapping[str, str]) -> Descriptor:
    """Return the facts of a level with its field, and a name equal to it, renamed."""
    field = level.get("field")
    if field is None or field not in names:
        return level
    name = {"name": names[field]} if level.get("name") == field else {}
    return {**level, "field": names[field], **name}


def _counted(level: Descriptor, numbers: RowNumbers) -> pd.Index:
    start, step, name = level["start"], level["step"], decode_label(level.get("name"))
    # The first and the last number bound a range.
    ends = numbers[:: max(len(numbers) - 1, 1)] if isinstance(numbers, range) else numbers
    last = int(np.max(ends, initial=0))
    if abs(start) + abs(step) * (last + 1) >= 1 << 63:
        raise FormatError(f"a RangeIndex from {start} by {step} exceeds 64 bits")
    if isinstance(numbers, range):
        first, stop = (start + step * number for number in (numbers.start, numbers.stop))
        return pd.RangeIndex(first, stop, step * numbers.step, name=name)
    return pd.Index(start + step * numbers.astype(np.int64, copy=False), name=name)


def _field_of(name: object, number: int, taken: set[str]) -> str:
    if isinstance(name, str) and str(name) not in taken:
        return str(name)
    while (field := f"__index_level_{number}__") in taken:
        number += 1
    return field
