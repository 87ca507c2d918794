"""One process of a comparison: do tasks with one system, checked, or with several that take turns.

It prints JSON: for each system the seconds of its calls by each clock, or why it cannot do the
task.
"""

import gc
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import clocks
import data_sets
import pandas as pd
import pyarrow as pa
import questions
from questions import Question
from systems.registry import system as system_of
from systems.system import Append, System, copy, remove, touch

# What a system prints itself must not be taken for a result.
MARK = "found: "

Found = dict[str, Any]


class Run(NamedTuple):
    """One process: it checks the tasks of one system, or times those of several in rounds."""

    data: str
    # The systems of each task.
    tasks: dict[str, list[str]]
    # The table of each system.
    paths: dict[str, str]
    scale: float
    # 0 to check.
    rounds: int
    # No further round of a system's task after so many seconds of calls.
    patience: float


def main() -> None:
    """Print a line of JSON for each task, as soon as it is known: what each system found."""
    run = Run(*json.loads(sys.argv[1]))
    for task, names in run.tasks.items():
        if run.rounds:
            found = timed(run, task)
        else:
            found = {name: tried(check, run, task, name) for name in names}
        print(MARK + json.dumps({task: found}), flush=True)


def tried(function: Callable[..., Any], *arguments: object) -> Any:
    """Return what a function found, or that it cannot: whatever a system raises is its answer."""
    try:
        return function(*arguments)
    except NotImplementedError as error:
        return {"cannot": str(error)}
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        return {"cannot": f"{type(error).__name__}: {error}".splitlines()[0][:160]}


def check(run: Run, task: str, name: str) -> dict[str, str]:
    """Do the task once and compare the answer with the source."""
    table = data_sets.mapped(run.data, run.scale)
    data = data_sets.DATA_SETS[run.data]
    asked = data_sets.questions(data, table)[task]
    system, path = system_of(name), Path(run.paths[name])
    ordered = not asked.conditions and asked.rows is None
    if task == questions.WRITE:
        system.write(table, path, data.row_group_rows)
        found = system.read(path, None)
    elif task == questions.APPEND:
        aside = path.with_stem(f"{path.stem}-appended")
        copy(path, aside)
        append_all(system.appending(aside), table[: questions.APPENDED_ROWS])
        found = system.read(aside, None)
        remove(aside)
        more = [table[: questions.APPENDED_ROWS]] * questions.APPENDS
        table = pa.concat_tables([table, *more])
    else:
        found = call_of(task, system, path, asked)()
    wrong = questions.difference(found, questions.answer(table, asked), ordered)
    return {"cannot": f"gives a wrong answer: {wrong}"} if wrong else {}


def timed(run: Run, task: str) -> dict[str, Found]:
    """Let the systems take turns, a different one first in each round; return their calls.

    What a system keeps open is closed after the task.
    """
    # Reading the table to write must not be part of a measurement.
    load = data_sets.load if task == questions.WRITE else data_sets.mapped
    table = load(run.data, run.scale)
    made = {name: tried(timer_of, run, task, name, table) for name in run.tasks[task]}
    found = {name: one for name, one in made.items() if not isinstance(one, Timer)}
    timers = {name: one for name, one in made.items() if isinstance(one, Timer)}
    made.clear()
    for round_ in range(run.rounds):
        for name in rotated(list(timers), round_):
            known = found.setdefault(name, {clock: [] for clock in clocks.CLOCKS})
            if "cannot" in known or sum(known["seconds"]) > run.patience:
                continue
            times = tried(timers[name].time)
            if "cannot" in times:
                found[name] = times
                continue
            for clock, value in times.items():
                known[clock].append(value)
    for timer in timers.values():
        timer.end()
    timers.clear()
    gc.collect()
    return found


def rotated(names: Sequence[str], round_: int) -> list[str]:
    """Return the names in the same cyclic order, with a different first name in each round."""
    first = round_ % max(len(names), 1)
    return [*names[first:], *names[:first]]


class Timer(NamedTuple):
    """One task of one system: a call that is timed, and what comes after it and at the end."""

    call: Callable[[], object]
    after: Callable[[], object] = lambda: None
    end: Callable[[], object] = lambda: None
    # Parts of a call that count as calls of their own.
    calls: int = 1

    def time(self) -> dict[str, float]:
        """Return the seconds of one call, by clock."""
        gc.collect()
        found = clocks.clocked(self.call)
        self.after()
        return {clock: value / self.calls for clock, value in found.items()}


def timer_of(run: Run, task: str, name: str, table: pa.Table) -> Timer:
    """Prepare a task; whatever comes before and after a call is not timed."""
    system, path = system_of(name), Path(run.paths[name])
    # Some systems are imported by their first call. What imports take is measured by itself.
    importlib.import_module(system.module or system.package)
    data = data_sets.DATA_SETS[run.data]
    aside = path.with_stem(f"{path.stem}-aside")
    if task == questions.WRITE:

        def written() -> None:
            remove(aside)
            # A flush must not pay for data that another system has not written yet.
            os.sync()

        return Timer(lambda: system.write(table, aside, data.row_group_rows), written)
    if task == questions.APPEND:
        copy(path, aside)
        os.sync()
        rows = table.take(pa.array(range(min(questions.APPENDED_ROWS, table.num_rows))))
        append = system.appending(aside)
        return Timer(
            lambda: append_all(append, rows), end=lambda: remove(aside), calls=questions.APPENDS
        )
    asked = data_sets.questions(data, table)[task]
    call = call_of(task, system, path, asked)
    return Timer(lambda: touch(call()))


def call_of(
    task: str, system: System, path: Path, asked: Question
) -> Callable[[], pa.Table | pd.DataFrame]:
    if task in questions.KEPT_OPEN:
        return system.keeping(path, asked)
    if task == questions.PANDAS:
        return lambda: system.read_pandas(path)
    if asked.conditions:
        return system.filtering(path, asked)
    if asked.rows is not None:
        return system.taking(path, asked)
    return lambda: system.read(path, asked.columns)


def append_all(append: Append, rows: pa.Table) -> None:
    for _ in range(questions.APPENDS):
        append(rows)


if __name__ == "__main__":
    main()
