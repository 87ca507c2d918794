"""Mirrors: the three JSON documents of the blz proposals, for people and other tools.

They describe the newest version. The engine itself reads only the version number in `meta/sizes`,
to detect that the newest manifest is missing. The documents are refreshed under the writers' lock,
so an older version never replaces a newer one.
"""

from contextlib import suppress

from blztable.engine.version.versions import Version
from blztable.errors import CorruptError
from blztable.format import jsontext, layout
from blztable.storage.store import KeyNotFound, Store


def refresh(version: Version) -> None:
    """Write the sizes, storage and attributes of this version.

    They are not flushed: the next commit writes them again, and outdated ones do no harm.
    """
    head = version.head
    sizes = {
        # `versions.checked_newest` reads it, to detect that the newest manifest was removed.
        "version": head.version,
        "shape": [head.rows],
        "nbytes": sum(head.columns.nbytes),
        "cbytes": sum(head.columns.cbytes),
    }
    properties = head.properties
    storage = {
        "dtype": list(zip(head.fields["name"], head.fields["type"], strict=True)),
        "cparams": {
            "cname": properties.get("compression"),
            "clevel": properties.get("clevel"),
            "shuffle": properties.get("shuffle"),
        },
        # A round number: the document is replaced only when the table has outgrown it.
        "expectedlen": 1 << (head.rows - 1).bit_length() if head.rows else 0,
        "dflt": None,
    }
    # It differs in each version.
    version.store.put(layout.SIZES, _text(sizes))
    _put(version.store, layout.STORAGE, _text(storage))
    _put(version.store, layout.ATTRIBUTES, _text(dict(head.attributes)))


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
