"""Writing a stream: one table, however the stream is cut, whatever its items are."""

import collections
import itertools
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st

import blztable as blz
from blztable import tuning
from blztable.engine.run import pool
from blztable.engine.write import parts
from blztable.engine.write import row_groups as cuts
from blztable.storage.memory import RamStore
from support import arrow_strategies as own
from support import stored
from support.bit_equality import assert_same, same_table
from support.frame_strategies import frames
from support.options import arguments
from support.stores import Hooked, tree

pytestmark = pytest.mark.usefixtures("own_files")

SECONDS = 10
quick = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
ROWS = st.sampled_from([None, 1, 2, 7, 8, 20, 1000])
CUTS = st.lists(st.integers(0, 41), max_size=6).map(sorted)
ROWS_MAX = 40
WHOLE = pa.table(
    {
        "n": pa.array([i * 10**15 for i in range(ROWS_MAX)], "i8"),
        "x": [None if i % 7 == 3 else i / 8 for i in range(ROWS_MAX)],
        "flag": [i % 3 == 0 for i in range(ROWS_MAX)],
        "text": pa.array(
            [None if i % 5 == 1 else f"{i}é" * (i % 9) for i in range(ROWS_MAX)], "large_string"
        ),
        "at": pa.array(range(ROWS_MAX), pa.timestamp("us")),
        "none": pa.array([None] * 25 + ["at last"] * 15, "large_string"),
    }
)


def put(data, **options) -> RamStore:
    """Return a store with the table."""
    store = RamStore("shelf")
    blz.to_blz(data, store, **arguments(durability="process", **options))
    return store


def row_groups(store) -> tuple[int, ...]:
    with blz.open(store) as table:
        return table._snapshot.version.row_groups


def pieces(whole, cuts):
    """Draw consecutive slices of sliceable data, empty slices among them."""
    bounds = [0, *(min(cut, len(whole)) for cut in cuts), len(whole)]
    return [whole[start:stop] for start, stop in itertools.pairwise(bounds)]


def batch_of(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [column.combine_chunks() for column in table.columns], schema=table.schema
    )


def reader_of(table: pa.Table) -> pa.RecordBatchReader:
    return table.to_reader(max_chunksize=3)


class Capsule:
    """Arrow data of an unknown library."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


def frame_of(table: pa.Table) -> pd.DataFrame:
    return table.to_pandas(types_mapper=pd.ArrowDtype)


# Any yielded item


ARROW_ITEMS = {"table": lambda table: table, "reader": reader_of, "capsule": Capsule}
ITEMS = {
    **ARROW_ITEMS,
    "batch": batch_of,
    "frame": frame_of,
    "mapping": lambda table: dict(zip(table.column_names, table.columns, strict=True)),
    "other order": lambda table: table.select(table.column_names[::-1]),
    "polars": pl.from_arrow,
}
STREAMS = {
    "list": list,
    "tuple": tuple,
    "generator": lambda items: (item for item in items),
    "iterator": iter,
    "deque": collections.deque,
}


@quick
@given(own.tables(), CUTS, ROWS, st.data())
def test_any_table_comes_back_however_it_was_cut(table, cuts, rows, data):
    # Names cross Arrow's C interface only up to their first zero byte.
    kinds = ["reader", "table"] if "\0" in "".join(table.column_names) else sorted(ARROW_ITEMS)
    items = [ARROW_ITEMS[data.draw(st.sampled_from(kinds))](piece) for piece in pieces(table, cuts)]
    whole = STREAMS[data.draw(st.sampled_from(sorted(STREAMS)))](items)
    assert same_table(blz.read_table(put(whole, row_group_rows=rows)), table)


@quick
@given(CUTS, ROWS, st.data())
def test_items_of_any_kind_are_rows_of_one_table(cuts, rows, data):
    kinds = st.sampled_from(sorted(ITEMS))
    items = [ITEMS[data.draw(kinds)](piece) for piece in pieces(WHOLE, cuts)]
    # The first item sets the types: polars would have views.
    store = put([WHOLE[:0], *items], row_group_rows=rows)
    assert same_table(blz.read_table(store), WHOLE)


@settings(quick, max_examples=12)
@given(frames(rows_max=30), CUTS, ROWS)
def test_any_frame_comes_back_however_it_was_cut(frame, cuts, rows):
    # The type of objects is found by looking at all of them.
    levels = range(frame.index.nlevels)
    kinds = [*frame.dtypes, *(frame.index.get_level_values(level).dtype for level in levels)]
    assume(not any(kind == np.dtype(object) for kind in kinds))
    assume(not any(isinstance(kind, pd.CategoricalDtype) for kind in kinds))
    try:
        put(frame)
    except blz.SchemaError:
        reject()  # Lists; the strategy has some.
    found = blz.read_blz(put(pieces(frame, cuts), row_group_rows=rows))
    assert_same(found, frame)


def test_a_stream_of_one_kind_needs_nothing_else():
    for name, make in ITEMS.items():
        found = blz.read_table(put(make(piece) for piece in pieces(WHOLE, [9, 9, 30])))
        assert found.to_pydict() == WHOLE.select(found.column_names).to_pydict(), name


@pytest.mark.parametrize("rows", [None, 7])
def test_streams_that_arrow_knows_come_in_whole(tmp_path, rows):
    parts = pieces(WHOLE, [13, 13, 29])
    for kind in ("parquet", "feather"):
        for number, part in enumerate(parts):
            folder = tmp_path / kind / str(number)
            ds.write_dataset(part, folder, format=kind)
    connection = duckdb.connect()
    sources = {
        "reader": reader_of(WHOLE),
        "reader of a generator": pa.RecordBatchReader.from_batches(
            WHOLE.schema, (batch_of(part) for part in parts)
        ),
        "parquet": ds.dataset(tmp_path / "parquet", format="parquet"),
        "feather": ds.dataset(tmp_path / "feather", format="feather"),
        "memory": ds.dataset(WHOLE),
        "scanner": ds.dataset(tmp_path / "parquet").scanner(batch_size=5),
        "capsule": Capsule(WHOLE),
        "polars": pl.from_arrow(WHOLE),
        "duckdb": connection.sql("SELECT * FROM WHOLE"),
    }
    for name, source in sources.items():
        store = put(source, row_group_rows=rows)
        assert blz.read_table(store).to_pydict() == WHOLE.to_pydict(), name
        if rows:
            assert row_groups(store) == (7,) * 5 + (5,), name
    connection.close()


def test_a_table_is_written_from_its_own_batches(tmp_path):
    blz.to_blz(WHOLE, tmp_path / "t.blz", storage=blz.Storage(row_group_rows=9))
    with blz.open(tmp_path / "t.blz") as table:
        blz.to_blz(table.to_batches(), tmp_path / "t.blz", storage=blz.Storage(row_group_rows=15))
    assert same_table(blz.read_table(tmp_path / "t.blz"), WHOLE)
    assert row_groups(tmp_path / "t.blz") == (15, 15, 10)


def test_other_tables_are_written_and_read_by_the_iterator(tmp_path):
    def nested():
        for number, piece in enumerate(pieces(WHOLE, [10, 20])):
            blz.to_blz(piece, tmp_path / f"{number}.blz")
            yield blz.read_table(tmp_path / f"{number}.blz")

    blz.to_blz(nested(), tmp_path / "all.blz", storage=blz.Storage(row_group_rows=3))
    assert same_table(blz.read_table(tmp_path / "all.blz"), WHOLE)


@pytest.mark.parametrize("rows", [None, 4])
def test_rows_without_columns_are_counted(rows):
    struct = pa.StructArray.from_arrays([], fields=[], mask=pa.array([False] * 3))
    batch = pa.record_batch(struct)
    reader = pa.RecordBatchReader.from_batches(batch.schema, iter([batch] * 3))
    for stream in (
        [batch] * 3,
        reader,
        [batch, pd.DataFrame(index=range(6))],
        [pd.DataFrame(index=range(3)), batch, batch.slice(0, 0), batch],
    ):
        store = put(stream, row_group_rows=rows)
        assert row_groups(store) == ((4, 4, 1) if rows else (9,))
        assert blz.read_blz(store).shape == (9, 0)


def test_streams_without_rows_are_tables_without_rows():
    for stream in (
        [WHOLE[:0]],
        [WHOLE[:0], batch_of(WHOLE[:0]), pl.from_arrow(WHOLE[:0])],
        WHOLE[:0].to_reader(),
        pa.RecordBatchReader.from_batches(WHOLE.schema, iter(())),
        ds.dataset(WHOLE[:0]),
    ):
        store = put(stream)
        assert row_groups(store) == ()
        assert same_table(blz.read_table(store), WHOLE[:0])


@pytest.mark.parametrize("rows", [None, 1, 3, 4, 100])
def test_dictionaries_may_differ_by_item(rows):
    words = [["a", "b"], ["b", "a"], [], ["c"], ["a", "b"], ["a", None, "b", "ü"]]
    frames = [pd.DataFrame({"a": pd.Categorical(part)}) for part in words]
    flat = [word for part in words for word in part]
    store = put(frames, row_group_rows=rows)
    assert blz.read_table(store)["a"].to_pylist() == flat
    found = blz.read_blz(store)["a"]
    assert found.astype(object).where(found.notna(), None).tolist() == flat
    assert max(row_groups(store)) <= (rows or 100)


def test_empty_slices_that_were_imported_are_no_harm():
    # Arrow has no bytes of them, but the offset at which they would begin.
    empty = pa.Array._import_from_c_capsule(*pa.array([1, 2])[1:1].__arrow_c_array__())
    assert empty.offset == 1
    column = pa.chunked_array([empty, [1], empty, [2], empty])
    assert blz.read_table(put([{"a": column}, {"a": [3]}]))["a"].to_pylist() == [1, 2, 3]
    codes = pa.array([None], "i1")
    nulls = pa.DictionaryArray.from_arrays(codes, empty)
    more = pa.DictionaryArray.from_arrays(pa.array([0], "i1"), pa.array([7]))
    for items in ([nulls, more], [more, nulls], [nulls, nulls], [nulls, more, nulls]):
        expected = [value for item in items for value in item.to_pylist()]
        assert blz.read_table(put({"a": item} for item in items))["a"].to_pylist() == expected


# Row groups


@quick
@given(CUTS, st.integers(1, 50))
def test_row_groups_of_a_wanted_size_do_not_depend_on_the_items(cuts, rows):
    groups = row_groups(put(pieces(WHOLE, cuts), row_group_rows=rows))
    assert groups == row_groups(put(WHOLE, row_group_rows=rows))
    assert set(groups[:-1]) <= {rows}
    assert sum(groups) == ROWS_MAX


@quick
@given(st.lists(st.integers(0, 300), min_size=1, max_size=8), st.integers(1, 40))
def test_usual_row_groups_keep_the_limits_however_the_items_were_cut(sizes, width):
    numbers = {
        "group_bytes": 2000,
        "group_column_bytes": 500,
        "least_group_rows": 32,
        "group_text_bytes": 4000,
        "window_rows": 16,
    }
    with tuning.tuned(**numbers):
        names = [f"c{i}" for i in range(width)]
        items = [pa.table([np.zeros(size)] * width, names) for size in sizes]
        groups = [rows for _, rows in cuts.row_groups(zip(items, sizes, strict=True), None)]
    assert sum(groups) == sum(sizes)
    for rows in groups:
        within = rows * 8 * width <= 2000 and rows * 8 <= 500
        assert within or (rows <= 32 and rows * 8 * width <= 4000)
    # And no smaller than necessary, except the last.
    fitting = min(62, 250 // width)
    fitting = fitting if fitting >= 32 else min(32, 500 // width)
    least = fitting // 16 * 16 or max(fitting // 8 * 8, 8)
    assert all(rows >= least for rows in groups[:-1])


def test_text_that_grows_is_cut_where_it_takes_too_much(tuned):
    tuned(group_text_bytes=1000, least_group_rows=8)
    items = [{"a": ["x" * length] * 10} for length in (1, 10, 100, 400)]
    store = put(items)
    start = 0
    for rows in row_groups(store):
        text = blz.read_table(store)["a"][start : start + rows].to_pylist()
        assert sum(map(len, text)) <= 1000
        start += rows
    assert start == 40


# Places of failure


class OddError(ValueError):
    """An exception that cannot be created from its message."""

    def __init__(self, one, two):
        super().__init__(one, two)


class NoError(BaseException):
    """An exception that is no Exception, like GeneratorExit."""


ERRORS = [
    OddError(1, 2),
    TypeError("t"),
    KeyboardInterrupt(),
    NoError(),
    GeneratorExit(),
    OSError(5),
]


def failing(error, good):
    """Yield the items, then raise the error."""
    for number in range(good):
        yield pa.table({"n": [number] * 3, "text": ["new"] * 3})
    raise error


def as_reader(error, good):
    tables = failing(error, good)
    schema = pa.schema({"n": pa.int64(), "text": pa.string()})
    return pa.RecordBatchReader.from_batches(schema, map(batch_of, tables))


@pytest.mark.parametrize("source", [failing, as_reader, lambda *a: [WHOLE[:0], as_reader(*a)]])
@pytest.mark.parametrize("good", [0, 1, 2, 7])
@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_exception_of_the_iterator_passes_and_nothing_is_left(
    tmp_path, source, good, is_there, error
):
    path, old = tmp_path / "t.blz", pa.table({"old": [1, 2]})
    if is_there:
        blz.to_blz(old, path)
    else:
        # An unfinished table: the rest is not larger than this.
        with pytest.raises(blz.SchemaError):
            blz.to_blz([old, {}], path)
    before = tree_of(path)
    with pytest.raises(type(error)) as caught:
        blz.to_blz(source(error, good), path, storage=blz.Storage(row_group_rows=2))
    assert caught.value is error
    assert "failing" in [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert tree_of(path) == before
    if is_there:
        assert same_table(blz.read_table(path), old)
    else:
        with pytest.raises(blz.TableNotFoundError):
            blz.open(path)
    blz.to_blz(WHOLE, path, mode="w" if is_there else "x")
    assert same_table(blz.read_table(path), WHOLE)
    error.__traceback__ = None


def tree_of(path):
    return sorted(
        (file.relative_to(path), file.is_file() and file.read_bytes()) for file in path.rglob("*")
    )


def test_stopiteration_inside_a_generator_is_pythons_runtime_error():
    def source():
        yield WHOLE
        next(iter(()))

    with pytest.raises(RuntimeError, match="generator raised StopIteration") as caught:
        put(source())
    assert isinstance(caught.value.__cause__, StopIteration)


@pytest.mark.parametrize("bad", [7, {"n": ["text"]}, {"m": [1]}, {"n": [2**64]}, {"n": [b"x"]}])
@pytest.mark.parametrize("row_group_rows", [1, None])
def test_an_item_that_does_not_fit_commits_nothing(bad, row_group_rows):
    store = RamStore("shelf")
    blz.to_blz(WHOLE, store)
    before = tree(store)
    with pytest.raises((blz.SchemaError, TypeError), match=r"^item 3"):
        blz.to_blz(
            [{"n": [1]}] * 3 + [bad], store, storage=blz.Storage(row_group_rows=row_group_rows)
        )
    assert tree(store) == before
    assert same_table(blz.read_table(store), WHOLE)


def test_a_value_that_cannot_be_stored_ends_a_stream_without_an_end(monkeypatch):
    stray = pa.DictionaryArray.from_arrays(pa.array([7]), ["x"], safe=False)
    good = pa.DictionaryArray.from_arrays(pa.array([0]), ["x"])
    store = RamStore("shelf")
    endless = itertools.chain([{"a": good}, {"a": stray}], itertools.repeat({"a": good}))
    with pytest.raises(blz.SchemaError, match="column 'a': dictionary indices from 7 to 7"):
        blz.to_blz(endless, store, storage=blz.Storage(row_group_rows=1))
    assert not [name for name in tree(store) if "col" in name]


def test_what_fails_before_the_first_item_is_told_before_anything_is_made(tmp_path):
    for stream, error in (([], blz.SchemaError), (failing(OddError(1, 2), 0), OddError)):
        with pytest.raises(error):
            blz.to_blz(stream, tmp_path / "t.blz")
    assert list(tmp_path.iterdir()) == []


# The caller's memory


def test_memory_written_to_again_is_what_it_was_when_it_was_yielded():
    buffer, words = np.zeros(4), ["", "", "", ""]
    masked = np.ma.masked_array(np.zeros(4), mask=[0, 0, 0, 1])
    series = pd.Series(np.zeros(4))

    def mappings():
        for number in range(6):
            buffer[:] = masked[:3] = series[:] = number
            words[:] = [str(number)] * 4
            yield {"a": buffer, "b": words, "c": masked, "d": series, "e": buffer[1:3].repeat(2)}
        buffer[:] = -1

    found = blz.read_table(put(mappings(), row_group_rows=8))
    expected = [number for number in range(6) for _ in range(4)]
    assert found["a"].to_pylist() == found["d"].to_pylist() == found["e"].to_pylist() == expected
    assert found["b"].to_pylist() == list(map(str, expected))
    assert found["c"].drop_null().to_pylist() == [n for n in range(6) for _ in range(3)]


def test_a_frame_changed_in_place_is_what_it_was_when_it_was_yielded():
    values, labels = np.zeros((4, 2)), np.zeros(4, "i8")
    over = pd.DataFrame(values, copy=False)
    frame = pd.DataFrame({"a": np.zeros(4), "b": pd.array([0] * 4, "Int64"), "c": ["x"] * 4})

    def changed():
        for number in range(6):
            frame.loc[:, "a"] = float(number)
            frame.loc[:, "b"] = number
            frame.loc[:, "c"] = str(number)
            yield frame

    def seen_through():
        for number in range(6):
            values[:] = number
            labels[:] = number * 10
            yield over.set_axis(pd.Index(labels, copy=False))

    expected = [number for number in range(6) for _ in range(4)]
    found = blz.read_blz(put(changed(), row_group_rows=8))
    assert found["a"].tolist() == found["b"].tolist() == expected
    assert found["c"].tolist() == list(map(str, expected))
    found = blz.read_blz(put(seen_through(), row_group_rows=8))
    assert found.iloc[:, 1].tolist() == expected
    assert found.index.tolist() == [number * 10 for number in expected]


# Threads


@pytest.fixture
def two_processors(monkeypatch, tuned):
    """Have one helper thread beside the caller, on any machine and for small writes too."""
    tuned(one_thread_bytes=0)
    monkeypatch.setattr(pool, "_processors", lambda: 2)
    monkeypatch.setattr(pool, "_pool", None)
    yield
    pool._pool.shutdown()


def test_only_the_callers_thread_walks_the_iterator(two_processors):
    # A cursor that refuses every thread but the one that made it.
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t AS SELECT 1 AS n")
    walked = set()

    def rows():
        cursor = connection.execute(
            "WITH RECURSIVE c(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM c WHERE n < 999) "
            "SELECT n FROM c"
        )
        while batch := cursor.fetchmany(10):
            walked.add(threading.get_ident())
            yield {"n": [n for (n,) in batch]}

    store = put(rows(), row_group_rows=20)
    connection.close()
    assert blz.read_table(store)["n"].to_pylist() == list(range(1000))
    assert walked == {threading.get_ident()}


def test_an_interrupt_in_the_iterator_is_raised_at_once():
    reached = []

    def slow():
        yield WHOLE
        yield WHOLE
        signal.raise_signal(signal.SIGINT)
        reached.append(1)
        yield WHOLE

    handler = signal.getsignal(signal.SIGINT)
    store = RamStore("shelf")
    with pytest.raises(KeyboardInterrupt) as caught:
        blz.to_blz(slow(), store, storage=blz.Storage(row_group_rows=20))
    assert reached == []
    assert "slow" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert signal.getsignal(signal.SIGINT) is handler
    assert not [name for name in tree(store) if "col" in name]
    blz.to_blz(WHOLE, store, mode="x")


@pytest.fixture
def received():
    """A signal handler that only records Ctrl-C."""
    calls: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: calls.append(number))
    yield calls
    signal.signal(signal.SIGINT, before)


def test_a_handler_that_raises_nothing_is_called_and_the_write_goes_on(received, two_processors):
    def items():
        for number, piece in enumerate(pieces(WHOLE, [10, 20, 30])):
            assert len(received) == number
            signal.raise_signal(signal.SIGINT)
            assert len(received) == number + 1
            yield piece

    assert same_table(blz.read_table(put(items(), row_group_rows=3)), WHOLE)
    assert len(received) == 4


def test_an_interrupt_while_groups_are_written_does_not_cut_the_table_short(received):
    def told(done, total):
        signal.raise_signal(signal.SIGINT)

    store = put(pieces(WHOLE, [10, 20, 30]), row_group_rows=3, progress=told)
    assert same_table(blz.read_table(store, columns=None), WHOLE)
    assert received


def test_a_row_group_is_put_while_the_iterator_is_asked_for_more(
    tuned, monkeypatch, two_processors
):
    caller = threading.get_ident()
    both, asked, done = threading.Barrier(2), threading.Event(), threading.Semaphore(0)
    encode = parts.encode
    encoded = itertools.count()

    def meet(*args):
        # The caller has one column of the first group and the helper the other.
        if next(encoded) < 2:
            both.wait(SECONDS)
        return encode(*args)

    def hold(name, args):
        # Only once the caller is inside of the iterator.
        if name == "put_new" and threading.get_ident() != caller:
            assert asked.wait(SECONDS)

    def tell(name, args):
        if name == "put_new":
            done.release()

    def items():
        item = {"a": np.arange(10.0), "b": np.arange(10.0)}
        yield item
        yield item
        asked.set()
        # Both files of the first group appear before this is asked again.
        assert done.acquire(timeout=SECONDS)
        assert done.acquire(timeout=SECONDS)
        assert len([name for name in tree(store) if name.endswith(".bin")]) >= 2
        yield item

    monkeypatch.setattr(parts, "encode", meet)
    # However little data there is to write.
    tuned(one_thread_bytes=0)
    store = RamStore("shelf")
    hooked = Hooked(store, before=hold, after=tell)
    blz.to_blz(items(), hooked, storage=blz.Storage(row_group_rows=10), durability="process")
    assert blz.read_table(store).num_rows == 30


@pytest.mark.parametrize("is_helped", [False, True])
def test_no_more_is_fetched_while_most_of_a_row_group_waits(tuned, monkeypatch, request, is_helped):
    """When an item is fetched, at most one and a half row groups wait to be encoded."""
    if is_helped:
        request.getfixturevalue("two_processors")
    else:
        monkeypatch.setattr(pool, "_processors", lambda: 1)
    caller, over, columns = threading.get_ident(), threading.Event(), 6
    encode = parts.encode
    encoded, waiting, begun = [], [], []

    def slow(*args):
        # By the time of this call, the data of the column are released.
        encoded.append(1)
        if threading.get_ident() != caller:
            begun.append(1)
            assert over.wait(SECONDS)
        return encode(*args)

    def items():
        for fetched in range(12):
            waiting.append(fetched * columns - len(encoded))
            yield {f"c{i}": np.arange(10.0) for i in range(columns)}
        over.set()

    monkeypatch.setattr(parts, "encode", slow)
    tuned(one_thread_bytes=0)  # Helpers come for any group.
    store = put(items(), row_group_rows=10)
    assert row_groups(store) == (10,) * 12
    # The last item fetched is not cut off as a group before the next one comes.
    assert max(waiting) <= columns + columns // 2
    # It continued before everything was encoded.
    assert max(waiting[2:]) > columns


MEMORY = """
import sys, pyarrow as pa, numpy as np, blztable as blz
rows, groups = 1_000_000, 20
cheap = [pa.array(np.arange(rows // 4) // 100 * factor) for factor in (1, 3, 7)]
def copied(array):
    return pa.concat_arrays([array[:1], array[1:]])
def items(count):
    for _ in range(count):
        yield pa.table([copied(array) for array in cheap], names=["a", "b", "c"])
def kilobytes(word):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(word))
# What is made once: threads, codecs, imports, the code of all steps.
blz.to_blz(items(1), sys.argv[1], durability="process", storage=blz.Storage(clevel=1))
before = kilobytes("VmHWM")
blz.to_blz(items(4 * groups), sys.argv[1], durability="process",
           storage=blz.Storage(row_group_rows=rows, clevel=1))
print(len(blz.open(sys.argv[1])), (kilobytes("VmHWM") - before) * 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc for the peak of memory")
def test_a_stream_ten_times_larger_than_two_row_groups_takes_the_memory_of_two(tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", MEMORY, tmp_path / "t.blz"]
    found = subprocess.run(command, env=environment, check=True, capture_output=True, timeout=100)
    rows, growth = map(int, found.stdout.split())
    assert rows == 20_000_000
    # A group has 24 MB. Two groups are held, and half as much again for copies and chunks. Copies
    # of two more wait while a helper waits for a processor, and allocators keep some freed memory.
    assert growth <= 1.5 * 2 * 24_000_000 + 2 * 24_000_000 + 16_000_000


# A first write that fails


@pytest.mark.parametrize("durability", ["full", "process"])
@pytest.mark.parametrize("sort_by", [None, "n"])
@pytest.mark.parametrize("rows", [1, 5000])
def test_a_first_stream_that_fails_leaves_no_directory(tmp_path, rows, sort_by, durability):
    def items():
        yield pa.table({"n": range(rows)})
        raise ZeroDivisionError

    options = {"row_group_rows": 1000, "sort_by": sort_by, "durability": durability}
    for mode in ("w", "a", "x"):
        with pytest.raises(ZeroDivisionError):
            blz.to_blz(items(), tmp_path / "t.blz", **arguments(mode=mode, **options))
        assert list(tmp_path.iterdir()) == []


def test_a_first_stream_whose_item_does_not_fit_leaves_an_empty_directory_empty(tmp_path):
    path = tmp_path / "t.blz"
    path.mkdir()
    (path / ".DS_Store").touch()
    with pytest.raises(blz.SchemaError):
        blz.to_blz(iter([{"n": [1]}, {"n": ["text"]}]), path)
    assert [one.name for one in path.rglob("*")] == [".DS_Store"]


def test_a_first_write_that_fails_leaves_another_creation_in_flight_alone(tmp_path):
    path = tmp_path / "t.blz"

    def items():
        yield {"n": [1]}
        with pytest.raises(ZeroDivisionError):
            blz.to_blz(failing(), path)
        yield {"n": [2]}

    def failing():
        yield {"n": [7]}
        raise ZeroDivisionError

    blz.to_blz(items(), path, storage=blz.Storage(row_group_rows=1))
    assert blz.read_table(path)["n"].to_pylist() == [1, 2]
    assert blz.open(path, "a").vacuum().files == 0


def test_creations_that_fail_beside_others_keep_none_of_them_from_its_table(tmp_path):
    path = tmp_path / "t.blz"

    def items(worker):
        yield {"n": [worker]}
        if worker % 2:
            raise ZeroDivisionError

    def create(worker):
        with suppress(ZeroDivisionError):
            blz.to_blz(items(worker), path, durability="process")

    for _ in range(20):
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(create, range(4)))
        with blz.open(path) as t:
            assert t["n"][0] in (0, 2)
            assert t.version == 2
            assert t.verify()
        shutil.rmtree(path)


@pytest.mark.parametrize("name", [".DS_Store", "._x", "Thumbs.db", "desktop.ini", ".nfs0001"])
def test_what_a_desktop_leaves_in_a_directory_does_not_stop_a_first_write(tmp_path, name):
    (tmp_path / "t.blz").mkdir()
    (tmp_path / "t.blz" / name).touch()
    blz.to_blz({"n": [1]}, tmp_path / "t.blz", mode="x")
    assert blz.read_table(tmp_path / "t.blz").num_rows == 1
    assert (tmp_path / "t.blz" / name).exists()


def test_what_a_desktop_leaves_in_an_unfinished_creation_does_not_stop_a_first_write(tmp_path):
    path = tmp_path / "t.blz"
    places = ["", "data", "data/col0", "meta", "meta/manifest"]
    for place in places:
        (path / place).mkdir(parents=True, exist_ok=True)
        (path / place / ".DS_Store").touch()
    (path / "data/lost+found").mkdir()
    blz.to_blz({"n": [1]}, path)
    assert blz.read_table(path).num_rows == 1
    assert all((path / place / ".DS_Store").exists() for place in places)
    assert (path / "data/lost+found").exists()


def test_what_somebody_put_into_a_directory_stops_a_first_write(tmp_path):
    (tmp_path / "t.blz").mkdir()
    (tmp_path / "t.blz" / ".gitignore").touch()
    with pytest.raises(blz.TableExistsError, match=r"holds '\.gitignore'"):
        blz.to_blz({"n": [1]}, tmp_path / "t.blz")


# Bug: a buffer inside of a memoryview or an Index was not copied, so refilling it changed rows.
@pytest.mark.parametrize("wrap", [memoryview, lambda buffer: pd.Index(buffer, copy=False)])
def test_a_buffer_that_is_filled_again_is_copied_however_it_is_wrapped(wrap):
    def items():
        buffer = np.zeros(4, np.int64)
        for number in range(3):
            buffer[:] = number
            yield {"a": wrap(buffer)}

    store = RamStore()
    blz.to_blz(items(), store)
    assert blz.read_table(store)["a"].to_pylist() == [0] * 4 + [1] * 4 + [2] * 4


# Guards copies of a CTable: they keep a schema without rows, and report damage of the source.
def test_a_table_of_ours_is_copied_with_its_errors_and_without_rows(tmp_path):
    path, copy = tmp_path / "t.blz", tmp_path / "copy.blz"
    blz.to_blz(pa.schema({"a": pa.int8()}).empty_table(), path)
    for source in (blz.open(path), blz.open(path).to_batches()):
        blz.to_blz(source, copy)
        assert blz.read_table(copy).schema == pa.schema({"a": pa.int8()})
    blz.to_blz({"a": range(100)}, path)
    with blz.open(path) as table:
        blz.to_blz(table, path)  # The table is written over itself.
    assert blz.read_table(path)["a"].to_pylist() == list(range(100))
    blz.to_blz({"a": [str(hash(n)) for n in (2.5, 3.5, 0.1)]}, path, mode="w")
    with blz.open(path) as table:
        key = stored.key(table, "a")
    (path / key).write_bytes(b"damaged")
    with pytest.raises(blz.CorruptError, match=key):
        blz.to_blz(blz.open(path), copy)


# Bug: an empty DataFrame in a stream of DataFrames was refused.
def test_an_empty_frame_among_others_is_passed_over():
    frame, store = pd.DataFrame({"a": [1, 2]}, index=["x", "y"]), RamStore()
    blz.to_blz([frame, pd.DataFrame(), frame], store)
    assert blz.read_blz(store).equals(pd.concat([frame, frame]))
