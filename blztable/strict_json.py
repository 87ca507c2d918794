"""Strict JSON: a decoder that refuses duplicate keys, NaN and infinity.

Knows nothing of documents, their sizes or their depth.
"""

import json
from collections.abc import Callable
from typing import Any, NoReturn


def strict_decoder(parse_int: Callable[[str], int] | None = None) -> json.JSONDecoder:
    """Return a decoder that raises ValueError for duplicate keys, NaN and infinity."""
    return json.JSONDecoder(
        object_pairs_hook=_unique,
        parse_float=_finite,
        parse_int=parse_int,
        parse_constant=_refuse,
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("duplicate key")
    return result


def _finite(digits: str) -> float:
    value = float(digits)
    if value - value != 0:
        raise ValueError("number out of range")
    return value


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not allowed")
