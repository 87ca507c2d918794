"""File descriptors: open them, keep them above the standard streams, and close them.

Knows nothing of keys or tables.

A signal handler may raise between any two steps of Python code, also between the call that opens a
file and the line that stores its number, and at the first step of a method `__del__`. So a number
goes from the call to its owner, and from its owner to the call that closes it, in one step of
Python: the functions of C in between run no Python code.
"""

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, repeat
from operator import attrgetter
from typing import Any

from blztable.closing import Closing

if sys.platform != "win32":
    import fcntl

# 0, 1 and 2 are standard input, output and error.
FIRST_NUMBER = 3


class Descriptor(Closing):
    """The owner of one descriptor, which is closed with it or when it is collected.

    Attributes
    ----------
    fd : int
        The number; -1 once it is closed.
    """

    __slots__ = ("_closing", "_collecting", "fd")

    def __init__(self, opening: Callable[[Any], int], argument: object) -> None:
        fds: list[int] = []
        # Both iterators take the number from `left`, so one of them closes it, and once.
        left = iter(fds)
        self._closing: Iterator[None] = chain(map(os.close, left), repeat(None))
        # Of a file that is collected, nobody could be told an error: `closerange` ignores it.
        ends = map((1).__add__, fds)
        self._collecting: Iterator[None] = chain(map(os.closerange, left, ends), repeat(None))
        fds.extend(map(opening, (argument,)))
        (self.fd,) = fds

    def close(self) -> None:
        """Close a descriptor that nothing was written to; closing twice is harmless.

        An error is ignored: the descriptor is closed all the same and no data can be lost. The
        error must not look like a failure of the operation, which may be a finished commit.
        """
        # Not `suppress`, which costs more than the close.
        try:  # noqa: SIM105
            self.close_written()
        except OSError:
            pass

    def close_written(self) -> None:
        """Close a file after writes; OSError tells that they failed."""
        # Another file may get the number as soon as this one is closed.
        self.fd = -1
        next(self._closing)

    # It is called without an argument: the method of the iterator takes none.
    __del__ = property(attrgetter("_collecting.__next__"))


def opened(name: str, flags: int, *, dir_fd: int | None = None, mode: int = 0o777) -> Descriptor:
    """Open a file or directory; the number is not that of a standard stream.

    A process may have closed its standard streams. A later `print` would write into our file.
    """
    made = Descriptor(partial(os.open, name, mode=mode, dir_fd=dir_fd), flags)
    if made.fd >= FIRST_NUMBER:
        return made
    with made:
        return Descriptor(partial(fcntl.fcntl, made.fd, fcntl.F_DUPFD_CLOEXEC), FIRST_NUMBER)


class DirectoryInUse(Closing):
    """A directory in use. `close` releases it; the store may keep it open."""

    __slots__ = ("_open",)

    def __init__(self, directory: Descriptor) -> None:
        self._open: Descriptor | None = directory

    @property
    def fd(self) -> int:
        """The descriptor."""
        assert self._open is not None
        return self._open.fd

    def close(self) -> None:
        """Release the directory; closing twice is harmless."""
        # Release it now: a traceback may keep the caller's frame.
        self._open = None
