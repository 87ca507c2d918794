"""What a commit, an open and a plan cost beside 10^2, 10^4 and 10^5 row groups.

    python benchmarks/growth.py

Each table has row groups of 1,000 rows and 16 columns: keys that ascend, integers, floats of two
decimals, text. Appending 10^5 of them would take many minutes, so one row group is written, and its
records are repeated in leaves: each has keys of its own, and its file is a link to the one that was
written. What is measured is public: to open the table, to append, to count the rows of 1 % of the
row groups by their keys (the statistics decide it, so it is the plan alone), and to read these
rows.

A fresh process measures one table. Figures: the CPU time of all threads, in milliseconds, median
and greatest; bytes written by an append (Linux only); growth of the peak memory.
"""

import argparse
import itertools
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import data_sets
import numpy as np
import pyarrow as pa

import blztable as blz
from blztable.engine.version import versions
from blztable.engine.version.facts import Run
from blztable.engine.version.packing import packed
from blztable.format import layout
from blztable.format.leaf import Leaf
from blztable.format.records import WORD, join
from blztable.format.version_file import encode_version
from blztable.storage.resolve import store_at

ROWS, COLUMNS = 1_000, 16
SIZES = (10**2, 10**4, 10**5)
# Row groups whose records are made at once.
AT_ONCE = 1_024
# Names of one file: a file system has a bound.
LINKS = 10_000
COUNTER = Path("/proc/self/io")


def rows(seed: int = 0) -> pa.Table:
    """Return 1,000 rows of 16 columns; the keys are 0 to 999 in no order."""
    draw = np.random.default_rng(seed)
    columns: dict[str, object] = {"key": draw.permutation(ROWS)}
    for number in range(5):
        columns[f"count_{number}"] = draw.integers(0, 10 ** (number + 1), ROWS)
    for number in range(6):
        columns[f"price_{number}"] = draw.integers(0, 10**4, ROWS) / 100
    for number in range(4):
        words = pa.array(draw.integers(0, 10 ** (number + 1), ROWS).astype(str))
        columns[f"text_{number}"] = words.cast(pa.large_string())
    return pa.table(columns)


def build(path: Path, groups: int) -> None:
    """Make a table of so many row groups, which have the same rows but for their keys."""
    # Row groups are full, so that no append merges any; appends.py measures merges.
    blz.to_blz(rows(), path, storage=blz.Storage(row_group_rows=ROWS), durability="process")
    store = store_at(path)
    version = versions.latest(store)
    assert version is not None
    facts = version.facts
    (one,) = facts.runs
    # Each row group names a bundle of its own: the same file by so many names.
    (first_file,) = one.groups["file"].tolist()
    bundle = path / layout.part(layout.SHARED, first_file)
    for number in range(first_file + 1, first_file + groups):
        named = path / layout.part(layout.SHARED, number)
        if number % LINKS:
            os.link(bundle, named)
        else:
            bundle = Path(shutil.copy(bundle, named))
    numbers = itertools.count(version.head.next_file + groups)

    def put(leaf: Leaf) -> int:
        number = next(numbers)
        store.put(layout.leaf(number), leaf.data)
        return number

    tails: list[Run] = []
    for first in range(0, groups, AT_ONCE):
        runs = [*reversed(tails), repeated(one, first, min(AT_ONCE, groups - first))]
        tails = packed([run for run in runs if len(run)], version.orders(), put, facts.below)
    head = replace(version.head, rows=groups * ROWS, next_file=next(numbers))
    data = encode_version(head.to_json(), version.schema_bytes, [run.encoded() for run in tails])
    # A version is never replaced but here.
    (path / version.key).write_bytes(data)


def repeated(one: Run, first: int, count: int) -> Run:
    """Return the entry of a row group so often, each with 1,000 keys behind those before."""
    records = join([one.records()] * count)
    # The codes of a page are added to its least value. Keys are the first column, a page each.
    keys = records.pages[:count]
    keys["min"] = (first + np.arange(count)) * ROWS
    keys["max"] = keys["min"] + ROWS - 1
    files = int(one.groups["file"][0]) + first + np.arange(count)
    records.parts["file"] = np.tile(files, records.columns)
    groups = np.repeat(one.groups, count)
    groups["file"] = files
    return Run(0, groups, np.zeros(0, WORD), records)


def measure(path: Path, groups: int, appends: int) -> dict[str, object]:
    """Open, plan, read and append; return the figures."""
    filters = one_per_cent(groups)
    (_, _, first), (_, _, last) = filters
    found: dict[str, object] = {"groups": groups}
    found["open"] = milliseconds(lambda: blz.open(path).close(), 15)

    def planned() -> None:
        with blz.open(path) as table:
            assert table.count(filters=filters) == last - first

    found["open and plan"] = milliseconds(planned, 9)
    with blz.open(path) as table:
        found["plan"] = milliseconds(lambda: table.count(filters=filters), 9)
        keys = table.to_arrow(columns=["key"], filters=filters)["key"].to_numpy()
        assert np.array_equal(np.sort(keys), np.arange(first, last))
    memory, more = peak(), rows(1)
    with blz.open(path, "a", durability="process") as table:
        written = bytes_written()
        found["append"] = milliseconds(lambda: table.append(more), appends)
        found["kB written"] = round((bytes_written() - written) / (appends + 1) / 1e3, 1)
        assert len(table) == (groups + appends + 1) * ROWS
    found["MB of memory"] = round((peak() - memory) / 1e6, 1)
    return found


def one_per_cent(groups: int) -> list[tuple[str, str, int]]:
    """Return a filter that leaves one per cent of the row groups, from the middle on."""
    first = groups // 2 * ROWS
    return [("key", ">=", first), ("key", "<", first + groups // 100 * ROWS)]


def milliseconds(call: Callable[[], object], times: int) -> str:
    """Return the median, the mean and the greatest CPU time of a call."""
    found = []
    # The first call imports and fills caches.
    call()
    for _ in range(times):
        begin = time.process_time()
        call()
        found.append(1e3 * (time.process_time() - begin))
    return f"{statistics.median(found):.2f} / {statistics.mean(found):.2f} / {max(found):.1f}"


def bytes_written() -> int:
    """Return the bytes that this process wrote; 0 where nobody counts them."""
    if not COUNTER.exists():
        return 0
    lines = COUNTER.read_text(encoding="ascii").splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])


def peak() -> int:
    """Return the peak memory of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, nargs="+", default=SIZES)
    parser.add_argument("--appends", type=int, default=64)
    parser.add_argument("--table", type=Path, help="measure only this table, which exists")
    options = parser.parse_args()
    if options.table is not None:
        print(json.dumps(measure(options.table, options.groups[0], options.appends)))
        return
    print("CPU milliseconds: median / mean / greatest", flush=True)
    for groups in options.groups:
        with tempfile.TemporaryDirectory(prefix="growth-", dir=data_sets.cache_folder()) as folder:
            path = Path(folder) / "table.blz"
            build(path, groups)
            # What building took must not count as memory of the measurement.
            command = [sys.executable, __file__, "--table", str(path), "--groups", str(groups)]
            command += ["--appends", str(options.appends)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            found = json.loads(done.stdout)
            print(", ".join(f"{name} {value}" for name, value in found.items()), flush=True)


if __name__ == "__main__":
    main()
