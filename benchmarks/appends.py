"""Small appends and new columns, compared with Lance, DuckDB and a rewritten Parquet file.

    python benchmarks/appends.py --rounds 30

The tasks append 1,000 rows of 16 columns (integers, floats, text) to tables of 10^4, 10^6 and 10^7
rows and to a table made by 10,000 appends of 100 rows; and add a column of floats to a table of 16.
All systems run in one process and take turns, so that changes of the machine's speed affect all of
them. Tables are opened before, as in a program that appends. Lance and Parquet never fsync; DuckDB
does; "blztable" commits with durability "process", "blztable full" with the default.
Numbers are milliseconds, best / median / mean; the mean includes merges of small row groups.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import data_sets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from systems.arrow import Parquet
from systems.engines import DuckDB, Lance
from systems.ours import Blztable
from systems.system import Append, System

SIZES = {"10^4 rows": 10**4, "10^6 rows": 10**6, "10^7 rows": 10**7}
AFTER_APPENDS = "after 10,000 appends"
APPENDS, APPENDED_ROWS = 10_000, 100
APPEND_NAMES = ["table", "system"]
COLUMN_PARAMS = ["blztable", "blztable full", "parquet"]
COLUMN_NAMES = ["system"]
TIMEOUT = 3600

Step = Callable[[], object]


def rows(count: int) -> pa.Table:
    """16 columns: six of integers, six of floats, four of text."""
    random = np.random.default_rng(count)
    columns: dict[str, object] = {}
    for number in range(6):
        columns[f"count_{number}"] = random.integers(0, 10**6, count)
        columns[f"price_{number}"] = random.random(count)
    words = pa.array([f"item {number}" for number in range(1000)])
    for number in range(4):
        columns[f"item_{number}"] = words.take(pa.array(random.integers(0, 1000, count)))
    return pa.table(columns)


class Rewritten(Parquet):
    """A Parquet file, which can only be rewritten with the new rows."""

    def appending(self, path: Path) -> Append:
        return lambda rows: replaced(path, pa.concat_tables([pq.read_table(path), rows]))


KNOWN: dict[str, System] = {
    "blztable": Blztable(),
    "blztable full": Blztable(durability="full"),
    "lance": Lance(),
    "duckdb": DuckDB(),
    "parquet": Rewritten("lz4"),
}
SYSTEMS = [*KNOWN]
APPEND_PARAMS = [[*SIZES, AFTER_APPENDS], SYSTEMS]


def adding_column(system: str, path: Path, values: np.ndarray) -> Step:
    """Return a call that adds a column, with a new name each time."""
    if system == "parquet":
        numbers = iter(range(10**6))
        return lambda: replaced(
            path, pq.read_table(path).append_column(f"new_{next(numbers)}", pa.array(values))
        )
    durability = "full" if system.endswith("full") else "process"
    opened = KNOWN["blztable"].blz.open(path, "a", durability=durability)
    numbers = iter(range(10**6))
    return lambda: opened.add_column(f"new_{next(numbers)}", values)


def replaced(path: Path, table: pa.Table) -> None:
    """Rewrite the Parquet file and put it in place of the old one."""
    aside = path.with_suffix(".new")
    pq.write_table(table, aside, compression="lz4")
    os.replace(aside, path)


def suffixed(folder: Path, system: str, case: str) -> Path:
    return folder / f"{case} {system}".replace("^", "").replace(" ", "-").replace(",", "")


class Append:
    """Appending 1,000 rows."""

    params = APPEND_PARAMS
    param_names = APPEND_NAMES
    timeout = TIMEOUT
    number = 1
    warmup_time = 0

    def setup_cache(self):
        prepare(Path.cwd(), [*SIZES, AFTER_APPENDS], SYSTEMS)

    setup_cache.timeout = TIMEOUT

    def setup(self, case, system):
        path = suffixed(Path.cwd(), system, case)
        if not path.exists():
            raise NotImplementedError  # asv's word for "skip"
        self.append = KNOWN[system].appending(path)
        self.rows = rows(1000)

    def time_append(self, case, system):
        self.append(self.rows)


class AddColumn:
    """Adding a column to a table of 10^6 rows and 16 columns."""

    params = COLUMN_PARAMS
    param_names = COLUMN_NAMES
    timeout = TIMEOUT
    number = 1
    warmup_time = 0

    def setup(self, system):
        self.folder = Path(tempfile.mkdtemp(dir=Path.cwd()))
        path = self.folder / "table"
        KNOWN[system].write(rows(10**6), path)
        self.add = adding_column(system, path, np.random.default_rng(1).random(10**6))

    def teardown(self, system):
        shutil.rmtree(self.folder)

    def time_add_column(self, system):
        self.add()


def prepare(folder: Path, cases: list[str], systems: list[str]) -> None:
    """Write the tables of all cases in all installed systems."""
    for case in cases:
        table = rows(SIZES.get(case, APPENDED_ROWS))
        for system in systems:
            path = suffixed(folder, system, case)
            try:
                KNOWN[system].write(table, path)
                if case == AFTER_APPENDS and system != "parquet":
                    append = KNOWN[system.removesuffix(" full")].appending(path)
                    few = rows(APPENDED_ROWS)
                    for _ in range(APPENDS):
                        append(few)
            except ImportError as error:
                print(f"{system} is left out: {error}", file=sys.stderr)


def timed(steps: dict[str, Step], rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of each step, in turn; the first call of each is left out."""
    measured: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds + 1):
        for name, step in steps.items():
            begin = time.perf_counter()
            step()
            if number:
                measured[name].append(1000 * (time.perf_counter() - begin))
    return measured


def shown(case: str, measured: dict[str, list[float]]) -> None:
    for name, times in measured.items():
        print(
            f"| {case} | {name} | {min(times):.1f} / {statistics.median(times):.1f} / "
            f"{statistics.mean(times):.1f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--cases", nargs="+", default=[*SIZES, AFTER_APPENDS, "add column"])
    parser.add_argument("--systems", nargs="+", default=SYSTEMS)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="appends-", dir=data_sets.cache_folder()))
    try:
        for case in options.cases:
            if case == "add column":
                systems = [name for name in options.systems if name in AddColumn.params]
                prepare(folder, ["10^6 rows"], systems)
                values = np.random.default_rng(1).random(10**6)
                steps = {
                    name: adding_column(name, suffixed(folder, name, "10^6 rows"), values)
                    for name in systems
                }
            else:
                prepare(folder, [case], options.systems)
                paths = {name: suffixed(folder, name, case) for name in options.systems}
                steps = {
                    name: partial(KNOWN[name].appending(path), rows(1000))
                    for name, path in paths.items()
                    if path.exists()
                }
            large = SIZES.get(case, 0) > 10**6
            shown(case, timed(steps, min(options.rounds, 5) if large else options.rounds))
            shutil.rmtree(folder)
            folder.mkdir()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
