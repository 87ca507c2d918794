"""Planned reads: what a read needs of data files has been asked for before it is read."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable import tuning
from blztable.storage.memory import RamStore
from support.bit_equality import same_table
from support.options import Tiny
from support.remote_places import Planned
from support.strange_tables import own_tables

ROWS = 5_000


@pytest.fixture(autouse=True)
def _exact(tuned):
    """Join only chunks that lie side by side: between two of them is a digest."""
    tuned(gap_bytes=4, gap_row_bytes=4)


def table_of(**options):
    """Return a planned store with a table of every encoding, nested columns and long texts."""
    draw = np.random.default_rng(0)
    words = draw.choice(["a", "bb", "ccc", None], ROWS)
    table = pa.table(
        {
            "key": np.arange(ROWS),
            "small": draw.integers(100, 120, ROWS),
            "sum": draw.integers(0, 1 << 40, ROWS).cumsum(),
            "float": draw.normal(size=ROWS),
            "price": pa.array(np.round(draw.normal(size=ROWS), 2), mask=draw.random(ROWS) < 0.1),
            "flag": draw.random(ROWS) < 0.5,
            "word": words,
            "text": [f"{'x' * int(n)} {i}" for i, n in enumerate(draw.integers(0, 300, ROWS))],
            "code": pa.array(words).dictionary_encode(),
            "same": np.ones(ROWS),
            "nested": [{"x": i, "y": ["z"] * (i % 4)} if i % 7 else None for i in range(ROWS)],
            "list": [list(range(i % 5)) for i in range(ROWS)],
        }
    )
    store = RamStore()
    # Pages have several chunks, so that what lies before a row counts.
    storage = Tiny(row_group_rows=2_000, page_rows=256, chunk_bytes=64, **options)
    with tuning.tuned(bundled_bytes=0):
        blz.to_blz(table, store, storage=storage)
    return Planned(store)


READS = {
    "everything": lambda t: t.to_arrow(),
    "two columns": lambda t: t.to_arrow(columns=["float", "word"]),
    "rows of the middle": lambda t: t[1_990:2_345],
    "single rows": lambda t: t.take([3, 500, 501, 4_444, 4_996]),
    "many single rows": lambda t: t.take(np.arange(0, ROWS, 9)),
    "a clustered filter": lambda t: t.to_arrow(filters=[("key", "<", 700)]),
    "a scattered filter": lambda t: t.to_arrow(filters=[("float", ">", 2.5)]),
    "a filter of codes": lambda t: t.to_arrow(filters=[("word", "==", "bb")]),
    "two conditions": lambda t: t.to_arrow(filters=[("word", "==", "bb"), ("sum", ">", 1 << 50)]),
    "a filter of fields": lambda t: t.to_arrow(filters=pc.field("nested", "x") > 4_000),
    "a count": lambda t: t.count(filters=[("price", ">", 0.5)]),
    "batches": lambda t: pa.Table.from_batches(list(t.to_batches(batch_rows=900))),
    "dictionaries": lambda t: t.to_arrow(dictionaries="auto"),
    "pandas": lambda t: t.to_pandas(columns=["key", "price", "code", "text"]),
}


@pytest.fixture(scope="module", params=[{}, {"encoding": "plain"}], ids=["encoded", "plain"])
def planned(request):
    return table_of(**request.param)


@pytest.mark.parametrize("name", READS)
def test_all_bytes_of_a_read_are_asked_for_before_it_begins(planned, name):
    store = planned
    with blz.open(store) as opened:
        found = READS[name](opened)
    assert store.unplanned == []
    assert store._asked == []
    with blz.open(store._store) as opened:
        expected = READS[name](opened)
    assert found.equals(expected) if hasattr(found, "equals") else found == expected


def test_rows_that_were_deleted_do_not_change_what_is_asked_for():
    store = table_of()
    with blz.open(store._store, "a") as opened:
        opened.delete([("key", "in", [7, 1_999, 2_000])])
    for name in ("everything", "single rows", "a scattered filter"):
        with blz.open(store) as opened:
            READS[name](opened)
    assert store.unplanned == []


@pytest.mark.parametrize("bundled", [0, 64 << 10])
def test_many_small_row_groups_are_asked_for_together(bundled):
    store = RamStore()
    with tuning.tuned(bundled_bytes=bundled):
        rows = pa.table({f"c{n}": np.arange(640) * n for n in range(20)} | {"t": ["ab"] * 640})
        blz.to_blz(rows, store, storage=blz.Storage(row_group_rows=64, page_rows=64))
    planned = Planned(store)
    with blz.open(planned) as opened:
        assert opened.to_arrow().equals(rows)
        assert opened.take(list(range(0, 640, 7)))["c3"].to_pylist() == [
            3 * n for n in range(0, 640, 7)
        ]
    assert planned.unplanned == []


# A page of texts that are longer than this is not asked for when single rows of it are read.
def test_a_long_text_in_a_single_row_is_read_when_its_lengths_are_known():
    store = RamStore()
    blz.to_blz(
        {"t": ["x" * 40_000 for _ in range(100)]}, store, storage=blz.Storage(encoding="plain")
    )
    planned = Planned(store)
    with blz.open(planned) as opened:
        assert opened.take([50])["t"].to_pylist() == ["x" * 40_000]
    assert len(planned.unplanned) == 1
    assert sum(length for *_, length in planned.unplanned) < 1 << 20


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=False
)
@given(table=own_tables(), data=st.data())
def test_any_table_is_read_as_planned(table, data):
    store = RamStore()
    size = data.draw(st.sampled_from([8, 16, 64]))
    storage = Tiny(row_group_rows=size, page_rows=8, chunk_bytes=8)
    blz.to_blz(table, store, storage=storage)
    planned = Planned(store)
    with blz.open(planned) as opened, blz.open(store) as plain:
        assert same_table(opened.to_arrow(), plain.to_arrow())
        if len(table):
            rows = data.draw(st.lists(st.integers(0, len(table) - 1), max_size=10))
            assert same_table(opened.take(rows), plain.take(rows))
            start = data.draw(st.integers(0, len(table)))
            assert same_table(opened[start : start + 9], plain[start : start + 9])
    assert planned.unplanned == []
