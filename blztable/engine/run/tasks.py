"""Tasks: what a run works at, one after the other by each of its threads.

Knows nothing of threads.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice

# Does something, and may return more to do.
Task = Callable[[], "Iterable[Task] | None"]


def batches(calls: Iterable[Callable[[], None]], size: int = 16) -> Iterator[Task]:
    """Tasks of so many calls each, which are too small for a task of their own."""
    several = iter(calls)
    while batch := list(islice(several, max(size, 1))):
        yield partial(_call_all, batch)


def _call_all(calls: Iterable[Callable[[], None]]) -> None:
    for call in calls:
        call()
