"""Vacuum where locks exclude nobody: others read, write and vacuum at the same time.

Its steps, in an order in which each protects the next. The model in `tests/stores/` shows that none
can be left out.

1. List everything, in the order of the keys, so data files and leaves come before manifests: what a
   commit names later is not in the list, or is young.
2. Choose the versions that expired; put a mark that names them.
3. List `meta`, after the mark: the leases, the versions, and the time of the store. Read all
   versions. If one was removed since then, versions that are not in the list may name its files, so
   list again. The newest one has the tags.
4. Put tombstones in the place of the versions that have neither a lease nor a tag, side by side.
5. Delete the files that only they named, and those that no version names and that are older than
   `tuning.orphan_seconds`: a commit refuses to name a file that is nearly so old. The mark goes
   with the last of them.

So beside manifests and leaves, there are two lists, one mark, and a deletion for each 1,000 keys.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice
from typing import Any

from blztable import tuning
from blztable.engine.version import leases, retention, unlocked, versions
from blztable.engine.version.leases import Timed
from blztable.engine.version.named_files import named
from blztable.engine.version.retention import RetentionLimits
from blztable.engine.version.versions import DAMAGED, Version
from blztable.errors import ConflictError
from blztable.format import layout
from blztable.format.version_file import REMOVED
from blztable.report import Vacuumed
from blztable.storage.store import KeyNotFound, ListedValue, Store
from blztable.storage.threads import requested

_log = logging.getLogger(__name__)


def vacuum(store: Store, *, keep: int | None, older_than: float | None) -> Vacuumed:
    """Remove expired versions and old orphans; see `vacuum.vacuum`."""
    listed = list(store.entries(""))
    files_listed = [entry for entry in listed if layout.is_file(entry.key)]
    try:
        expired = _expired(store, listed, keep, older_than)
        with leases.mark(store, expired) as mark:
            meta, stay, go = _read(store, mark, expired)
            files = {
                entry.key: entry.size
                for entry in files_listed
                if entry.key not in stay and (entry.key in go or meta.is_orphan(entry))
            }
            _bury(store, mark, meta.going)
            mark.close_with([*files, *meta.stale])
    except _Unreadable as error:
        return Vacuumed(damaged=(error.number,))
    nbytes, pinned = sum(files.values()), tuple(sorted(meta.leased.intersection(expired)))
    _log.info(
        "%s: vacuum removed versions %s, and %d files of %d bytes; versions %s are in use",
        store.name,
        meta.going,
        len(files),
        nbytes,
        list(pinned),
    )
    return Vacuumed(tuple(meta.going), len(files), nbytes, pinned)


class _Unreadable(Exception):
    """A version cannot be read, so it may name any file."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def _reading(store: Store, number: int) -> Iterator[None]:
    """Turn damage into KeyNotFound if the version was removed meanwhile, else into _Unreadable."""
    try:
        yield
    except DAMAGED:
        if not leases.is_there(store, number):
            raise KeyNotFound(layout.manifest(number)) from None
        raise _Unreadable(number) from None


def _bury(store: Store, mark: Timed, numbers: Iterable[int]) -> None:
    """Put tombstones in the place of versions, side by side, as long as the mark counts."""

    def bury(number: int) -> None:
        mark.check()
        store.put(layout.manifest(number), REMOVED)

    buried = [requested(bury, number) for number in numbers]
    for error in [one.exception() for one in buried]:
        if error is not None:
            raise error
    if buried:
        # In a directory, a loss of power could bring back a manifest without its files.
        store.flush_names(layout.MANIFESTS)


def _expired(
    store: Store, listed: Sequence[ListedValue], keep: int | None, older_than: float | None
) -> list[int]:
    """Return the versions that exceed a limit; all of a table that was dropped."""
    while True:
        manifests = unlocked.manifests(listed)
        if not manifests:
            raise versions.no_table(store)
        last = max(manifests)
        numbers = [n for n, entry in manifests.items() if entry.size != len(REMOVED)]
        if last not in numbers:
            return numbers
        try:
            with _reading(store, last):
                newest = versions.read(store, last, manifests[last].size)
        except KeyNotFound:
            # It was replaced and removed meanwhile.
            listed = list(store.entries(layout.MANIFESTS))
            continue
        chosen: dict[str, Any] = {"versions": keep, "seconds": older_than}
        limits = replace(
            RetentionLimits.of(newest.head, locks=False),
            **{name: value for name, value in chosen.items() if value is not None},
        )
        return retention.all_expired(newest, numbers, limits)


class _Meta:
    """What a list of `meta` says after the mark of a vacuum.

    Attributes
    ----------
    sizes : dict of int
        The bytes of the manifests that are no tombstones, by their numbers.
    newest : int
        The largest number, also if it is a tombstone.
    leased : set of int
        The versions with a lease.
    going : list of int
        The versions that expired and that nobody needs; `choose` sets it.
    stale : list of str
        The keys of leases, marks and probes that do not count any more.
    """

    def __init__(self, entries: Sequence[ListedValue], now: float) -> None:
        self._now = now
        sizes = {number: entry.size for number, entry in unlocked.manifests(entries).items()}
        self.newest = max(sizes)
        self.sizes = {n: size for n, size in sizes.items() if size != len(REMOVED)}
        timed = [entry for entry in entries if entry.key.startswith(_TIMED)]
        counting = leases.young(timed, now)
        numbers = [layout.leased_version(entry.key) for entry in counting]
        self.leased = {number for number in numbers if number is not None}
        self.stale = [entry.key for entry in timed if entry not in counting]
        self.going: list[int] = []

    def choose(self, expired: Iterable[int], newest: Version | None) -> None:
        """Choose the versions that go."""
        tags = set(newest.head.tags.values()) if newest is not None else set()
        needed = {self.newest, *self.leased, *tags}
        self.going = [n for n in expired if n in self.sizes and n not in needed]

    def is_orphan(self, entry: ListedValue) -> bool:
        """Return True if a file is so old that no commit is going to name it."""
        return self._now - entry.time > tuning.current.orphan_seconds


# What counts for a while only; the key of a probe ends in a random name.
_TIMED = (f"{layout.LEASES}/", f"{layout.MARKS}/", f"{layout.META}/probe-")


def _read(store: Store, mark: Timed, expired: Iterable[int]) -> tuple[_Meta, set[str], set[str]]:
    """List `meta` and read all versions, again if one was removed in between.

    Return also the files of the versions that stay, and those of the versions that go.
    """
    while True:
        entries = list(store.entries(layout.META))
        times = [entry.time for entry in entries if entry.key == mark.key]
        if not times:
            raise ConflictError(f"{store.name}: the mark of this vacuum was removed; try again")
        meta = _Meta(entries, times[0])
        with suppress(KeyNotFound):
            newest = None
            if meta.newest in meta.sizes:
                with _reading(store, meta.newest):
                    newest = versions.read(store, meta.newest, meta.sizes[meta.newest])
            meta.choose(expired, newest)
            return meta, *_named(store, meta, newest)


def _named(store: Store, meta: _Meta, newest: Version | None) -> tuple[set[str], set[str]]:
    """Return the files of the versions that stay, and those of the versions that go."""
    stay: tuple[set[str], set[int]] = set(), set()
    go: tuple[set[str], set[int]] = set(), set()
    if newest is not None:
        with _reading(store, meta.newest):
            stay[0].update(named(newest, stay[1]))
    numbers = (number for number in meta.sizes if number != meta.newest)
    # The manifests of so many versions are in memory at once.
    while some := list(islice(numbers, tuning.current.requests)):
        with store.fetch([(layout.manifest(one), 0, meta.sizes[one]) for one in some]):
            for number in some:
                keys, seen = go if number in meta.going else stay
                with _reading(store, number):
                    keys.update(named(versions.read(store, number, meta.sizes[number]), seen))
    return stay[0], go[0]
