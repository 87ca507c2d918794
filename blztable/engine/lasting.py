"""Lasting: which versions survive a loss of power, and what is flushed to make one survive.

A version that says `durable` was flushed whole before it was published. One that does not builds
on what the page cache holds; its head names the newest version below it that was flushed.
"""

from blztable.engine import versions
from blztable.engine.versions import Version
from blztable.errors import CorruptError
from blztable.storage.store import KeyNotFound, Store


def newest(store: Store, base: Version | None, base_number: int | None) -> int:
    """Number of the newest version that was flushed, from the base on; 0 if there is none.

    `base` is None where there is no version yet, or where the one with this number is damaged.
    """
    if base_number is None:
        return 0
    known = base or versions.latest(store)
    if known is None:
        # All are damaged: any of them may have been flushed.
        return base_number
    return known.head.version if known.head.durable else known.head.lasting


def flush_whole(version: Version) -> None:
    """Flush what a version names, for the next one to build on.

    It was committed without a flush; a durable version that names its files must not depend on it.
    """
    store = version.store
    files = [file for index in range(len(version.schema)) for file in version.column(index).files]
    try:
        store.flush([*files, version.key])
    except KeyNotFound as error:
        raise CorruptError(f"a file of the table is missing: {error}") from None


def flush_base(newest: Version | None, store: Store, *, is_replaced: bool) -> None:
    """Flush what a durable version builds on, if nobody did; `newest` is None if it is damaged."""
    if newest is not None and newest.head.durable:
        return
    store.prepare()
    if newest is not None and not is_replaced:
        flush_whole(newest)
