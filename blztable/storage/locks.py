"""Locks between processes: flock on an open file or directory.

Knows nothing of keys. A lock is on the file that has the name when the lock is granted: if the file
was removed or replaced during the wait, it is opened again. A lock is never converted (the kernel
would release it first) and never unlocked, only closed. Each wait has a time limit. The kernel
releases the locks of a process that ends, so no lock goes stale. NFS and SMB grant an exclusive
lock only on a descriptor that is open for writing.

A forked child shares the descriptors of its parent, so a lock is held until both processes close
it. A pin needs this, because the child may continue to read. All other locks are closed in the
child: otherwise a long-lived worker would block writers or a vacuum.
"""

import errno
import os
import sys
import time
from contextlib import suppress
from weakref import WeakSet

from blztable import interrupts
from blztable.closing import Closing
from blztable.errors import BusyError, ReadOnlyError, StorageError
from blztable.storage.opening import Descriptor, open_lockable, unreadable

if sys.platform != "win32":
    import fcntl

SLEEP_FIRST = 0.001
# A writer that commits again at once leaves a gap of a few milliseconds: with longer pauses the
# others fall far behind. A wait takes 3 to 5 % of a processor.
SLEEP_LONGEST = 0.005

_CANNOT_LOCK = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS}


def lock_at(
    name: str, dir_fd: int, where: str, *, shared: bool, timeout: float, inherited: bool
) -> "LocalLock":
    """Lock the file or directory `name`; try again until `timeout` seconds have passed."""
    deadline = time.monotonic() + timeout
    sleep = SLEEP_FIRST
    while True:
        file = open_lockable(name, dir_fd, where, for_writing=not shared)
        lock = LocalLock(file, shared=shared, inherited=inherited)
        try:
            if lock.acquire(where) and lock.is_on(name, dir_fd, where):
                return lock
        except ReadOnlyError as error:
            lock.close()
            if timeout:
                raise
            # A call without a wait treats the lock as held by another process: this process cannot
            # find out whether it is.
            raise BusyError(str(error)) from None
        except BaseException:
            lock.close()
            raise
        lock.close()
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise BusyError(f"{where}: still locked after {timeout:g} seconds; try again")
        interrupts.raise_pending()
        time.sleep(min(sleep, remaining))
        sleep = min(2 * sleep, SLEEP_LONGEST)


def holders_of(name: str, dir_fd: int) -> list[int]:
    """Return the processes that lock this file, as Linux lists them; empty if nobody can tell."""
    with suppress(OSError), open("/proc/locks", encoding="ascii") as lines:
        number = os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_ino
        # 1: FLOCK  ADVISORY  READ 1234 08:01:131072 0 EOF
        fields = [line.split() for line in lines if "->" not in line]
        return sorted({int(one[4]) for one in fields if one[5].endswith(f":{number}")} - {-1, 0})
    return []


class LocalLock(Closing):
    """A lock, held from `acquire` until it is closed or collected."""

    def __init__(self, file: Descriptor, *, shared: bool, inherited: bool) -> None:
        self._file = file
        self._shared = shared
        if not inherited:
            _not_inherited.add(self)

    def acquire(self, where: str) -> bool:
        """Take the lock; return False if another process or thread holds it."""
        kind = fcntl.LOCK_SH if self._shared else fcntl.LOCK_EX
        try:
            fcntl.flock(self._file.fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if self._shared and error.errno in _CANNOT_LOCK:
                # A table on a medium without locks must still be readable.
                return True
            if error.errno == errno.EBADF and not self._shared:
                raise ReadOnlyError(
                    f"{where}: this file system grants an exclusive lock only to a process that "
                    "may write the file; give this process write permission"
                ) from error
            raise StorageError(error.errno, f"{error.strerror} (locking)", where) from error
        return True

    def is_on(self, name: str, dir_fd: int, where: str) -> bool:
        """True if `name` is still the name of the locked file."""
        try:
            status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
            return os.path.samestat(status, os.fstat(self._file.fd))
        except OSError as error:
            raise unreadable(error, where) from error

    def fileno(self) -> int:
        """The descriptor of the locked file."""
        return self._file.fd

    def close(self) -> None:
        """Release the lock; closing twice is harmless."""
        self._file.close()


_not_inherited: WeakSet[LocalLock] = WeakSet()


def _close_not_inherited() -> None:
    for lock in list(_not_inherited):
        lock.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_not_inherited)
