"""Unfinished: a file without a whole newest commit as a store, to read what is whole of it.

Knows nothing of rows. Its values are those of a whole commit, or else of all whole records.
"""

from collections.abc import Iterator

from blztable.errors import BusyError, ReadOnlyError
from blztable.storage.one_file.commits import Commit, everything, is_unborn, whole_commits
from blztable.storage.one_file.media import GrowingFile, Medium
from blztable.storage.one_file.store import OneFileStore
from blztable.storage.store import KeyNotFound


def unfinished(store: OneFileStore) -> OneFileStore:
    """Return a store of the last whole commit, or of the records of a killed one."""
    return next(earlier(store), None) or _Unfinished(store.medium)


def earlier(store: OneFileStore) -> Iterator[OneFileStore]:
    """Yield a store of each whole commit that has values, the newest first."""
    source = store.medium.look()
    if source is not None and not is_unborn(source):
        for commit in whole_commits(source, store.name):
            if commit.listing.nbytes:
                yield _Unfinished(store.medium, commit)


def is_abandoned(store: OneFileStore) -> bool:
    """True if no writer is at work on the file, so what is unfinished stays so."""
    if not isinstance(store.medium, GrowingFile):
        return False
    try:
        GrowingFile(store.name).lock(0).close()
    except (BusyError, KeyNotFound):
        return False
    return True


class _Unfinished(OneFileStore):
    """The values of one commit of a file, or else all whole records; only for reading."""

    def __init__(self, medium: Medium, commit: Commit | None = None) -> None:
        super().__init__(medium)
        self._commit = commit

    def _look(self) -> Commit | None:
        if self._seen.newest is None:
            source = self.medium.look()
            if source is not None and not is_unborn(source):
                self._seen.newest = self._commit or everything(source, self.name)
        return self._seen.newest

    def _may_write(self, timeout: float) -> bool:
        raise ReadOnlyError(f"{self.name} was never finished; it is read only")
