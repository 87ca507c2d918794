"""Retention: remove expired versions, and the files that only they name.

The manifest of a version is removed before its files. A pinned version is kept. Called under the
writers' lock. An expired version is compared with the next kept version first: usually that one
names all of its files, and no other manifest has to be read. Still, that costs as much as a small
append, so a quick run of appends removes its expired versions together (`is_due`).
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from blztable.engine.version import versions
from blztable.engine.version.versions import DAMAGED, Version
from blztable.errors import BusyError
from blztable.format import layout
from blztable.format.jsontext import Json
from blztable.format.layout import Path
from blztable.format.line import file_numbers
from blztable.format.manifest import Head
from blztable.storage.store import KeyNotFound, Lock, Store

_log = logging.getLogger(__name__)

KEEP_VERSIONS = 10
KEEP_SECONDS = 3600
# A quick run of appends removes its expired versions when there are this many, or when one of them
# was replaced this many seconds ago.
RUN_VERSIONS = 8
RUN_SECONDS = 60
# Operations that the run consists of. The last one, an append, does not leave many bytes behind.
_RUN = {"append", "merge"}
# About thirty years. A larger value could overflow a date.
_MAX_SECONDS = 10**9


def is_due(newest: Head, before: Head | None) -> bool:
    """False if an append may leave expired versions to a later commit; `before` is its base.

    This looks at no file: `history` has the versions that existed when the base was read.
    """
    if before is None or newest.operation != "append" or before.operation not in _RUN:
        return True
    numbers = [*(number for _, number in newest.history), newest.version]
    expired = expired_versions(newest, numbers, *limits(newest.properties))
    if len(expired) >= RUN_VERSIONS:
        return True
    recent = _seconds_ago(RUN_SECONDS)
    replaced = _replaced(newest, numbers)
    return any(replaced[number] < recent for number in expired)


def retire(newest: Version, *, is_durable: bool) -> None:
    """Remove the expired versions that are not pinned, and the files that only they name."""
    store = newest.store
    present = versions.numbers(store)
    expired = expired_versions(newest.head, present, *limits(newest.head.properties))
    # The last durable version may have expired after `removes_last_durable` was checked.
    free = unpinned(store, _without(expired, [newest.head.lasting]))
    if not free:
        return
    try:
        if not is_durable and _any_durable(store, free, newest.head.lasting):
            # A newer durable version replaces them. The writer that published it may have been
            # killed before it flushed the name.
            store.flush_names(layout.MANIFESTS)
        kept = _Kept(newest, _without(present, free))
        freed = _freed(store, free, kept)
        removed = remove_manifests(store, free)
        # A reader may have pinned a version after `unpinned` looked.
        spared = _without(free, removed)
        kept.add(spared)
        _spare(freed, map(kept.version, spared))
    except (*DAMAGED, KeyNotFound):
        return  # A damaged manifest may name any file, so no file can be removed.
    files = [layout.part(path, k) for path, numbers in freed.items() for k in sorted(numbers)]
    columns = kept.columns() if freed else set()
    emptied = [layout.column(path) for path in freed if path not in columns]
    remove_files(store, [*files, *emptied], is_durable=is_durable)
    _log.info("%s: removed versions %s and %d files of theirs", store.name, removed, len(files))


def limits(properties: Mapping[str, Json]) -> tuple[int, float]:
    """Return the number of versions that a table keeps, and the seconds it keeps them for."""
    return (
        _limit(properties.get("keep_versions"), KEEP_VERSIONS),
        _limit(properties.get("keep_seconds"), KEEP_SECONDS),
    )


def removes_last_durable(head: Head, numbers: Sequence[int]) -> bool:
    """True if a commit with this head removes the last durable one of these versions.

    Such a commit must be flushed itself, or a loss of power takes acknowledged rows.
    """
    if not head.lasting:
        return False
    expired = expired_versions(head, numbers, *limits(head.properties))
    return head.lasting not in numbers or head.lasting in expired


def expired_versions(
    newest: Head, numbers: Sequence[int], keep_versions: int, keep_seconds: float
) -> list[int]:
    """Return the versions in `numbers` that exceed the number or the age to keep."""
    limit = _seconds_ago(keep_seconds)
    replaced = _replaced(newest, numbers)
    too_many = max(0, len(replaced) + 1 - keep_versions)
    return [
        number
        for index, (number, time) in enumerate(replaced.items())
        if index < too_many or time < limit
    ]


def _replaced(newest: Head, numbers: Sequence[int]) -> dict[int, str]:
    """Return the time when the next version replaced each older version in `numbers`."""
    times = {number: time for time, number in newest.history}
    times[newest.version] = newest.time
    older = [number for number in numbers if number < newest.version]
    # The time is unknown if the next version is damaged; it was no later than now.
    return {
        number: times.get(following, newest.time)
        for number, following in pairwise([*older, newest.version])
    }


def _seconds_ago(seconds: float) -> str:
    """Return a time as heads have it."""
    age = timedelta(seconds=min(seconds, _MAX_SECONDS))
    return (datetime.now(UTC) - age).isoformat(timespec="microseconds")


def unpinned(store: Store, numbers: Iterable[int]) -> list[int]:
    """Return the versions that nobody has pinned at this moment."""
    free = []
    for number in numbers:
        with suppress(BusyError, KeyNotFound), _alone(store, number):
            free.append(number)
    return free


def remove_manifests(store: Store, numbers: Iterable[int]) -> list[int]:
    """Remove the manifests of versions that nobody has pinned; return the versions removed.

    Versions are locked one at a time, because each lock holds a descriptor. A version without a
    manifest cannot be pinned, so its lock is not needed while its files are removed.
    """
    removed = []
    for number in numbers:
        with suppress(BusyError, KeyNotFound), _alone(store, number):
            store.delete([layout.manifest(number)])
            removed.append(number)
    return removed


def remove_files(store: Store, keys: Sequence[str], *, is_durable: bool) -> None:
    """Remove the files and emptied directories that only removed manifests named."""
    if keys and is_durable:
        # Flush before any file is removed: a manifest that a power loss restores needs its files.
        store.flush_names(layout.MANIFESTS)
    store.delete(keys)


def _any_durable(store: Store, numbers: Iterable[int], lasting: int) -> bool:
    """True if any of these versions is durable; versions after `lasting` are not."""
    return any(versions.read(store, number).head.durable for number in numbers if number <= lasting)


def _alone(store: Store, number: int) -> Lock:
    """Lock a version exclusively; BusyError if it is pinned."""
    return store.lock(layout.manifest(number), shared=False, timeout=0)


class _Kept:
    """The kept versions. Each is read at its first use."""

    def __init__(self, newest: Version, numbers: Sequence[int]) -> None:
        self._store = newest.store
        self._numbers = numbers
        self._read = {newest.head.version: newest}

    def add(self, numbers: Iterable[int]) -> None:
        self._numbers = sorted({*self._numbers, *numbers})

    def version(self, number: int) -> Version:
        if number not in self._read:
            self._read[number] = versions.read(self._store, number)
        return self._read[number]

    def after(self, number: int) -> Version:
        """Return the first kept version after this version."""
        return self.version(next(other for other in self._numbers if other > number))

    def all(self) -> list[Version]:
        return [self.version(number) for number in self._numbers]

    def columns(self) -> set[Path]:
        """Return the columns that any kept version has."""
        paths = {path for version in self.all() for path in version.head.columns.paths}
        # The directory of the bundles stays: a writer may have it open.
        return {*paths, layout.SHARED}


def _freed(store: Store, free: Sequence[int], kept: _Kept) -> dict[Path, set[int]]:
    """Return the files that only the versions in `free` name."""
    freed: dict[Path, set[int]] = {}
    following = {number: kept.after(number) for number in free}
    for number, after in following.items():
        try:
            version = versions.read(store, number)
            named = files_named(version, _changed(version, after))
        except (*DAMAGED, KeyNotFound):
            continue  # Vacuum removes the files of a damaged version.
        for path, numbers in named.items():
            freed.setdefault(path, set()).update(numbers)
    # Usually the next kept versions name all of these files.
    _spare(freed, {after.head.version: after for after in following.values()}.values())
    if any(freed.values()):
        # A restored version names files that the version before it did not.
        _spare(freed, kept.all())
    return {path: numbers for path, numbers in freed.items() if numbers}


def _spare(freed: dict[Path, set[int]], kept: Iterable[Version]) -> None:
    """Remove the files that these versions name from `freed`."""
    for version in kept:
        for path, numbers in files_named(version, freed).items():
            freed[path] -= numbers


def _changed(version: Version, other: Version) -> list[Path]:
    """Return the columns, and SHARED for bundles, that the other version lacks or has changed."""
    columns = other.head.columns
    lines = {path: columns.digest(index) for index, path in enumerate(columns.paths)}
    columns = version.head.columns
    changed = [
        path for index, path in enumerate(columns.paths) if lines.get(path) != columns.digest(index)
    ]
    has_others = version.head.bundle_numbers - other.head.bundle_numbers
    return [*changed, layout.SHARED] if has_others else changed


def files_named(version: Version, paths: Collection[Path]) -> dict[Path, set[int]]:
    """Return the files that a version names in these columns; it may lack some columns.

    The bundles are the files of the column SHARED.
    """
    indices = {path: index for index, path in enumerate(version.head.columns.paths)}
    present = {path: indices[path] for path in paths if path in indices}
    lines = version.lines() if present else []
    files = {
        path: file_numbers(lines[index], path, len(version.head.row_groups))
        for path, index in present.items()
    }
    if layout.SHARED in paths:
        files[layout.SHARED] = set(version.head.bundle_numbers)
    return files


def _without(numbers: Iterable[int], others: Iterable[int]) -> list[int]:
    """Return the numbers that are not among the others, in their order."""
    excluded = set(others)
    return [number for number in numbers if number not in excluded]


def _limit(value: object, default: int) -> int:
    return value if type(value) is int and value >= 0 else default
