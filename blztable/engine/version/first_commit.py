"""Unfinished creations: what a first commit that failed left behind, and its removal.

A place without a manifest is no table. What lies there under our names belongs to a creation that
is under way, or to one that failed or was killed.
"""

import errno
from contextlib import ExitStack, suppress

from blztable.engine.version import in_flight, versions
from blztable.errors import BlzError, BusyError, StorageError
from blztable.format import layout
from blztable.storage.store import KeyNotFound, Store

# How often to begin anew: a creation that fails removes the place that another one is about to use.
TRIES = 10


def begin(store: Store, *, durable: bool) -> ExitStack:
    """Make the place ready for a first commit, and hold that files are in flight."""
    gone: Exception
    for _ in range(TRIES):
        try:
            if not store.prepare(*layout.PREPARED, durable=False):
                _clear(store)
            with ExitStack() as held:
                held.enter_context(in_flight.writing(store))
                # What was removed before the lock was granted is made again when it is used;
                # nothing goes now.
                store.close()
                if durable:
                    store.prepare(*layout.PREPARED)
                return held.pop_all()
        except KeyNotFound as error:
            gone = BusyError(
                f"{store.name}: other creations removed {error} {TRIES} times; try again"
            )
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            gone = error
        store.close()
    raise gone


def withdraw(store: Store) -> None:
    """Remove the place of a first commit that failed, unless someone else is at work there."""
    with suppress(BlzError, KeyNotFound, OSError), in_flight.alone(store, 0):
        if _holds_nothing(store):
            _empty(store)
            store.delete(layout.WITHDRAWN)
            store.withdraw()


def _clear(store: Store) -> None:
    """Remove what an unfinished creation left, unless someone is still at it."""
    with suppress(BusyError), in_flight.alone(store, 0):
        if _holds_nothing(store):
            _empty(store)


def _holds_nothing(store: Store) -> bool:
    """True where nothing was ever committed, as far as manifests and mirrors tell."""
    return versions.newest_number(store) is None and not versions.mirrored_number(store)


def _empty(store: Store) -> None:
    store.sweep(layout.MANIFESTS)
    store.sweep(layout.META)
    for name in store.list_names(layout.DATA):
        if layout.column_id(name) is not None:
            remove_column(store, f"{layout.DATA}/{name}")


def remove_column(store: Store, prefix: str) -> None:
    """Remove superchunks and columns below a prefix of ours."""
    for name in store.list_names(prefix):
        if layout.column_id(name) is not None:
            remove_column(store, f"{prefix}/{name}")
        elif layout.part_number(name) is not None:
            store.delete([f"{prefix}/{name}"])
    store.delete([prefix])
