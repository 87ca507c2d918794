"""Blosc settings: while our threads call Blosc, it uses one thread and releases the GIL.

Knows nothing of the pool. The settings are global for the process. The last run restores the old
ones, for other users of Blosc.
"""

import os
import threading

import blosc

_lock = threading.Lock()
_users = 0
_before: tuple[int, bool] = (1, False)


def begin() -> None:
    """Use one Blosc thread and release the GIL, until each `begin` was followed by an `end`.

    Blosc then also ignores the BLOSC_* environment variables.
    """
    global _users, _before
    with _lock:
        if _users == 0:
            _before = blosc.set_nthreads(1), blosc.set_releasegil(True)
        _users += 1


def end() -> None:
    """Restore the settings after the last user."""
    global _users
    with _lock:
        _users -= 1
        if _users == 0:
            blosc.set_nthreads(_before[0])
            blosc.set_releasegil(_before[1])


def _forget_users() -> None:
    """Reset the state in a forked child: it has no runs, and the lock may be held for ever."""
    global _lock, _users
    _lock = threading.Lock()
    if _users:
        _users = 0
        blosc.set_nthreads(_before[0])
        blosc.set_releasegil(_before[1])


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_users)
