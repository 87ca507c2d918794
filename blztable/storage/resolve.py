"""Resolve the user's path of a table to a store.

Knows nothing of tables.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from blztable.storage.local import LocalStore
from blztable.storage.store import Store

StoreLike = str | os.PathLike[str] | Store


@contextmanager
def opened_at(path: StoreLike) -> Iterator[Store]:
    """Yield the store at a path; close it if the block fails."""
    store = store_at(path)
    try:
        yield store
    except BaseException:
        store.close()
        raise


def store_at(path: StoreLike) -> Store:
    """Return the store at a path, with `~` expanded; return a store unchanged."""
    if isinstance(path, str | os.PathLike):
        if not os.fspath(path):
            raise ValueError("the path is empty; pass the directory of the table")
        return LocalStore(os.path.expanduser(path))
    if not hasattr(path, "put_new"):
        raise TypeError(f"expected a path or a store, found {type(path).__name__}")
    return path
