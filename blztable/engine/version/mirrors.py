"""Mirrors: the three JSON documents of the blz proposals, for people and other tools.

They describe the newest version. The engine itself reads only the version number in `meta/sizes`,
to detect that the newest manifest is missing. The documents are refreshed under the writers' lock,
so an older version never replaces a newer one.
"""

from contextlib import suppress

from blztable.errors import CorruptError, FormatError, LimitError, StorageError
from blztable.format import jsontext, layout
from blztable.format.manifest import Head
from blztable.storage.store import KeyNotFound, Store

# More bytes than `meta/sizes` has.
_SIZES_BYTES = 4 << 10
_UNREADABLE = (CorruptError, FormatError, LimitError, StorageError, KeyNotFound)


def refresh(store: Store, head: Head) -> None:
    """Write the sizes, storage and attributes of this version.

    They are not flushed: the next commit writes them again, and outdated ones do no harm.
    """
    if store.is_one_file:
        return
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
    store.put(layout.SIZES, _text(sizes))
    _put(store, layout.STORAGE, _text(storage))
    _put(store, layout.ATTRIBUTES, _text(dict(head.attributes)))


def mirrored_number(store: Store) -> int:
    """Return the version number in `meta/sizes`; 0 if it cannot be read."""
    try:
        data = store.get(layout.SIZES, 0, _SIZES_BYTES)
        sizes = jsontext.loads(data, layout.SIZES)
    except _UNREADABLE:
        return 0  # The table can be read without its mirror.
    number = sizes.get("version") if isinstance(sizes, dict) else None
    return number if type(number) is int and 0 < number <= layout.MAX_VERSION else 0


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
