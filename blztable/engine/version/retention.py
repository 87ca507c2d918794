"""Which versions are kept, and how one goes: its manifest first, then what no other names.

Called under the writers' lock. A version that anyone has pinned stays. What goes is compared with
the kept version after it first: most commits leave all files to the next, and nothing more is read.
"""

from collections.abc import Iterable, Mapping, Sequence
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

KEEP_VERSIONS = 10
KEEP_SECONDS = 3600
# Thirty years: more seconds than that overflow a date.
_MOST = 10**9

# Files by the column they are of.
Files = Mapping[Path, set[int]]


def retire(newest: Version, *, is_durable: bool) -> None:
    """Remove the versions that are past keeping and not pinned, and the files only they name."""
    store = newest.store
    there = versions.numbers(store)
    past = past_keeping(newest.head, there, *limits(newest.head.properties))
    # One that lasts has not been let go by this commit, but its time may have come since.
    free = unpinned(store, _without(past, [newest.head.lasting]))
    if not free:
        return
    try:
        if not is_durable and _any_durable(store, free, newest.head.lasting):
            # The version that keeps their promise may have been published by a writer that was
            # killed before it flushed the name.
            store.flush_names(layout.MANIFESTS)
        kept = _Kept(newest, _without(there, free))
        freed = _freed(store, free, kept)
        gone = remove_manifests(store, free)
        # A reader may have pinned one of them since it was seen to be free.
        spared = _without(free, gone)
        kept.add(spared)
        _spare(freed, map(kept.version, spared))
    except (*DAMAGED, KeyNotFound):
        return  # What a damaged manifest names is not known, so nothing is known to be free.
    files = [layout.part(path, k) for path, numbers in freed.items() for k in sorted(numbers)]
    emptied = [layout.column(path) for path in freed if not kept.has_column(path)]
    remove_files(store, [*files, *emptied], is_durable=is_durable)


def limits(properties: Mapping[str, Json]) -> tuple[int, float]:
    """How many versions a table keeps, and for how many seconds."""
    return (
        _limit(properties.get("keep_versions"), KEEP_VERSIONS),
        _limit(properties.get("keep_seconds"), KEEP_SECONDS),
    )


def lets_lasting_go(head: Head, numbers: Sequence[int]) -> bool:
    """True if a commit with this head removes the last durable version of these versions.

    Such a commit must be flushed itself, or a loss of power takes acknowledged rows.
    """
    if not head.lasting:
        return False
    past = past_keeping(head, numbers, *limits(head.properties))
    return head.lasting not in numbers or head.lasting in past


def past_keeping(
    newest: Head, there: Sequence[int], keep_versions: int, keep_seconds: float
) -> list[int]:
    """Those of the versions there that are too many or too old."""
    age = timedelta(seconds=min(keep_seconds, _MOST))
    limit = (datetime.now(UTC) - age).isoformat(timespec="microseconds")
    older = [number for number in there if number < newest.version]
    too_many = set(older[: max(0, len(older) + 1 - keep_versions)])
    # A version's time is up when it has been superseded for so long, not when it was made.
    times = {number: time for time, number in newest.history}
    times[newest.version] = newest.time
    following = dict(pairwise([*older, newest.version]))
    # Where that is not known, because a damaged version was replaced, it was no later than now.
    superseded = {number: times.get(following[number], newest.time) for number in older}
    return [number for number in older if number in too_many or superseded[number] < limit]


def unpinned(store: Store, numbers: Iterable[int]) -> list[int]:
    """Those of the versions that nobody has pinned at this moment."""
    free = []
    for number in numbers:
        with suppress(BusyError, KeyNotFound), _alone(store, number):
            free.append(number)
    return free


def remove_manifests(store: Store, numbers: Iterable[int]) -> list[int]:
    """Remove the manifests of versions that nobody has pinned; the versions that went.

    One is locked at a time: each lock holds a descriptor, and there may be more versions than a
    process may have descriptors. Nobody can pin a version whose manifest is gone, so its lock is
    not needed any more when its files go.
    """
    gone = []
    for number in numbers:
        with suppress(BusyError, KeyNotFound), _alone(store, number):
            store.delete([layout.manifest(number)])
            gone.append(number)
    return gone


def remove_files(store: Store, keys: Sequence[str], *, is_durable: bool) -> None:
    """Remove files, then emptied directories, that only removed manifests named."""
    if keys and is_durable:
        # Before any file, also for manifests removed earlier: one that comes back must find them.
        store.flush_names(layout.MANIFESTS)
    store.delete(keys)


def _any_durable(store: Store, numbers: Iterable[int], lasting: int) -> bool:
    """Whether any of these versions was flushed; versions behind `lasting` were not."""
    return any(versions.read(store, number).head.durable for number in numbers if number <= lasting)


def _alone(store: Store, number: int) -> Lock:
    """The exclusive lock of a version; BusyError while anyone has it pinned."""
    return store.lock(layout.manifest(number), shared=False, timeout=0)


class _Kept:
    """The versions that stay, each read when it is first asked for."""

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
        """The first one after this version."""
        return self.version(next(other for other in self._numbers if other > number))

    def all(self) -> list[Version]:
        return [self.version(number) for number in self._numbers]

    def has_column(self, path: Path) -> bool:
        return any(path in version.head.columns.paths for version in self.all())


def _freed(store: Store, going: Sequence[int], kept: _Kept) -> dict[Path, set[int]]:
    """The files that only the versions going name."""
    freed: dict[Path, set[int]] = {}
    for number in going:
        following = kept.after(number)
        try:
            version = versions.read(store, number)
            named = files_named(version, _changed(version, following))
        except (*DAMAGED, KeyNotFound):
            continue  # A damaged one that goes leaves its files to vacuum.
        shared = files_named(following, [*named])
        for path, numbers in named.items():
            if only := numbers - shared.get(path, set()):
                freed.setdefault(path, set()).update(only)
    if not freed:
        return {}
    # Any of them may name what the next one does not: a version restored has all its files again.
    _spare(freed, kept.all())
    return freed


def _spare(freed: dict[Path, set[int]], kept: Iterable[Version]) -> None:
    """Take the files that these versions name out of those freed."""
    for version in kept:
        for path, numbers in files_named(version, freed).items():
            freed[path] -= numbers


def _changed(version: Version, other: Version) -> list[Path]:
    """The columns that the other has not, or with another line: the same line names the same."""
    columns = other.head.columns
    lines = {path: columns.digest(index) for index, path in enumerate(columns.paths)}
    columns = version.head.columns
    return [
        path for index, path in enumerate(columns.paths) if lines.get(path) != columns.digest(index)
    ]


def files_named(version: Version, paths: Iterable[Path]) -> dict[Path, set[int]]:
    """The files that a version names in these columns, of which it may have none."""
    places = {path: index for index, path in enumerate(version.head.columns.paths)}
    wanted = {path: places[path] for path in paths if path in places}
    lines = version.lines() if wanted else []
    return {
        path: file_numbers(lines[index], path, len(version.head.row_groups))
        for path, index in wanted.items()
    }


def _without(numbers: Iterable[int], others: Iterable[int]) -> list[int]:
    """The numbers that are not among the others, in their order."""
    left_out = set(others)
    return [number for number in numbers if number not in left_out]


def _limit(value: object, default: int) -> int:
    return value if type(value) is int and value >= 0 else default
