"""Metalayers: the limits of named bytes, and those of a table and its columns in a manifest.

Knows nothing of columns but their ids.
"""

import base64
import binascii
from collections import Counter
from collections.abc import Container, Mapping
from typing import NamedTuple

from blztable.errors import CorruptError, LimitError, check_encodes
from blztable.format.jsontext import Json

# From the BLZ proposals: a name has at most 31 bytes.
MAX_NAME_BYTES = 31
MAX_LAYERS = 16
FIXED = "fixed"
VARIABLE = "variable"
# Bytes of the fixed metalayers of an array, a table or a column, with their names.
MAX_FIXED_BYTES = 65_535
# Bytes of all metalayers of a table and its columns: whoever opens the table reads them.
MAX_BYTES = 16 << 20
# Metalayers of this package begin so.
RESERVED = "blz."


class LayerKey(NamedTuple):
    """Which metalayer of a table: its owner is "" for the table, or the id of a column."""

    owner: str
    kind: str
    name: str


Layers = Mapping[LayerKey, bytes]


def to_json(layers: Layers) -> Json:
    """Return the metalayers as the head of a manifest has them."""
    result: dict[str, dict[str, dict[str, Json]]] = {}
    for (owner, kind, name), content in layers.items():
        text = base64.b64encode(content).decode("ascii")
        result.setdefault(owner, {}).setdefault(kind, {})[name] = text
    return result  # type: ignore[return-value]


def from_json(value: Json, columns: Container[str]) -> dict[LayerKey, bytes]:
    """Read the metalayers of a head; `columns` has the ids that may own some."""
    assert isinstance(value, dict)
    layers = {}
    for owner, kinds in value.items():
        if owner and owner not in columns:
            raise CorruptError(f"the head of a manifest: metalayers of a column {owner!r:.50}")
        if not isinstance(kinds, dict) or not kinds.keys() <= {FIXED, VARIABLE}:
            raise CorruptError(
                f"the head of a manifest: metalayers that are not {FIXED!r} or {VARIABLE!r}"
            )
        for kind, named in kinds.items():
            if not isinstance(named, dict):
                raise CorruptError("the head of a manifest: metalayers that are not an object")
            for name, text in named.items():
                if name.startswith(RESERVED):
                    raise CorruptError(f"the head of a manifest: a metalayer {name!r:.50}")
                layers[LayerKey(owner, kind, name)] = _content(text)
    check(layers)
    return layers


def check(layers: Layers) -> None:
    """Raise an error unless a table may have these metalayers."""
    counts, sizes = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for (owner, kind, name), content in layers.items():
        check_name(name)
        counts[owner, kind] += 1
        sizes[owner, kind] += len(name.encode()) + len(content)
    for (owner, kind), nbytes in sizes.items():
        check_size(kind, counts[owner, kind], nbytes)
    if sizes.total() > MAX_BYTES:
        raise LimitError(
            f"the metalayers of a table and its columns have {sizes.total()} bytes; at most "
            f"{MAX_BYTES} fit; keep more in a column"
        )


def check_size(kind: str, count: int, nbytes: int) -> None:
    """LimitError unless one owner may have so many metalayers of a kind, of so many bytes."""
    if count > MAX_LAYERS or (kind == FIXED and nbytes > MAX_FIXED_BYTES):
        most = f", of {MAX_FIXED_BYTES} bytes; vlmeta has more room" if kind == FIXED else ""
        raise LimitError(
            f"{count} {kind} metalayers of {nbytes} bytes; at most {MAX_LAYERS} fit{most}"
        )


def check_name(name: object) -> None:
    """Raise an error unless this is a name that a metalayer of the user may have."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a metalayer is {type(name).__name__}; expected str")
    check_encodes(name, "the name")
    if not 0 < len(name.encode()) <= MAX_NAME_BYTES:
        raise LimitError(f"{name!r:.50}: the name of a metalayer has 1 to {MAX_NAME_BYTES} bytes")
    if name.startswith(RESERVED):
        raise ValueError(f"{name!r}: names that begin with {RESERVED!r} are those of the format")


def _content(text: Json) -> bytes:
    try:
        return base64.b64decode(text, validate=True)  # type: ignore[arg-type]
    except (binascii.Error, TypeError, ValueError):
        raise CorruptError("the head of a manifest: a metalayer that is not base64") from None
