"""Attempt: find out whether a manifest that a commit tried to publish was published.

A manifest is ours only if it bears our commit id; its number alone proves nothing.
Knows nothing of what the manifest says.
"""

from dataclasses import dataclass

from blztable.engine.version import versions
from blztable.errors import BlzError, CommitUnknownError
from blztable.storage.store import KeyNotFound, Store


@dataclass(frozen=True, slots=True)
class Attempt:
    """The number and the commit id of a manifest that was handed to the store.

    Attributes
    ----------
    number : int
        Number of the version.
    commit : str
        Random id that the manifest bears.
    """

    store: Store
    number: int
    commit: str

    def is_ours(self) -> bool:
        """True if the published manifest of this number bears our commit id.

        Some network file systems link a file and still report that the name is taken.
        """
        try:
            return versions.read(self.store, self.number).head.commit == self.commit
        except (BlzError, KeyNotFound) as error:
            raise CommitUnknownError(
                f"{self.store.name}: version {self.number} was published by this commit or by "
                "another one: its manifest cannot be read; open the table again and compare its "
                f"rows: {error}"
            ) from error

    def may_be_published(self) -> bool:
        """False only if the manifest is known not to be published."""
        try:
            return versions.load(self.store, self.number).head.commit == self.commit
        except KeyNotFound:
            # Either it was never published, or later versions were built on it and it was retired.
            return (versions.newest_number(self.store) or 0) >= self.number
        except BlzError:
            return True

    def unknown(self, error: BlzError) -> CommitUnknownError:
        """Return the error for this version, which was published and may not be durable."""
        return unknown(self.store, self.number, error)


def unknown(store: Store, number: int, error: BlzError) -> CommitUnknownError:
    """Return the error for a version that was published and may not be durable."""
    return CommitUnknownError(
        f"{store.name}: version {number} was published but may not survive a loss of "
        f"power; open the table again and check that version {number} exists: {error}"
    )
