"""Usage: what takes the space of a table.

Reads manifests and the sizes of files, and no rows.
"""

from collections.abc import Iterable
from contextlib import suppress

from blztable.engine.version import versions
from blztable.engine.version.retention import Counted
from blztable.engine.version.versions import DAMAGED, Version
from blztable.errors import CorruptError
from blztable.report import DiskUsage
from blztable.storage.one_file.store import OneFileStore
from blztable.storage.store import KeyNotFound, Store

# Directories within each other, more than a table has.
_DEPTH = 100


def disk_usage(store: Store) -> DiskUsage:
    """Return the bytes of the newest version, of older ones, and of everything else.

    Raises
    ------
    CorruptError
        The newest manifest is damaged.
    """
    newest, pinned = versions.pin(store)
    with pinned:
        counted = Counted()
        own = counted.add(newest)
        names = set(newest.head.tags.values())
        tagged = _bytes(counted, store, names, newest)
        others = set(versions.numbers(store)) - names - {newest.head.version}
        older = _bytes(counted, store, others, newest)
        if isinstance(store, OneFileStore):
            source = store.source()
            total = 0 if source is None else source.size
        else:
            total = _total(store, "")
    # Another process may have removed files since they were counted.
    return DiskUsage(own, tagged, older, max(total - own - tagged - older, 0))


def _bytes(counted: Counted, store: Store, numbers: Iterable[int], newest: Version) -> int:
    """Return the bytes that these versions take beside those counted."""
    nbytes = 0
    for number in sorted(numbers, reverse=True):
        # The files of a damaged version are unknown: no version names them.
        with suppress(*DAMAGED, KeyNotFound):
            nbytes += counted.add(versions.read(store, number), newest)
    return nbytes


def _total(store: Store, prefix: str, depth: int = _DEPTH) -> int:
    """Return the bytes of all values below a prefix."""
    nbytes = 0
    for name in store.list_names(prefix):
        key = f"{prefix}/{name}" if prefix else name
        try:
            with store.open(key) as value:
                nbytes += value.size
        except (CorruptError, KeyNotFound):
            # A prefix, or a link, or it is gone.
            with suppress(CorruptError, KeyNotFound):
                nbytes += _total(store, key, depth - 1) if depth else 0
    return nbytes
