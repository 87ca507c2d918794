"""Lasting: which versions survive a loss of power, and what is flushed to make one survive.

A version that says `durable` was flushed whole before it was published. One that does not builds
on what the page cache holds; its head names the newest version below it that was flushed.
"""

from blztable.engine.version import versions
from blztable.engine.version.versions import Version
from blztable.errors import CorruptError
from blztable.format import layout
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


def flush_base(store: Store, newest: Version | None, built_on: Version | None) -> None:
    """Flush what a lasting version builds on, if nobody did.

    `newest` is None where it is damaged, `built_on` where no file is taken over from a version.
    """
    if newest is None or not newest.head.durable:
        store.prepare(*layout.PREPARED)
    if built_on is not None and not built_on.head.durable:
        flush_whole(built_on)
