"""The method behind docs/performance.md: blztable beside Parquet and Feather, both lz4.

    python benchmarks/compare.py --scale 1 --rounds 5

Each task runs in a fresh process for each format; the formats take turns for several rounds,
another one first in each, so that a change of the machine's mood meets all of them. Before each, a
process of its own touches as much memory as a run may need: on a virtual machine memory that nobody
used for a while costs a lot to touch again, and only the first to do so would pay. A process
makes several calls: the first pays for imports of lazy parts, pools and fresh memory, the third
is the steady state; both are reported, each as the median over the rounds. Inside the timed region
one byte of every 4 KiB of the result is read. The page cache is warm; the import of the packages
and the loading of the table to write are not timed. Parquet and Feather never fsync; "blztable"
writes with durability "process", "blztable full" with the default.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import data_sets
import formats
import tasks
import turns

RIVALS = ["parquet", "feather"]
# A rival's peak when it makes a frame, in tables.
MEMORY_FACTOR = 3


class Run(NamedTuple):
    """One fresh process: what it measures."""

    data: str
    task: str
    format: str
    path: str
    scale: float
    calls: int


def main() -> None:
    options = parse_arguments()
    if options.run:
        print(json.dumps(measure(Run(*json.loads(options.run)))))
        return
    turns.print_surroundings(options.rounds, "seconds")
    folder = Path(tempfile.mkdtemp(prefix="compare-", dir=data_sets.cache_folder()))
    try:
        for data in options.data:
            compare(data, folder, options)
    finally:
        shutil.rmtree(folder)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1, help="TPC-H scale factor of lineitem")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=4, help="calls a process, at least 3")
    parser.add_argument("--data", nargs="+", default=[*data_sets.DATA_SETS])
    parser.add_argument("--tasks", nargs="+", default=tasks.TASKS, choices=tasks.TASKS)
    parser.add_argument("--formats", nargs="+", default=[*formats.FORMATS])
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.calls < 3 or options.rounds < 1:
        parser.error("the third call is reported and at least one round is needed")
    return options


def compare(data: str, folder: Path, options: argparse.Namespace) -> None:
    """Measure one data set and print its tables."""
    sizes = write_files(data, folder, options)
    seconds: dict[tuple[str, str], list[list[float]]] = {}
    for round_ in range(options.rounds):
        for task in options.tasks:
            for name in turns.turn(options.formats, round_):
                if name == "blztable full" and task != tasks.WRITE:
                    continue
                path = path_of(folder, data, name)
                turns.warm(data_sets.prepare(data, options.scale) if task == tasks.WRITE else path)
                # A flush of ours must not pay for what another left to be written.
                os.sync()
                turns.touch_memory(MEMORY_FACTOR * sizes["memory"])
                run = Run(data, task, name, str(path), options.scale, options.calls)
                seconds.setdefault((task, name), []).append(turns.in_fresh_process(__file__, run))
        print(f"{data}: round {round_ + 1} of {options.rounds}", file=sys.stderr)
    print_tables(data, sizes, seconds, options)


def write_files(data: str, folder: Path, options: argparse.Namespace) -> dict[str, int]:
    """The files that the reading tasks read; their sizes by format."""
    table = data_sets.load(data, options.scale)
    sizes = {"rows": table.num_rows, "memory": table.nbytes}
    for name in options.formats:
        path = path_of(folder, data, name)
        formats.FORMATS[name].write(table, path)
        sizes[name] = formats.bytes_on_disk(path)
    return sizes


def path_of(folder: Path, data: str, name: str) -> Path:
    return folder / (f"{data}-{name.replace(' ', '-')}" + formats.FORMATS[name].suffix)


def measure(run: Run) -> list[float]:
    """Make the calls and time each; what they leave is removed outside the timed region."""
    format_ = formats.FORMATS[run.format]
    if run.format.startswith("blztable"):
        formats.blz()
    path = Path(run.path)
    if run.task == tasks.WRITE:
        table = data_sets.load(run.data, run.scale)
        formats.touch(table)
        # Beside the file that the reading tasks read.
        path = path.with_stem(f"{path.stem}-written")
        call = tasks.writer(table, format_, path)
        return turns.timed(call, run.calls, after=lambda: formats.remove(path))
    call = tasks.reader(run.task, data_sets.DATA_SETS[run.data], format_, path)
    return turns.timed(call, run.calls)


def print_tables(data: str, sizes: dict[str, int], seconds: dict, options) -> None:
    """Markdown: a line a task, a column a format, and how much faster than the faster rival."""
    print(f"### {data}: {sizes['rows']:,} rows, {sizes['memory'] / 1e6:,.0f} MB in memory\n")
    ours = [name for name in options.formats if name not in RIVALS]
    rivals = [name for name in options.formats if name in RIVALS]
    ratios = [f"{name}: times faster" for name in ours] if rivals else []
    turns.print_row(["task", *ours, *rivals, *ratios])
    turns.print_row(["---"] + ["---:"] * (len(ours) + len(rivals) + len(ratios)))
    turns.print_row(
        ["MB on disk"]
        + [f"{sizes[name] / 1e6:,.1f}" for name in [*ours, *rivals]]
        + [""] * len(ratios)
    )
    for task in options.tasks:
        medians = {
            name: turns.medians(seconds[task, name])
            for name in options.formats
            if (task, name) in seconds
        }
        cells = [task] + [turns.pair(medians.get(name), ".3f") for name in [*ours, *rivals]]
        if rivals:
            best = [min(medians[name][call] for name in rivals) for call in (0, 1)]
            for name in ours:
                mine = medians.get(name)
                faster = mine and [best[call] / mine[call] for call in (0, 1)]
                cells.append(turns.pair(faster, ".2f"))
        turns.print_row(cells)
    print(flush=True)


if __name__ == "__main__":
    main()
