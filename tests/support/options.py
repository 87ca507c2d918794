"""Options of tables as flat keywords, which tests draw, combine and parametrise."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import blztable as blz
from blztable.engine.write.chunks import CHUNK_BYTES

NAMES = {"truncate": "digits", "column_meta": "meta", "object": "objects"}
PLAIN = {
    "mode",
    "index",
    "sort_by",
    "evolve",
    "commit_id",
    "durability",
    "retries",
    "progress",
    "storage",
}
# Options whose values are mappings, by whatever name they have.
MAPPINGS = {"attrs", "meta"}


@dataclass(frozen=True, kw_only=True, repr=False)
class Tiny(blz.Storage):
    """Storage with chunks of a few bytes, to take every path with little data."""

    chunk_bytes: int = CHUNK_BYTES


def storage_of(kind: type[blz.Storage] = blz.Storage, **options: Any) -> blz.Storage:
    """Return flat options as one value: an option may be a mapping of column names to values."""
    whole: dict[str, Any] = {}
    columns: dict[str, dict[str, Any]] = {}
    for name, value in options.items():
        if isinstance(value, Mapping) and name not in MAPPINGS:
            for column, own in value.items():
                columns.setdefault(column, {})[NAMES.get(name, name)] = own
        elif value is not None:
            whole[NAMES.get(name, name)] = value
    by_column = {column: blz.Storage(**own) for column, own in columns.items()}
    return kind(**whole, columns=by_column or None)


def tiny(**options: Any) -> blz.Storage:
    """Return flat options, `chunk_bytes` among them, as one value."""
    return storage_of(Tiny, **options)


def arguments(**options: Any) -> dict[str, Any]:
    """Return flat options as the arguments of `to_blz`, `storage` among them."""
    plain = {name: value for name, value in options.items() if name in PLAIN}
    others = {name: value for name, value in options.items() if name not in PLAIN}
    return {**plain, "storage": storage_of(**others)} if others else plain
