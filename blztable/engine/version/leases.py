"""Leases and marks: which versions stay and which go, where locks exclude nobody.

Who needs a version to stay puts a lease on it, then looks for marks, then reads its manifest. A
vacuum puts a mark, which names the versions that it is about to remove, then looks at leases. So at
least one of the two meets the other: the version stays, or who needs it is told that it goes.

Both count for `tuning.lease_seconds` by the clock of the store, so one that a killed process left
is harmless afterwards. Who has put one relies on it for half of that, by its own clock. The lease
of an open table is put again at a third of that, by a thread, until the table is closed.
"""

import os
import secrets
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from threading import Lock as ThreadLock
from time import monotonic, time

from blztable import tuning
from blztable.closing import Closing
from blztable.engine.version import versions
from blztable.errors import BlzError, ConflictError, ReadOnlyError, TableNotFoundError
from blztable.format import jsontext, layout
from blztable.format.version_file import REMOVED
from blztable.storage.store import KeyNotFound, ListedValue, Store
from blztable.storage.threads import repeated


class Timed(Closing):
    """A lease or a mark, from its making until it is closed."""

    def __init__(self, store: Store, key: str, data: bytes) -> None:
        """Put the value."""
        self._store, self._data = store, data
        self.key, self._is_closed = key, False
        self.renew()

    def renew(self) -> None:
        """Put the value, or put it again."""
        began = monotonic(), time()
        self._store.put(self.key, self._data)
        self._began = began

    @property
    def counts(self) -> bool:
        """False if others may not wait for it any more."""
        # A machine that slept counts by one clock only.
        age = max(monotonic() - self._began[0], time() - self._began[1])
        return age <= tuning.current.lease_seconds / 2

    def check(self) -> None:
        """Raise ConflictError if others may not wait for it any more."""
        if not self.counts:
            raise ConflictError(
                f"{self._store.name}: this took more than {tuning.current.lease_seconds / 2:g} "
                "seconds, and others no longer wait for it; try again"
            )

    def close(self) -> None:
        """Remove the value; if that fails, it counts for some time more."""
        if not self._is_closed:
            with suppress(BlzError):
                self._store.delete([self.key])

    def close_with(self, keys: Sequence[str]) -> None:
        """Remove other values, and behind them this one."""
        self._store.delete([*keys, self.key])
        self._is_closed = True


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


class Hold(Closing):
    """A lease on the version of an open table, which a thread renews.

    It ends when it is closed or collected, or after so many seconds. A child made by fork has no
    part in it: it relies on the last renewal that it knows of.
    """

    def __init__(self, store: Store, number: int, seconds: float) -> None:
        """Take the lease; TableNotFoundError if the version was removed, or is about to be."""
        if not store.creates:
            raise ReadOnlyError(
                f"{store.name} is only read, so no version can be held there; open it without hold="
            )
        self._pid = os.getpid()
        self._renewed = _Renewed(store, number, seconds)
        try:
            self._end = repeated(
                self._renewed.again, self._renewed.seconds_left(), self._renewed.close
            )
        except BaseException:
            self._renewed.close()
            raise

    def check(self) -> None:
        """Raise ConflictError if the version may have been removed, because no renewal came."""
        self._renewed.check()

    def close(self) -> None:
        """Let the version go; closing twice is harmless."""
        if self._pid == os.getpid():
            self._renewed.close()
            self._end()

    def __del__(self) -> None:
        # The thread makes the request. The attribute is missing if the lease was not taken.
        if hasattr(self, "_end") and self._pid == os.getpid() and not sys.is_finalizing():
            self._end()


class _Renewed:
    """The lease of a hold: what the thread and the table share."""

    def __init__(self, store: Store, number: int, seconds: float) -> None:
        self._lock = ThreadLock()
        self._until = monotonic() + seconds
        self._name = f"{store.name}: version {number}"
        self._lease: Timed | None = lease(store, number)
        self._is_lost = False

    def seconds_left(self) -> float:
        """Return the seconds until the next renewal, or until the end."""
        return max(min(tuning.current.lease_seconds / 3, self._until - monotonic()), 0)

    def again(self) -> float | None:
        """Renew the lease; return the seconds until the next time, None for no more."""
        with self._lock:
            if self._lease is None or monotonic() >= self._until or self._lapsed(self._lease):
                return None
            try:
                self._lease.renew()
            except BlzError:
                return tuning.current.lease_seconds / 60
            return self.seconds_left()

    def check(self) -> None:
        """Raise ConflictError if the lease once did not count before its time was over."""
        held = self._lease
        if self._is_lost or (held and monotonic() < self._until and self._lapsed(held)):
            raise ConflictError(
                f"{self._name} is not held any more: its lease could not be renewed for "
                f"{tuning.current.lease_seconds / 2:g} seconds, so a vacuum may have removed it; "
                "open the table again"
            )

    def _lapsed(self, held: Timed) -> bool:
        """True if the lease did not count for some time; a later renewal does not mend that."""
        self._is_lost = self._is_lost or not held.counts
        return self._is_lost

    def close(self) -> None:
        """Remove the lease."""
        with self._lock:
            held, self._lease = self._lease, None
            if held is not None:
                held.close()


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
