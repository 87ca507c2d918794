"""Resolve the user's path of a table to a store.

Knows nothing of tables.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from blztable.errors import TableExistsError
from blztable.storage import one_file
from blztable.storage.local import LocalStore
from blztable.storage.store import Store

LAYOUTS = ("directory", "file")
StoreLike = str | os.PathLike[str] | Store


@contextmanager
def opened_at(path: StoreLike, layout: str | None = None) -> Iterator[Store]:
    """Yield the store at a path; close it if the block fails."""
    store = store_at(path, layout)
    try:
        yield store
    except BaseException:
        store.close()
        raise


def store_at(path: StoreLike, layout: str | None = None) -> Store:
    """Return the store at a path, with `~` expanded; return a store unchanged.

    `layout`, one of `LAYOUTS`, is for a path where nothing is yet; None stands for "directory".
    """
    if isinstance(path, str | os.PathLike):
        if not os.fspath(path):
            raise ValueError("the path is empty; pass the directory of the table")
        where = os.path.expanduser(path)
        return one_file.at(where) if is_file(where, layout) else LocalStore(where)
    if not hasattr(path, "put_new"):
        raise TypeError(f"expected a path or a store, found {type(path).__name__}")
    return path


def is_file(path: str | os.PathLike[str], layout: str | None) -> bool:
    """True for a table in one file; TableExistsError if there is another layout than asked."""
    if not os.path.lexists(path):
        return layout == "file"
    found = "file" if os.path.isfile(path) else "directory"
    if layout not in (None, found):
        raise TableExistsError(
            f"{os.fspath(path)} is a {found}, and a {layout} cannot replace it at one stroke; remove "
            "it first, or choose another path"
        )
    return found == "file"
