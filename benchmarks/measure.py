"""One fresh process of a comparison: do one task with one system, checked or timed.

Knows nothing of other systems. It prints JSON: the seconds of its calls by each clock, or why the
system cannot do the task.
"""

import gc
import importlib
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

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


class Run(NamedTuple):
    """One process: it checks these tasks, or times the only one if `calls` are given."""

    data: str
    tasks: list[str]
    system: str
    path: str
    scale: float
    calls: int
    # No further call after so many seconds of calls.
    patience: float


def main() -> None:
    """Print a line of JSON for each task, as soon as it is known."""
    run = Run(*json.loads(sys.argv[1]))
    for task in run.tasks:
        try:
            found = timed(run, task) if run.calls else check(run, task)
        except NotImplementedError as error:
            found = {"cannot": str(error)}
        except Exception as error:  # whatever a system raises is its answer
            traceback.print_exc(file=sys.stderr)
            found = {"cannot": f"{type(error).__name__}: {error}".splitlines()[0][:160]}
        print(MARK + json.dumps(found), flush=True)


def check(run: Run, task: str) -> dict[str, str]:
    """Do the task once and compare the answer with the source."""
    table = data_sets.mapped(run.data, run.scale)
    asked = data_sets.questions(data_sets.DATA_SETS[run.data], table)[task]
    system, path = system_of(run.system), Path(run.path)
    ordered = not asked.conditions and asked.rows is None
    if task == questions.WRITE:
        system.write(table, path)
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


def timed(run: Run, task: str) -> dict[str, list[float]]:
    """Call and read the clocks; whatever comes before and after a call is not timed."""
    system, path = system_of(run.system), Path(run.path)
    # Some systems are imported by their first call. What imports take is measured by itself.
    importlib.import_module(system.module or system.package)
    source = data_sets.mapped(run.data, run.scale)
    asked = data_sets.questions(data_sets.DATA_SETS[run.data], source)[task]
    aside = path.with_stem(f"{path.stem}-aside")
    if task == questions.WRITE:
        table = data_sets.load(run.data, run.scale)
        return clocked(lambda: system.write(table, aside), run, after=lambda: remove(aside))
    if task == questions.APPEND:
        copy(path, aside)
        rows = source.take(pa.array(range(questions.APPENDED_ROWS)))
        append = system.appending(aside)
        found = clocked(lambda: append_all(append, rows), run)
        remove(aside)
        return {
            clock: [value / questions.APPENDS for value in values]
            for clock, values in found.items()
        }
    call = call_of(task, system, path, asked)
    return clocked(lambda: touch(call()), run)


def call_of(
    task: str, system: System, path: Path, asked: Question
) -> Callable[[], pa.Table | pd.DataFrame]:
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


def clocked(
    call: Callable[[], object], run: Run, after: Callable[[], object] = lambda: None
) -> dict[str, list[float]]:
    """Return the seconds of each call, by clock; of one call at least."""
    found: dict[str, list[float]] = {clock: [] for clock in clocks.CLOCKS}
    seconds = found["seconds"]
    while not seconds or (len(seconds) < run.calls and sum(seconds) < run.patience):
        gc.collect()
        for clock, value in clocks.clocked(call).items():
            found[clock].append(value)
        after()
    return found


if __name__ == "__main__":
    main()
