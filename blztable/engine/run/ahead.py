"""Ahead: ask a store for the bytes of tasks before the tasks run, window by window.

Theory of operation. The tasks of a read say which ranges of files they need. The ranges of a window
of tasks are asked for together. They come while the window before is decoded, so two windows are on
their way or in memory, and what is still decoded of a third. A window is forgotten when its last
task is done. Only for stores that fetch: others are read by the tasks themselves.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Generic, TypeVar

from blztable import tuning
from blztable.closing import Closing
from blztable.engine.run.pool import Task
from blztable.storage.store import ByteRange, Lock, Store

T = TypeVar("T")
# Ranges of files, whether they are of single rows, and what needs them.
Demand = tuple[Sequence[ByteRange], bool, T]
# Of `ahead_bytes`: two windows, what is left of a third, and pieces that are longer than asked for.
_SHARE = 4


class Window(Generic[T]):
    """What one window asked for, and what waits for it."""

    def __init__(self, store: Store, wanted: Sequence[Demand[T]]) -> None:
        """Ask for the ranges."""
        self.waiting = [demand for _, _, demand in wanted]
        self._asked = [
            fetched(
                store,
                [part for ranges, single, _ in wanted if single is kind for part in ranges],
                kind,
            )
            for kind in {single for _, single, _ in wanted}
        ]
        self._left = 0
        self._lock = threading.Lock()

    def tasks(self, tasks: Sequence[Task]) -> Iterator[Task]:
        """Return tasks of which the last one forgets the window."""
        self._left = len(tasks)
        return (partial(self._run, task) for task in tasks)

    def _run(self, task: Task) -> Iterable[Task] | None:
        more = task()
        with self._lock:
            self._left -= 1
            is_last = not self._left
        if is_last:
            self.close()
        return more

    def close(self) -> None:
        """Forget what was asked for; closing twice is harmless."""
        for asked in self._asked:
            asked.close()


class Ahead(Closing, Generic[T]):
    """The windows of one read."""

    def __init__(self, store: Store) -> None:
        """Ask for nothing yet."""
        self._store = store
        self._windows: list[Window[T]] = []

    def windows(self, wanted: Iterable[Demand[T]]) -> Iterator[Window[T]]:
        """Yield windows; the next one is asked for before a window is yielded."""
        before: Window[T] | None = None
        for some in _cut(wanted):
            window = Window(self._store, some)
            self._windows.append(window)
            if before is not None:
                yield before
            before = window
        if before is not None:
            yield before

    def close(self) -> None:
        """Forget all windows."""
        for window in self._windows:
            window.close()


def one_by_one(
    store: Store, items: Iterable[T], wanted: Callable[[T], tuple[Sequence[ByteRange], bool]]
) -> Iterator[T]:
    """Yield items whose ranges have been asked for, while those of the next ones are on their way.

    `wanted` returns the ranges that an item needs, and whether they are of single rows. It is
    called only if the store fetches.
    """
    if not store.fetches:
        yield from items
        return
    with Ahead[T](store) as ahead:
        for window in ahead.windows((*wanted(item), item) for item in items):
            yield from window.waiting
            window.close()


def fetched(store: Store, ranges: Sequence[ByteRange], is_single: bool) -> Lock:
    """Ask for ranges, which are of single rows or of runs of rows."""
    sizes = tuning.current
    return store.fetch(ranges, sizes.gap_row_bytes if is_single else sizes.gap_bytes)


def _cut(wanted: Iterable[Demand[T]]) -> Iterator[list[Demand[T]]]:
    """Yield windows of about the same bytes."""
    window: list[Demand[T]] = []
    nbytes = 0
    for demand in wanted:
        window.append(demand)
        nbytes += sum([stop - start for _, start, stop in demand[0]])
        if nbytes >= tuning.current.ahead_bytes // _SHARE:
            yield window
            window, nbytes = [], 0
    if window:
        yield window
