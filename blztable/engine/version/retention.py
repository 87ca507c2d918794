"""Retention: remove expired versions, and the files that only they name.

The manifest of a version is removed before its files. A pinned version is kept, and one with a
tag. Called under the writers' lock. An expired version is compared with the next kept version
first: usually that one names all of its files, and no other manifest has to be read. Still, that
costs as much as a small append, so a quick run of appends removes its expired versions together
(`is_due`).

Old versions with tags may be many, so they are not all read. A version names no file whose number
it has not reached (`next_file`), and neither does any version before it. So a file that goes is
looked for in the kept versions before it, the newest first, down to one that is older than the
file. Only a restore lets a version name a file that the version before lacks, so those after it are
read too; they are few, because the oldest versions expire. Leaves that two versions share are not
read, and no leaf that is older than all files that go.
A budget in bytes needs the sizes of the files that older versions name; they are in the manifests.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Self

from blztable import tuning
from blztable.engine.version import versions
from blztable.engine.version.named_files import Files, named, only
from blztable.engine.version.versions import DAMAGED, Version
from blztable.errors import BusyError
from blztable.format import layout
from blztable.format.layout import Path
from blztable.format.manifest import Head
from blztable.storage.store import KeyNotFound, Lock, Store

_log = logging.getLogger(__name__)

# Operations that the run consists of. The last one, an append, does not leave many bytes behind.
_RUN = {"append", "merge"}
# Properties, with "keep_" before each.
_NAMES = ("versions", "seconds", "bytes")
# About thirty years. A larger value could overflow a date.
_MAX_SECONDS = 10**9


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """What a table keeps: a number of versions, the newest included, an age, a size.

    Attributes
    ----------
    nbytes : int or None
        Bytes that the older versions may take beside the newest one; None for any number.
    """

    versions: int = field(default_factory=lambda: tuning.current.keep_versions)
    seconds: float = field(default_factory=lambda: tuning.current.keep_seconds)
    nbytes: int | None = None

    @classmethod
    def of(cls, head: Head, *, locks: bool = True) -> Self:
        """Return the limits that a head sets. Without locks readers need time, and may have it."""
        chosen = {name: head.properties.get(f"keep_{name}") for name in _NAMES}
        is_free = all(value is None for value in chosen.values())
        is_replaced = is_free and head.operation == "replace"
        usual = tuning.current
        most = usual.keep_replaced if is_replaced else usual.keep_versions
        return cls(
            _limit(chosen["versions"], most if locks else layout.MAX_VERSION),
            _limit(chosen["seconds"], usual.keep_seconds if locks else usual.unlocked_seconds),
            _limit(chosen["bytes"], None),
        )


def is_due(newest: Head, before: Head | None) -> bool:
    """False if an append may leave expired versions to a later commit; `before` is its base.

    This looks at no file: `history` has the versions that existed when the base was read.
    """
    if before is None or newest.operation != "append" or before.operation not in _RUN:
        return True
    limits = RetentionLimits.of(newest)
    if limits.nbytes is not None:
        return True
    numbers = [*(number for _, number in newest.history), newest.version]
    expired = expired_versions(newest, numbers, limits)
    if len(expired) >= tuning.current.run_versions:
        return True
    recent = _seconds_ago(tuning.current.run_seconds)
    replaced = _replaced(newest, numbers)
    return any(replaced[number] < recent for number in expired)


def retire(newest: Version, *, is_durable: bool, base: Version | None = None) -> None:
    """Remove the expired versions that are not pinned, and the files that only they name.

    `newest` is published, or about to be. `base` is a version that has been read.
    """
    store = newest.store
    present = sorted({*versions.numbers(store), newest.head.version})
    expired = all_expired(newest, present, RetentionLimits.of(newest.head))
    # The last durable version may have expired after `removes_last_durable` was checked.
    free = unpinned(store, _without(expired, [newest.head.lasting]))
    if not free:
        return
    try:
        if not is_durable and _any_durable(store, free, newest.head.lasting):
            # A newer durable version replaces them. The writer that published it may have been
            # killed before it flushed the name.
            store.flush_names(layout.MANIFESTS)
        kept = _Kept(newest, _without(present, free), base)
        freed, lacking = _freed(free, kept)
        removed = remove_manifests(store, free)
        # A reader may have pinned a version after `unpinned` looked.
        spared = _without(free, removed)
        kept.add(spared)
        _spare(freed, kept.versions(spared))
        emptied = _emptied(store, lacking, kept)
    except (*DAMAGED, KeyNotFound):
        return  # A damaged manifest may name any file, so no file can be removed.
    remove_files(store, [*freed, *emptied], is_durable=is_durable)
    _log.info("%s: removed versions %s and %d files of theirs", store.name, removed, len(freed))


def removes_last_durable(head: Head, numbers: Sequence[int]) -> bool:
    """True if a commit with this head removes the last durable one of these versions.

    Such a commit must be flushed itself, or a loss of power takes acknowledged rows.
    """
    if not head.lasting:
        return False
    expired = expired_versions(head, numbers, RetentionLimits.of(head))
    return head.lasting not in numbers or head.lasting in expired


def all_expired(newest: Version, numbers: Sequence[int], limits: RetentionLimits) -> list[int]:
    """Return the versions in `numbers` that exceed any limit, also that in bytes."""
    expired = expired_versions(newest.head, numbers, limits)
    if limits.nbytes is None:
        return expired
    kept = [*expired, *newest.head.tags.values(), newest.head.version]
    return sorted({*expired, *_too_large(newest, _without(numbers, kept), limits.nbytes)})


def expired_versions(newest: Head, numbers: Sequence[int], limits: RetentionLimits) -> list[int]:
    """Return the versions in `numbers` that exceed the number or the age to keep.

    Versions with a tag are kept, and do not count.
    """
    limit = _seconds_ago(limits.seconds)
    tagged = set(newest.tags.values())
    replaced = {n: at for n, at in _replaced(newest, numbers).items() if n not in tagged}
    too_many = max(0, len(replaced) + 1 - limits.versions)
    return [
        number
        for index, (number, time) in enumerate(replaced.items())
        if index < too_many or time < limit
    ]


def _too_large(newest: Version, older: Sequence[int], nbytes: int) -> list[int]:
    """Return those of the older versions that take more than so many bytes, the oldest first.

    A file counts for the newest of the versions that name it, and not at all if `newest` does, or a
    version with a tag.
    """
    store, after = newest.store, newest
    counted = CountedVersions()
    counted.add(newest)
    # The size of the manifest and of the files of each older version, by its index.
    sizes: dict[int, tuple[int, Files]] = {}
    for index in reversed(range(len(older))):
        with suppress(*DAMAGED, KeyNotFound):  # Otherwise its size is unknown.
            version = versions.read(store, older[index])
            sizes[index] = _manifest_bytes(version), counted.new(version, after)
            after = version
    uncounted = {key: file for _, files in sizes.values() for key, file in files.items()}
    for number in sorted(set(newest.head.tags.values()), reverse=True):
        if not uncounted:
            break
        with suppress(*DAMAGED, KeyNotFound):
            tagged = versions.read(store, number)
            if _are_newer(uncounted, tagged):
                break
            _spare(uncounted, [tagged])
    for index, (of_manifest, files) in sizes.items():
        nbytes -= of_manifest + sum(file.size for key, file in files.items() if key in uncounted)
        if nbytes < 0:
            return list(older[: index + 1])
    return []


class CountedVersions:
    """The files of some versions, each counted once."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def add(self, version: Version, counted: Version | None = None) -> int:
        """Add the files of a version; return the bytes of those that are new, and of the manifest.

        `counted` is a version that was added before. Leaves that are the same there are not read.
        """
        files = self.new(version, counted)
        return _manifest_bytes(version) + sum(file.size for file in files.values())

    def new(self, version: Version, counted: Version | None = None) -> Files:
        """Add the files of a version; return those that are new."""
        files = named(version) if counted is None else only(version, counted)
        new = {key: file for key, file in files.items() if key not in self._known}
        self._known.update(new)
        return new


def _manifest_bytes(version: Version) -> int:
    with version.store.open(version.key) as manifest:
        return manifest.size


def _replaced(newest: Head, numbers: Sequence[int]) -> dict[int, str]:
    """Return the time when the next version replaced each older version in `numbers`."""
    times = {number: time for time, number in newest.history}
    times[newest.version] = newest.time
    older = [number for number in numbers if number < newest.version]
    # The time of a version is unknown if it is damaged, or of a table that was dropped, or if there
    # are too many. It was no later than that of the next version whose time is known.
    known, replaced = newest.time, dict[int, str]()
    for number, following in reversed([*pairwise([*older, newest.version])]):
        known = times.get(following, known)
        replaced[number] = known
    return {number: replaced[number] for number in older}


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
    """The kept versions. Each version is read at its first use."""

    def __init__(self, newest: Version, numbers: Sequence[int], base: Version | None) -> None:
        self._store = newest.store
        self._numbers = numbers
        self._read = {version.head.version: version for version in (base, newest) if version}
        self.newest = newest

    def add(self, numbers: Iterable[int]) -> None:
        self._numbers = sorted({*self._numbers, *numbers})

    def version(self, number: int) -> Version:
        if number not in self._read:
            self._read[number] = versions.read(self._store, number)
        return self._read[number]

    def versions(self, numbers: Iterable[int]) -> Iterator[Version]:
        """Yield these versions, without those in whose place there is a tombstone."""
        for number in numbers:
            with suppress(KeyNotFound):
                self.version(number)
            if number in self._read:
                yield self._read[number]

    def after(self, number: int) -> Version:
        """Return the first kept version after this version."""
        return next(self.versions(other for other in self._numbers if other > number))

    def around(self, number: int) -> tuple[list[int], list[int]]:
        """Return the versions before this one, from the newest on, and those after it."""
        before = [other for other in reversed(self._numbers) if other < number]
        return before, [other for other in self._numbers if other > number]

    def columns(self) -> set[Path]:
        """Return the columns that any kept version has."""
        kept = self.versions(self._numbers)
        paths = {path for version in kept for path in version.paths}
        # The directory of the bundles stays: a writer may have it open.
        return {*paths, layout.SHARED}


def _emptied(store: Store, lacking: Collection[Path], kept: _Kept) -> list[str]:
    """Return the directories of the columns that no kept version has, among these.

    A directory claims all ids below it (`NewFiles.reserve_columns`). Columns in bundles may have
    none, so a directory stays if no kept column has one for the ids of all of them.
    """
    # Usually the newest version has all columns, and no other has to be read.
    if not {*lacking} - {*kept.newest.paths}:
        return []
    columns = kept.columns()
    # Children go before their parents.
    gone = sorted((path for path in lacking if path not in columns), key=len, reverse=True)
    if not gone:
        return []
    names = map(layout.column_id, store.list_names(layout.DATA))
    present = {number for number in names if number is not None}
    ids = {path[0] for path in columns if path != layout.SHARED}
    claimed = max(ids & present, default=-1)
    is_claimed = max(ids, default=-1) <= claimed
    return [
        layout.column(path)
        for path in gone
        if path[0] in present and (is_claimed or path[0] in ids or path[0] < claimed)
    ]


def _freed(free: Sequence[int], kept: _Kept) -> tuple[Files, set[Path]]:
    """Return the files that only the versions in `free` name.

    Return also the columns of these versions that the next kept version lacks.
    """
    freed: Files = {}
    lacking: set[Path] = set()
    following = {number: kept.after(number) for number in free}
    for number, after in following.items():
        try:
            version = kept.version(number)
            freed |= only(version, after)
        except (*DAMAGED, KeyNotFound):
            continue  # Vacuum removes the files of a damaged version.
        lacking.update(set(version.paths).difference(after.paths))
    # Usually the next kept versions name all of these files.
    _spare(freed, {after.head.version: after for after in following.values()}.values())
    older, newer = kept.around(max(free))
    for version in kept.versions(older):
        if not freed or _are_newer(freed, version):
            break
        _spare(freed, [version])
    for version in kept.versions(newer):
        if not freed:
            break
        _spare(freed, [version])
    return freed, lacking


def _are_newer(freed: Files, version: Version) -> bool:
    """True if all of these files are newer than the version, and so than all before it."""
    return min(file.number for file in freed.values()) >= version.head.next_file


def _spare(freed: Files, kept: Iterable[Version]) -> None:
    """Remove the files that these versions name from `freed`."""
    seen: set[int] = set()
    for version in kept:
        if freed:
            least = min(file.number for file in freed.values())
            for key in named(version, seen, least):
                freed.pop(key, None)


def _without(numbers: Iterable[int], others: Iterable[int]) -> list[int]:
    """Return the numbers that are not among the others, in their order."""
    excluded = set(others)
    return [number for number in numbers if number not in excluded]


def _limit(value: object, default: int | None) -> Any:
    return value if type(value) is int and value >= 0 else default
