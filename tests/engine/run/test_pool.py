"""The pool: every task runs, the first exception is raised, and nothing hangs."""

import gc
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
import weakref
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import blosc
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.engine.run import pool
from blztable.engine.run.pool import Prefetcher, run, run_groups, scratch
from blztable.format.data_file import DataFile

SECONDS = 10
pytestmark = pytest.mark.timeout(60)


def in_threads(count, work):
    """Run `work(i)` in `count` threads; return the exceptions."""
    errors = []

    def with_safe_literals(i):
        try:
            work(i)
        except BaseException as error:
            errors.append(error)

    started = [
        threading.Thread(target=with_safe_literals, args=(i,), daemon=True) for i in range(count)
    ]
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
    monkeypatch.setattr(pool, "_processors", lambda: 1)
    done = []

    def begin(i):
        done.append(("begin", i))
        return [lambda: done.append(("finish", i))]

    run(lambda i=i: begin(i) for i in range(3))
    assert done == [(what, i) for i in range(3) for what in ("begin", "finish")]


def test_a_helper_really_helps(monkeypatch):
    monkeypatch.setattr(pool, "_processors", lambda: 2)
    monkeypatch.setattr(pool, "_pool", None)
    both = threading.Barrier(2)
    run([lambda: both.wait(SECONDS) and None] * 2)
    assert not both.broken
    pool._pool.shutdown()


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
    # The pool works as before.
    test_every_task_runs_once()


def test_an_exception_of_the_stream_itself_is_raised():
    done = []

    def tasks():
        yield lambda: done.append(1)
        yield lambda: done.append(1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(tasks())
    assert done == [1, 1]


def test_one_task_alone_calls_nobody_to_help(monkeypatch):
    monkeypatch.setattr(pool, "_pool", None)
    done = []
    run([lambda: done.append(threading.current_thread())])
    assert done == [threading.current_thread()]
    assert pool._pool is None


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
    # A task that uses only its own thread would count exactly; tasks of two threads may meet.
    assert [done[i] > 0 for i in range(8)] == [bool(i % 2) for i in range(8)]


def test_scratch_memory_is_of_one_thread_alone():
    views, both = {}, threading.Barrier(4)

    def work(i):
        view = scratch(1000)[0].data
        both.wait(SECONDS)
        view[:] = bytes([i]) * 1000
        both.wait(SECONDS)
        views[i] = bytes(view)

    assert in_threads(4, work) == []
    assert views == {i: bytes([i]) * 1000 for i in range(4)}
    assert len(scratch(5 << 20)[0]) == 5 << 20
    assert len(scratch(10)[0]) == 10


# The settings of Blosc belong to the process


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
numbers = pa.array([i * i % 1000 for i in rows], "i4")
table = pa.table({"n": numbers, "text": [f"row {i % 97}" for i in rows]})
blz.to_blz(table, sys.argv[1], durability="process", storage=blz.Storage(page_rows=8192))
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
        # Beside its chunks a file has the id of its table.
        records = [DataFile.decode(file.read_bytes()).records for file in files]
        parts.append([one.chunks.tobytes() for one in records])
    assert len(parts[0]) == 2
    assert all(map(len, parts[0]))
    assert parts[0] == parts[1]


FORK = """
import os, sys, signal, pyarrow as pa, blztable as blz
from blztable.engine.run import pool
rows = range(100_000)
table = pa.table({"n": pa.array(rows, "i4"), "m": pa.array(rows, "i8")})
blz.to_blz(table, sys.argv[1], durability="process", storage=blz.Storage(page_rows=8192))
held = blz.open(sys.argv[1], mode="a")
assert held.to_arrow() == table
sys.stdout.flush()
child = os.fork()
if child == 0:
    signal.alarm(20)
    code = 1
    try:
        assert pool._pool is None
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
    # The interpreter warns of forks with threads, and this test is about them.
    command = [sys.executable, "-W", "ignore", "-c", FORK, tmp_path / "t.blz"]
    subprocess.run(command, env=environment, check=True, timeout=50)
    assert blz.read_table(tmp_path / "t.blz2").num_rows == 100_000
    with blz.open(tmp_path / "t.blz") as table:
        assert dict(table.attrs) == {"a": 1}


def test_an_interrupt_while_a_table_is_written_leaves_the_old_one(tmp_path, monkeypatch):
    old = pa.table({"n": [1]})
    blz.to_blz(old, tmp_path / "t.blz")
    monkeypatch.setattr("blztable.engine.write.parts.PartWriter._put", lambda *_: interrupt())
    with pytest.raises(KeyboardInterrupt):
        blz.to_blz(pa.table({"n": [2]}), tmp_path / "t.blz")
    assert blz.read_table(tmp_path / "t.blz") == old


def interrupt():
    raise KeyboardInterrupt


# Groups are fetched while earlier groups are processed


def budget(has_room):
    return SimpleNamespace(has_room=has_room, is_small=lambda: False)


@pytest.fixture(params=[1, 2, 4])
def processors(request, monkeypatch):
    monkeypatch.setattr(pool, "_processors", lambda: request.param)
    monkeypatch.setattr(pool, "_pool", None)
    yield
    if pool._pool is not None:
        pool._pool.shutdown()


MAY_FETCH = {
    "always": lambda: True,
    "never": lambda: False,
    "seldom": itertools.cycle([0, 0, 1]).__next__,
}


@pytest.mark.parametrize("may_fetch", MAY_FETCH.values(), ids=MAY_FETCH)
@pytest.mark.parametrize("size", [0, 1, 5])
def test_every_task_of_every_group_runs_once(processors, may_fetch, size):
    done, caller, fetching = [], threading.get_ident(), set()

    def begin(group, i):
        done.append((group, i))
        return [lambda: done.append((group, i, "more"))] if i % 2 else None

    def groups():
        for group in range(30):
            fetching.add(threading.get_ident())
            yield [partial(begin, group, i) for i in range(size)]

    run_groups(groups(), budget(may_fetch))
    expected = [(group, i) for group in range(30) for i in range(size)]
    expected += [(group, i, "more") for group in range(30) for i in range(1, size, 2)]
    assert sorted(done) == sorted(expected)
    assert fetching == {caller}
    run_groups([], budget(may_fetch))


def test_no_group_is_fetched_while_there_is_enough_to_do(processors):
    fetched, done = [], []

    def groups():
        for group in range(10):
            assert len(done) >= 2 * group - 1
            fetched.append(group)
            yield [lambda: done.append(1)] * 2

    run_groups(groups(), budget(lambda: 2 * len(fetched) - len(done) <= 1))
    assert len(done) == 20


def test_an_exception_of_a_task_ends_the_fetching(processors):
    error, fetched = ValueError("x"), []

    def fail():
        raise error

    def groups():
        for group in itertools.count():
            fetched.append(group)
            yield [fail if group == 3 else lambda: None]

    with pytest.raises(ValueError, match="x") as caught:
        run_groups(groups(), budget(lambda: False))
    assert caught.value is error
    assert fetched == [0, 1, 2, 3]
    test_every_task_runs_once()


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_an_exception_of_the_fetch_ends_the_tasks(processors, error):
    running, done = [], []

    def task():
        running.append(1)
        done.append(1)
        running.pop()

    def groups():
        yield (task for _ in range(3))
        # So that some work is left when the fetch fails.
        yield itertools.chain([task] * 2, (task for _ in range(10**9)))
        raise error

    with pytest.raises(type(error)) as caught:
        run_groups(groups(), budget(lambda: True))
    assert caught.value is error
    assert running == []
    count = len(done)
    test_every_task_runs_once()
    assert len(done) == count


def test_an_interrupt_in_the_fetch_is_raised_there_and_one_in_a_task_between_two(processors):
    where = []

    def groups(fetch, task):
        for _ in range(3):
            yield [task] * 3
            if fetch:
                signal.raise_signal(signal.SIGINT)
                where.append("after")

    with pytest.raises(KeyboardInterrupt):
        run_groups(groups(True, lambda: None), budget(lambda: True))
    assert where == []
    main = threading.main_thread()

    def task():
        if threading.current_thread() is main:
            signal.raise_signal(signal.SIGINT)
            where.append("task")

    with pytest.raises(KeyboardInterrupt):
        run([task] * 3 + [lambda: task()])
    # The exception is not raised inside of a task.
    assert where in (["task"], [])
    test_every_task_runs_once()


def test_a_handler_that_raises_nothing_lets_a_run_and_a_read_end(tmp_path, processors):
    calls, done = [], []
    before = signal.signal(signal.SIGINT, lambda *_: calls.append(len(done)))

    def interrupted():
        if threading.current_thread() is threading.main_thread():
            signal.raise_signal(signal.SIGINT)
        done.append(1)

    try:
        run([interrupted] * 50)
        assert len(done) == 50
        # It is called between two tasks.
        assert all(calls)
        run_groups([[interrupted] * 10] * 5, budget(lambda: False))
        assert len(done) == 100
        table = pa.table({name: range(5000) for name in "abcd"})
        blz.to_blz(table, tmp_path / "t.blz", storage=blz.Storage(row_group_rows=100, page_rows=8))
        told = []

        def interrupting(rows, total):
            told.append(rows)
            signal.raise_signal(signal.SIGINT)

        with blz.open(tmp_path / "t.blz") as held:
            assert held.to_arrow(progress=interrupting) == table
        assert told[-1] == 5000
    finally:
        signal.signal(signal.SIGINT, before)


class Alarm(Exception):
    """What the handler of SIGALRM raises; not a TimeoutError, which is an OSError."""


@pytest.fixture
def alarms():
    """A handler of SIGALRM that raises Alarm."""

    def handle(*_):
        raise Alarm

    before = signal.signal(signal.SIGALRM, handle)
    yield handle
    signal.signal(signal.SIGALRM, before)


def test_a_handler_that_raises_in_a_task_is_raised_by_the_run_between_two(processors, alarms):
    main, done = threading.main_thread(), []

    def task():
        if threading.current_thread() is main:
            signal.raise_signal(signal.SIGALRM)
        done.append(1)

    with pytest.raises(Alarm):
        run([task] * 1000)
    # The task ends first.
    assert done
    assert signal.getsignal(signal.SIGALRM) is alarms
    test_every_task_runs_once()


def test_a_handler_that_raises_while_a_thread_starts_breaks_no_pool(monkeypatch, alarms):
    started = []

    def start(thread):
        begin(thread)
        signal.raise_signal(signal.SIGALRM)
        started.append(thread)

    begin = threading.Thread.start
    monkeypatch.setattr(pool, "_processors", lambda: 3)
    monkeypatch.setattr(pool, "_pool", None)
    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(Alarm):
        run([lambda: None] * 50)
    assert len(started) == 2
    with pytest.raises(Alarm):
        pool.Background(lambda: None)
    assert len(started) == 3
    assert signal.getsignal(signal.SIGALRM) is alarms
    run([lambda: started.append(1)] * 50)
    assert len(started) == 53
    pool._pool.shutdown()


# The test's alarms take the timer of pytest's own timeout, so that one watches from a thread.
# A handler that raises within `__del__` is not passed on: the alarm is then told and lost.
@pytest.mark.timeout(60, method="thread")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_alarm_at_any_time_of_a_read_or_a_commit_comes_out_as_itself(tmp_path, alarms):
    table = pa.table({f"c{number}": np.arange(4000.0) for number in range(8)})
    path, chance, told = tmp_path / "t.blz", random.Random(7), set()
    blz.to_blz(table, path, storage=blz.Storage(row_group_rows=1000), durability="process")

    def commit():
        with blz.open(path, "a", durability="process") as t:
            t.append(table[:1])
            t.delete(pc.field("c0") == 0)

    for act in (lambda: blz.read_table(path), commit):
        act()
        begun = time.monotonic()
        act()
        seconds = time.monotonic() - begun
        for number in range(60):
            pool._pool = None if number % 2 else pool._pool
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-5 + seconds * chance.random())
                act()
                # It comes at the latest here.
                time.sleep(2 * seconds)
            except BaseException as error:
                told.add(type(error))
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert signal.getsignal(signal.SIGALRM) is alarms
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert told == {Alarm}
    with blz.open(path) as t:
        assert t.verify()


# The next result is made while the caller works with the last one


def made_ahead():
    return {
        thread for thread in threading.enumerate() if thread.name.startswith("blztable-prefetch")
    }


def check_ended(started):
    for thread in started:
        thread.join(SECONDS)
        assert not thread.is_alive()


def test_results_come_in_their_order_whether_begun_or_not():
    main, makers = threading.current_thread(), set()

    def job(i):
        makers.add(threading.current_thread())
        return i

    ahead = Prefetcher(partial(job, i) for i in range(20))
    results = []
    for number in ahead:
        results.append(number)
        if number % 3:
            ahead.prefetch()
            ahead.prefetch()
    assert results == list(range(20))
    assert list(ahead) == []
    assert main in makers
    assert len(makers) > 1
    # At its end it needs no close.
    check_ended(makers - {main})
    ahead.close()


def test_no_more_than_one_is_made_ahead():
    made, one = [], threading.Event()

    def job(i):
        made.append(i)
        one.set()
        return i

    ahead = Prefetcher(partial(job, i) for i in range(9))
    ahead.prefetch()
    assert one.wait(SECONDS)
    ahead.prefetch()
    assert made == [0]
    assert next(ahead) == 0
    assert made == [0]
    ahead.close()


@pytest.mark.parametrize("is_begun", [False, True])
def test_an_error_comes_in_its_turn_and_ends_the_results(is_begun):
    error = ZeroDivisionError()

    def fail():
        raise error

    ahead = Prefetcher(iter([lambda: 1, fail, lambda: 3]))
    assert next(ahead) == 1
    if is_begun:
        ahead.prefetch()
    with pytest.raises(ZeroDivisionError) as caught:
        next(ahead)
    assert caught.value is error
    assert list(ahead) == []
    ahead.close()


def test_closing_ends_a_wait_in_another_thread():
    begun, gate, found, before = threading.Event(), threading.Event(), [], made_ahead()

    def slow():
        begun.set()
        assert gate.wait(SECONDS)
        return "made"

    ahead = Prefetcher(iter([slow, slow]))
    ahead.prefetch()
    assert begun.wait(SECONDS)

    def work(i):
        if i == 0:
            found.append(next(ahead))
        elif i == 1:
            ahead.close()
        else:
            gate.set()

    errors = in_threads(3, work)
    assert found == ["made"] or [type(error) for error in errors] == [blz.BlzError]
    check_ended(made_ahead() - before)
    with pytest.raises(blz.ClosedError, match="the stream was closed"):
        next(ahead)


def test_an_interrupt_while_waiting_loses_no_result():
    begun, gate = threading.Event(), threading.Event()

    def slow():
        begun.set()
        assert gate.wait(SECONDS)
        return 1

    ahead = Prefetcher(iter([slow, lambda: 2]))
    ahead.prefetch()
    assert begun.wait(SECONDS)
    main = threading.main_thread().ident
    timer = threading.Timer(0.05, signal.pthread_kill, [main, signal.SIGINT])
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        timer.start()
        next(ahead)
    timer.join()
    gate.set()
    assert list(ahead) == [1, 2]
    ahead.close()


def test_dropped_without_a_close_it_leaves_no_thread():
    before = made_ahead()
    ahead = Prefetcher(partial(int, i) for i in range(9))
    ahead.prefetch()
    assert next(ahead) == 0
    ahead.prefetch()
    started = made_ahead() - before
    assert len(started) == 1
    del ahead
    gc.collect()
    check_ended(started)


FORK_AHEAD = """
import os, signal, threading
from blztable.engine.run.pool import Prefetcher
gate = threading.Event()
ahead = Prefetcher(iter([lambda: gate.wait(9) and 1, lambda: 2]))
ahead.prefetch()
child = os.fork()
gate.set()
if child == 0:
    signal.alarm(20)
    os._exit(list(ahead) != [1, 2])
_, status = os.waitpid(child, 0)
assert status == 0, status
assert list(ahead) == [1, 2]
"""


def test_after_a_fork_both_have_all_results():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "ignore", "-c", FORK_AHEAD]
    subprocess.run(command, env=environment, check=True, timeout=50)


# Bug: the exception of a failed run kept the data of its tasks alive.
def test_what_a_failed_run_held_is_let_go_at_once():
    class Held:
        pass

    def fail(held):
        raise ValueError("of a task")

    def attempt():
        held = Held()
        alive.append(weakref.ref(held))
        run([lambda: fail(held)])

    alive = []
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(ValueError, match="of a task") as caught:
            attempt()
        del caught
        assert alive[0]() is None
    finally:
        gc.enable()
