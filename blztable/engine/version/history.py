"""History: list the versions of a table with time, operation and size.

Reads only the heads of manifests. Damaged versions are listed too, because a user looks here for
an intact version to open.
"""

from contextlib import suppress
from datetime import datetime

from blztable.engine.version import mirrors, versions
from blztable.engine.version.versions import DAMAGED
from blztable.errors import StorageError
from blztable.format import layout
from blztable.format.manifest import Head
from blztable.report import VersionInfo
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
