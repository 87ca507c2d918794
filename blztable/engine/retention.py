"""Which versions are kept, and how one goes: its manifest first, then what no other names.

Called under the writers' lock. A version that anyone has pinned stays.
"""

from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from blztable.engine import versions
from blztable.engine.versions import Version
from blztable.errors import BlzError, BusyError
from blztable.format import layout
from blztable.format.manifest import NO_FILE
from blztable.storage.store import KeyNotFound, Store

KEEP_VERSIONS = 10
KEEP_SECONDS = 3600
# Thirty years: more seconds than that overflow a date.
_MOST = 10**9


def retire(newest: Version, *, is_durable: bool) -> None:
    """Remove the versions that are past keeping and not pinned, and the files only they name."""
    store = newest.store
    with ExitStack() as held:
        going: list[int] = []
        for number in _past_keeping(newest):
            try:
                lock = store.lock(layout.manifest(number), shared=False, timeout=0)
            except (BusyError, KeyNotFound):
                continue
            held.enter_context(lock)
            going.append(number)
        kept = [number for number in versions.numbers(store) if number not in going]
        staying = versions.readable(store, kept)
        if not going or len(staying) < len(kept):
            return  # What a damaged manifest names is not known, so nothing is known to be free.
        # A damaged one that goes leaves its files to vacuum.
        files = _files_of(versions.readable(store, going), staying)
        store.delete(list(map(layout.manifest, going)))
        if is_durable:
            # Before any of its files: a manifest that comes back must find them.
            store.flush_names(layout.MANIFESTS)
        store.delete(sorted(files))
        _remove_emptied(store, files)


def _past_keeping(newest: Version) -> list[int]:
    """Versions that are too many or too old, by the properties of the newest."""
    properties = newest.head.properties
    most = _number(properties.get("keep_versions"), KEEP_VERSIONS)
    seconds = _number(properties.get("keep_seconds"), KEEP_SECONDS)
    limit = (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="microseconds")
    older = [number for number in versions.numbers(newest.store) if number < newest.head.version]
    too_many = set(older[: max(0, len(older) + 1 - most)])
    # A version's time is up when it has been superseded for so long, not when it was made.
    times = {number: time for time, number in newest.head.history}
    times[newest.head.version] = newest.head.time
    following = dict(pairwise([*older, newest.head.version]))
    superseded = {number: times.get(following[number], "") for number in older}
    return [number for number in older if number in too_many or superseded[number] < limit]


def _files_of(going: list[Version], staying: list[Version]) -> set[str]:
    """The files that only the versions going name; a line that stays as it is names the same."""
    kept_lines = {
        (path, version.head.columns.digest(index))
        for version in staying
        for index, path in enumerate(version.head.columns.paths)
    }
    kept_files: dict[layout.Path, set[int]] = {}
    files: set[str] = set()
    for version in going:
        columns = version.head.columns
        for index, path in enumerate(columns.paths):
            if (path, columns.digest(index)) in kept_lines:
                continue
            if path not in kept_files:
                kept_files[path] = {k for other in staying for k in _numbers(other, path)}
            numbers = set(version.column(index).k) - kept_files[path] - {NO_FILE}
            files |= {layout.part(path, k) for k in numbers}
    return files


def _numbers(version: Version, path: layout.Path) -> tuple[int, ...]:
    paths = version.head.columns.paths
    return version.column(paths.index(path)).k if path in paths else ()


def _remove_emptied(store: Store, files: set[str]) -> None:
    """Directories of columns that are gone; one with a file left is passed over."""
    store.delete(sorted({file.rpartition("/")[0] for file in files}, reverse=True))


def _number(value: object, default: int) -> int:
    return min(value, _MOST) if type(value) is int and value >= 0 else default
