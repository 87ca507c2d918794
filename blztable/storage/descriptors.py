"""File descriptors: keep them above the standard streams, and close them.

Knows nothing of names or keys.
"""

import os
import sys

from blztable.closing import Closing

if sys.platform != "win32":
    import fcntl

# 0, 1 and 2 are standard input, output and error.
FIRST_NUMBER = 3


def above_standard(fd: int) -> int:
    """Return the descriptor, moved if it has the number of a standard stream.

    A process may have closed its standard streams. A later `print` would write into our file.
    """
    if fd >= FIRST_NUMBER:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FIRST_NUMBER)
    finally:
        close_unwritten(fd)


def close_unwritten(fd: int) -> None:
    """Close a descriptor that nothing was written to.

    An error is ignored: the descriptor is closed all the same and no data can be lost. The error
    must not look like a failure of the operation, which may be a finished commit.
    """
    # Not `suppress`: an exception of a signal handler inside of it would leave the file open.
    try:  # noqa: SIM105
        os.close(fd)
    except OSError:
        pass


class OpenDirectory:
    """The descriptor of a directory, closed when this object is collected."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        # The attribute is missing if an interrupt came before it was set.
        if hasattr(self, "fd"):
            close_unwritten(self.fd)


class DirectoryInUse(Closing):
    """A directory in use. `close` releases it; the store may keep it open."""

    __slots__ = ("_open",)

    def __init__(self, directory: OpenDirectory) -> None:
        self._open: OpenDirectory | None = directory

    @property
    def fd(self) -> int:
        """The descriptor."""
        assert self._open is not None
        return self._open.fd

    def close(self) -> None:
        """Release the directory; closing twice is harmless."""
        # Release it now: a traceback may keep the caller's frame.
        self._open = None
