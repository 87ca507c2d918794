"""Concurrent filtered reads: in threads, in a forked child, and with Ctrl-C."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.engine.query import expressions
from blztable.engine.read import parts
from blztable.engine.run import pool

ROWS = 4000
TABLE = pa.table(
    {
        "key": np.arange(ROWS),
        "few": np.arange(ROWS) * 7 % 64,
        "t": [f"word {row}" for row in range(ROWS)],
    }
)
GIVEN = (pc.field("few") == 3) & (pc.field("key") > 1000)
LEFT = TABLE.filter(GIVEN)


@pytest.fixture(params=[1, 2], ids=["alone", "helped"])
def processors(request, monkeypatch):
    monkeypatch.setattr(pool, "_processors", lambda: request.param)
    monkeypatch.setattr(pool, "_pool", None)
    yield
    if pool._pool is not None:
        pool._pool.shutdown()


@pytest.fixture
def path(tmp_path):
    blz.to_blz(
        TABLE,
        tmp_path / "t.blz",
        storage=blz.Storage(row_group_rows=500, page_rows=64),
        durability="process",
    )
    return tmp_path / "t.blz"


READS = {
    "read": lambda table: table.to_arrow(filters=GIVEN),
    "batches": lambda table: pa.Table.from_batches(
        list(table.to_batches(filters=GIVEN)), table.schema
    ),
    "count": lambda table: table.count(filters=GIVEN),
    "take": lambda table: table.take(np.flatnonzero(TABLE["few"].to_numpy() == 3)),
}
FOUND = {
    "read": LEFT,
    "batches": LEFT,
    "count": len(LEFT),
    "take": TABLE.filter(pc.field("few") == 3),
}


def test_threads_read_one_table_through_filters_at_once(path):
    with blz.open(path) as table, ThreadPoolExecutor(6) as pool:
        names = list(READS) * 12
        found = list(pool.map(lambda name: READS[name](table), names))
    assert all(one == FOUND[name] for one, name in zip(found, names, strict=True))


def test_threads_with_filters_of_their_own_do_not_meet(path):
    def read(value):
        found = blz.read_table(path, columns=["key"], filters=[("few", "==", value)])
        return found["key"].to_pylist() == np.flatnonzero(TABLE["few"].to_numpy() == value).tolist()

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(read, list(range(64))))


def interrupting(monkeypatch, module, name, times):
    """Send Ctrl-C at the n-th call of a function of the module."""
    real = getattr(module, name)
    calls = []

    def hooked(*args, **options):
        calls.append(args)
        if len(calls) == times:
            os.kill(os.getpid(), signal.SIGINT)
        return real(*args, **options)

    monkeypatch.setattr(module, name, hooked)


@pytest.mark.parametrize("read", ["read", "batches", "count", "take"])
@pytest.mark.parametrize(
    ("module", "name", "times"),
    [(expressions, "mask", 1), (parts, "decompress_into", 1), (parts, "decompress_into", 3)],
    ids=["in the filter", "in the first pages", "in later pages"],
)
def test_an_interrupt_ends_a_filtered_read(
    processors, path, monkeypatch, read, module, name, times
):
    if read == "take":
        # It has no filter, and decompresses the blocks of single rows.
        module, name, times = parts, "decompress_into", 1
    with blz.open(path) as table:
        READS[read](table)
        before = set(threading.enumerate())
        with monkeypatch.context() as patch:
            interrupting(patch, module, name, times)
            with pytest.raises(KeyboardInterrupt):
                READS[read](table)
        # The pool stays, everything else is released, and the next read works normally.
        assert all(t.name.startswith("blztable") for t in set(threading.enumerate()) - before)
        assert READS[read](table) == FOUND[read]


FORK = """
import os, signal, sys, threading
import pyarrow.compute as pc
import blztable as blz

path = sys.argv[1]
held = blz.open(path)
given = (pc.field("few") == 3) & (pc.field("key") > 1000)
whole = held.to_arrow()
left = whole.filter(given)
is_over = threading.Event()

def read():
    while not is_over.is_set():
        assert held.to_arrow(filters=given) == left

threads = [threading.Thread(target=read) for _ in range(2)]
for thread in threads:
    thread.start()
statuses = []
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        signal.alarm(40)
        status = 1
        try:
            assert held.to_arrow(filters=given) == left
            assert held.count(filters=given) == len(left)
            assert held.take([7, 3999, 7]) == whole.take([7, 3999, 7])
            assert sum(map(len, held.to_batches(filters=given))) == len(left)
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)
    statuses.append(os.waitpid(pid, 0)[1])
is_over.set()
for thread in threads:
    thread.join()
print(statuses)
"""


def test_a_child_forked_while_threads_read_through_filters_reads_for_itself(path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    # The interpreter warns of forks with threads, and this test is about them.
    command = [sys.executable, "-W", "ignore", "-c", FORK, str(path)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str([0] * 4)
