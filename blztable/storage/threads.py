"""Threads of the stores: of a flush, of requests that wait for replies, and of what is renewed.

Knows nothing of keys. No other file of the room makes a thread. The threads that wait for replies
are shared by all stores of the process: as many as it has requests in flight. They are made as they
are needed. A child made by fork has none of them, and makes its own.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import TypeVar

from blztable import tuning
from blztable.errors import StorageError
from blztable.interrupts import DeferInterrupt

__all__ = ["Future", "parallel", "repeated", "requested"]

T = TypeVar("T")
Each = Callable[[Callable[[str], None], Iterable[str]], None]

# If other processes write to the disk too, each flush waits for the journal, and parallel flushes
# take at most a third of the time. On an idle disk, parallel flushes of fewer keys are slower
# (measured).
SYNC_THREADS_FROM = 8
SYNC_THREADS = 4

_requests: ThreadPoolExecutor | None = None


def requested(call: Callable[..., T], *arguments: object) -> "Future[T]":
    """Make a call in a thread that may wait for its reply; return at once."""
    global _requests
    # The pool breaks if a signal handler raises while it starts a thread.
    with DeferInterrupt():
        if _requests is None:
            # Of two threads that make a pool, the second takes that of the first.
            made = ThreadPoolExecutor(tuning.current.requests, "blztable-requests")
            _requests = _requests or made
        try:
            return _requests.submit(call, *arguments)
        except RuntimeError:
            raise StorageError("the interpreter shuts down, and no request is made") from None


def repeated(
    call: Callable[[], float | None], seconds: float, last: Callable[[], None]
) -> Callable[[], None]:
    """Make a call again and again in a thread of its own; return what ends the thread.

    `call` returns the seconds until it is made again, None for no more. `last` is called at the
    end. What is returned may be called by a destructor: a queue of this kind takes that.
    """
    ended: SimpleQueue[None] = SimpleQueue()

    def run() -> None:
        wait: float | None = seconds
        while wait is not None:
            try:
                ended.get(timeout=wait)
                break
            except Empty:
                wait = call()
        last()

    # Else a signal handler could raise when the thread is begun and nobody can end it.
    with DeferInterrupt():
        try:
            threading.Thread(target=run, name="blztable-repeated", daemon=True).start()
        except RuntimeError:
            raise StorageError("the interpreter shuts down, and nothing is renewed") from None
    return lambda: ended.put(None)


def _forget() -> None:
    global _requests
    _requests = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


@contextmanager
def parallel(count: int) -> Iterator[Each]:
    """Yield a function that calls another one for each key, in threads if `count` is large."""
    with ExitStack() as held:
        apply: Callable[..., Iterable[None]] = map
        if count >= SYNC_THREADS_FROM:
            # The pool breaks if a signal handler raises while it starts a thread.
            held.enter_context(DeferInterrupt())
            pool = held.enter_context(ThreadPoolExecutor(SYNC_THREADS))
            # The pool refuses calls while the interpreter shuts down. Test that with `int`, because
            # a flush that may have begun must not be repeated. Without the pool, `map` is used.
            with suppress(RuntimeError):
                pool.submit(int)
                apply = pool.map

        def each(function: Callable[[str], None], keys: Iterable[str]) -> None:
            for _ in apply(function, keys):
                pass

        yield each
