"""The method of a comparison: fresh processes, competitors in turn, medians over rounds.

Knows nothing of what is measured. A program that uses this file starts itself again with `--run`
for each process, which prints the seconds of its calls.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import formats
import numpy as np
import pandas as pd
import pyarrow as pa

# Indices of the calls that are reported: the first, and the third as the steady state.
REPORTED = (0, 2)


def rotated(names: Sequence[str], round_: int) -> list[str]:
    """Return the names in the same cyclic order, with a different first name in each round."""
    first = round_ % len(names)
    return [*names[first:], *names[:first]]


def in_fresh_process(program: str, run: Sequence[object]) -> list[float]:
    """Return the seconds of each call, measured in a fresh process."""
    command = [sys.executable, program, "--run", json.dumps(run)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout)


def timed(
    call: Callable[[], object], calls: int, after: Callable[[], object] = lambda: None
) -> list[float]:
    """Return the seconds of each call; `after` runs after each call and is not timed."""
    seconds = []
    for _ in range(calls):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
        after()
    return seconds


def medians(runs: list[list[float]]) -> list[float]:
    """Return the median over the rounds for each reported call."""
    return [statistics.median(run[call] for run in runs) for call in REPORTED]


def warm(path: Path) -> None:
    """Read a file, or all files of a folder, into the page cache."""
    for file in formats.files_of(path):
        with file.open("rb", buffering=0) as stream:
            while stream.read(1 << 24):
                pass


def touch_memory(nbytes: int) -> None:
    """Allocate and free this much memory in a separate process."""
    code = f"import numpy; numpy.ones({nbytes}, 'u1')"
    subprocess.run([sys.executable, "-c", code], check=True)


def print_surroundings(rounds: int, unit: str) -> None:
    versions = f"pyarrow {pa.__version__}, pandas {pd.__version__}, numpy {np.__version__}"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    print(f"Python {platform.python_version()}, {versions}; {platform.machine()}, {cores} cores.")
    print(f"Medians of {rounds} rounds, {unit}; call 1 / call 3 of a fresh process.\n")


def pair(values: list[float] | None, spec: str) -> str:
    return " / ".join(format(value, spec) for value in values) if values else ""


def print_row(cells: list[str]) -> None:
    print("| " + " | ".join(cells) + " |")
