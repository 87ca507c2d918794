"""Drop: remove a table, so that nobody who has it open can bring it back.

A tombstone under the next number is the drop: it is created as a manifest is. So a writer of the
old table is told, and a table that is made there later has higher numbers. The files go by a
vacuum: with locks at once, as far as nobody has them open.
"""

import logging
from contextlib import suppress

from blztable.engine.version import in_flight, unlocked, vacuum, versions
from blztable.engine.version.newest import Newest
from blztable.errors import AccessError, BlzError, BusyError, CommitUnknownError, ReadOnlyError
from blztable.format import layout
from blztable.format.version_file import REMOVED
from blztable.interrupts import DeferInterrupt
from blztable.storage.store import KeyTaken, Nothing, Store

_log = logging.getLogger(__name__)


def drop(store: Store) -> None:
    """Drop the table.

    Raises
    ------
    TableNotFoundError
        There is no table.
    BusyError
        Another writer held the lock for `tuning.lock_seconds`.
    CommitUnknownError
        It is unknown whether the table was dropped, or whether that survives a loss of power.
    """
    versions.settle(store)
    if not store.creates:
        raise ReadOnlyError(f"{store.name} is only read; drop the table at its own place")
    if not versions.can_hold_table(store) or versions.newest_number(store) is None:
        raise versions.no_table(store)
    # The log tells of the drop before Ctrl-C is raised, so that a listener knows of it.
    with DeferInterrupt(), in_flight.writing(store) if store.locks else Nothing():
        with in_flight.writers_lock(store, durable=True) if store.locks else Nothing():
            number = _publish(store)
        _log.info("%s: dropped as version %d", store.name, number, extra={"committed": number})
    if store.locks:
        # A writer or a reader keeps what it uses; a later vacuum removes that.
        with suppress(BusyError):
            vacuum.vacuum(store, wait=0)


def _publish(store: Store) -> int:
    """Publish the tombstone; return its number."""
    table: Newest | None = None
    while True:
        newest = Newest.find(store, None, is_replacement=True)
        if table is not None and _is_gone(newest, table):
            # Another process dropped it, or this one, whose reply was lost.
            return newest.last_number
        if newest.is_dropped:
            raise versions.dropped(store)
        table, number = newest, newest.following(store)
        try:
            if store.locks:
                # A later creation relies on the directories.
                store.prepare(*layout.PREPARED)
            etag = store.publish(layout.manifest(number), REMOVED, durable=True)
            store.flush_names(layout.MANIFESTS)
        except KeyTaken:
            continue
        except AccessError:
            raise
        except BlzError as error:
            if store.locks and not versions.is_removed(store, number):
                raise
            raise CommitUnknownError(
                f"{store.name}: it is unknown whether the table was dropped for good; open it, and "
                f"drop it again if it is there: {error}"
            ) from error
        if not store.locks:
            uuid = newest.version.head.uuid if newest.version else ""
            unlocked.put_latest(store, number, uuid, etag, REMOVED)
        return number


def _is_gone(newest: Newest, table: Newest) -> bool:
    """True if a table was dropped, and perhaps another one made since."""
    if newest.is_dropped or newest.version is None or table.version is None:
        return newest.is_dropped
    return newest.version.head.uuid != table.version.head.uuid
