"""Usage: what takes the space of a table.

Reads manifests and the sizes of files, and no rows.
"""

from collections.abc import Iterable
from contextlib import suppress

from blztable.engine.version import versions
from blztable.engine.version.retention import Counted
from blztable.engine.version.versions import DAMAGED, Version
from blztable.report import DiskUsage
from blztable.storage.store import KeyNotFound, Store


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
        total = store.nbytes
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
