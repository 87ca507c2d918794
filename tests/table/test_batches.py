"""A table read as a stream: the same rows, little memory, and no leftovers when abandoned.

A window, the rows decoded at a time, is tiny here. A `Watch` on the windows shows how far a stream
has come, and can hold up a window; no test sleeps.
"""

import contextlib
import copy
import gc
import itertools
import pickle
import signal
import sys
import threading
import tracemalloc
from collections import Counter
from concurrent.futures import Future

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable import tuning
from blztable.engine.read import parts
from blztable.engine.run.pool import Prefetcher
from blztable.engine.version import versions
from blztable.format import layout
from blztable.format.records import MAX_ROWS
from blztable.storage.local import LocalStore
from blztable.storage.memory import RamStore
from blztable.table.snapshot import Snapshot
from support import tamper
from support.arrow_strategies import tables
from support.bit_equality import same_table
from support.options import arguments
from support.processes import script
from support.samples import DICTIONARIES, of
from support.stores import set_properties, write

ROWS = 96
WINDOW = 16
NUMBERS = list(range(ROWS))
PATIENCE = 30


def cut_windows(tuned, rows: int, row_bytes: int = 8) -> None:
    """Set windows of `rows` rows, for rows of `row_bytes` bytes."""
    tuned(window_bytes=rows * row_bytes, window_rows=8)


@pytest.fixture
def path(tmp_path, tuned):
    """Make a table of 96 rows in three row groups, each of two windows, each of two pages."""
    cut_windows(tuned, WINDOW)
    table = pa.table({"n": pa.array(NUMBERS, "i8")})
    blz.to_blz(
        table,
        tmp_path / "t.blz",
        storage=blz.Storage(row_group_rows=32, page_rows=8),
        durability="process",
    )
    return tmp_path / "t.blz"


class Watch:
    """Records the begin and end of select, by their first rows; holds up the windows in `held`."""

    def __init__(self, patch) -> None:
        self.begun: list[int] = []
        self.done: list[int] = []
        self.held: set[int] = set()
        self.when_begun = lambda start: None
        self._changed = threading.Condition()
        window = Snapshot.window

        def watched(snapshot, positions, spans, *others):
            groups = snapshot.version.row_groups
            start = sum(groups[: spans[0].group]) + spans[0].start
            self.when_begun(start)
            with self._changed:
                self.begun.append(start)
                self._changed.notify_all()
            self.wait_until(lambda: start not in self.held)
            result = window(snapshot, positions, spans, *others)
            with self._changed:
                self.done.append(start)
                self._changed.notify_all()
            return result

        patch.setattr(Snapshot, "window", watched)

    def wait_until(self, condition) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE)

    def let_go(self) -> None:
        with self._changed:
            self.held.clear()
            self._changed.notify_all()


@pytest.fixture
def watch(monkeypatch):
    watch = Watch(monkeypatch)
    yield watch
    watch.let_go()


def ahead() -> list[threading.Thread]:
    """Return the threads that read ahead."""
    return [one for one in threading.enumerate() if one.name.startswith("blztable-prefetch")]


def assert_over() -> None:
    """Check that no thread reads ahead any more, once the stopped ones have ended."""
    for thread in ahead():
        thread.join(PATIENCE)
    assert ahead() == []


def assert_let_go(path) -> None:
    """Check that no handle holds version 1, so that a commit may remove it."""
    gc.collect()
    store = LocalStore(path)
    set_properties(store, keep_versions=1)
    set_properties(store, keep_versions=1)
    assert versions.numbers(store) == [2, 3]


def numbers(batches) -> list[int]:
    return [row for batch in batches for row in batch["n"].to_pylist()]


# The same rows


def unnamed(rows: int) -> pa.Table:
    """Return a table with rows and without columns."""
    return pa.table({"a": pa.nulls(rows)}).select([])


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_the_batches_of_any_table_are_its_rows(data):
    table = data.draw(tables() | st.integers(0, 40).map(unnamed))
    store = RamStore()
    write(
        store,
        table,
        row_group_rows=data.draw(st.integers(1, 45)),
        page_rows=data.draw(st.sampled_from([8, 16, 64])),
        durability="process",
    )
    names = table.column_names
    chosen = data.draw(
        st.none() | st.lists(st.sampled_from(names), max_size=6) if names else st.none()
    )
    most = data.draw(st.none() | st.integers(1, 50) | st.just(1 << 100))
    nbytes, unit = data.draw(st.integers(1, 4000)), data.draw(st.sampled_from([1, 3, 8, 16]))
    cut = tuning.tuned(window_bytes=nbytes, window_rows=unit)
    with pytest.MonkeyPatch.context() as patch, cut, blz.open(store) as opened:
        watch = Watch(patch)
        whole = opened.to_arrow(chosen)
        stream = opened.to_batches(chosen, batch_rows=most)
        batches = list(stream)
        assert_pieces_of(whole, stream.schema, batches, most)
        assert len(set(watch.begun)) == len(watch.begun)
        narrowed = opened if chosen is None else opened[chosen]
        reader = pa.RecordBatchReader.from_stream(narrowed)
        # Metadata without a key are lost on this way, also for pyarrow's own tables.
        passed = pa.RecordBatchReader.from_stream(whole).read_all()
        assert_pieces_of(passed, reader.schema, list(reader), None)


def assert_pieces_of(whole, schema, batches, most) -> None:
    assert schema.equals(whole.schema, check_metadata=True)
    for batch in batches:
        assert batch.schema.equals(schema, check_metadata=True)
        assert 0 < batch.num_rows <= (most or whole.num_rows)
    assert sum(batch.num_rows for batch in batches) == whole.num_rows
    if len(schema):
        assert same_table(pa.Table.from_batches(batches, schema), whole)


KINDS = [pa.int64(), pa.bool_(), pa.string(), pa.timestamp("us"), pa.binary(), pa.string_view()]
KINDS += [pa.float32(), DICTIONARIES[0]]


@pytest.fixture
def mixed(tmp_path, tuned):
    """Return columns of types that other libraries know, in many windows."""
    table = of(KINDS, 200)
    blz.to_blz(table, tmp_path / "mixed.blz", storage=blz.Storage(row_group_rows=60, page_rows=8))
    cut_windows(tuned, 24, table.nbytes // 200)
    return tmp_path / "mixed.blz"


def test_other_libraries_read_the_stream_to_its_end(mixed, watch):
    rows = of(KINDS, 200).to_pylist()
    with blz.open(mixed) as opened:
        assert pa.table(opened).to_pylist() == rows
        assert len(watch.begun) > 3
        assert polars.DataFrame(opened).to_dicts() == rows
        with duckdb.connect() as connection:
            assert connection.sql("FROM opened").to_arrow_table().to_pylist() == rows
    assert_over()


def test_other_libraries_let_go_of_a_stream_they_do_not_need_to_its_end(path, watch):
    def by_duckdb():
        opened = blz.open(path)
        assert len(opened) == ROWS
        with duckdb.connect() as connection:
            assert connection.execute("SELECT n FROM opened LIMIT 1").fetchall() == [(0,)]

    def by_pyarrow():
        reader = pa.RecordBatchReader.from_stream(blz.open(path))
        assert numbers([reader.read_next_batch()]) == NUMBERS[:WINDOW]
        reader.close()

    def by_a_capsule():
        blz.open(path).__arrow_c_stream__()

    by_duckdb()
    by_pyarrow()
    by_a_capsule()
    assert_over()
    assert_let_go(path)


def test_damage_reaches_other_libraries_with_its_message(path):
    damage(path, 2)
    with blz.open(path) as opened:
        with pytest.raises(ValueError, match=r"__2__\.bin, column 'n'.*crc32 is"):
            pa.RecordBatchReader.from_stream(opened).read_all()
        with pytest.raises(Exception, match=r"__2__\.bin, column 'n'.*crc32 is"):
            polars.DataFrame(opened)
        told = pytest.raises(Exception, match=r"__2__\.bin, column 'n'.*crc32 is")
        with duckdb.connect() as connection, told:
            connection.execute("SELECT sum(n) FROM opened").fetchall()
    assert_over()


# A few in memory


def test_the_next_window_is_decoded_while_the_caller_holds_a_batch(path, watch):
    with blz.open(path) as opened, opened.to_batches(batch_rows=4) as stream:
        first = [next(stream)]
        # The caller may still hold the batch before.
        assert (watch.begun, ahead()) == ([0], [])
        first.append(next(stream))
        watch.wait_until(lambda: watch.done == [0, 16])
        first += [next(stream), next(stream), next(stream)]
        assert watch.begun == [0, 16]
        first.append(next(stream))
        watch.wait_until(lambda: watch.done == [0, 16, 32])
        assert numbers(first) + numbers(stream) == NUMBERS
        assert watch.begun == list(range(0, ROWS, WINDOW))


def test_windows_of_one_batch_are_fetched_ahead_too(path, watch):
    with blz.open(path) as opened, opened.to_batches() as stream:
        assert watch.begun == []
        assert numbers([next(stream)]) == NUMBERS[:WINDOW]
        watch.wait_until(lambda: watch.done == [0, 16])
        assert numbers(stream) == NUMBERS[WINDOW:]


def test_two_windows_are_in_memory_and_no_more(tmp_path, tuned, watch):
    rows, window = 49_152, 8_192
    table = pa.table({"n": np.arange(rows)})
    options = {"row_group_rows": 2 * window, "page_rows": 1024, "durability": "process"}
    blz.to_blz(table, tmp_path / "t.blz", **arguments(**options))
    cut_windows(tuned, window)
    gc.collect()
    before, held, given_out = pa.total_allocated_bytes(), [], -1

    def look(start):
        assert start // window == given_out + 1
        held.append(pa.total_allocated_bytes() - before)

    watch.when_begun = look
    with blz.open(tmp_path / "t.blz") as opened:
        for batch in opened.to_batches(batch_rows=window // 4):
            given_out = batch["n"][0].as_py() // window
            held.append(pa.total_allocated_bytes() - before)
            # Until then: the next value is the maximum.
            watch.wait_until(lambda: len(watch.done) == len(watch.begun))
            held.append(pa.total_allocated_bytes() - before)
    assert len(watch.begun) == 6
    assert max(held) < 2.5 * window * 8
    assert_over()


def test_each_part_is_opened_once_however_many_windows_it_has(tmp_path, tuned, monkeypatch, watch):
    opened_files, opened_parts = Counter(), Counter()

    class Store(LocalStore):
        def open(self, key, size=None):
            if key.startswith("data/"):
                opened_files[key] += 1
            return super().open(key)

    class Part(parts.Part):
        def __init__(self, *args):
            super().__init__(*args)
            opened_parts[self.context] += 1

    monkeypatch.setattr(parts, "Part", Part)
    noise = np.random.default_rng(0).integers(0, 1 << 60, (2, 36_000))
    data = pa.table({"a": noise[0], "b": noise[1], "small": np.zeros(36_000, "i2")})
    store = Store(tmp_path / "t.blz")
    blz.to_blz(
        data,
        store,
        storage=blz.Storage(row_group_rows=12_000, page_rows=1024),
        durability="process",
    )
    cut_windows(tuned, 3_000, 18)
    with blz.open(store) as table:
        assert pa.Table.from_batches(table.to_batches()) == data
    assert len(watch.begun) >= 12
    # The context names the file and the column of the part: 3 columns in 3 row groups.
    assert set(opened_parts.values()) == {1}
    assert len(opened_parts) == 9
    assert set(opened_files.values()) == {1}
    # Zeros have no file.
    assert len(opened_files) == 6


# Abandoned


def by_forgetting(stream):
    next(stream)


def by_closing(stream):
    next(stream)
    stream.close()
    stream.close()


def by_a_block(stream):
    with stream:
        next(stream)


def by_breaking_out(stream):
    for batch in stream:
        if batch["n"][0].as_py() == 20:
            break


def by_an_exception(stream):
    with contextlib.suppress(ZeroDivisionError), stream:
        for batch in stream:
            1 / (20 - batch["n"][0].as_py())


def by_an_exception_in_a_loop(stream):
    with contextlib.suppress(ZeroDivisionError):
        for batch in stream:
            1 / (20 - batch["n"][0].as_py())


def by_a_generator_that_is_closed(stream):
    def batches():
        yield from stream

    generator = batches()
    next(generator)
    generator.close()


def by_a_generator_that_is_thrown_into(stream):
    def batches():
        with stream:
            yield from stream

    generator = batches()
    next(generator)
    with pytest.raises(ZeroDivisionError):
        generator.throw(ZeroDivisionError())


def before_it_began(stream):
    pass


def by_its_end(stream):
    assert numbers(stream) == NUMBERS[4:]


WAYS = [by_forgetting, by_closing, by_a_block, by_breaking_out, by_an_exception, before_it_began]
WAYS += [by_an_exception_in_a_loop, by_a_generator_that_is_closed, by_its_end]
WAYS += [by_a_generator_that_is_thrown_into]


@pytest.mark.parametrize("abandon", WAYS, ids=lambda way: way.__name__)
def test_an_abandoned_stream_leaves_no_thread_and_no_pin(path, abandon):
    table = blz.open(path)
    stream = table.to_batches(batch_rows=4)
    del table
    if abandon is not before_it_began:
        next(stream)
    abandon(stream)
    del stream
    assert_over()
    assert_let_go(path)


@pytest.mark.parametrize("read", [0, 1, 2, 4, 24])
def test_a_closed_stream_lets_go_at_once_and_says_so(path, read):
    table = blz.open(path)
    stream = table.to_batches(batch_rows=4)
    del table
    for _ in range(read):
        next(stream)
    stream.close()
    assert ahead() == []
    assert_let_go(path)
    for _ in range(2):
        with pytest.raises(blz.ClosedError, match="the stream was closed"):
            next(stream)
    stream.close()


def test_a_window_under_way_is_waited_for_by_who_closes(path, watch):
    watch.held = {WINDOW}
    with blz.open(path) as opened:
        stream = opened.to_batches()
        next(stream)
        watch.wait_until(lambda: watch.begun == [0, WINDOW])
        left = []
        closer = threading.Thread(target=lambda: (stream.close(), left.extend(ahead())))
        closer.start()
        watch.let_go()
        closer.join(PATIENCE)
        assert (closer.is_alive(), left) == (False, [])
        assert watch.done == [0, WINDOW]


@pytest.mark.parametrize("held", [0, WINDOW], ids=["decoding", "waiting"])
def test_a_stream_closed_while_another_thread_waits_for_a_batch_tells_that_thread(
    path, monkeypatch, watch, held
):
    watch.held = {held}
    table = blz.open(path)
    stream, found = table.to_batches(), []
    del table

    def read():
        try:
            while True:
                found.append(next(stream))
        except BaseException as error:
            found.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    watch.wait_until(lambda: watch.begun[-1:] == [held])
    wait = Prefetcher._wait

    def held_until_now(prefetcher):
        watch.let_go()
        wait(prefetcher)

    monkeypatch.setattr(Prefetcher, "_wait", held_until_now)
    closer = threading.Thread(target=stream.close)
    closer.start()
    for thread in (reader, closer):
        thread.join(PATIENCE)
        assert not thread.is_alive()
    *batches, last = found
    found.clear()
    assert isinstance(last, blz.BlzError)
    assert "was closed" in str(last)
    assert numbers(batches) == NUMBERS[: len(batches) * WINDOW]
    del batches, last
    assert ahead() == []
    assert_let_go(path)


def test_a_stream_closed_between_decoding_and_giving_out_gives_no_more(path, monkeypatch):
    with blz.open(path) as opened:
        stream = opened.to_batches(batch_rows=4)
        window = Snapshot.window

        def closed_at_the_end(*args):
            result = window(*args)
            stream.close()
            return result

        monkeypatch.setattr(Snapshot, "window", closed_at_the_end)
        with contextlib.suppress(blz.BlzError):
            assert numbers([next(stream)]) == NUMBERS[:4]
        with pytest.raises(blz.ClosedError, match="the stream was closed"):
            next(stream)
    assert ahead() == []


def test_the_end_of_the_table_is_the_end_of_its_streams(path, watch):
    table = blz.open(path)
    untouched, begun = table.to_batches(), table.to_batches(batch_rows=4)
    assert numbers([next(begun), next(begun)]) == NUMBERS[:8]
    watch.wait_until(lambda: watch.done == [0, WINDOW])
    table.close()
    for stream in (untouched, begun, begun):
        with pytest.raises(blz.ClosedError, match=f"{path} was closed"):
            next(stream)
    with pytest.raises(blz.ClosedError, match=f"{path} was closed"):
        table.to_batches()
    untouched.close()
    begun.close()
    assert ahead() == []


def test_a_stream_outlives_a_table_that_nobody_holds_and_a_commit(path):
    table = blz.open(path, "a")
    stream = table.to_batches(batch_rows=4)
    first = numbers([next(stream), next(stream)])
    table.attrs["a"] = 1
    table.close()
    del table
    gc.collect()
    for _ in range(2):
        set_properties(LocalStore(path), keep_versions=1)
    assert first + numbers(stream) == NUMBERS
    del stream
    assert_over()


def test_a_stream_may_be_closed_by_the_thread_that_reads_ahead(path, watch):
    # As if that thread collected a generator that closes the stream at its end.
    closed = []

    def close(start):
        if start == WINDOW:
            closed.append(stream.close())

    with blz.open(path) as opened:
        stream = opened.to_batches()
        watch.when_begun = close
        next(stream)
        watch.wait_until(lambda: watch.begun == [0, WINDOW])
        assert closed == [None]
        with pytest.raises(blz.ClosedError, match="the stream was closed"):
            next(stream)
    assert_over()


# Threads, forks, interrupts


def test_threads_that_share_a_stream_get_every_batch_once(tmp_path, tuned):
    cut_windows(tuned, 64)
    rows = 4096
    blz.to_blz(
        {"n": np.arange(rows)},
        tmp_path / "t.blz",
        storage=blz.Storage(row_group_rows=512, page_rows=8),
    )
    found, errors, barrier = [[] for _ in range(4)], [], threading.Barrier(4)

    def read(mine):
        barrier.wait(PATIENCE)
        try:
            mine.extend(batch["n"][0].as_py() for batch in stream)
        except BaseException as error:
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with blz.open(tmp_path / "t.blz") as opened, opened.to_batches(batch_rows=2) as stream:
            threads = [threading.Thread(target=read, args=(mine,)) for mine in found]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE)
    finally:
        sys.setswitchinterval(interval)
    assert errors == []
    assert all(mine == sorted(mine) for mine in found)
    assert sorted(row for mine in found for row in mine) == list(range(0, rows, 2))


FORKED = """
import os, signal, sys, threading
import blztable as blz
from blztable import tuning
from blztable.storage.local import LocalStore
tuning.current = tuning.Tuning(window_bytes=128, window_rows=8)
begun, go_on, where, main = threading.Event(), threading.Event(), sys.argv[2], os.getpid()


class Slow(LocalStore):
    def open(self, key, size=None):
        # The thread that reads ahead stands here while the process forks.
        if os.getpid() == main and where in key and threading.current_thread().name[:5] == "blzta":
            begun.set()
            assert go_on.wait(60)
        return super().open(key)


table = blz.open(Slow(sys.argv[1]))
stream = table.to_batches(batch_rows=8)
found = []
for batch in stream:
    found += batch["n"].to_pylist()
    if len(found) == 24:
        break
if where != "nothing":
    found += next(stream)["n"].to_pylist()
    assert begun.wait(60)
pid = os.fork()
if pid == 0:
    signal.alarm(60)
    status = 1
    try:
        for batch in stream:
            found += batch["n"].to_pylist()
        assert found == list(range(96)), found
        stream.close()
        status = 0
    finally:
        sys.stderr.flush()
        os._exit(status)
status = os.waitpid(pid, 0)[1]
go_on.set()
for batch in stream:
    found += batch["n"].to_pylist()
assert found == list(range(96)), found
print(status)
"""


@pytest.mark.parametrize("where", ["nothing", "__2__"])
def test_a_forked_child_and_its_parent_go_on_each_for_itself(path, where):
    assert script(FORKED, path, where) == "0"


LEFT = """
import sys
import blztable as blz
from blztable import tuning
tuning.current = tuning.Tuning(window_bytes=128, window_rows=8)
table = blz.open(sys.argv[1])
stream = table.to_batches(batch_rows=8)
for _ in range(int(sys.argv[2])):
    next(stream)
generator = (batch for batch in table.to_batches())
next(generator)
cycle = [table.to_batches()]
cycle.append(cycle)
next(cycle[0])
print("over")
"""


@pytest.mark.parametrize("read", [0, 1, 2, 12])
def test_the_interpreter_ends_quietly_with_a_stream_half_read(path, read):
    assert script(LEFT, path, read) == "over"


def test_an_interrupt_while_waiting_leaves_the_stream_as_it_was(path, monkeypatch):
    with blz.open(path) as opened, opened.to_batches(batch_rows=4) as stream:
        found = numbers(next(stream) for _ in range(4))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Future, "result", lambda self: signal.raise_signal(signal.SIGINT))
            for _ in range(2):
                with pytest.raises(KeyboardInterrupt):
                    next(stream)
        assert found + numbers(stream) == NUMBERS


def test_an_interrupt_while_decoding_leaves_the_stream_as_it_was(path, watch):
    def interrupt(start):
        watch.when_begun = lambda start: None
        signal.raise_signal(signal.SIGINT)

    with blz.open(path) as opened, opened.to_batches(batch_rows=4) as stream:
        watch.when_begun = interrupt
        with pytest.raises(KeyboardInterrupt):
            next(stream)
        assert numbers(stream) == NUMBERS


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_stream_is_not_copied(path, copied):
    with blz.open(path) as opened, opened.to_batches() as stream:
        with pytest.raises(TypeError, match="cannot be pickled; pickle the table"):
            copied(stream)
        assert numbers(stream) == NUMBERS


# Failures


def damage(path, k: int) -> None:
    """Change a byte of the last chunk of a part."""
    file = path / layout.part((0,), k)
    data = bytearray(file.read_bytes())
    # The last four are the digest of the last chunk.
    data[-8] ^= 0xFF
    file.write_bytes(data)


def test_damage_is_told_by_the_batch_that_needs_it(path):
    damage(path, 2)
    with blz.open(path) as opened:
        stream, found = opened.to_batches(batch_rows=4), []
        with pytest.raises(
            blz.CorruptError, match=r"__2__\.bin, column 'n', stream 'values', chunk \d+: crc32 is"
        ):
            found.extend(stream)
        assert numbers(found) == NUMBERS[:32] or numbers(found) == NUMBERS[:48]
        assert list(stream) == []
        assert_over()
        stream.close()


def test_a_missing_file_is_told_by_the_batch_that_needs_it(path):
    (path / layout.part((0,), 3)).unlink()
    with blz.open(path) as opened:
        stream, found = opened.to_batches(), []
        with pytest.raises(blz.CorruptError, match=r"__3__\.bin, column 'n': the file is missing"):
            found.extend(stream)
        assert numbers(found) == NUMBERS[:64]
        assert list(stream) == []
        assert_over()


@pytest.mark.parametrize(
    ("batch_rows", "error", "message"),
    [
        (0, ValueError, "batch_rows must be at least 1, not 0"),
        (-5, ValueError, "batch_rows must be at least 1, not -5"),
        (1.5, TypeError, "float"),
        ("10", TypeError, "str"),
        (True, TypeError, "batch_rows must be an integer, not True"),
        (False, TypeError, "batch_rows must be an integer, not False"),
    ],
)
def test_a_number_of_rows_that_makes_no_sense_is_told(path, batch_rows, error, message):
    with blz.open(path) as opened, pytest.raises(error, match=message) as caught:
        opened.to_batches(batch_rows=batch_rows)
    assert not isinstance(caught.value, blz.BlzError)


def test_any_whole_number_of_rows_will_do(path):
    with blz.open(path) as opened:
        for most in (np.int8(7), 1 << 62, 1 << 70):
            assert numbers(opened.to_batches(batch_rows=most)) == NUMBERS


def test_a_column_that_is_not_there_is_told_at_once(path):
    with blz.open(path) as opened:
        with pytest.raises(blz.ColumnNotFoundError, match="no column is named 'z'"):
            opened.to_batches(["z"])
        with pytest.raises(TypeError, match="columns must be a list of names"):
            opened.to_batches("n")


def claiming(path, rows: int):
    """Return a table of a few hundred bytes that claims this number of null rows."""
    blz.to_blz(pa.table({"n": pa.nulls(8)}), path)
    with tamper.editing(path) as table:
        group = table.leaf().groups
        group["rows"] = group["stored"] = table.part().record["rows"] = table.head["rows"] = rows
    return path


@pytest.mark.parametrize("rows", [10**10, MAX_ROWS - 1])
@pytest.mark.parametrize("batch_rows", [1, 50, None])
def test_batches_of_rows_without_a_file_are_cut_as_they_are_asked_for(tmp_path, rows, batch_rows):
    """Null rows take no bytes, so batches of them must take no memory either."""
    with (
        blz.open(claiming(tmp_path / "t.blz", rows)) as table,
        table.to_batches(batch_rows=batch_rows) as batches,
    ):
        found = [batch.num_rows for batch in itertools.islice(batches, 5)]
    assert found == ([rows] if batch_rows is None else [batch_rows] * 5)


def test_few_batches_of_a_window_are_cut_before_they_are_asked_for():
    store = RamStore()
    blz.to_blz(pa.table({"n": np.zeros(100_000, np.int8)}), store)
    tracemalloc.start()
    try:
        with blz.open(store) as table, table.to_batches(batch_rows=1) as batches:
            next(batches)
            before, _ = tracemalloc.get_traced_memory()
            assert sum(batch.num_rows for batch in itertools.islice(batches, 1000)) == 1000
            after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert max(after, peak) - before < 1 << 20
    assert before < 4 << 20


@pytest.mark.parametrize("rows", [1 << 37, MAX_ROWS - 1])
def test_an_expression_over_more_null_rows_than_memory_can_hold_is_refused(tmp_path, rows):
    expression = pc.coalesce(pc.field("n").is_null(), True)
    with blz.open(claiming(tmp_path / "t.blz", rows)) as table:
        assert table.count(filters=pc.field("n").is_null()) == rows
        with pytest.raises(
            blz.LimitError, match="at most 68719476736 rows can be read at once, found"
        ):
            table.count(filters=expression)
        with pytest.raises(
            blz.LimitError, match="at most 68719476736 rows can be read at once, found"
        ):
            next(table.to_batches(filters=expression))


# Bug: the result of to_batches() had no Arrow C stream for other libraries.
def test_batches_are_a_stream_for_others():
    store = RamStore()
    blz.to_blz({"a": range(100), "b": range(100)}, store, storage=blz.Storage(row_group_rows=30))
    with blz.open(store) as table:
        assert pa.table(table.to_batches(["a"])).to_pydict() == {"a": list(range(100))}
        assert pa.schema(table.to_batches(["b"])).names == ["b"]
        rest = table.to_batches(batch_rows=60)
        next(rest)
        assert pa.table(rest).num_rows == 40
