"""The version that a user means: by its number, its tag or a time.

Knows nothing of columns and rows.
"""

from datetime import UTC, date, datetime, time

import numpy as np
import pandas as pd

from blztable.engine.version import history
from blztable.storage.store import Store
from blztable.table.indices import checked_integer

# What users pass as a time.
At = str | date | np.datetime64 | None


def check_version(version: object, at: object = None) -> None:
    """Raise ValueError or TypeError if these cannot mean a version."""
    if at is not None:
        if version is not None:
            raise ValueError(f"version={version!r} and at={at!r}: pass one of them")
        moment(at)
    elif version is not None:
        _check(version)


def number_meant(store: Store, version: int | str | None, at: object = None) -> int | None:
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
            found = datetime.fromisoformat(at.strip())
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
        found = stamp.floor("us").to_pydatetime()
    elif isinstance(at, date):
        found = datetime.combine(at, time.min)
    else:
        raise TypeError(
            f"at must be a time, as text or a datetime, not {type(at).__name__}; the number of a "
            "version is passed as version="
        )
    try:
        return found.astimezone(UTC)
    except (OverflowError, OSError):
        raise ValueError(f"at={at!r:.100} is too early or too late") from None
