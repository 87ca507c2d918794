"""Rows: mappings of names to single values, such as those of a database cursor or of JSON lines.

Knows nothing of types: rows become lists of values, one for each name.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Self

import numpy as np

from blztable.errors import SchemaError

# Rows of an iterator that become one item; more would not be written faster.
ROWS_AT_ONCE = 1 << 16
# One value each, although they have a length.
_WHOLE = (str, bytes, Mapping, set, frozenset)


def is_value(value: Any) -> bool:
    """True for a single value, False for a list, an array or another sequence of values."""
    if isinstance(value, np.ndarray):
        return value.ndim == 0
    is_arrow = hasattr(value, "__arrow_c_array__") or hasattr(value, "__arrow_c_stream__")
    return isinstance(value, _WHOLE) or not (is_arrow or hasattr(value, "__len__"))


def is_row(data: Any) -> bool:
    """True for a mapping with a single value; a mapping of arrays only is several rows."""
    return isinstance(data, Mapping) and any(map(is_value, data.values()))


def are_rows(data: Any) -> bool:
    """True for a list or tuple whose first item with values is a row, or of empty rows."""
    if not isinstance(data, list | tuple) or not data:
        return False
    filled = (item for item in data if not isinstance(item, Mapping) or item)
    first = next(filled, None)
    return is_row(first) or (first is None and all(isinstance(item, Mapping) for item in data))


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return one list of values per name; a row that lacks a name has None there."""
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise SchemaError(
                f"row {number}: expected a dict of names to values as in the rows before, found "
                f"{type(row).__name__}"
            )
    names = dict.fromkeys(chain.from_iterable(rows))
    return {name: [row.get(name) for row in rows] for name in names}


def refuse_row(row: Mapping[str, Any]) -> SchemaError:
    """Return the error for a single row in the place of a table."""
    name, value = next((name, value) for name, value in row.items() if is_value(value))
    if all(map(is_value, row.values())):
        remedy = "for a single row pass it in a list, [data]"
    else:
        remedy = "repeat the value for each row, or pass a list of dicts, one for each row"
    return SchemaError(
        f"column {name!r}: expected an array with one value per row, found "
        f"{value!r:.60} of type {type(value).__name__}; {remedy}"
    )


class Grouped(Iterator[Any]):
    """Items of an iterator; rows that follow each other become one item, a list.

    Holds no item but the first one behind a list. A generator would hold the last one.
    """

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = iter(items)
        self._behind: list[Any] = []

    def __iter__(self) -> Self:
        """Return the iterator itself."""
        return self

    def __next__(self) -> Any:
        """Return the next item that is no row, or a list of rows."""
        rows: list[Any] = []
        while len(rows) < ROWS_AT_ONCE:
            try:
                item = self._behind.pop() if self._behind else next(self._items)
            except StopIteration:
                if not rows:
                    raise
                break
            if not is_row(item):
                if not rows:
                    return item
                self._behind.append(item)
                break
            rows.append(item)
        return rows
