"""Progress: reported in rows, by the caller's thread, up to the last row."""

import builtins
import itertools
import sys
import threading

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tqdm.auto

import blztable as blz
from blztable.engine.run import pool
from blztable.storage.memory import RamStore
from support.options import arguments
from support.stores import tree

ROWS = 1000
TABLE = pa.table({name: np.arange(ROWS) for name in "abc"})
FRAME = pd.DataFrame({name: np.arange(ROWS) for name in "abc"})


class Told:
    """A callback that records its arguments and threads."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.calls: list[tuple[int, int | None]] = []
        self.callers: set[int] = set()
        self._error = error

    def __call__(self, done: int, total: int | None) -> None:
        self.calls.append((done, total))
        self.callers.add(threading.get_ident())
        if self._error is not None:
            raise self._error


def items():
    return (TABLE[start : start + 100] for start in range(0, ROWS, 100))


SOURCES = {
    "table": (lambda: TABLE, ROWS),
    "frame": (lambda: FRAME, ROWS),
    "mapping": (lambda: {"a": np.arange(ROWS)}, ROWS),
    "items": (items, None),
    "reader": (lambda: TABLE.to_reader(100), None),
    "no columns": (lambda: pd.DataFrame(index=range(ROWS)), ROWS),
    "nulls": (lambda: [{"a": pa.nulls(ROWS)}], None),
}
READS = {
    "read_blz": blz.read_blz,
    "to_pandas": lambda path, **options: blz.open(path).to_pandas(**options),
    "to_arrow": lambda path, **options: blz.open(path).to_arrow(**options),
}


@pytest.fixture(params=[1, 2], ids=["alone", "helped"])
def processors(request, monkeypatch):
    monkeypatch.setattr(pool, "_processors", lambda: request.param)
    monkeypatch.setattr(pool, "_pool", None)
    yield
    if pool._pool is not None:
        pool._pool.shutdown()


@pytest.fixture
def store():
    """Return a store with a table of ten row groups."""
    store = RamStore("shelf")
    blz.to_blz(TABLE, store, storage=blz.Storage(row_group_rows=100, page_rows=8))
    return store


def check_calls(told: Told, total: int | None) -> None:
    done = [rows for rows, _ in told.calls]
    assert all(before <= after for before, after in itertools.pairwise(done))
    assert {other for _, other in told.calls[:-1]} <= {total}
    assert told.calls[-1] == (ROWS, ROWS)
    assert told.callers == {threading.get_ident()}
    # A call without progress is not made.
    assert len(set(told.calls)) == len(told.calls)


@pytest.mark.parametrize(("source", "total"), SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize("rows", [100, None])
def test_a_write_tells_what_it_has_done_up_to_all_rows(processors, source, total, rows):
    told = Told()
    blz.to_blz(source(), RamStore("shelf"), storage=blz.Storage(row_group_rows=rows), progress=told)
    check_calls(told, total)


@pytest.mark.parametrize(("source", "total"), SOURCES.values(), ids=SOURCES)
def test_an_append_tells_what_it_has_done_up_to_all_rows(processors, source, total):
    store, told = RamStore("shelf"), Told()
    blz.to_blz(source(), store)
    with blz.open(store, "a") as table:
        table.append(source(), progress=told)
    check_calls(told, total)


WIDER = TABLE.append_column("d", TABLE["a"]).append_column("e", TABLE["a"])


@pytest.mark.parametrize("data", [WIDER, [TABLE[:100], WIDER[100:400], TABLE[400:]]], ids=len)
def test_an_append_that_adds_columns_tells_what_it_has_done_up_to_all_rows(processors, store, data):
    told = Told()
    with blz.open(store, "a") as table:
        table.append(data, evolve=True, progress=told)
        assert len(table) == 2 * ROWS
    check_calls(told, ROWS if data is WIDER else None)
    # More than the final number is reported: a row group of the store has 100 rows.
    assert len(told.calls) > 2


@pytest.mark.parametrize("source", [lambda: TABLE, items])
@pytest.mark.parametrize("way", ["ascending", "descending"])
def test_a_sorted_write_tells_what_it_has_done_up_to_all_rows(processors, source, way):
    """The first pass over a stream counts as half of the work."""
    told = Told()
    total = ROWS if source() is TABLE else None
    blz.to_blz(
        source(),
        RamStore("shelf"),
        sort_by=[("a", way)],
        storage=blz.Storage(row_group_rows=100),
        progress=told,
    )
    check_calls(told, total)


def test_a_stream_is_told_of_before_it_ends():
    told = Told()

    def watched():
        for number, item in enumerate(items()):
            # At most the yielded rows, and not only at the end.
            assert max(told.calls, default=(0, None))[0] <= 100 * number
            yield item
        assert len(told.calls) > 1

    blz.to_blz(watched(), RamStore("shelf"), storage=blz.Storage(row_group_rows=100), progress=told)


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_read_tells_what_it_has_done_up_to_all_rows(processors, store, read):
    told = Told()
    read(store, progress=told)
    check_calls(told, ROWS)
    told = Told()
    read(store, columns=["b"], progress=told)
    check_calls(told, ROWS)


def test_a_table_without_rows_is_done_at_once():
    told, store = Told(), RamStore("shelf")
    blz.to_blz(TABLE[:0], store, progress=told)
    blz.read_blz(store, progress=told)
    assert told.calls == [(0, 0), (0, 0)]


ERRORS = [ValueError, StopIteration, KeyboardInterrupt, GeneratorExit]


@pytest.mark.parametrize("source", [lambda: TABLE, items])
@pytest.mark.parametrize("kind", ERRORS)
def test_an_exception_of_the_callback_ends_the_write(processors, store, source, kind):
    before = tree(store)
    told = Told(error := kind("x"))
    with pytest.raises(kind) as caught:
        blz.to_blz(source(), store, storage=blz.Storage(row_group_rows=100), progress=told)
    assert caught.value is error
    assert len(told.calls) == 1
    assert tree(store) == before
    assert blz.read_table(store) == TABLE


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("kind", ERRORS)
def test_an_exception_of_the_callback_ends_the_read(processors, store, read, kind):
    told = Told(error := kind("x"))
    with pytest.raises(kind) as caught:
        read(store, progress=told)
    assert caught.value is error
    assert len(told.calls) == 1


# True


class Bar:
    """Records the values that tqdm would show."""

    made: list["Bar"]

    def __init__(self, **options):
        self.options, self.n, self.total, self.is_open = options, 0, None, None
        self.made.append(self)

    def update(self, rows):
        assert self.is_open
        assert rows >= 0
        self.n += rows

    def refresh(self):
        assert self.is_open

    def __enter__(self):
        self.is_open = True
        return self

    def __exit__(self, *_):
        self.is_open = False


@pytest.fixture
def bars(monkeypatch):
    monkeypatch.setattr(tqdm.auto, "tqdm", Bar)
    Bar.made = []
    return Bar.made


def test_true_is_a_bar_of_tqdm(bars, store):
    blz.to_blz(items(), RamStore("other"), progress=True)
    for read in READS.values():
        read(store, progress=True)
    assert [bar.options["desc"] for bar in bars] == ["writing"] + ["reading"] * 3
    assert {(bar.n, bar.total, bar.is_open) for bar in bars} == {(ROWS, ROWS, False)}


def test_the_bar_is_closed_where_the_work_fails(bars, store, monkeypatch):
    def failing():
        yield TABLE
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011
        blz.to_blz(failing(), store, progress=True)
    monkeypatch.setattr("blztable.engine.read.parts.PartFile.read_into", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        blz.read_blz(store, progress=True)
    assert [bar.is_open for bar in bars] == [False, False]


def test_the_real_bar_shows_the_rows(store, capsys):
    blz.read_blz(store, progress=True)
    shown = capsys.readouterr().err
    assert "reading: 100%" in shown
    assert "1.00k/1.00k" in shown


def test_without_tqdm_it_is_said_what_to_install(store, monkeypatch):
    real = builtins.__import__

    def absent(name, *args):
        if name.split(".")[0] == "tqdm":
            raise ModuleNotFoundError(name)
        return real(name, *args)

    for name in [name for name in sys.modules if name.split(".")[0] == "tqdm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", absent)
    for action in (
        lambda **o: blz.to_blz(TABLE, store, **arguments(**o)),
        *(lambda r=r, **o: r(store, **o) for r in READS.values()),
    ):
        with pytest.raises(ImportError, match=r"pip install 'blztable\[progress\]'"):
            action(progress=True)
        action(progress=Told())
        action(progress=False)


@pytest.mark.parametrize("progress", [1, 0, "yes", []], ids=str)
def test_other_values_are_told(store, progress):
    before = tree(store)
    with pytest.raises(TypeError, match="progress must be a bool or a callable, not"):
        blz.to_blz(TABLE, store, progress=progress)
    for read in READS.values():
        with pytest.raises(TypeError, match="progress must be a bool or a callable, not"):
            read(store, progress=progress)
    assert tree(store) == before
