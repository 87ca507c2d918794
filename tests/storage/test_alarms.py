"""Alarms: a signal handler that raises at any moment leaves no descriptor open and no lock held."""

import gc
import os
import random
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable import interrupts
from blztable.engine.run import pool
from blztable.storage import opening
from blztable.storage.memory import RamStore
from blztable.storage.one_file.store import at
from blztable.storage.opening import Descriptor, opened

# The alarms take the timer of pytest's own timeout, so that one watches from a thread.
pytestmark = [
    pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors by /proc"),
    pytest.mark.timeout(60, method="thread"),
    # A handler that raises within `__del__` is not passed on: the alarm is then told and lost.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class Alarm(Exception):
    """What the handler of SIGALRM raises."""


@pytest.fixture
def alarms(monkeypatch):
    def ring(*_):
        raise Alarm

    # An alarm in a callback of the collector, or within `__del__`, is no exception of ours: pytest
    # keeps it, and with its traceback what the frames below hold.
    monkeypatch.setattr(sys, "unraisablehook", lambda told: None)
    callbacks = gc.callbacks[:]
    gc.callbacks.clear()
    before = signal.signal(signal.SIGALRM, ring)
    yield ring
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    gc.callbacks[:] = callbacks


def descriptors_open():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


class AlarmAt:
    """Rings at one step of Python in some frames, the first one or a later one."""

    def __init__(self, has_steps, step):
        self.has_steps = has_steps
        self.left = step

    def __call__(self, frame, event, argument):
        if not self.has_steps(frame):
            return None
        frame.f_trace_opcodes = True
        self.left -= event == "opcode"
        if self.left == 0 and event == "opcode":
            raise Alarm
        return self


def is_of_descriptors(frame):
    return frame.f_code.co_filename == opening.__file__


def is_of_a_condition(frame):
    """True in a method of a Condition that a store calls."""
    if frame.f_code.co_filename != threading.__file__:
        return False
    return os.path.dirname(opening.__file__) in frame.f_back.f_code.co_filename


class AlarmAtCall:
    """Rings when a function of the pool or of interrupts begins: there Python looks for signals."""

    def __init__(self, step):
        self.left = step

    def __call__(self, frame, event, argument):
        if frame.f_code.co_filename in {pool.__file__, interrupts.__file__}:
            self.left -= 1
            if self.left == 0:
                # A handler that is deferred does not raise.
                signal.raise_signal(signal.SIGALRM)


def steps(act, alarm_at):
    """Do something again and again, with an alarm at the first step, the second, and so on."""
    tracing = sys.gettrace()
    for step in range(1, 100_000):
        alarm = alarm_at(step)
        sys.settrace(alarm)
        try:
            act()
        except Alarm:
            continue
        finally:
            sys.settrace(tracing)
        if alarm.left > 0:
            return step
    raise AssertionError("it does not end")


@pytest.mark.parametrize("first", [0, 1000])
def test_an_alarm_at_any_step_of_an_open_or_a_close_leaves_nothing_open(monkeypatch, first):
    # With a number below, it is opened a second time.
    monkeypatch.setattr(opening, "FIRST_NUMBER", first)
    before = descriptors_open()

    def close():
        opened(os.devnull, os.O_RDONLY).close()

    def collect():
        opened(os.devnull, os.O_RDONLY)

    for act in (close, collect):
        assert steps(act, partial(AlarmAt, is_of_descriptors)) > 20
        assert descriptors_open() == before


def test_a_descriptor_is_closed_once():
    file = opened(os.devnull, os.O_RDONLY)
    number = file.fd
    file.close()
    assert file.fd == -1
    other = os.open(os.devnull, os.O_RDONLY)
    assert other == number
    file.close()
    file.close_written()
    del file
    gc.collect()
    os.close(other)


def test_a_descriptor_in_a_cycle_is_closed_too():
    class Kept(Descriptor):
        pass

    before = descriptors_open()
    file = Kept(lambda flags: os.open(os.devnull, flags), os.O_RDONLY)
    file.itself = file
    del file
    assert descriptors_open() == before


@pytest.mark.parametrize("is_memory", [False, True], ids=["file", "memory"])
def test_an_alarm_at_any_step_within_a_condition_leaves_its_lock_free(tmp_path, is_memory):
    stores = []

    def act():
        place = RamStore() if is_memory else tmp_path / f"{len(stores)}.blz"
        stores.append(place if is_memory else at(place))
        storage = blz.Storage(layout=None if is_memory else "file")
        blz.to_blz({"n": [1]}, place, storage=storage, durability="process")
        blz.read_table(place)
        with blz.open(place, "a", durability="process") as t:
            t.attrs["n"] = 1

    assert steps(act, partial(AlarmAt, is_of_a_condition)) > 20
    with ThreadPoolExecutor(1) as other:
        for store in stores:
            assert other.submit(store._changed.acquire, blocking=False).result()
            other.submit(store._changed.release).result()


@pytest.mark.parametrize("is_alone", [True, False], ids=["alone", "helped"])
def test_an_alarm_at_any_call_of_a_run_leaves_ctrl_c_and_blosc_as_they_were(
    tmp_path, alarms, tuned, monkeypatch, is_alone
):
    monkeypatch.setattr(pool, "_processors", lambda: 3)
    tuned(one_thread_bytes=1 << 20 if is_alone else 0, read_task_bytes=1)
    path = tmp_path / "t.blz"
    table = pa.table({"n": range(20), "s": ["a"] * 20})
    blz.to_blz(table, path, durability="process")

    def act():
        try:
            blz.read_table(path)
        finally:
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
            assert signal.getsignal(signal.SIGALRM) is alarms
            assert not pool._blosc_users
            assert not pool._blosc_before
            # Keep again what the alarm forgot, so that the next read takes the same steps.
            assert blz.read_table(path) == table

    act()
    assert steps(act, AlarmAtCall) > 10


@pytest.mark.timeout(60, method="thread")
@pytest.mark.parametrize("layout", ["directory", "file"])
def test_alarms_at_any_time_of_reads_and_commits_leave_no_descriptor(tmp_path, alarms, layout):
    path, chance, rung = tmp_path / "t.blz", random.Random(11), 0
    table = pa.table({f"c{number}": range(200) for number in range(6)})
    storage = blz.Storage(row_group_rows=50, layout=layout)
    blz.to_blz(table, path, storage=storage, durability="process")

    def commit():
        with blz.open(path, "a", durability="process") as t:
            t.append(table[:1])
            t.delete(pc.field("c0") == 0)

    for act, times in ((lambda: blz.read_table(path), 200), (commit, 40)):
        act()
        begun = time.monotonic()
        act()
        seconds = time.monotonic() - begun
        before = descriptors_open()
        for _ in range(times):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-5 + seconds * chance.random())
                act()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Alarm:
                rung += 1
        assert descriptors_open() <= before
    assert rung > 60
    assert blz.open(path).verify().is_intact
