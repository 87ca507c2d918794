"""Blosc's settings for the process while our threads call it: one Blosc thread, the GIL released.

Knows nothing of the pool. After the last run the old settings are back, for other users of Blosc.
"""

import os
import threading

import blosc

_lock = threading.Lock()
_users = 0
_before: tuple[int, bool] = (1, False)


def begin() -> None:
    """Use one Blosc thread and release the GIL, until each `begin` has had its `end`.

    When it releases the GIL, Blosc also ignores the BLOSC_* variables of the environment.
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
    """In a forked child no run goes on, and the lock may be held for ever."""
    global _lock, _users
    _lock = threading.Lock()
    if _users:
        _users = 0
        blosc.set_nthreads(_before[0])
        blosc.set_releasegil(_before[1])


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_users)
