"""Files in flight: the locks that keep a vacuum from removing the new files of writers.

Theory of operation
-------------------
There are two locks. A writer holds both shared from before its first file until after its commit.
A vacuum holds both exclusively; so does a writer that removes the files of an unfinished creation.

1. A lock on the directory of manifests. Earlier builds of 0.1.0 take only this one.
2. A lock on an empty file, because NFS keeps the lock of a directory on one machine.

All processes take them in this order, so two processes never wait for each other.

A lock on `meta` is a gate. A writer passes the gate and does not keep its lock. A vacuum that waits
closes the gate, so that later writers wait for the vacuum. It opens the gate again from time to
time, so that no writer waits for a vacuum that waits for another writer for hours.
"""

import time
from contextlib import ExitStack

from blztable import interrupts, tuning
from blztable.errors import BusyError
from blztable.format import layout
from blztable.storage.store import KeyNotFound, Lock, Store


def writing(store: Store) -> ExitStack:
    """Announce files in flight until the result is closed."""
    with _lock(store, layout.META, shared=True, wait=tuning.current.lock_seconds):
        return _lock_both(store, shared=True, wait=tuning.current.lock_seconds)


def alone(store: Store, wait: float) -> ExitStack:
    """Block writers until the result is closed; BusyError if one is active for `wait` seconds."""
    deadline = time.monotonic() + wait
    while True:
        left = max(deadline - time.monotonic(), 0.0)
        try:
            with _lock(store, layout.META, shared=False, wait=left):
                left = max(deadline - time.monotonic(), 0.0)
                return _lock_both(
                    store, shared=False, wait=min(left, tuning.current.gate_closed_seconds)
                )
        except BusyError:
            if time.monotonic() + tuning.current.gate_open_seconds >= deadline:
                raise
        interrupts.raise_pending()
        time.sleep(tuning.current.gate_open_seconds)


def writers_lock(store: Store, *, durable: bool) -> Lock:
    """Take the lock under which one writer at a time publishes a version."""
    try:
        return store.lock(layout.LOCK, shared=False, timeout=tuning.current.lock_seconds)
    except KeyNotFound:
        # Some tools leave empty files out of a copy.
        store.prepare(*layout.PREPARED, durable=durable)
        return store.lock(layout.LOCK, shared=False, timeout=tuning.current.lock_seconds)


def _lock_both(store: Store, *, shared: bool, wait: float) -> ExitStack:
    """Take the two locks within `wait` seconds."""
    deadline = time.monotonic() + wait
    with ExitStack() as held:
        held.enter_context(_lock(store, layout.MANIFESTS, shared=shared, wait=wait))
        left = max(deadline - time.monotonic(), 0.0)
        try:
            file = _lock(store, layout.FLIGHT, shared=shared, wait=left)
        except KeyNotFound:
            # Earlier builds of 0.1.0 made no such file; some tools leave empty files out of a copy.
            store.prepare(*layout.PREPARED, durable=False)
            file = _lock(store, layout.FLIGHT, shared=shared, wait=left)
        held.enter_context(file)
        return held.pop_all()


def _lock(store: Store, key: str, *, shared: bool, wait: float) -> Lock:
    # A forked child cannot continue the transaction, so it does not inherit the lock.
    return store.lock(key, shared=shared, timeout=wait, inherited=False)
