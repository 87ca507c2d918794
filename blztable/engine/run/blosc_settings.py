"""Blosc's process-wide settings while threads of ours call it: one thread each, the GIL released.

Whoever else uses Blosc in this process finds the settings as they were when nobody of us works.
"""

import os
import threading

import blosc

_lock = threading.Lock()
_users = 0
_before: tuple[int, bool] = (1, False)


def begin() -> None:
    """One Blosc thread a call and the GIL released, until `end` was called as often.

    With the GIL released Blosc also ignores the BLOSC_* variables of the environment.
    """
    global _users, _before
    with _lock:
        if _users == 0:
            _before = blosc.set_nthreads(1), blosc.set_releasegil(True)
        _users += 1


def end() -> None:
    """Put the settings back, if nobody works any more."""
    global _users
    with _lock:
        _users -= 1
        if _users == 0:
            blosc.set_nthreads(_before[0])
            blosc.set_releasegil(_before[1])


def _forget_users() -> None:
    """In a forked child nobody works, and the lock may be held for ever."""
    global _lock, _users
    _lock = threading.Lock()
    if _users:
        _users = 0
        blosc.set_nthreads(_before[0])
        blosc.set_releasegil(_before[1])


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_users)
