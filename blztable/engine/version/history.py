"""The versions of a table as a list: when each was made, by what, and how much it holds.

Reads heads and nothing else. A damaged version is in the list as well, for this is where one looks
when the newest cannot be opened.
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime

from blztable.engine.version import versions
from blztable.engine.version.versions import DAMAGED
from blztable.errors import StorageError
from blztable.format import layout
from blztable.format.manifest import Head
from blztable.report import VersionInfo
from blztable.storage.store import KeyNotFound, Store


def listed(store: Store) -> list[VersionInfo]:
    """All versions there are, ascending; empty where there is no table."""
    return list(_listed(store))


def _listed(store: Store) -> Iterator[VersionInfo]:
    told = versions.mirrored_number(store)
    numbers = versions.numbers(store)
    for number in numbers:
        try:
            head = versions.read(store, number).head
        except KeyNotFound:
            continue  # Removed since it was listed.
        except (*DAMAGED, StorageError) as error:
            yield VersionInfo(number, damage=str(error))
        else:
            yield VersionInfo(
                number,
                _time(head),
                head.operation,
                head.rows,
                len(head.columns.paths),
                len(head.row_groups),
                head.parent,
                tuple(name for name, made in head.commit_ids if made == number),
                head.writer,
            )
    if told > max(numbers, default=0):
        yield VersionInfo(told, damage=f"the manifest is gone; {layout.SIZES} tells of it")


def _time(head: Head) -> datetime | None:
    with suppress(ValueError):
        return datetime.fromisoformat(head.time)
    return None
