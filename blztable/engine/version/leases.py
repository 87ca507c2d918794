"""Leases and marks: which versions stay and which go, where locks exclude nobody.

Who needs a version to stay puts a lease on it, then looks for marks, then reads its manifest. A
vacuum puts a mark, which names the versions that it is about to remove, then looks at leases. So at
least one of the two meets the other: the version stays, or who needs it is told that it goes.

Both count for `tuning.lease_seconds` by the clock of the store, so one that a killed process left
is harmless afterwards. Who has put one relies on it for half of that, by its own clock.
"""

import secrets
from collections.abc import Iterable
from contextlib import suppress
from time import monotonic

from blztable import tuning
from blztable.closing import Closing
from blztable.engine.version import versions
from blztable.errors import BlzError, ConflictError, TableNotFoundError
from blztable.format import jsontext, layout
from blztable.format.version_file import REMOVED
from blztable.storage.store import KeyNotFound, ListedValue, Lock, Nothing, Store


class Timed(Closing):
    """A lease or a mark, from its making until it is closed."""

    def __init__(self, store: Store, key: str, data: bytes) -> None:
        """Put the value."""
        self._store = store
        self.key = key
        self._until = monotonic() + tuning.current.lease_seconds / 2
        store.put(key, data)

    def check(self) -> None:
        """Raise ConflictError if it may not count any more."""
        if monotonic() > self._until:
            raise ConflictError(
                f"{self._store.name}: this took more than {tuning.current.lease_seconds / 2:g} "
                "seconds, and others no longer wait for it; try again"
            )

    def close(self) -> None:
        """Remove the value; if that fails, it counts for some time more."""
        with suppress(BlzError):
            self._store.delete([self.key])


def lease(store: Store, number: int) -> Timed:
    """Keep a version from being removed until the lease is closed.

    TableNotFoundError if it was removed, or if a vacuum is about to remove it.
    """
    held = Timed(store, layout.lease(number, secrets.token_hex(8)), b"")
    try:
        if number in _marked(store) or not is_there(store, number):
            raise TableNotFoundError(
                f"{store.name} no longer has version {number}, or a vacuum is about to remove it; "
                f"the versions are {versions.numbers(store)!r:.500}"
            )
    except BaseException:
        held.close()
        raise
    return held


def held(store: Store, number: int) -> Lock:
    """Return a lease on a version where locks exclude nobody; elsewhere the caller has a lock."""
    return Nothing() if store.locks else lease(store, number)


def mark(store: Store, numbers: Iterable[int]) -> Timed:
    """Tell that versions are about to be removed."""
    return Timed(store, layout.mark(secrets.token_hex(8)), jsontext.dumps([*numbers]))


def young(entries: Iterable[ListedValue], now: float) -> list[ListedValue]:
    """Return the leases or marks that count at a time of the store."""
    return [one for one in entries if now - one.time < tuning.current.lease_seconds]


def _marked(store: Store) -> set[int]:
    """Return the versions that vacuums are about to remove. A lease was put before."""
    marks = list(store.entries(layout.MARKS))
    if not marks:
        return set()
    now = max(entry.time for entry in store.entries(layout.LEASES))
    numbers: set[int] = set()
    for entry in young(marks, now):
        with suppress(KeyNotFound):  # The vacuum has ended; the manifest tells what it did.
            told = jsontext.loads(store.get(entry.key), entry.key)
            if isinstance(told, list):
                numbers.update(one for one in told if type(one) is int)
    return numbers


def is_there(store: Store, number: int) -> bool:
    """Return True if there is a manifest of a version, and no tombstone."""
    with suppress(KeyNotFound):
        return store.get(layout.manifest(number), 0, len(REMOVED) + 1) != REMOVED
    return False
