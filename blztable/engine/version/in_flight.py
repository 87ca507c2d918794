"""Files in flight: the locks that keep writers and those who remove files apart.

A writer holds them shared from before its first file until after its commit. A vacuum holds them
exclusively, and so does the writer that clears what an unfinished creation left.

There are two of them: on the directory of manifests, which earlier builds of 0.1.0 lock alone, and
on an empty file, for NFS keeps the lock of a directory to one machine. Both are always taken in
this order, or two processes could wait for each other.

Before them lies a gate, a lock on `meta` that a writer passes and does not keep. A vacuum that
waits closes it, so writers that come after the vacuum let it go first. It opens the gate again from
time to time: behind a writer that takes hours, others must not wait for a vacuum.
"""

import time
from contextlib import ExitStack

from blztable import interrupts
from blztable.engine.version.versions import LOCK_SECONDS
from blztable.errors import BusyError
from blztable.format import layout
from blztable.storage.store import KeyNotFound, Lock, Store

# Seconds for which a vacuum that waits keeps the gate closed, and then open.
CLOSED_SECONDS = 1.0
OPEN_SECONDS = 0.2


def writing(store: Store) -> ExitStack:
    """Announce files in flight, until the result is closed."""
    with _lock(store, layout.META, shared=True, wait=LOCK_SECONDS):
        return _both(store, shared=True, wait=LOCK_SECONDS)


def alone(store: Store, wait: float) -> ExitStack:
    """Keep writers out; BusyError if a writer is at work for `wait` seconds."""
    deadline = time.monotonic() + wait
    while True:
        left = max(deadline - time.monotonic(), 0.0)
        try:
            with _lock(store, layout.META, shared=False, wait=left):
                left = max(deadline - time.monotonic(), 0.0)
                return _both(store, shared=False, wait=min(left, CLOSED_SECONDS))
        except BusyError:
            if time.monotonic() + OPEN_SECONDS >= deadline:
                raise
        interrupts.raise_pending()
        time.sleep(OPEN_SECONDS)


def writers_lock(store: Store, *, durable: bool) -> Lock:
    """The lock under which one writer at a time publishes a version."""
    try:
        return store.lock(layout.LOCK, shared=False, timeout=LOCK_SECONDS)
    except KeyNotFound:
        # An empty file, which some tools leave out of a copy.
        store.prepare(*layout.PREPARED, durable=durable)
        return store.lock(layout.LOCK, shared=False, timeout=LOCK_SECONDS)


def _both(store: Store, *, shared: bool, wait: float) -> ExitStack:
    deadline = time.monotonic() + wait
    with ExitStack() as held:
        held.enter_context(_lock(store, layout.MANIFESTS, shared=shared, wait=wait))
        left = max(deadline - time.monotonic(), 0.0)
        try:
            file = _lock(store, layout.FLIGHT, shared=shared, wait=left)
        except KeyNotFound:
            # Earlier builds of 0.1.0 made none, and some tools leave empty files out of a copy.
            store.prepare(*layout.PREPARED, durable=False)
            file = _lock(store, layout.FLIGHT, shared=shared, wait=left)
        held.enter_context(file)
        return held.pop_all()


def _lock(store: Store, key: str, *, shared: bool, wait: float) -> Lock:
    # A child made by fork cannot continue the transaction, so it is not at work.
    return store.lock(key, shared=shared, timeout=wait, inherited=False)
