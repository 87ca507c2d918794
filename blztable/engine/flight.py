"""Files in flight: the locks that keep writers and those who remove files apart.

A writer holds them shared from before its first file until after its commit. A vacuum holds them
exclusively, and so does the writer that clears what an unfinished creation left.

There are two of them. Programs of version 0.1 lock the directory of manifests only. NFS keeps the
lock of a directory to one machine, so there is an empty file as well. Both are always taken in this
order, or two processes could wait for each other.
"""

import time
from contextlib import ExitStack

from blztable.engine.versions import LOCK_SECONDS
from blztable.format import layout
from blztable.storage.store import KeyNotFound, Lock, Store


def writing(store: Store) -> ExitStack:
    """Hold that files are in flight, until it is closed."""
    return _both(store, shared=True, wait=LOCK_SECONDS)


def alone(store: Store, wait: float) -> ExitStack:
    """Hold that no files are in flight; BusyError if a writer is at work for `wait` seconds."""
    return _both(store, shared=False, wait=wait)


def _both(store: Store, *, shared: bool, wait: float) -> ExitStack:
    deadline = time.monotonic() + wait
    with ExitStack() as held:
        held.enter_context(_lock(store, layout.MANIFESTS, shared=shared, wait=wait))
        left = max(deadline - time.monotonic(), 0.0)
        try:
            file = _lock(store, layout.FLIGHT, shared=shared, wait=left)
        except KeyNotFound:
            # Version 0.1 made none, and some tools leave an empty file out of a copy.
            store.prepare(durable=False)
            file = _lock(store, layout.FLIGHT, shared=shared, wait=left)
        held.enter_context(file)
        return held.pop_all()


def _lock(store: Store, key: str, *, shared: bool, wait: float) -> Lock:
    # A child made by fork cannot go on with the transaction, so it is not at work.
    return store.lock(key, shared=shared, timeout=wait, inherited=False)
