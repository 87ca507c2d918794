"""Mirrors: the three JSON documents of the blz proposals, for people and other tools.

They describe the newest version. The engine itself reads only the version number in `meta/sizes`,
to detect that the newest manifest is missing. The documents are refreshed under the writers' lock,
so an older version never replaces a newer one. A store that only appends has none of them.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress

import pyarrow as pa

from blztable.columns.default import from_json
from blztable.engine.version.schema import TRUNCATE_KEY, digits_of
from blztable.errors import CorruptError, FormatError, LimitError, StorageError
from blztable.format import jsontext, layout
from blztable.format.jsontext import Json
from blztable.format.line import last_page_rows
from blztable.format.manifest import Head
from blztable.storage.store import KeyNotFound, Store

# More bytes than `meta/sizes` has.
_SIZES_BYTES = 4 << 10
_UNREADABLE = (CorruptError, FormatError, LimitError, StorageError, KeyNotFound)


def refresh(
    store: Store,
    head: Head,
    schema: pa.Schema,
    defaults: Mapping[str, Json],
    lines: Sequence[bytes],
) -> None:
    """Write the sizes, storage and attributes of this version.

    `defaults` are those of the properties, and `lines` those of the manifest. The documents are not
    flushed: the next commit writes them again, and outdated ones do no harm.
    """
    if store.appends_only:
        # Each commit would leave the documents of the one before behind.
        return
    sizes = {
        # `versions.checked_newest` reads it, to detect that the newest manifest was removed.
        "version": head.version,
        "shape": [head.rows],
        "nbytes": sum(head.columns.nbytes),
        "cbytes": sum(head.columns.cbytes),
    }
    properties = head.properties
    # Most tables have neither truncated columns nor defaults, and some have thousands of columns.
    has_digits = TRUNCATE_KEY in head.schema and any(map(digits_of, schema))
    # A round number: the document is replaced only when the table has outgrown it.
    rounded = 1 << (head.rows - 1).bit_length() if head.rows else 0
    storage = {
        "dtype": list(zip(head.fields["name"], head.fields["type"], strict=True)),
        "cparams": {
            "cname": properties.get("compression"),
            "clevel": properties.get("clevel"),
            "shuffle": properties.get("shuffle"),
        },
        "chunklen": _page_rows(head, lines),
        "superchunksize": properties.get("row_group_rows"),
        "expectedlen": properties.get("expectedlen", rounded),
        "dflt": _defaults(head, schema, defaults) if defaults else [None] * len(schema),
        "filters": [
            *(["truncate"] if has_digits else []),
            *([] if properties.get("shuffle") == "none" else ["shuffle"]),
        ],
        "endianness": "little",
        "order": "C",
    }
    # It differs in each version.
    store.put(layout.SIZES, _text(sizes))
    _put(store, layout.STORAGE, _text(storage))
    _put(store, layout.ATTRIBUTES, _text(dict(head.attributes)))


def _page_rows(head: Head, lines: Sequence[bytes]) -> int | None:
    """Return the rows of a page of the last row group; None if the columns differ."""
    found = None
    for path, line in zip(head.columns.paths, lines, strict=True):
        if len(path) == 1:
            rows = last_page_rows(line)
            if found not in (None, rows):
                return None
            found = rows
    return found


def _defaults(head: Head, schema: pa.Schema, defaults: Mapping[str, Json]) -> list[Json]:
    roots = [str(path[0]) for path in head.columns.paths if len(path) == 1]
    fields = zip(roots, schema, strict=True)
    return [_default(defaults.get(root), field.type) for root, field in fields]


def _default(found: Json, type_: pa.DataType) -> Json:
    """Return a default value of the properties as JSON; what JSON has no word for as it is there.

    One that cannot be read is null: a document for people keeps no commit from its end.
    """
    if found is None:
        return None
    try:
        value = from_json(found, type_)
    except (CorruptError, LimitError):
        return None
    # Python has no dates before the year 1 or after 9999, and no nanoseconds.
    with suppress(OverflowError, ValueError):
        value = value.as_py()
    if isinstance(value, float) and not math.isfinite(value):
        return {"blz:value": ["float", repr(value)]}
    is_plain = isinstance(value, bool | int | float | str)
    return value if is_plain else {"blz:value": ["stored", found]}


def mirrored_number(store: Store) -> int:
    """Return the version number in `meta/sizes`; 0 if it cannot be read.

    If the store has no such document, return the version of its newest publication if that is lost.
    """
    try:
        if store.appends_only:
            return _lost_number(store)
        data = store.get(layout.SIZES, 0, _SIZES_BYTES)
        sizes = jsontext.loads(data, layout.SIZES)
    except _UNREADABLE:
        return 0  # The table can be read without its mirror.
    number = sizes.get("version") if isinstance(sizes, dict) else None
    return number if type(number) is int and 0 < number <= layout.MAX_VERSION else 0


def _lost_number(store: Store) -> int:
    """Return the version of the newest publication if it is damaged; 0 if it is not."""
    keys = store.lost_keys()
    if keys is None:
        return 0
    start = layout.MANIFESTS + "/"
    lost = [key.removeprefix(start) for key in keys if key.startswith(start)]
    numbers = [layout.manifest_version(name) or 0 for name in lost]
    there = map(layout.manifest_version, store.list_names(layout.MANIFESTS))
    # Also if the head of its manifest is damaged, its number is not that of an earlier version.
    return max([*numbers, 1 + max(filter(None, there), default=0)])


def _text(document: object) -> bytes:
    return jsontext.dumps(document) + b"\n"


def _put(store: Store, key: str, data: bytes) -> None:
    """Write a document if it differs from the present one.

    Most commits do not change it, and reading a file costs less than replacing it.
    """
    with suppress(KeyNotFound, CorruptError):
        if store.get(key, 0, len(data) + 1) == data:
            return
    store.put(key, data)
