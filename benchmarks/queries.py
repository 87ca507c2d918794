"""Filters, single rows and counts, compared with Parquet, Feather, Lance and DuckDB.

    python benchmarks/queries.py --rounds 5

The tasks run on lineitem (scale factor 1, sorted by l_orderkey). Each filter returns three columns.

- clustered filter: a range of l_orderkey, 0.3 % of the rows;
- scattered filter: `l_shipdate == d and l_discount > 0.08`, with rows in every page of 2^17;
- 1,000 random rows x 16 columns, 10 random rows x 2 columns: the same for all, each row once;
- prunable count, on a separate table: 10,000 row groups of 100 rows, a filter on the sorted key.

The method is that of compare.py: a fresh process for each run, systems in turn, call 1 and call 3,
a warm page cache, one byte of every memory page of the result read. Each call opens the data that
it reads. "duckdb" opens its connection before, so by call 3 it has decompressed data in memory;
"duckdb, opened" connects in each call. "parquet" has row groups of 2^20 rows, its default;
"parquet, small groups" of 2^17. "lance, indexed" has the zone maps that Lance makes on request.

Before anything is timed, each answer is compared with Arrow's, without regard to the order of rows,
which DuckDB need not keep. If a system has several ways (systems.py), the fastest counts, call by
call; all are printed at the end. "touched pages" is the time of blztable to read the whole columns,
times the share of their bytes in pages that contain one of the rows: the cost of decoding each of
these pages once.
"""

import argparse
import datetime
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
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import systems

TIMEOUT = 1800
LINEITEM_ROWS = 6_001_215
THREE = ["l_orderkey", "l_extendedprice", "l_shipmode"]
SIXTEEN = [
    *("l_orderkey", "l_partkey", "l_suppkey", "l_linenumber", "l_quantity", "l_extendedprice"),
    *("l_discount", "l_tax", "l_returnflag", "l_linestatus", "l_shipdate", "l_commitdate"),
    *("l_receiptdate", "l_shipinstruct", "l_shipmode", "l_comment"),
]
FIRST_KEY, LAST_KEY = 3_000_000, 3_017_999
DAY = datetime.date(1995, 6, 17)
GROUPS, GROUP_ROWS = 10_000, 100
# Both ends are inside a row group, so the key of these two row groups has to be read.
FIRST_COUNTED, LAST_COUNTED = 500_030, 500_269
# Peak memory of a competitor, in sizes of the columns it reads: the columns and a copy.
MEMORY_FACTOR = 2


def random_rows(count: int) -> np.ndarray:
    return np.random.default_rng(count).choice(LINEITEM_ROWS, count, replace=False)


def between(name: str, first: int, last: int) -> pc.Expression:
    return (pc.field(name) >= first) & (pc.field(name) <= last)


class Task(NamedTuple):
    """A question about one of the two tables."""

    data: str
    asked: systems.Filter | systems.Take | systems.Count


TASKS = {
    "clustered filter": Task(
        "lineitem",
        systems.Filter(
            THREE,
            ["l_orderkey"],
            between("l_orderkey", FIRST_KEY, LAST_KEY),
            f"l_orderkey >= {FIRST_KEY} and l_orderkey <= {LAST_KEY}",
        ),
    ),
    "scattered filter": Task(
        "lineitem",
        systems.Filter(
            THREE,
            ["l_shipdate", "l_discount"],
            (pc.field("l_shipdate") == DAY) & (pc.field("l_discount") > 0.08),
            f"l_shipdate = date '{DAY}' and l_discount > 0.08",
        ),
    ),
    "1,000 rows x 16": Task("lineitem", systems.Take(SIXTEEN, random_rows(1000))),
    "10 rows x 2 numeric": Task(
        "lineitem", systems.Take(data_sets.LINEITEM.two_numeric, random_rows(10))
    ),
    "10 rows x key + text": Task(
        "lineitem", systems.Take(data_sets.LINEITEM.key_and_text, random_rows(10))
    ),
    "prunable count": Task(
        "groups", systems.Count(["key"], between("key", FIRST_COUNTED, LAST_COUNTED))
    ),
}
OURS, TOUCHED = "blztable", "touched pages"
PARAMS = [[*TASKS], [*systems.SYSTEMS]]
PARAM_NAMES = ["task", "system"]
Seconds = dict[tuple[str, str, str], list[list[float]]]


class Run(NamedTuple):
    """The measurement of one fresh process."""

    task: str
    system: str
    way: str
    path: str
    calls: int


def main() -> None:
    options = parse_arguments()
    if options.run:
        print(json.dumps(measure(Run(*json.loads(options.run)))))
        return
    interleave.print_surroundings(options.rounds, "milliseconds")
    folder = Path(tempfile.mkdtemp(prefix="queries-", dir=data_sets.cache_folder()))
    try:
        compare(folder, options)
    finally:
        shutil.rmtree(folder)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=4, help="calls a process, at least 3")
    parser.add_argument("--tasks", nargs="+", default=[*TASKS], choices=TASKS)
    parser.add_argument("--systems", nargs="+", default=[*systems.SYSTEMS], choices=systems.SYSTEMS)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.calls < 3 or options.rounds < 1:
        parser.error("the third call is reported and at least one round is needed")
    return options


def compare(folder: Path, options: argparse.Namespace) -> None:
    """Write the tables, check each answer once, measure in turn, print."""
    memory = write_files(folder, options.tasks, options.systems)
    runs = [
        Run(task, system, way, str(path_of(folder, task, system)), options.calls)
        for task in options.tasks
        for system in options.systems
        if path_of(folder, task, system).exists()
        for way in ways_of(task, system)
    ]
    check(runs)
    seconds: Seconds = {}
    for round_ in range(options.rounds):
        for task in options.tasks:
            for run in interleave.rotated([run for run in runs if run.task == task], round_):
                interleave.warm(Path(run.path))
                os.sync()
                interleave.touch_memory(MEMORY_FACTOR * memory[task])
                key = run.task, run.system, run.way
                seconds.setdefault(key, []).append(interleave.in_fresh_process(__file__, run))
        print(f"round {round_ + 1} of {options.rounds}", file=sys.stderr)
    print_tables(folder, seconds, options)


def write_files(folder: Path, tasks: list[str], names: list[str]) -> dict[str, int]:
    """Write the tables in all installed systems; return the bytes that each task reads."""
    memory = {}
    for data in dict.fromkeys(TASKS[task].data for task in tasks):
        table = load(data)
        asking = [task for task in tasks if TASKS[task].data == data]
        memory |= {task: table.select(columns_of(TASKS[task].asked)).nbytes for task in asking}
        for system in names:
            path = path_in(folder, data, system)
            if path.exists() or not any(ways_of(task, system) for task in asking):
                continue
            try:
                write(data, table, system, path)
            except ImportError as error:
                print(f"{system} is left out: {error}", file=sys.stderr)
    return memory


def columns_of(asked: systems.Filter | systems.Take | systems.Count) -> list[str]:
    match asked:
        case systems.Filter():
            return list({*asked.columns, *asked.filtered})
        case systems.Take():
            return asked.columns
        case systems.Count():
            return asked.filtered


def load(data: str) -> pa.Table:
    if data == "lineitem":
        return data_sets.load(data)
    values = np.random.default_rng(0).random(GROUPS * GROUP_ROWS)
    return pa.table({"key": np.arange(len(values)), "value": values})


def write(data: str, table: pa.Table, system: str, path: Path) -> None:
    if data == "lineitem":
        systems.SYSTEMS[system].write(table, path)
    elif system == OURS:
        formats.blz().to_blz(table, path, row_group_rows=GROUP_ROWS, durability="process")
    else:
        formats.pq.write_table(table, path, compression="lz4", row_group_size=GROUP_ROWS)


def path_of(folder: Path, task: str, system: str) -> Path:
    return path_in(folder, TASKS[task].data, system)


def path_in(folder: Path, data: str, system: str) -> Path:
    return folder / f"{data}{systems.SYSTEMS[system].suffix}"


def ways_of(task: str, system: str) -> dict[str, systems.Way]:
    return systems.SYSTEMS[system].ways.get(type(TASKS[task].asked), {})


def check(runs: list[Run]) -> None:
    """Check that each answer is Arrow's, without regard to the order of rows."""
    for task in dict.fromkeys(run.task for run in runs):
        expected = answer(task)
        for run in runs:
            if run.task == task and run.system != TOUCHED:
                result = ways_of(task, run.system)[run.way](Path(run.path), TASKS[task].asked)()
                assert ordered(result) == ordered(expected), run


def answer(task: str) -> pa.Table | int:
    data, asked = TASKS[task]
    table = load(data)
    match asked:
        case systems.Filter():
            return table.filter(asked.where).select(asked.columns)
        case systems.Take():
            return table.select(asked.columns).take(pa.array(asked.indices))
        case systems.Count():
            return table.filter(asked.where).num_rows


def ordered(result: pa.Table | int) -> object:
    """Return sorted Python rows: systems differ in text types and in the order of rows."""
    if isinstance(result, int):
        return result
    return sorted(zip(*result.to_pydict().values(), strict=True))


def measure(run: Run) -> list[float]:
    """Make the calls and time each."""
    call = ways_of(run.task, run.system)[run.way](Path(run.path), TASKS[run.task].asked)
    return interleave.timed(lambda: touch(call()), run.calls)


def touch(result: pa.Table | int) -> None:
    if isinstance(result, pa.Table):
        formats.touch(result)


def touched_share(path: Path, asked: systems.Take) -> float:
    """Return the share of the bytes of these columns in pages that contain one of the rows."""
    whole = touched = 0.0
    with formats.blz().open(path) as table:
        version = table._snapshot.version
        group_rows = np.array(version.head.row_groups)
        starts = np.cumsum(group_rows) - group_rows
        groups = np.searchsorted(starts, asked.indices, side="right") - 1
        for name in asked.columns:
            facts = version.column(table.column_names.index(name)).facts
            page_rows = np.array([part.page_rows for part in facts])
            pages = (asked.indices - starts[groups]) // page_rows[groups]
            group, page = np.unique([groups, pages], axis=1)
            rows = np.minimum(page_rows[group], group_rows[group] - page * page_rows[group])
            whole += table[name].nbytes
            touched += table[name].nbytes * rows.sum() / table.nrows
    return touched / whole


def print_tables(folder: Path, seconds: Seconds, options: argparse.Namespace) -> None:
    """Print Markdown: milliseconds of the fastest way, our speed-up, and every way."""
    measured = {
        key: [1000 * value for value in interleave.medians(runs)] for key, runs in seconds.items()
    }
    for task, system, way in measured:
        if system == TOUCHED:
            share = touched_share(path_of(folder, task, system), TASKS[task].asked)
            measured[task, system, way] = [share * value for value in measured[task, system, way]]
    best = {
        (task, system): [min(values) for values in zip(*by_way, strict=True)]
        for task in options.tasks
        for system in options.systems
        if (by_way := [measured[key] for key in measured if key[:2] == (task, system)])
    }
    print_table("milliseconds", options.tasks, options.systems, best, ".1f")
    faster = {
        (task, system): [other / own for other, own in zip(values, best[task, OURS], strict=True)]
        for (task, system), values in best.items()
        if system != OURS and (task, OURS) in best
    }
    if faster:
        others = [name for name in options.systems if name != OURS]
        print_table("times faster than", options.tasks, others, faster, ".2f")
    interleave.print_row(["task", "system", "way", "milliseconds"])
    interleave.print_row(["---", "---", "---", "---:"])
    for key, values in measured.items():
        interleave.print_row([*key, interleave.pair(values, ".1f")])


def print_table(title: str, tasks: list[str], names: list[str], cells: dict, spec: str) -> None:
    interleave.print_row([title, *names])
    interleave.print_row(["---"] + ["---:"] * len(names))
    for task in tasks:
        interleave.print_row(
            [task, *(interleave.pair(cells.get((task, name)), spec) for name in names)]
        )
    print(flush=True)


class Query:
    """Each task in each system, with the first of its ways."""

    params = PARAMS
    param_names = PARAM_NAMES
    timeout = TIMEOUT

    def setup_cache(self):
        write_files(Path.cwd(), [*TASKS], [*systems.SYSTEMS])

    setup_cache.timeout = TIMEOUT

    def setup(self, task, system):
        path = path_of(Path.cwd(), task, system)
        if not path.exists() or not ways_of(task, system):
            raise NotImplementedError  # asv's word for "skip"
        way, *_ = ways_of(task, system).values()
        self.call = way(path, TASKS[task].asked)

    def time_query(self, task, system):
        touch(self.call())


if __name__ == "__main__":
    main()
