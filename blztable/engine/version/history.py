"""History: list the versions of a table with time, operation and size, and compare two of them.

Reads only manifests; for the list, only their heads. Damaged versions are listed too, because a
user looks here for an intact version to open.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any

from blztable.engine.version import mirrors, versions
from blztable.engine.version.versions import DAMAGED, Version
from blztable.errors import StorageError
from blztable.format import layout
from blztable.format.layout import Path
from blztable.format.manifest import Head
from blztable.report import VersionDiff, VersionInfo
from blztable.storage.store import KeyNotFound, Store


def list_versions(store: Store) -> list[VersionInfo]:
    """Return all versions, ascending; an empty list if there is no table."""
    infos = []
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
    if mirrored > max(numbers, default=0):
        damage = f"the manifest is gone; {layout.SIZES} names this version"
        infos.append(VersionInfo(mirrored, damage=damage))
    return infos


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
    roots = (path for path in version.head.columns.paths if len(path) == 1)
    for path, field in zip(roots, version.schema, strict=True):
        yield path, (field.name, f"{field.type}{'' if field.nullable else ' not null'}")


def _groups(version: Version, other: Version) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of each row group, which of them are deleted, and its parts.

    The parts are those of the columns that both versions have.
    """
    shared = {*version.head.columns.paths} & {*other.head.columns.paths}
    lines = [
        (path, version.line_parts(line))
        for line, path in enumerate(version.head.columns.paths)
        if path in shared
    ]
    head, bundles = version.head, version.head.bundles
    for group, (rows, deleted) in enumerate(zip(head.row_groups, head.all_deleted, strict=True)):
        if not lines:
            # Nothing says that a row group is in the other version, too.
            yield rows, version.head.version
            continue
        yield (
            *(rows, deleted),
            *((parts.key(group, bundles), parts.at and parts.at[group]) for _, parts in lines),
        )
