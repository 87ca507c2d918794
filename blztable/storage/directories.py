"""The directories of a local store, opened level by level.

Knows nothing of values. The table may come from an untrusted source: the user's path is resolved
once, and each level below it is opened separately, so no symbolic link is followed. The root and
the levels right below it stay open, so a read needs few calls. `close` drops their descriptors;
each one is closed when the last call that uses it returns, so other threads may still use it. The
umask decides the permissions of the root; what is below it gets owner and permissions of the root.
"""

import errno
import os
from collections.abc import Sequence
from contextlib import suppress

from blztable.errors import BlzError, StorageError
from blztable.ownership import shared_by
from blztable.storage.descriptors import Descriptor, DirectoryInUse
from blztable.storage.disk import Disk
from blztable.storage.opening import failures, open_directory
from blztable.storage.store import KeyNotFound, KeyTaken


class Directories:
    """The open directories of the store at `path`."""

    def __init__(self, path: str, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self._kept: dict[str, Descriptor] = {}

    def open(self, parts: Sequence[str], *, make: bool = False) -> DirectoryInUse:
        """Open a directory (() is the root); with `make`, create missing levels."""
        directory = DirectoryInUse(self._keep("".join(parts[:1]), make=make))
        for depth in range(1, len(parts)):
            with directory:
                level = self._open_level(parts[: depth + 1], directory.fd, make=make)
            directory = DirectoryInUse(level)
        return directory

    def where(self, key: str) -> str:
        """Return the path of a key, for messages."""
        return f"{self._path}/{key}" if key else self._path

    def share(self, name: str, dir_fd: int, key: str) -> None:
        """Give a new directory the owner and the permissions of its parent directory."""
        with suppress(OSError):
            found = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
            model = os.fstat(dir_fd)
            if (found.st_uid, found.st_gid, found.st_mode) == shared_by(found, model):
                return
            # If it cannot be opened, the call that uses it raises the error.
            with suppress(BlzError, KeyNotFound):
                directory = open_directory(name, dir_fd, self.where(key))
                self._disk.share(directory.fd, model)

    def close(self) -> None:
        """Drop the descriptors; a later call opens them again."""
        self._kept.clear()

    def _keep(self, level: str, *, make: bool = False) -> Descriptor:
        """Return the root ("") or a level right below it, opened once."""
        kept = self._kept.get(level)
        if kept is not None:
            return kept
        if level:
            root = self._keep("", make=make)
            directory = self._open_level([level], root.fd, make=make)
        else:
            try:
                directory = open_directory(self._path, None, self._path)
            except KeyNotFound:
                if make:
                    raise StorageError(errno.ENOENT, "no such directory", self._path) from None
                raise
        # If several threads open it, one wins. A lock could be held for ever in a forked child.
        return self._kept.setdefault(level, directory)

    def _open_level(self, parts: Sequence[str], dir_fd: int, *, make: bool) -> Descriptor:
        key = "/".join(parts)
        try:
            return open_directory(parts[-1], dir_fd, self.where(key))
        except KeyNotFound:
            if not make:
                raise
        with suppress(KeyTaken), failures("creating", key, self.where(key)):
            self._disk.mkdir(parts[-1], dir_fd)
            self.share(parts[-1], dir_fd, key)
        return open_directory(parts[-1], dir_fd, self.where(key))


def parts_of(key: str) -> list[str]:
    """Return the names in a key, [] for the root. Only our own code makes keys."""
    parts = key.split("/") if key else []
    assert not {"", ".", ".."}.intersection(parts), key
    return parts
