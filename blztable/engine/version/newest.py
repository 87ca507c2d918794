"""Newest: the newest version as a commit finds it, and whether it is of the table that is meant.

A table is dropped by a tombstone under the next number. Another one may be made there, whose
versions have the numbers behind it, and a `uuid` of their own.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from blztable.engine.version import versions
from blztable.engine.version.versions import Version, mirrored_number
from blztable.errors import BlzError, CorruptError, LimitError, TableNotFoundError
from blztable.format import layout
from blztable.storage.store import KeyNotFound, Store


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest version.

    Attributes
    ----------
    numbers : list of int
        The versions of the table that exist.
    last_number : int
        The highest number ever used; it is higher if the newest manifest is missing.
    version : Version or None
        None if there is no table, or a replacement cannot read it.
    is_dropped : bool
        True if the table was dropped, and no other one made.
    """

    numbers: list[int]
    last_number: int
    version: Version | None
    is_dropped: bool = False

    @property
    def number(self) -> int | None:
        """Number of the newest version; None if there is no table."""
        return max(self.numbers, default=None)

    @classmethod
    def known(cls, version: Version | None) -> Self:
        """Return a version that is taken for the newest one, and the older ones that it knows."""
        if version is None:
            return cls([], 0, None)
        head = version.head
        numbers = [*(number for _, number in head.history), head.version]
        return cls(numbers, head.version, version)

    @classmethod
    def find(cls, store: Store, cached: Version | None, *, is_replacement: bool) -> Self:
        """Read the newest version, unless it is the one that is known.

        A replacement accepts one that is damaged or missing.
        """
        try:
            numbers = versions.checked_numbers(store)
            if not numbers:
                return cls([], 0, None)
            try:
                version = versions.load_unless(cached, store, numbers[-1])
            except KeyNotFound:
                return cls([], numbers[-1], None, is_dropped=True)
        except CorruptError:
            if not is_replacement:
                raise
            numbers = versions.numbers(store)
            # The number of a manifest that is missing is not used again.
            return cls(numbers, max([mirrored_number(store), *numbers]), None)
        return cls(numbers, numbers[-1], version)

    def following(self, store: Store) -> int:
        """Return the number of the next version; LimitError if there is none."""
        if self.last_number == layout.MAX_VERSION:
            raise LimitError(
                f"{store.name}: version {self.last_number} is the last one that a table can have; "
                "write the data to a new table"
            )
        return self.last_number + 1


def check_current(version: Version) -> None:
    """Raise TableNotFoundError if the table of a version was dropped."""
    store, number = version.store, version.head.version
    last = versions.newest_number(store)
    if last is None or last == number:
        return
    if versions.is_removed(store, last):
        raise versions.dropped(store)
    # With locks, nothing stays of a dropped table but what somebody has open.
    if store.locks or not store.lists:
        return
    newest = None
    with suppress(BlzError, KeyNotFound):
        newest = versions.load(store, last)
    if newest is not None:
        check_same(version, newest)


def check_same(version: Version, newest: Version) -> None:
    """Raise TableNotFoundError if a version is of another table than the newest one."""
    if newest.head.uuid != version.head.uuid:
        raise TableNotFoundError(
            f"version {version.head.version} of {newest.store.name} is of a table that was "
            f"dropped; version {newest.head.version} is of the one made there since"
        )
