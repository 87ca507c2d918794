"""The prefetcher: compute the next result while the caller works with the last one.

Knows nothing of tables.

Theory of operation
-------------------
A thread that asks for a result draws the jobs, one at a time, under the lock `_turn`. `prefetch`
draws one job and starts it in a thread of its own; the pool runs the tasks of the job. `__next__`
waits for that result, or computes it itself. So memory holds at most one result ahead.
Exception: raised in its turn; it ends the results. Ctrl-C while waiting: the job continues, and the
next call returns its result.
`close` waits for the running job, never for a lock that a reader holds: the reader drops the jobs
when it leaves. The thread that runs the job may itself call `close`.
Fork: the child has no such thread and computes the result again.
"""

import os
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar

from blztable.engine.run.pool import Background
from blztable.errors import ClosedError

T = TypeVar("T")


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
