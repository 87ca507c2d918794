"""Durability: which versions survive a loss of power, and which files to flush for that.

All files of a durable version were flushed before it was published. Files of another version may
be in the page cache only; `lasting` in its head is the number of the newest durable version below.
"""

from blztable.engine.version import versions
from blztable.engine.version.versions import Version
from blztable.errors import CorruptError
from blztable.format import layout
from blztable.storage.store import KeyNotFound, Store


def newest(store: Store, base: Version | None, base_number: int | None) -> int:
    """Return the number of the newest durable version up to the base; 0 if there is none.

    `base` is None if there is no version yet, or if the version `base_number` is damaged.
    """
    if base_number is None:
        return 0
    known = base or versions.latest(store)
    if known is None:
        # All versions are damaged, and any of them may be durable.
        return base_number
    return known.head.version if known.head.durable else known.head.lasting


def flush_whole(version: Version) -> None:
    """Flush all files of a version that was committed without a flush.

    Called before a durable version that names these files is published.
    """
    store = version.store
    columns = map(version.nodes, range(len(version.schema)))
    files = [file for nodes in columns for node in nodes for file in node.files]
    bundles = [layout.part(layout.SHARED, k) for k in sorted(version.head.bundle_numbers)]
    try:
        store.flush([*files, *bundles, version.key])
    except KeyNotFound as error:
        raise CorruptError(f"a file of the table is missing: {error}") from None


def flush_base(store: Store, newest: Version | None, base: Version | None) -> None:
    """Flush the directories and files that a new durable version builds on, if not done yet.

    `newest` is None if it is damaged. `base` is None if the new version names no older files.
    """
    if newest is None or not newest.head.durable:
        store.prepare(*layout.PREPARED)
    if base is not None and not base.head.durable:
        flush_whole(base)
