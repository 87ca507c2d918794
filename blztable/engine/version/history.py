"""History: list the versions of a table with time, operation and size, and compare two of them.

Reads only manifests; for the list, only their heads. Damaged versions are listed too, because a
user looks here for an intact version to open. Finds versions by their tags and by times, too.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from blztable.engine.version import versions
from blztable.engine.version.versions import DAMAGED, Version, mirrored_number
from blztable.errors import StorageError, TableNotFoundError
from blztable.format.layout import Path
from blztable.format.manifest import Head
from blztable.report import VersionDiff, VersionInfo
from blztable.storage.store import KeyNotFound, Store

# What a head says of the rows that its commit changed.
DID = "rows_appended", "rows_updated", "rows_deleted"


def list_versions(store: Store) -> list[VersionInfo]:
    """Return all versions, ascending; an empty list if there is no table."""
    infos: list[VersionInfo] = []
    heads: dict[int, Head] = {}
    mirrored = mirrored_number(store)
    numbers = versions.numbers(store)
    for number in versions.each(store, numbers):
        try:
            version = versions.read(store, number)
            row_groups, deleted_rows = version.group_count, version.deleted_rows
        except KeyNotFound:
            continue  # Removed after `numbers` listed it.
        except (*DAMAGED, StorageError) as error:
            infos.append(VersionInfo(number, damage=str(error)))
        else:
            head = version.head
            info = VersionInfo(
                number,
                _time(head),
                head.operation,
                head.rows,
                len(version.schema),
                row_groups,
                head.parent,
                tuple(name for name, made in head.commit_ids if made == number),
                head.writer,
                deleted_rows=deleted_rows,
                rows_appended=done_of(head, DID[0]),
                rows_updated=done_of(head, DID[1]),
                rows_deleted=done_of(head, DID[2]),
                seconds=head.did.get("seconds"),
            )
            infos.append(info)
            heads[number] = head
    if mirrored > max(numbers, default=0):
        infos.append(VersionInfo(mirrored, damage=versions.why_missing(store, mirrored)))
    if not heads:
        return infos
    newest = heads[max(heads)]
    known = newest.tags
    names = {number: tuple(tag for tag in known if known[tag] == number) for number in numbers}
    # In a store, versions of a table that was dropped are there until a vacuum.
    others = {number for number, head in heads.items() if head.uuid != newest.uuid}
    return [
        replace(info, tags=names.get(info.number, ()))
        for info in infos
        if store.locks or info.number not in others
    ]


def done_of(head: Head, name: str) -> int | None:
    """Return one of the numbers of rows that a commit changed; None if its head does not say it."""
    number = head.did.get(name)
    return None if number is None else int(number)


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
    for number in versions.each(store, reversed(numbers)):
        try:
            head = versions.load(store, number).head
        except KeyNotFound:
            continue  # Removed after it was listed.
        except DAMAGED:
            if number not in made:
                raise
        else:
            made |= {number: at for at, number in head.history}
            made[number] = head.time
        oldest = f"version {number}, of {_text(made[number])}"
        if made[number] > time:
            after = oldest
            continue
        for gone in range(number + 1, numbers[-1] + 1):
            if gone in numbers or made.get(gone, "") > time:
                break
            raise TableNotFoundError(
                f"{store.name} no longer has version {gone}, which may be that of {_text(time)}; "
                f"kept are {oldest}, and {after}"
            )
        return number
    raise TableNotFoundError(
        f"{store.name} has no version of {_text(time)}: the oldest one is {oldest}"
    )


def _text(time: str) -> str:
    return time.removesuffix("+00:00") + "Z"


def _time(head: Head) -> datetime | None:
    with suppress(ValueError):
        return datetime.fromisoformat(head.time)
    return None


def difference(old: Version, new: Version) -> VersionDiff:
    """Return what one version has and the other has not, by the files of their parts.

    A column keeps its path when it gets another name or type, and a row group its files until it is
    written again.
    """
    before, after = dict(_columns(old)), dict(_columns(new))
    both = before.keys() & after.keys()
    groups, others = Counter(_groups(old, new)), Counter(_groups(new, old))
    gone, come = groups - others, others - groups
    names, done = {*old.head.attributes, *new.head.attributes}, _done_between(old, new)
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
        rows_appended=done.get(DID[0]),
        rows_updated=done.get(DID[1]),
        rows_deleted=done.get(DID[2]),
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


def _groups(version: Version, other: Version) -> Iterator[tuple[object, ...]]:
    """Yield what tells each row group: its deleted rows, and its files.

    The files are those of the columns that both versions have.
    """
    shared = {*version.paths} & {*other.paths}
    lines = sorted((path, line) for line, path in enumerate(version.paths) if path in shared)
    if not lines:
        # Nothing says that a row group is in the other version, too.
        yield from ((version.head.version, group) for group in range(version.group_count))
        return
    identities = version.identities([line for _, line in lines])
    for identity, deleted in zip(identities, version.all_deleted, strict=True):
        yield identity.tobytes(), deleted


def _done_between(old: Version, new: Version) -> dict[str, int]:
    """Return what the commits between two versions did to rows; empty if one of them is gone.

    What was appended after a newer version counts as deleted on the way back to an older one.
    """
    ends = sorted((old.head.version, new.head.version))
    total = Counter[str]()
    for number in versions.each(new.store, range(ends[0] + 1, ends[1] + 1)):
        try:
            total.update(versions.read(new.store, number).head.did)
        except (*DAMAGED, KeyNotFound):
            return {}
    appended, updated, deleted = (int(total[name]) for name in DID)
    if old.head.version > new.head.version:
        appended, deleted = deleted, appended
    return dict(zip(DID, (appended, updated, deleted), strict=True))
