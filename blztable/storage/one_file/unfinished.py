"""Unfinished: a file without a whole newest commit as a store, to read what is whole of it.

Knows nothing of rows. Its values are those of the last whole commit, or else of all whole records.
"""

from blztable.errors import BusyError, ReadOnlyError
from blztable.storage.one_file.commits import Commit, before_damage, everything, is_unborn
from blztable.storage.one_file.media import GrowingFile
from blztable.storage.one_file.store import OneFileStore
from blztable.storage.store import KeyNotFound


def unfinished(store: OneFileStore) -> OneFileStore:
    """Return a store of the last whole commit, or of the records of a killed one."""
    return _Unfinished(store.medium)


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
    """All whole records of a file; only for reading."""

    def _look(self) -> Commit | None:
        if self._seen.newest is None:
            source = self.medium.look()
            if source is not None and not is_unborn(source):
                commit = before_damage(source, self.name)
                has_values = commit is not None and commit.listing.nbytes
                self._seen.newest = commit if has_values else everything(source, self.name)
        return self._seen.newest

    def _may_write(self, timeout: float) -> bool:
        raise ReadOnlyError(f"{self.name} was never finished; it is read only")
