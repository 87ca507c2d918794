"""Mirrored: the number of the newest version as a document beside the manifests says it.

It tells that the newest manifest is missing. `mirrors.py` writes the document.
"""

from blztable.errors import CorruptError, FormatError, LimitError, StorageError
from blztable.format import jsontext, layout
from blztable.storage.store import KeyNotFound, Store

# More bytes than `meta/sizes` has.
_SIZES_BYTES = 4 << 10
_UNREADABLE = (CorruptError, FormatError, LimitError, StorageError, KeyNotFound)


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
