"""The proposals' three JSON documents: what people and other tools may read about a table.

They mirror the newest version. The engine reads one number of them, to find out that the manifest
of the newest version is gone. Refreshed under the writers' lock, so that an older version never
replaces a newer one.
"""

from contextlib import suppress

from blztable.engine.version.versions import Version
from blztable.errors import CorruptError
from blztable.format import jsontext, layout
from blztable.storage.store import KeyNotFound, Store


def refresh(version: Version) -> None:
    """Write sizes, storage and attributes of this version.

    Not flushed: the next commit makes them again, and those of an older version do no harm.
    """
    head = version.head
    sizes = {
        # Read by `versions.newest_told`: it shows that a newer manifest was removed by others.
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
    # Another one in each version, unlike the others.
    version.store.put(layout.SIZES, _text(sizes))
    for key, document in (
        (layout.STORAGE, storage),
        (layout.ATTRIBUTES, dict(head.attributes)),
    ):
        _put(version.store, key, _text(document))


def _text(document: object) -> bytes:
    return jsontext.dumps(document) + b"\n"


def _put(store: Store, key: str, data: bytes) -> None:
    """Set a document that is another one than before.

    Most commits leave two of them as they are, and to replace a file costs more than to read it.
    """
    with suppress(KeyNotFound, CorruptError):
        if store.get(key, 0, len(data) + 1) == data:
            return
    store.put(key, data)
