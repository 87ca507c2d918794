"""Threads: how many threads a read or a write has, with that of the caller.

As many as the process may use processors: those that it is bound to, or fewer if its container has
a quota of time. `set_threads`, or else the variable BLZTABLE_THREADS, says another number. Makes no
thread.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from math import ceil
from operator import index
from pathlib import Path

from blztable import tuning

VARIABLE = "BLZTABLE_THREADS"


def set_threads(count: int | None) -> None:
    """Set how many threads a read or a write has in this process, with that of the caller.

    By default as many as the process may use processors: those that it is bound to, or fewer if its
    container has a quota. The variable BLZTABLE_THREADS of the environment is another default, for
    processes that others start. A worker beside others on one machine needs its share: four workers
    on eight processors have two threads each. A stream decodes in one thread more.

    Parameters
    ----------
    count : int or None
        Number of threads from 1 on, for the reads and writes that begin from here on; None for the
        default.

    Raises
    ------
    ValueError
        `count` is less than 1, or no integer.

    Examples
    --------
    >>> import blztable as blz
    >>> blz.set_threads(1)  # One of many workers.
    >>> blz.set_threads(None)
    """
    number = 0 if count is None else _checked(count, "count")
    tuning.current = replace(tuning.current, threads=number)


def processors() -> int:
    """Return the number of threads of a run, with that of the caller."""
    return tuning.current.threads or _usual(os.environ.get(VARIABLE))


@cache
def _usual(variable: str | None) -> int:
    """Return the number that the environment says, or that of the processors to be used."""
    if variable:
        return _checked(int(variable) if variable.isdecimal() else variable, VARIABLE)
    affinity = getattr(os, "sched_getaffinity", None)  # Linux has it.
    count = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return max(min([count, *map(ceil, quotas())]), 1)


def _checked(value: object, name: str) -> int:
    """Return a number of threads; ValueError if it is none."""
    with suppress(TypeError):
        number = 0 if isinstance(value, bool) else index(value)  # type: ignore[arg-type]
        if number > 0:
            return number
    raise ValueError(f"{name} must be a number of threads from 1 on, found {value!r:.60}")


def quotas(root: Path = Path("/")) -> Iterator[float]:
    """Yield how many processors the control groups of this process let it use, as far as they say.

    Version 2 has one tree of groups, version 1 a tree for each controller. Within a container the
    path of the group may be that outside of it, so the top of the tree is looked at, too.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / controllers
        group = top / path.lstrip("/")
        # A group has no more than those above it.
        while True:
            quota = _quota_1(group) if controllers else _quota_2(group)
            if quota is not None:
                yield quota
            if group == top or top not in group.parents:
                break
            group = group.parent


def _quota_2(group: Path) -> float | None:
    """Return the quota of a group of version 2; None if it has none."""
    with suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = (group / "cpu.max").read_text().split()
        return float(quota) / float(period) if quota != "max" else None
    return None


def _quota_1(group: Path) -> float | None:
    """Return the quota of a group of version 1; None if it has none."""
    with suppress(OSError, ValueError, ZeroDivisionError):
        quota = float((group / "cpu.cfs_quota_us").read_text())
        return quota / float((group / "cpu.cfs_period_us").read_text()) if quota > 0 else None
    return None
