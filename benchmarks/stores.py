"""A table in an object store, beside pyarrow Parquet, Lance and delta-rs: the time on the wall.

    PYTHONPATH=.:tests python benchmarks/stores.py [--rounds 5] [--rows 2000000] [--output FILE]

A process of its own runs the S3 server of the tests, which delays each exchange and counts it. The
systems take turns at each task, each opens its table anew, and the median of the rounds is printed
with the requests, the rounds (requests that followed one another) and the bytes of a call. A system
that is not installed is left out.
"""

import argparse
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

import blztable as blz

COLUMNS = 16
DAYS = 100
TWO = ["f0", "city"]
TAKEN = 10
APPENDED = 1_000
# Latency in seconds, bytes a second of a connection (0: no limit), row groups.
CASES = {
    "20 ms, 2 row groups": (0.02, 0.0, 2),
    "20 ms, 16 row groups": (0.02, 0.0, 16),
    "100 ms, 2 row groups": (0.1, 0.0, 2),
    "100 ms, 16 row groups": (0.1, 0.0, 16),
    "20 ms, 80 MB/s a connection, 16 row groups": (0.02, 80e6, 16),
}


def made(rows: int, seed: int = 0) -> pa.Table:
    """Return rows of 16 columns: numbers, texts, dates and booleans; `day` ascends."""
    draw = np.random.default_rng(seed)
    columns: dict[str, Any] = {f"f{n}": draw.normal(size=rows) for n in range(5)}
    columns |= {f"price{n}": np.round(draw.gamma(2, 20, rows), 2) for n in range(2)}
    columns |= {f"n{n}": draw.integers(0, 1 << 20, rows) for n in range(3)}
    cities = pa.array(["Oslo", "Bern", "Rome", "Bari", "Paris", "Lima"])
    columns["day"] = np.arange(rows) * DAYS // max(rows, 1)
    columns["id"] = np.arange(rows)
    columns["city"] = cities.take(pa.array(draw.integers(0, len(cities), rows)))
    columns["text"] = pc.binary_join_element_wise(
        "order", pa.array(draw.integers(0, 10**9, rows)).cast(pa.string()), " "
    )
    columns["flag"] = draw.random(rows) < 0.3
    seconds = pd.Timestamp("2024-01-01").value // 10**3 + np.sort(draw.integers(0, 10**13, rows))
    columns["time"] = pa.array(seconds, pa.timestamp("us"))
    table = pa.table(columns)
    assert table.num_columns == COLUMNS
    return table


# The server.


class Counted(NamedTuple):
    """What the server saw of a call."""

    requests: int
    rounds: int
    nbytes: int


def _serve(pipe: Any) -> None:
    """Run the server; answer what the other end of the pipe asks."""
    # The tests have the server, and another process does not need it.
    server_class = import_module("support.s3_server").S3Server
    with server_class() as server:
        pipe.send(server.url)
        while (asked := pipe.recv()) is not None:
            if asked == "count":
                log = server.log
                pipe.send((len(log), log.rounds, log.sent + sum(one.received for one in log)))
            else:
                server.latency, server.bandwidth = asked
                server.log.clear()
                pipe.send(None)


class Server:
    """The server in its process."""

    def __init__(self) -> None:
        """Start it."""
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other,), daemon=True)
        self._process.start()
        self.url: str = self._pipe.recv()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.send(None)
        self._process.join()

    @contextmanager
    def slow(self, latency: float, bandwidth: float) -> Iterator[Callable[[], Counted]]:
        """Delay exchanges; yield a function that says what was exchanged since the begin."""
        self._set(latency, bandwidth)
        try:
            yield self._count
        finally:
            self._set(0, 0)

    def _set(self, latency: float, bandwidth: float) -> None:
        self._pipe.send((latency, bandwidth))
        self._pipe.recv()

    def _count(self) -> Counted:
        self._pipe.send("count")
        return Counted(*self._pipe.recv())


# The systems: each task opens the table anew, unless it says otherwise.


class Blztable:
    """blztable, by its URL."""

    name = "blztable"

    def __init__(self, url: str) -> None:
        """Take the address of the server."""
        self._options = {"key": "a", "secret": "b", "endpoint_url": url, "region": "us-east-1"}

    def write(self, table: pa.Table, name: str, groups: int) -> None:
        """Write a table of as many row groups."""
        storage = blz.Storage(row_group_rows=-(-len(table) // groups))
        blz.to_blz(table, self._at(name), storage=storage, storage_options=self._options)

    def tasks(self, name: str, more: pa.Table) -> dict[str, Callable[[], Callable[[], object]]]:
        """Return the tasks: each prepares what is not measured, and returns the call."""
        at, options = self._at(name), {"storage_options": self._options}
        numbers = _taken(name)

        def appending() -> Callable[[], object]:
            opened = blz.open(at, "a", **options)
            return lambda: opened.append(more)

        return {
            "open": lambda: lambda: blz.open(at, **options),
            "open, 2 columns": lambda: lambda: blz.read_table(at, columns=TWO, **options),
            "open, everything": lambda: lambda: blz.read_table(at, **options),
            "open, filter, 2 columns": lambda: (
                lambda: blz.read_table(at, columns=TWO, filters=[("day", "==", 8)], **options)
            ),
            "open, take(10)": lambda: lambda: blz.open(at, **options).take(numbers),
            "append, by path": lambda: lambda: blz.to_blz(more, at, mode="a", **options),
            "append, open table": appending,
        }

    def _at(self, name: str) -> str:
        return f"s3://bucket/{name}.blz"


class Parquet:
    """A directory of one file of pyarrow Parquet, by pyarrow's own S3 file system."""

    name = "Parquet"

    def __init__(self, url: str) -> None:
        """Connect to the server."""
        fs = import_module("pyarrow.fs")
        self._pq = import_module("pyarrow.parquet")
        self._ds = import_module("pyarrow.dataset")
        self._files = fs.S3FileSystem(
            access_key="a", secret_key="b", endpoint_override=url, region="us-east-1"
        )

    def write(self, table: pa.Table, name: str, groups: int) -> None:
        """Write a file of as many row groups."""
        rows = -(-len(table) // groups)
        path = f"bucket/{name}.parquet/part-0.parquet"
        self._pq.write_table(table, path, row_group_size=rows, filesystem=self._files)

    def tasks(self, name: str, more: pa.Table) -> dict[str, Callable[[], Callable[[], object]]]:
        """Return the tasks; an append is another file, and no commit."""
        where = f"bucket/{name}.parquet"
        path, numbers = f"{where}/part-0.parquet", _taken(name)
        names = iter(range(1, 1 << 30))

        def read(**given: Any) -> Callable[[], Callable[[], object]]:
            return lambda: (
                lambda: self._pq.read_table(path, filesystem=self._files, pre_buffer=True, **given)
            )

        return {
            "open": lambda: lambda: self._pq.ParquetFile(path, filesystem=self._files),
            "open, 2 columns": read(columns=TWO),
            "open, everything": read(),
            "open, filter, 2 columns": read(columns=TWO, filters=[("day", "==", 8)]),
            "open, take(10)": lambda: (
                lambda: self._ds.dataset(path, format="parquet", filesystem=self._files).take(
                    pa.array(numbers)
                )
            ),
            "append, by path": lambda: (
                lambda: self._pq.write_table(
                    more, f"{where}/part-{next(names)}.parquet", filesystem=self._files
                )
            ),
        }


class Lance:
    """Lance."""

    name = "Lance"

    def __init__(self, url: str) -> None:
        """Take the address of the server."""
        self._lance = import_module("lance")
        self._options = {
            "aws_access_key_id": "a",
            "aws_secret_access_key": "b",
            "aws_endpoint": url,
            "aws_region": "us-east-1",
            "allow_http": "true",
        }

    def write(self, table: pa.Table, name: str, groups: int) -> None:
        """Write a table of as many fragments."""
        rows = -(-len(table) // groups)
        self._lance.write_dataset(
            table, self._at(name), max_rows_per_file=rows, storage_options=self._options
        )

    def tasks(self, name: str, more: pa.Table) -> dict[str, Callable[[], Callable[[], object]]]:
        """Return the tasks."""
        at, numbers = self._at(name), _taken(name)
        lance, options = self._lance, {"storage_options": self._options}

        def appending() -> Callable[[], object]:
            opened = lance.dataset(at, **options)
            return lambda: lance.write_dataset(more, opened, mode="append", **options)

        return {
            "open": lambda: lambda: lance.dataset(at, **options),
            "open, 2 columns": lambda: lambda: lance.dataset(at, **options).to_table(columns=TWO),
            "open, everything": lambda: lambda: lance.dataset(at, **options).to_table(),
            "open, filter, 2 columns": lambda: (
                lambda: lance.dataset(at, **options).to_table(columns=TWO, filter="day = 8")
            ),
            "open, take(10)": lambda: lambda: lance.dataset(at, **options).take(numbers),
            "append, by path": lambda: (
                lambda: lance.write_dataset(more, at, mode="append", **options)
            ),
            "append, open table": appending,
        }

    def _at(self, name: str) -> str:
        return f"s3://bucket/{name}.lance"


class Delta:
    """delta-rs, which reads by pyarrow."""

    name = "delta-rs"

    def __init__(self, url: str) -> None:
        """Take the address of the server."""
        self._delta = import_module("deltalake")
        self._options = {
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_ENDPOINT_URL": url,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            "aws_conditional_put": "etag",
        }

    def write(self, table: pa.Table, name: str, groups: int) -> None:
        """Write a table of one file with as many row groups."""
        rows = -(-len(table) // groups)
        self._delta.write_deltalake(
            self._at(name),
            table,
            storage_options=self._options,
            writer_properties=self._delta.WriterProperties(max_row_group_size=rows),
            target_file_size=1 << 30,
        )

    def tasks(self, name: str, more: pa.Table) -> dict[str, Callable[[], Callable[[], object]]]:
        """Return the tasks."""
        at, numbers = self._at(name), _taken(name)

        def opened() -> Any:
            return self._delta.DeltaTable(at, storage_options=self._options)

        def append(to: Any) -> object:
            return self._delta.write_deltalake(
                to, more, mode="append", storage_options=self._options
            )

        def appending() -> Callable[[], object]:
            table = opened()
            return lambda: append(table)

        return {
            "open": lambda: opened,
            "open, 2 columns": lambda: lambda: opened().to_pyarrow_table(columns=TWO),
            "open, everything": lambda: lambda: opened().to_pyarrow_table(),
            "open, filter, 2 columns": lambda: (
                lambda: opened().to_pyarrow_table(columns=TWO, filters=[("day", "==", 8)])
            ),
            "open, take(10)": lambda: lambda: opened().to_pyarrow_dataset().take(pa.array(numbers)),
            "append, by path": lambda: lambda: append(at),
            "append, open table": appending,
        }

    def _at(self, name: str) -> str:
        return f"s3://bucket/{name}.delta"


SYSTEMS = [Blztable, Parquet, Lance, Delta]
_rows: dict[str, int] = {}


def _taken(name: str) -> list[int]:
    """Return rows of a table, spread over it."""
    rows = _rows[name]
    return np.sort(np.random.default_rng(1).choice(rows, TAKEN, replace=False)).tolist()


# The measurement.


def measured(rows: int, rounds: int, cases: list[str]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return, by case, task and system: seconds, requests, rounds and bytes."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    with Server() as server:
        systems = []
        for system in SYSTEMS:
            try:
                systems.append(system(server.url))
            except ImportError as error:
                print(f"{system.name} is left out: {error}")
        table, more = made(rows), made(APPENDED, 1)
        for case in cases:
            latency, bandwidth, groups = CASES[case]
            # Appends of one case do not change the table of another.
            name = case.replace(" ", "-").replace(",", "").replace("/", "-")
            _rows[name] = rows
            for system in systems:
                system.write(table, name, groups)
            tasks = {system.name: system.tasks(name, more) for system in systems}
            found[case] = {}
            for task in tasks[Blztable.name]:
                taken: dict[str, list[tuple[float, Counted]]] = {}
                for _ in range(rounds):
                    for system in systems:
                        if task in tasks[system.name]:
                            one = _call(server, tasks[system.name][task], latency, bandwidth)
                            taken.setdefault(system.name, []).append(one)
                found[case][task] = {
                    system: {
                        "seconds": statistics.median(seconds for seconds, _ in calls),
                        "least": min(seconds for seconds, _ in calls),
                        **min(calls)[1]._asdict(),
                    }
                    for system, calls in taken.items()
                }
                print(f"{case}: {task}: {_line(found[case][task])}", flush=True)
    return found


def _call(
    server: Server, task: Callable[[], Callable[[], object]], latency: float, bandwidth: float
) -> tuple[float, Counted]:
    call = task()
    with server.slow(latency, bandwidth) as counted:
        begin = time.perf_counter()
        kept = call()
        seconds = time.perf_counter() - begin
        counts = counted()
    del kept
    return seconds, counts


def _line(systems: dict[str, Any]) -> str:
    return "; ".join(
        f"{name} {one['seconds']:.2f} s ({one['least']:.2f}), {one['requests']} requests, "
        f"{one['rounds']} rounds, {one['nbytes'] / 1e6:.1f} MB"
        for name, one in systems.items()
    )


def table_of(found: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Return the results as tables of Markdown: seconds, and requests / rounds."""
    lines: list[str] = []
    for case, tasks in found.items():
        names = [system.name for system in SYSTEMS if system.name in next(iter(tasks.values()))]
        lines += ["", f"| {case} | {' | '.join(names)} |", "| --- |" + " --- |" * len(names)]
        for task, systems in tasks.items():
            cells = [
                f"{one['seconds']:.2f} s, {one['requests']} / {one['rounds']}" if one else "-"
                for one in (systems.get(name) for name in names)
            ]
            lines.append(f"| {task} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description="Tables in an object store.")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    found = measured(options.rows, options.rounds, options.case or list(CASES))
    print(table_of(found))
    if options.output:
        options.output.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
