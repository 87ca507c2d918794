"""Sort keys: the columns that rows are sorted by, as users give them and as a version keeps them.

Knows nothing of rows. A version keeps ids, so that a column may be renamed. What it keeps is the
order in which rows are put when they are written anew: those appended since lie at the end.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from blztable.engine.version import schema as schemas
from blztable.format.jsontext import Json
from blztable.format.layout import Path

# The property that keeps them.
SORT_BY = "sort_by"
WAYS = ("ascending", "descending")
# The position of a column, and one of the ways.
Key = tuple[int, str]


def parsed(sort_by: Any) -> list[tuple[str, str]]:
    """What a user says, a name or several, as names with ways; ValueError where it is none."""
    pairs = []
    for item in [sort_by] if isinstance(sort_by, str) else sort_by:
        match item:
            case str(name):
                pairs.append((name, WAYS[0]))
            case [str(name), str(way)] if way in WAYS:
                pairs.append((name, way))
            case _:
                raise ValueError(
                    "sort_by has names, or names with a direction, "
                    f"'ascending' or 'descending', not {item!r:.100}"
                )
    return pairs


def placed(pairs: Sequence[tuple[str, str]], schema: pa.Schema, where: str) -> list[Key]:
    """The keys as columns of a schema; ColumnNotFoundError where there is no such column."""
    keys = [(schemas.position(schema, name, where), way) for name, way in pairs]
    if len({index for index, _ in keys}) < len(keys):
        raise ValueError(f"sort_by has a column twice: {pairs!r:.500}")
    return keys


def to_json(keys: Sequence[Key], paths: Sequence[Path]) -> Json:
    """The keys as a version keeps them, whose columns have these paths."""
    return [[paths[index][0], way] for index, way in keys]


def kept(properties: Mapping[str, Json], paths: Sequence[Path]) -> list[Key]:
    """The keys that a version with these columns keeps; none where one of them is gone."""
    found = properties.get(SORT_BY)
    places = {path[0]: index for index, path in enumerate(paths)}
    keys = []
    for item in found if isinstance(found, list) else ():
        match item:
            # A number may be given once, and a truth value is none.
            case [int(number), str(way)] if type(number) is int and way in WAYS:
                place = places.pop(number, None)
                if place is None:
                    return []
                keys.append((place, way))
            case _:
                return []
    return keys
