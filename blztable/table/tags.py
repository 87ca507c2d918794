"""Tags as users meet them, a mapping; and the version at a tag, a number or a time.

Knows nothing of how they are stored.
"""

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from datetime import UTC, date, datetime, time
from typing import Any

import numpy as np
import pandas as pd

from blztable.engine.version import history
from blztable.errors import check_encodes
from blztable.format.manifest import TAG_LENGTH, is_tag
from blztable.storage.store import Store
from blztable.table.names import checked_count, checked_integer

# What users pass as a time.
At = str | date | np.datetime64 | None


class Tags(MutableMapping[str, int]):
    """Names of versions of a table, which are kept until their names are removed.

    Made by `CTable.tags`. The tags are those of the newest version, whichever one the table shows.
    Each change is one commit. `open` and the readers take a tag in place of the number of a
    version. A change raises ConflictError if another commit changed one of these tags.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.to_blz({"n": [1, 2]}, "t.blz")
    >>> with blz.open("t.blz", mode="a") as t:
    ...     t.tags["audited"] = t.version
    ...     done = t.delete("n = 1")
    ...     print(t.tags, t.version)
    {'audited': 1} 3
    >>> len(blz.open("t.blz", version="audited"))
    2
    """

    def __init__(
        self,
        read: Callable[[], Mapping[str, int]],
        write: Callable[[Mapping[str, int], Sequence[str]], None],
    ) -> None:
        self._read = read
        self._write = write

    def __getitem__(self, name: str) -> int:
        return self._read()[name]

    def __setitem__(self, name: str, version: int) -> None:
        """Tag a version.

        Raises
        ------
        ValueError
            A tag cannot have this name.
        TableNotFoundError
            The version does not exist any more.
        ConflictError
            Another commit changed the same tag.
        """
        self._write(_checked({name: version}), ())

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        self._write({}, (name,))

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set several tags in one commit.

        Parameters
        ----------
        *args : mapping or iterable of (name, version)
            Tags, as for `dict.update`.
        **kwargs : int
            More tags, by name.

        Raises
        ------
        ValueError
            A tag cannot have one of these names.
        TableNotFoundError
            One of the versions does not exist any more.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1]}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     t.tags.update(first=1, audited=1)
        ...     print(t.tags, t.version)
        {'first': 1, 'audited': 1} 2
        """
        self._write(_checked(dict(*args, **kwargs)), ())

    def clear(self) -> None:
        """Remove all tags in one commit.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.to_blz({"n": [1]}, "t.blz")
        >>> with blz.open("t.blz", mode="a") as t:
        ...     t.tags["first"] = 1
        ...     t.tags.clear()
        ...     print(t.tags)
        {}
        """
        self._write({}, tuple(self._read()))

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __repr__(self) -> str:
        return repr(dict(self))


def _checked(tags: Mapping[Any, Any]) -> dict[str, int]:
    for name in tags:
        if not isinstance(name, str):
            raise TypeError(f"the name of a tag must be a str, not {type(name).__name__}")
        check_encodes(name, "the name")
        if not is_tag(name):
            raise ValueError(
                f"{name!r:.100} cannot be the name of a tag: it needs 1 to {TAG_LENGTH} printable "
                "characters, not only digits, which are the number of a version"
            )
    return {name: checked_count(version, f"tag {name!r}", 1) for name, version in tags.items()}


def check_version(version: object, at: object = None) -> None:
    """Raise ValueError or TypeError if these cannot mean a version."""
    if at is not None:
        if version is not None:
            raise ValueError(f"version={version!r} and at={at!r}: pass one of them")
        moment(at)
    elif version is not None:
        _check(version)


def version_number(store: Store, version: int | str | None, at: object = None) -> int | None:
    """Return the number of a version; None if neither is given.

    Raises
    ------
    TableNotFoundError
        There is no such tag, or no version of that time is kept.
    """
    if at is not None:
        return history.number_at(store, moment(at).isoformat(timespec="microseconds"))
    if version is None:
        return None
    return number_of(store, version)


def number_of(store: Store, version: int | str) -> int:
    """Return the number of a version given by its number or its tag."""
    _check(version)
    return history.tagged(store, version) if isinstance(version, str) else int(version)


def _check(version: object) -> None:
    """Raise TypeError unless it is a number, or may be a tag."""
    if not isinstance(version, str) or version.isdecimal():
        checked_integer(version, "version")


def moment(at: object) -> datetime:
    """Return a time in UTC; one without a zone is in the zone of this machine."""
    if isinstance(at, str):
        try:
            moment = datetime.fromisoformat(at.strip())
        except ValueError:
            raise ValueError(
                f'at={at!r:.100} is no time; write one as "2026-11-22T10:00", or with a zone as '
                '"2026-11-22T10:00Z"; a tag is passed as version='
            ) from None
    elif isinstance(at, datetime | np.datetime64):
        stamp = pd.Timestamp(at)
        if pd.isna(stamp):
            raise ValueError("at=NaT is no time")
        # Versions have times in microseconds.
        moment = stamp.floor("us").to_pydatetime()
    elif isinstance(at, date):
        moment = datetime.combine(at, time.min)
    else:
        raise TypeError(
            f"at must be a time, as text or a datetime, not {type(at).__name__}; the number of a "
            "version is passed as version="
        )
    try:
        return moment.astimezone(UTC)
    except (OverflowError, OSError):
        raise ValueError(f"at={at!r:.100} is too early or too late") from None
