"""Vacuum: remove expired versions and all files that no version names.

No manifest names a file in flight either, so vacuum waits until no writer is active (`in_flight`).
It finds all files to remove before it removes the first one. After a loss of power, the next vacuum
removes the rest.
"""

import logging
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from operator import index
from typing import Any

from blztable import tuning
from blztable.engine.version import in_flight, retention, unlocked_vacuum, versions
from blztable.engine.version.named_files import named
from blztable.engine.version.new_files import flush_whole
from blztable.engine.version.versions import DAMAGED, Version, mirrored_number
from blztable.errors import BusyError, CorruptError
from blztable.format import layout
from blztable.format.jsontext import MAX_DEPTH
from blztable.format.layout import Path
from blztable.report import Vacuumed
from blztable.storage.store import KeyNotFound, Store

_log = logging.getLogger(__name__)


def vacuum(
    store: Store,
    *,
    keep: int | None = None,
    older_than: float | None = None,
    wait: float | None = None,
) -> Vacuumed:
    """Remove expired versions and orphans; None stands for the table's own property.

    A table in one file keeps no byte of what was removed, now or earlier.

    Raises
    ------
    BusyError
        A writer was active for all of `wait` seconds; nothing was removed.
    TableNotFoundError
        There is no table, or only an unfinished one, which the next writer removes.
    """
    _check(keep, older_than)
    versions.settle(store)
    if not store.locks:
        # A lock that was granted would not say that nobody writes or reads.
        return unlocked_vacuum.vacuum(store, keep=keep, older_than=older_than)
    wait = tuning.current.lock_seconds if wait is None else wait
    if not versions.can_hold_table(store) or versions.newest_number(store) is None:
        raise versions.no_table(store)
    with ExitStack() as held:
        held.enter_context(_no_writer(store, wait))
        # The lock files are empty, and some tools leave empty files out of a copy.
        store.prepare(*layout.PREPARED, durable=False)
        held.enter_context(store.lock(layout.LOCK, shared=False, timeout=wait))
        mirrored = mirrored_number(store)
        if mirrored > versions.numbers(store)[-1]:
            # The manifest of this version is missing, so its files are unknown.
            return Vacuumed(damaged=(mirrored,))
        newest, expired = _expired(store, keep, older_than)
        free = set(retention.unpinned(store, expired))
        kept = [number for number in versions.numbers(store) if number not in free]
        keys, columns, damaged = _named(store, kept)
        files, directories = _orphans(store, keys, columns)
        if damaged:
            pinned = tuple(number for number in expired if number not in free)
            return Vacuumed(pinned=pinned, damaged=tuple(damaged))
        if newest is not None and not newest.head.durable and (free or files):
            # It may become the only version, so it must survive a loss of power.
            store.prepare(*layout.PREPARED)
            flush_whole(newest)
        elif free:
            # Its writer may have been killed before it flushed the name.
            store.flush_names(layout.MANIFESTS)
        removed = retention.remove_manifests(store, sorted(free))
        # A reader may have pinned a version after `unpinned` looked.
        files, directories = _without_named(store, files, directories, free.difference(removed))
        mirrors = layout.MIRRORS if newest is None else ()
        retention.remove_files(store, [*files, *directories, *mirrors], is_durable=True)
        store.reclaim()
        pinned = tuple(sorted(set(expired).difference(removed)))
        _log.info(
            "%s: vacuum removed versions %s, and %d files of %d bytes; versions %s are in use",
            store.name,
            removed,
            len(files),
            sum(files.values()),
            list(pinned),
        )
        return Vacuumed(tuple(removed), len(files), sum(files.values()), pinned)


def _check(keep: int | None, older_than: float | None) -> None:
    if keep is not None and index(keep) < 1:
        raise ValueError(f"keep={keep!r}: pass at least 1; the newest version always stays")
    if older_than is not None and not older_than >= 0:
        raise ValueError(f"older_than={older_than!r}: pass 0 or a positive number of seconds")


def _no_writer(store: Store, wait: float) -> ExitStack:
    try:
        return in_flight.alone(store, wait)
    except BusyError as error:
        raise BusyError(
            f"{store.name}: a writer or a transaction was active for all {wait:g} seconds; nothing "
            "was removed; try again when it has ended, or pass a longer wait"
        ) from error


def _expired(
    store: Store, keep: int | None, older_than: float | None
) -> tuple[Version | None, list[int]]:
    """Return the newest version and the expired ones; (None, []) if the newest is damaged.

    Nothing is kept of a table that was dropped.
    """
    numbers = versions.numbers(store)
    chosen: dict[str, Any] = {"versions": keep, "seconds": older_than}
    try:
        newest = versions.read(store, numbers[-1])
        limits = replace(
            retention.RetentionLimits.of(newest.head),
            **{name: value for name, value in chosen.items() if value is not None},
        )
        return newest, retention.all_expired(newest, numbers, limits)
    except KeyNotFound:
        return None, numbers[:-1]
    except DAMAGED:
        return None, []


def _named(store: Store, kept: Iterable[int]) -> tuple[set[str], set[Path], list[int]]:
    """Return the keys that these versions name, their columns, and the damaged versions."""
    keys: set[str] = set()
    columns: set[Path] = {layout.SHARED}
    damaged = []
    seen: set[int] = set()
    for number in kept:
        try:
            version = versions.read(store, number)
            keys.update(named(version, seen))
            columns.update(version.paths)
        except KeyNotFound:
            continue  # A version that was removed names nothing.
        except DAMAGED:
            damaged.append(number)
    return keys, columns, damaged


def _orphans(
    store: Store, keys: Collection[str], columns: Collection[Path]
) -> tuple[dict[str, int], list[str]]:
    """Return unnamed files with their sizes, and unnamed column directories, children first.

    Temporary files of killed writers are removed at once: no version can name them.
    """
    store.sweep(layout.META)
    store.sweep(layout.MANIFESTS)
    leaves = filter(None, map(layout.leaf_number, _names(store, layout.LEAVES) or ()))
    unnamed = list(map(layout.leaf, sorted(leaves)))
    directories = []
    for path, names in _directories(store):
        numbers = filter(None, map(layout.part_number, names))
        unnamed += [layout.part(path, number) for number in sorted(numbers)]
        if path not in columns:
            directories.append(layout.column(path))
    files: dict[str, int] = {}
    for key in unnamed:
        if key not in keys:
            # Otherwise it is not a file: a link or a directory.
            with suppress(CorruptError, KeyNotFound), store.open(key) as reader:
                files[key] = reader.size
    return files, directories


def _without_named(
    store: Store, files: dict[str, int], directories: list[str], numbers: Iterable[int]
) -> tuple[dict[str, int], list[str]]:
    """Return the files and directories that the versions in `numbers` do not name."""
    keys, columns, damaged = _named(store, numbers)
    if damaged:
        return {}, []
    kept = set(map(layout.column, columns))
    unnamed = {key: size for key, size in files.items() if key not in keys}
    return unnamed, [key for key in directories if key not in kept]


def _directories(store: Store) -> Iterator[tuple[Path, list[str]]]:
    """Yield the path of each directory of files and the names in it, children first."""
    for number in map(layout.column_id, _names(store, layout.DATA) or ()):
        if number is not None:
            yield from _below(store, (number,))
    yield layout.SHARED, _names(store, layout.BUNDLES) or []


def _below(store: Store, path: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield a column directory after the directories of its children."""
    names = _names(store, layout.column(path))
    if names is None:
        return
    # A column cannot be nested deeper.
    if len(path) < MAX_DEPTH:
        for number in map(layout.column_id, names):
            if number is not None:
                yield from _below(store, (*path, number))
    yield path, names


def _names(store: Store, prefix: str) -> list[str] | None:
    """Sweep a directory and return its names; None if it is a link or a file."""
    try:
        store.sweep(prefix)
        return store.list_names(prefix)
    except CorruptError:
        return None
