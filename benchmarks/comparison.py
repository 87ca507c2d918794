"""The comparison on one data set: files, checks, and rounds in which the systems take turns.

Each task of each system runs in a process of its own (`measure.py`), one at a time.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import data_sets
import questions
from measure import MARK
from report import Results
from systems.registry import systems
from systems.system import bytes_on_disk, files_of, remove

PROGRAM = Path(__file__).with_name("measure.py")
CLOCKS = Path(__file__).with_name("clocks.py")
# Peak memory of a system that makes a DataFrame, in sizes of the table; of one that reads a part.
WHOLE_FACTOR, PART_FACTOR = 3, 1
WHOLE = (questions.WRITE, questions.READ_ALL, questions.PANDAS)
CHANGES = (questions.WRITE, questions.APPEND)
# Memory that need not be touched before.
LITTLE = 100_000_000
# What a process may take in all; a system that needs more is said to.
PROCESS_SECONDS = 300


class Comparison:
    """One data set in these systems; what is found is put into the results."""

    def __init__(
        self, data: str, names: list[str], tasks: Sequence[str] | None, folder: Path, **clock: Any
    ) -> None:
        self.data, self.names, self.folder = data, names, folder
        self.scale: float = clock["scale"]
        self.rounds: int = clock["rounds"]
        self.calls: int = clock["calls"]
        self.patience: float = clock["patience"]
        self.systems = systems()
        self.imports: dict[str, dict[str, float]] = {}
        self.source = data_sets.prepare(data, self.scale)
        table = data_sets.mapped(data, self.scale)
        self.facts = {
            "rows": table.num_rows,
            "columns": table.num_columns,
            "memory": table.nbytes,
            "bytes": {},
        }
        asked = data_sets.questions(data_sets.DATA_SETS[data], table)
        self.tasks = [task for task in asked if tasks is None or task in tasks]

    def run(self, results: Results) -> None:
        """Write and check all systems, then time those that were right."""
        results["data"][self.data] = self.facts
        results["load"].append(round(os.getloadavg()[0], 2))
        runs: dict[str, dict[str, dict]] = {task: {} for task in self.tasks}
        results["runs"][self.data] = runs
        for name in self.names:
            self.check(name, runs)
            print(f"{self.data}: {name} is checked", file=sys.stderr)
        for round_ in range(self.rounds):
            results["load"].append(round(os.getloadavg()[0], 2))
            self.imports = {name: self.imported(name) for name in rotated(self.names, round_)}
            for task in self.tasks:
                for name in rotated(self.names, round_):
                    if name in runs[task] and "cannot" not in runs[task][name]:
                        self.time(task, name, runs[task][name])
            print(f"{self.data}: round {round_ + 1} of {self.rounds}", file=sys.stderr)
        for name in self.names:
            remove(self.path(name))

    def check(self, name: str, runs: dict[str, dict[str, dict]]) -> None:
        """Write the table for this system, and compare its answer to each task with the source."""
        only = self.systems[name].tasks
        own = [task for task in self.tasks if only is None or task in only]
        (written,) = self.process([questions.WRITE], name, calls=0)
        if not written:
            self.facts["bytes"][name] = bytes_on_disk(self.path(name))
        found = {questions.WRITE: written}
        rest = [task for task in own if task != questions.WRITE]
        while rest and not written:
            answers = self.process(rest, name, calls=0)
            found |= dict(zip(rest, answers, strict=False))
            # Where the process stopped, a fresh one goes on.
            rest = rest[len(answers) :]
        for task in own:
            runs[task][name] = found.get(task, written)
            if runs[task][name]:
                print(f"{self.data}: {task}: {name} {runs[task][name]['cannot']}", file=sys.stderr)

    def time(self, task: str, name: str, run: dict[str, Any]) -> None:
        """Time one process; a failure ends the system's part in this task."""
        warm(self.source if task == questions.WRITE else self.path(name))
        if task in CHANGES:
            # A flush must not pay for data that another system has not written yet.
            os.sync()
        memory = (WHOLE_FACTOR if task in WHOLE else PART_FACTOR) * self.facts["memory"]
        if memory > LITTLE:
            touch_memory(memory)
        (found,) = self.process([task], name, self.calls)
        if "cannot" in found:
            run.clear()
            run |= found
            return
        for clock, calls in found.items():
            # The first call of a script comes after the import.
            each = questions.APPENDS if task == questions.APPEND else 1
            calls[0] += self.imports[name][clock] / each
            run.setdefault(clock, []).append([float(f"{value:.4g}") for value in calls])

    def imported(self, name: str) -> dict[str, float]:
        """Return what the import of a system takes in a fresh process, by clock."""
        module = self.systems[name].module or self.systems[name].package
        command = [sys.executable, str(CLOCKS), module]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found

    def process(self, tasks: list[str], name: str, calls: int) -> list[dict[str, Any]]:
        """Return what a fresh process found for these tasks, up to the one that stopped it.

        The first task may be the one: then its answer says so.
        """
        run = [self.data, tasks, name, str(self.path(name)), self.scale, calls, self.patience]
        command = [sys.executable, str(PROGRAM), json.dumps(run)]
        stopped = None
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=PROCESS_SECONDS, check=False
            )
            printed = done.stdout
            if done.returncode:
                last = done.stderr.strip().rpartition("\n")[2]
                stopped = f"ended with {done.returncode}: {last[-160:]}"
        except subprocess.TimeoutExpired as error:
            printed = (error.stdout or b"").decode()
            stopped = f"takes more than {PROCESS_SECONDS} s"
        answers = [
            json.loads(line.removeprefix(MARK))
            for line in printed.splitlines()
            if line.startswith(MARK)
        ]
        return answers or [{"cannot": stopped or "found nothing"}]

    def path(self, name: str) -> Path:
        words = name.replace(",", "").replace(" ", "-")
        return self.folder / f"{self.data}-{words}{self.systems[name].suffix}"


def rotated(names: Sequence[str], round_: int) -> list[str]:
    """Return the names in the same cyclic order, with a different first name in each round."""
    first = round_ % len(names)
    return [*names[first:], *names[:first]]


def warm(path: Path) -> None:
    """Read a file, or all files of a folder, into the page cache."""
    for file in files_of(path):
        with file.open("rb", buffering=0) as stream:
            while stream.read(1 << 24):
                pass


def touch_memory(nbytes: int) -> None:
    """Allocate and free this much memory in a separate process."""
    code = f"import numpy; numpy.ones({nbytes}, 'u1')"
    subprocess.run([sys.executable, "-c", code], check=True)
