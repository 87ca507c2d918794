"""The pool: every task runs, the first exception is the one raised, and nothing ever hangs."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import blosc
import pyarrow as pa
import pytest

import blztable as blz
from blztable.engine import threads
from blztable.engine.threads import run, scratch

SECONDS = 10
pytestmark = pytest.mark.timeout(60)


def in_threads(count, work):
    """Run `work(i)` in so many threads; the exceptions that came out."""
    errors = []

    def guarded(i):
        try:
            work(i)
        except BaseException as error:
            errors.append(error)

    started = [threading.Thread(target=guarded, args=(i,), daemon=True) for i in range(count)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join(SECONDS)
        assert not thread.is_alive(), "a run hangs"
    return errors


def test_every_task_runs_once():
    done = []
    run(lambda i=i: done.append(i) for i in range(1000))
    assert sorted(done) == list(range(1000))
    run([])


def test_tasks_that_are_returned_run_too_to_any_depth():
    done = []

    def task(depth):
        done.append(depth)
        return [lambda: task(depth - 1)] * 2 if depth else None

    run([lambda: task(6)])
    assert [done.count(depth) for depth in range(7)] == [64, 32, 16, 8, 4, 2, 1]


def test_returned_tasks_go_before_what_the_stream_still_has(monkeypatch):
    monkeypatch.setattr(threads, "_processors", lambda: 1)
    done = []

    def begin(i):
        done.append(("begin", i))
        return [lambda: done.append(("finish", i))]

    run(lambda i=i: begin(i) for i in range(3))
    assert done == [(what, i) for i in range(3) for what in ("begin", "finish")]


def test_a_helper_really_helps(monkeypatch):
    monkeypatch.setattr(threads, "_processors", lambda: 2)
    monkeypatch.setattr(threads, "_pool", None)
    both = threading.Barrier(2)
    run([lambda: both.wait(SECONDS) and None] * 2)
    assert not both.broken
    threads._pool.shutdown()


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), MemoryError()], ids=repr)
def test_the_first_exception_is_raised_and_what_waits_is_given_up(error):
    done = []

    def fail():
        raise error

    def tasks():
        for i in range(10):
            yield lambda i=i: done.append(i)
        yield fail
        for i in range(100_000):
            yield lambda i=i: done.append(i)

    with pytest.raises(type(error)) as caught:
        run(tasks())
    assert caught.value is error
    assert len(done) < 100_000
    # The pool is as good as before.
    test_every_task_runs_once()


def test_an_exception_of_the_stream_itself_is_raised():
    done = []

    def tasks():
        yield lambda: done.append(1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(tasks())
    assert done == [1]


def test_an_exception_of_a_returned_task_is_raised():
    with pytest.raises(ZeroDivisionError):
        run([lambda: [lambda: 1 / 0]])


def test_no_task_runs_any_more_when_a_failed_run_has_returned():
    running, gate = [], threading.Event()

    def slow():
        running.append(1)
        gate.wait(SECONDS)
        running.pop()

    def fail():
        gate.set()
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        run([slow, fail, slow, fail])
    assert running == []


def test_an_interrupt_of_the_caller_ends_the_run():
    main, met = threading.current_thread(), []

    def task():
        if threading.current_thread() is main and not met:
            met.append(1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(task for _ in iter(lambda: bool(met), True))
    test_every_task_runs_once()


def test_runs_within_tasks_do_not_hang():
    done = []

    def outer(depth):
        if depth:
            run(lambda: outer(depth - 1) for _ in range(3))
        else:
            done.append(1)

    assert in_threads(1, lambda _: outer(4)) == []
    assert len(done) == 81


def test_runs_of_several_threads_do_not_hang_nor_mix():
    done = [0] * 8

    def work(i):
        def task():
            done[i] += 1

        for _ in range(20):
            if i % 2:
                run([task] * 50)
            else:
                with pytest.raises(ZeroDivisionError):
                    run([lambda: 1 / 0] * 50)

    assert in_threads(8, work) == []
    # A task of its own thread alone would count exactly; those of two may meet.
    assert [done[i] > 0 for i in range(8)] == [bool(i % 2) for i in range(8)]


def test_scratch_memory_is_of_one_thread_alone():
    views, both = {}, threading.Barrier(4)

    def work(i):
        view = scratch(1000)
        both.wait(SECONDS)
        view[:] = bytes([i]) * 1000
        both.wait(SECONDS)
        views[i] = bytes(view)

    assert in_threads(4, work) == []
    assert views == {i: bytes([i]) * 1000 for i in range(4)}
    assert len(scratch(5 << 20)) == 5 << 20
    assert len(scratch(10)) == 10


# Blosc's settings belong to the process


def settings():
    before = blosc.set_nthreads(1), blosc.set_releasegil(False)
    blosc.set_nthreads(before[0])
    blosc.set_releasegil(before[1])
    return before


@pytest.fixture
def odd_settings():
    before = blosc.set_nthreads(3), blosc.set_releasegil(False)
    yield (3, False)
    blosc.set_nthreads(before[0])
    blosc.set_releasegil(before[1])


def test_the_settings_of_blosc_are_put_back(odd_settings):
    seen = []
    run([lambda: seen.append(settings())])
    assert seen == [(1, True)]
    assert settings() == odd_settings


def test_the_settings_of_blosc_are_put_back_after_an_exception(odd_settings):
    with pytest.raises(ZeroDivisionError):
        run([lambda: 1 / 0])
    assert settings() == odd_settings


def test_the_settings_of_blosc_are_put_back_by_the_last_of_several_runs(odd_settings):
    inside, leave, seen = threading.Barrier(2), threading.Event(), []

    def work(i):
        def task():
            inside.wait(SECONDS)
            if i:
                leave.wait(SECONDS)
                seen.append(settings())

        run([task])
        if not i:
            leave.set()

    assert in_threads(2, work) == []
    assert seen == [(1, True)]
    assert settings() == odd_settings


# Processes

WRITE = """
import sys, pyarrow as pa, blztable as blz
rows = range(50_000)
table = pa.table({"n": pa.array(rows, "i4"), "text": [f"row {i % 97}" for i in rows]})
blz.to_blz(table, sys.argv[1], durability="process", page_rows=8192)
"""
VARIABLES = {
    "BLOSC_CLEVEL": "0",
    "BLOSC_SHUFFLE": "NOSHUFFLE",
    "BLOSC_TYPESIZE": "1",
    "BLOSC_COMPRESSOR": "zlib",
    "BLOSC_BLOCKSIZE": "1024",
    "BLOSC_NTHREADS": "4",
    "BLOSC_SPLITMODE": "NEVER",
    "BLOSC_NOLOCK": "1",
    "BLOSC_WARN": "1",
}


def test_variables_of_the_environment_do_not_change_files(tmp_path):
    parts = []
    for name, variables in (("plain", {}), ("set", VARIABLES)):
        path = tmp_path / f"{name}.blz"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
        subprocess.run([sys.executable, "-c", WRITE, path], env=environment, check=True)
        files = sorted(Path(path, "data").rglob("*.bin"))
        parts.append([file.read_bytes() for file in files])
    assert len(parts[0]) == 2
    assert parts[0] == parts[1]


FORK = """
import os, sys, signal, pyarrow as pa, blztable as blz
from blztable.engine import threads
rows = range(100_000)
table = pa.table({"n": pa.array(rows, "i4"), "m": pa.array(rows, "i8")})
blz.to_blz(table, sys.argv[1], durability="process", page_rows=8192)
held = blz.open(sys.argv[1], mode="a")
assert held.to_arrow() == table
sys.stdout.flush()
child = os.fork()
if child == 0:
    signal.alarm(20)
    code = 1
    try:
        assert threads._pool is None
        assert blz.read_table(sys.argv[1]) == table
        assert held.to_arrow() == table
        try:
            held.attrs["a"] = 1
        except blz.ReadOnlyError as error:
            assert "fork" in str(error)
            blz.to_blz(table, sys.argv[1] + "2", durability="process")
            code = 0
    finally:
        os._exit(code)
_, status = os.waitpid(child, 0)
assert status == 0, status
assert held.to_arrow() == table
held.attrs["a"] = 1
"""


def test_after_a_fork_the_child_reads_and_an_old_handle_refuses_to_write(tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    # The interpreter warns of forks with threads, and that is what this is about.
    command = [sys.executable, "-W", "ignore", "-c", FORK, tmp_path / "t.blz"]
    subprocess.run(command, env=environment, check=True, timeout=50)
    assert blz.read_table(tmp_path / "t.blz2").num_rows == 100_000
    with blz.open(tmp_path / "t.blz") as table:
        assert dict(table.attrs) == {"a": 1}


def test_an_interrupt_while_a_table_is_written_leaves_the_old_one(tmp_path, monkeypatch):
    old = pa.table({"n": [1]})
    blz.to_blz(old, tmp_path / "t.blz")
    monkeypatch.setattr("blztable.engine.write._block_info", lambda *_: interrupt())
    with pytest.raises(KeyboardInterrupt):
        blz.to_blz(pa.table({"n": [2]}), tmp_path / "t.blz")
    assert blz.read_table(tmp_path / "t.blz") == old


def interrupt():
    raise KeyboardInterrupt
