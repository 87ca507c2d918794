"""Threads: what decides how many a run has, and that it has no more."""

import os
import subprocess
import sys
import threading
import time
from math import ceil

import numpy as np
import pytest

import blztable as blz
from blztable import tuning
from blztable.engine.run import pool, threads


@pytest.fixture(autouse=True)
def as_before(monkeypatch, tuned):
    """Begin with the defaults of a process, and leave them."""
    tuned()
    monkeypatch.delenv(threads.VARIABLE, raising=False)
    threads._usual.cache_clear()
    yield
    threads._usual.cache_clear()


def used():
    """Return the number of threads that ran the tasks of a run, each of which takes a while."""
    seen = set()

    def task():
        seen.add(threading.get_ident())
        time.sleep(0.01)

    pool.run([task] * 24)
    return len(seen)


def test_a_run_has_as_many_threads_as_were_set():
    for count in (1, 3, 2, 1):
        blz.set_threads(count)
        assert used() == count == threads.processors()
    blz.set_threads(None)
    assert threads.processors() == threads._usual(None)


def test_two_runs_at_a_time_share_the_helpers():
    blz.set_threads(2)
    seen = set()

    def task():
        seen.add(threading.get_ident())
        time.sleep(0.01)

    callers = [threading.Thread(target=pool.run, args=([task] * 12,)) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(seen) <= 3 + 1


def test_the_variable_says_it_for_a_process_and_a_call_says_another_number(monkeypatch):
    monkeypatch.setenv(threads.VARIABLE, "3")
    assert threads.processors() == used() == 3
    blz.set_threads(2)
    assert threads.processors() == 2
    blz.set_threads(None)
    monkeypatch.setenv(threads.VARIABLE, "none")
    with pytest.raises(ValueError, match=r"BLZTABLE_THREADS must be a number .* found 'none'"):
        threads.processors()


def test_a_process_that_was_started_with_the_variable_makes_no_more_threads(tmp_path):
    blz.to_blz({"x": np.random.default_rng(0).normal(size=1_000_000)}, tmp_path / "t.blz")
    program = (
        "import sys, threading, blztable as blz; blz.read_blz(sys.argv[1]); "
        "print(sum(one.name.startswith('blztable') for one in threading.enumerate()))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "t.blz")]
    for count in (1, 3):
        environment = {**os.environ, threads.VARIABLE: str(count)}
        said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert int(said.stdout) <= count - 1


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "2"])
def test_a_number_that_is_none_is_refused(wrong):
    with pytest.raises(ValueError, match="count must be a number of threads from 1 on"):
        blz.set_threads(wrong)
    assert tuning.current.threads == 0


# The files of a process, and the quotas that they say.
CONTAINERS = {
    "no quota": ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, []),
    "version 2": (
        {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"},
        [1.5],
    ),
    "a group above": (
        {
            "proc/self/cgroup": "0::/a.slice/b.scope\n",
            "sys/fs/cgroup/a.slice/cpu.max": "200000 100000\n",
            "sys/fs/cgroup/a.slice/b.scope/cpu.max": "max 100000\n",
        },
        [2.0],
    ),
    "version 1": (
        {
            "proc/self/cgroup": "4:memory:/x\n2:cpu,cpuacct:/docker/7\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "300000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        },
        [3.0],
    ),
    "version 1, no quota": (
        {
            "proc/self/cgroup": "2:cpu:/\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
        [],
    ),
    "nothing": ({}, []),
    "what nobody knows": (
        {"proc/self/cgroup": "what\n0::/../..\n", "sys/fs/cgroup/cpu.max": "1 0\n"},
        [],
    ),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_the_quota_of_a_container_is_found(tmp_path, monkeypatch, name):
    files, expected = CONTAINERS[name]
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert list(threads.quotas(tmp_path)) == expected
    monkeypatch.setattr(threads, "quotas", lambda: iter(expected))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8))
    assert threads.processors() == ceil(*expected or [8])
