"""Row groups: how the items of a stream are joined and cut."""

import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import blztable as blz
from blztable.engine.write import row_groups
from blztable.storage.memory import RamStore
from support.options import arguments


# Bug: waiting items of a few rows were kept one by one, each with its overhead.
def test_very_many_small_items_are_joined_while_they_wait(tuned):
    tuned(joined_tables=10)
    pending = row_groups._Pending()
    for number in range(1000):
        pending.add(pa.table({"a": [number], "b": [str(number)]}), 1)
    chunks = sum(table["a"].num_chunks for table in pending._tables + pending._small)
    assert chunks <= 110
    (group,) = pending.cut(None)
    assert group[0].to_pydict() == {"a": list(range(1000)), "b": list(map(str, range(1000)))}


# Guards the joining of small items: rows must keep their order.
def test_small_and_large_items_keep_their_order(tuned):
    tuned(joined_tables=3, joined_bytes=100)
    sizes = [1, 2, 50, 1, 1, 1, 1, 60, 70, 3, 1]
    numbers = iter(range(sum(sizes)))
    items = [pa.table({"a": [next(numbers) for _ in range(size)]}) for size in sizes]
    store = RamStore()
    blz.to_blz(items, store, storage=blz.Storage(row_group_rows=20))
    assert blz.read_table(store)["a"].to_pylist() == list(range(sum(sizes)))


# Bug: a stream of one-row items took more than 100 MB.
def test_items_of_one_row_take_little_memory(tmp_path):
    """Uses a child process, whose peak memory other tests do not change."""
    code = """
        import resource, sys
        import pyarrow as pa
        import blztable as blz

        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

        def items(count):
            for number in range(count):
                yield pa.record_batch({f"c{i}": pa.array([number]) for i in range(16)})

        blz.to_blz(items(100), sys.argv[1], durability="process")
        before = peak()
        blz.to_blz(items(4000), sys.argv[1], durability="process")
        print(peak() - before)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), tmp_path / "t.blz"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    # Kept one by one, they took more than 50 MB.
    assert int(done.stdout) < 24 << 20


# Bug: each slice of a view column was counted with the whole buffer it points into.
@pytest.mark.parametrize("type_", [pa.string_view(), pa.binary_view()])
def test_views_of_a_large_buffer_do_not_make_groups_of_single_rows(type_):
    column = pa.array(["x" * 1000] * 1000, type_)
    table = pa.table({"a": column})
    assert row_groups.bytes_taken(table["a"].slice(0, 10)) == 10 * 1008
    nbytes = list(map(row_groups.bytes_taken, table.columns))
    assert list(row_groups.row_ranges(table, 1000, None, nbytes)) == [(0, 1000)]


@given(st.integers(1, 10**12), st.integers(1, 10**6).map(lambda number: 8 * number))
def test_expected_rows_are_cut_evenly_and_never_into_less_than_half(rows, most):
    size = row_groups.Expected(rows).divided(most)
    assert most / 2 <= size <= most
    assert -(-rows // size) == -(-rows // most)
    # The last row group is smaller than the others by less than eight rows for each of them.
    if rows > most:
        assert size - (rows - 1) % size - 1 < 8 * -(-rows // size)


def test_a_table_of_the_rows_expected_has_no_small_row_group(tuned):
    tuned(group_column_bytes=8000, least_group_rows=8)
    items = [{"n": range(start, start + 100)} for start in range(0, 1100, 100)]

    def groups(data, **options):
        store = RamStore()
        blz.to_blz(data, store, **arguments(**options))
        with blz.open(store) as t:
            assert t["n"].to_numpy().tolist() == list(range(1100))
            return t._snapshot.version.row_groups

    whole = {"n": range(1100)}
    assert groups(whole) == groups(iter(items)) == (1000, 100)
    assert groups(whole, expectedlen=1100) == groups(iter(items), expectedlen=1100) == (552, 548)
    assert groups(whole, expectedlen=1100, sort_by="n") == (552, 548)
    # A false number does no harm, and a number of rows goes before it.
    assert groups(whole, expectedlen=7) == (1000, 100)
    assert groups(whole, expectedlen=1100, row_group_rows=900) == (900, 200)


def test_a_table_remembers_the_rows_expected(tuned):
    tuned(group_column_bytes=8000, least_group_rows=8)
    store = RamStore()
    with blz.create(store, {"n": "int64"}, storage=blz.Storage(expectedlen=np.int64(1100))) as t:
        assert json.loads(store.get("meta/storage"))["expectedlen"] == 1100
        for start in range(0, 1100, 50):
            t.append({"n": range(start, start + 50)})
        with t.transaction() as tx, tx.appender() as rows:
            rows["n"].append(np.arange(1100))
        t.compact()
        assert json.loads(store.get("meta/storage"))["expectedlen"] == 1100
        assert max(t._snapshot.version.row_groups) == 552
    with pytest.raises(ValueError, match="expectedlen must be an integer from 1"):
        blz.to_blz({"n": [1]}, store, storage=blz.Storage(expectedlen=0))
