"""Sort keys: the columns by which a table is sorted, as given by users and as stored in a version.

Knows nothing of rows. A version stores column ids, so that a column may be renamed. The keys are
the order in which compaction sorts rows; rows appended later stay at the end until then.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from blztable.engine.version import schema as schemas
from blztable.format.jsontext import Json
from blztable.format.layout import Path

# The property of a version that stores the keys.
SORT_BY = "sort_by"
DIRECTIONS = ("ascending", "descending")
# Short words for them, as in SQL.
_SHORT = {"asc": DIRECTIONS[0], "desc": DIRECTIONS[1]}
# The index of a column, and one of the directions.
Key = tuple[int, str]


def parsed(sort_by: Any) -> list[tuple[str, str]]:
    """Return (name, direction) pairs for a name, or a list of names and pairs; else ValueError."""
    pairs = []
    for item in [sort_by] if isinstance(sort_by, str) else sort_by:
        match item:
            case str(name):
                pairs.append((name, DIRECTIONS[0]))
            case [str(name), str(word)] if (direction := _SHORT.get(word, word)) in DIRECTIONS:
                pairs.append((name, direction))
            case _:
                raise ValueError(
                    "sort_by must be column names or (name, 'ascending' or 'descending') pairs, "
                    f"not {item!r:.100}"
                )
    return pairs


def placed(pairs: Sequence[tuple[str, str]], schema: pa.Schema, context: str) -> list[Key]:
    """Return the keys of the named columns; ColumnNotFoundError if the schema lacks one."""
    keys = [(schemas.index_of(schema, name, context), direction) for name, direction in pairs]
    if len({index for index, _ in keys}) < len(keys):
        raise ValueError(f"sort_by names a column twice: {pairs!r:.500}; name each column once")
    return keys


def to_json(keys: Sequence[Key], paths: Sequence[Path]) -> Json:
    """Return the keys as a version stores them, given the paths of all nodes."""
    ids = _ids(paths)
    return [[ids[index], direction] for index, direction in keys]


def kept(properties: Mapping[str, Json], paths: Sequence[Path]) -> list[Key]:
    """Return the keys that a version stores; none if one of their columns no longer exists.

    `paths` are those of all nodes.
    """
    stored = properties.get(SORT_BY)
    indices = {column: index for index, column in enumerate(_ids(paths))}
    keys = []
    for item in stored if isinstance(stored, list) else ():
        match item:
            # A bool is not an id, and each id may occur once.
            case [int(column), str(direction)] if type(column) is int and direction in DIRECTIONS:
                index = indices.pop(column, None)
                if index is None:
                    return []
                keys.append((index, direction))
            case _:
                return []
    return keys


def _ids(paths: Sequence[Path]) -> list[int]:
    """Return the id of each column; a node below a root is no column."""
    return [path[0] for path in paths if len(path) == 1]
