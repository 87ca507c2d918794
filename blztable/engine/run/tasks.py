"""Tasks: the units of work of a run.

Knows nothing of threads.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice

# A call without arguments; it may return more tasks.
Task = Callable[[], "Iterable[Task] | None"]


def batches(calls: Iterable[Callable[[], None]], size: int = 16) -> Iterator[Task]:
    """Group calls that are too small for one task each into tasks of `size` calls."""
    calls = iter(calls)
    while batch := list(islice(calls, max(size, 1))):
        yield partial(_call_all, batch)


def _call_all(calls: Iterable[Callable[[], None]]) -> None:
    for call in calls:
        call()
