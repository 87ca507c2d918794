"""Descriptors: JSON beside a column that names its pandas dtype.

Knows the JSON and its limits, not its meaning. A descriptor is stored in the metadata of the Arrow
field. It may come from an untrusted file, so every key and value is checked.
"""

import json
from collections.abc import Collection
from typing import Any, TypeAlias

from blztable.errors import FormatError
from blztable.strict_json import strict_decoder

# Any value that json.loads returns.
Json: TypeAlias = Any
Descriptor: TypeAlias = dict[str, Json]

FIELD_KEY = b"blz:pandas"

# Even a descriptor with a long tuple as a name, or of deeply nested objects, stays below these.
SIZE_MAX = 1 << 16
DEPTH_MAX = 64

_DECODER = strict_decoder()
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def to_bytes(descriptor: Descriptor) -> bytes:
    """Return the compact JSON text of a descriptor."""
    return _ENCODER.encode(descriptor).encode()


def from_bytes(data: bytes) -> Descriptor:
    """Return the descriptor in a field's metadata, checked for shape, size and depth."""
    if len(data) > SIZE_MAX:
        raise FormatError(f"pandas descriptor: {len(data)} bytes; the limit is {SIZE_MAX}")
    try:
        # From bytes, Python would read UTF-16 as well.
        value = _DECODER.decode(data.decode("utf-8"))
        if b"\\" in data:
            to_bytes(value)  # Fails for a lone surrogate, which only an escape can spell.
    except (ValueError, RecursionError) as error:
        raise FormatError(f"pandas descriptor is not JSON: {error}") from None
    check_depth(value)
    if not isinstance(value, dict):
        raise FormatError(f"pandas descriptor: expected an object, found {value!r:.60}")
    return value


def check_depth(value: object, depth: int = DEPTH_MAX) -> None:
    """FormatError for lists and objects nested deeper than this package writes them."""
    if not isinstance(value, dict | list):
        return
    if depth == 0:
        raise FormatError(f"pandas descriptor: nested deeper than {DEPTH_MAX}")
    for item in value.values() if isinstance(value, dict) else value:
        check_depth(item, depth - 1)


def expect_keys(
    value: Json, required: Collection[str], optional: Collection[str] = ()
) -> Descriptor:
    """Return `value` as an object with all required keys and no unknown ones."""
    if not isinstance(value, dict):
        raise FormatError(f"pandas descriptor: expected an object, found {value!r:.60}")
    unknown = value.keys() - set(required) - set(optional)
    absent = set(required) - value.keys()
    if unknown or absent:
        raise FormatError(
            f"pandas descriptor: expected the keys {sorted(required)}, found {list(value)!r:.200}"
        )
    return value


def expect_text(value: Json, choices: Collection[str] | None = None) -> str:
    """Return `value` as text, one of `choices` if these are given."""
    if not isinstance(value, str):
        raise FormatError(f"pandas descriptor: expected text, found {value!r:.60}")
    if choices is not None and value not in choices:
        raise FormatError(
            f"pandas descriptor: expected one of {sorted(choices)}, found {value!r:.60}"
        )
    return value


def expect_int64(value: Json) -> int:
    """Return `value` as a 64-bit integer."""
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise FormatError(f"pandas descriptor: expected a 64-bit integer, found {value!r:.60}")
    return value


def expect_list(value: Json, count: int | None = None) -> list[Json]:
    """Return `value` as a list, of `count` items if that is given."""
    if not isinstance(value, list) or (count is not None and len(value) != count):
        raise FormatError(
            f"pandas descriptor: expected a list of {count or 'items'}, found {value!r:.60}"
        )
    return value


def expect_bool(value: Json) -> bool:
    """Return `value` as a bool."""
    if not isinstance(value, bool):
        raise FormatError(f"pandas descriptor: expected true or false, found {value!r:.60}")
    return value
