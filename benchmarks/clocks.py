"""The clocks of a process: the wall, and user and system time of all its threads.

    python benchmarks/clocks.py MODULE

prints what the import of a module takes in a fresh process that has pandas and pyarrow already.
"""

import importlib
import json
import resource
import sys
import time
from collections.abc import Callable

# "processor_seconds" is the sum of the last two.
CLOCKS = ("seconds", "processor_seconds", "user_seconds", "system_seconds")


def clocked(call: Callable[[], object]) -> dict[str, float]:
    """Return the seconds that a call takes, by clock."""
    begin = _read()
    call()
    end = _read()
    return {clock: after - before for clock, before, after in zip(CLOCKS, begin, end, strict=True)}


def _read() -> tuple[float, ...]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return (time.perf_counter(), time.process_time(), used.ru_utime, used.ru_stime)


if __name__ == "__main__":
    for known in ("pandas", "pyarrow"):
        importlib.import_module(known)
    print(json.dumps(clocked(lambda: importlib.import_module(sys.argv[1]))))
