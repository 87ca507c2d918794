"""Counts of what one call costs in Python, which do not vary with the load of the machine.

Knows nothing of tables.
"""

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import blztable

PACKAGE = Path(blztable.__file__).parent
WARM, COUNTED = 2, 5
Hook = Callable[[FrameType, str, Any], None]


def python_calls(call: Callable[[], object]) -> int:
    """Return the calls of Python functions in this thread, once caches are warm.

    It is the least of some calls: another thread may take a task, or not.
    """
    count = 0

    def hook(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    for _ in range(WARM):
        call()
    counts = []
    for _ in range(COUNTED):
        count = 0
        with _without_collector():
            sys.setprofile(hook)
            try:
                call()
            finally:
                sys.setprofile(None)
        counts.append(count)
    # The call itself is no cost of what it calls.
    return min(counts) - 1


def classes_made(call: Callable[[], object]) -> set[str]:
    """Return our classes of which a call makes instances, in all threads; it is made once."""
    made: set[str] = set()

    def hook(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_name in ("__init__", "__new__", "__post_init__"):
            first = frame.f_locals.get(frame.f_code.co_varnames[0])
            kind = first if isinstance(first, type) else type(first)
            if kind.__module__.startswith("blztable."):
                made.add(f"{kind.__module__.removeprefix('blztable.')}.{kind.__name__}")

    _in_all_threads(hook, call)
    return made


def files_passed(call: Callable[[], object]) -> set[str]:
    """Return our files with a function that a call enters, in all threads; it is made once."""
    names: set[str] = set()

    def hook(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            names.add(frame.f_code.co_filename)

    _in_all_threads(hook, call)
    paths = [Path(name) for name in names]
    return {str(path.relative_to(PACKAGE)) for path in paths if path.is_relative_to(PACKAGE)}


def _in_all_threads(hook: Hook, call: Callable[[], object]) -> None:
    with _without_collector():
        threading.setprofile(hook)
        sys.setprofile(hook)
        try:
            call()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Let no finalizer of another test be counted."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
