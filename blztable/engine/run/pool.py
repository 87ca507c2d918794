"""The pool: run the tasks of a read or a write in the threads of the process; report progress.

Knows nothing of columns, files or tables. No other file of the engine makes a thread.

Theory of operation
-------------------
A read or a write is a chain of iterators. Each one draws from the one before it only when the pool
needs another task:

    iterator                                          thread
    user's iterator, convert/, row_groups             caller's thread, no lock held
    tasks of one row group (write), of a read         any thread, under the lock of the run
    a task: encode, compress, decode, file access     any thread, no lock held
    after_task: the user's progress callback          caller's thread, no lock held

The threads of a run are the caller and its helpers. Helpers are the threads of one pool for the
process, one for each processor but one, or as many as `threads.py` says. The caller runs tasks too,
so a run always ends, also inside of a task or when the pool is busy. Each thread takes the next
task. A task may return more tasks; they run before the tasks not yet drawn, so begun work is
finished first.

Memory: a thread holds one task. `run_groups` fetches another group only when its budget has room.
Exception: the first exception ends the run. No task begins after it and waiting tasks are dropped.
The caller waits for the running tasks, then raises it. An exception of an iterator, also of one
that is closed in the middle, does the same.
Signals: an exception of a signal handler, such as that of Ctrl-C, is raised at once while the
caller draws from the user's iterator. Elsewhere it ends the run between two tasks and is raised
when all threads are done. Inside of a task it could leave a lock held for ever, or leave threads
that still write. A run without helpers defers Ctrl-C alone: asking for each signal takes time.
Fork: the child has none of these threads and makes a pool of its own.
Blosc: while our threads call it, it uses one thread and releases the GIL. These settings are global
for the process; the last run restores the old ones, for other users of Blosc.
Scratch memory: each thread reuses a few buffers for short-lived bytes (`scratch`).

The prefetcher: compute the next result while the caller works with the last one. A thread that asks
for a result draws the jobs, one at a time, under the lock `_turn`. `prefetch` draws one job and
starts it in a thread of its own; the pool runs the tasks of the job. `__next__` waits for that
result, or computes it itself. So memory holds at most one result ahead. Exception: raised in its
turn; it ends the results. Ctrl-C while waiting: the job continues, and the next call returns its
result. `close` waits for the running job, never for a lock that a reader holds: the reader drops
the jobs when it leaves. The thread that runs the job may itself call `close`. Fork: the child has
no such thread and computes the result again.

Progress: report the number of rows done by a write or a read. Any thread adds cells, in any order.
Only the caller's thread calls the user's callback.
"""

import operator
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, islice
from typing import Generic, TypeVar

import blosc
import numpy as np

from blztable.engine.run.limits import MemoryBudget
from blztable.engine.run.threads import processors as _processors
from blztable.errors import ClosedError
from blztable.interrupts import DeferInterrupt

# Called with the number of rows done and the number of all rows (None: not known).
Callback = Callable[[int, int | None], object]


class Progress:
    """Counts cells (rows times columns) and reports them as rows."""

    def __init__(
        self, callback: Callback | None, rows: int | None, columns: int, writes: int = 1
    ) -> None:
        """Start at 0; each row is written so many times."""
        self._callback = callback
        self._rows = rows
        self._writes = writes
        self._columns = max(columns, 1) * writes
        self._cells = 0.0
        self._reported: tuple[int, int | None] | None = None
        self._lock = threading.Lock()

    def add(self, cells: float) -> None:
        """Add cells that are done: rows of one column."""
        with self._lock:
            self._cells += cells

    def report(self) -> None:
        """Call the callback if the number of rows has changed since the last call."""
        done = int(self._cells / self._columns)
        if self._callback is not None and (done, self._rows) != self._reported:
            self._reported = done, self._rows
            self._callback(done, self._rows)

    def resume(self, rows: int, columns: int) -> None:
        """Continue with a new number of columns; `rows` rows are done."""
        with self._lock:
            self._columns = max(columns, 1) * self._writes
            self._cells = float(rows * max(columns, 1))

    def finish(self, rows: int) -> None:
        """Report that all rows are done."""
        self._cells, self._rows = rows * self._columns, rows
        self.report()


# A call without arguments; it may return more tasks.
Task = Callable[[], "Iterable[Task] | None"]
T = TypeVar("T")
# Larger buffers of scratch memory are rare, and are not kept.
MOST_KEPT = 16 << 20

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_pool_size = 0
_blosc_lock = threading.Lock()
# The runs that use Blosc, and the settings from before the first one.
_blosc_users: set[object] = set()
_blosc_before: deque[int] = deque()
_local = threading.local()
_NO_BUFFER = np.empty(0, np.uint8), 0


def batches(calls: Iterable[Callable[[], None]], size: int = 16) -> Iterator[Task]:
    """Group calls that are too small for one task each into tasks of `size` calls."""
    calls = iter(calls)
    while batch := list(islice(calls, max(size, 1))):
        yield partial(_call_all, batch)


def _call_all(calls: Iterable[Callable[[], None]]) -> None:
    for call in calls:
        call()


def run(
    tasks: Iterable[Task],
    after_task: Callable[[], None] | None = None,
    *,
    is_alone: bool = False,
) -> None:
    """Run all tasks and the tasks that they return; raise the first exception.

    The caller's thread calls `after_task` after each task that it ran itself. If it `is_alone`, no
    other thread helps.
    """
    tasks = iter(tasks)
    first = list(islice(tasks, 1))
    if not first:
        # Many runs of a read have no task.
        return
    tasks = chain(first, tasks)
    work = None if is_alone else _PoolRun(None, after_task)
    deferred = DeferInterrupt(work.stop if work else None, others=False)
    user = work or deferred
    end = work.close if work else partial(end_blosc, deferred)
    try:
        with deferred:
            try:
                if work:
                    work.add(tasks)
                    work.join(lambda: False, deferred)
                else:
                    begin_blosc(user)
                    _run_alone(tasks, after_task)
            finally:
                end()
    finally:
        # A signal that is not deferred may end `end`, or `with`, before it does anything.
        deferred.restore()
        if user in _blosc_users:
            end()
    if work:
        work.check()


def _run_alone(tasks: Iterator[Task], after_task: Callable[[], None] | None) -> None:
    """Run tasks that are too short to be shared with other threads."""
    waiting = [tasks]
    while waiting:
        task = next(waiting[-1], None)
        if task is None:
            waiting.pop()
            continue
        if more := task():
            waiting.append(iter(more))
        if after_task is not None:
            after_task()


def run_groups(
    groups: Iterable[Iterable[Task]],
    budget: MemoryBudget,
    after_task: Callable[[], None] | None = None,
) -> None:
    """Run the tasks of each group; fetch the next group when the budget has room for it.

    Only the caller's thread draws from `groups`.
    """
    work = _PoolRun(budget, after_task)
    try:
        for tasks in groups:
            with DeferInterrupt(work.stop) as deferred:
                work.add(tasks)
                del tasks
                work.join(budget.has_room, deferred)
            if work.is_over:
                break
        with DeferInterrupt(work.stop) as deferred:
            work.join(lambda: False, deferred)
            # Close here too: Ctrl-C could come just before the `with` below.
            work.close()
    finally:
        with DeferInterrupt():
            work.close()
    work.check()


class Background(Generic[T]):
    """A call in a thread of its own; RuntimeError while the interpreter shuts down."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._thread = ThreadPoolExecutor(1, "blztable-prefetch")
        # The executor breaks if a signal handler raises while it starts a thread.
        with DeferInterrupt():
            self._future: Future[T] = self._thread.submit(call)
            # The thread ends with the call.
            self._thread.shutdown(wait=False)

    def result(self) -> T:
        """Wait for the result of the call, and for the end of the thread."""
        wait([self._future])
        self.wait()
        return self._future.result()

    def wait(self) -> None:
        """Wait for the end of the thread, unless this is the thread itself."""
        # RuntimeError: the thread itself may collect a generator that closes this object.
        with suppress(RuntimeError):
            self._thread.shutdown()


class _PoolRun:
    """A run: its waiting tasks, the number of running tasks, and the exception that ended it."""

    def __init__(
        self,
        budget: MemoryBudget | None,
        after_task: Callable[[], None] | None,
    ) -> None:
        self._budget = budget
        self._after_task = after_task
        self._groups: deque[Iterator[Task]] = deque()
        # Tasks that tasks returned; they are taken before the tasks of the groups.
        self._returned: deque[Task] = deque()
        self._running = 0
        # Set by an exception, Ctrl-C or `close`. After that no task begins.
        self.is_over = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        # None until helpers are called.
        self._helpers: list[Future[None]] | None = None

    def add(self, tasks: Iterable[Task]) -> None:
        """Add a group. Its tasks are drawn one by one, after the tasks of earlier groups."""
        if self not in _blosc_users:
            begin_blosc(self)
        with self._changed:
            self._groups.append(iter(tasks))
            self._notify()

    def join(
        self,
        may_leave: Callable[[], bool] | None = None,
        deferred: DeferInterrupt | None = None,
    ) -> None:
        """Run tasks in this thread until the run is over.

        The caller's thread passes `may_leave` and also returns when it is true or no task is left.
        It raises the `deferred` signals between two tasks. A helper passes None and waits for the
        next group instead.
        """
        more: Iterable[Task] | None = None
        task = self._next(0, None, may_leave)
        while task is not None:
            if may_leave is not None and self._helpers is None and self._needs_help():
                self._helpers = []
                if deferred is not None:
                    deferred.defer_others()
                _call_helpers(self.join, self._helpers)
            try:
                more = task()
                del task
                if may_leave is not None and self._after_task is not None:
                    self._after_task()
                if deferred is not None:
                    deferred.raise_pending()
            except BaseException as error:
                self._fail(error)
                return
            task = self._next(1, more, may_leave)
            # Release it before the next task runs.
            more = None

    def stop(self) -> None:
        """Begin no more tasks. This takes no lock, because a signal handler calls it."""
        self.is_over = True

    def close(self) -> None:
        """Begin no more tasks and wait for the running ones; closing twice is harmless."""
        with self._changed:
            self._drop()
        if self._helpers:
            # Cancel helpers that never began: the pool may be waiting for this thread.
            for helper in self._helpers:
                if not helper.cancel():
                    helper.exception()
        if self in _blosc_users:
            end_blosc(self)

    def check(self) -> None:
        """Raise the exception that ended the run."""
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            # Otherwise the traceback and this frame would form a cycle that keeps the data alive.
            del error

    def _next(
        self, done: int, more: Iterable[Task] | None, may_leave: Callable[[], bool] | None
    ) -> Task | None:
        """Queue the tasks that the last task returned; return the next task, None to leave."""
        with self._changed:
            self._running -= done
            if more:
                self._returned.extend(more)
            if done:
                # Another thread may wait for this task.
                self._notify()
            while not self.is_over:
                if may_leave is not None and may_leave():
                    return None
                task = self._returned.popleft() if self._returned else self._draw()
                if task is not None:
                    self._running += 1
                    return task
                if self._running == 0 and may_leave is not None:
                    return None
                if not self.is_over:
                    self._changed.wait()
            return None

    def _needs_help(self) -> bool:
        """True if more tasks wait: a single task ends before a helper has started."""
        if self._budget is not None and self._budget.is_small():
            return False
        with self._changed:
            if not self._returned and (task := self._draw()) is not None:
                self._groups.appendleft(iter((task,)))
            return bool(self._returned or self._groups)

    def _draw(self) -> Task | None:
        """Return the next task of the groups; None if none is left or drawing it failed."""
        while self._groups:
            try:
                task = next(self._groups[0], None)
            except BaseException as error:
                self._error = self._error or error
                self._drop()
                return None
            if task is not None:
                return task
            self._groups.popleft()
        return None

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._running -= 1
            self._error = self._error or error
            self._drop()

    def _drop(self) -> None:
        self.is_over = True
        self._groups.clear()
        self._returned.clear()
        self._notify()

    def _notify(self) -> None:
        if self._helpers is not None:
            self._changed.notify_all()


def _call_helpers(join: Callable[[], None], helpers: list[Future[None]]) -> None:
    """Submit `join` to each thread of the pool; append the futures to `helpers`."""
    global _pool, _pool_size
    count = _processors() - 1
    if count < 1:
        return
    with _lock:
        if _pool is None or _pool_size != count:
            if _pool is not None:
                # Its threads end with the runs that they help.
                _pool.shutdown(wait=False)
            _pool, _pool_size = ThreadPoolExecutor(count, "blztable"), count
        # The pool refuses calls while the interpreter shuts down: the caller works alone.
        with suppress(RuntimeError):
            helpers.extend(_pool.submit(join) for _ in range(count))


def _forget_pool() -> None:
    """Reset the pool in a forked child: it has no threads, and the lock may be held for ever."""
    global _pool, _lock
    _pool = None
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


# Each sets one number and returns the one before. Not the functions of `blosc` around them, which
# make four calls of Python a run.
_SETTERS = blosc.blosc_extension.set_nthreads, blosc.blosc_extension.set_releasegil


def begin_blosc(user: object) -> None:
    """Use one Blosc thread and release the GIL, until each user has called `end_blosc`.

    Blosc then also ignores the BLOSC_* environment variables.
    """
    with _blosc_lock:
        _blosc_users.add(user)
        if not _blosc_before:
            # One step of Python: a signal handler may raise between two.
            _blosc_before.extend(map(operator.call, _SETTERS, (1, True)))


def end_blosc(user: object) -> None:
    """Restore the settings after the last user; doing it twice is harmless."""
    with _blosc_lock:
        _blosc_users.discard(user)
        if not _blosc_users and _blosc_before:
            # One step too.
            deque(map(operator.call, _SETTERS, iter(_blosc_before.popleft, None)), 0)


def _forget_blosc_users() -> None:
    """Reset the state in a forked child: it has no runs, and the lock may be held for ever."""
    global _blosc_lock
    _blosc_lock = threading.Lock()
    _blosc_users.clear()
    end_blosc(None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_blosc_users)


def scratch(nbytes: int, number: int = 0) -> tuple[np.ndarray, int]:
    """Return `nbytes` bytes of this thread, and their address; the next call returns them again.

    Buffers with different numbers may be used at the same time.
    """
    buffers: dict[int, tuple[np.ndarray, int]] = _local.__dict__.setdefault("scratch", {})
    buffer, address = buffers.get(number, _NO_BUFFER)
    if len(buffer) < nbytes:
        # `empty` does not touch memory pages: a small file uses only the pages that it fills.
        buffer = np.empty(max(nbytes, 2 << 20), np.uint8)
        address = buffer.__array_interface__["data"][0]
        if nbytes <= MOST_KEPT:
            buffers[number] = buffer, address
    return buffer[:nbytes], address


class Prefetcher(Generic[T]):
    """An iterator over the results of jobs, in their order; several threads may share it."""

    def __init__(self, jobs: Iterable[Callable[[], T]]) -> None:
        self._jobs = iter(jobs)
        # The job drawn last, until its result is returned.
        self._job: Callable[[], T] | None = None
        self._is_closed = False
        self._started: Background[T] | None = None
        self._forget_parent()

    def __iter__(self) -> "Prefetcher[T]":
        return self

    def __next__(self) -> T:
        """Return the next result; raise ClosedError after `close`, or the exception of the job."""
        with self.exclusive():
            self.check_open()
            if self._job is None:
                self._job = next(self._jobs)
            try:
                result = self._job() if self._started is None else self._started.result()
            except KeyboardInterrupt:
                raise  # The next call continues with the same job.
            except BaseException:
                self.check_open()
                self._drop()
                raise
            self._job = self._started = None
            return result

    def prefetch(self) -> None:
        """Start the next job in a thread of its own, unless a job is already drawn."""
        with self.exclusive(), self._starting:
            if self._job is None and not self._is_closed:
                self._job = next(self._jobs, None)
                if self._job is not None:
                    # Refused while the interpreter shuts down: then the caller runs the job.
                    with suppress(RuntimeError):
                        self._started = Background(self._job)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Let in one thread at a time; the last to leave drops the jobs if `close` was called."""
        if self._pid != os.getpid():
            self._forget_parent()
        try:
            with self._turn:
                yield
        finally:
            if self._is_closed:
                self._drop()

    def check_open(self) -> None:
        """Raise ClosedError after `close`."""
        if self._is_closed:
            raise ClosedError("the stream was closed; open a new one")

    def close(self) -> None:
        """Start no more jobs, wait for the running one, and drop all results."""
        if self._pid != os.getpid():
            self._forget_parent()
        with self._starting:
            self._is_closed = True
        self._wait()
        self._drop()

    def _wait(self) -> None:
        started = self._started
        if started is not None:
            started.wait()

    def _drop(self) -> None:
        """Drop the jobs. If another thread has the turn, it drops them when it leaves."""
        if self._turn.acquire(blocking=False):
            jobs, self._jobs, self._job, self._started = self._jobs, iter(()), None, None
            self._turn.release()
            if isinstance(jobs, Generator):
                with suppress(ValueError):  # It is running at this moment.
                    jobs.close()

    def _forget_parent(self) -> None:
        """Reset the state in a forked child: it has no thread, and locks may be held for ever."""
        self._pid = os.getpid()
        # Reentrant: a signal handler may close the prefetcher that it interrupts.
        self._turn, self._starting = threading.RLock(), threading.RLock()
        self._started = None
