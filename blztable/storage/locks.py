"""Locks between processes: flock on an open file or directory.

Knows nothing of keys. A lock is on the file that the name leads to when it is granted: a call that
waited may find that the file was removed or replaced, and opens it again. A lock is never converted
(the kernel would release it first) and never unlocked, only closed. Each wait has a time limit. The
kernel drops the locks of a process that dies, so no lock goes stale. NFS and SMB give an exclusive
lock only on a descriptor that is open for writing.

A child made by fork has the descriptors of its parent, and so its locks, which are held until both
processes close them. A pin needs that: the child goes on reading. All other locks are closed in the
child, or a worker that lives on would keep writers or a vacuum out.
"""

import errno
import os
import sys
import time
from contextlib import suppress
from typing import Self
from weakref import WeakSet

from blztable import interrupts
from blztable.errors import BusyError, ReadOnlyError, StorageError
from blztable.storage.opening import open_lockable, unreadable

if sys.platform != "win32":
    import fcntl

SLEEP_FIRST = 0.001
SLEEP_LONGEST = 0.05

_CANNOT_LOCK = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS}


def lock_at(
    name: str, dir_fd: int, where: str, *, shared: bool, timeout: float, inherited: bool
) -> "LocalLock":
    """Lock the file or directory `name`; try again until `timeout` seconds have passed."""
    deadline = time.monotonic() + timeout
    sleep = SLEEP_FIRST
    while True:
        fd = open_lockable(name, dir_fd, where, for_writing=not shared)
        lock = LocalLock(fd, shared=shared, inherited=inherited)
        try:
            if lock.acquire(where) and lock.is_on(name, dir_fd, where):
                return lock
        except ReadOnlyError as error:
            lock.close()
            if timeout:
                raise
            # A call without a wait gets the answer for a lock that another process holds: whether
            # one does cannot be asked.
            raise BusyError(str(error)) from None
        except BaseException:
            lock.close()
            raise
        lock.close()
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise BusyError(f"{where}: still locked by another after {timeout:g} seconds")
        interrupts.raise_pending()
        time.sleep(min(sleep, remaining))
        sleep = min(2 * sleep, SLEEP_LONGEST)


class LocalLock:
    """A lock, held from `acquire` until it is closed or collected."""

    def __init__(self, fd: int, *, shared: bool, inherited: bool) -> None:
        # An iterator closes it exactly once. A descriptor that is forgotten before it is closed
        # would be locked until the process ends, and an interrupt may come between two calls.
        self._closing = map(os.close, (fd,))
        self._fd = fd
        self._shared = shared
        if not inherited:
            _not_inherited.add(self)

    def acquire(self, where: str) -> bool:
        """Take the lock; False if another holds it."""
        kind = fcntl.LOCK_SH if self._shared else fcntl.LOCK_EX
        try:
            fcntl.flock(self._fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if self._shared and error.errno in _CANNOT_LOCK:
                # A table on such a medium must still be readable; this lock holds nothing.
                return True
            if error.errno == errno.EBADF and not self._shared:
                raise ReadOnlyError(
                    f"{where}: this file system gives an exclusive lock only to a process that may "
                    "write the file; change the file's permissions so that this process may"
                ) from error
            raise StorageError(error.errno, f"{error.strerror} (locking)", where) from error
        return True

    def is_on(self, name: str, dir_fd: int, where: str) -> bool:
        """True if `name` still leads to the file that the lock is on."""
        try:
            status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
            return os.path.samestat(status, os.fstat(self._fd))
        except OSError as error:
            raise unreadable(error, where) from error

    def close(self) -> None:
        """Release the lock; closing twice is harmless."""
        self._fd = -1
        # The kernel closes it even if it reports an error, and nothing was written to it.
        with suppress(OSError):
            next(self._closing, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Missing if an interrupt came before it was set.
        if hasattr(self, "_closing"):
            self.close()


_not_inherited: WeakSet[LocalLock] = WeakSet()


def _close_not_inherited() -> None:
    for lock in list(_not_inherited):
        lock.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_not_inherited)
