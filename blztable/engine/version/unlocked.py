"""Unlocked: what is different where locks exclude nobody.

The newest version is found by a list, beside which a copy of its manifest is read: one round. It
is not looked for to commit: the creation of the next manifest proves that the one before was the
newest. Numbers of files and ids of columns come from the clock, so that none is given out twice,
also after its file was removed.
"""

import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import NamedTuple
from weakref import WeakKeyDictionary

from blztable.errors import BlzError, CorruptError, FormatError, LimitError
from blztable.format import layout
from blztable.format.latest import MOST_BYTES, Latest
from blztable.format.version_file import REMOVED
from blztable.storage.store import KeyNotFound, ListedValue, Store

# Numbers of a microsecond, and the time in seconds of the number 0: the year 2020.
_EACH, _FIRST = 256, 1_577_836_800
# Numbers among which a writer chooses whose clock is behind: those of 65 milliseconds.
_AHEAD = 1 << 24
# Manifests in the first reply of a list. If there are more, `meta/latest` says where to go on.
_FIRST_REPLY = 1000
# Older versions that a head remembers.
HISTORY = 1000
# The newest version that a list of each store has shown, or that was published there since.
_seen: WeakKeyDictionary[Store, int] = WeakKeyDictionary()


def was_newest(store: Store, number: int) -> bool:
    """Return True if a version was the newest one when this process looked last.

    Only then the creation of the next manifest proves that it still is: behind an older version,
    numbers may be free in a table whose directory was uploaded.
    """
    return _seen.get(store) == number


def number_above(least: int) -> int:
    """Return a number that nobody else has been given, from `least` on.

    If that is ahead of the clock, another machine's clock is: then writers would all begin with it.
    """
    now = number_of_now()
    return now if now >= least else least + secrets.randbelow(_AHEAD)


def number_of_now() -> int:
    """Return a number that nobody else has been given; it has 18 digits at most until 2143."""
    micros = time.time_ns() // 1000 - _FIRST * 1_000_000
    return micros * _EACH + secrets.randbelow(_EACH)


class Listed(NamedTuple):
    """The newest version that a list shows.

    Attributes
    ----------
    number
        Its number.
    is_removed
        True if it is a tombstone.
    manifest
        Its manifest, if `meta/latest` has it.
    """

    number: int
    is_removed: bool
    manifest: bytes | None


def newest(store: Store) -> Listed | None:
    """Return the newest version; None if there is none."""
    with store.fetch([(layout.LATEST, 0, MOST_BYTES)]):
        entries = list(islice(_manifests(store, ""), _FIRST_REPLY if store.fetches else None))
        # A directory has no ETags, and its list is not cut into replies.
        hint = _hint(store) if store.fetches else None
    if store.fetches and len(entries) == _FIRST_REPLY:
        after = entries[-1].key
        if hint is not None and layout.manifest(hint.version) > after:
            entries += _manifests(store, layout.manifest(max(hint.version - 1, 1)))
        if entries[-1].key == after:
            # Nothing is where `meta/latest` says.
            entries += _manifests(store, after)
    if not entries:
        return None
    last = entries[-1]
    number = layout.manifest_version(last.key.rpartition("/")[2])
    assert number is not None
    _seen[store] = number
    manifest = None
    if hint is not None and last.etag and (hint.version, hint.etag) == (number, last.etag):
        manifest = hint.head
        if len(manifest) < last.size:
            rest = store.get(last.key, len(manifest), last.size - len(manifest))
            manifest += rest
    return Listed(number, last.size == len(REMOVED), manifest)


def hinted_number(store: Store) -> int:
    """Return the version that `meta/latest` names; 0 if it is missing or damaged."""
    try:
        return Latest.decode(store.get(layout.LATEST, 0, MOST_BYTES)).version
    except (KeyNotFound, CorruptError, FormatError, LimitError):
        return 0


def numbers(store: Store) -> list[int]:
    """Return the numbers of all versions, ascending, without those that were removed.

    The last one is in any case that of the newest manifest.
    """
    found = manifests(store.entries(layout.MANIFESTS))
    last = max(found, default=None)
    return [n for n, entry in found.items() if entry.size != len(REMOVED) or n == last]


def manifests(entries: Iterable[ListedValue]) -> dict[int, ListedValue]:
    """Return the manifests and tombstones in a list, by their numbers, ascending."""
    found = {
        layout.manifest_version(one.key.removeprefix(f"{layout.MANIFESTS}/")): one
        for one in entries
    }
    return {number: one for number, one in found.items() if number is not None}


def put_latest(store: Store, version: int, uuid: str, etag: str, manifest: bytes) -> None:
    """Say which version is the newest, because it was just published; nobody waits for it."""
    _seen[store] = version
    store.later(layout.LATEST, Latest.of(version, uuid, etag, manifest).encode())


def _manifests(store: Store, after: str) -> Iterator[ListedValue]:
    for entry in store.entries(layout.MANIFESTS, after):
        if layout.manifest_version(entry.key.rpartition("/")[2]) is not None:
            yield entry


def _hint(store: Store) -> Latest | None:
    """Return what `meta/latest` says; None if it is missing or damaged."""
    with suppress(KeyNotFound, BlzError):
        return Latest.decode(store.get(layout.LATEST, 0, MOST_BYTES))
    return None
