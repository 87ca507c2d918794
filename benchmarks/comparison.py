"""The comparison on one data set: files, checks, first calls, and rounds in turns.

Checks and first calls run in processes of their own, one at a time; then one process makes the
calls of all tasks and systems (`measure.py`).
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
from measure import MARK, rotated
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
# What a process of one system may take in all; a system that needs more is said to.
PROCESS_SECONDS = 300


class Comparison:
    """One data set in these systems; what is found is put into the results."""

    def __init__(
        self, data: str, names: list[str], tasks: Sequence[str] | None, folder: Path, **clock: Any
    ) -> None:
        self.data, self.names, self.folder = data, names, folder
        self.scale: float = clock["scale"]
        self.rounds: int = clock["rounds"]
        self.first: int = clock["first"]
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
        for round_ in range(self.first):
            results["load"].append(round(os.getloadavg()[0], 2))
            self.imports = {name: self.imported(name) for name in rotated(self.names, round_)}
            for task in self.tasks:
                # What is kept open has no first call of a script.
                if task in questions.KEPT_OPEN:
                    continue
                for name in rotated(self.names, round_):
                    if name in runs[task] and "cannot" not in runs[task][name]:
                        self.time_first(task, name, runs[task][name])
            print(f"{self.data}: first calls, {round_ + 1} of {self.first}", file=sys.stderr)
        if self.rounds:
            self.time(runs)
            results["load"].append(round(os.getloadavg()[0], 2))
        for name in self.names:
            remove(self.path(name))

    def check(self, name: str, runs: dict[str, dict[str, dict]]) -> None:
        """Write the table for this system, and compare its answer to each task with the source."""
        only = self.systems[name].tasks
        own = [task for task in self.tasks if only is None or task in only]
        found = self.answers({questions.WRITE: [name]}, rounds=0)
        written = found[questions.WRITE][name]
        if not written:
            self.facts["bytes"][name] = bytes_on_disk(self.path(name))
            rest = {task: [name] for task in own if task != questions.WRITE}
            found |= self.answers(rest, rounds=0)
        for task in own:
            runs[task][name] = found[task][name] if task in found else written
            if runs[task][name]:
                print(f"{self.data}: {task}: {name} {runs[task][name]['cannot']}", file=sys.stderr)

    def time_first(self, task: str, name: str, run: dict[str, Any]) -> None:
        """Time the first call of a process; a failure ends the system's part in this task."""
        warm(self.source if task == questions.WRITE else self.path(name))
        if task in CHANGES:
            # A flush must not pay for data that another system has not written yet.
            os.sync()
        memory = (WHOLE_FACTOR if task in WHOLE else PART_FACTOR) * self.facts["memory"]
        if memory > LITTLE:
            touch_memory(memory)
        found = self.answers({task: [name]}, rounds=1)[task][name]
        if "cannot" in found:
            run.clear()
            run |= found
            return
        # The first call of a script comes after the import.
        each = questions.APPENDS if task == questions.APPEND else 1
        first = run.setdefault("first", {})
        for clock, (value,) in found.items():
            imported = self.imports[name][clock] / each
            first.setdefault(clock, []).append([rounded(value + imported)])

    def time(self, runs: dict[str, dict[str, dict]]) -> None:
        """Time the rounds of all tasks in one process, in which the systems take turns."""
        for name in self.names:
            if name in self.facts["bytes"]:
                warm(self.path(name))
        tasks = {
            task: [name for name, run in by_name.items() if "cannot" not in run]
            for task, by_name in runs.items()
        }
        for task, answers in self.answers(tasks, self.rounds).items():
            for name, found in answers.items():
                if "cannot" in found:
                    runs[task][name] = found
                    continue
                runs[task][name] |= {
                    clock: [[rounded(value)] for value in values] for clock, values in found.items()
                }

    def imported(self, name: str) -> dict[str, float]:
        """Return what the import of a system takes in a fresh process, by clock."""
        module = self.systems[name].module or self.systems[name].package
        command = [sys.executable, str(CLOCKS), module]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found

    def answers(self, tasks: dict[str, list[str]], rounds: int) -> dict[str, dict[str, Any]]:
        """Return what processes found, by task and system; a task that stops one is its last."""
        found: dict[str, dict[str, Any]] = {}
        while rest := {task: names for task, names in tasks.items() if task not in found}:
            known, stopped = self.process(rest, rounds)
            found |= known
            if not known.keys() >= rest.keys():
                task = next(task for task in rest if task not in known)
                found[task] = {name: {"cannot": stopped} for name in rest[task]}
        return found

    def process(
        self, tasks: dict[str, list[str]], rounds: int
    ) -> tuple[dict[str, dict[str, Any]], str]:
        """Return what a fresh process found for these tasks, and what stopped it."""
        names = dict.fromkeys(name for names in tasks.values() for name in names)
        paths = {name: str(self.path(name)) for name in names}
        run = [self.data, tasks, paths, self.scale, rounds, self.patience]
        command = [sys.executable, str(PROGRAM), json.dumps(run)]
        limit = PROCESS_SECONDS if len(names) == 1 else None
        stopped = "found nothing"
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=limit, check=False
            )
            printed = done.stdout
            if done.returncode:
                last = done.stderr.strip().rpartition("\n")[2]
                stopped = f"ended with {done.returncode}: {last[-160:]}"
        except subprocess.TimeoutExpired as error:
            printed = (error.stdout or b"").decode()
            stopped = f"takes more than {PROCESS_SECONDS} s"
        found: dict[str, dict[str, Any]] = {}
        for line in printed.splitlines():
            if line.startswith(MARK):
                found |= json.loads(line.removeprefix(MARK))
        return found, stopped

    def path(self, name: str) -> Path:
        words = name.replace(",", "").replace(" ", "-")
        return self.folder / f"{self.data}-{words}{self.systems[name].suffix}"


def rounded(seconds: float) -> float:
    return float(f"{seconds:.4g}")


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
