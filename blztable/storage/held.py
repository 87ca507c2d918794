"""Locks within one process, for stores whose values are not files of their own.

Knows nothing of keys. A lock is on a holder, which belongs to one value or prefix.
"""

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from operator import attrgetter
from threading import Condition, RLock
from typing import Any
from weakref import WeakSet

from blztable.closing import Closing


class StoreCondition(Condition):
    """A condition for `with`: no signal handler runs between the taking of its lock and the block.

    The methods of the base class are Python code: a handler that raised in them, just after the
    lock was taken, left it held for ever. Those of the lock are C.
    """

    __enter__: Any = property(attrgetter("_lock.__enter__"))
    __exit__: Any = property(attrgetter("_lock.__exit__"))


@dataclass(slots=True, eq=False, weakref_slot=True)
class Holder:
    """The locks of one value: of sharers, or of one alone.

    Each lock is an object in a set, not a count: taking one twice or releasing it twice is harmless
    to the others, whenever the exception of a signal handler comes.
    """

    locks: set[object] = field(default_factory=set)
    is_shared: bool = False

    def admits(self, *, shared: bool) -> bool:
        """True if a lock can be taken now."""
        return not self.locks or (shared and self.is_shared)

    def take(self, lock: object, *, shared: bool) -> None:
        """Add a lock that was admitted."""
        self.is_shared = shared
        self.locks.add(lock)

    def leave(self, lock: object) -> None:
        """Release a lock."""
        self.locks.discard(lock)


class HeldLock(Closing):
    """A lock on a holder, held until it is closed or collected."""

    def __init__(
        self,
        holder: Holder,
        shared: bool,
        changed: Callable[[], StoreCondition],
        then: Callable[[], None] | None = None,
    ) -> None:
        """Take the lock; the caller has the condition. `then` is called after the release.

        `changed` returns the condition of the store in this process: the one of the parent may be
        held for ever in a child made by fork, because the thread that held it is not in the child.
        """
        self._holder: Holder | None = holder
        self._lock = object()
        self._changed = changed
        self._then = then or _nothing
        holder.take(self._lock, shared=shared)

    def close(self) -> None:
        """Release the lock; closing twice is harmless."""
        with (changed := self._changed()):
            holder, self._holder = self._holder, None
            if holder is None:
                return
            # What the call refers to is kept as long as the lock.
            then, self._then = self._then, _nothing
            try:
                holder.leave(self._lock)
                changed.notify_all()
            finally:
                then()

    def __del__(self) -> None:
        # The attribute is missing if an interrupt came before it was set. When the interpreter
        # ends, a stopped daemon thread may have the condition for ever, and what the store needs
        # may be gone; the kernel releases the locks of files.
        if hasattr(self, "_then") and not sys.is_finalizing():
            self.close()


def _nothing() -> None:
    pass


class Turn:
    """What the threads of a process hold one after another, each as often as it wants."""

    def __init__(self) -> None:
        self._renew()
        _turns.add(self)

    def _renew(self) -> None:
        """Make the lock; a thread that held it during a fork is not in the child."""
        self._lock = RLock()

    def __call__(self) -> AbstractContextManager[object]:
        """Return the lock of this process."""
        return self._lock


_turns: WeakSet[Turn] = WeakSet()


def _renew_turns() -> None:
    for turn in list(_turns):
        turn._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_turns)
