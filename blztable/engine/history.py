"""The versions of a table as a list: when each was made, by what, and how much it holds.

Reads heads and nothing else. A damaged version is in the list as well, for this is where one looks
when the newest cannot be opened.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from blztable.engine import versions
from blztable.engine.versions import DAMAGED
from blztable.errors import StorageError
from blztable.format.manifest import Head
from blztable.storage.store import KeyNotFound, Store


@dataclass(frozen=True, slots=True)
class Listed:
    """One version; of a damaged one only the number and the damage are known."""

    number: int
    # None as well where the head has a time that no calendar has.
    time: datetime | None = None
    operation: str | None = None
    rows: int | None = None
    columns: int | None = None
    parent: int | None = None
    # What callers named the commit that made it.
    commit_ids: tuple[str, ...] | None = None
    writer: str | None = None
    damage: str | None = None


def listed(store: Store) -> list[Listed]:
    """All versions there are, ascending; empty where there is no table."""
    return list(_listed(store))


def _listed(store: Store) -> Iterator[Listed]:
    for number in versions.numbers(store):
        try:
            head = versions.read(store, number).head
        except KeyNotFound:
            continue  # Removed since it was listed.
        except (*DAMAGED, StorageError) as error:
            yield Listed(number, damage=str(error))
        else:
            yield Listed(
                number,
                _time(head),
                head.operation,
                head.rows,
                len(head.columns.paths),
                head.parent,
                tuple(name for name, made in head.commit_ids if made == number),
                head.writer,
            )


def _time(head: Head) -> datetime | None:
    with suppress(ValueError):
        return datetime.fromisoformat(head.time)
    return None
