"""The one home of threads: a pool made on first use, and Blosc's settings while it works.

A run is a stream of tasks, of which every worker, the caller among them, takes the next. A task may
return more tasks; they go before what the stream still has, so that what was begun gets finished
and memory stays bounded. Since the caller works too, a run never waits for a busy pool.
"""

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from types import FrameType

import blosc
import numpy as np

Task = Callable[[], "Iterable[Task] | None"]

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_blosc_users = 0
_blosc_before: tuple[int, bool] = (1, False)
_local = threading.local()


def run(tasks: Iterable[Task]) -> None:
    """Run all tasks and those they return; the first exception ends the run and is raised."""
    work = _Run(iter(tasks))
    helpers: list[Future[None]] = []
    with _interrupts_put_off(work), _blosc_settings():
        try:
            _start_helpers(work, helpers)
            work.join()
        finally:
            work.stop()
            # One that never began is not waited for: the pool may be busy with this very thread.
            wait([helper for helper in helpers if not helper.cancel()])
    if work.error is not None:
        raise work.error


def scratch(nbytes: int) -> memoryview:
    """Memory of this thread alone, of at least `nbytes`; the next call may hand it out again."""
    buffer: np.ndarray | None = getattr(_local, "scratch", None)
    if buffer is None or len(buffer) < nbytes:
        # Not cleared, so that of a small file only the pages it fills are touched.
        buffer = _local.scratch = np.empty(max(nbytes, 2 << 20), np.uint8)
    return buffer.data[:nbytes]


class _Run:
    """Tasks waiting, tasks running, and the exception that ended it all."""

    def __init__(self, source: Iterator[Task]) -> None:
        self._source: Iterator[Task] | None = source
        self._waiting: deque[Task] = deque()
        self._running = 0
        # Set without the lock by an interrupt: everyone ends with the task he is at.
        self.is_stopped = False
        self._changed = threading.Condition()
        self.error: BaseException | None = None

    def join(self) -> None:
        """Work until nothing is left."""
        more: Iterable[Task] | None = None
        first = True
        while True:
            task = self._next(more, first)
            if task is None:
                return
            first = False
            try:
                more = task()
            except BaseException as error:
                self._fail(error)
                return

    def stop(self) -> None:
        """Let workers end with the task they are at."""
        with self._changed:
            self.is_stopped = True
            self._source = None
            self._waiting.clear()
            self._changed.notify_all()

    def _next(self, more: Iterable[Task] | None, first: bool) -> Task | None:
        """Take back what a task returned and hand out the next; wait while others may add some."""
        with self._changed:
            if not first:
                self._running -= 1
            if more:
                self._waiting.extend(more)
            while not self.is_stopped and self.error is None:
                task = self._waiting.popleft() if self._waiting else self._pull()
                if task is not None:
                    self._running += 1
                    if self._waiting:
                        self._changed.notify()
                    return task
                if self._running == 0:
                    break
                self._changed.wait()
            self._changed.notify_all()
            return None

    def _pull(self) -> Task | None:
        if self._source is None:
            return None
        try:
            task = next(self._source, None)
        except BaseException as error:
            self.error = self.error or error
            task = None
        if task is None:
            self._source = None
        return task

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._running -= 1
            self.error = self.error or error
            self._source = None
            self._waiting.clear()
            self._changed.notify_all()


def _processors() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS does not tell.
        return os.cpu_count() or 1


def _start_helpers(work: _Run, helpers: list[Future[None]]) -> None:
    global _pool
    count = _processors() - 1
    if count < 1:
        return
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(count, "blztable")
        # When the interpreter shuts down the caller works alone.
        with suppress(RuntimeError):
            helpers.extend(_pool.submit(work.join) for _ in range(count))


@contextmanager
def _interrupts_put_off(work: _Run) -> Iterator[None]:
    """Let Ctrl-C end the run between two tasks, and be raised when its threads have ended.

    Raised in the middle it could leave a lock of ours, or of the pool, held for ever, or threads
    that still write behind the caller's back.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    received: list[tuple[int, FrameType | None]] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append((number, frame))
        work.is_stopped = True

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if received:
            before(*received[-1])


@contextmanager
def _blosc_settings() -> Iterator[None]:
    """One Blosc thread a call and the GIL released, put back when the last run ends.

    With the GIL released Blosc also ignores the BLOSC_* variables of the environment.
    """
    global _blosc_users, _blosc_before
    with _lock:
        if _blosc_users == 0:
            _blosc_before = blosc.set_nthreads(1), blosc.set_releasegil(True)
        _blosc_users += 1
    try:
        yield
    finally:
        with _lock:
            _blosc_users -= 1
            if _blosc_users == 0:
                blosc.set_nthreads(_blosc_before[0])
                blosc.set_releasegil(_blosc_before[1])


def _forget_pool() -> None:
    """In a forked child the pool's threads are gone and its locks may be held for ever."""
    global _pool, _lock, _blosc_users
    _pool = None
    _lock = threading.Lock()
    if _blosc_users:
        _blosc_users = 0
        blosc.set_nthreads(_blosc_before[0])
        blosc.set_releasegil(_blosc_before[1])


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)
