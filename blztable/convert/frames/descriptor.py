"""Descriptors: the few words beside a column that say what pandas had there.

Knows the JSON and its limits, not what the words mean. A descriptor lives in the metadata of the
Arrow field and comes back from files of strangers, so every key and value is checked.
"""

import json
from collections.abc import Collection
from typing import Any, TypeAlias

from blztable.errors import FormatError
from blztable.strict_json import strict_decoder

# What json.loads gives; its depth cannot be said in types without getting in the way.
Json: TypeAlias = Any
Descriptor: TypeAlias = dict[str, Json]

FIELD_KEY = b"blz:pandas"

# A descriptor holds a dtype, a frequency and a name; even a long tuple as a name stays below.
SIZE_MAX = 1 << 16
DEPTH_MAX = 16

_DECODER = strict_decoder()


def to_bytes(descriptor: Descriptor) -> bytes:
    """The compact JSON text of a descriptor."""
    text = json.dumps(descriptor, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def from_bytes(data: bytes) -> Descriptor:
    """The descriptor in a field's metadata, checked for shape, size and depth."""
    if len(data) > SIZE_MAX:
        raise FormatError(f"pandas descriptor: {len(data)} bytes, at most {SIZE_MAX} are read")
    try:
        # From bytes, Python would read UTF-16 as well.
        value = _DECODER.decode(data.decode("utf-8"))
        to_bytes(value)  # Fails for a lone surrogate.
    except (ValueError, RecursionError) as error:
        raise FormatError(f"pandas descriptor is not JSON: {error}") from None
    check_depth(value)
    if not isinstance(value, dict):
        raise FormatError(f"pandas descriptor: expected an object, found {value!r:.60}")
    return value


def check_depth(value: object, depth: int = DEPTH_MAX) -> None:
    """Raise where lists and objects lie in each other deeper than we ever write them."""
    if not isinstance(value, dict | list):
        return
    if depth == 0:
        raise FormatError(f"pandas facts: nested deeper than {DEPTH_MAX}")
    for item in value.values() if isinstance(value, dict) else value:
        check_depth(item, depth - 1)


def expect_keys(
    facts: Json, required: Collection[str], optional: Collection[str] = ()
) -> Descriptor:
    """`facts` as an object with exactly the keys it may have."""
    if not isinstance(facts, dict):
        raise FormatError(f"pandas facts: expected an object, found {facts!r:.60}")
    unknown = facts.keys() - set(required) - set(optional)
    absent = set(required) - facts.keys()
    if unknown or absent:
        raise FormatError(
            f"pandas facts: expected the keys {sorted(required)}, found {list(facts)!r:.200}"
        )
    return facts


def expect_text(value: Json, choices: Collection[str] | None = None) -> str:
    """`value` as text, one of `choices` where they are given."""
    if not isinstance(value, str):
        raise FormatError(f"pandas facts: expected text, found {value!r:.60}")
    if choices is not None and value not in choices:
        raise FormatError(f"pandas facts: expected one of {sorted(choices)}, found {value!r:.60}")
    return value


def expect_int64(value: Json) -> int:
    """`value` as an integer of 64 bits."""
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise FormatError(f"pandas facts: expected a 64-bit integer, found {value!r:.60}")
    return value


def expect_list(value: Json, count: int | None = None) -> list[Json]:
    """`value` as a list, of `count` items where it is given."""
    if not isinstance(value, list) or (count is not None and len(value) != count):
        raise FormatError(
            f"pandas facts: expected a list of {count or 'items'}, found {value!r:.60}"
        )
    return value


def expect_bool(value: Json) -> bool:
    """`value` as true or false."""
    if not isinstance(value, bool):
        raise FormatError(f"pandas facts: expected true or false, found {value!r:.60}")
    return value
