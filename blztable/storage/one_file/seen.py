"""Seen: the commits of a file that a process has seen, up to the newest one.

Knows nothing of writing and of threads; the store calls it under its own lock.
"""

from weakref import WeakSet

from blztable.storage.files import File
from blztable.storage.one_file.commits import Commit, is_unborn, newest
from blztable.storage.one_file.identity import Followed

# A reader that finds no commit looks again, because a writer may be about to cut the file.
_LOOKS = 5


class Seen:
    """The commits that were seen.

    Attributes
    ----------
    newest : Commit or None
        The newest one.
    all : WeakSet of Commit
        The newest one, and those that somebody still reads from.
    file : Followed
        The file that has them.
    """

    def __init__(self, file: File) -> None:
        self._file = file
        self.newest: Commit | None = None
        self.all: WeakSet[Commit] = WeakSet()
        self.file = Followed(file)

    def look(self) -> Commit | None:
        """Return the newest commit of the file as it is now."""
        known = self.newest
        for _ in range(_LOOKS):
            source = self.file.look()
            if self.file.is_gone:
                if known is None:
                    self.newest = max(self.all, key=lambda one: one.end, default=None)
                return self.newest
            if source is None or is_unborn(source):
                self.newest = None
                return None
            if known is not None and known.source is not source:
                known = None
            if known is not None and known.behind == source.size:
                return known
            size = source.size
            self.newest = newest(source, self._file.name, known)
            if self.newest is not None:
                self.all.add(self.newest)
                return self.newest
            if self.file.look() is source and source.size == size:
                return None
        return None

    def meet(self, commit: Commit) -> None:
        """Take a commit that this process found under the lock, or wrote, for the newest one."""
        self.newest = commit
        self.all.add(commit)
        # Last: it reads the file.
        self.file.meet(commit.source)

    def forget(self) -> None:
        """Begin anew: this process has removed the file."""
        self.newest, self.file = None, Followed(self._file)

    def close(self) -> None:
        """Release what was read; a later call reads it again."""
        self.newest = None
        self.file.close()
