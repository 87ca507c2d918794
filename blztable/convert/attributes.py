"""Attributes: what users pin to a DataFrame in `attrs`, as JSON keeps it.

Knows JSON only. A tuple becomes a list, as JSON has no other; anything else that would not come
back is refused by the key that leads to it.
"""

import math
from typing import Any

from blztable.convert.text import check_text
from blztable.errors import SchemaError

DEPTH_MAX = 32
# Python reads back no longer ones from text.
INTEGER_BITS_MAX = 4096


def checked_attrs(attrs: dict[Any, Any]) -> dict[str, Any]:
    """A deep copy of `attrs`, known to be JSON."""
    return {
        _key(key, "attrs"): _value(value, f"attrs[{key!r}]", DEPTH_MAX)
        for key, value in attrs.items()
    }


def _key(key: Any, place: str) -> str:
    if type(key) is not str:
        raise SchemaError(f"{place}: keys are text; found {key!r:.60} of type {type(key).__name__}")
    check_text(key, place)
    return key


def _value(value: Any, place: str, depth: int) -> Any:
    if depth == 0:
        raise SchemaError(f"{place:.200}: nested deeper than {DEPTH_MAX}")
    match value:
        case None | bool():
            return value
        case int() if type(value) is int and value.bit_length() <= INTEGER_BITS_MAX:
            return value
        case float() if type(value) is float and math.isfinite(value):
            return value
        case str() if type(value) is str:
            check_text(value, place)
            return value
        case list() | tuple():
            return [_value(item, f"{place}[{i}]", depth - 1) for i, item in enumerate(value)]
        case dict():
            return {
                _key(key, place): _value(item, f"{place}[{key!r}]", depth - 1)
                for key, item in value.items()
            }
    raise SchemaError(f"{place}: {value!r:.60} of type {type(value).__name__} is no JSON")
