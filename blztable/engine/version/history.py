"""History: list the versions of a table with time, operation and size, and compare two of them.

Reads only manifests; for the list, only their heads. Damaged versions are listed too, because a
user looks here for an intact version to open. Finds versions by their tags and by times, too.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from blztable.engine.version import mirrors, versions
from blztable.engine.version.versions import DAMAGED, Version
from blztable.errors import StorageError, TableNotFoundError
from blztable.format.layout import Path
from blztable.format.manifest import Head
from blztable.report import VersionDiff, VersionInfo
from blztable.storage.store import KeyNotFound, Store


def list_versions(store: Store) -> list[VersionInfo]:
    """Return all versions, ascending; an empty list if there is no table."""
    infos: list[VersionInfo] = []
    known: Mapping[str, int] = {}
    mirrored = mirrors.mirrored_number(store)
    numbers = versions.numbers(store)
    for number in numbers:
        try:
            head = versions.read(store, number).head
        except KeyNotFound:
            continue  # Removed after `numbers` listed it.
        except (*DAMAGED, StorageError) as error:
            infos.append(VersionInfo(number, damage=str(error)))
        else:
            info = VersionInfo(
                number,
                _time(head),
                head.operation,
                head.rows,
                sum(len(path) == 1 for path in head.columns.paths),
                len(head.row_groups),
                head.parent,
                tuple(name for name, version in head.commit_ids if version == number),
                head.writer,
                deleted_rows=head.deleted_rows,
            )
            infos.append(info)
            known = head.tags
    if mirrored > max(numbers, default=0):
        infos.append(VersionInfo(mirrored, damage=versions.why_missing(store, mirrored)))
    names = {number: tuple(tag for tag in known if known[tag] == number) for number in numbers}
    return [replace(info, tags=names.get(info.number, ())) for info in infos]


def tags(store: Store) -> Mapping[str, int]:
    """Return the tags of a table."""
    newest, pinned = versions.pin(store)
    with pinned:
        return newest.head.tags


def tagged(store: Store, tag: str) -> int:
    """Return the version that has a tag; TableNotFoundError if there is none."""
    known = tags(store)
    if tag not in known:
        names = ", ".join(map(repr, known)) or "none"
        raise TableNotFoundError(f"{store.name} has no tag {tag!r:.300}; its tags: {names:.500}")
    return known[tag]


def number_at(store: Store, time: str) -> int:
    """Return the version that was the newest at a time, which is written as heads write it.

    Raises
    ------
    TableNotFoundError
        There is no table, or the version of that time is not kept any more.
    CorruptError
        The manifest is damaged, without which nobody knows the times.
    """
    numbers = versions.checked_numbers(store)
    if not numbers:
        raise versions.no_table(store)
    # When versions were made, also those that are gone: newer heads know.
    made: dict[int, str] = {}
    after = oldest = ""
    for number in reversed(numbers):
        try:
            head = versions.load(store, number).head
        except KeyNotFound:
            continue  # Removed after it was listed.
        except DAMAGED:
            if number not in made:
                raise
        else:
            made |= {one: at for at, one in head.history}
            made[number] = head.time
        oldest = f"version {number}, of {_shown(made[number])}"
        if made[number] > time:
            after = oldest
            continue
        for gone in range(number + 1, numbers[-1] + 1):
            if gone in numbers or made.get(gone, "") > time:
                break
            raise TableNotFoundError(
                f"{store.name} no longer has version {gone}, which may be that of {_shown(time)}; "
                f"kept are {oldest}, and {after}"
            )
        return number
    raise TableNotFoundError(
        f"{store.name} has no version of {_shown(time)}: the oldest one is {oldest}"
    )


def _shown(time: str) -> str:
    return time.removesuffix("+00:00") + "Z"


def _time(head: Head) -> datetime | None:
    with suppress(ValueError):
        return datetime.fromisoformat(head.time)
    return None


def difference(old: Version, new: Version) -> VersionDiff:
    """Return what one version has and the other has not, by the names of their parts.

    A column keeps its path when it gets another name or type, and a row group its parts until it is
    written again.
    """
    before, after = dict(_columns(old)), dict(_columns(new))
    both = before.keys() & after.keys()
    groups, others = Counter(_groups(old, new)), Counter(_groups(new, old))
    gone, come = groups - others, others - groups
    names = {*old.head.attributes, *new.head.attributes}
    return VersionDiff(
        old=old.head.version,
        new=new.head.version,
        rows_old=old.head.rows,
        rows_new=new.head.rows,
        columns_added=tuple(after[path][0] for path in after if path not in both),
        columns_removed=tuple(before[path][0] for path in before if path not in both),
        columns_renamed=tuple(
            (before[path][0], after[path][0])
            for path in after
            if path in both and before[path][0] != after[path][0]
        ),
        columns_retyped=tuple(
            (after[path][0], before[path][1], after[path][1])
            for path in after
            if path in both and before[path][1] != after[path][1]
        ),
        row_groups_added=come.total(),
        row_groups_removed=gone.total(),
        row_groups_kept=(groups & others).total(),
        rows_added=sum(rows * count for (rows, *_), count in come.items()),
        rows_removed=sum(rows * count for (rows, *_), count in gone.items()),
        attributes_changed=tuple(
            name
            for name in sorted(names)
            if old.head.attributes.get(name) != new.head.attributes.get(name)
        ),
    )


def _columns(version: Version) -> Iterator[tuple[Path, tuple[str, str]]]:
    """Yield the path of each column, with its name and its type as text."""
    roots = (path for path in version.paths if len(path) == 1)
    for path, field in zip(roots, version.schema, strict=True):
        yield path, (field.name, f"{field.type}{'' if field.nullable else ' not null'}")


def _groups(version: Version, other: Version) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of each row group, which of them are deleted, and its parts.

    The parts are those of the columns that both versions have.
    """
    shared = {*version.paths} & {*other.paths}
    lines = [
        (path, version.parts(line)) for line, path in enumerate(version.paths) if path in shared
    ]
    head, bundles = version.head, version.head.bundles
    for group, (rows, deleted) in enumerate(zip(head.row_groups, head.all_deleted, strict=True)):
        if not lines:
            # Nothing says that a row group is in the other version, too.
            yield rows, version.head.version
            continue
        yield (
            rows,
            deleted,
            *((parts.key(group, bundles), parts.at and parts.at[group]) for _, parts in lines),
        )
