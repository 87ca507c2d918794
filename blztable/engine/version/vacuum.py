"""Vacuum: versions past keeping go, and with them all that no version names.

A file in flight is named by no manifest either, so this waits until no writer is at work
(`flight`). What is removed was first found to be free, and all of it is found before anything is
removed. A loss of power in between leaves what the next one removes.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from operator import index

from blztable.engine.version import in_flight, retention, versions
from blztable.engine.version.durability import flush_whole
from blztable.engine.version.versions import DAMAGED, LOCK_SECONDS, Version
from blztable.errors import BusyError, CorruptError, TableNotFoundError
from blztable.format import layout
from blztable.format.jsontext import MAX_DEPTH
from blztable.format.layout import Path
from blztable.report import Vacuumed
from blztable.storage.store import KeyNotFound, Store


def vacuum(
    store: Store,
    *,
    keep_versions: int | None = None,
    keep_seconds: float | None = None,
    wait: float = LOCK_SECONDS,
) -> Vacuumed:
    """Remove versions past keeping, by the table's properties where not told, and all orphans.

    Raises
    ------
    BusyError
        A writer was at work for all of `wait` seconds; nothing was removed.
    TableNotFoundError
        There is no table, or only an unfinished one, which the next writer clears.
    """
    _check(keep_versions, keep_seconds)
    if not versions.is_place(store) or versions.newest_number(store) is None:
        raise TableNotFoundError(f"no table at {store.name}")
    # The files that are locked are empty, and some tools leave such files out of a copy.
    store.prepare(*layout.PREPARED, durable=False)
    with ExitStack() as held:
        held.enter_context(_no_writer(store, wait))
        held.enter_context(store.lock(layout.LOCK, shared=False, timeout=wait))
        told = versions.mirrored_number(store)
        if told > versions.numbers(store)[-1]:
            # Nobody knows which files the version named whose manifest is gone.
            return Vacuumed(damaged=(told,))
        newest, past = _past_keeping(store, keep_versions, keep_seconds)
        free = set(retention.unpinned(store, past))
        kept = [number for number in versions.numbers(store) if number not in free]
        named, damaged = _named(store, kept)
        files, directories = _orphans(store, named)
        if newest is None or damaged:
            pinned = tuple(number for number in past if number not in free)
            return Vacuumed(pinned=pinned, damaged=tuple(damaged))
        if not newest.head.durable and (free or files):
            # It may be all that is left, and so far might not survive a loss of power.
            store.prepare(*layout.PREPARED)
            flush_whole(newest)
        elif free:
            # Its writer may have been killed before it flushed the name.
            store.flush_names(layout.MANIFESTS)
        gone = retention.remove_manifests(store, sorted(free))
        # A reader may have pinned one of them since it was seen to be free.
        files, directories = _spared(store, files, directories, free.difference(gone))
        retention.remove_files(store, [*files, *directories], is_durable=True)
        pinned = tuple(sorted(set(past).difference(gone)))
        return Vacuumed(tuple(gone), len(files), sum(files.values()), pinned)


def _check(keep_versions: int | None, keep_seconds: float | None) -> None:
    if keep_versions is not None and index(keep_versions) < 1:
        raise ValueError(f"keep_versions={keep_versions!r}: the newest version always stays")
    if keep_seconds is not None and not keep_seconds >= 0:
        raise ValueError(f"keep_seconds={keep_seconds!r}: a time from 0 is expected")


def _no_writer(store: Store, wait: float) -> ExitStack:
    try:
        return in_flight.alone(store, wait)
    except BusyError as error:
        raise BusyError(
            f"{store.name}: a writer or a transaction is at work, and was for all {wait:g} seconds "
            "of the wait; nothing was removed; try again when it is done, or with a longer wait"
        ) from error


def _past_keeping(
    store: Store, keep_versions: int | None, keep_seconds: float | None
) -> tuple[Version | None, list[int]]:
    """The newest version and those past keeping; of a damaged one neither is known."""
    there = versions.numbers(store)
    try:
        newest = versions.read(store, there[-1])
    except DAMAGED:
        return None, []
    most, seconds = retention.limits(newest.head.properties)
    most = most if keep_versions is None else keep_versions
    seconds = seconds if keep_seconds is None else keep_seconds
    return newest, retention.past_keeping(newest.head, there, most, seconds)


def _named(store: Store, kept: Iterable[int]) -> tuple[retention.Files, list[int]]:
    """The columns and files that these versions name; the versions of which that is not known."""
    named: dict[Path, set[int]] = {}
    damaged = []
    for number in kept:
        try:
            version = versions.read(store, number)
            files = retention.files_named(version, version.head.columns.paths)
        except (*DAMAGED, KeyNotFound):
            damaged.append(number)
            continue
        for path, numbers in files.items():
            named.setdefault(path, set()).update(numbers)
    return named, damaged


def _orphans(store: Store, named: retention.Files) -> tuple[dict[str, int], list[str]]:
    """Files that nobody names, each with its size, and columns' directories, those below first.

    What killed calls left half done goes on the way: no version could name it.
    """
    store.sweep(layout.META)
    store.sweep(layout.MANIFESTS)
    files: dict[str, int] = {}
    directories = []
    for path, names in _directories(store):
        numbers = set(filter(None, map(layout.part_number, names))) - named.get(path, set())
        for k in sorted(numbers):
            key = layout.part(path, k)
            try:
                with store.open(key) as reader:
                    files[key] = reader.size
            except (CorruptError, KeyNotFound):
                continue  # No file of ours: a link, or a directory.
        if path not in named:
            directories.append(layout.column(path))
    return files, directories


def _spared(
    store: Store, files: dict[str, int], directories: list[str], late: Iterable[int]
) -> tuple[dict[str, int], list[str]]:
    """Those of the files and directories that these versions do not name."""
    named, damaged = _named(store, late)
    if damaged:
        return {}, []
    keys = {layout.part(path, k) for path, numbers in named.items() for k in numbers}
    keys.update(map(layout.column, named))
    left = {key: size for key, size in files.items() if key not in keys}
    return left, [key for key in directories if key not in keys]


def _directories(store: Store, path: Path = ()) -> Iterator[tuple[Path, list[str]]]:
    """The directories of columns and the names in each, those below first."""
    prefix = layout.column(path)
    try:
        store.sweep(prefix)
        names = store.list_names(prefix)
    except CorruptError:
        return  # No directory: a link, or a file.
    # Deeper than that no column can be.
    if len(path) < MAX_DEPTH:
        for number in map(layout.column_id, names):
            if number is not None:
                yield from _directories(store, (*path, number))
    if path:
        yield path, names
