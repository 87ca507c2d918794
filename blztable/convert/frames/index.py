"""Rows: the index of a frame, as facts where it counts and as columns where it has values.

Knows the index of pandas. The values of a level are a field of the table like any other; its name
and its frequency are facts of the frame.
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
from blztable.errors import FormatError

DEFAULT: Descriptor = {"kind": "range", "start": 0, "step": 1}

RowNumbers = range | np.ndarray


@dataclass(frozen=True, slots=True)
class Level:
    """One index level on its way into the table."""

    field: str
    array: pa.Array | pa.ChunkedArray
    descriptor: Descriptor | None


def encode_rows(
    index: pd.Index, fields: Sequence[str], keep: bool | None
) -> tuple[list[Descriptor], list[Level]]:
    """The facts of an index and the levels that become columns beside `fields`."""
    if keep is False:
        return [DEFAULT], []
    if isinstance(index, pd.RangeIndex) and not keep:
        facts: Descriptor = {"kind": "range", "start": index.start, "step": index.step}
        if index.name is not None:
            facts["name"] = encode_label(index.name)
        return [facts], []
    taken = set(fields)
    described: list[Descriptor] = []
    levels = []
    # Without names: get_level_values takes the name 1 for the place 1.
    bare = index.set_names([None] * index.nlevels)
    for number, name in enumerate(index.names):
        level = bare.get_level_values(number).rename(name)
        field = _field_of(level.name, number, taken)
        taken.add(field)
        if isinstance(level, pd.RangeIndex):
            level = pd.Index(level.to_numpy(), name=level.name)
        array, facts = dtypes.encode_index(level, f"index level {field!r}")
        descriptor = facts.pop("values", None)
        described.append({"kind": "field", "field": field, **facts})
        levels.append(Level(field, array, descriptor))
    return described, levels


def decode_rows(
    levels: Sequence[Descriptor],
    multi: bool,
    columns: dict[str, tuple[pa.ChunkedArray, Descriptor | None]],
    numbers: RowNumbers,
    backend: str | None,
) -> pd.Index:
    """The index over the rows that were read; `columns` has the fields of its levels by name."""
    if levels[0]["kind"] == "range":
        return _counted(levels[0], numbers)
    # A level whose column was dropped from the table is gone, as in pandas' own readers.
    parts = []
    for level in levels:
        if level["field"] not in columns:
            continue
        column, descriptor = columns[level["field"]]
        facts: Descriptor = {key: level[key] for key in ("name", "freq") if key in level}
        if descriptor is not None:
            facts["values"] = descriptor
        try:
            parts.append(dtypes.decode_index(column, facts, backend))
        except FormatError as error:
            raise FormatError(f"index level {level['field']!r}: {error}") from None
    if not parts:
        return _counted(DEFAULT, numbers)
    if not multi:
        return parts[0]
    try:
        return pd.MultiIndex.from_arrays(parts, names=[part.name for part in parts])
    except OverflowError as error:
        # pandas looks at some values as objects of Python, which reach less far than Arrow's.
        raise FormatError(f"pandas makes no index of these levels: {error}") from None


def checked_levels(facts: Json) -> list[Descriptor]:
    """The facts of all levels, each known to be whole."""
    levels = expect_list(facts)
    for level in levels:
        if not isinstance(level, dict) or level.get("kind") not in ("range", "field"):
            raise FormatError(f"no index level is {level!r:.60}")
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
        raise FormatError("an index has one range or one or more fields")
    return levels


def renamed_level(level: Descriptor, names: Mapping[str, str]) -> Descriptor:
    """The facts of a level whose field may have another name; one named as its field is, too."""
    field = level.get("field")
    if field is None or field not in names:
        return level
    name = {"name": names[field]} if level.get("name") == field else {}
    return {**level, "field": names[field], **name}


def _counted(level: Descriptor, numbers: RowNumbers) -> pd.Index:
    start, step, name = level["start"], level["step"], decode_label(level.get("name"))
    # The ends of a range are found without walking through it.
    ends = numbers[:: max(len(numbers) - 1, 1)] if isinstance(numbers, range) else numbers
    last = int(np.max(ends, initial=0))
    if abs(start) + abs(step) * (last + 1) >= 1 << 63:
        raise FormatError(f"a range index from {start} by {step} passes 64 bits")
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
