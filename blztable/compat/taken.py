"""Taken: the error of a writer about a path that another program uses.

Knows none of these programs; they are asked only about such a path.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from blztable import compat
from blztable.errors import FormatError, TableExistsError
from blztable.storage.store import Store


@contextmanager
def named(store: Store) -> Iterator[None]:
    """Say in the error about a path that is taken what another program stored there."""
    try:
        yield
    except (TableExistsError, FormatError) as error:
        answer = compat.table.what_is_at(store)
        if answer is None:
            raise
        what, remedy = answer
        raise TableExistsError(f"{store.name} is {what} and is left as it is; {remedy}") from error
