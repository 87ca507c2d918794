"""The method behind docs/performance.md: blztable compared with Parquet and Feather, both lz4.

    python benchmarks/compare.py --scale 1 --rounds 5

Each task runs in a fresh process for each format. The formats take turns for several rounds, with a
different first format in each round, so that changes of the machine's speed affect all of them.
Before each run, a separate process touches as much memory as a run may need: on a virtual machine,
memory that was unused for a while is slow to touch again, and only the first process would pay.

A process makes several calls. The first pays for lazy imports, thread pools and fresh memory; the
third is the steady state. Both are reported, each as the median over the rounds. The timed region
includes reading one byte of every 4 KiB of the result. It excludes importing the packages and
loading the table to write. The page cache is warm. Parquet and Feather never fsync; "blztable"
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
import interleave
import tasks

RIVALS = ["parquet", "feather"]
# Peak memory of a competitor when it makes a DataFrame, in sizes of the table.
MEMORY_FACTOR = 3


class Run(NamedTuple):
    """The measurement of one fresh process."""

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
    interleave.print_surroundings(options.rounds, "seconds")
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
            for name in interleave.rotated(options.formats, round_):
                if name == "blztable full" and task != tasks.WRITE:
                    continue
                path = path_of(folder, data, name)
                interleave.warm(
                    data_sets.prepare(data, options.scale) if task == tasks.WRITE else path
                )
                # Our flush must not pay for data that another format has not written yet.
                os.sync()
                interleave.touch_memory(MEMORY_FACTOR * sizes["memory"])
                run = Run(data, task, name, str(path), options.scale, options.calls)
                seconds.setdefault((task, name), []).append(
                    interleave.in_fresh_process(__file__, run)
                )
        print(f"{data}: round {round_ + 1} of {options.rounds}", file=sys.stderr)
    print_tables(data, sizes, seconds, options)


def write_files(data: str, folder: Path, options: argparse.Namespace) -> dict[str, int]:
    """Write the files for the reading tasks; return their sizes by format."""
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
    """Time each call; files that it wrote are removed outside the timed region."""
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
        return interleave.timed(call, run.calls, after=lambda: formats.remove(path))
    call = tasks.reader(run.task, data_sets.DATA_SETS[run.data], format_, path)
    return interleave.timed(call, run.calls)


def print_tables(data: str, sizes: dict[str, int], seconds: dict, options) -> None:
    """Print Markdown: a line per task, a column per format, our speed-up over the best other."""
    print(f"### {data}: {sizes['rows']:,} rows, {sizes['memory'] / 1e6:,.0f} MB in memory\n")
    ours = [name for name in options.formats if name not in RIVALS]
    rivals = [name for name in options.formats if name in RIVALS]
    ratios = [f"{name}: times faster" for name in ours] if rivals else []
    interleave.print_row(["task", *ours, *rivals, *ratios])
    interleave.print_row(["---"] + ["---:"] * (len(ours) + len(rivals) + len(ratios)))
    interleave.print_row(
        ["MB on disk"]
        + [f"{sizes[name] / 1e6:,.1f}" for name in [*ours, *rivals]]
        + [""] * len(ratios)
    )
    for task in options.tasks:
        medians = {
            name: interleave.medians(seconds[task, name])
            for name in options.formats
            if (task, name) in seconds
        }
        cells = [task] + [interleave.pair(medians.get(name), ".3f") for name in [*ours, *rivals]]
        if rivals:
            best = [min(medians[name][call] for name in rivals) for call in (0, 1)]
            for name in ours:
                mine = medians.get(name)
                faster = mine and [best[call] / mine[call] for call in (0, 1)]
                cells.append(interleave.pair(faster, ".2f"))
        interleave.print_row(cells)
    print(flush=True)


if __name__ == "__main__":
    main()
