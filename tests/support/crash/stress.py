"""Processes that change one table at the same time, or are killed while they do.

A fork server, which has everything imported, starts each process in hundredths of a second. A
process reports its work through a pipe, before and after, and the test compares. An operation of
`Model` has the same effect on a table and on a list.
"""

import errno
import multiprocessing
import os
import random
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import blztable as blz
from support.crash.checks import unnamed

CONTEXT = multiprocessing.get_context("forkserver")
# Not this file: the processes know its place, but not their fork server.
CONTEXT.set_forkserver_preload(["blztable", "pyarrow.compute"])

SCHEMA = pa.schema([("writer", pa.int64()), ("number", pa.int64()), ("balance", pa.int64())])


@contextmanager
def running(
    program: Callable[..., None], *arguments: Any
) -> Iterator[tuple[BaseProcess, Connection]]:
    """Start a process that runs `program(pipe, *arguments)`; kill it at the end."""
    pipe, theirs = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=program, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        yield process, pipe
    finally:
        process.kill()
        process.join()
        pipe.close()


def told(pipe: Connection) -> list[Any]:
    """Return all messages of a process until its end."""
    messages = []
    with suppress(EOFError):
        while True:
            messages.append(pipe.recv())
    return messages


def balanced(writer: int, number: int, pairs: int) -> pa.Table:
    """Return rows of one commit, whose balances add up to 0."""
    balances = [sign * (number + pair) for pair in range(pairs) for sign in (1, -1)]
    count = len(balances)
    return pa.table([[writer] * count, [number] * count, balances], schema=SCHEMA)


# --- one writer, which is killed


# An operation: its name, its number, and one more number.
Step = tuple[str, int, int]


def steps(seed: int, first: int) -> Iterator[Step]:
    """Yield random operations without end."""
    draw = random.Random(seed)
    names = ("append", "append", "append", "update", "delete", "several", "compact", "vacuum")
    for number in range(first, 1 << 60):
        yield draw.choice(names), number, draw.randrange(1, 6)


def perform(table: blz.CTable, step: Step) -> None:
    """Perform the operation on a table; a repetition has no effect."""
    name, number, more = step
    commit_id = f"step {number}"
    match name:
        case "append":
            table.append(balanced(0, number, more), commit_id=commit_id)
        case "compact":
            table.compact()
        case "vacuum":
            table.vacuum(keep=more)
        case "update":
            with table.transaction(commit_id=commit_id) as tx:
                tx.update({"balance": pc.field("balance") + 1}, where=pc.field("balance") == more)
        case "delete":
            with table.transaction(commit_id=commit_id) as tx:
                tx.delete((pc.field("number") < number - 40) | (pc.field("balance") == more))
        case "several":
            with table.transaction(commit_id=commit_id) as tx:
                tx.append(balanced(0, number, more))
                tx.delete(pc.field("number") == number - 1)
                tx.attrs["until"] = number


def performed(rows: list[tuple], attrs: dict, step: Step) -> tuple[list[tuple], dict]:
    """Return the list of rows and the attributes after the operation."""
    name, number, more = step
    new = list(zip(*balanced(0, number, more).to_pydict().values(), strict=True))
    match name:
        case "append":
            return rows + new, attrs
        case "update":
            return [
                (writer, of, balance + (balance == more)) for writer, of, balance in rows
            ], attrs
        case "delete":
            return [row for row in rows if row[1] >= number - 40 and row[2] != more], attrs
        case "several":
            return [row for row in rows if row[1] != number - 1] + new, {"until": number}
    return rows, attrs


def restless(pipe: Connection, path: Path, seed: int, first: int) -> None:
    """Perform operations on a table until the process is killed."""
    durability = ("full", "process")[seed % 2]
    with blz.open(path, mode="a", durability=durability) as table:
        for step in steps(seed, first):
            pipe.send(("begin", step))
            perform(table, step)
            pipe.send(("done", step))


# --- several writers


# A table remembers the last 1,000 names of commits. A process that repeats the work of another one
# may fall behind by all commits of two writers, and must still find its names.
MOST_NAMED = 450


def racing(pipe: Connection, path: Path, writer: int, seed: int, seconds: float) -> None:
    """Append, sometimes compact and vacuum; report the number of each append.

    Two processes with the same writer do the same work, because the writer is the seed.
    """
    draw = random.Random(seed)
    end = time.monotonic() + seconds
    durability = ("full", "process")[seed % 2]
    number = 0
    while time.monotonic() < end and number < MOST_NAMED:
        with blz.open(path, mode="a", durability=durability) as table:
            for _ in range(draw.randrange(1, 20)):
                rows, commit_id = balanced(writer, number, 1), f"{writer}: {number}"
                if seed != writer or draw.random() < 0.5:
                    table.append(rows, commit_id=commit_id)
                else:
                    with table.transaction(commit_id=commit_id) as tx:
                        tx.append(rows)
                        tx.attrs[f"writer {writer}"] = number
                pipe.send(number)
                number += 1
            if draw.random() < 0.3:
                with suppress(blz.ConflictError):
                    table.compact()
            if draw.random() < 0.3:
                with suppress(blz.BusyError):
                    table.vacuum(keep=draw.randrange(1, 4), wait=0.5)


def founding(pipe: Connection, paths: list[Path], writer: int) -> None:
    """Append to tables that may not exist yet; all writers meet at the same table."""
    for number, path in enumerate(paths):
        blz.to_blz(balanced(writer, number, 1), path, mode="a", durability="process")
    pipe.send("done")


# --- readers beside a writer


def moving(pipe: Connection, path: Path, seconds: float) -> None:
    """Make commits of all kinds; after each, balances add up to 0 and attributes are true."""
    draw = random.Random(0)
    end = time.monotonic() + seconds
    count = 0
    with blz.open(path, mode="a", durability="process") as table:
        while time.monotonic() < end:
            count += 1
            with table.transaction() as tx:
                match draw.randrange(5):
                    case 0 | 1:
                        tx.append(balanced(0, count, draw.randrange(1, 50)))
                    case 2:
                        tx.update({"balance": pc.field("balance") * -1})
                    case 3:
                        tx.delete(pc.field("number") < count - draw.randrange(5, 50))
                    case 4:
                        tx.compact(sort_by=[("balance", "ascending")])
                tx.attrs["rows"] = len(tx)
                tx.attrs["count"] = count
            if draw.random() < 0.1:
                table.vacuum(keep=1)
    pipe.send(count)


def looking(pipe: Connection, path: Path, seconds: float) -> None:
    """Open and read in a loop; report the number of reads, or the fault."""
    end = time.monotonic() + seconds
    count, newest = 0, 0
    while time.monotonic() < end:
        with blz.open(path) as table:
            first, attrs = table.to_arrow(), dict(table.attrs)
            wrong = [
                pc.sum(first["balance"]).as_py() not in (0, None),
                attrs["rows"] != len(first),
                attrs["count"] < newest,
                table.to_arrow(["balance"])["balance"] != first["balance"],
                not table.to_arrow().equals(first),
            ]
        if any(wrong):
            pipe.send(f"version {table.version}, {attrs}: {wrong}")
            return
        count, newest = count + 1, attrs["count"]
    pipe.send(count)


# --- no room


def noise(number: int, rows: int) -> pa.Table:
    """Return rows that cannot be compressed."""
    values = np.frombuffer(random.Random(number).randbytes(8 * rows), np.int64)
    return pa.table({"n": values})


def limited(pipe: Connection, path: Path, limit: int) -> None:
    """Append more than a file may hold; report the errno, and append again without the limit."""
    blz.to_blz(noise(0, 10), path)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with blz.open(path, mode="a") as table:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        error = refusal(lambda: table.append(noise(1, limit), commit_id="noise"))
        pipe.send(error and error.errno)
        pipe.send((unnamed(path), len(table), blz.read_table(path).equals(noise(0, 10))))
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        table.append(noise(1, limit), commit_id="noise")
    both = pa.concat_tables([noise(0, 10), noise(1, limit)])
    pipe.send(blz.read_table(path).equals(both))


def filling(directory: Path) -> None:
    """Fill a small file system, check the table, and continue when there is room."""
    path, filler = directory / "t.blz", directory / "filler"
    filler.write_bytes(bytes(1 << 20))
    blz.to_blz(noise(0, 1), path)
    number, refused = 0, 0
    with blz.open(path, mode="a") as table:
        while refused < 20:
            rows = noise(number + 1, 5000)
            error = refusal(partial(table.append, rows, commit_id=f"{number}"))
            if error is None:
                number += 1
                continue
            refused += 1
            assert error.errno == errno.ENOSPC, error
            assert "t.blz" in str(error), error
            check_noise(path, number)
            if refused % 5 == 0:
                # Data of other processes come back bit for bit.
                os.truncate(filler, filler.stat().st_size // 2)
        for change in (
            lambda: table.update({"n": 1}, where=pc.field("n") != 1),
            lambda: table.add_column("x", noise(0, len(table))["n"]),
            lambda: table.compact(sort_by="n"),
        ):
            error = refusal(change)
            assert error is not None
            assert error.errno == errno.ENOSPC, error
            refused += 1
        check_noise(path, number)
        filler.unlink()
        table.vacuum(keep=1)
        table.append(noise(number + 1, 5000), commit_id=f"{number}")
        check_noise(path, number + 1)
    print(f"{number + 1} appends, {refused} changes refused")


def refusal(change: Callable[[], object]) -> blz.StorageError | None:
    """Return the error of a change; None if it succeeded."""
    try:
        change()
    except blz.StorageError as error:
        return error
    return None


def check_noise(path: Path, appends: int) -> None:
    """Check that the table has all appends and no file that no version names."""
    expected = [noise(0, 1), *(noise(number, 5000) for number in range(1, appends + 1))]
    assert blz.read_table(path).equals(pa.concat_tables(expected))
    assert unnamed(path) == set(), unnamed(path)


if __name__ == "__main__":
    warnings.simplefilter("error")
    # A mirror or a merge without room is a warning.
    warnings.filterwarnings("ignore", message=".* is committed, but")
    filling(Path(sys.argv[1]))
