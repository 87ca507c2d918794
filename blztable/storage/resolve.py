"""Resolve the user's path of a table to a store.

Knows nothing of tables.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from blztable.storage.local import LocalStore
from blztable.storage.store import Store

Place = str | os.PathLike[str] | Store


def store_at(place: Place) -> Store:
    """Return the store at a path, with `~` expanded; return a store unchanged."""
    if isinstance(place, str | os.PathLike):
        if not os.fspath(place):
            raise ValueError("the path is empty; pass the directory of the table")
        return LocalStore(os.path.expanduser(place))
    if not hasattr(place, "put_new"):
        raise TypeError(f"expected a path or a store, found {type(place).__name__}")
    return place


@contextmanager
def opened_at(place: Place) -> Iterator[Store]:
    """Yield the store at a path; close it if the block fails."""
    store = store_at(place)
    try:
        yield store
    except BaseException:
        store.close()
        raise
