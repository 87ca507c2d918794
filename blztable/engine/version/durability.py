"""Durability: which versions survive a loss of power, and which files to flush for that.

All files of a durable version were flushed before it was published. Files of another version may
be in the page cache only; `lasting` in its head is the number of the newest durable version below.
The versions that the tags of a durable version name are durable as well.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress

from blztable.engine.version import versions
from blztable.engine.version.versions import DAMAGED, Version
from blztable.errors import CorruptError
from blztable.format import layout
from blztable.format.layout import Path
from blztable.format.line import file_numbers
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
    columns = map(version.line_parts, range(len(version.head.columns.paths)))
    files = [file for parts in columns for file in parts.files]
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


def flush_tagged(store: Store, newest: Version | None, tags: Mapping[str, int]) -> None:
    """Flush the versions that the tags of a new durable version name, if not done yet.

    The tags of the newest durable version were flushed with it, so only other ones are read.
    """
    numbers = set(tags.values())
    if numbers and newest is not None:
        numbers -= _flushed_tags(store, newest)
    for number in sorted(numbers):
        # Nothing can be done for a version that is gone or damaged; its tag stays as it is.
        with suppress(*DAMAGED, KeyNotFound):
            version = versions.read(store, number)
            if not version.head.durable:
                flush_whole(version)


def _flushed_tags(store: Store, newest: Version) -> set[int]:
    """Return the versions that the tags of the newest durable version name."""
    head = newest.head
    if not head.durable:
        if not head.lasting:
            return set()
        try:
            head = versions.read(store, head.lasting).head
        except (*DAMAGED, KeyNotFound):
            return set()
    return set(head.tags.values())


def durable_prefixes(base: Version | None, paths: Collection[Path]) -> set[str]:
    """Return the prefixes whose names are durable, as far as a durable base shows it.

    `paths` are those of the columns that get new files. A directory counts if the base has a file
    there: without one, its name may come from a writer that was killed before its flush.
    """
    if base is None or not base.head.durable:
        return set()
    known = {layout.DATA}
    if base.head.bundles:
        known.add(layout.BUNDLES)
    groups = len(base.head.row_groups)
    for index, path in enumerate(base.head.columns.paths):
        with suppress(*DAMAGED):
            if path in paths and file_numbers(base.text(index), path, groups):
                known.add(layout.column(path))
    return known
