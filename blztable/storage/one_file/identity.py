"""Identity: which file a table in one file is, and the commits that a process has seen of it.

Knows nothing of commits and of locks. A file is recognised by the id in its front and by its inode.
A rewrite makes a new inode, keeps the id and counts up. So the file that follows another has its id
and a higher count; a copy that was put back in its place has not.

KnownCommits: the commits of a file that a process has read, up to the newest one.
"""

import os
from dataclasses import dataclass
from weakref import WeakSet

from blztable.errors import CorruptError
from blztable.storage.files import File
from blztable.storage.one_file.commits import FileCommit, is_unborn, newest
from blztable.storage.one_file.records import decode_id, front_length
from blztable.storage.opening import LocalReader
from blztable.storage.store import Reader

# One read has the front, unless another program wrote a long one.
_FIRST_BYTES = 512


@dataclass(frozen=True, slots=True)
class Identity:
    """A file, as one process met it."""

    front: bytes
    inode: tuple[int, int]

    @classmethod
    def of(cls, source: Reader) -> "Identity | None":
        """Return the identity of a file; None if it has no front yet."""
        assert isinstance(source, LocalReader), "only a path may lead to another file"
        first = source.read(0, _FIRST_BYTES)
        length = front_length(first)
        if length is None or length > source.size:
            return None
        front = first[:length] if length <= len(first) else source.read(0, length)
        status = os.fstat(source.fileno())
        return cls(front, (status.st_dev, status.st_ino))

    def is_followed_by(self, other: "Identity | None") -> bool:
        """True if the other one is the same file, or what a rewrite made of it."""
        if other is None or self == other:
            return other is not None
        known, found = decode_id(self.front), decode_id(other.front)
        if known is None or found is None:
            return False
        return known[0] == found[0] and known[1] < found[1]


class Followed:
    """The file that a store made or found, followed through rewrites.

    Attributes
    ----------
    is_gone : bool
        True as soon as the path was found to lead to another file, or to none any more.
    """

    def __init__(self, file: File) -> None:
        self._file = file
        self._identity: Identity | None = None
        # The reader that was compared last.
        self._met: Reader | None = None
        self.is_gone = False

    def current(self) -> Reader | None:
        """Return the file as it is now; None if there is none yet, or it is gone."""
        if self.is_gone:
            return None
        try:
            source = self._file.current()
        except CorruptError:
            # A directory has the path.
            if self._identity is None:
                raise
            source = None
        if not self._file.has_path or (source is not None and source is self._met):
            return source
        found = None if source is None else Identity.of(source)
        if self._identity is not None and not self._identity.is_followed_by(found):
            self.is_gone, self._met = True, None
            return None
        self._identity, self._met = found, None if found is None else source
        return source

    def meet(self, source: Reader) -> None:
        """Take a file that this process writes, which may be new or rewritten, for this one."""
        if self._file.has_path:
            self._identity, self._met = Identity.of(source), source

    def close(self) -> None:
        """Release descriptors; the file is known again."""
        self._met = None
        self._file.release()


# A reader that finds no commit looks again, because a writer may be about to cut the file.
_ATTEMPTS = 5


class KnownCommits:
    """The commits that were read.

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
        self.newest: FileCommit | None = None
        self.all: WeakSet[FileCommit] = WeakSet()
        self.file = Followed(file)

    def current(self) -> FileCommit | None:
        """Return the newest commit of the file as it is now."""
        cached = self.newest
        for _ in range(_ATTEMPTS):
            source = self.file.current()
            if self.file.is_gone:
                if cached is None:
                    self.newest = max(self.all, key=lambda one: one.end, default=None)
                return self.newest
            if source is None or is_unborn(source):
                self.newest = None
                return None
            if cached is not None and cached.source is not source:
                cached = None
            if cached is not None and cached.behind == source.size:
                return cached
            size = source.size
            self.newest = newest(source, self._file.name, cached)
            if self.newest is not None:
                self.all.add(self.newest)
                return self.newest
            if self.file.current() is source and source.size == size:
                return None
        return None

    def meet(self, commit: FileCommit) -> None:
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
