"""The one home of threads: a pool made on first use.

A run is a stream of tasks, of which every worker, the caller among them, takes the next. A task may
return more tasks; they go before what the stream still has, so that what was begun gets finished
and memory stays bounded. Since the caller works too, a run never waits for a busy pool.

Two more ways to overlap: `run_groups` works at one group of tasks while the caller fetches the
next, and `Ahead` makes the next result while the caller works with the last.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from itertools import chain, islice
from typing import Generic, TypeVar

from blztable.engine.run import blosc_settings
from blztable.engine.run.tasks import Task
from blztable.errors import ClosedError
from blztable.interrupts import DeferInterrupt

T = TypeVar("T")

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None


def run(tasks: Iterable[Task], between: Callable[[], None] | None = None) -> None:
    """Run all tasks and those they return; the first exception ends the run and is raised.

    Ctrl-C ends it between two tasks and is raised when all threads are done: in the middle it could
    leave a lock held for ever, or threads that write behind the caller's back.

    `between` is called by the caller's thread after each task that it ran itself.
    """
    tasks = iter(tasks)
    first = list(islice(tasks, 2))
    if len(first) == 1:
        # One alone is done before a helper has woken up.
        first = _alone(first[0], between)
    if not first:
        return
    interrupt = _Interrupt()
    with DeferInterrupt(interrupt.come), _working(interrupt) as change_set:
        change_set.call_helpers()
        change_set.add(chain(first, tasks))
        change_set.end()
        change_set.join(between)
    change_set.check()


def _alone(task: Task, between: Callable[[], None] | None) -> list[Task]:
    """Run a task; those that it returns are handed back."""
    with DeferInterrupt():
        blosc_settings.begin()
        try:
            more = list(task() or ())
            if between is not None:
                between()
        finally:
            blosc_settings.end()
    return more


def run_groups(
    groups: Iterable[Iterable[Task]],
    may_fetch: Callable[[], bool],
    between: Callable[[], None] | None = None,
    is_small: Callable[[], bool] = lambda: False,
) -> None:
    """Run the tasks of group after group, while the caller's thread fetches the next group.

    While `is_small` says so he works alone: he is done before others have woken up.

    Only the caller walks through `groups`, outside of any lock, and there Ctrl-C is raised at once.
    The caller works too, until `may_fetch` says that enough is done to hold another group.
    """
    interrupt = _Interrupt()
    with _working(interrupt) as change_set:
        for tasks in groups:
            with DeferInterrupt(interrupt.come):
                if not is_small():
                    change_set.call_helpers()
                change_set.add(tasks)
                del tasks
                change_set.join(between, may_fetch)
            if change_set.is_over:
                break
        with DeferInterrupt(interrupt.come):
            change_set.end()
            change_set.join(between)
            # Not only below, where Ctrl-C could come between two lines.
            change_set.close()
    change_set.check()


class Ahead(Generic[T]):
    """The results of jobs in their order; `begin` makes the next while the caller works on.

    No more than that one is made before it is asked for. Usable from several threads, and from a
    forked child, which makes the result that was under way again.
    """

    def __init__(self, jobs: Iterable[Callable[[], T]]) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._result: Future[T] | None = None
        self._forget_parent()
        self._jobs = iter(jobs)
        # The next one; its result is there if it was begun.
        self._job: Callable[[], T] | None = None
        self._is_closed = False

    def __iter__(self) -> "Ahead[T]":
        return self

    def __next__(self) -> T:
        """The next result; ClosedError after `close`, whatever the job raised if it did."""
        with self.turn():
            self.check_open()
            if self._job is None:
                self._job = next(self._jobs)
            try:
                result = self._job() if self._result is None else self._result.result()
            except KeyboardInterrupt:
                raise  # The next call goes on with the same job.
            except BaseException:
                self.check_open()
                self._let_go()
                self._drop()
                raise
            self._job = self._result = None
            return result

    def begin(self) -> None:
        """Begin with the next result, if there is one and nobody did."""
        with self.turn(), self._starting:
            if self._job is not None or self._is_closed:
                return
            self._job = next(self._jobs, None)
            if self._job is None:
                self._let_go()
                return
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, "blztable-ahead")
            # Refused when the interpreter shuts down: then the caller makes it himself.
            with suppress(RuntimeError):
                self._result = self._thread.submit(self._job)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Let one thread at a time go on; the last one lets go of what was closed meanwhile."""
        if self._pid != os.getpid():
            self._forget_parent()
        try:
            with self._turn:
                yield
        finally:
            if self._is_closed:
                self._drop()

    def check_open(self) -> None:
        """ClosedError after `close`."""
        if self._is_closed:
            raise ClosedError("reading from a stream that was closed; begin another one")

    def close(self) -> None:
        """Make no more; a result under way is waited for, then nothing of it is left."""
        if self._pid != os.getpid():
            self._forget_parent()
        with self._starting:
            self._is_closed = True
        self._let_go()
        self._drop()

    def __del__(self) -> None:
        # Not waited for: this may be the very thread that would be waited for.
        self._let_go(wait=False)

    def _let_go(self, *, wait: bool = True) -> None:
        thread, self._thread = self._thread, None
        if thread is not None and self._pid == os.getpid():
            # Closed by the very thread, which cannot wait for itself: a generator collected there.
            with suppress(RuntimeError):
                thread.shutdown(wait=wait, cancel_futures=True)

    def _drop(self) -> None:
        """Forget the jobs and what they hold; who has the turn does it when he is done."""
        if self._turn.acquire(blocking=False):
            jobs, self._jobs, self._job, self._result = self._jobs, iter(()), None, None
            self._turn.release()
            if isinstance(jobs, Generator):
                with suppress(ValueError):  # Running at this moment.
                    jobs.close()

    def _forget_parent(self) -> None:
        """In a forked child the thread is gone, and its locks may be held for ever."""
        self._pid = os.getpid()
        # Entered again by a handler of a signal, which may close what it interrupts.
        self._turn, self._starting = threading.RLock(), threading.RLock()
        self._thread = self._result = None


class _Interrupt:
    """Whether Ctrl-C came while it was put off: then a run ends between two tasks."""

    def __init__(self) -> None:
        self.received = False

    def come(self) -> None:
        """It came."""
        self.received = True


class _Run:
    """Groups of tasks, tasks waiting, tasks running, and the exception that ended it all."""

    def __init__(self, interrupt: _Interrupt) -> None:
        self._interrupt = interrupt
        self._groups: deque[Iterator[Task]] = deque()
        # What tasks returned: taken before the groups.
        self._waiting: deque[Task] = deque()
        self._running = 0
        self._is_open = False
        self._is_ended = False
        self._is_stopped = False
        self._changed = threading.Condition()
        # None until they are called.
        self.helpers: list[Future[None]] | None = None
        self.error: BaseException | None = None

    def call_helpers(self) -> None:
        """Let the pool help, if it does not yet."""
        if self.helpers is None:
            self.helpers = []
            _start_helpers(self, self.helpers)

    @property
    def is_over(self) -> bool:
        """Whether everyone ends with the task he is at."""
        return self._is_stopped or self._interrupt.received or self.error is not None

    def add(self, tasks: Iterable[Task]) -> None:
        """One more group; its tasks are taken one by one, as those before have been begun."""
        with self._changed:
            self._groups.append(iter(tasks))
            self._changed.notify_all()

    def end(self) -> None:
        """No more groups will come."""
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()

    def join(
        self,
        between: Callable[[], None] | None = None,
        is_enough: Callable[[], bool] | None = None,
    ) -> None:
        """Work until it is enough, or all is done."""
        more: Iterable[Task] | None = None
        first = True
        while True:
            task = self._next(more, first, is_enough)
            if task is None:
                return
            # What was handed back is not held here while another task runs.
            first, more = False, None
            try:
                more = task()
                del task
                if between is not None:
                    between()
            except BaseException as error:
                self._fail(error)
                return

    def check(self) -> None:
        """Raise the exception that ended it; out of a context, a StopIteration would be lost."""
        error, self.error = self.error, None
        try:
            if error is not None:
                raise error
        finally:
            # Else its traceback, this frame and all that was read would hold each other.
            del error

    def open(self) -> None:
        """Have Blosc work as threads of ours need it."""
        blosc_settings.begin()
        self._is_open = True

    def close(self) -> None:
        """Let workers end with the task they are at, and wait for them; twice is harmless."""
        with self._changed:
            self._is_stopped = True
            self._drop()
        # One that never began is not waited for: the pool may be busy with this thread.
        wait([helper for helper in self.helpers or () if not helper.cancel()])
        if self._is_open:
            self._is_open = False
            blosc_settings.end()

    def _next(
        self,
        more: Iterable[Task] | None,
        first: bool,
        is_enough: Callable[[], bool] | None,
    ) -> Task | None:
        """Take back what a task returned and hand out the next; wait while others may add some."""
        with self._changed:
            if not first:
                self._running -= 1
                # Someone may wait for just this one to be done.
                self._changed.notify_all()
            if more:
                self._waiting.extend(more)
            while not self.is_over:
                if is_enough is not None and is_enough():
                    return None
                task = self._waiting.popleft() if self._waiting else self._pull()
                if task is not None:
                    self._running += 1
                    if self._waiting:
                        self._changed.notify()
                    return task
                if self._running == 0 and (self._is_ended or is_enough is not None):
                    break
                self._changed.wait()
            self._changed.notify_all()
            return None

    def _pull(self) -> Task | None:
        while self._groups and self.error is None:
            try:
                task = next(self._groups[0], None)
            except BaseException as error:
                self.error = error
                self._drop()
                return None
            if task is not None:
                return task
            self._groups.popleft()
        return None

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._running -= 1
            self.error = self.error or error
            self._drop()

    def _drop(self) -> None:
        self._groups.clear()
        self._waiting.clear()
        self._changed.notify_all()


def _processors() -> int:
    affinity = getattr(os, "sched_getaffinity", None)  # Linux has it.
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


@contextmanager
def _working(interrupt: _Interrupt) -> Iterator[_Run]:
    """A run that the pool may help with; when it is left, nobody works any more."""
    change_set = _Run(interrupt)
    try:
        with DeferInterrupt():
            change_set.open()
        yield change_set
    finally:
        with DeferInterrupt():
            change_set.close()


def _start_helpers(change_set: _Run, helpers: list[Future[None]]) -> None:
    global _pool
    count = _processors() - 1
    if count < 1:
        return
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(count, "blztable")
        # When the interpreter shuts down the caller works alone.
        with suppress(RuntimeError):
            helpers.extend(_pool.submit(change_set.join) for _ in range(count))


def _forget_pool() -> None:
    """In a forked child the pool's threads are gone and its locks may be held for ever."""
    global _pool, _lock
    _pool = None
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)
