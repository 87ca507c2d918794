"""Where a table is: a path of the user's, as a store."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from blztable.storage.local import LocalStore
from blztable.storage.store import Store

Place = str | os.PathLike[str] | Store


def store_at(place: Place) -> Store:
    """The store at a path, `~` expanded; a store is itself."""
    if isinstance(place, str | os.PathLike):
        if not os.fspath(place):
            raise ValueError("an empty path; the directory of the table is expected")
        return LocalStore(os.path.expanduser(place))
    if not hasattr(place, "put_new"):
        raise TypeError(f"a path is expected, not {type(place).__name__}")
    return place


@contextmanager
def opened_at(place: Place) -> Iterator[Store]:
    """The store at a path; what fails with it leaves it closed, whoever keeps the exception."""
    store = store_at(place)
    try:
        yield store
    except BaseException:
        store.close()
        raise
