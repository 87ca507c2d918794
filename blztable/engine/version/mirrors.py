"""Mirrors: the three JSON documents of the blz proposals, for people and other tools.

They describe the newest version. The engine itself reads only the version number in `meta/sizes`,
to detect that the newest manifest is missing. The documents are refreshed under the writers' lock,
so an older version never replaces a newer one. A store that only appends has none of them.
"""

import math
from collections.abc import Mapping
from contextlib import suppress

import pyarrow as pa

from blztable.columns.default import from_json
from blztable.engine.version.schema import TRUNCATE_KEY, digits_of
from blztable.engine.version.versions import Version
from blztable.errors import CorruptError, LimitError
from blztable.format import jsontext, layout
from blztable.format.jsontext import Json
from blztable.format.manifest import Head
from blztable.storage.store import KeyNotFound, Store


def refresh(store: Store, version: Version, defaults: Mapping[str, Json]) -> None:
    """Write the sizes, storage and attributes of this version.

    `defaults` are those of the properties. The documents are not flushed: the next commit writes
    them again, and outdated ones do no harm.
    """
    if store.appends_only:
        # Each commit would leave the documents of the one before behind.
        return
    head, schema = version.head, version.schema
    nbytes, cbytes = version.facts.totals
    sizes = {
        # `versions.checked_newest` reads it, to detect that the newest manifest was removed.
        "version": head.version,
        "shape": [head.rows],
        "nbytes": int(nbytes.sum()),
        "cbytes": int(cbytes.sum()),
    }
    properties = head.properties
    # Most tables have neither truncated columns nor defaults, and some have thousands of columns.
    has_digits = TRUNCATE_KEY in version.schema_bytes and any(map(digits_of, schema))
    # A round number: the document is replaced only when the table has outgrown it.
    rounded = 1 << (head.rows - 1).bit_length() if head.rows else 0
    storage = {
        "dtype": list(zip(schema.names, map(str, schema.types), strict=True)),
        "cparams": {
            "cname": properties.get("compression"),
            "clevel": properties.get("clevel"),
            "shuffle": properties.get("shuffle"),
        },
        "chunklen": _page_rows(version),
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


def _page_rows(version: Version) -> int | None:
    """Return the rows of a page of the last row group; None if the columns differ."""
    for run in version.facts.backwards():
        pages = run.records().parts["page"].reshape(len(version.paths), len(run))[:, -1]
        roots = pages[[line for line, path in enumerate(version.paths) if len(path) == 1]]
        return 1 << int(roots[0]) if len(roots) and (roots == roots[0]).all() else None
    return None


def _defaults(head: Head, schema: pa.Schema, defaults: Mapping[str, Json]) -> list[Json]:
    roots = [str(path[0]) for path in head.paths if len(path) == 1]
    fields = zip(roots, schema, strict=True)
    return [_default(defaults.get(root), field.type) for root, field in fields]


def _default(stored: Json, type_: pa.DataType) -> Json:
    """Return a default value of the properties as JSON; what JSON has no word for as it is there.

    One that cannot be read is null: a document for people keeps no commit from its end.
    """
    if stored is None:
        return None
    try:
        value = from_json(stored, type_)
    except (CorruptError, LimitError):
        return None
    # Python has no dates before the year 1 or after 9999, and no nanoseconds.
    with suppress(OverflowError, ValueError):
        value = value.as_py()
    if isinstance(value, float) and not math.isfinite(value):
        return {"blz:value": ["float", repr(value)]}
    is_plain = isinstance(value, bool | int | float | str)
    return value if is_plain else {"blz:value": ["stored", stored]}


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
