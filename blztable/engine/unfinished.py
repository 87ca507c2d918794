"""Unfinished creations: what a first commit left that did not come to be, and its removal.

A place without a manifest is no table. What lies there under our names belongs to a creation that
is under way, or to one that failed or was killed.
"""

from blztable.engine import flight, versions
from blztable.errors import BusyError
from blztable.format import layout
from blztable.storage.store import Store


def clear(store: Store) -> None:
    """Remove what an unfinished creation left, unless someone is still at it."""
    try:
        with flight.alone(store, 0):
            if versions.newest_number(store) is not None:
                return
            store.sweep(layout.MANIFESTS)
            store.sweep(layout.META)
            for name in store.list_names(layout.DATA):
                remove_column(store, f"{layout.DATA}/{name}")
    except BusyError:
        pass  # Another creation is in flight; its files and ids are its own.


def remove_column(store: Store, prefix: str) -> None:
    """Remove superchunks and columns below a prefix of ours."""
    for name in store.list_names(prefix):
        if layout.column_id(name) is not None:
            remove_column(store, f"{prefix}/{name}")
        elif layout.part_number(name) is not None:
            store.delete([f"{prefix}/{name}"])
    store.delete([prefix])
